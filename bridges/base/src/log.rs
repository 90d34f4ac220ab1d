//! Writes the log to stderr: events in; lines out, which foreign text can neither begin nor steer.

use std::io::{self, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::MakeWriter;

use crate::text;

/// Starts logging. What is logged is chosen by `CAPD_LOG`, `info` by default.
pub fn start() {
    let filter = EnvFilter::try_from_env("CAPD_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let subscriber = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(false)
        .with_target(false)
        .with_writer(Escaped);
    // A second start is one of a test.
    let _ = subscriber.try_init();
}

/// Makes a writer for each event.
struct Escaped;

impl MakeWriter<'_> for Escaped {
    type Writer = Line;

    fn make_writer(&self) -> Line {
        Line(Vec::new())
    }
}

/// One event's line, written as a whole.
struct Line(Vec<u8>);

impl Write for Line {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let line = escaped(&self.0);
        // There is nobody to tell.
        let _ = io::stderr().lock().write_all(line.as_bytes());
    }
}

fn escaped(event: &[u8]) -> String {
    let event = String::from_utf8_lossy(event);
    let mut line = text::logged(event.trim_end_matches('\n')).into_owned();
    line.push('\n');
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_whatever_is_in_it() {
        let forged = "INFO a server says said=\"x\nERROR all is lost \u{1b}[2J\"\n";
        assert_eq!(
            escaped(forged.as_bytes()),
            "INFO a server says said=\"x\\nERROR all is lost \\u{1b}[2J\"\n"
        );
    }
}
