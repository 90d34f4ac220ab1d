//! Writes log lines in which foreign text cannot begin a line, control a terminal, or hide.
//!
//! Every event passes here, so no caller can forget the escapes. [`Fields`] writes lines for people, [`Json`] writes
//! lines for programs. [`Lines`] is a writer that never waits for the reader of the log.

mod lines;
mod names;

use std::fmt::{self, Debug};

use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::text;

pub use lines::{BYTES_MAX, LINES_MAX, Line, Lines};
pub use names::name_peers;

/// The fields of an event for people: the message, then `name=value`; a value that is not a single word is quoted.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fields;

impl<'writer> FormatFields<'writer> for Fields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut visitor = Visitor { writer, is_first: true, result: Ok(()) };
        fields.record(&mut visitor);
        visitor.result
    }
}

struct Visitor<'writer> {
    writer: Writer<'writer>,
    is_first: bool,
    result: fmt::Result,
}

impl Visitor<'_> {
    fn field(&mut self, name: &str, value: &str) -> fmt::Result {
        if !std::mem::take(&mut self.is_first) {
            self.writer.write_char(' ')?;
        }
        if name == "message" {
            return self.writer.write_str(&text::logged(value));
        }
        let name = name.strip_prefix("r#").unwrap_or(name);
        match self.writer.has_ansi_escapes() {
            true => write!(self.writer, "\u{1b}[3m{name}\u{1b}[0m\u{1b}[2m=\u{1b}[0m")?,
            false => write!(self.writer, "{name}=")?,
        }
        self.writer.write_str(&text::logged(value))
    }
}

impl Visit for Visitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.record_debug(field, &format_args!("{value}")),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if self.result.is_err() {
            return;
        }
        let mut text = format!("{value:?}");
        if PEERS.contains(&field.name())
            && let Some(name) = names::of(&text)
        {
            text = name;
        }
        // What reads like another field, or like the end of this one, is quoted; what is quoted already is one text.
        let is_word = !text.contains([' ', '=', '"']) || (text.starts_with('"') && text.ends_with('"'));
        if field.name() != "message" && !is_word {
            text = format!("{text:?}");
        }
        self.result = self.field(field.name(), &text);
    }
}

/// The lines of another format, each one JSON document.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json<F>(pub F);

impl<S, N, F> FormatEvent<S, N> for Json<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'writer> FormatFields<'writer> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut line = String::new();
        self.0.format_event(context, Writer::new(&mut line), event)?;
        writer.write_str(&text::json(&line))
    }
}

/// Fields that hold the DID of a peer.
const PEERS: [&str; 2] = ["peer", "caller"];

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use super::*;

    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Lines {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Every kind of field with every hidden character in it.
    fn log_everything() {
        let foul: String = ('\0'..=char::MAX).filter(|char| text::is_hidden(*char)).collect();
        let foul = format!("{foul}\n2026-01-01T00:00:00Z  INFO forged a=1");
        tracing::info!(shown = %foul, debugged = ?foul, text = foul, list = ?[&foul], "message {foul}");
        tracing::info!("{foul}");
        tracing::info!(number = 1, flag = true, word = %"word", quoted = "word", words = %"two words", pair = %"a=b");
    }

    fn lines(subscribe: impl FnOnce(Lines) -> Box<dyn tracing::Subscriber + Send + Sync>) -> Vec<String> {
        let lines = Lines::default();
        tracing::subscriber::with_default(subscribe(lines.clone()), log_everything);
        let bytes = lines.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap().lines().map(str::to_owned).collect()
    }

    #[test]
    fn no_field_and_no_message_ends_a_line_or_hides_in_it() {
        for ansi in [false, true] {
            let lines = lines(|lines| {
                let writer = move || lines.clone();
                let builder = tracing_subscriber::fmt().without_time().with_writer(writer).with_ansi(ansi);
                Box::new(builder.fmt_fields(Fields).finish())
            });
            assert_eq!(lines.len(), 3, "{lines:#?}");
            for line in &lines {
                let hidden = line.chars().find(|char| text::is_hidden(*char) && !(ansi && *char == '\u{1b}'));
                assert_eq!(hidden, None, "{line:?}");
            }
            let last = "number=1 flag=true word=word quoted=\"word\" words=\"two words\" pair=\"a=b\"";
            assert!(ansi || lines[2].ends_with(last), "{}", lines[2]);
        }
    }

    #[test]
    fn lines_for_people_call_peers_by_their_names() {
        let text = || {
            name_peers([("did:web:named.example".to_owned(), "billing".to_owned())].into_iter());
            let lines = Lines::default();
            let writer = lines.clone();
            let builder = tracing_subscriber::fmt().without_time().with_ansi(false);
            let subscriber = builder.with_writer(move || writer.clone()).fmt_fields(Fields).finish();
            tracing::subscriber::with_default(subscriber, || {
                tracing::info!(peer = %"did:web:named.example", did = %"did:web:named.example", "one");
                tracing::info!(caller = "did:web:named.example", peer = %"did:web:other.example", "two");
            });
            String::from_utf8(lines.0.lock().unwrap().clone()).unwrap()
        };
        let is_shown = |text: &str| {
            text.contains("one peer=billing did=did:web:named.example\n")
                && text.contains("two caller=billing peer=did:web:other.example\n")
        };
        // Sidecars of other tests in this process name their own peers at the same time.
        assert!((0..100).any(|_| is_shown(&text())), "{}", text());
    }

    #[test]
    fn no_json_line_has_what_is_hidden() {
        let lines = lines(|lines| {
            let writer = move || lines.clone();
            let builder = tracing_subscriber::fmt().with_writer(writer).json().flatten_event(true);
            Box::new(builder.map_event_format(Json).finish())
        });
        assert_eq!(lines.len(), 3, "{lines:#?}");
        for line in &lines {
            assert!(!line.chars().any(text::is_hidden), "{line:?}");
            serde_json::from_str::<serde_json::Value>(line).unwrap();
        }
    }
}
