//! What a typed call takes besides its params: [`CallOptions`], and the schemas that its code was built against.
//!
//! `capctl gen` writes [`BuiltAgainst`] as constants beside the types of a capability.

use std::fmt;
use std::time::Duration;

use capd_proto::message::{ContentHash, DocSend, Type};
use tokio::sync::oneshot;

use super::dispatch::Waiting;
use super::outgoing::{Body, Outgoing};
use super::{Client, ClientError};

/// A schema document and its hash.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Schema {
    /// The SHA-256 of `json`'s bytes. **Shape:** 64 hexadecimal digits.
    pub sha256: &'static str,
    /// The document; it is sent byte for byte.
    pub json: &'static str,
}

impl fmt::Debug for Schema {
    /// The hash alone; documents are long.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({})", self.sha256)
    }
}

/// The two schemas that a caller's code was built against. A call that has them is proven before it is sent: its sidecar
/// refuses it with 4902 where no provider keeps to them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BuiltAgainst {
    /// What the code's params fit.
    pub input: Option<Schema>,
    /// What results must fit for the code to read them.
    pub output: Option<Schema>,
}

/// How a typed call is made; every field has a default.
#[derive(Clone, Debug, Default)]
pub struct CallOptions {
    /// A range such as `>=1.2.0 <2.0.0`; otherwise the newest release.
    pub version: Option<String>,
    /// How long the call may take; otherwise what the capability declares.
    pub timeout: Option<Duration>,
    /// An idempotency key: under one key a call runs at most once, also after restarts of this program and of both sidecars.
    /// **Shape:** 1 to 255 bytes. It is kept for 24 h.
    pub key: Option<String>,
    /// The thread that the call belongs to.
    pub thread: Option<String>,
    /// What idempotent calls are kept together by at one provider; see [`CallRequest::affinity`](super::CallRequest::affinity).
    pub affinity: Option<String>,
    /// The schemas that the call was built against.
    pub built_against: Option<BuiltAgainst>,
}

impl BuiltAgainst {
    pub(super) const fn sides(&self) -> [Option<Schema>; 2] {
        [self.input, self.output]
    }

    /// Whether it names no schema: nothing is proven then.
    pub(super) const fn is_empty(&self) -> bool {
        self.input.is_none() && self.output.is_none()
    }

    /// Both hashes. **Errors:** [`ClientError::Invalid`] for one that is none.
    pub(super) fn hashes(&self) -> Result<[Option<[u8; 32]>; 2], ClientError> {
        let [input, output] = self.sides().map(|side| side.map(|schema| schema.hash()).transpose());
        Ok([input?, output?])
    }
}

impl Schema {
    fn hash(&self) -> Result<[u8; 32], ClientError> {
        let mut hash = [0; 32];
        let is_whole = self.sha256.len() == 2 * hash.len() && self.sha256.is_ascii();
        for (byte, at) in hash.iter_mut().zip((0..).step_by(2)) {
            let digits = self.sha256.get(at..at + 2).filter(|_| is_whole);
            let parsed = digits.and_then(|digits| u8::from_str_radix(digits, 16).ok());
            *byte = parsed.ok_or_else(|| {
                ClientError::Invalid(format!(
                    "{:?} is no SHA-256; accepted: 64 hexadecimal digits",
                    self.sha256
                ))
            })?;
        }
        Ok(hash)
    }
}

impl Client {
    /// Gives the sidecar a schema that calls name as what they were built against.
    ///
    /// **Errors:** [`ClientError`]; a document that does not have its hash, or cannot be enforced, is a refusal.
    pub async fn put_schema(&self, schema: &Schema) -> Result<(), ClientError> {
        let hash = ContentHash::Sha256(schema.hash()?);
        let mut bytes = Vec::with_capacity(schema.json.len() + DOCUMENT_FIELDS_BYTES);
        DocSend {
            content_type: "application/schema+json".into(),
            filename: "schema.json".into(),
            size: schema.json.len() as u64,
            hash: hash.as_bytes().into(),
            data: schema.json.as_bytes().into(),
        }
        .encode(&mut bytes);
        let body = Body::from(bytes);
        let message = Outgoing::new(Type::DocSend, self.did(), &body);
        let wait = self.core.request_timeout;
        let (sender, answer) = oneshot::channel();
        self.send(&message, Waiting::request(Type::Ack, sender, wait), wait)?;
        let answer = answer.await;
        answer.unwrap_or_else(|_| Err(ClientError::Closed(self.core.dispatch.close_reason()))).map(drop)
    }
}

/// Bytes to begin with for the fields around a document.
const DOCUMENT_FIELDS_BYTES: usize = 160;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hash_has_64_hexadecimal_digits() {
        let schema = |sha256| Schema { sha256, json: "{}" };
        let digits = "00ff0000000000000000000000000000000000000000000000000000000000a1";
        let hash = schema(digits).hash().unwrap();
        assert_eq!((hash[0], hash[1], hash[31]), (0, 0xff, 0xa1));
        for text in
            ["", "00", &digits[1..], "zz", "éé000000000000000000000000000000000000000000000000000000000000"]
        {
            let leaked: &'static str = Box::leak(text.to_owned().into_boxed_str());
            assert!(matches!(schema(leaked).hash(), Err(ClientError::Invalid(_))), "{text}");
        }
    }
}
