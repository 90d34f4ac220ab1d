//! Remembers on disk which tasks there were: lines appended; the tasks of the last day out, after a restart.
//!
//! **Shape:** a line of JSON for each task, `{"task", "caller", "context", "message", "capability", "made_ms"}`, and one for its
//! end, `{"task", "state", "at_ms"}`. A line is not synced: what keeps a message from running twice is its key, which the sidecar has.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead as _, BufReader, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use a2a::TaskState;
use serde::{Deserialize, Serialize};

use crate::extension::PROMISE_SECONDS;

/// A task, as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Record {
    /// The call's id.
    pub(super) task: String,
    pub(super) caller: String,
    pub(super) context: String,
    pub(super) message: String,
    pub(super) capability: String,
    /// **Units:** milliseconds since the Unix epoch.
    pub(super) made_ms: u64,
}

/// How a task ended, and when.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, Serialize)]
pub(super) struct Ended {
    pub(super) task: String,
    pub(super) state: TaskState,
    /// **Units:** milliseconds since the Unix epoch.
    pub(super) at_ms: u64,
}

#[derive(Deserialize, Serialize)]
#[serde(untagged)]
enum Line {
    Made(Record),
    Ended(Ended),
}

/// A task that was remembered, and its end if it has one.
pub(super) type Known = (Record, Option<Ended>);

/// The file.
#[derive(Debug)]
pub(super) struct Records {
    path: PathBuf,
    file: File,
    /// Held for as long as this lives.
    _lock: File,
}

impl Records {
    /// Opens the file, and gives what it remembers of the last day, oldest first.
    ///
    /// **Errors:** those of the file; another process has it open.
    pub(super) fn open(path: &Path, now_ms: u64) -> io::Result<(Self, Vec<Known>)> {
        let lock = opened(&path.with_extension("lock"))?;
        lock.try_lock().map_err(|error| match error {
            fs::TryLockError::WouldBlock => io::Error::other("another capd-a2a serve uses this folder"),
            fs::TryLockError::Error(error) => error,
        })?;
        let mut known = read(path)?;
        known.retain(|(record, _)| record.made_ms + PROMISE_SECONDS * 1_000 > now_ms);
        let file = rewritten(path, &known)?;
        Ok((Self { path: path.to_owned(), file, _lock: lock }, known))
    }

    /// Remembers a task.
    pub(super) fn made(&mut self, record: &Record) {
        self.append(&Line::Made(record.clone()));
    }

    /// Remembers its end.
    pub(super) fn ended(&mut self, ended: &Ended) {
        self.append(&Line::Ended(ended.clone()));
    }

    /// Writes the file anew with these alone.
    pub(super) fn rewrite(&mut self, known: &[Known]) {
        match rewritten(&self.path, known) {
            Ok(file) => self.file = file,
            Err(error) => tracing::warn!(%error, "the record of tasks was not written anew"),
        }
    }

    fn append(&mut self, line: &Line) {
        let written = self.file.write_all(text(line).as_bytes());
        if let Err(error) = written {
            tracing::warn!(%error, "a task was not recorded; after a restart nobody can ask for it by its id");
        }
    }
}

fn opened(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).create(true).mode(0o600).open(path)
}

fn read(path: &Path) -> io::Result<Vec<Known>> {
    let file = match File::open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut known: Vec<Known> = Vec::new();
    let mut at = HashMap::new();
    for line in BufReader::new(file).split(b'\n') {
        // The last line may be half written.
        match serde_json::from_slice(&line?) {
            Ok(Line::Made(record)) => {
                at.insert(record.task.clone(), known.len());
                known.push((record, None));
            }
            Ok(Line::Ended(ended)) => {
                if let Some(at) = at.get(&ended.task) {
                    known[*at].1 = Some(ended);
                }
            }
            Err(_) => {}
        }
    }
    Ok(known)
}

/// Replaces the file as a whole, and opens it to append.
fn rewritten(path: &Path, known: &[Known]) -> io::Result<File> {
    let temporary = path.with_extension("tmp");
    let mut lines = String::new();
    for (record, ended) in known {
        lines += &text(&Line::Made(record.clone()));
        lines += &ended.clone().map(|ended| text(&Line::Ended(ended))).unwrap_or_default();
    }
    let _left_of_a_crash = fs::remove_file(&temporary);
    opened(&temporary)?.write_all(lines.as_bytes())?;
    fs::rename(&temporary, path)?;
    opened(path)
}

fn text(line: &Line) -> String {
    let mut text = serde_json::to_string(line).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(task: &str, made_ms: u64) -> Record {
        let text = || "x".to_owned();
        Record {
            task: task.to_owned(),
            caller: text(),
            context: text(),
            message: text(),
            capability: text(),
            made_ms,
        }
    }

    #[test]
    fn what_was_recorded_comes_back_except_old_tasks_and_half_a_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tasks");
        let day = PROMISE_SECONDS * 1_000;
        let (mut records, known) = Records::open(&path, 0).unwrap();
        assert_eq!(known, []);
        let ended = Ended { task: "b".to_owned(), state: TaskState::Completed, at_ms: 7 };
        records.made(&record("a", 0));
        records.made(&record("b", day));
        records.ended(&ended);
        records.made(&record("c", day));
        assert!(Records::open(&path, 0).is_err(), "one at a time");
        drop(records);
        opened(&path).unwrap().write_all(br#"{"task":"d","call"#).unwrap();
        let (_records, known) = Records::open(&path, day).unwrap();
        assert_eq!(known, [(record("b", day), Some(ended)), (record("c", day), None)]);
        assert_eq!(fs::read_to_string(&path).unwrap().lines().count(), 3);
    }
}
