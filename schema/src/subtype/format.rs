//! Describes the strings of a format: automata below and above it, and its certain supersets.

use std::sync::LazyLock;

use jsonschema::Draft;
use serde_json::{Value, json};

use super::pattern::Automaton;
use crate::steps::STEPS_MAX;
use crate::validator::Validator;

/// A format that the validating crate asserts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Format(u8);

/// What is known of a format's strings.
struct Row {
    name: &'static str,
    /// An expression that all of them match, as a whole.
    above: &'static str,
    /// An expression whose matches are all among them; the same as `above` when that is exact.
    below: &'static str,
    /// An expression whose matches are none of them, where what `above` leaves out is too little to be of use.
    never: Option<&'static str>,
    /// Formats that hold of all of them, beyond what the expressions show.
    within: &'static [&'static str],
}

const fn row(
    name: &'static str,
    above: &'static str,
    below: &'static str,
    within: &'static [&'static str],
) -> Row {
    Row { name, above, below, never: None, within }
}

impl Row {
    const fn never(self, never: &'static str) -> Self {
        Self { never: Some(never), ..self }
    }
}

macro_rules! octet {
    () => {
        "(?:25[0-5]|2[0-4][0-9]|1[0-9][0-9]|[1-9]?[0-9])"
    };
}
macro_rules! date {
    () => {
        concat!(
            "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])",
            "|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))",
            "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29",
            // A year that the crate reads as some number.
            "|[*+][0-9]{3}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8]))"
        )
    };
}
macro_rules! time {
    () => {
        concat!(
            "(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]",
            r"(?:\.[0-9]+)?(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
        )
    };
}
/// What the validating crate takes for a digit of a date or a time, where it reads several at once.
macro_rules! loose {
    () => {
        "[*-9]"
    };
}
macro_rules! loose_date {
    () => {
        concat!(loose!(), "{4}-", loose!(), "{2}-", loose!(), "{2}")
    };
}
macro_rules! loose_time {
    () => {
        concat!(
            loose!(),
            "{2}:",
            loose!(),
            "{2}:",
            loose!(),
            r"{2}(?:\.[0-9]+)?(?:[zZ]|[+-]",
            loose!(),
            "{2}:",
            loose!(),
            "{2})"
        )
    };
}
macro_rules! pointer {
    () => {
        r"(?s:/(?:[^~/]|~[01])*)*"
    };
}
/// Segments without a colon, an authority before them or not.
macro_rules! path {
    () => {
        "[A-Za-z0-9._~!$&'()*+,;=/-]*"
    };
}
macro_rules! uri {
    () => {
        concat!("[A-Za-z][A-Za-z0-9+.-]*:", path!())
    };
}

/// Characters of a URI, and of any of the others that take more than ASCII.
macro_rules! printable {
    () => {
        r#"(?:[^\x00-\x20"<>%\\^`{|}\x7f-\x{10ffff}]|%[0-9A-Fa-f]{2})*"#
    };
}
macro_rules! printable_wide {
    () => {
        r#"(?:[^\x00-\x20"<>%\\^`{|}\x7f]|%[0-9A-Fa-f]{2})*"#
    };
}

/// A first segment with a colon that ends no scheme.
const NO_REFERENCE: &str = "(?s:(?:[^A-Za-z/?#:][^/?#:]*)?:.*)";

const ROWS: &[Row] = &[
    row("date", loose_date!(), date!(), &[]),
    row("date-time", concat!(loose_date!(), "[Tt]", loose_time!()), concat!(date!(), "[Tt]", time!()), &[]),
    row("duration", "P[0-9YMWDTHS]+", "P(?:[0-9]+[YMWD]|T[0-9]+[HMS])", &[]),
    row(
        "email",
        r"[\x00-\x7f]+@[A-Za-z0-9:.\[\]-]+",
        "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]{1,16}@[A-Za-z0-9]{1,16}(?:\\.[A-Za-z]{2,8}){1,3}",
        &[],
    ),
    row(
        "hostname",
        r"[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)*",
        r"[A-Za-z0-9]{1,11}(?:-[A-Za-z0-9]{1,11}){0,4}(?:\.[A-Za-z0-9]{1,11}){0,3}",
        &[],
    ),
    row(
        "ipv4",
        concat!(octet!(), r"(?:\.", octet!(), "){3}"),
        concat!(octet!(), r"(?:\.", octet!(), "){3}"),
        &[],
    ),
    row("ipv6", "[0-9A-Fa-f:.]{2,45}", "::[0-9A-Fa-f]{0,4}|(?:[0-9A-Fa-f]{1,4}:){7}[0-9A-Fa-f]{1,4}", &[]),
    row("iri", concat!("[A-Za-z][A-Za-z0-9+.-]*:", printable_wide!()), uri!(), &["iri-reference"]),
    row("iri-reference", printable_wide!(), concat!(uri!(), "|", path!()), &[]).never(NO_REFERENCE),
    row("json-pointer", pointer!(), pointer!(), &[]),
    row("regex", "(?s:.*)", r#"(?:[A-Za-z0-9]\+?|[ :/_@=,;&%#!'"~<>.-])*"#, &[])
        .never(r"(?s:[*+?].*|[^\[\]()\\]*\([^\[\]()\\]*)"),
    row(
        "relative-json-pointer",
        concat!("(?:0|[1-9][0-9]*)(?:#|", pointer!(), ")"),
        concat!("(?:0|[1-9][0-9]*)(?:#|", pointer!(), ")"),
        &[],
    ),
    row("time", loose_time!(), time!(), &[]),
    row(
        "uri",
        concat!("[A-Za-z][A-Za-z0-9+.-]*:", printable!()),
        uri!(),
        &["uri-reference", "iri", "iri-reference"],
    ),
    row("uri-reference", printable!(), concat!(uri!(), "|", path!()), &["iri-reference"]).never(NO_REFERENCE),
    row(
        "uri-template",
        r#"(?:[^\x00-\x20"<>%\\^`\x7f]|%[0-9A-Fa-f]{2})*"#,
        r#"(?:[^\x00-\x20"<>%\\^`{|}\x7f]|%[0-9A-Fa-f]{2}|\{[A-Za-z0-9_]+\})*"#,
        &[],
    ),
    row(
        "uuid",
        "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
        "[0-9A-Fa-f]{8}(?:-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12}",
        &[],
    ),
];

/// What is made of a row when it is first needed.
struct Made {
    above: Option<Automaton>,
    below: Option<Automaton>,
    never: Option<Automaton>,
    validator: Option<Validator>,
}

static MADE: [LazyLock<Made>; ROWS.len()] = [
    LazyLock::new(|| make(0)),
    LazyLock::new(|| make(1)),
    LazyLock::new(|| make(2)),
    LazyLock::new(|| make(3)),
    LazyLock::new(|| make(4)),
    LazyLock::new(|| make(5)),
    LazyLock::new(|| make(6)),
    LazyLock::new(|| make(7)),
    LazyLock::new(|| make(8)),
    LazyLock::new(|| make(9)),
    LazyLock::new(|| make(10)),
    LazyLock::new(|| make(11)),
    LazyLock::new(|| make(12)),
    LazyLock::new(|| make(13)),
    LazyLock::new(|| make(14)),
    LazyLock::new(|| make(15)),
    LazyLock::new(|| make(16)),
];

fn make(at: usize) -> Made {
    let row = &ROWS[at];
    // 2020-12 knows all of them; a draft that knows fewer has no such node.
    let validator = Validator::compile(json!({ "format": row.name }).to_string().as_bytes()).ok();
    Made {
        above: Automaton::whole(row.above),
        below: Automaton::whole(row.below),
        never: row.never.and_then(Automaton::whole),
        validator,
    }
}

impl Format {
    /// The format `name` of a draft; `None` when that draft does not assert it.
    pub(super) fn named(name: &str, draft: Draft) -> Option<Self> {
        // The other one that draft-07 lacks, uuid, is supplied to its validator.
        if name == "duration" && draft == Draft::Draft7 {
            return None;
        }
        let at = ROWS.iter().position(|row| row.name == name)?;
        u8::try_from(at).ok().map(Self)
    }

    fn row(self) -> &'static Row {
        &ROWS[usize::from(self.0)]
    }

    fn made(self) -> &'static Made {
        &MADE[usize::from(self.0)]
    }

    /// Its name.
    pub(super) fn name(self) -> &'static str {
        self.row().name
    }

    /// Accepts all of its strings, and perhaps others.
    pub(super) fn above(self) -> Option<&'static Automaton> {
        self.made().above.as_ref()
    }

    /// Accepts none but its strings, and perhaps not all.
    pub(super) fn below(self) -> Option<&'static Automaton> {
        self.made().below.as_ref()
    }

    /// Accepts none of its strings, and perhaps not all others.
    pub(super) fn never(self) -> Option<&'static Automaton> {
        self.made().never.as_ref()
    }

    /// Whether each of its strings is one of `other` for sure, by the table.
    pub(super) fn is_within(self, other: Self) -> bool {
        self == other || self.row().within.contains(&other.name())
    }

    /// Whether `text` is one of its strings, as the validating crate says.
    pub(super) fn accepts(self, text: &str) -> Option<bool> {
        self.made().validator.as_ref()?.judge(&Value::from(text), STEPS_MAX).0
    }
}

#[cfg(test)]
#[path = "format_tests.rs"]
mod tests;
