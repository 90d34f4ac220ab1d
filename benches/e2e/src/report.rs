//! Figures in; one section of text on standard output, and in docs/evidence/performance.md when that is asked for, out.

use std::fmt::Write as _;
use std::process::Command;

use crate::Args;
use crate::bars::{Bar, Bound, bars, beside_dapr};
use crate::fronts::{Fronts, Row};
use crate::large::Large;
use crate::load::Round;
use crate::measure::{Figures, IN_FLIGHT, LARGE_IN_FLIGHT, ROOT, Series, median, middle};
use crate::memory::Cost;
use crate::number::number;
use crate::payload::{HTTP_BYTES, REQUEST_BYTES, RESPONSE_BYTES};
use crate::subject::Subject;

/// Prints the section, and writes it where `args` want it.
pub(crate) fn report(args: &Args, figures: &Figures) {
    let mut sections = Vec::new();
    if figures.has_more_than_fronts() {
        sections.push(("end to end", section(args, figures)));
    }
    if let Some(found) = &figures.fronts {
        sections.push(("http", fronts(args, figures, found)));
    }
    let path = format!("{ROOT}/docs/evidence/performance.md");
    let mut page = std::fs::read_to_string(&path).unwrap();
    for (name, text) in &sections {
        println!("\n{text}");
        page = replaced(&page, name, text);
    }
    if args.write {
        std::fs::write(&path, page).unwrap();
        println!("written to docs/evidence/performance.md");
    }
}

fn section(args: &Args, figures: &Figures) -> String {
    let mut text = String::new();
    let add = &mut text;
    let lengths = format!("Params of {REQUEST_BYTES} bytes, results of {RESPONSE_BYTES}");
    conditions(add, args, figures, &lengths, figures.others);
    if !figures.series.is_empty() {
        table(add, figures);
        cpu(add, figures);
    }
    bars_met(add, &bars(figures));
    further(add, figures);
    text
}

fn conditions(text: &mut String, args: &Args, figures: &Figures, lengths: &str, others: Option<f64>) {
    let cores = std::thread::available_parallelism().map_or(0, usize::from);
    let [rustc, commit] =
        [["rustc", "--version"].as_slice(), &["git", "describe", "--always", "--dirty"]].map(said);
    let locked = |name| version(include_str!("../Cargo.lock"), name);
    let commit = if args.capd.is_some() { "as given" } else { &commit };
    let others = others.map_or_else(String::new, |others| {
        let percent = others * 100.0;
        format!(" The kernel and other work had {percent:.0} % of the\ncores meanwhile.")
    });
    let placed = if args.hosts { " Each host had a core of its own." } else { "" };
    let programs =
        ["quinn", "tonic", "async-nats", "axum", "hyper"].map(|name| format!("{name} {}", locked(name)));
    writeln!(
        text,
        "{cores} cores, {}; {rustc}; capd {commit}, {}.\n\
         {lengths}; every process of one thread, but the journals', the\n\
         broker's, Dapr's and Go's. {} rounds of each in alternation, {} s with {IN_FLIGHT} calls in flight and half of that with one; the\n\
         median round, and the least and most of all rounds in parentheses.{others}{placed}\n",
        cpu_model(),
        programs.join(", "),
        figures.rounds,
        figures.seconds,
    )
    .expect("text takes everything");
}

fn table(text: &mut String, figures: &Figures) {
    let mut rows = vec![
        ["", "calls/s", "over forwarding", "p50, µs", "p99, µs", "one call: p50, µs"].map(str::to_owned),
        ["---"; 6].map(str::to_owned),
    ];
    let forward = figures.of(Subject::ForwardMultiplexed).map(calls_per_s);
    for (subject, Series { many, one, .. }) in &figures.series {
        let over = forward.map(|forward| format!("{:.2}", median(many, Round::calls_per_s) / forward));
        rows.push([
            subject.title().to_owned(),
            spread(many, Round::calls_per_s),
            over.unwrap_or_default(),
            number(median(many, |round| round.p50_us)),
            number(median(many, |round| round.p99_us)),
            spread(one, |round| round.p50_us),
        ]);
    }
    if !figures.has_nats {
        let mut row = ["", "not installed", "", "", "", ""].map(str::to_owned);
        row[0] = Subject::Nats.title().to_owned();
        rows.push(row);
    }
    rows.iter().for_each(|row| line(text, row));
}

fn cpu(text: &mut String, figures: &Figures) {
    cpu_of(text, figures.series.iter().map(|(subject, series)| (*subject, series)));
}

fn cpu_of<'a>(text: &mut String, all: impl Iterator<Item = (Subject, &'a Series)>) {
    text.push_str("\nCPU time of a call with many in flight, by process:\n\n");
    for (subject, series) in all {
        writeln!(text, "- {}: {}", subject.title(), cpu_said(series)).expect("text takes everything");
    }
}

/// The part about HTTP. Memory is that of both processes between the ends.
fn fronts(args: &Args, figures: &Figures, found: &Fronts) -> String {
    let Fronts { rows, absent, others } = found;
    let mut text = String::new();
    let lengths = format!("Params and results of {HTTP_BYTES} bytes");
    conditions(&mut text, args, figures, &lengths, Some(*others));
    table_of(&mut text, rows, absent);
    cpu_of(&mut text, rows.iter().map(|row| (row.subject, &row.series)));
    bars_met(&mut text, &beside_dapr(found));
    text
}

fn table_of(text: &mut String, rows: &[Row], absent: &[(Subject, String)]) {
    let memory = ["memory at first, MiB", "after the calls, MiB", "calls made"];
    line(text, &[["", "calls/s", "p50, µs", "p99, µs", "one call: p50, µs"].as_slice(), &memory].concat());
    line(text, &["---"; 8]);
    for Row { subject, series: Series { many, one, .. }, memory, calls } in rows {
        let [first, after] = memory.map(|bytes| format!("{:.1}", bytes / MIB));
        line(
            text,
            &[
                subject.title().to_owned(),
                spread(many, Round::calls_per_s),
                number(median(many, |round| round.p50_us)),
                number(median(many, |round| round.p99_us)),
                spread(one, |round| round.p50_us),
                first,
                after,
                number(*calls as f64),
            ],
        );
    }
    for (subject, why) in absent {
        line(text, &[subject.title(), &format!("not measured: {why}"), "", "", "", "", "", ""]);
    }
}

fn cpu_said(series: &Series) -> String {
    let processes = series.cpu_us.iter().map(|(name, us)| format!("{name} {us:.1}"));
    let processes = processes.collect::<Vec<_>>().join(", ");
    let sum: f64 = series.cpu_us.iter().map(|(_, us)| us).sum();
    format!("{sum:.1} µs ({processes})")
}

fn bars_met(text: &mut String, bars: &[Bar]) {
    text.push('\n');
    line(text, &["bar", "must be", "is", ""]);
    line(text, &["---"; 4]);
    for bar in bars {
        let bound = match bar.bound {
            Bound::AtLeast(least) => format!("at least {least}{}", bar.unit),
            Bound::AtMost(most) => format!("at most {most}{}", bar.unit),
        };
        let value = bar.value.map_or_else(String::new, |value| format!("{value:.2}{}", bar.unit));
        let met = match bar.is_met() {
            Some(true) => "met",
            Some(false) => "NOT MET",
            None => "not measured",
        };
        line(text, &[bar.what.as_str(), &bound, &value, met]);
    }
}

/// The figures behind the bars that are about capd alone.
fn further(text: &mut String, figures: &Figures) {
    text.push('\n');
    let mut say = |sentence: String| writeln!(text, "- {sentence}").expect("text takes everything");
    if !figures.commits_us.is_empty() {
        say(format!("A durable commit of one change takes {:.0} µs.", middle(figures.commits_us.clone())));
    }
    for (subject, rounds) in &figures.half {
        say(format!(
            "At half of peak load, {}: {} calls/s due, p50 {} µs, p99 {} µs.",
            subject.title(),
            spread(rounds, Round::calls_per_s),
            spread(rounds, |round| round.p50_us),
            spread(rounds, |round| round.p99_us),
        ));
    }
    let sizes = figures
        .sizes
        .iter()
        .map(|(bytes, rounds)| format!("{bytes}: {:.1} µs", 1e6 / median(rounds, Round::calls_per_s)));
    let sizes = sizes.collect::<Vec<_>>().join(", ");
    if !sizes.is_empty() {
        say(format!("Time per call with {IN_FLIGHT} in flight, by bytes of the params: {sizes}."));
    }
    if let Some([few, large]) = &figures.fleet {
        for (name, series) in [("few", few), ("many", large)] {
            say(format!(
                "With {name} capabilities and peers: {} calls/s, p50 of one call {} µs; CPU time of a call {}.",
                spread(&series.many, Round::calls_per_s),
                spread(&series.one, |round| round.p50_us),
                cpu_said(series),
            ));
        }
    }
    if let Some(all) = &figures.large {
        all.iter()
            .zip(["quinn alone", "quinn alone in packets of up to 6,550 bytes", "capd"])
            .for_each(|(large, name)| say(large_said(name, large)));
    }
    for Cost { what, resident, stored } in &figures.memory {
        let [a, b] = resident.map(bytes);
        let [a_stored, b_stored] = stored.map(bytes);
        say(format!(
            "{what}: each takes {a} at sidecar A and {b} at sidecar B; of their files {a_stored} and {b_stored}."
        ));
    }
}

fn large_said(name: &str, Large { alone, small, small_beside, held }: &Large) -> String {
    let held = held.iter().map(|(process, payloads)| format!("{process} {payloads:.2}"));
    let [calls_per_s, cpu] = [spread(&alone.many, Round::calls_per_s), cpu_said(alone)];
    format!(
        "1 MiB both ways, {LARGE_IN_FLIGHT} in flight, {name}: {calls_per_s} calls/s, CPU time of a call {cpu}. Small calls, one at a time: p50 {} µs alone, {} µs \
         beside. Held at most, over the payload in flight: {}.",
        spread(small, |round| round.p50_us),
        spread(small_beside, |round| round.p50_us),
        held.collect::<Vec<_>>().join(", "),
    )
}

fn calls_per_s(series: &Series) -> f64 {
    median(&series.many, Round::calls_per_s)
}

fn line<T: AsRef<str>>(text: &mut String, cells: &[T]) {
    let cells: Vec<_> = cells.iter().map(AsRef::as_ref).collect();
    writeln!(text, "| {} |", cells.join(" | ")).expect("text takes everything");
}

/// The median, and the least and most of all rounds.
fn spread(rounds: &[Round], of: impl Fn(&Round) -> f64) -> String {
    let values = || rounds.iter().map(&of);
    let (least, most) = (values().fold(f64::INFINITY, f64::min), values().fold(f64::NEG_INFINITY, f64::max));
    format!("{} ({} to {})", number(median(rounds, &of)), number(least), number(most))
}

fn bytes(value: f64) -> String {
    format!("{} bytes", number(value))
}

/// The page with a section between its markers.
fn replaced(page: &str, name: &str, section: &str) -> String {
    let [begin, end] = ["begin", "end"].map(|side| format!("<!-- {name}: {side} -->"));
    let (before, rest) = page.split_once(&begin).expect("the page has a place for it");
    let (_, after) = rest.split_once(&end).expect("the place ends");
    format!("{before}{begin}\n\n{section}\n{end}{after}")
}

/// The first line of what a command says.
fn said(words: &[&str]) -> String {
    let output = Command::new(words[0]).args(&words[1..]).current_dir(ROOT).output();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned()).unwrap_or_default();
    text.lines().next().unwrap_or("unknown").to_owned()
}

fn cpu_model() -> String {
    let info = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = info.lines().find(|line| line.starts_with("model name"));
    model
        .and_then(|line| line.split_once(": "))
        .map_or("a processor without a name", |(_, name)| name)
        .to_owned()
}

/// The version of a package in a lock file.
fn version<'a>(lock: &'a str, name: &str) -> &'a str {
    let after = lock.split_once(&format!("name = \"{name}\"\nversion = \"")).map(|(_, after)| after);
    after.and_then(|after| after.split('"').next()).unwrap_or("unknown")
}

const MIB: f64 = 1024.0 * 1024.0;
