//! Decodes and encodes the payloads of HANDSHAKE, GOAWAY and ERROR frames (PROTOCOL 3, 4).

use std::borrow::Cow;

use thiserror::Error;

use crate::cbor::{self, Checker, Reader, TagPolicy, Writer};
use crate::code::Code;
use crate::limits::{MESSAGE_ID_BYTES, PROOF_BYTES};

/// A frame payload of the wrong shape for its frame type.
///
/// **Errors:** 1001 INVALID_MESSAGE; the link closes. **Source:** PROTOCOL 3, 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum PayloadError {
    /// Bytes that are not CBOR we accept, or a field of another type.
    #[error(transparent)]
    Cbor(#[from] cbor::Error),
    /// A required field that is missing.
    #[error("missing field {0:?}")]
    Missing(&'static str),
    /// A field whose value is out of its bounds.
    #[error("field {name:?} must be {expected}, at byte {offset}")]
    Field {
        /// The field's key.
        name: &'static str,
        /// What it must be.
        expected: &'static str,
        /// Where its value starts, in bytes.
        offset: usize,
    },
}

impl PayloadError {
    /// The wire code of the ERROR that goes out before the link closes.
    pub const fn code(self) -> Code {
        match self {
            Self::Cbor(_) | Self::Missing(_) | Self::Field { .. } => Code::INVALID_MESSAGE,
        }
    }
}

/// The client's HANDSHAKE.
///
/// **Shape:** `{"version": uint, "max_msg_size": uint, ? "did": tstr, ? "nonce": bstr .size 32, ? "proof": bstr .size
/// 32, ? "token": bstr, ? "extensions": [* tstr]}`. **Units:** `max_msg_size` in bytes. **Source:** PROTOCOL 4; `nonce`
/// and `proof` are extensions of capd: on loopback TCP both sides prove that they know the token, and neither sends it.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct HandshakeRequest<'a> {
    /// The protocol version; capd speaks 1.
    pub version: u64,
    /// The largest frame length that the client accepts.
    pub max_msg_size: u64,
    /// The client's DID, on links whose transport does not prove one.
    pub did: Option<Cow<'a, str>>,
    /// A fresh nonce for each link: the server must prove that it knows the token, and send its own nonce.
    pub nonce: Option<[u8; PROOF_BYTES]>,
    /// The proof that the client knows the token, for the server's nonce.
    pub proof: Option<[u8; PROOF_BYTES]>,
    /// The token of a loopback link in plain text, from agents that do not prove it; capd never sends it.
    pub token: Option<Cow<'a, [u8]>>,
    /// The extensions that the client offers.
    pub extensions: Option<Vec<Cow<'a, str>>>,
}

impl std::fmt::Debug for HandshakeRequest<'_> {
    /// Everything but the token, which is a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HandshakeRequest")
            .field("version", &self.version)
            .field("max_msg_size", &self.max_msg_size)
            .field("did", &self.did)
            .field("nonce", &self.nonce.is_some())
            .field("proof", &self.proof.is_some())
            .field("token", &self.token.as_ref().map(|_| "(secret)"))
            .field("extensions", &self.extensions)
            .finish()
    }
}

impl<'a> HandshakeRequest<'a> {
    /// Reads the payload of a client's HANDSHAKE frame; unknown keys are ignored.
    ///
    /// **Errors:** 1001.
    pub fn decode(payload: &'a [u8]) -> Result<Self, PayloadError> {
        let (mut version, mut max_msg_size) = (None, None);
        let mut request = Self::default();
        fields(payload, |key, reader| {
            match key {
                "version" => version = Some(reader.uint()?),
                "max_msg_size" => max_msg_size = Some(reader.uint()?),
                "did" => request.did = Some(reader.text()?),
                "nonce" => request.nonce = Some(proof_bytes("nonce", reader)?),
                "proof" => request.proof = Some(proof_bytes("proof", reader)?),
                "token" => request.token = Some(reader.bytes()?),
                "extensions" => request.extensions = Some(texts(reader)?),
                _ => {
                    reader.skip()?;
                }
            }
            Ok(())
        })?;
        request.version = version.ok_or(PayloadError::Missing("version"))?;
        request.max_msg_size = max_msg_size.ok_or(PayloadError::Missing("max_msg_size"))?;
        Ok(request)
    }

    /// Appends the payload in deterministic encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let optional = [
            self.did.is_some(),
            self.nonce.is_some(),
            self.proof.is_some(),
            self.token.is_some(),
            self.extensions.is_some(),
        ]
        .map(u64::from);
        let mut writer = Writer::new(out);
        writer.map(2 + optional.iter().sum::<u64>());
        if let Some(did) = &self.did {
            writer.text("did").text(did);
        }
        write_proof(&mut writer, self.nonce, self.proof);
        if let Some(token) = &self.token {
            writer.text("token").bytes(token);
        }
        writer.text("version").uint(self.version);
        write_extensions(&mut writer, self.extensions.as_deref());
        writer.text("max_msg_size").uint(self.max_msg_size);
    }
}

/// The server's HANDSHAKE.
///
/// **Shape:** `{"version": uint, "accepted": bool, "max_msg_size": uint, ? "error": tstr, ? "nonce": bstr .size 32, ?
/// "proof": bstr .size 32, ? "extensions": [* tstr], ? "did": tstr}`. **Units:** `max_msg_size` in bytes. **Source:**
/// PROTOCOL 4; `did`, `nonce` and `proof` are extensions of capd. `did` tells a client on a local link whose sidecar
/// this is. An answer with `nonce` and `proof` accepts nothing yet, and waits for the client's proof.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HandshakeResponse<'a> {
    /// The protocol version; capd speaks 1.
    pub version: u64,
    /// Whether the server accepts the link; otherwise it closes it.
    pub accepted: bool,
    /// The largest frame length that the server accepts.
    pub max_msg_size: u64,
    /// Why the link is refused.
    pub error: Option<Cow<'a, str>>,
    /// The nonce for the client's proof.
    pub nonce: Option<[u8; PROOF_BYTES]>,
    /// The proof that the server knows the token, for the client's nonce.
    pub proof: Option<[u8; PROOF_BYTES]>,
    /// The extensions that both sides have.
    pub extensions: Option<Vec<Cow<'a, str>>>,
    /// The server's DID.
    pub did: Option<Cow<'a, str>>,
}

impl<'a> HandshakeResponse<'a> {
    /// Reads the payload of a server's HANDSHAKE frame; unknown keys are ignored.
    ///
    /// **Errors:** 1001.
    pub fn decode(payload: &'a [u8]) -> Result<Self, PayloadError> {
        let (mut version, mut accepted, mut max_msg_size) = (None, None, None);
        let mut response = Self::default();
        fields(payload, |key, reader| {
            match key {
                "version" => version = Some(reader.uint()?),
                "accepted" => accepted = Some(reader.bool()?),
                "max_msg_size" => max_msg_size = Some(reader.uint()?),
                "error" => response.error = Some(reader.text()?),
                "nonce" => response.nonce = Some(proof_bytes("nonce", reader)?),
                "proof" => response.proof = Some(proof_bytes("proof", reader)?),
                "extensions" => response.extensions = Some(texts(reader)?),
                "did" => response.did = Some(reader.text()?),
                _ => {
                    reader.skip()?;
                }
            }
            Ok(())
        })?;
        response.version = version.ok_or(PayloadError::Missing("version"))?;
        response.accepted = accepted.ok_or(PayloadError::Missing("accepted"))?;
        response.max_msg_size = max_msg_size.ok_or(PayloadError::Missing("max_msg_size"))?;
        Ok(response)
    }

    /// Appends the payload in deterministic encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let optional = [
            self.error.is_some(),
            self.nonce.is_some(),
            self.proof.is_some(),
            self.extensions.is_some(),
            self.did.is_some(),
        ]
        .map(u64::from);
        let mut writer = Writer::new(out);
        writer.map(3 + optional.iter().sum::<u64>());
        if let Some(did) = &self.did {
            writer.text("did").text(did);
        }
        if let Some(error) = &self.error {
            writer.text("error").text(error);
        }
        write_proof(&mut writer, self.nonce, self.proof);
        writer.text("version").uint(self.version);
        writer.text("accepted").bool(self.accepted);
        write_extensions(&mut writer, self.extensions.as_deref());
        writer.text("max_msg_size").uint(self.max_msg_size);
    }
}

/// GOAWAY: the sender accepts no new work.
///
/// **Shape:** `{"reason": uint, ? "message": tstr, ? "last_id": bstr .size 16}`. **Source:** PROTOCOL 3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Goaway<'a> {
    /// Why; a wire code, or 0 for an ordinary end.
    pub reason: u64,
    /// The same in words.
    pub message: Option<Cow<'a, str>>,
    /// The id of the last accepted message.
    pub last_id: Option<[u8; MESSAGE_ID_BYTES]>,
}

impl<'a> Goaway<'a> {
    /// Reads the payload of a GOAWAY frame; unknown keys are ignored.
    ///
    /// **Errors:** 1001.
    pub fn decode(payload: &'a [u8]) -> Result<Self, PayloadError> {
        let mut reason = None;
        let mut goaway = Self::default();
        fields(payload, |key, reader| {
            match key {
                "reason" => reason = Some(reader.uint()?),
                "message" => goaway.message = Some(reader.text()?),
                "last_id" => goaway.last_id = Some(message_id("last_id", reader)?),
                _ => {
                    reader.skip()?;
                }
            }
            Ok(())
        })?;
        goaway.reason = reason.ok_or(PayloadError::Missing("reason"))?;
        Ok(goaway)
    }

    /// Appends the payload in deterministic encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let optional = [self.message.is_some(), self.last_id.is_some()].map(u64::from);
        let mut writer = Writer::new(out);
        writer.map(1 + optional.iter().sum::<u64>());
        writer.text("reason").uint(self.reason);
        if let Some(last_id) = &self.last_id {
            writer.text("last_id").bytes(last_id);
        }
        if let Some(message) = &self.message {
            writer.text("message").text(message);
        }
    }
}

/// ERROR as a frame: what went wrong below the messages.
///
/// **Shape:** `{"code": uint, "message": tstr, ? "msg_id": bstr .size 16}`. **Source:** PROTOCOL 3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorFrame<'a> {
    /// A wire code; wider than [`Code`], so that a peer's unknown code survives.
    pub code: u64,
    /// The same in words.
    pub message: Cow<'a, str>,
    /// The id of the message at fault.
    pub msg_id: Option<[u8; MESSAGE_ID_BYTES]>,
}

impl<'a> ErrorFrame<'a> {
    /// Reads the payload of an ERROR frame; unknown keys are ignored.
    ///
    /// **Errors:** 1001.
    pub fn decode(payload: &'a [u8]) -> Result<Self, PayloadError> {
        let (mut code, mut message) = (None, None);
        let mut error = Self::default();
        fields(payload, |key, reader| {
            match key {
                "code" => code = Some(reader.uint()?),
                "message" => message = Some(reader.text()?),
                "msg_id" => error.msg_id = Some(message_id("msg_id", reader)?),
                _ => {
                    reader.skip()?;
                }
            }
            Ok(())
        })?;
        error.code = code.ok_or(PayloadError::Missing("code"))?;
        error.message = message.ok_or(PayloadError::Missing("message"))?;
        Ok(error)
    }

    /// Appends the payload in deterministic encoding.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut writer = Writer::new(out);
        writer.map(2 + u64::from(self.msg_id.is_some()));
        writer.text("code").uint(self.code);
        if let Some(msg_id) = &self.msg_id {
            writer.text("msg_id").bytes(msg_id);
        }
        writer.text("message").text(&self.message);
    }
}

/// Checks the payload as CBOR, then hands each key of its map and a reader at the value to `on_field`.
fn fields<'a>(
    payload: &'a [u8],
    mut on_field: impl FnMut(&str, &mut Reader<'a>) -> Result<(), PayloadError>,
) -> Result<(), PayloadError> {
    // PROTOCOL 5: tags stand only inside params, result, details and ext.
    Checker::new(payload, TagPolicy::UnderPayloadKeys).whole()?;
    let mut reader = Reader::new(payload);
    let mut left = reader.map()?;
    while reader.has_next(&mut left) {
        let key = reader.text()?;
        on_field(&key, &mut reader)?;
    }
    Ok(())
}

fn texts<'a>(reader: &mut Reader<'a>) -> Result<Vec<Cow<'a, str>>, PayloadError> {
    let mut left = reader.array()?;
    let mut texts = Vec::new();
    while reader.has_next(&mut left) {
        texts.push(reader.text()?);
    }
    Ok(texts)
}

fn proof_bytes(name: &'static str, reader: &mut Reader<'_>) -> Result<[u8; PROOF_BYTES], PayloadError> {
    let offset = reader.position();
    let bytes = reader.bytes()?;
    bytes.as_ref().try_into().map_err(|_| PayloadError::Field { name, expected: "32 bytes", offset })
}

fn write_proof(writer: &mut Writer<'_>, nonce: Option<[u8; PROOF_BYTES]>, proof: Option<[u8; PROOF_BYTES]>) {
    for (key, bytes) in [("nonce", nonce), ("proof", proof)] {
        if let Some(bytes) = bytes {
            writer.text(key).bytes(&bytes);
        }
    }
}

fn message_id(name: &'static str, reader: &mut Reader<'_>) -> Result<[u8; MESSAGE_ID_BYTES], PayloadError> {
    let offset = reader.position();
    let bytes = reader.bytes()?;
    bytes.as_ref().try_into().map_err(|_| PayloadError::Field { name, expected: "16 bytes", offset })
}

fn write_extensions(writer: &mut Writer<'_>, extensions: Option<&[Cow<'_, str>]>) {
    let Some(extensions) = extensions else { return };
    writer.text("extensions").array(extensions.len() as u64);
    for extension in extensions {
        writer.text(extension);
    }
}
