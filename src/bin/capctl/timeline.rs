//! Shows where the time of one call went: its phases and its tries, each as a table.

use std::fmt::Write as _;

use capd::client::{CallTimeline, CallTry};

use crate::output;

/// The timeline below the facts of its call.
pub(crate) fn text(timeline: &CallTimeline<'_>) -> String {
    let mut text = String::new();
    let exported = if timeline.sampled { "exported" } else { "not exported" };
    let copies = format!("{} joined, {} replayed", timeline.joined, timeline.replays);
    for (name, value) in [
        ("took", timeline.took_us.map(us)),
        ("came on", timeline.link.as_deref().map(str::to_owned)),
        ("trace", Some(format!("{} ({exported})", timeline.trace))),
        ("copies", Some(copies).filter(|_| timeline.joined + timeline.replays > 0)),
    ] {
        if let Some(value) = value {
            let _ = writeln!(text, "  {name:<16}{}", output::one_line(&value));
        }
    }
    let phases = timeline.phases.iter().map(|phase| {
        vec![phase.name.clone().into_owned(), us(phase.begin_us), took(phase.begin_us, phase.end_us)]
    });
    text += &below(&["PHASE", "BEGAN", "TOOK"], phases.collect());
    if !timeline.tries.is_empty() {
        text += &below(&["TRY", "BEGAN", "TOOK", "OUTCOME", "LINK", "PEER"], rows(&timeline.tries));
    }
    if timeline.tries_omitted > 0 {
        let _ = writeln!(text, "  and {} more", timeline.tries_omitted);
    }
    text
}

fn rows(tries: &[CallTry<'_>]) -> Vec<Vec<String>> {
    let row = |(number, one): (usize, &CallTry<'_>)| {
        let outcome = one.outcome.map_or("in flight", |outcome| outcome.as_str());
        vec![
            number.to_string(),
            us(one.begin_us),
            took(one.begin_us, one.end_us),
            one.code.map_or_else(|| outcome.to_owned(), |code| format!("{outcome}, {code}")),
            one.link.as_deref().unwrap_or_default().to_owned(),
            one.peer.as_deref().unwrap_or("local provider").to_owned(),
        ]
    };
    (1..).zip(tries).map(row).collect()
}

/// A table, moved to the right as the facts of the call are.
fn below(heading: &[&str], rows: Vec<Vec<String>>) -> String {
    output::table(heading, &rows).lines().map(|line| format!("  {line}\n")).collect()
}

fn took(begin_us: u64, end_us: Option<u64>) -> String {
    end_us.map_or_else(|| "so far".to_owned(), |end_us| us(end_us.saturating_sub(begin_us)))
}

/// A span of time with three digits.
fn us(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} µs"),
        1_000..10_000 => format!("{:.2} ms", us as f64 / 1e3),
        10_000..100_000 => format!("{:.1} ms", us as f64 / 1e3),
        100_000..1_000_000 => format!("{} ms", us / 1_000),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use capd::client::{CallPhase, TryOutcome};
    use capd_proto::code::Code;

    use super::*;

    fn tried(begin_us: u64, end_us: u64, outcome: TryOutcome) -> CallTry<'static> {
        CallTry {
            begin_us,
            end_us: Some(end_us),
            peer: Some("did:key:b".into()),
            link: Some("quic #3".into()),
            outcome: Some(outcome),
            code: None,
        }
    }

    #[test]
    fn a_timeline_is_shown_with_its_phases_and_tries() {
        let phase = |name: &'static str, begin_us, end_us| CallPhase { name: name.into(), begin_us, end_us };
        let refused = CallTry { code: Some(Code::OVERLOADED), ..tried(3_120, 4_500, TryOutcome::Refused) };
        let open = CallTry { end_us: None, outcome: None, ..tried(254_500, 0, TryOutcome::Success) };
        let local = CallTry { peer: None, link: None, ..tried(120, 2_000_000, TryOutcome::Lost) };
        let running = CallTimeline {
            trace: "0af7651916cd43dd8448eb211c80319c".into(),
            sampled: true,
            link: Some("unix #1".into()),
            phases: vec![
                phase("admit", 0, Some(40)),
                phase("wire", 40, Some(4_500)),
                phase("queue", 4_500, Some(254_500)),
                phase("wire", 254_500, None),
            ],
            tries: vec![refused, open],
            tries_omitted: 2,
            ..CallTimeline::default()
        };
        let ended = CallTimeline {
            took_us: Some(2_000_000),
            phases: vec![phase("admit", 0, Some(120)), phase("provider", 120, Some(2_000_000))],
            tries: vec![local],
            joined: 1,
            replays: 2,
            sampled: false,
            trace: "\u{1b}".into(),
            ..CallTimeline::default()
        };
        insta::assert_snapshot!([text(&running), text(&ended)].join("\n"));
    }
}
