//! Encodes the operation `calls` of REQUEST and RESPONSE, which lists the calls of a sidecar.
//!
//! It is an extension of capd for local links only; a peer gets the error of an unknown operation.

use std::borrow::Cow;
use std::str::FromStr;

use super::body::{BodyError, MapWriter, read_array, read_bytes, read_map, required, wrong_value};
use super::result::read_code;
use super::timeline::CallTimeline;
use crate::{
    cbor::{Reader, Writer},
    code::Code,
    envelope::MessageId,
    limits::MESSAGE_ID_BYTES,
};

/// A query for calls: all of them, page by page, some of them, or those of one id.
///
/// **Shape:** `{"op": "calls", ? "target": bstr .size 16, ? "cursor": bstr, ? "limit": uint, ? "order":
/// "newest-first", ? "role": "made" / "served", ? "state": call-state / "running", ? "capability": tstr, ? "since_ms":
/// uint}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallsRequest<'a> {
    /// Only calls of this id.
    pub target: Option<MessageId>,
    /// The cursor of the previous page.
    pub cursor: Option<Cow<'a, [u8]>>,
    /// Most calls on the page.
    pub limit: Option<u64>,
    /// Whether calls are listed newest first, regardless of kind.
    pub newest_first: bool,
    /// Only calls that the agent made, or only those that it serves.
    pub side: Option<CallSide>,
    /// Only calls in this state.
    pub state: Option<WantedState>,
    /// Only calls of this capability: its name, or its id.
    pub capability: Option<Cow<'a, str>>,
    /// Only calls made at this time or later. **Units:** milliseconds since the Unix epoch.
    pub since_ms: Option<u64>,
}

/// The calls that a list contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallSide {
    /// Calls by the sidecar's own agent, wherever they run.
    Made,
    /// Calls that run here, from any caller.
    Served,
}

/// The states of the calls that a list contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WantedState {
    /// Every state but finished.
    Running,
    /// This state.
    In(CallState),
}

impl CallSide {
    /// The side as written in a REQUEST.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Made => "made",
            Self::Served => "served",
        }
    }
}

impl FromStr for CallSide {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "made" => Ok(Self::Made),
            "served" => Ok(Self::Served),
            _ => Err("expected made or served"),
        }
    }
}

impl WantedState {
    /// The state as written in a REQUEST.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::In(state) => state.as_str(),
        }
    }

    /// Whether this includes calls in `state`.
    pub fn is(self, state: CallState) -> bool {
        match self {
            Self::Running => state != CallState::Finished,
            Self::In(wanted) => state == wanted,
        }
    }
}

impl FromStr for WantedState {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let state = match text {
            "running" => return Ok(Self::Running),
            "waiting" => CallState::Waiting,
            "sent" => CallState::Sent,
            "accepted" => CallState::Accepted,
            "executing" => CallState::Executing,
            "finished" => CallState::Finished,
            _ => return Err("expected running, waiting, sent, accepted, executing or finished"),
        };
        Ok(Self::In(state))
    }
}

/// One page of calls.
///
/// **Shape:** `{"op": "calls", "calls": [* listed-call], ? "cursor": bstr, ? "journal": journal-counters}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallsPage<'a> {
    /// The calls: first those that the sidecar relays, then those that it runs or ran, each kind in a fixed order.
    pub calls: Vec<ListedCall<'a>>,
    /// The cursor of the next page; none on the last one.
    pub cursor: Option<Cow<'a, [u8]>>,
    /// The counters of the sidecar's journal; none without a journal.
    pub journal: Option<JournalCounters>,
}

/// One call in a list. Unknown times are omitted.
///
/// **Units:** times are milliseconds since the Unix epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedCall<'a> {
    /// The invoke's id, under which the caller knows the call.
    pub id: MessageId,
    /// The invoke's `from`.
    pub from: Cow<'a, str>,
    /// The sidecar's role in the call.
    pub role: Role,
    /// The state of the call.
    pub state: CallState,
    /// The capability's id; for a relayed call its name until the version is known.
    pub capability: Option<Cow<'a, str>>,
    /// The agent that got a relayed call.
    pub peer: Option<Cow<'a, str>>,
    /// When it was handed to its provider.
    pub started_at_ms: Option<u64>,
    /// When its time to run ends.
    pub deadline_at_ms: Option<u64>,
    /// When its result was recorded.
    pub finished_at_ms: Option<u64>,
    /// Its `ts + ttl`: until then its result is remembered.
    pub expires_at_ms: u64,
    /// The status of its result, if known.
    pub status: Option<ResultStatus>,
    /// The code of its error result, or without a `status` of its refusal.
    pub code: Option<Code>,
    /// The recorded CAP_RESULT envelope's length. **Units:** bytes.
    pub bytes: Option<u64>,
    /// Copies of the invoke that wait for the result.
    pub waiters: u64,
    /// Whether it is in the journal.
    pub journaled: bool,
    /// Where its time went; only where one id is asked for, and only if it was kept.
    pub timeline: Option<Box<CallTimeline<'a>>>,
}

/// The role of a sidecar in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// It relays the call of its agent to a peer.
    Caller,
    /// It runs the call with a provider of its own.
    Executor,
}

impl Role {
    /// The role as written in a RESPONSE.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Executor => "executor",
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        match &*reader.text()? {
            "caller" => Ok(Self::Caller),
            "executor" => Ok(Self::Executor),
            _ => Err(wrong_value(reader, "role", "caller or executor")),
        }
    }
}

/// The state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallState {
    /// Relayed: it waits for a peer that serves it, for the journal, for a link, or for the next try.
    Waiting,
    /// Relayed: the peer has it.
    Sent,
    /// Accepted: it is being written to the journal, and no provider has it.
    Accepted,
    /// A provider has it.
    Executing,
    /// Its one result is recorded.
    Finished,
}

impl CallState {
    /// The state as written in a RESPONSE.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Sent => "sent",
            Self::Accepted => "accepted",
            Self::Executing => "executing",
            Self::Finished => "finished",
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        match &*reader.text()? {
            "waiting" => Ok(Self::Waiting),
            "sent" => Ok(Self::Sent),
            "accepted" => Ok(Self::Accepted),
            "executing" => Ok(Self::Executing),
            "finished" => Ok(Self::Finished),
            _ => Err(wrong_value(reader, "state", "a state that a call can be in")),
        }
    }
}

/// The `status` of a CAP_RESULT. **Source:** PROTOCOL 7.4.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ResultStatus {
    /// A result.
    Success,
    /// An error.
    Error,
}

impl ResultStatus {
    /// The status as written in a RESPONSE.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Success => "success",
            Self::Error => "error",
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        match &*reader.text()? {
            "success" => Ok(Self::Success),
            "error" => Ok(Self::Error),
            _ => Err(wrong_value(reader, "status", "success or error")),
        }
    }
}

/// The counters of a journal since its sidecar started.
///
/// **Shape:** `{"changes": uint, "commits": uint, "failures": uint}`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JournalCounters {
    /// Changes made durable.
    pub changes: u64,
    /// Commits of these changes; under load many changes share one.
    pub commits: u64,
    /// Changes that failed.
    pub failures: u64,
}

impl<'a> CallsRequest<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut request = Self::default();
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"target" => request.target = Some(read_id(reader, "target")?),
                b"cursor" => request.cursor = Some(reader.bytes()?),
                b"limit" => request.limit = Some(reader.uint()?),
                b"order" if reader.text()? == NEWEST_FIRST => request.newest_first = true,
                b"order" => return Err(wrong_value(reader, "order", NEWEST_FIRST)),
                b"role" => {
                    request.side = Some(
                        reader.text()?.parse().map_err(|expected| wrong_value(reader, "role", expected))?,
                    );
                }
                b"state" => {
                    request.state = Some(
                        reader.text()?.parse().map_err(|expected| wrong_value(reader, "state", expected))?,
                    );
                }
                b"since_ms" => request.since_ms = Some(reader.uint()?),
                b"capability" => request.capability = Some(reader.text()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(request)
    }

    pub(super) fn write(&self, map: &mut MapWriter<'_>) {
        map.text("op", OP);
        map.text_if("role", self.side.map(CallSide::as_str));
        map.uint_if("limit", self.limit);
        map.text_if("order", self.newest_first.then_some(NEWEST_FIRST));
        map.text_if("state", self.state.map(WantedState::as_str));
        if let Some(cursor) = &self.cursor {
            map.bytes("cursor", cursor);
        }
        map.bytes_if("target", self.target.as_ref().map(MessageId::as_bytes));
        map.uint_if("since_ms", self.since_ms);
        map.text_if("capability", self.capability.as_deref());
    }
}

impl<'a> CallsPage<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut page = Self::default();
        let mut calls = None;
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"calls" => calls = Some(read_array(reader, ListedCall::read)?),
                b"cursor" => page.cursor = Some(reader.bytes()?),
                b"journal" => page.journal = Some(JournalCounters::read(reader)?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        page.calls = required(calls, "calls")?;
        Ok(page)
    }

    pub(super) fn write(&self, map: &mut MapWriter<'_>) {
        map.text("op", OP);
        let out = map.key_then("calls");
        Writer::new(out).array(self.calls.len() as u64);
        for call in &self.calls {
            call.write(out);
        }
        if let Some(cursor) = &self.cursor {
            map.bytes("cursor", cursor);
        }
        if let Some(journal) = &self.journal {
            journal.write(map.key_then("journal"));
        }
    }
}

impl<'a> ListedCall<'a> {
    /// A call with only the required facts.
    pub const fn new(
        id: MessageId,
        from: Cow<'a, str>,
        role: Role,
        state: CallState,
        expires_at_ms: u64,
    ) -> Self {
        Self {
            id,
            from,
            role,
            state,
            capability: None,
            peer: None,
            started_at_ms: None,
            deadline_at_ms: None,
            finished_at_ms: None,
            expires_at_ms,
            status: None,
            code: None,
            bytes: None,
            waiters: 0,
            journaled: false,
            timeline: None,
        }
    }

    /// The same call, owned.
    pub fn into_owned(self) -> ListedCall<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        ListedCall {
            capability: self.capability.map(owned),
            peer: self.peer.map(owned),
            started_at_ms: self.started_at_ms,
            deadline_at_ms: self.deadline_at_ms,
            finished_at_ms: self.finished_at_ms,
            status: self.status,
            code: self.code,
            bytes: self.bytes,
            waiters: self.waiters,
            journaled: self.journaled,
            timeline: self.timeline.map(|timeline| Box::new(timeline.into_owned())),
            ..ListedCall::new(self.id, owned(self.from), self.role, self.state, self.expires_at_ms)
        }
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, BodyError> {
        let (mut id, mut from, mut role, mut state, mut expires_at_ms) = (None, None, None, None, None);
        let (mut waiters, mut journaled) = (None, None);
        let mut call =
            Self::new(MessageId::new(0, [0; 8]), Cow::Borrowed(""), Role::Caller, CallState::Waiting, 0);
        read_map(reader, |key, reader| {
            match key {
                b"id" => id = Some(read_id(reader, "id")?),
                b"code" => call.code = Some(read_code(reader)?),
                b"from" => from = Some(reader.text()?),
                b"peer" => call.peer = Some(reader.text()?),
                b"role" => role = Some(Role::read(reader)?),
                b"status" => call.status = Some(ResultStatus::read(reader)?),
                b"bytes" => call.bytes = Some(reader.uint()?),
                b"state" => state = Some(CallState::read(reader)?),
                b"waiters" => waiters = Some(reader.uint()?),
                b"timeline" => call.timeline = Some(Box::new(CallTimeline::read(reader)?)),
                b"journaled" => journaled = Some(reader.bool()?),
                b"capability" => call.capability = Some(reader.text()?),
                b"expires_at_ms" => expires_at_ms = Some(reader.uint()?),
                b"started_at_ms" => call.started_at_ms = Some(reader.uint()?),
                b"deadline_at_ms" => call.deadline_at_ms = Some(reader.uint()?),
                b"finished_at_ms" => call.finished_at_ms = Some(reader.uint()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self {
            id: required(id, "id")?,
            from: required(from, "from")?,
            role: required(role, "role")?,
            state: required(state, "state")?,
            expires_at_ms: required(expires_at_ms, "expires_at_ms")?,
            waiters: required(waiters, "waiters")?,
            journaled: required(journaled, "journaled")?,
            ..call
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.bytes("id", self.id.as_bytes());
        map.uint_if("code", self.code.map(|code| code.0.into()));
        map.text("from", &self.from);
        map.text_if("peer", self.peer.as_deref());
        map.text("role", self.role.as_str());
        map.uint_if("bytes", self.bytes);
        map.text("state", self.state.as_str());
        map.text_if("status", self.status.map(ResultStatus::as_str));
        map.uint("waiters", self.waiters);
        if let Some(timeline) = &self.timeline {
            timeline.write(map.key_then("timeline"));
        }
        map.bool_if("journaled", Some(self.journaled));
        map.text_if("capability", self.capability.as_deref());
        map.uint("expires_at_ms", self.expires_at_ms);
        map.uint_if("started_at_ms", self.started_at_ms);
        map.uint_if("deadline_at_ms", self.deadline_at_ms);
        map.uint_if("finished_at_ms", self.finished_at_ms);
    }
}

impl JournalCounters {
    fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        let (mut changes, mut commits, mut failures) = (None, None, None);
        read_map(reader, |key, reader| {
            match key {
                b"changes" => changes = Some(reader.uint()?),
                b"commits" => commits = Some(reader.uint()?),
                b"failures" => failures = Some(reader.uint()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self {
            changes: required(changes, "changes")?,
            commits: required(commits, "commits")?,
            failures: required(failures, "failures")?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.uint("changes", self.changes);
        map.uint("commits", self.commits);
        map.uint("failures", self.failures);
    }
}

fn read_id(reader: &mut Reader<'_>, field: &'static str) -> Result<MessageId, BodyError> {
    read_bytes::<MESSAGE_ID_BYTES>(reader, field, "16 bytes").map(MessageId)
}

/// The order of a list that is asked for newest first.
const NEWEST_FIRST: &str = "newest-first";
/// The operation's name.
pub(super) const OP: &str = "calls";
