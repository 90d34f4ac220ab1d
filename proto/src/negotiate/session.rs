//! Pins versions to sessions: agreed versions in, the version of a call's session out.

use std::collections::{BTreeMap, BTreeSet};

use super::Want;
use crate::{
    capability::{CapabilityName, Version},
    code::Code,
    identity::Did,
    limits::SESSION_ID_BYTES,
};

/// The id of a session, drawn from a CSPRNG by the side that accepts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(pub [u8; SESSION_ID_BYTES]);

/// An agreement on one version of one capability with one peer. **Source:** PROTOCOL 7.5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Session {
    /// The id that its calls carry.
    pub id: SessionId,
    /// The peer that agreed; it pins nobody else's calls.
    pub peer: Did,
    /// The capability it is about.
    pub name: CapabilityName,
    /// The own version of the descriptor that was chosen.
    pub agreed_version: Version,
    /// The first moment at which it no longer holds. **Units:** milliseconds since the Unix epoch.
    pub expires_at: u64,
}

/// The sessions of one sidecar, bounded in all and for each peer.
#[derive(Debug)]
pub struct Sessions {
    sessions_max: usize,
    peer_sessions_max: usize,
    // The three hold the same sessions: each of `by_id` stands once in `by_expiry`, and is counted in `by_peer`.
    by_id: BTreeMap<SessionId, Session>,
    by_expiry: BTreeSet<(u64, SessionId)>,
    by_peer: BTreeMap<Did, usize>,
}

/// No further session is accepted at the moment: a 5004.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("too many sessions are open")]
pub struct SessionsFull;

impl SessionsFull {
    /// The wire code, always 5004.
    pub const fn code(self) -> Code {
        Code::OVERLOADED
    }
}

/// A call's session does not match the rest of the call: a 4001.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PinError {
    /// The call names a version, and the session agreed on another.
    #[error("the call names a version other than the one its session agreed on")]
    OtherVersion,
    /// The call names no version, and its session is unknown, expired, or about another capability.
    #[error("the call names no version, and its session pins none for this capability")]
    NotPinned,
}

impl PinError {
    /// The wire code, always 4001. **Source:** PROTOCOL 7.3.
    pub const fn code(self) -> Code {
        Code::BAD_REQUEST
    }
}

impl Sessions {
    /// A table of at most `sessions_max` sessions, `peer_sessions_max` of them with the same peer.
    pub const fn new(sessions_max: usize, peer_sessions_max: usize) -> Self {
        Self {
            sessions_max,
            peer_sessions_max,
            by_id: BTreeMap::new(),
            by_expiry: BTreeSet::new(),
            by_peer: BTreeMap::new(),
        }
    }

    /// Adds a session, after removing expired ones.
    ///
    /// **Errors:** 5004 at either bound, or when the id is taken.
    pub fn accept(&mut self, session: Session, now_ms: u64) -> Result<(), SessionsFull> {
        self.expire(now_ms);
        let of_peer = self.by_peer.get(&session.peer).copied().unwrap_or(0);
        let is_full = self.by_id.len() >= self.sessions_max || of_peer >= self.peer_sessions_max;
        if is_full || self.by_id.contains_key(&session.id) {
            return Err(SessionsFull);
        }
        self.by_peer.insert(session.peer.clone(), of_peer + 1);
        self.by_expiry.insert((session.expires_at, session.id));
        self.by_id.insert(session.id, session);
        Ok(())
    }

    /// The session of that id, while it holds and only for the peer that agreed to it.
    pub fn lookup(&self, id: SessionId, peer: &str, now_ms: u64) -> Option<&Session> {
        self.by_id.get(&id).filter(|session| now_ms < session.expires_at && session.peer.as_str() == peer)
    }

    /// Removes every expired session, and returns how many there were.
    pub fn expire(&mut self, now_ms: u64) -> usize {
        let mut expired = 0;
        while let Some(&(expires_at, id)) = self.by_expiry.first()
            && expires_at <= now_ms
        {
            self.by_expiry.pop_first();
            self.forget(id);
            expired += 1;
        }
        expired
    }

    /// When the next session expires. **Units:** milliseconds since the Unix epoch.
    pub fn next_expiry(&self) -> Option<u64> {
        self.by_expiry.first().map(|&(expires_at, _)| expires_at)
    }

    /// The number of sessions, including expired ones that were not removed yet.
    pub fn len(&self) -> usize {
        self.by_id.len()
    }

    /// Whether none is held.
    pub fn is_empty(&self) -> bool {
        self.by_id.is_empty()
    }

    /// The version that a call gets, given its session.
    ///
    /// A session that is valid for `peer` and `name` pins its version, whatever the call would negotiate. An invalid
    /// session counts as none. **Errors:** 4001. **Source:** PROTOCOL 7.3, 7.5.
    pub fn want(
        &self,
        name: &str,
        asked: Option<Want>,
        session: Option<SessionId>,
        peer: &str,
        now_ms: u64,
    ) -> Result<Want, PinError> {
        let pinned = session
            .and_then(|id| self.lookup(id, peer, now_ms))
            .filter(|session| session.name.as_str() == name)
            .map(|session| &session.agreed_version);
        match (pinned, asked) {
            (Some(pinned), Some(Want::Exact(asked))) if asked != *pinned => Err(PinError::OtherVersion),
            (Some(pinned), _) => Ok(Want::Pinned(pinned.clone())),
            (None, Some(asked)) => Ok(asked),
            (None, None) => Err(PinError::NotPinned),
        }
    }

    fn forget(&mut self, id: SessionId) {
        let Some(session) = self.by_id.remove(&id) else { return };
        if let Some(count) = self.by_peer.get_mut(&session.peer) {
            *count -= 1;
            if *count == 0 {
                self.by_peer.remove(&session.peer);
            }
        }
    }
}
