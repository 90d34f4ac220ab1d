//! Bars in; a table on standard output, and in docs/evidence/performance.md when that is asked for, out.

use std::fmt::Write as _;

use crate::{Args, Bar};

/// Prints the section, and writes it where `args` want it.
pub(crate) fn report(args: &Args, bars: &[Bar]) {
    let text = section(bars);
    println!("{text}");
    if args.write {
        assert!(!args.is_test && args.only.is_none(), "only a whole run is worth writing down");
        let old = std::fs::read_to_string(PAGE).unwrap();
        std::fs::write(PAGE, replaced(&old, &text)).unwrap();
        println!("written to docs/evidence/performance.md");
    }
}

fn section(bars: &[Bar]) -> String {
    let mut text = format!("{HEADING}\n\n");
    text.push_str(
        "One sidecar, an agent that serves, an honest peer that calls it, and the attackers in a process of their own, on\n\
         loopback. `cargo bench --bench hostile` makes it anew.\n\n\
         | attack | found | bar | |\n| --- | --- | --- | --- |\n",
    );
    for Bar { what, found, bar, is_met } in bars {
        let verdict = if *is_met { "met" } else { "NOT MET" };
        writeln!(text, "| {what} | {found} | {bar} | {verdict} |").expect("text takes everything");
    }
    text
}

/// The page with the section in place of the one it had, or at its end.
fn replaced(page: &str, section: &str) -> String {
    let Some(begin) = page.find(HEADING) else { return format!("{}\n\n{section}", page.trim_end()) };
    let after = &page[begin + HEADING.len()..];
    let rest = after.find("\n## ").map_or("", |end| &after[end..]);
    format!("{}{section}{rest}", &page[..begin])
}

const HEADING: &str = "## Under attack";
const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/evidence/performance.md");
