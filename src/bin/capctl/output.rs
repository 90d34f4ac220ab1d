//! Writes rows, values and texts to stdout and the terminal.
//!
//! All output passes here, and leaves without characters that control a terminal or hide. [`one_line`] keeps foreign
//! text within its line.

use std::fmt::Write as _;
use std::io::{self, Write as _};

use capd::text;
use serde_json::Value;

use crate::failure::Failure;
use crate::{names, terminal};

/// Writes one line, or several, to stdout.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    let text = text::shown(text);
    let mut stdout = io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    if !text.ends_with('\n') {
        stdout.write_all(b"\n")?;
    }
    Ok(stdout.flush()?)
}

/// Writes what [`table`] made to stdout, in colours where they may be.
pub(crate) fn print_table(table: &str) -> Result<(), Failure> {
    let mut stdout = io::stdout().lock();
    if !terminal::has_colours(&stdout) {
        return print(table);
    }
    // Its cells cannot steer the terminal.
    stdout.write_all(terminal::painted(table).as_bytes())?;
    Ok(stdout.flush()?)
}

/// Writes one JSON document as one line to stdout.
pub(crate) fn print_json(value: &Value) -> Result<(), Failure> {
    print(&json_line(value))
}

/// One JSON document as one line, keys ascending.
pub(crate) fn json_line(value: &Value) -> String {
    escaped(&sorted(value).to_string())
}

fn sorted(value: &Value) -> Value {
    let mut value = value.clone();
    value.sort_all_objects();
    value
}

/// Writes one line to stderr. That nobody reads it is no reason to stop, so a failure is let go.
pub(crate) fn note(text: &str) {
    let _ = io::stderr().write_all(format!("{}\n", text::shown(text)).as_bytes());
}

/// Says on stderr why the command failed.
pub(crate) fn complain(text: &str) {
    let is_painted = terminal::has_colours(&io::stderr());
    let name = if is_painted { terminal::Tone::Bad.paint("capctl:") } else { "capctl:".to_owned() };
    let _ = io::stderr().write_all(format!("{name} {}\n", text::shown(text)).as_bytes());
}

/// Puts `text` in place of the terminal's current line, on stderr.
pub(crate) fn overwrite(text: &str) {
    // What cannot be shown does not matter.
    let _ = io::stderr().write_all(format!("\r\u{1b}[K{}", text::line(text)).as_bytes());
}

/// Clears the terminal that stdout is.
pub(crate) fn clear() -> Result<(), Failure> {
    Ok(io::stdout().write_all(b"\x1b[H\x1b[2J")?)
}

/// Rows under a heading, each column as wide as its widest cell; the last one is not padded.
pub(crate) fn table(heading: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = heading.iter().map(|cell| cell.chars().count()).collect();
    let rows: Vec<Vec<String>> =
        rows.iter().map(|row| row.iter().map(|cell| one_line(&names::shown(cell))).collect()).collect();
    for row in &rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = cell.chars().count().max(*width);
        }
    }
    let mut out = String::new();
    let heading: Vec<_> = heading.iter().map(|cell| (*cell).to_owned()).collect();
    for row in std::iter::once(&heading).chain(&rows) {
        let mut text = String::new();
        for (width, cell) in widths.iter().zip(row) {
            let _ = write!(text, "{cell:<width$}  ");
        }
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// The text with what steers a terminal or hides escaped, line ends and tabs apart.
pub(crate) fn printable(text: &str) -> String {
    text::shown(text).into_owned()
}

/// The text on one line.
pub(crate) fn one_line(text: &str) -> String {
    text::line(text).into_owned()
}

/// Pretty JSON, keys ascending, whose text cannot steer a terminal.
pub(crate) fn pretty(value: &Value) -> String {
    let value = sorted(value);
    escaped(&serde_json::to_string_pretty(&value).unwrap_or_else(|_| value.to_string()))
}

/// JSON text that cannot steer a terminal, and hides nothing.
pub(crate) fn escaped(json: &str) -> String {
    text::json(json).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_aligned_and_the_last_one_is_not_padded() {
        let rows = vec![vec!["org.example.a".into(), "1.0.0".into()], vec!["ä".into(), "10.0.0".into()]];
        assert_eq!(
            table(&["NAME", "VERSION"], &rows),
            "NAME           VERSION\norg.example.a  1.0.0\nä              10.0.0\n"
        );
    }

    #[test]
    fn a_cell_cannot_break_its_row_or_steer_the_terminal() {
        assert_eq!(table(&["A"], &[vec!["x\ny\u{1b}[2J".into()]]), "A\nx y\\u{1b}[2J\n");
        assert_eq!(pretty(&Value::from("\u{9b}")), "\"\\u009b\"");
    }
}
