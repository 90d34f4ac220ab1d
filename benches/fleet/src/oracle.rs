//! How each call ended, what ran, and which sidecars were touched when in; every call that was lost or ran twice out.
//!
//! The promise is that of `tests/kills`, for a whole fleet: a call that may run only once runs once at most, a call that was
//! answered ran, and one that was refused did not. Beyond that, every call is answered, with two exceptions: the caller's own
//! sidecar was touched while the call was in flight, or the call may run only once and its provider's sidecar was touched.

use std::collections::{BTreeMap, HashMap};
use std::path::Path;
use std::time::Duration;

use crate::calls::{Call, Kind, Outcome};
use crate::figures::Counts;

/// A time in which a sidecar was killed, stopped, drained or fenced.
#[derive(Clone, Debug)]
pub(crate) struct Touch {
    /// Which of the real ones.
    pub(crate) sidecar: usize,
    pub(crate) from: Duration,
    /// None while it goes on.
    pub(crate) until: Option<Duration>,
}

/// A line of the providers' file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Execution {
    pub(crate) number: u64,
    pub(crate) id: String,
    pub(crate) did: String,
    pub(crate) journal: String,
}

/// The lines of the providers' file.
pub(crate) fn executions(file: &Path) -> Vec<Execution> {
    let text = std::fs::read_to_string(file).unwrap();
    assert!(text.is_empty() || text.ends_with('\n'), "the last line is cut");
    let parsed = text.lines().map(|line| match line.split(' ').collect::<Vec<_>>()[..] {
        [number, id, did, journal] => Execution {
            number: number.parse().unwrap(),
            id: id.to_owned(),
            did: did.to_owned(),
            journal: journal.to_owned(),
        },
        _ => panic!("{line:?} is no line of ours"),
    });
    parsed.collect()
}

/// Everything that happened.
pub(crate) struct Oracle<'a> {
    touches: &'a [Touch],
    /// The DID of each real sidecar.
    dids: &'a [String],
    ran: HashMap<u64, Vec<&'a Execution>>,
}

impl<'a> Oracle<'a> {
    pub(crate) fn new(executions: &'a [Execution], touches: &'a [Touch], dids: &'a [String]) -> Self {
        let mut ran: HashMap<u64, Vec<&Execution>> = HashMap::new();
        for execution in executions {
            ran.entry(execution.number).or_default().push(execution);
        }
        Self { touches, dids, ran }
    }

    /// Of calls without an answer, how many ended with which code, apart by verdict.
    pub(crate) fn errors<'c>(&self, calls: impl Iterator<Item = &'c Call>) -> BTreeMap<String, u64> {
        let mut errors = BTreeMap::new();
        for call in calls.filter(|call| call.outcome != Outcome::Answered) {
            let code = call.error.as_deref().and_then(|error| error.split(':').next()).unwrap_or_default();
            *errors.entry(format!("{:?}, {code}", self.verdict(call))).or_default() += 1;
        }
        errors
    }

    /// Counts calls, and tells of each that breaks the promise.
    pub(crate) fn judge<'c>(&self, calls: impl Iterator<Item = &'c Call>) -> (Counts, Vec<String>) {
        let (mut counts, mut broken) = (Counts::default(), Vec::new());
        for call in calls {
            let verdict = self.verdict(call);
            counts.calls += 1;
            let count = match verdict {
                Verdict::Answered => &mut counts.answered,
                Verdict::Unknown => &mut counts.unknown,
                Verdict::OwnSidecar => &mut counts.own_sidecar,
                Verdict::Lost => &mut counts.lost,
                Verdict::Double => &mut counts.double,
            };
            *count += 1;
            if matches!(verdict, Verdict::Lost | Verdict::Double) {
                broken.push(format!("{verdict:?}: {call:?}; ran: {:?}", self.ran.get(&call.number)));
            }
        }
        (counts, broken)
    }

    fn verdict(&self, call: &Call) -> Verdict {
        let ran = self.ran.get(&call.number).map_or(0, Vec::len);
        match (call.kind, call.outcome) {
            (Kind::Once, _) if ran > 1 => Verdict::Double,
            // It ran, and its caller was told that it did not: a caller that makes it again runs it twice.
            (Kind::Once, Outcome::Refused) if ran > 0 => Verdict::Double,
            (_, Outcome::Answered) if ran == 0 => Verdict::Lost,
            (_, Outcome::Answered) => Verdict::Answered,
            _ if self.is_touched(call, |sidecar| sidecar == call.caller) => Verdict::OwnSidecar,
            // The one that ran it; where nobody did, any that may have had it.
            (Kind::Once, Outcome::Unknown)
                if self.is_touched(call, |sidecar| match self.ran.get(&call.number) {
                    Some(ran) => ran.iter().any(|execution| self.dids.get(sidecar) == Some(&execution.did)),
                    None => sidecar != call.caller,
                }) =>
            {
                Verdict::Unknown
            }
            (_, Outcome::Refused | Outcome::Unknown) => Verdict::Lost,
        }
    }

    fn is_touched(&self, call: &Call, of: impl Fn(usize) -> bool) -> bool {
        self.touches.iter().any(|touch| {
            of(touch.sidecar) && touch.from <= call.end && touch.until.is_none_or(|until| call.begin <= until)
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Answered,
    /// It may run only once, and its provider's sidecar may have been touched.
    Unknown,
    /// The caller's own sidecar was touched.
    OwnSidecar,
    Lost,
    Double,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn verdict(kind: Kind, outcome: Outcome, ran: usize, touched: Option<usize>) -> Verdict {
        let of = |number| Execution { number, id: "a".into(), did: "2".into(), journal: "c".into() };
        let executions: Vec<_> = (0..ran).map(|_| of(7)).chain([of(8)]).collect();
        let second = Duration::from_secs(1);
        let touch = |sidecar| Touch { sidecar, from: second, until: Some(2 * second) };
        let touches: Vec<_> = touched.map(touch).into_iter().collect();
        let call = Call { number: 7, caller: 1, kind, begin: second, end: 3 * second, outcome, error: None };
        Oracle::new(&executions, &touches, &dids()).verdict(&call)
    }

    fn dids() -> [String; 4] {
        [0, 1, 2, 3].map(|number: u8| number.to_string())
    }

    #[test]
    fn a_call_that_ran_twice_is_found_however_it_ended() {
        for outcome in [Outcome::Answered, Outcome::Refused, Outcome::Unknown] {
            assert_eq!(verdict(Kind::Once, outcome, 2, Some(1)), Verdict::Double);
        }
        assert_eq!(verdict(Kind::Once, Outcome::Refused, 1, Some(2)), Verdict::Double);
        assert_eq!(verdict(Kind::Again, Outcome::Answered, 2, None), Verdict::Answered);
        assert_eq!(verdict(Kind::Once, Outcome::Answered, 1, None), Verdict::Answered);
    }

    #[test]
    fn a_call_without_an_answer_is_lost_unless_its_sidecars_were_touched() {
        for kind in [Kind::Once, Kind::Again] {
            assert_eq!(verdict(kind, Outcome::Answered, 0, None), Verdict::Lost);
            assert_eq!(verdict(kind, Outcome::Refused, 0, None), Verdict::Lost);
            assert_eq!(verdict(kind, Outcome::Refused, 0, Some(2)), Verdict::Lost);
            assert_eq!(verdict(kind, Outcome::Unknown, 0, None), Verdict::Lost);
            assert_eq!(verdict(kind, Outcome::Unknown, 0, Some(1)), Verdict::OwnSidecar);
        }
        assert_eq!(verdict(Kind::Once, Outcome::Unknown, 1, Some(2)), Verdict::Unknown);
        assert_eq!(verdict(Kind::Once, Outcome::Unknown, 0, Some(3)), Verdict::Unknown);
        // Another one was touched than the one that ran it.
        assert_eq!(verdict(Kind::Once, Outcome::Unknown, 1, Some(3)), Verdict::Lost);
        assert_eq!(verdict(Kind::Again, Outcome::Unknown, 1, Some(2)), Verdict::Lost);
    }

    #[test]
    fn a_touch_counts_only_while_the_call_was_in_flight() {
        let second = Duration::from_secs(1);
        let outcome = Outcome::Refused;
        let call = Call {
            number: 1,
            caller: 1,
            kind: Kind::Again,
            begin: 5 * second,
            end: 6 * second,
            outcome,
            error: None,
        };
        let verdict = |from: u32, until: Option<u32>| {
            let touches = [Touch { sidecar: 1, from: from * second, until: until.map(|at| at * second) }];
            Oracle::new(&[], &touches, &dids()).verdict(&call)
        };
        assert_eq!(verdict(1, Some(4)), Verdict::Lost);
        assert_eq!(verdict(7, None), Verdict::Lost);
        assert_eq!(verdict(1, Some(5)), Verdict::OwnSidecar);
        assert_eq!(verdict(1, None), Verdict::OwnSidecar);
    }
}
