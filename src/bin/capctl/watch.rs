//! Implements `calls --watch`: a filter in; each call that is new or has changed, until Ctrl-C, out.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use capd::client::{CallFilter, CallState, Client, ListedCall, ResultStatus, WantedState, call_json};
use capd_proto::code::Code;
use capd_proto::envelope::MessageId;
use capd_proto::limits::QUERY_LIMIT_MAX;
use tokio::time::sleep;

use crate::calls::{HEADING, Only, row};
use crate::failure::Failure;
use crate::{names, output};

/// Prints the newest calls that match, and then each that is new or has changed.
pub(crate) async fn run(
    client: &Client,
    filter: CallFilter,
    only: &Only,
    limit: Option<u64>,
    json: bool,
) -> Result<(), Failure> {
    // A call leaves a state only where calls of all states are read.
    let (wanted, every) = (filter.state, CallFilter { state: None, ..filter });
    let at_start = limit.unwrap_or(if every.since_ms.is_some() { u64::MAX } else { AT_START });
    let mut watch = Watch::default();
    let mut is_first = true;
    if !json {
        output::print(&line(&HEADING.map(str::to_owned)))?;
    }
    loop {
        let calls = look(client, &every, &watch).await?;
        let mut changed = watch.changed(calls);
        changed.retain(|call| is_in(call, wanted) && only.admits(call));
        let skipped = if is_first {
            changed.len().saturating_sub(at_start.try_into().unwrap_or(usize::MAX))
        } else {
            0
        };
        for call in &changed[skipped..] {
            if json {
                output::print_json(&call_json(call))?
            } else {
                output::print(&line(&row(call, client.did().as_str())))?
            }
        }
        is_first = false;
        sleep(INTERVAL).await;
    }
}

/// The newest calls, those that run, and those that ran when they were last seen.
async fn look(
    client: &Client,
    every: &CallFilter,
    watch: &Watch,
) -> Result<Vec<ListedCall<'static>>, Failure> {
    let mut calls = client.calls_where(every, None, Some(QUERY_LIMIT_MAX)).await?.calls;
    let running = CallFilter { state: Some(WantedState::Running), ..every.clone() };
    calls.extend(client.calls_where(&running, None, Some(QUERY_LIMIT_MAX)).await?.calls);
    let listed: BTreeSet<_> = calls.iter().map(key).collect();
    for id in watch.unfinished(&listed) {
        calls.extend(client.calls_of(id).await?.calls);
    }
    Ok(calls)
}

/// What was seen of the calls.
#[derive(Default)]
struct Watch {
    seen: BTreeMap<Key, Mark>,
    /// Older calls that have finished are forgotten; they are not shown as new ones. **Units:** milliseconds since 1970.
    floor_ms: u64,
}

/// A call, whose id another agent may have used as well.
type Key = (u64, String, &'static str, String);

/// What is shown anew when it changes.
#[derive(Clone, PartialEq)]
struct Mark {
    id: MessageId,
    state: CallState,
    status: Option<ResultStatus>,
    code: Option<Code>,
    peer: Option<String>,
}

impl Watch {
    /// The calls that are new or have changed, oldest first.
    fn changed(&mut self, calls: Vec<ListedCall<'static>>) -> Vec<ListedCall<'static>> {
        let calls: BTreeMap<_, _> = calls.into_iter().map(|call| (key(&call), call)).collect();
        // A call that ran, and that the sidecar does not know any more, will not change.
        self.seen.retain(|key, mark| mark.state == CallState::Finished || calls.contains_key(key));
        let mut changed = Vec::new();
        for (key, call) in calls {
            let mark = Mark {
                id: call.id,
                state: call.state,
                status: call.status,
                code: call.code,
                peer: call.peer.as_deref().map(str::to_owned),
            };
            let is_old = call.state == CallState::Finished && key.0 < self.floor_ms;
            let known = self.seen.get(&key);
            if known == Some(&mark) || (known.is_none() && is_old) {
                continue;
            }
            self.seen.insert(key, mark);
            changed.push(call);
        }
        while self.seen.len() > SEEN_MAX {
            if let Some(((made_ms, ..), _)) = self.seen.pop_first() {
                self.floor_ms = self.floor_ms.max(made_ms + 1);
            }
        }
        changed
    }

    /// Calls that ran when they were last seen and are not listed, the oldest first.
    fn unfinished(&self, listed: &BTreeSet<Key>) -> Vec<MessageId> {
        let gone = self
            .seen
            .iter()
            .filter(|(key, mark)| mark.state != CallState::Finished && !listed.contains(*key));
        gone.map(|(_, mark)| mark.id).collect()
    }
}

fn key(call: &ListedCall<'_>) -> Key {
    (call.id.ts_ms(), call.id.to_string(), call.role.as_str(), call.from.to_string())
}

fn is_in(call: &ListedCall<'_>, wanted: Option<WantedState>) -> bool {
    match wanted {
        None => true,
        Some(WantedState::Running) => call.state != CallState::Finished,
        Some(WantedState::In(state)) => call.state == state,
    }
}

/// Columns that are as wide in every line, since lines come one by one.
fn line(cells: &[String; 7]) -> String {
    let [id, state, made, ends, result, capability, with] =
        cells.each_ref().map(|cell| output::one_line(&names::shown(cell)));
    let line =
        format!("{id:<32}  {state:<9}  {made:<20}  {ends:<20}  {result:<20}  {capability:<32}  {with}");
    line.trim_end().to_owned()
}

/// Time from one look to the next.
const INTERVAL: Duration = Duration::from_millis(500);
/// Calls that are shown first, unless asked otherwise.
const AT_START: u64 = 10;
/// Calls that are remembered, so that none is shown twice.
const SEEN_MAX: usize = 20_000;

#[cfg(test)]
mod tests {
    use capd::client::Role;

    use super::*;

    fn call(made_ms: u64, state: CallState) -> ListedCall<'static> {
        ListedCall::new(
            MessageId::new(made_ms, [1; 8]),
            "did:key:a".into(),
            Role::Executor,
            state,
            made_ms + 9,
        )
    }

    fn shown(watch: &mut Watch, calls: Vec<ListedCall<'static>>) -> Vec<(u64, CallState)> {
        watch.changed(calls).iter().map(|call| (call.id.ts_ms(), call.state)).collect()
    }

    #[test]
    fn a_call_is_shown_when_it_is_new_and_when_it_changes() {
        use CallState::{Accepted, Executing, Finished};
        let mut watch = Watch::default();
        assert_eq!(
            shown(&mut watch, vec![call(2, Accepted), call(1, Finished), call(2, Accepted)]),
            [(1, Finished), (2, Accepted)]
        );
        assert_eq!(shown(&mut watch, vec![call(2, Accepted), call(1, Finished)]), []);
        assert_eq!(shown(&mut watch, vec![call(2, Executing)]), [(2, Executing)]);
        assert_eq!(watch.unfinished(&BTreeSet::new()), [MessageId::new(2, [1; 8])]);
        assert_eq!(watch.unfinished(&BTreeSet::from([key(&call(2, Executing))])), []);
        assert_eq!(
            shown(&mut watch, vec![call(2, Finished), call(3, Finished)]),
            [(2, Finished), (3, Finished)]
        );
        assert_eq!(shown(&mut watch, vec![call(1, Finished), call(2, Finished)]), []);
    }

    #[test]
    fn what_is_forgotten_is_not_shown_again_and_memory_is_bounded() {
        let mut watch = Watch::default();
        for first in (0..SEEN_MAX as u64 + 1_000).step_by(1_000) {
            let calls = (first..first + 1_000).map(|made_ms| call(made_ms, CallState::Finished));
            assert_eq!(shown(&mut watch, calls.collect()).len(), 1_000);
        }
        assert_eq!(watch.seen.len(), SEEN_MAX);
        assert_eq!(shown(&mut watch, vec![call(5, CallState::Finished)]), []);
        assert_eq!(shown(&mut watch, vec![call(5, CallState::Executing)]), [(5, CallState::Executing)]);
    }

    #[test]
    fn states_are_matched_as_the_sidecar_matches_them() {
        let (runs, ended) = (call(1, CallState::Executing), call(1, CallState::Finished));
        let executing = Some(WantedState::In(CallState::Executing));
        assert!(is_in(&runs, None) && is_in(&runs, Some(WantedState::Running)) && is_in(&runs, executing));
        assert!(
            is_in(&ended, None) && !is_in(&ended, Some(WantedState::Running)) && !is_in(&ended, executing)
        );
    }
}
