//! Encodes REQUEST and RESPONSE `doctor`: what a sidecar finds wrong with itself, for the person who runs it.
//!
//! It is ours, and the agent asks it of its own sidecar only.

use std::borrow::Cow;

use super::body::{
    BodyError, MapWriter, read_array, read_map, read_texts, required, write_texts, wrong_value,
};
use crate::cbor::{Reader, Writer};

/// What a sidecar finds, and what whoever asks needs to look further.
///
/// **Shape:** `{"op": "doctor", ? "file": tstr, "peers": [* doctor-peer], "checks": [* doctor-check],
/// "requires": [* doctor-required]}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DoctorReport<'a> {
    /// The path of its configuration file, on its machine; none if it was started without one.
    pub file: Option<Cow<'a, str>>,
    /// Its configured peers.
    pub peers: Vec<DoctorPeer<'a>>,
    /// What it looked at.
    pub checks: Vec<DoctorCheck<'a>>,
    /// What its agent requires of others.
    pub requires: Vec<DoctorRequired<'a>>,
}

/// A configured peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorPeer<'a> {
    /// Its DID.
    pub did: Cow<'a, str>,
    /// Whether the sidecar connects to it by itself; it waits for the others.
    pub is_dialled: bool,
    /// The names and namespaces that it may serve.
    pub serves: Vec<Cow<'a, str>>,
}

/// One check, and its outcome.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorCheck<'a> {
    /// The part that was checked.
    pub check: Cow<'a, str>,
    /// The peer, capability or file in question; may be empty.
    pub about: Cow<'a, str>,
    /// The outcome.
    pub state: CheckState,
    /// What was found.
    pub text: Cow<'a, str>,
    /// How to repair it.
    pub remedy: Option<Cow<'a, str>>,
}

/// The outcome of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CheckState {
    /// Nothing is wrong.
    Ok,
    /// Calls may fail because of it.
    Warning,
    /// Calls fail because of it.
    Failed,
}

/// A requirement, as the sidecar runs it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorRequired<'a> {
    /// The capability's name.
    pub name: Cow<'a, str>,
    /// The versions; all without one.
    pub range: Option<Cow<'a, str>>,
    /// The schema of its params, as JSON.
    pub input: Option<Cow<'a, [u8]>>,
    /// The schema of the results that the agent accepts, as JSON.
    pub output: Option<Cow<'a, [u8]>>,
    /// Whether a schema is left out because the answer would be too large.
    pub is_cut: bool,
}

impl CheckState {
    /// The state as written in a RESPONSE.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        match &*reader.text()? {
            "ok" => Ok(Self::Ok),
            "warning" => Ok(Self::Warning),
            "failed" => Ok(Self::Failed),
            _ => Err(wrong_value(reader, "state", "ok, warning or failed")),
        }
    }
}

impl<'a> DoctorReport<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let (mut file, mut peers, mut checks, mut requires) = (None, None, None, None);
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"file" => file = Some(reader.text()?),
                b"peers" => peers = Some(read_array(reader, DoctorPeer::read)?),
                b"checks" => checks = Some(read_array(reader, DoctorCheck::read)?),
                b"requires" => requires = Some(read_array(reader, DoctorRequired::read)?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self {
            file,
            peers: required(peers, "peers")?,
            checks: required(checks, "checks")?,
            requires: required(requires, "requires")?,
        })
    }

    pub(super) fn write(&self, map: &mut MapWriter<'_>) {
        map.text("op", OP);
        map.text_if("file", self.file.as_deref());
        let out = map.key_then("peers");
        Writer::new(out).array(self.peers.len() as u64);
        self.peers.iter().for_each(|peer| peer.write(out));
        let out = map.key_then("checks");
        Writer::new(out).array(self.checks.len() as u64);
        self.checks.iter().for_each(|check| check.write(out));
        let out = map.key_then("requires");
        Writer::new(out).array(self.requires.len() as u64);
        self.requires.iter().for_each(|required| required.write(out));
    }

    /// The same report, owned.
    pub fn into_owned(self) -> DoctorReport<'static> {
        DoctorReport {
            file: self.file.map(owned),
            peers: self.peers.into_iter().map(DoctorPeer::into_owned).collect(),
            checks: self.checks.into_iter().map(DoctorCheck::into_owned).collect(),
            requires: self.requires.into_iter().map(DoctorRequired::into_owned).collect(),
        }
    }
}

impl<'a> DoctorPeer<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, BodyError> {
        let (mut did, mut is_dialled, mut serves) = (None, None, None);
        read_map(reader, |key, reader| {
            match key {
                b"did" => did = Some(reader.text()?),
                b"dials" => is_dialled = Some(reader.bool()?),
                b"serves" => serves = Some(read_texts(reader)?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self {
            did: required(did, "did")?,
            is_dialled: required(is_dialled, "dials")?,
            serves: required(serves, "serves")?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.text("did", &self.did);
        map.bool_if("dials", Some(self.is_dialled));
        write_texts(&mut map.key("serves"), &self.serves);
    }

    fn into_owned(self) -> DoctorPeer<'static> {
        let serves = self.serves.into_iter().map(owned).collect();
        DoctorPeer { did: owned(self.did), is_dialled: self.is_dialled, serves }
    }
}

impl<'a> DoctorCheck<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, BodyError> {
        let (mut check, mut about, mut state, mut text, mut remedy) = (None, None, None, None, None);
        read_map(reader, |key, reader| {
            match key {
                b"text" => text = Some(reader.text()?),
                b"about" => about = Some(reader.text()?),
                b"check" => check = Some(reader.text()?),
                b"state" => state = Some(CheckState::read(reader)?),
                b"remedy" => remedy = Some(reader.text()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self {
            check: required(check, "check")?,
            about: required(about, "about")?,
            state: required(state, "state")?,
            text: required(text, "text")?,
            remedy,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.text("text", &self.text);
        map.text("about", &self.about);
        map.text("check", &self.check);
        map.text("state", self.state.as_str());
        map.text_if("remedy", self.remedy.as_deref());
    }

    fn into_owned(self) -> DoctorCheck<'static> {
        DoctorCheck {
            check: owned(self.check),
            about: owned(self.about),
            state: self.state,
            text: owned(self.text),
            remedy: self.remedy.map(owned),
        }
    }
}

impl<'a> DoctorRequired<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, BodyError> {
        let (mut name, mut range, mut input, mut output, mut is_cut) = (None, None, None, None, false);
        read_map(reader, |key, reader| {
            match key {
                b"cut" => is_cut = reader.bool()?,
                b"name" => name = Some(reader.text()?),
                b"input" => input = Some(reader.bytes()?),
                b"range" => range = Some(reader.text()?),
                b"output" => output = Some(reader.bytes()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { name: required(name, "name")?, range, input, output, is_cut })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.bool_if("cut", self.is_cut.then_some(true));
        map.text("name", &self.name);
        if let Some(input) = &self.input {
            map.bytes("input", input);
        }
        map.text_if("range", self.range.as_deref());
        if let Some(output) = &self.output {
            map.bytes("output", output);
        }
    }

    fn into_owned(self) -> DoctorRequired<'static> {
        let bytes = |bytes: Cow<'_, [u8]>| Cow::Owned(bytes.into_owned());
        DoctorRequired {
            name: owned(self.name),
            range: self.range.map(owned),
            input: self.input.map(bytes),
            output: self.output.map(bytes),
            is_cut: self.is_cut,
        }
    }
}

fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}

/// The operation's name.
pub(super) const OP: &str = "doctor";
