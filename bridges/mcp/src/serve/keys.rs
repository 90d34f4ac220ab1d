//! Idempotency keys in; the calls that they stand for, out.
//!
//! A key is remembered as the id of its call: under one id the sidecars run a call at most once.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use capd_client::CallRequest;
use capd_client::proto::envelope::MessageId;
use sha2::{Digest as _, Sha256};
use tokio::time::Instant;

/// The keys of this process.
#[derive(Default)]
pub(super) struct Keys {
    known: Mutex<HashMap<String, Known>>,
}

struct Known {
    /// Of what is called, and with which params.
    digest: [u8; 32],
    id: MessageId,
    at: Instant,
}

/// Why a key cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum KeyError {
    /// It is empty or too long.
    #[error("the idempotency key must have 1 to {KEY_BYTES_MAX} bytes")]
    Length,
    /// It stands for another call.
    #[error("this idempotency key was given with another tool or other arguments")]
    Reused,
    /// No more keys can be remembered.
    #[error("{KEYS_MAX} idempotency keys are remembered already")]
    Full,
    /// The system gives no random bytes.
    #[error("the system gives no random bytes")]
    Random,
}

/// A call's request with what identifies it.
pub(super) struct Keyed {
    pub(super) request: CallRequest,
    /// Whether the key was known, so that the call may have been made before.
    pub(super) is_repeat: bool,
}

impl Keys {
    /// Gives `request` the identity that `key` stands for. This is the one place where a key becomes part of a call.
    ///
    /// **Errors:** [`KeyError`]; nothing may be sent then.
    pub(super) fn apply(
        &self,
        request: CallRequest,
        key: &str,
        capability: &str,
        params: &[u8],
        now_ms: u64,
    ) -> Result<Keyed, KeyError> {
        if !(1..=KEY_BYTES_MAX).contains(&key.len()) {
            return Err(KeyError::Length);
        }
        let mut digest = Sha256::new();
        digest.update(capability);
        digest.update([0]);
        digest.update(params);
        let digest: [u8; 32] = digest.finalize().into();
        let mut known = self.known();
        known.retain(|_, known| known.at.elapsed() < KEY_TTL);
        let ttl = KEY_TTL + Duration::from_secs(60);
        if let Some(known) = known.get(key) {
            if known.digest != digest {
                return Err(KeyError::Reused);
            }
            return Ok(Keyed { request: request.id(known.id).ttl(ttl), is_repeat: true });
        }
        if known.len() >= KEYS_MAX {
            return Err(KeyError::Full);
        }
        let mut random = [0; 8];
        getrandom::fill(&mut random).map_err(|_| KeyError::Random)?;
        let id = MessageId::new(now_ms, random);
        known.insert(key.to_owned(), Known { digest, id, at: Instant::now() });
        Ok(Keyed { request: request.id(id).ttl(ttl), is_repeat: false })
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Longest key. **Source:** AGENT-API 3.
const KEY_BYTES_MAX: usize = 255;
/// Keys of one process.
const KEYS_MAX: usize = 100_000;
/// How long a key stands for its call.
const KEY_TTL: Duration = Duration::from_hours(1);
