//! Reads and writes the messages of an introduction: bounded bytes in, JSON out.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};

use super::{Card, PairError};

/// The dialler's first message.
#[derive(Serialize, Deserialize)]
pub(super) struct Hello {
    pub(super) capd_pair: u64,
    pub(super) did: String,
}

/// The listener's first message.
#[derive(Serialize, Deserialize)]
pub(super) struct Welcome {
    pub(super) capd_pair: u64,
    pub(super) did: String,
    #[serde(with = "base64_bytes")]
    pub(super) pake: Vec<u8>,
}

/// The dialler's half of SPAKE2, and its proof that it has the key.
#[derive(Serialize, Deserialize)]
pub(super) struct Proof {
    #[serde(with = "base64_bytes")]
    pub(super) pake: Vec<u8>,
    #[serde(with = "base64_bytes")]
    pub(super) confirm: Vec<u8>,
}

/// The listener's proof, or why there is none.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Reply {
    Confirm(#[serde(with = "base64_bytes")] Vec<u8>),
    Refused(Why),
}

/// Why the listener ends an introduction.
#[derive(Clone, Copy, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Why {
    WrongCode,
    Used,
}

/// A card, signed with the key of its side's DID.
#[derive(Serialize, Deserialize)]
pub(super) struct SignedCard {
    pub(super) card: Card,
    #[serde(with = "base64_bytes")]
    pub(super) signature: Vec<u8>,
}

/// Whether an owner agrees.
#[derive(Serialize, Deserialize)]
pub(super) struct Verdict {
    pub(super) accept: bool,
}

/// Whether a side has written its configuration.
#[derive(Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) written: bool,
}

/// What one side gives the other besides.
#[derive(Serialize, Deserialize)]
pub(super) struct Given {
    #[serde(with = "base64_bytes")]
    pub(super) given: Vec<u8>,
}

/// Writes one message.
pub(super) async fn write<S: AsyncWrite + Unpin>(stream: &mut S, bytes: &[u8]) -> Result<(), PairError> {
    let length = u32::try_from(bytes.len()).map_err(|_| too_long(bytes.len()))?;
    // In one piece: a second one would wait until the other side has acknowledged the first, and be lost with a side that
    // ends before.
    stream.write_all(&[&length.to_be_bytes(), bytes].concat()).await?;
    Ok(stream.flush().await?)
}

/// Reads one message. **Errors:** it is longer than any of this protocol.
pub(super) async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Result<Vec<u8>, PairError> {
    let mut length = [0; 4];
    stream.read_exact(&mut length).await?;
    let length = u32::from_be_bytes(length) as usize;
    if length > MESSAGE_BYTES_MAX {
        return Err(too_long(length));
    }
    let mut bytes = vec![0; length];
    stream.read_exact(&mut bytes).await?;
    Ok(bytes)
}

/// A message as JSON.
pub(super) fn encode(message: &impl Serialize) -> Result<Vec<u8>, PairError> {
    serde_json::to_vec(message).map_err(|error| PairError::Malformed(error.to_string()))
}

/// JSON as a message.
pub(super) fn decode<M: DeserializeOwned>(bytes: &[u8]) -> Result<M, PairError> {
    serde_json::from_slice(bytes).map_err(|error| PairError::Malformed(error.to_string()))
}

fn too_long(length: usize) -> PairError {
    PairError::Malformed(format!("a message of {length} bytes; at most {MESSAGE_BYTES_MAX} are accepted"))
}

/// Bytes as base64 within JSON.
mod base64_bytes {
    use base64::Engine as _;
    use base64::engine::general_purpose::STANDARD;
    use serde::{Deserialize as _, Deserializer, Serializer, de::Error as _};

    pub(super) fn serialize<S: Serializer>(bytes: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(bytes))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Vec<u8>, D::Error> {
        let text = std::borrow::Cow::<str>::deserialize(deserializer)?;
        STANDARD.decode(text.as_bytes()).map_err(D::Error::custom)
    }
}

/// Longest message; a full card has less.
const MESSAGE_BYTES_MAX: usize = 16 * 1024;
