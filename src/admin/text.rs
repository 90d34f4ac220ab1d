//! Writes metrics as the text that Prometheus reads.

use std::fmt::Write as _;

use capd_proto::message::MetricFamily;

/// The families in the text exposition format 0.0.4.
///
/// **Shape:** for each family `# HELP name help`, `# TYPE name type`, and a line `name{label="value",…} value` for each
/// sample; a histogram's samples are of `name_bucket`, `name_sum` and `name_count`.
pub fn text(families: &[MetricFamily<'_>]) -> String {
    let mut out = String::new();
    for family in families {
        let name = &family.name;
        out.push_str("# HELP ");
        out.push_str(name);
        out.push(' ');
        escape(&mut out, &family.help, false);
        // Writing to a String does not fail.
        let _ = write!(out, "\n# TYPE {name} {}\n", family.kind.as_str());
        for sample in &family.samples {
            out.push_str(name);
            if let Some(part) = sample.part {
                out.push('_');
                out.push_str(part.as_str());
            }
            for (index, (label, value)) in sample.labels.iter().enumerate() {
                out.push(if index == 0 { '{' } else { ',' });
                out.push_str(label);
                out.push_str("=\"");
                escape(&mut out, value, true);
                out.push('"');
            }
            if !sample.labels.is_empty() {
                out.push('}');
            }
            let _ = writeln!(out, " {}", sample.value);
        }
    }
    out
}

/// Puts `\` before what would end a line or, within quotes, a value.
fn escape(out: &mut String, text: &str, is_quoted: bool) {
    for c in text.chars() {
        match c {
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '"' if is_quoted => out.push_str("\\\""),
            c => out.push(c),
        }
    }
}

#[cfg(test)]
mod tests {
    use capd_proto::message::{MetricKind, MetricPart, MetricSample, MetricValue};

    use super::*;

    #[test]
    fn families_are_written_line_by_line() {
        let sample = |labels: &[(&'static str, &'static str)], value| MetricSample {
            labels: labels.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect(),
            part: None,
            value: MetricValue::Uint(value),
        };
        let part = |part, labels: &[_], value| MetricSample { part: Some(part), value, ..sample(labels, 0) };
        let family = |name: &'static str, kind, samples| MetricFamily {
            name: name.into(),
            kind,
            help: "One \"line\\\nof it.".into(),
            samples,
        };
        let written = text(&[
            family("capd_a_total", MetricKind::Counter, vec![sample(&[], 7)]),
            family(
                "capd_b",
                MetricKind::Gauge,
                vec![sample(&[("x", "1"), ("y", "a\"b\\c\nd")], u64::MAX), sample(&[("x", "")], 0)],
            ),
            family(
                "capd_c_seconds",
                MetricKind::Histogram,
                vec![
                    part(MetricPart::Bucket, &[("le", "0.001")], MetricValue::Uint(2)),
                    part(MetricPart::Bucket, &[("le", "+Inf")], MetricValue::Uint(3)),
                    part(MetricPart::Sum, &[], MetricValue::Float(0.25)),
                    part(MetricPart::Count, &[], MetricValue::Uint(3)),
                ],
            ),
        ]);
        assert_eq!(
            written,
            "# HELP capd_a_total One \"line\\\\\\nof it.\n\
             # TYPE capd_a_total counter\n\
             capd_a_total 7\n\
             # HELP capd_b One \"line\\\\\\nof it.\n\
             # TYPE capd_b gauge\n\
             capd_b{x=\"1\",y=\"a\\\"b\\\\c\\nd\"} 18446744073709551615\n\
             capd_b{x=\"\"} 0\n\
             # HELP capd_c_seconds One \"line\\\\\\nof it.\n\
             # TYPE capd_c_seconds histogram\n\
             capd_c_seconds_bucket{le=\"0.001\"} 2\n\
             capd_c_seconds_bucket{le=\"+Inf\"} 3\n\
             capd_c_seconds_sum 0.25\n\
             capd_c_seconds_count 3\n"
        );
    }
}
