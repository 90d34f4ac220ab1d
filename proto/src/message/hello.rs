//! Encodes HELLO, HELLO_ACK and HELLO_REJECT: both sides exchange versions before a link is open.

use std::borrow::Cow;

use super::{
    Type,
    body::{
        self, BodyError, MapWriter, read_bytes, read_map, read_texts, required, write_texts, wrong_value,
    },
};
use crate::{
    cbor::Reader,
    ledger::JournalId,
    limits::{JOURNAL_ID_BYTES, MEMBERSHIP_BYTES_MAX},
};

/// The body of HELLO.
///
/// **Shape:** `{"versions": [+ tstr], ? "extensions": [* tstr], ? "agent_info": agent-info, ? "journal": bstr .size 16,
/// ? "membership": bstr .size (1..1024), ? "incarnation": uint}`. **Source:** PROTOCOL 4, 8; FLEET 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hello<'a> {
    /// The client's versions, preferred first; at least one.
    pub versions: Vec<Cow<'a, str>>,
    /// The client's extensions.
    pub extensions: Vec<Cow<'a, str>>,
    /// The sender; never for a decision.
    pub agent_info: Option<AgentInfo<'a>>,
    /// The journal that the client remembers calls in.
    pub journal: Option<JournalId>,
    /// The client's part in a fleet.
    pub member: Member<'a>,
}

/// What either side of a fleet shows of its part in it; both fields are empty outside of one. **Source:** FLEET 4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Member<'a> {
    /// Its membership, as the cell's authority signed it.
    pub membership: Option<Cow<'a, [u8]>>,
    /// Counts the starts of its sidecar.
    pub incarnation: Option<u64>,
}

/// The sender of HELLO. **Shape:** `{"name": tstr, ? "implementation": tstr}`. **Source:** PROTOCOL 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgentInfo<'a> {
    /// The agent's name.
    pub name: Cow<'a, str>,
    /// The implementation that it runs.
    pub implementation: Option<Cow<'a, str>>,
}

impl<'a> Hello<'a> {
    /// Checks and reads the body. **Errors:** 1001.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        body::check(Type::Hello, body)?;
        Self::read(body)
    }

    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let (mut versions, mut extensions, mut agent_info, mut journal) = (None, Vec::new(), None, None);
        let mut member = Member::default();
        let mut reader = Reader::new(body);
        read_map(&mut reader, |key, reader| {
            match key {
                b"versions" => versions = Some(read_texts(reader)?),
                b"extensions" => extensions = read_texts(reader)?,
                b"agent_info" => agent_info = Some(AgentInfo::read(reader)?),
                b"journal" => journal = Some(read_journal(reader)?),
                _ => member.read(key, reader)?,
            }
            Ok(())
        })?;
        let versions = required(versions.filter(|versions| !versions.is_empty()), "versions")?;
        Ok(Self { versions, extensions, agent_info, journal, member })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.bytes_if("journal", self.journal.as_ref().map(|JournalId(id)| id));
        write_texts(&mut map.key("versions"), &self.versions);
        if let Some(info) = &self.agent_info {
            let mut map = MapWriter::new(map.key_then("agent_info"));
            map.text("name", &info.name);
            map.text_if("implementation", info.implementation.as_deref());
        }
        map.texts_if("extensions", &self.extensions);
        self.member.write(&mut map);
    }
}

impl<'a> Member<'a> {
    fn read(&mut self, key: &[u8], reader: &mut Reader<'a>) -> Result<(), BodyError> {
        match key {
            b"membership" => {
                let bytes = reader.bytes()?;
                if bytes.is_empty() || bytes.len() > MEMBERSHIP_BYTES_MAX {
                    return Err(wrong_value(reader, "membership", "1 to 1024 bytes"));
                }
                self.membership = Some(bytes);
            }
            b"incarnation" => self.incarnation = Some(reader.uint()?),
            _ => drop(reader.skip()?),
        }
        Ok(())
    }

    fn write(&self, map: &mut MapWriter<'_>) {
        if let Some(membership) = &self.membership {
            map.bytes("membership", membership);
        }
        map.uint_if("incarnation", self.incarnation);
    }
}

const _: () = assert!(MEMBERSHIP_BYTES_MAX == 1_024, "the reader's text and the CDDL spell it out");

impl<'a> AgentInfo<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, BodyError> {
        let (mut name, mut implementation) = (None, None);
        read_map(reader, |key, reader| {
            match key {
                b"name" => name = Some(reader.text()?),
                b"implementation" => implementation = Some(reader.text()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { name: required(name, "name")?, implementation })
    }
}

fn read_journal(reader: &mut Reader<'_>) -> Result<JournalId, BodyError> {
    read_bytes::<JOURNAL_ID_BYTES>(reader, "journal", "16 bytes").map(JournalId)
}

/// The body of HELLO_ACK.
///
/// **Shape:** `{"selected": tstr, ? "journal": bstr .size 16, ? "membership": bstr .size (1..1024), ? "incarnation": uint}`.
/// **Source:** PROTOCOL 4, 8; FLEET 4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HelloAck<'a> {
    /// The first of the client's versions that the server speaks.
    pub selected: Cow<'a, str>,
    /// The journal that the server remembers calls in.
    pub journal: Option<JournalId>,
    /// The server's part in a fleet.
    pub member: Member<'a>,
}

impl<'a> HelloAck<'a> {
    /// Checks and reads the body. **Errors:** 1001.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        body::check(Type::HelloAck, body)?;
        Self::read(body)
    }

    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let (mut selected, mut journal, mut member) = (None, None, Member::default());
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"selected" => selected = Some(reader.text()?),
                b"journal" => journal = Some(read_journal(reader)?),
                _ => member.read(key, reader)?,
            }
            Ok(())
        })?;
        Ok(Self { selected: required(selected, "selected")?, journal, member })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.bytes_if("journal", self.journal.as_ref().map(|JournalId(id)| id));
        map.text("selected", &self.selected);
        self.member.write(&mut map);
    }
}

/// The body of HELLO_REJECT. **Shape:** `{? "reason": tstr}`. **Source:** PROTOCOL 4.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HelloReject<'a> {
    /// Why, for a human.
    pub reason: Option<Cow<'a, str>>,
}

impl<'a> HelloReject<'a> {
    /// Checks and reads the body. **Errors:** 1001.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        body::check(Type::HelloReject, body)?;
        Self::read(body)
    }

    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut reason = None;
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"reason" => reason = Some(reader.text()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { reason })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        MapWriter::new(out).text_if("reason", self.reason.as_deref());
    }
}
