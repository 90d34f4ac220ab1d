//! Encodes the timeline of one call: its phases, its tries, and how often its result was asked for again.

use std::borrow::Cow;

use super::body::{BodyError, MapWriter, read_array, read_map, required, wrong_value};
use super::result::read_code;
use crate::{
    cbor::{Reader, Writer},
    code::Code,
};

/// Where the time of a call went, as far as one sidecar saw it.
///
/// **Shape:** `{"trace": tstr, "sampled": bool, "came_at_ms": uint, ? "took_us": uint, ? "link": tstr, "phases": [* call-phase],
/// "tries": [* call-try], ? "tries_omitted": uint, "joined": uint, "replays": uint}`. **Units:** microseconds since the call
/// came, except `came_at_ms`, which is milliseconds since the Unix epoch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallTimeline<'a> {
    /// The trace that the call belongs to, as 32 hexadecimal digits.
    pub trace: Cow<'a, str>,
    /// Whether the sidecar exports the call's spans.
    pub sampled: bool,
    /// When the call came.
    pub came_at_ms: u64,
    /// How long the call took; none while it runs.
    pub took_us: Option<u64>,
    /// The link that the call came on: its transport, and its number in the sidecar's process.
    pub link: Option<Cow<'a, str>>,
    /// What the call waited for, in order and without gaps.
    pub phases: Vec<CallPhase<'a>>,
    /// Copies sent to peers, or given to providers, in order.
    pub tries: Vec<CallTry<'a>>,
    /// Tries that the list does not contain.
    pub tries_omitted: u64,
    /// Copies of the invoke that came while the call ran, and waited for the same result.
    pub joined: u64,
    /// Copies of the invoke that got the recorded result.
    pub replays: u64,
}

/// One phase of a call.
///
/// **Shape:** `{"name": tstr, "begin_us": uint, ? "end_us": uint}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallPhase<'a> {
    /// What the call waited for.
    pub name: Cow<'a, str>,
    /// When the phase began.
    pub begin_us: u64,
    /// When it ended; none while the call is in it.
    pub end_us: Option<u64>,
}

/// One try of a call.
///
/// **Shape:** `{"begin_us": uint, ? "end_us": uint, ? "peer": did, ? "link": tstr, ? "outcome": try-outcome, ? "code": uint}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallTry<'a> {
    /// When the copy was sent.
    pub begin_us: u64,
    /// When the try ended; none while it is in flight.
    pub end_us: Option<u64>,
    /// The peer that the copy was sent to; none for a local provider.
    pub peer: Option<Cow<'a, str>>,
    /// The link that the copy was sent on.
    pub link: Option<Cow<'a, str>>,
    /// How the try ended.
    pub outcome: Option<TryOutcome>,
    /// The code of an error or a refusal.
    pub code: Option<Code>,
}

/// How a try ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TryOutcome {
    /// A result came.
    Success,
    /// An error result came.
    Error,
    /// The copy was refused: this try executed nothing.
    Refused,
    /// The link or the provider was lost.
    Lost,
    /// No answer came.
    Unanswered,
}

impl TryOutcome {
    /// The outcome as written in a RESPONSE.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
            Self::Refused => "refused",
            Self::Lost => "lost",
            Self::Unanswered => "unanswered",
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        match &*reader.text()? {
            "success" => Ok(Self::Success),
            "error" => Ok(Self::Error),
            "refused" => Ok(Self::Refused),
            "lost" => Ok(Self::Lost),
            "unanswered" => Ok(Self::Unanswered),
            _ => Err(wrong_value(reader, "outcome", "an outcome that a try can have")),
        }
    }
}

impl<'a> CallTimeline<'a> {
    /// The same timeline, owned.
    pub fn into_owned(self) -> CallTimeline<'static> {
        CallTimeline {
            trace: owned(self.trace),
            sampled: self.sampled,
            came_at_ms: self.came_at_ms,
            took_us: self.took_us,
            link: self.link.map(owned),
            phases: self.phases.into_iter().map(CallPhase::into_owned).collect(),
            tries: self.tries.into_iter().map(CallTry::into_owned).collect(),
            tries_omitted: self.tries_omitted,
            joined: self.joined,
            replays: self.replays,
        }
    }

    pub(super) fn read(reader: &mut Reader<'a>) -> Result<Self, BodyError> {
        let (mut trace, mut sampled, mut came_at_ms) = (None, None, None);
        let (mut phases, mut tries, mut joined, mut replays) = (None, None, None, None);
        let mut timeline = Self::default();
        read_map(reader, |key, reader| {
            match key {
                b"link" => timeline.link = Some(reader.text()?),
                b"trace" => trace = Some(reader.text()?),
                b"tries" => tries = Some(read_array(reader, CallTry::read)?),
                b"joined" => joined = Some(reader.uint()?),
                b"phases" => phases = Some(read_array(reader, CallPhase::read)?),
                b"replays" => replays = Some(reader.uint()?),
                b"sampled" => sampled = Some(reader.bool()?),
                b"took_us" => timeline.took_us = Some(reader.uint()?),
                b"came_at_ms" => came_at_ms = Some(reader.uint()?),
                b"tries_omitted" => timeline.tries_omitted = reader.uint()?,
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self {
            trace: required(trace, "trace")?,
            sampled: required(sampled, "sampled")?,
            came_at_ms: required(came_at_ms, "came_at_ms")?,
            phases: required(phases, "phases")?,
            tries: required(tries, "tries")?,
            joined: required(joined, "joined")?,
            replays: required(replays, "replays")?,
            ..timeline
        })
    }

    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.text_if("link", self.link.as_deref());
        map.text("trace", &self.trace);
        let out = map.key_then("tries");
        Writer::new(out).array(self.tries.len() as u64);
        for one in &self.tries {
            one.write(out);
        }
        map.uint("joined", self.joined);
        let out = map.key_then("phases");
        Writer::new(out).array(self.phases.len() as u64);
        for phase in &self.phases {
            phase.write(out);
        }
        map.uint("replays", self.replays);
        map.bool_if("sampled", Some(self.sampled));
        map.uint_if("took_us", self.took_us);
        map.uint("came_at_ms", self.came_at_ms);
        map.uint_if("tries_omitted", Some(self.tries_omitted).filter(|omitted| *omitted > 0));
    }
}

impl<'a> CallPhase<'a> {
    fn into_owned(self) -> CallPhase<'static> {
        CallPhase { name: owned(self.name), begin_us: self.begin_us, end_us: self.end_us }
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, BodyError> {
        let (mut name, mut begin_us, mut end_us) = (None, None, None);
        read_map(reader, |key, reader| {
            match key {
                b"name" => name = Some(reader.text()?),
                b"end_us" => end_us = Some(reader.uint()?),
                b"begin_us" => begin_us = Some(reader.uint()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { name: required(name, "name")?, begin_us: required(begin_us, "begin_us")?, end_us })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.text("name", &self.name);
        map.uint_if("end_us", self.end_us);
        map.uint("begin_us", self.begin_us);
    }
}

impl<'a> CallTry<'a> {
    fn into_owned(self) -> CallTry<'static> {
        CallTry {
            begin_us: self.begin_us,
            end_us: self.end_us,
            peer: self.peer.map(owned),
            link: self.link.map(owned),
            outcome: self.outcome,
            code: self.code,
        }
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, BodyError> {
        let mut begin_us = None;
        let mut one = Self { begin_us: 0, end_us: None, peer: None, link: None, outcome: None, code: None };
        read_map(reader, |key, reader| {
            match key {
                b"code" => one.code = Some(read_code(reader)?),
                b"link" => one.link = Some(reader.text()?),
                b"peer" => one.peer = Some(reader.text()?),
                b"end_us" => one.end_us = Some(reader.uint()?),
                b"outcome" => one.outcome = Some(TryOutcome::read(reader)?),
                b"begin_us" => begin_us = Some(reader.uint()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { begin_us: required(begin_us, "begin_us")?, ..one })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.uint_if("code", self.code.map(|code| code.0.into()));
        map.text_if("link", self.link.as_deref());
        map.text_if("peer", self.peer.as_deref());
        map.uint_if("end_us", self.end_us);
        map.text_if("outcome", self.outcome.map(TryOutcome::as_str));
        map.uint("begin_us", self.begin_us);
    }
}

fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}
