//! Builds the bytes of an envelope for a local link from a type and a body.

use bytes::Bytes;
use capd_proto::envelope::{Draft, Encoded, Ext, MessageId, Recipients};
use capd_proto::identity::Did;
use capd_proto::message::Type;

use super::ClientError;
use capd_net::{SendError, System};

/// A message before it has a time.
pub(super) struct Outgoing<'a> {
    /// Given to repeat a message; otherwise a fresh one.
    pub(super) id: Option<MessageId>,
    pub(super) typ: Type,
    /// The agent of this link's sidecar.
    pub(super) from: &'a Did,
    pub(super) to: &'a Did,
    pub(super) reply_to: Option<MessageId>,
    pub(super) thread_id: Option<&'a [u8]>,
    pub(super) ttl_ms: u64,
    pub(super) body: &'a Body,
    pub(super) ext: Ext<'a>,
}

/// A body, written by `capd_proto::message`.
#[derive(Debug)]
pub(super) struct Body {
    /// Its bytes, but for an item that lies apart.
    pub(super) bytes: Vec<u8>,
    /// A large item, and where in `bytes` it belongs.
    pub(super) apart: Option<(usize, Bytes)>,
}

impl From<Vec<u8>> for Body {
    fn from(bytes: Vec<u8>) -> Self {
        Self { bytes, apart: None }
    }
}

impl<'a> Outgoing<'a> {
    /// A message of the agent `did` to itself, which is how it speaks to its sidecar.
    pub(super) const fn new(typ: Type, did: &'a Did, body: &'a Body) -> Self {
        let (ttl_ms, ext) = (TTL_MS_DEFAULT, Ext::None);
        Self { id: None, typ, from: did, to: did, reply_to: None, thread_id: None, ttl_ms, body, ext }
    }

    /// The envelope, and its id. **Errors:** no randomness.
    pub(super) fn seal(&self, system: &System) -> Result<(MessageId, Encoded), ClientError> {
        let (id, ts) = match self.id {
            // The id's time must be within a second of `ts`, so a repeated message keeps its time.
            Some(id) => (id, id.ts_ms()),
            None => {
                let ts = system.clock.wall_ms();
                let random = system.random.bytes();
                let random = random.map_err(|error| ClientError::Unsent(error.to_string()))?;
                (MessageId::new(ts, random), ts)
            }
        };
        let draft = Draft {
            id,
            typ: self.typ.code(),
            ts,
            ttl: self.ttl_ms,
            from: self.from,
            to: Recipients::one(self.to),
            reply_to: self.reply_to.as_ref().map(|id| id.as_bytes().as_slice()),
            thread_id: self.thread_id,
            body: &self.body.bytes,
            ext: self.ext,
        };
        // PROTOCOL 2: on a local link `sig` may be empty; the sidecar signs what leaves it.
        if let Some((at, item)) = &self.body.apart {
            return Ok((id, draft.write_apart(*at, item.clone())));
        }
        let mut bytes = Vec::with_capacity(ENVELOPE_BYTES + self.body.bytes.len());
        draft.write_unsigned(&mut bytes);
        Ok((id, bytes.into()))
    }
}

/// Why the link did not take a message, as the client's error.
pub(super) fn unsent(error: SendError) -> ClientError {
    match error {
        SendError::Closed | SendError::Draining => ClientError::Closed(error.to_string()),
        SendError::Full | SendError::TooLarge { .. } => ClientError::Unsent(error.to_string()),
    }
}

/// How long a message other than a call is valid, in milliseconds: longer than its answer is waited for.
const TTL_MS_DEFAULT: u64 = 60_000;
/// Bytes to begin with for an envelope around its body.
const ENVELOPE_BYTES: usize = 320;
