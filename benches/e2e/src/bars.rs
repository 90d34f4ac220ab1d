//! Figures in; what they must be, and whether they are, out.

use crate::fronts::{Fronts, Row};
use crate::large::Large;
use crate::load::Round;
use crate::measure::{Figures, Series, median, middle};
use crate::subject::{Fleet, SIDECAR_A, SIDECAR_B, Subject};

/// One thing that must hold.
#[derive(Debug)]
pub(crate) struct Bar {
    /// What is compared.
    pub(crate) what: String,
    pub(crate) bound: Bound,
    /// `None` when it was not measured.
    pub(crate) value: Option<f64>,
    /// What both are counted in.
    pub(crate) unit: &'static str,
}

/// On which side of what the value must be.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Bound {
    AtLeast(f64),
    AtMost(f64),
}

impl Bar {
    /// Whether it holds; `None` when it was not measured.
    pub(crate) fn is_met(&self) -> Option<bool> {
        self.value.map(|value| match self.bound {
            Bound::AtLeast(least) => value >= least,
            Bound::AtMost(most) => value <= most,
        })
    }
}

/// All bars, in the order of the table.
pub(crate) fn bars(figures: &Figures) -> Vec<Bar> {
    let many = |subject| figures.of(subject).map(|series| median(&series.many, Round::calls_per_s));
    let one = |subject| figures.of(subject).map(|series| median(&series.one, |round| round.p50_us));
    let rate = |(subject, least, to): (Subject, f64, Subject)| Bar {
        what: format!("calls/s: {} over {}", subject.title(), to.title()),
        bound: Bound::AtLeast(least),
        value: many(subject).zip(many(to)).map(|(value, to)| value / to),
        unit: "×",
    };
    let time = |(subject, most, to): (Subject, f64, Subject)| Bar {
        what: format!("p50 of one call: {} over {}", subject.title(), to.title()),
        bound: Bound::AtMost(most),
        value: one(subject).zip(one(to)).map(|(value, to)| value / to),
        unit: "×",
    };
    let longer = one(Subject::Signed).zip(one(Subject::ForwardMultiplexed)).map(|(value, to)| value - to);
    let commits = one(Subject::Journaled).zip(one(Subject::Channel)).map(|(value, to)| {
        let commit_us = middle(figures.commits_us.clone());
        (value - to) / commit_us
    });
    let mut bars: Vec<_> = RATES.into_iter().map(rate).collect();
    bars.extend(TIMES.into_iter().map(time));
    bars.push(Bar {
        what: format!("p50 of one call: {} longer than forwarding", Subject::Signed.title()),
        bound: Bound::AtMost(75.0),
        value: longer,
        unit: " µs",
    });
    bars.push(Bar {
        what: format!("p50 of one call: {} longer than in channel mode", Subject::Journaled.title()),
        bound: Bound::AtMost(4.0),
        value: commits,
        unit: " durable commits",
    });
    bars.extend(figures.half.iter().filter(|(subject, _)| subject.is_capd()).map(|(subject, rounds)| Bar {
        what: format!("at half of peak load: p99 over p50, {}", subject.title()),
        bound: Bound::AtMost(3.0),
        value: Some(middle(rounds.iter().map(|round| round.p99_us / round.p50_us).collect())),
        unit: "×",
    }));
    bars.extend(beside(figures));
    bars
}

/// What is held against capd itself, and against quinn.
fn beside(figures: &Figures) -> Vec<Bar> {
    let fleet = |of: fn(&Series) -> f64| figures.fleet.as_ref().map(|[few, large]| of(large) / of(few));
    let Fleet { capabilities, peers } = figures.registered;
    let many = format!("{capabilities} capabilities and {peers} peers over few");
    let mut bars = vec![
        Bar {
            what: "twice the payload: time per byte over that of the half, the worst doubling".to_owned(),
            bound: Bound::AtMost(2.0),
            value: worst_doubling(figures),
            unit: "×",
        },
        Bar {
            what: format!("time per call with many in flight: {many}"),
            bound: Bound::AtMost(1.05),
            value: fleet(|series| 1.0 / median(&series.many, Round::calls_per_s)),
            unit: "×",
        },
        Bar {
            what: format!("p50 of one call: {many}"),
            bound: Bound::AtMost(1.05),
            value: fleet(|series| median(&series.one, |round| round.p50_us)),
            unit: "×",
        },
    ];
    if let Some([quic, _, capd]) = &figures.large {
        bars.extend(large(quic, capd));
    }
    bars
}

/// What is held against Dapr.
pub(crate) fn beside_dapr(fronts: &Fronts) -> Vec<Bar> {
    [Subject::Http, Subject::HttpPush].into_iter().flat_map(|subject| over_dapr(fronts, subject)).collect()
}

fn over_dapr(fronts: &Fronts, subject: Subject) -> [Bar; 4] {
    let rows = fronts.of(subject).zip(fronts.of(Subject::Dapr));
    let over = |of: fn(&Row) -> f64| rows.map(|(row, dapr)| of(row) / of(dapr));
    let bar = |what: &str, bound, value| Bar {
        what: format!("{what}: {} over Dapr", subject.title()),
        bound,
        value,
        unit: "×",
    };
    let rate = over(|row| median(&row.series.many, Round::calls_per_s));
    let time = over(|row| median(&row.series.one, |round| round.p50_us));
    [
        bar("calls/s", Bound::AtLeast(3.0), rate),
        bar("p50 of one call", Bound::AtMost(0.5), time),
        bar("memory of both sidecars at first", Bound::AtMost(0.3), over(|row| row.memory[0])),
        bar("memory of both sidecars after the calls", Bound::AtMost(0.3), over(|row| row.memory[1])),
    ]
}

fn large(quic: &Large, capd: &Large) -> Vec<Bar> {
    let rate = |large: &Large| median(&large.alone.many, Round::calls_per_s);
    let p50_us = |rounds: &[Round]| median(rounds, |round| round.p50_us);
    let mut bars = vec![
        Bar {
            what: "1 MiB both ways: calls/s over those of quinn alone".to_owned(),
            bound: Bound::AtLeast(0.8),
            value: Some(rate(capd) / rate(quic)),
            unit: "×",
        },
        Bar {
            what: "1 MiB both ways: p50 of one small call beside, over that with nothing beside".to_owned(),
            bound: Bound::AtMost(2.0),
            value: Some(p50_us(&capd.small_beside) / p50_us(&capd.small)),
            unit: "×",
        },
    ];
    let sidecars = capd.held.iter().filter(|(name, _)| [SIDECAR_A, SIDECAR_B].contains(name));
    bars.extend(sidecars.map(|(name, payloads)| Bar {
        what: format!("1 MiB both ways: held by {name} at most, over the payload in flight"),
        bound: Bound::AtMost(2.0),
        value: Some(*payloads),
        unit: "×",
    }));
    bars
}

fn worst_doubling(figures: &Figures) -> Option<f64> {
    let per_byte =
        |(bytes, rounds): &(usize, Vec<Round>)| 1.0 / median(rounds, Round::calls_per_s) / *bytes as f64;
    figures.sizes.windows(2).map(|pair| per_byte(&pair[1]) / per_byte(&pair[0])).reduce(f64::max)
}

/// Calls per second of one over those of another, at least.
const RATES: [(Subject, f64, Subject); 6] = [
    (Subject::Channel, 0.5, Subject::ForwardMultiplexed),
    (Subject::Channel, 5.0, Subject::GrpcProxied),
    (Subject::Channel, 2.0, Subject::GrpcDirect),
    (Subject::Signed, 1.5, Subject::GrpcProxied),
    (Subject::Signed, 0.8, Subject::GrpcDirect),
    (Subject::Journaled, 0.15, Subject::ForwardMultiplexed),
];
/// The time of one call over that of another, at most.
const TIMES: [(Subject, f64, Subject); 3] = [
    (Subject::Channel, 1.25, Subject::ForwardMultiplexed),
    (Subject::Channel, 0.65, Subject::GrpcProxied),
    (Subject::Signed, 0.9, Subject::GrpcProxied),
];
