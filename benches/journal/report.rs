//! Figures in; one table on standard output, and in docs/evidence/performance.md when that is asked for, out.

use std::fmt::Write as _;

use crate::Args;
use crate::agents::{REQUEST_BYTES, RESPONSE_BYTES, Round};
use crate::measure::{APART, Figures, IN_FLIGHT, OTHERS_MAX};
use crate::number::number;
use crate::world::PROCESSES;

/// Prints the section, and writes it where `args` want it.
pub(crate) fn report(args: &Args, figures: &Figures) {
    let text = section(figures);
    println!("{text}");
    let commits = figures.many[1].commits;
    let [in_a_row, apart] = figures.latency_commits();
    println!(
        "bars: {:.0} of at least 15,000 journaled calls/s; {commits:.2} commits per call, well under 2; {in_a_row:.1} of at \
         most 4 commits of latency ({apart:.1} of those apart)",
        figures.many[1].median(Round::calls_per_s),
    );
    if args.write {
        assert!(!args.is_test, "a trial run is nothing to write down");
        let others = figures.others * 100.0;
        assert!(
            figures.others <= OTHERS_MAX,
            "nothing is written: {others:.0} % of the cores went to others"
        );
        let old = std::fs::read_to_string(PAGE).unwrap();
        std::fs::write(PAGE, replaced(&old, &text)).unwrap();
        println!("written to docs/evidence/performance.md");
    }
}

fn section(figures: &Figures) -> String {
    let mut text = format!("{HEADING}\n\n");
    writeln!(
        text,
        "Through two sidecars over QUIC, `peer.signatures = \"channel\"`; caller, provider and sidecars are four\n\
         processes of one thread each beside the journals' threads, on two cores. Params of {REQUEST_BYTES} bytes, results of\n\
         {RESPONSE_BYTES}; rounds of both kinds in alternation, the median round told. `cargo bench --bench journal` makes it anew.\n"
    )
    .expect("text takes everything");
    let mut row = |name: &str, values: [String; 2]| {
        writeln!(text, "| {name} | {} | {} |", values[0], values[1]).expect("text takes everything");
    };
    row("", ["not journaled (idempotent)", "journaled"].map(str::to_owned));
    row("---", ["---", "---"].map(str::to_owned));
    let many = |of: fn(&Round) -> f64| [0, 1].map(|kind: usize| number(figures.many[kind].median(of)));
    let one = |of: fn(&Round) -> f64| [0, 1].map(|kind: usize| number(figures.one[kind].median(of)));
    row(&format!("calls/s, {IN_FLIGHT} in flight"), many(Round::calls_per_s));
    row("p50, µs", many(|round| round.p50_us));
    row("p99, µs", many(|round| round.p99_us));
    row(
        "commits per call, both sidecars' journals together",
        [0, 1].map(|kind: usize| format!("{:.2}", figures.many[kind].commits)),
    );
    for (at, process) in PROCESSES.iter().enumerate() {
        let cpu = [0, 1].map(|kind: usize| format!("{:.1}", figures.many[kind].cpu_us[at]));
        row(&format!("CPU of the {process} per call, µs"), cpu);
    }
    row("one in flight: p50, µs", one(|round| round.p50_us));
    row("one in flight: p99, µs", one(|round| round.p99_us));
    let ([row_us, apart_us], [in_a_row, apart]) = (figures.commit_us.map(number), figures.latency_commits());
    writeln!(
        text,
        "\nIn the same run, one commit of one change takes {apart_us} µs where {} µs pass before it, and {row_us} µs right\n\
         after another. A journaled call that is alone has two, in the provider's sidecar, and time\n\
         passes before each. It takes {in_a_row:.1} commits in a row, or {apart:.1} apart, longer than one that is not journaled.\n\
         Other work had {:.0} % of the cores meanwhile, the kernel's own included.",
        APART.as_micros(),
        figures.others * 100.0,
    )
    .expect("text takes everything");
    text
}

/// The page with the section in place of the one it had, or at its end.
fn replaced(page: &str, section: &str) -> String {
    let Some(begin) = page.find(HEADING) else { return format!("{}\n\n{section}", page.trim_end()) };
    let after = &page[begin + HEADING.len()..];
    let rest = after.find("\n## ").map_or("", |end| &after[end..]);
    format!("{}{section}{rest}", &page[..begin])
}

const HEADING: &str = "## Journaled calls";
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/evidence/performance.md");
