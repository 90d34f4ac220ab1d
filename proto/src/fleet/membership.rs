//! An agent and the names it may serve in, the authority's word for it out; and back.

use thiserror::Error;

use super::agent::{Agent, KEY_BYTES};
use super::cell::Cell;
use super::record::{Domain, FORMAT, Fields, RecordError, Signed};
use crate::capability::CapabilityPattern;
use crate::cbor::Writer;
use crate::identity::{Identity, PublicKey};
use crate::limits::{MEMBER_PATTERNS_MAX, MEMBERSHIP_BYTES_MAX};

/// Who may take part in a cell, and which names it may serve there.
///
/// **Shape:** CBOR `[body, sig]`; body `{0: 1, 1: key, 2: cell, 3: [* pattern], 4: not before, 5: not after, 6: serial}`;
/// sig by the cell's authority over `"capd-member-v1" 00 || body`. **Units:** milliseconds since 1970.
/// **Source:** FLEET 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Membership {
    /// The member.
    pub agent: Agent,
    /// The cell it is a member of.
    pub cell: Cell,
    /// The names it may serve; none for an agent that only calls.
    pub serves: Vec<CapabilityPattern>,
    /// When it begins. **Units:** milliseconds.
    pub not_before_ms: u64,
    /// When it ends. **Units:** milliseconds.
    pub not_after_ms: u64,
    /// Counts the memberships that the authority made for this agent; see [`Revocation`](super::Revocation).
    pub serial: u64,
}

impl Membership {
    /// Signs the membership with the authority's key.
    ///
    /// **Errors:** a field out of its bounds, or more bytes than a membership may have.
    pub fn sign(&self, authority: &Identity) -> Result<Vec<u8>, RecordError> {
        if self.serves.len() > MEMBER_PATTERNS_MAX {
            return Err(RecordError::Field("patterns"));
        }
        if self.not_before_ms >= self.not_after_ms {
            return Err(RecordError::Field("not after"));
        }
        let body = self.body();
        let record = Signed::encode(&body, &DOMAIN.sign(authority, &body));
        if record.len() > MEMBERSHIP_BYTES_MAX {
            return Err(RecordError::TooLong(record.len(), MEMBERSHIP_BYTES_MAX));
        }
        Ok(record)
    }

    /// Checks a membership of this cell, at this time, and reads it. Whether it is revoked is not asked here.
    ///
    /// **Errors:** in this order: bytes that are none, another cell, another time, another signer.
    pub fn verify(
        bytes: &[u8],
        cell: &Cell,
        authority: &PublicKey,
        now_ms: u64,
    ) -> Result<Self, MembershipError> {
        let (membership, signed) = Self::decode(bytes)?;
        membership.check(cell, now_ms)?;
        if !DOMAIN.verify(authority, &signed) {
            return Err(MembershipError::Signature);
        }
        Ok(membership)
    }

    /// Reads a membership whose signature was found good before.
    pub(super) fn signed_before(bytes: &[u8], cell: &Cell, now_ms: u64) -> Result<Self, MembershipError> {
        let (membership, _) = Self::decode(bytes)?;
        membership.check(cell, now_ms)?;
        Ok(membership)
    }

    fn check(&self, cell: &Cell, now_ms: u64) -> Result<(), MembershipError> {
        if self.cell != *cell {
            return Err(MembershipError::OtherCell(self.cell.clone()));
        }
        if now_ms < self.not_before_ms {
            return Err(MembershipError::NotYet { not_before_ms: self.not_before_ms });
        }
        if now_ms >= self.not_after_ms {
            return Err(MembershipError::Expired { not_after_ms: self.not_after_ms });
        }
        Ok(())
    }

    /// Whether the member may serve a name.
    pub fn allows(&self, name: &str) -> bool {
        self.serves.iter().any(|pattern| pattern.matches(name))
    }

    fn decode(bytes: &[u8]) -> Result<(Self, Signed<'_>), RecordError> {
        if bytes.len() > MEMBERSHIP_BYTES_MAX {
            return Err(RecordError::TooLong(bytes.len(), MEMBERSHIP_BYTES_MAX));
        }
        let signed = Signed::decode(bytes)?;
        let membership = Self::read(&signed.body)?;
        // One spelling only, so that a membership has one hash.
        if bytes != Signed::encode(&membership.body(), &signed.signature) {
            return Err(RecordError::NotCanonical);
        }
        Ok((membership, signed))
    }

    fn read(body: &[u8]) -> Result<Self, RecordError> {
        let mut fields = Fields::of(body)?;
        fields.format()?;
        let agent = read_agent(&mut fields)?;
        let cell = read_cell(&mut fields)?;
        let reader = fields.field(3, "patterns")?;
        let count = reader.array()?.filter(|count| *count <= MEMBER_PATTERNS_MAX as u64);
        let count = count.ok_or(RecordError::Field("patterns"))?;
        let mut serves = Vec::with_capacity(count as usize);
        for _ in 0..count {
            serves.push(reader.text()?.parse().map_err(|_| RecordError::Field("pattern"))?);
        }
        let not_before_ms = fields.uint(4, "not before")?;
        let not_after_ms = fields.uint(5, "not after")?;
        let serial = fields.uint(6, "serial")?;
        fields.end()?;
        Ok(Self { agent, cell, serves, not_before_ms, not_after_ms, serial })
    }

    fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut writer = Writer::new(&mut body);
        writer.map(7).uint(0).uint(FORMAT);
        writer.uint(1).bytes(self.agent.as_bytes());
        writer.uint(2).text(self.cell.as_str());
        writer.uint(3).array(self.serves.len() as u64);
        for pattern in &self.serves {
            writer.text(&pattern.to_string());
        }
        writer.uint(4).uint(self.not_before_ms);
        writer.uint(5).uint(self.not_after_ms);
        writer.uint(6).uint(self.serial);
        body
    }
}

/// The agent's key, which is field 1 of every body.
pub(super) fn read_agent(fields: &mut Fields<'_>) -> Result<Agent, RecordError> {
    let key = fields.array::<KEY_BYTES>(1, "agent key")?;
    Agent::from_bytes(&key).map_err(|_| RecordError::Field("agent key"))
}

/// The cell, which is field 2 of every body.
pub(super) fn read_cell(fields: &mut Fields<'_>) -> Result<Cell, RecordError> {
    fields.field(2, "cell")?.text()?.parse().map_err(|_| RecordError::Field("cell"))
}

/// Why a membership does not count.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum MembershipError {
    /// Bytes that are no membership.
    #[error("malformed membership: {0}")]
    Record(#[from] RecordError),
    /// It is for another cell.
    #[error("a membership of cell {0}")]
    OtherCell(Cell),
    /// It has not begun.
    #[error("the membership begins at {not_before_ms} ms")]
    NotYet {
        /// When it begins. **Units:** milliseconds.
        not_before_ms: u64,
    },
    /// It has ended.
    #[error("the membership ended at {not_after_ms} ms")]
    Expired {
        /// When it ended. **Units:** milliseconds.
        not_after_ms: u64,
    },
    /// The cell's authority has not signed it.
    #[error("not signed by the cell's authority")]
    Signature,
}

const DOMAIN: Domain = Domain("capd-member-v1");
