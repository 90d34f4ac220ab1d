//! Implements `calls`: a sidecar and an optional id in; the calls that it runs, relays and remembers out.

use std::fmt::Write as _;

use capd::client::{
    CallFilter, CallState, Client, ClientError, JournalCounters, ListedCall, ResultStatus, Role, call_json,
};
use capd_proto::capability::Range;
use capd_proto::identity::Did;
use capd_proto::limits::QUERY_LIMIT_MAX;

use crate::args::CallsArgs;
use crate::capability::Wanted;
use crate::failure::{Exit, Failure};
use crate::{Sidecar, audit, names, output, time, timeline, watch};

/// Lists the calls of the sidecar, or shows those of one id.
pub(crate) async fn run(sidecar: &Sidecar, args: CallsArgs, json: bool) -> Result<(), Failure> {
    let client = sidecar.connect_for_people().await?;
    if let Some(id) = args.id {
        let found = client.calls_of(id).await?;
        if found.calls.is_empty() {
            let message = format!("{id}: the sidecar knows no such call");
            let hint = "only the sidecar that runs a call knows it, until the call expires";
            return Err(Failure::usage(message).exit(Exit::Refused).hint(hint));
        }
        for call in &found.calls {
            if json { output::print_json(&call_json(call))? } else { output::print(&text(call))? }
        }
        return Ok(());
    }
    let wanted = args.capability.as_deref().map(|text| Wanted::read(text, None)).transpose()?;
    let now_ms = audit::now_ms();
    let filter = CallFilter {
        side: args.role,
        state: args.state,
        capability: match &wanted {
            Some(wanted) => Some(named(&client, wanted).await?),
            None => None,
        },
        since_ms: args.since.map(|since| since.ms(now_ms)),
    };
    let peer = match &args.peer {
        Some(peer) => Some(names::find(&client, peer).await?),
        None => None,
    };
    let range = wanted.and_then(|wanted| wanted.range());
    let only = Only { peer, range };
    if args.watch {
        return watch::run(&client, filter, &only, args.limit, json).await;
    }
    list(&client, &filter, &only, args.limit.unwrap_or(u64::MAX), json).await
}

/// What a sidecar does not select calls by.
#[derive(Debug, Default)]
pub(crate) struct Only {
    pub(crate) peer: Option<Did>,
    pub(crate) range: Option<Range>,
}

impl Only {
    /// Whether a call is with this peer and of a version in this range, where they are set.
    pub(crate) fn admits(&self, call: &ListedCall<'_>) -> bool {
        let is_in = |range: &Range| {
            let version =
                call.capability.as_deref().and_then(|id| id.split_once(':')).map(|(_, version)| version);
            version.and_then(|version| version.parse().ok()).is_some_and(|version| range.matches(&version))
        };
        self.peer.as_ref().is_none_or(|peer| with(call) == peer.as_str())
            && self.range.as_ref().is_none_or(is_in)
    }

    const fn is_any(&self) -> bool {
        self.peer.is_none() && self.range.is_none()
    }
}

/// The name or id that is meant; a whole one may be of a capability that is no longer served.
async fn named(client: &Client, wanted: &Wanted) -> Result<String, Failure> {
    let name = wanted.name(client).await?;
    let range = wanted.range();
    Ok(match range.as_ref().and_then(Range::as_exact) {
        Some(version) => format!("{name}:{version}"),
        None => name.to_string(),
    })
}

/// Prints the calls that match. There may be a million, so each page is printed as it comes.
async fn list(
    client: &Client,
    filter: &CallFilter,
    only: &Only,
    mut left: u64,
    json: bool,
) -> Result<(), Failure> {
    let (mut cursor, mut is_first) = (None, true);
    loop {
        // The sidecar does not know this filter, so how many of a page pass it is not known either.
        let limit = if only.is_any() { left.min(QUERY_LIMIT_MAX) } else { QUERY_LIMIT_MAX };
        let mut page = client.calls_where(filter, cursor.as_ref(), Some(limit)).await?;
        if page.next_cursor.is_some() && page.next_cursor == cursor {
            return Err(ClientError::Answer("a page whose cursor does not advance".to_owned()).into());
        }
        page.calls.retain(|call| only.admits(call));
        page.calls.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        if json {
            for call in &page.calls {
                output::print_json(&call_json(call))?;
            }
        } else if !page.calls.is_empty() {
            output::print_table(&table(&page.calls, client.did().as_str(), is_first))?;
            is_first = false;
        }
        left = left.saturating_sub(page.calls.len() as u64);
        cursor = page.next_cursor;
        if cursor.is_some() && left > 0 {
            continue;
        }
        if is_first && !json {
            output::note("no calls");
        }
        if let (Some(journal), false) = (page.journal, json) {
            output::note(&of_journal(journal));
        }
        return Ok(());
    }
}

fn table(calls: &[ListedCall<'_>], own: &str, has_heading: bool) -> String {
    let rows: Vec<_> = calls.iter().map(|call| row(call, own).to_vec()).collect();
    let table = output::table(&HEADING, &rows);
    match (has_heading, table.split_once('\n')) {
        (false, Some((_, rows))) => rows.to_owned(),
        (true, _) | (false, None) => table,
    }
}

/// A call as it stands under [`HEADING`].
pub(crate) fn row(call: &ListedCall<'_>, own: &str) -> [String; 7] {
    let end_ms = call.finished_at_ms.or(call.deadline_at_ms);
    [
        call.id.to_string(),
        call.state.as_str().to_owned(),
        time::utc(call.id.ts_ms()),
        end_ms.map(time::utc).unwrap_or_default(),
        outcome(call),
        call.capability.as_deref().unwrap_or_default().to_owned(),
        if with(call) == own { "local".to_owned() } else { with(call).to_owned() },
    ]
}

/// The other agent: who made a call that runs here, who was given one that is relayed.
fn with<'a>(call: &'a ListedCall<'_>) -> &'a str {
    match call.role {
        Role::Caller => call.peer.as_deref().unwrap_or_default(),
        Role::Executor => &call.from,
    }
}

/// How a finished call ended, as far as that is known.
fn outcome(call: &ListedCall<'_>) -> String {
    match (call.status, call.code) {
        (Some(ResultStatus::Success), _) => "success".to_owned(),
        (Some(ResultStatus::Error), Some(code)) => code.to_string(),
        (Some(ResultStatus::Error), None) => "error".to_owned(),
        (None, Some(code)) => format!("refused, {code}"),
        (None, None) => String::new(),
    }
}

/// Everything that is known of one call.
fn text(call: &ListedCall<'_>) -> String {
    let does = match call.role {
        Role::Caller => "relays it to a peer",
        Role::Executor => "runs it",
    };
    let state = match call.state {
        CallState::Waiting => "waiting for a peer, the journal, a link or the next attempt",
        CallState::Sent => "sent",
        CallState::Accepted => "accepted, on its way into the journal",
        CallState::Executing => "executing",
        CallState::Finished => "finished",
    };
    let at = |ms: Option<u64>| ms.map(time::utc);
    let mut text = format!("{}\n", call.id);
    for (name, value) in [
        ("state", Some(state.to_owned())),
        ("this sidecar", Some(does.to_owned())),
        ("capability", call.capability.as_deref().map(str::to_owned)),
        ("from", Some(call.from.to_string())),
        ("given to", call.peer.as_deref().map(str::to_owned)),
        ("made", Some(time::utc(call.id.ts_ms()))),
        ("started", at(call.started_at_ms)),
        ("time ends", at(call.deadline_at_ms)),
        ("finished", at(call.finished_at_ms)),
        ("result", Some(outcome(call)).filter(|outcome| !outcome.is_empty())),
        ("result bytes", call.bytes.map(|bytes| bytes.to_string())),
        ("waiters", Some(call.waiters.to_string()).filter(|_| call.state != CallState::Finished)),
        ("known until", Some(time::utc(call.expires_at_ms))),
        ("in the journal", Some(if call.journaled { "yes" } else { "no" }.to_owned())),
    ] {
        if let Some(value) = value {
            let _ = writeln!(text, "  {name:<16}{}", output::one_line(&names::shown(&value)));
        }
    }
    if let Some(of_call) = &call.timeline {
        text += &timeline::text(of_call);
    }
    text
}

fn of_journal(journal: JournalCounters) -> String {
    let JournalCounters { changes, commits, failures } = journal;
    format!("journal: {changes} changes in {commits} commits, {failures} failed")
}

/// The columns of calls.
pub(crate) const HEADING: [&str; 7] = ["ID", "STATE", "MADE", "ENDS", "RESULT", "CAPABILITY", "WITH"];

#[cfg(test)]
mod tests {
    use capd_proto::code::Code;
    use capd_proto::envelope::MessageId;

    use super::*;

    const MADE_MS: u64 = 1_707_055_200_000;

    fn running() -> ListedCall<'static> {
        let (id, from) = (MessageId::new(MADE_MS, [1; 8]), "did:key:a".into());
        ListedCall {
            capability: Some("a.b.c:1.0.0".into()),
            started_at_ms: Some(MADE_MS + 1_000),
            deadline_at_ms: Some(MADE_MS + 60_000),
            waiters: 1,
            journaled: true,
            ..ListedCall::new(id, from, Role::Executor, CallState::Executing, MADE_MS + 3_600_000)
        }
    }

    fn finished() -> ListedCall<'static> {
        ListedCall {
            state: CallState::Finished,
            started_at_ms: None,
            deadline_at_ms: None,
            finished_at_ms: Some(MADE_MS + 2_000),
            status: Some(ResultStatus::Error),
            code: Some(Code::TIMEOUT),
            bytes: Some(512),
            waiters: 0,
            ..running()
        }
    }

    fn relayed() -> ListedCall<'static> {
        ListedCall {
            role: Role::Caller,
            state: CallState::Sent,
            capability: Some("a.b.c".into()),
            peer: Some("did:key:\u{1b}b".into()),
            started_at_ms: None,
            journaled: false,
            ..running()
        }
    }

    #[test]
    fn calls_stand_in_a_table_whose_heading_comes_once() {
        let calls = [relayed(), running(), finished()];
        insta::assert_snapshot!(table(&calls, "did:key:own", true));
        let all = table(&calls, "did:key:own", true);
        assert_eq!(table(&calls, "did:key:own", false), all.split_once('\n').unwrap().1);
    }

    #[test]
    fn one_call_is_shown_with_all_that_is_known() {
        insta::assert_snapshot!([relayed(), running(), finished()].map(|call| text(&call)).join("\n"));
    }

    #[test]
    fn a_call_is_a_json_document_without_what_is_not_known() {
        let call = call_json(&finished());
        assert_eq!(call["code"], 5003);
        assert_eq!(call["made_at_ms"], MADE_MS);
        assert!(call.get("peer").is_none() && call.get("started_at_ms").is_none(), "{call}");
    }
}
