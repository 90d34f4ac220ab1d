//! Figures in; pictures that are read in light and in dark out.

use std::fmt::Write as _;

use crate::figures::{Figures, Scenario};
use crate::number::number;

/// Calls answered in each second, above what happened meanwhile.
pub(crate) fn calls(figures: &Figures) -> String {
    let seconds = figures.per_second.len().max(1);
    let most = figures.per_second.iter().copied().max().unwrap_or(1).max(1);
    let (width, height, left, top) = (860.0, 220.0, 70.0, 110.0);
    let x = |second: f64| left + second / seconds as f64 * width;
    let y = |count: f64| top + height - count / f64::from(most) * height;
    let mut body = String::new();
    for (at, of) in played(figures).enumerate() {
        let (from, until) = (x(of.from_s), x(of.until_s.min(seconds as f64)));
        let class = ["band", "gap"][at % 2];
        write!(
            body,
            "<rect class=\"{class}\" x=\"{from:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{height}\"/>",
            until - from
        )
        .unwrap();
        let middle = f64::midpoint(from, until);
        write!(
            body,
            "<text class=\"soft\" transform=\"translate({middle:.1} {}) rotate(-50)\">{}</text>",
            top - 8.0,
            of.name
        )
        .unwrap();
    }
    for part in 0..=2_u32 {
        let count = f64::from(most * part) / 2.0;
        write!(
            body,
            "<line class=\"grid\" x1=\"{left}\" x2=\"{:.1}\" y1=\"{:.1}\" y2=\"{:.1}\"/><text class=\"soft end\" x=\"{}\" y=\"{:.1}\">{}</text>",
            left + width,
            y(count),
            y(count),
            left - 8.0,
            y(count) + 4.0,
            number(count)
        )
        .unwrap();
    }
    // A point for each second, or for as many as have a place.
    let step = seconds.div_ceil(POINTS_MAX);
    let points = figures.per_second.chunks(step).enumerate().map(|(at, some)| {
        let mean = f64::from(some.iter().sum::<u32>()) / some.len() as f64;
        format!("{:.1},{:.1}", x((at * step) as f64 + step as f64 / 2.0), y(mean))
    });
    write!(body, "<polyline class=\"line\" points=\"{}\"/>", points.collect::<Vec<_>>().join(" ")).unwrap();
    for minute in 0..=seconds / 60 {
        let every = (seconds / 60 / 12).max(1);
        if minute.is_multiple_of(every) {
            let at = x(minute as f64 * 60.0);
            write!(
                body,
                "<text class=\"soft mid\" x=\"{at:.1}\" y=\"{}\">{minute} min</text>",
                top + height + 20.0
            )
            .unwrap();
        }
    }
    let what = "Calls answered in each second of the run. Each band is a scenario.";
    picture("Calls answered per second", what, 960, 370, &body)
}

/// How long calls took in each scenario.
pub(crate) fn times(figures: &Figures) -> String {
    let played: Vec<_> = played(figures).filter(|of| of.slowest_ms > 0.0).collect();
    let (left, width, row, top) = (120.0, 780.0, 26.0, 60.0);
    // From 0.1 ms to 100 s.
    let x = |ms: f64| left + (ms.max(0.1).log10() + 1.0) / 6.0 * width;
    let bottom = top + row * played.len() as f64;
    let mut body = String::new();
    for (exponent, label) in ["0.1 ms", "1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"].iter().enumerate()
    {
        let at = left + exponent as f64 / 6.0 * width;
        write!(
            body,
            "<line class=\"grid\" x1=\"{at:.1}\" x2=\"{at:.1}\" y1=\"{}\" y2=\"{bottom}\"/><text class=\"soft mid\" x=\"{at:.1}\" y=\"{}\">{label}</text>",
            top - 6.0,
            bottom + 20.0
        )
        .unwrap();
    }
    for (at, of) in played.iter().enumerate() {
        let y = top + row * (at as f64 + 0.5);
        let [p50, p99, slowest] = [of.p50_ms, of.p99_ms, of.slowest_ms].map(x);
        write!(
            body,
            "<text class=\"end\" x=\"{}\" y=\"{:.1}\">{}</text><line class=\"line\" x1=\"{p50:.1}\" x2=\"{slowest:.1}\" y1=\"{y:.1}\" y2=\"{y:.1}\"/>\
             <circle class=\"dot\" cx=\"{p50:.1}\" cy=\"{y:.1}\" r=\"5\"/><rect class=\"dot\" x=\"{:.1}\" y=\"{:.1}\" width=\"4\" height=\"14\"/>\
             <circle class=\"ring\" cx=\"{slowest:.1}\" cy=\"{y:.1}\" r=\"5\"/>",
            left - 10.0,
            y + 4.5,
            of.name,
            p99 - 2.0,
            y - 7.0
        )
        .unwrap();
    }
    write!(
        body,
        "<circle class=\"dot\" cx=\"{left}\" cy=\"26\" r=\"5\"/><text class=\"soft\" x=\"{}\" y=\"30\">median</text>\
         <rect class=\"dot\" x=\"{}\" y=\"19\" width=\"4\" height=\"14\"/><text class=\"soft\" x=\"{}\" y=\"30\">99 of 100</text>\
         <circle class=\"ring\" cx=\"{}\" cy=\"26\" r=\"5\"/><text class=\"soft\" x=\"{}\" y=\"30\">slowest</text>",
        left + 10.0,
        left + 90.0,
        left + 102.0,
        left + 190.0,
        left + 202.0
    )
    .unwrap();
    let what =
        "The median, the 99th percentile and the slowest of the calls that were answered, for each scenario.";
    picture("How long calls took", what, 960, (bottom + 36.0) as u32, &body)
}

/// Scenarios that took time.
fn played(figures: &Figures) -> impl Iterator<Item = &Scenario> {
    figures.scenarios.iter().filter(|of| of.until_s > of.from_s)
}

fn picture(title: &str, what: &str, width: u32, height: u32, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" role=\"img\" aria-labelledby=\"title desc\">\n\
         <title id=\"title\">{title}</title>\n<desc id=\"desc\">{what}</desc>\n<style>{STYLE}</style>\n\
         <rect class=\"paper\" width=\"{width}\" height=\"{height}\"/>\n{}\n</svg>\n",
        body.replace("><", ">\n<")
    )
}

/// Points of a line.
const POINTS_MAX: usize = 430;
/// The colours of docs/images/call.svg.
const STYLE: &str = "
text { font: 14px system-ui, -apple-system, \"Segoe UI\", Helvetica, Arial, sans-serif; fill: #1f2328; }
.soft { fill: #59636e; font-size: 12.5px; }
.mid { text-anchor: middle; }
.end { text-anchor: end; }
.paper { fill: #ffffff; }
.band { fill: #f0f3f6; }
.gap { fill: #ffffff; }
.grid { stroke: #d0d7de; }
.line { stroke: #0969da; stroke-width: 1.5; fill: none; }
.dot { fill: #0969da; }
.ring { fill: #ffffff; stroke: #0969da; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
text { fill: #f0f6fc; }
.soft { fill: #9198a1; }
.paper { fill: #0d1117; }
.band { fill: #151b23; }
.gap { fill: #0d1117; }
.grid { stroke: #3d444d; }
.line { stroke: #4493f8; }
.dot { fill: #4493f8; }
.ring { fill: #0d1117; stroke: #4493f8; }
}
";
