//! What an agent serves and where it is reached in, a signed registration of one name out; and back.

use std::fmt;

use super::agent::Agent;
use super::cell::Cell;
use super::fence::Fence;
use super::membership::{read_agent, read_cell};
use super::record::{Domain, FORMAT, Fields, RECORD_HEADS_BYTES, RecordError, Signed};
use crate::capability::{CapabilityName, Version};
use crate::cbor::{self, Reader, Writer};
use crate::identity::Identity;
use crate::ledger::JournalId;
use crate::limits::{
    HOST_BYTES_MAX, REGISTERED_ADDRESSES_MAX, REGISTERED_VERSIONS_MAX, REGISTRATION_BYTES_MAX,
    SIGNATURE_BYTES, ZONE_BYTES_MAX,
};

/// An agent's word that it serves a name, and where. It says whom to dial; a link and CAP_QUERY say the rest.
///
/// **Shape:** CBOR `[body, sig, membership]`; body `{0: 1, 1: key, 2: cell, 3: name, 4: incarnation, 5: generation,
/// 6: [+ address], 7: [+ version], 8: made at, 9: not after, 10: journal, ? 11: zone, 12: state}`; sig by the agent's key
/// over `"capd-registration-v1" 00 || body`. **Units:** milliseconds since 1970. **Source:** FLEET 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Registration {
    /// Who registers.
    pub agent: Agent,
    /// The cell it registers in.
    pub cell: Cell,
    /// The name it serves.
    pub name: CapabilityName,
    /// The process that registers.
    pub fence: Fence,
    /// Counts what one process registers.
    pub generation: u64,
    /// Where it is reached, most wanted first; 1 to 4.
    pub addresses: Vec<Address>,
    /// What it serves of the name; 1 to 16.
    pub versions: Vec<Served>,
    /// When it was made. **Units:** milliseconds.
    pub made_at_ms: u64,
    /// When it ends. **Units:** milliseconds.
    pub not_after_ms: u64,
    /// The zone it runs in, if its owner named one.
    pub zone: Option<String>,
    /// Whether it takes new calls.
    pub state: State,
}

/// Whether a provider takes new calls. **Source:** FLEET 5.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum State {
    /// It does.
    Serving,
    /// It finishes those that it has, and takes no new ones.
    Draining,
}

/// A transport that peers are reached by. **Source:** PROTOCOL 4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Transport {
    /// QUIC.
    Quic,
    /// TCP with TLS.
    Tcp,
}

/// Where an agent is reached. **Shape:** `[0 quic / 1 tcp, host, port]`. **Source:** FLEET 5.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    /// How.
    pub transport: Transport,
    /// A name or an IP address.
    pub host: String,
    /// The port; never 0.
    pub port: u16,
}

/// One version that an agent serves. **Shape:** `[semver, hash, flags]`. **Source:** FLEET 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Served {
    /// The version, in three parts.
    pub version: Version,
    /// SHA-256 of its descriptor.
    pub hash: [u8; HASH_BYTES],
    /// What kind of calls it takes; bits that this version of capd does not know are kept.
    pub flags: u8,
}

impl Served {
    /// The flag of an idempotent capability.
    pub const IDEMPOTENT: u8 = 1;
    /// The flag of a deprecated version.
    pub const DEPRECATED: u8 = 2;
    /// The flag of a capability whose provider remembers ids itself.
    pub const KEYED: u8 = 4;
}

impl Registration {
    /// Signs the registration with the agent's key, and puts its membership beside.
    ///
    /// **Errors:** a field out of its bounds, or more bytes than a registration may have.
    pub fn sign(&self, identity: &Identity, membership: &[u8]) -> Result<Vec<u8>, RecordError> {
        self.check()?;
        let body = self.body();
        let record = encode(&body, &DOMAIN.sign(identity, &body), membership);
        if record.len() > REGISTRATION_BYTES_MAX {
            return Err(RecordError::TooLong(record.len(), REGISTRATION_BYTES_MAX));
        }
        Ok(record)
    }

    /// Reads a value of the registry. Nothing of it is verified: that is for a [`Verifier`](super::Verifier).
    ///
    /// **Errors:** it is too long, or no registration.
    pub fn unverified(value: &[u8]) -> Result<Self, RecordError> {
        if value.len() > REGISTRATION_BYTES_MAX {
            return Err(RecordError::TooLong(value.len(), REGISTRATION_BYTES_MAX));
        }
        Ok(Parts::decode(value)?.registration)
    }

    fn check(&self) -> Result<(), RecordError> {
        let is_within = |count: usize, most: usize| (1..=most).contains(&count);
        if !is_within(self.addresses.len(), REGISTERED_ADDRESSES_MAX) {
            return Err(RecordError::Field("addresses"));
        }
        if !self.addresses.iter().all(Address::is_sound) {
            return Err(RecordError::Field("address"));
        }
        if !is_within(self.versions.len(), REGISTERED_VERSIONS_MAX) {
            return Err(RecordError::Field("versions"));
        }
        if self.zone.as_ref().is_some_and(|zone| !is_within(zone.len(), ZONE_BYTES_MAX)) {
            return Err(RecordError::Field("zone"));
        }
        Ok(())
    }

    fn read(body: &[u8]) -> Result<Self, RecordError> {
        let mut fields = Fields::of(body)?;
        fields.format()?;
        let agent = read_agent(&mut fields)?;
        let cell = read_cell(&mut fields)?;
        let name = fields.field(3, "name")?.text()?.parse().map_err(|_| RecordError::Field("name"))?;
        let incarnation = fields.uint(4, "incarnation")?;
        let generation = fields.uint(5, "generation")?;
        let addresses = fields.field(6, "addresses")?;
        let addresses = read_list(addresses, REGISTERED_ADDRESSES_MAX, "addresses", Address::read)?;
        let versions = fields.field(7, "versions")?;
        let versions = read_list(versions, REGISTERED_VERSIONS_MAX, "versions", Served::read)?;
        let made_at_ms = fields.uint(8, "made at")?;
        let not_after_ms = fields.uint(9, "not after")?;
        let journal = JournalId(fields.array(10, "journal")?);
        let zone = match fields.optional(11)? {
            true => Some(fields.reader().text()?.into_owned()),
            false => None,
        };
        let state = match fields.uint(12, "state")? {
            0 => State::Serving,
            1 => State::Draining,
            _ => return Err(RecordError::Field("state")),
        };
        fields.end()?;
        let fence = Fence { incarnation, journal };
        let registration = Self {
            agent,
            cell,
            name,
            fence,
            generation,
            addresses,
            versions,
            made_at_ms,
            not_after_ms,
            zone,
            state,
        };
        registration.check()?;
        Ok(registration)
    }

    fn body(&self) -> Vec<u8> {
        let mut body = Vec::new();
        let mut writer = Writer::new(&mut body);
        writer.map(12 + u64::from(self.zone.is_some())).uint(0).uint(FORMAT);
        writer.uint(1).bytes(self.agent.as_bytes());
        writer.uint(2).text(self.cell.as_str());
        writer.uint(3).text(self.name.as_str());
        writer.uint(4).uint(self.fence.incarnation);
        writer.uint(5).uint(self.generation);
        writer.uint(6).array(self.addresses.len() as u64);
        for address in &self.addresses {
            address.write(&mut writer);
        }
        writer.uint(7).array(self.versions.len() as u64);
        for served in &self.versions {
            writer.array(3).text(&served.version.to_string()).bytes(&served.hash).uint(served.flags.into());
        }
        writer.uint(8).uint(self.made_at_ms);
        writer.uint(9).uint(self.not_after_ms);
        writer.uint(10).bytes(&self.fence.journal.0);
        if let Some(zone) = &self.zone {
            writer.uint(11).text(zone);
        }
        writer.uint(12).uint(match self.state {
            State::Serving => 0,
            State::Draining => 1,
        });
        body
    }
}

impl Address {
    fn is_sound(&self) -> bool {
        let is_length_sound = (1..=HOST_BYTES_MAX).contains(&self.host.len());
        is_length_sound && self.port > 0 && self.host.bytes().all(is_host_byte)
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, RecordError> {
        if reader.array()? != Some(3) {
            return Err(RecordError::Field("address"));
        }
        let transport = match reader.uint()? {
            0 => Transport::Quic,
            1 => Transport::Tcp,
            _ => return Err(RecordError::Field("transport")),
        };
        let host = reader.text()?.into_owned();
        let port = u16::try_from(reader.uint()?).map_err(|_| RecordError::Field("port"))?;
        Ok(Self { transport, host, port })
    }

    fn write(&self, writer: &mut Writer<'_>) {
        let transport = match self.transport {
            Transport::Quic => 0,
            Transport::Tcp => 1,
        };
        writer.array(3).uint(transport).text(&self.host).uint(self.port.into());
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.transport {
            Transport::Quic => "quic",
            Transport::Tcp => "tcp",
        };
        match self.host.contains(':') {
            true => write!(f, "{scheme}://[{}]:{}", self.host, self.port),
            false => write!(f, "{scheme}://{}:{}", self.host, self.port),
        }
    }
}

impl Served {
    fn read(reader: &mut Reader<'_>) -> Result<Self, RecordError> {
        if reader.array()? != Some(3) {
            return Err(RecordError::Field("version"));
        }
        let version = reader.text()?.parse().map_err(|_| RecordError::Field("version"))?;
        let hash = reader.bytes()?;
        let hash = hash.as_ref().try_into().map_err(|_| RecordError::Field("hash"))?;
        let flags = u8::try_from(reader.uint()?).map_err(|_| RecordError::Field("flags"))?;
        Ok(Self { version, hash, flags })
    }
}

/// A registration's bytes, taken apart: nothing of it is believed so far.
#[derive(Clone, Debug)]
pub(super) struct Parts<'a> {
    pub(super) registration: Registration,
    signed: Signed<'a>,
    pub(super) membership: Vec<u8>,
}

impl<'a> Parts<'a> {
    /// Reads a value of the registry, whose length the caller has looked at.
    pub(super) fn decode(value: &'a [u8]) -> Result<Self, RecordError> {
        cbor::check(value)?;
        let mut reader = Reader::new(value);
        let signed = Signed::read(&mut reader, 3)?;
        let membership = reader.bytes()?.into_owned();
        let registration = Registration::read(&signed.body)?;
        Ok(Self { registration, signed, membership })
    }

    /// Whether these bytes are the only spelling of what they say.
    pub(super) fn is_canonical(&self, value: &[u8]) -> bool {
        value == encode(&self.registration.body(), &self.signed.signature, &self.membership)
    }

    /// Whether the agent itself has signed.
    pub(super) fn is_authentic(&self) -> bool {
        DOMAIN.verify(&self.registration.agent.public_key(), &self.signed)
    }
}

fn encode(body: &[u8], signature: &[u8; SIGNATURE_BYTES], membership: &[u8]) -> Vec<u8> {
    let most = body.len() + SIGNATURE_BYTES + membership.len() + 2 * RECORD_HEADS_BYTES;
    let mut record = Vec::with_capacity(most);
    Writer::new(&mut record).array(3).bytes(body).bytes(signature).bytes(membership);
    record
}

/// A list of 1 to so many items.
fn read_list<'a, T>(
    reader: &mut Reader<'a>,
    most: usize,
    name: &'static str,
    read: impl Fn(&mut Reader<'a>) -> Result<T, RecordError>,
) -> Result<Vec<T>, RecordError> {
    let count = reader.array()?.filter(|count| (1..=most as u64).contains(count));
    let count = count.ok_or(RecordError::Field(name))?;
    (0..count).map(|_| read(reader)).collect()
}

/// What names, IPv4 and IPv6 addresses are made of, and zones of the latter.
const fn is_host_byte(byte: u8) -> bool {
    matches!(byte, b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'.' | b'-' | b'_' | b':' | b'%')
}

/// Bytes of a descriptor's hash.
const HASH_BYTES: usize = 32;
const DOMAIN: Domain = Domain("capd-registration-v1");
