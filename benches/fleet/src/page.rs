//! Figures in; a section of text, and with its pictures a part of docs/evidence/fleet.md, out.

use std::fmt::Write as _;

use crate::figures::{Bound, Figures, Scenario};
use crate::number::number;
use crate::{ROOT, svg};

/// Conditions, bars, and what came of each scenario.
pub(crate) fn section(figures: &Figures) -> String {
    let mut text = String::new();
    conditions(&mut text, figures);
    bars(&mut text, figures);
    text.push_str("\n![Calls answered in each second of the run, with what happened meanwhile](../images/fleet-calls.svg)\n\n");
    scenarios(&mut text, figures);
    text.push_str("\n![How long calls took in each scenario](../images/fleet-times.svg)\n\n");
    facts(&mut text, figures);
    text
}

/// Puts the section between its markers, and the pictures beside.
pub(crate) fn write(figures: &Figures) {
    let path = format!("{ROOT}/docs/evidence/fleet.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let [begin, end] = ["begin", "end"].map(|side| format!("<!-- fleet: {side} -->"));
    let (before, rest) = page.split_once(&begin).expect("the page has a place for it");
    let (_, after) = rest.split_once(&end).expect("the place ends");
    std::fs::write(&path, format!("{before}{begin}\n\n{}\n{end}{after}", section(figures))).unwrap();
    std::fs::write(format!("{ROOT}/docs/images/fleet-calls.svg"), svg::calls(figures)).unwrap();
    std::fs::write(format!("{ROOT}/docs/images/fleet-times.svg"), svg::times(figures)).unwrap();
    println!("written to docs/evidence/fleet.md");
}

fn conditions(text: &mut String, figures: &Figures) {
    let about = &figures.about;
    writeln!(
        text,
        "{} real sidecars and {} virtual members; {} names, {} real sidecars to each name that is called; TTL {} s; {} calls/s\n\
         due, one in four of them not idempotent. etcd {}; capd {}, commit {}; {}.\n\
         {} cores ({}), with everything on them. Other work had {:.0} % of them. The run took {} s; seed {}.",
        number(about.real as f64),
        number(f64::from(about.virtual_)),
        number(about.names as f64),
        about.replicas,
        about.ttl_s,
        number(about.calls_per_s),
        about.etcd,
        about.capd,
        about.commit,
        about.rustc,
        about.cores,
        about.cpu,
        about.others * 100.0,
        number(about.took_s as f64),
        about.seed,
    )
    .unwrap();
    if about.held_back > 0 {
        writeln!(
            text,
            "{} calls were due and not made: their caller had too many in flight.",
            number(about.held_back as f64)
        )
        .unwrap();
    }
}

fn bars(text: &mut String, figures: &Figures) {
    text.push('\n');
    line(text, &["bar", "must be", "is", ""]);
    line(text, &["---"; 4]);
    for bar in &figures.bars {
        let bound = match bar.bound {
            Bound::AtLeast(least) => format!("at least {}", amount(least, &bar.unit)),
            Bound::AtMost(most) => format!("at most {}", amount(most, &bar.unit)),
        };
        let value = bar.value.map_or_else(String::new, |value| amount(value, &bar.unit));
        line(text, &[&bar.what, &bound, &value, bar.verdict()]);
    }
}

fn scenarios(text: &mut String, figures: &Figures) {
    line(
        text,
        &[
            "scenario",
            "what happens",
            "seconds",
            "calls",
            "answered",
            "unknown",
            "own sidecar",
            "lost",
            "ran twice",
        ],
    );
    line(text, &["---"; 9]);
    for of in figures.scenarios.iter().filter(|of| of.until_s > of.from_s) {
        let seconds = format!("{:.0}", of.until_s - of.from_s);
        let counts = &of.counts;
        let counts =
            [counts.calls, counts.answered, counts.unknown, counts.own_sidecar, counts.lost, counts.double];
        let counts = counts.map(|count| number(count as f64));
        let cells: Vec<_> = [of.name.as_str(), &of.what, &seconds]
            .into_iter()
            .chain(counts.iter().map(String::as_str))
            .collect();
        line(text, &cells);
    }
    text.push_str(
        "\n*Unknown*: the call is not idempotent, and the provider's sidecar was killed, stopped or copied while it was in flight. *Own\n\
         sidecar*: that happened to the sidecar that made the call.\n",
    );
}

fn facts(text: &mut String, figures: &Figures) {
    let errors: Vec<_> = figures.errors.iter().map(|(error, count)| format!("{error}: {count}")).collect();
    if !errors.is_empty() {
        writeln!(text, "Calls without an answer, by the code that they ended with: {}.\n", errors.join("; "))
            .unwrap();
    }
    for of in &figures.scenarios {
        writeln!(text, "- **{}**: {}.", of.name, told(of)).unwrap();
    }
}

fn told(of: &Scenario) -> String {
    let facts = of.facts.values().map(|fact| format!("{}: {}", fact.what, amount(fact.value, &fact.unit)));
    facts.collect::<Vec<_>>().join("; ")
}

/// A value with its unit, as exact as it is worth.
fn amount(value: f64, unit: &str) -> String {
    let digits = match value.abs() {
        value if value >= 100.0 || value.fract() == 0.0 => number(value),
        value if value >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    let space = if unit.is_empty() { "" } else { " " };
    format!("{digits}{space}{unit}")
}

fn line(text: &mut String, cells: &[&str]) {
    writeln!(text, "| {} |", cells.join(" | ")).unwrap();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_as_exact_as_they_are_worth() {
        let amounts = [(0.0, ""), (99.97, "%"), (1.014, "×"), (12_345.6, "calls/s"), (7.0, "s")];
        let told = amounts.map(|(value, unit)| amount(value, unit));
        assert_eq!(told, ["0", "100.0 %", "1.01 ×", "12,346 calls/s", "7 s"]);
    }
}
