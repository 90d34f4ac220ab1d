//! An agent in, the authority's word that it is a member no longer out; and back.

use super::agent::Agent;
use super::cell::Cell;
use super::membership::{read_agent, read_cell};
use super::record::{Domain, FORMAT, Fields, RecordError, Signed};
use crate::cbor::Writer;
use crate::identity::{Identity, PublicKey};
use crate::limits::REVOCATION_BYTES_MAX;

/// Ends the memberships that an agent has: those whose serial is below [`serial_min`](Self::serial_min) count no longer.
///
/// **Shape:** CBOR `[body, sig]`; body `{0: 1, 1: key, 2: cell, 3: serial, 4: made at}`; sig by the cell's authority over
/// `"capd-revocation-v1" 00 || body`. **Source:** FLEET 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Revocation {
    /// Whose memberships end.
    pub agent: Agent,
    /// The cell it was a member of.
    pub cell: Cell,
    /// The smallest serial of a membership that still counts.
    pub serial_min: u64,
    /// When it was made. **Units:** milliseconds since 1970.
    pub at_ms: u64,
}

impl Revocation {
    /// Signs the revocation with the authority's key.
    pub fn sign(&self, authority: &Identity) -> Vec<u8> {
        let body = self.body();
        Signed::encode(&body, &DOMAIN.sign(authority, &body))
    }

    /// Checks a revocation of this cell and reads it; none where the cell's authority has not signed it.
    ///
    /// **Errors:** bytes that are no revocation.
    pub fn verify(bytes: &[u8], cell: &Cell, authority: &PublicKey) -> Result<Option<Self>, RecordError> {
        if bytes.len() > REVOCATION_BYTES_MAX {
            return Err(RecordError::TooLong(bytes.len(), REVOCATION_BYTES_MAX));
        }
        let signed = Signed::decode(bytes)?;
        let revocation = Self::read(&signed.body)?;
        if bytes != Signed::encode(&revocation.body(), &signed.signature) {
            return Err(RecordError::NotCanonical);
        }
        let is_authentic = revocation.cell == *cell && DOMAIN.verify(authority, &signed);
        Ok(is_authentic.then_some(revocation))
    }

    fn read(body: &[u8]) -> Result<Self, RecordError> {
        let mut fields = Fields::of(body)?;
        fields.format()?;
        let agent = read_agent(&mut fields)?;
        let cell = read_cell(&mut fields)?;
        let serial_min = fields.uint(3, "serial")?;
        let at_ms = fields.uint(4, "made at")?;
        fields.end()?;
        Ok(Self { agent, cell, serial_min, at_ms })
    }

    fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut writer = Writer::new(&mut body);
        writer.map(5).uint(0).uint(FORMAT);
        writer.uint(1).bytes(self.agent.as_bytes());
        writer.uint(2).text(self.cell.as_str());
        writer.uint(3).uint(self.serial_min);
        writer.uint(4).uint(self.at_ms);
        body
    }
}

const DOMAIN: Domain = Domain("capd-revocation-v1");
