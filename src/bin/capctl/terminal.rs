//! Adds colours, progress and separators for people at a terminal; nothing of it reaches pipes, files or JSON.

use std::io::{self, IsTerminal};
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::output;

/// How a word is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    Heading,
    Good,
    Warning,
    Bad,
}

impl Tone {
    /// The text in this tone. **Source:** ECMA-48, SGR.
    pub(crate) fn paint(self, text: &str) -> String {
        let code = match self {
            Self::Heading => 1,
            Self::Good => 32,
            Self::Warning => 33,
            Self::Bad => 31,
        };
        format!("\u{1b}[{code}m{text}\u{1b}[0m")
    }

    /// The tone of a state or an outcome.
    fn of(word: &str) -> Option<Self> {
        match word {
            "ok" | "success" | "connected" => Some(Self::Good),
            "warning" | "silent" | "waiting" => Some(Self::Warning),
            "failed" | "error" | "refused" | "unreachable" => Some(Self::Bad),
            _ => None,
        }
    }
}

/// Whether colours may be written there: to a terminal, unless `NO_COLOR` is set or `TERM` is `dumb`; with
/// `CLICOLOR_FORCE` anywhere.
pub(crate) fn has_colours(stream: &impl IsTerminal) -> bool {
    let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty() && value != "0");
    if std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty()) {
        return false;
    }
    is_set("CLICOLOR_FORCE")
        || (stream.is_terminal() && std::env::var_os("TERM").is_none_or(|term| term != "dumb"))
}

/// A table with its heading in bold, and states and outcomes in colours. Text without a heading stays as it is.
pub(crate) fn painted(table: &str) -> String {
    let Some((heading, rows)) = table.split_once('\n') else { return table.to_owned() };
    if heading.chars().any(char::is_lowercase) {
        return table.to_owned();
    }
    let column = ["STATE", "RESULT"].into_iter().find_map(|name| {
        let start = heading.find(name).filter(|start| *start == 0 || heading[..*start].ends_with("  "))?;
        Some(heading[..start].chars().count())
    });
    let mut out = format!("{}\n", Tone::Heading.paint(heading));
    for row in rows.lines() {
        out += &column.map_or_else(|| row.to_owned(), |column| painted_row(row, column));
        out.push('\n');
    }
    out
}

/// A row whose word at this column is in its tone.
fn painted_row(row: &str, column: usize) -> String {
    let Some((start, _)) = row.char_indices().nth(column) else { return row.to_owned() };
    let (before, rest) = row.split_at(start);
    let word = rest.split(' ').next().unwrap_or_default();
    match Tone::of(word) {
        Some(tone) => format!("{before}{}{}", tone.paint(word), &rest[word.len()..]),
        None => row.to_owned(),
    }
}

/// Says on the last line of the terminal, after each second, what goes on; the line is cleared at the end.
pub(crate) struct Progress(Option<(SyncSender<()>, JoinHandle<()>)>);

impl Progress {
    /// Begins to say what `words` makes of the seconds that have passed, if stderr is a terminal.
    pub(crate) fn begin(words: impl Fn(u64) -> String + Send + 'static) -> Self {
        if !io::stderr().is_terminal() {
            return Self(None);
        }
        let (ends, end) = sync_channel(1);
        let thread = thread::spawn(move || {
            let mut seconds = 0;
            while end.recv_timeout(Duration::from_secs(1)) == Err(RecvTimeoutError::Timeout) {
                seconds += 1;
                output::overwrite(&words(seconds));
            }
            if seconds > 0 {
                output::overwrite("");
            }
        });
        Self(Some((ends, thread)))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        if let Some((ends, thread)) = self.0.take() {
            drop(ends);
            // A thread that only writes has nothing to say of its end.
            let _ = thread.join();
        }
    }
}

/// A number with a comma between thousands.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// A number of things a second: one decimal below 100, thousands apart above.
pub(crate) fn rate(rate: f64) -> String {
    if rate == 0.0 || rate >= 100.0 { grouped(rate.round() as u64) } else { format!("{rate:.1}") }
}

/// A number of bytes in the unit that is read most easily.
pub(crate) fn bytes(count: f64) -> String {
    let (mut count, mut unit) = (count, "B");
    for larger in ["KiB", "MiB", "GiB"] {
        if count < 1_024.0 {
            break;
        }
        (count, unit) = (count / 1_024.0, larger);
    }
    if unit == "B" { format!("{count:.0} B") } else { format!("{count:.1} {unit}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_painted_in_its_column_only() {
        let table = "STATE   CHECK\nok      ok failed\nfailed  peer\n        more\n";
        assert_eq!(
            painted(table),
            "\u{1b}[1mSTATE   CHECK\u{1b}[0m\n\u{1b}[32mok\u{1b}[0m      ok failed\n\u{1b}[31mfailed\u{1b}[0m  \
             peer\n        more\n"
        );
        let table = "PEER  STATE\nä     waiting\nfailed  ok\n";
        assert!(painted(table).contains("ä     \u{1b}[33mwaiting\u{1b}[0m\n"), "columns are characters");
        assert_eq!(painted("no heading\nfailed\n"), "no heading\nfailed\n");
        assert_eq!(painted(""), "");
    }

    #[test]
    fn thousands_stand_apart() {
        let shown = [0, 999, 1_000, 12_345, 1_234_567].map(grouped);
        assert_eq!(shown, ["0", "999", "1,000", "12,345", "1,234,567"]);
        assert_eq!([0.0, 1.25, 99.94, 1_234.4].map(rate), ["0", "1.2", "99.9", "1,234"]);
        assert_eq!([512.0, 184_320.0].map(bytes), ["512 B", "180.0 KiB"]);
    }
}
