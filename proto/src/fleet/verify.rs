//! Keys and values of the registry in, registrations that a watcher may believe out.

use std::collections::{BTreeMap, BTreeSet};

use sha2::{Digest as _, Sha256};
use thiserror::Error;

use super::agent::Agent;
use super::cell::Cell;
use super::key::{PathError, Shard};
use super::membership::{Membership, MembershipError};
use super::record::RecordError;
use super::registration::{Parts, Registration};
use super::revocation::Revocation;
use crate::capability::CapabilityName;
use crate::identity::PublicKey;
use crate::limits::{REGISTRATION_BYTES_MAX, REGISTRATION_LIFE_MS_MAX, REGISTRATION_SKEW_MS_MAX};

/// Decides which bytes of a registry count, and remembers enough to notice when the registry goes back in time.
///
/// **Source:** FLEET 5.
#[derive(Debug)]
pub struct Verifier {
    cell: Cell,
    authority: PublicKey,
    known: Known,
    /// Never goes back: a registry can withhold a revocation, and cannot take one back.
    revoked: BTreeMap<Agent, u64>,
    seen: BTreeMap<Agent, Seen>,
    is_order_checked: bool,
}

/// What was last believed of an agent.
#[derive(Debug)]
struct Seen {
    incarnation: u64,
    /// The last generation of each name, of this incarnation.
    generations: BTreeMap<CapabilityName, u64>,
    /// From when on no record of what was seen passes the check of time. **Units:** milliseconds.
    not_after_ms: u64,
}

/// Hashes of signatures that were found good, so that none is verified twice.
#[derive(Clone, Debug, Default)]
pub struct Known(BTreeSet<Hash>);

type Hash = [u8; 32];

/// A registration that a watcher believes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registered {
    /// What the agent says.
    pub registration: Registration,
    /// The serial of the membership it came with.
    pub serial: u64,
    /// When that membership ends. **Units:** milliseconds since 1970.
    pub member_until_ms: u64,
}

impl Verifier {
    /// A verifier that has seen nothing.
    pub fn new(cell: Cell, authority: PublicKey) -> Self {
        Self {
            cell,
            authority,
            known: Known::default(),
            revoked: BTreeMap::new(),
            seen: BTreeMap::new(),
            is_order_checked: true,
        }
    }

    /// The cell whose records count.
    pub const fn cell(&self) -> &Cell {
        &self.cell
    }

    /// Checks a registration, in the order of FLEET 5: length, agent, place, encoding, time, membership, revocation,
    /// signature, and that it is not older than what was seen of this agent.
    ///
    /// **Errors:** the first of these that fails. Nothing of a refused registration is remembered.
    pub fn registration(
        &mut self,
        name: &CapabilityName,
        shard: Shard,
        agent: &Agent,
        value: &[u8],
        now_ms: u64,
    ) -> Result<Registered, Refused> {
        if value.len() > REGISTRATION_BYTES_MAX {
            return Err(Refused::TooLong(value.len()));
        }
        let parts = Parts::decode(value)?;
        let registration = &parts.registration;
        if registration.agent != *agent {
            return Err(Refused::OtherAgent);
        }
        let is_at_home = registration.cell == self.cell && registration.name == *name;
        if !is_at_home || Shard::of(agent) != shard {
            return Err(Refused::OtherPlace);
        }
        if !parts.is_canonical(value) {
            return Err(Refused::NotCanonical);
        }
        check_time(registration, now_ms)?;
        let membership = self.unrevoked(&parts.membership, agent, now_ms)?;
        if !membership.allows(name.as_str()) {
            return Err(Refused::NotAllowed);
        }
        if self.is_revoked(agent, membership.serial) {
            return Err(Refused::Revoked);
        }
        let hash = Sha256::digest(value).into();
        if !self.known.0.contains(&hash) {
            if !parts.is_authentic() {
                return Err(Refused::Signature);
            }
            self.known.add(hash);
        }
        self.check_order(registration)?;
        Ok(Registered {
            serial: membership.serial,
            member_until_ms: membership.not_after_ms,
            registration: parts.registration,
        })
    }

    /// Checks a membership that an agent shows when it opens a link.
    ///
    /// **Errors:** a membership that does not count, that is another's, or that is revoked.
    pub fn membership(&mut self, bytes: &[u8], agent: &Agent, now_ms: u64) -> Result<Membership, Refused> {
        let membership = self.unrevoked(bytes, agent, now_ms)?;
        if self.is_revoked(agent, membership.serial) {
            return Err(Refused::Revoked);
        }
        Ok(membership)
    }

    /// Checks all of a membership but that it may be revoked.
    fn unrevoked(&mut self, bytes: &[u8], agent: &Agent, now_ms: u64) -> Result<Membership, Refused> {
        let hash = Sha256::digest(bytes).into();
        let membership = match self.known.0.contains(&hash) {
            true => Membership::signed_before(bytes, &self.cell, now_ms)?,
            false => Membership::verify(bytes, &self.cell, &self.authority, now_ms)?,
        };
        if membership.agent != *agent {
            return Err(Refused::OtherMember);
        }
        self.known.add(hash);
        Ok(membership)
    }

    /// Takes in a value that stands under an agent's revocation key.
    ///
    /// **Errors:** bytes that are no revocation of this agent by the cell's authority.
    pub fn revocation(&mut self, agent: &Agent, value: &[u8]) -> Result<Revocation, Refused> {
        let revocation = Revocation::verify(value, &self.cell, &self.authority)?.ok_or(Refused::Signature)?;
        if revocation.agent != *agent {
            return Err(Refused::OtherAgent);
        }
        self.revoke(*agent, revocation.serial_min);
        Ok(revocation)
    }

    /// Takes in that an agent's memberships below this serial are revoked, as another verifier found out.
    pub fn revoke(&mut self, agent: Agent, serial_min: u64) {
        let known = self.revoked.entry(agent).or_default();
        *known = serial_min.max(*known);
    }

    /// The least serial that a membership of this agent must have to count; none where nothing of it is revoked.
    pub fn revoked_below(&self, agent: &Agent) -> Option<u64> {
        self.revoked.get(agent).copied()
    }

    /// Whether an agent's membership of this serial is revoked, as far as is known here.
    pub fn is_revoked(&self, agent: &Agent, serial: u64) -> bool {
        self.revoked.get(agent).is_some_and(|serial_min| serial < *serial_min)
    }

    /// Whether records are held to the order in which they were made: always, but where a test leaves that out.
    pub(super) const fn is_order_checked(&self) -> bool {
        self.is_order_checked
    }

    /// Forgets what was seen of registrations that have ended, which no check of time would let pass again.
    pub fn forget(&mut self, now_ms: u64) {
        self.seen.retain(|_, seen| now_ms < seen.not_after_ms);
    }

    /// A registry that goes back in time, or replays what it once had, is caught here. An agent that starts again
    /// registers all of its names anew, so that its former process is over for each of them.
    fn check_order(&mut self, registration: &Registration) -> Result<(), Refused> {
        let Registration { agent, name, fence, generation, not_after_ms, .. } = registration;
        let first = || Seen { incarnation: 0, generations: BTreeMap::new(), not_after_ms: 0 };
        let seen = self.seen.entry(*agent).or_insert_with(first);
        let last = seen.generations.get(name).copied().unwrap_or_default();
        let is_older = fence.incarnation < seen.incarnation
            || (fence.incarnation == seen.incarnation && *generation < last);
        if self.is_order_checked && is_older {
            return Err(Refused::Older);
        }
        if fence.incarnation != seen.incarnation {
            seen.generations.clear();
            seen.incarnation = fence.incarnation;
        }
        seen.generations.insert(name.clone(), *generation);
        seen.not_after_ms = seen.not_after_ms.max(*not_after_ms);
        Ok(())
    }
}

impl Known {
    fn add(&mut self, hash: Hash) {
        // Verifying anew costs time and nothing else.
        if self.0.len() >= KNOWN_MAX && !self.0.contains(&hash) {
            self.0.clear();
        }
        self.0.insert(hash);
    }
}

#[cfg(feature = "test-hooks")]
impl Verifier {
    /// Lets many verifiers of one simulated world share what they found good.
    pub fn swap_known(&mut self, known: &mut Known) {
        std::mem::swap(&mut self.known, known);
    }

    /// Leaves the check of incarnation and generation out, to see that it is missed.
    pub const fn without_order(mut self) -> Self {
        self.is_order_checked = false;
        self
    }
}

/// FLEET 5: made no later than five minutes from now, and not over.
fn check_time(registration: &Registration, now_ms: u64) -> Result<(), Refused> {
    let Registration { made_at_ms, not_after_ms, .. } = registration;
    if *made_at_ms > now_ms.saturating_add(REGISTRATION_SKEW_MS_MAX) {
        return Err(Refused::FromTheFuture);
    }
    // The registry can replay whatever has not ended, so that nothing may be good for longer than a day.
    if now_ms >= *not_after_ms || not_after_ms.saturating_sub(*made_at_ms) > REGISTRATION_LIFE_MS_MAX {
        return Err(Refused::Expired);
    }
    Ok(())
}

/// Why a value of the registry is not believed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum Refused {
    /// It is longer than any registration.
    #[error("{0} bytes are more than the {REGISTRATION_BYTES_MAX} of a registration")]
    TooLong(usize),
    /// It stands under a key that is none.
    #[error("malformed key: {0}")]
    Path(#[from] PathError),
    /// It is no record.
    #[error("malformed record: {0}")]
    Malformed(#[from] RecordError),
    /// It stands under the key of another agent.
    #[error("the record is of another agent than its key")]
    OtherAgent,
    /// It stands under the key of another cell, name or shard.
    #[error("the record is of another cell, name or shard than its key")]
    OtherPlace,
    /// It is spelled otherwise than it has to be.
    #[error("the record is not in canonical encoding")]
    NotCanonical,
    /// Its maker's clock is ahead of ours, or ours is behind.
    #[error("the record is made more than five minutes from now")]
    FromTheFuture,
    /// It has ended, or would be good for too long.
    #[error("the record has expired")]
    Expired,
    /// It comes with a membership that does not count.
    #[error(transparent)]
    Membership(#[from] MembershipError),
    /// It comes with the membership of another agent.
    #[error("the membership is of another agent")]
    OtherMember,
    /// The agent is a member, and may not serve this name.
    #[error("the agent's membership does not cover this name")]
    NotAllowed,
    /// The authority has revoked the membership.
    #[error("the membership is revoked")]
    Revoked,
    /// It is not signed by whom it must be.
    #[error("the signature is wrong")]
    Signature,
    /// A later one of the same agent was seen.
    #[error("a later record of the same agent was seen")]
    Older,
}

impl Refused {
    /// Every word of [`Refused::why`].
    pub const WHYS: [&'static str; 14] = [
        "too_long",
        "path",
        "malformed",
        "other_agent",
        "other_place",
        "not_canonical",
        "from_the_future",
        "expired",
        "membership",
        "other_member",
        "not_allowed",
        "revoked",
        "signature",
        "older",
    ];

    /// The reason in one word, for a metric.
    pub const fn why(&self) -> &'static str {
        match self {
            Self::TooLong(_) => "too_long",
            Self::Path(_) => "path",
            Self::Malformed(_) => "malformed",
            Self::OtherAgent => "other_agent",
            Self::OtherPlace => "other_place",
            Self::NotCanonical => "not_canonical",
            Self::FromTheFuture => "from_the_future",
            Self::Expired => "expired",
            Self::Membership(_) => "membership",
            Self::OtherMember => "other_member",
            Self::NotAllowed => "not_allowed",
            Self::Revoked => "revoked",
            Self::Signature => "signature",
            Self::Older => "older",
        }
    }
}

/// Signatures remembered as good; ours: two megabytes at most.
const KNOWN_MAX: usize = 16_384;
