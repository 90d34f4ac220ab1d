//! Reads one YAML mapping: its fields by name and type out, and a mistake for each that does not fit.

use std::path::{Path, PathBuf};

use super::Mistake;
use super::yaml::{Key, Node, Value, quoted};

/// Where mistakes go, and the file they are in.
pub(super) struct Report<'a> {
    pub(super) file: &'a Path,
    pub(super) mistakes: Vec<Mistake>,
    pub(super) warnings: Vec<String>,
}

impl Report<'_> {
    /// Notes a mistake in the declaration itself.
    pub(super) fn mistake(&mut self, line: usize, at: &str, problem: impl Into<String>, accepted: &str) {
        self.mistake_in(self.file.to_owned(), line, at, problem.into(), accepted);
    }

    /// Notes a mistake in a file that the declaration names.
    pub(super) fn mistake_in(
        &mut self,
        file: PathBuf,
        line: usize,
        at: &str,
        problem: String,
        accepted: &str,
    ) {
        self.mistakes.push(Mistake { file, line, at: at.to_owned(), problem, accepted: accepted.to_owned() });
    }

    /// Notes what is read and has no effect.
    pub(super) fn warning(&mut self, line: usize, at: &str, sentence: &str) {
        self.warnings.push(format!("{}:{line}: {at}: {sentence}", self.file.display()));
    }
}

/// The fields of one mapping.
pub(super) struct Fields<'n> {
    /// The mapping's own line.
    pub(super) line: usize,
    members: &'n [(Key, Node)],
    at: String,
}

impl<'n> Fields<'n> {
    /// The fields of `node`; a mistake and `None` when it is no mapping or has keys beyond `known`.
    ///
    /// An unknown key is a mistake and leaves the others readable.
    pub(super) fn of(node: &'n Node, at: &str, known: &[&str], report: &mut Report<'_>) -> Option<Self> {
        let Value::Map(members) = &node.value else {
            report.mistake(node.line, at, node.is_a(), &format!("a mapping of {}", known.join(", ")));
            return None;
        };
        let fields = Self { line: node.line, members, at: at.to_owned() };
        for (key, _) in members {
            if !known.contains(&key.name.as_str()) {
                let shown: String = key.name.chars().take(80).collect();
                let meant = crate::text::nearest(&shown, known.iter().copied());
                let problem = meant.map_or_else(
                    || "unknown key".to_owned(),
                    |meant| format!("unknown key; did you mean {meant:?}?"),
                );
                report.mistake(key.line, &fields.path(&shown), problem, &known.join(", "));
            }
        }
        Some(fields)
    }

    /// The path of a field.
    pub(super) fn path(&self, name: &str) -> String {
        if self.at.is_empty() { name.to_owned() } else { format!("{}.{name}", self.at) }
    }

    /// The field, if it is there.
    pub(super) fn get(&self, name: &str) -> Option<&'n Node> {
        self.members.iter().find(|(key, _)| key.name == name).map(|(_, node)| node)
    }

    /// The line of a field, or the mapping's.
    pub(super) fn line_of(&self, name: &str) -> usize {
        self.get(name).map_or(self.line, |node| node.line)
    }

    /// A text of 1 to 4096 bytes.
    pub(super) fn text(&self, name: &str, report: &mut Report<'_>) -> Option<&'n str> {
        let node = self.get(name)?;
        text(node, &self.path(name), report)
    }

    /// `true` or `false`.
    pub(super) fn truth(&self, name: &str, report: &mut Report<'_>) -> Option<bool> {
        let node = self.get(name)?;
        match node.value {
            Value::Bool(truth) => Some(truth),
            _ => {
                report.mistake(node.line, &self.path(name), node.is_a(), "true or false");
                None
            }
        }
    }

    /// An integer of a range, both ends included.
    pub(super) fn integer(
        &self,
        name: &str,
        unit: &str,
        min: u64,
        max: u64,
        report: &mut Report<'_>,
    ) -> Option<u64> {
        let node = self.get(name)?;
        let accepted = || format!("{unit}, an integer from {min} to {max}");
        let problem = match node.value {
            Value::Integer(number) if number < i128::from(min) => format!("{number} is below {min}"),
            Value::Integer(number) if number > i128::from(max) => format!("{number} is above {max}"),
            Value::Integer(number) => return u64::try_from(number).ok(),
            _ => node.is_a(),
        };
        report.mistake(node.line, &self.path(name), problem, &accepted());
        None
    }

    /// A number of a range, both ends included.
    pub(super) fn number(&self, name: &str, min: f64, max: f64, report: &mut Report<'_>) -> Option<f64> {
        let node = self.get(name)?;
        let number = match node.value {
            Value::Integer(number) => Some(number as f64),
            Value::Float(number) => Some(number),
            _ => None,
        };
        match number {
            Some(number) if (min..=max).contains(&number) => Some(number),
            Some(_) | None => {
                report.mistake(
                    node.line,
                    &self.path(name),
                    node.is_a(),
                    &format!("a number from {min} to {max}"),
                );
                None
            }
        }
    }

    /// A list's items with their paths; a mistake when it is no list or has more than `max` items.
    pub(super) fn items(&self, name: &str, max: usize, report: &mut Report<'_>) -> Vec<(&'n Node, String)> {
        let Some(node) = self.get(name) else { return Vec::new() };
        let at = self.path(name);
        match &node.value {
            Value::List(items) if items.len() <= max => {
                items.iter().enumerate().map(|(index, item)| (item, format!("{at}[{index}]"))).collect()
            }
            Value::List(items) => {
                report.mistake(
                    node.line,
                    &at,
                    format!("{} items", items.len()),
                    &format!("at most {max} items"),
                );
                Vec::new()
            }
            _ => {
                report.mistake(node.line, &at, node.is_a(), "a list");
                Vec::new()
            }
        }
    }

    /// A list of texts.
    pub(super) fn texts(&self, name: &str, max: usize, report: &mut Report<'_>) -> Vec<String> {
        let items = self.items(name, max, report);
        items.iter().filter_map(|(item, at)| text(item, at, report).map(str::to_owned)).collect()
    }

    /// A text that `T` reads.
    pub(super) fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
        &self,
        name: &str,
        accepted: &str,
        report: &mut Report<'_>,
    ) -> Option<T> {
        let node = self.get(name)?;
        parsed(node, &self.path(name), accepted, report)
    }
}

/// A node that is a text which `T` reads.
pub(super) fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(
    node: &Node,
    at: &str,
    accepted: &str,
    report: &mut Report<'_>,
) -> Option<T> {
    let Value::Text(text) = &node.value else {
        report.mistake(node.line, at, unquoted(node), accepted);
        return None;
    };
    text.parse()
        .map_err(|error| report.mistake(node.line, at, format!("{}: {error}", quoted(text)), accepted))
        .ok()
}

/// A node that is a text of 1 to 4096 bytes.
pub(super) fn text<'n>(node: &'n Node, at: &str, report: &mut Report<'_>) -> Option<&'n str> {
    const TEXT_BYTES_MAX: usize = 4096;
    let problem = match &node.value {
        Value::Text(text) if text.is_empty() => "an empty text".to_owned(),
        Value::Text(text) if text.len() > TEXT_BYTES_MAX => format!("{} bytes", text.len()),
        Value::Text(text) => return Some(text),
        _ => unquoted(node),
    };
    report.mistake(node.line, at, problem, &format!("a text of 1 to {TEXT_BYTES_MAX} bytes"));
    None
}

/// What a node is where a text belongs; a number there was most likely meant as one.
fn unquoted(node: &Node) -> String {
    match node.value {
        Value::Integer(_) | Value::Float(_) | Value::Bool(_) => format!("{} (put it in quotes)", node.is_a()),
        Value::Null | Value::Text(_) | Value::List(_) | Value::Map(_) => node.is_a(),
    }
}
