//! The table of keys in; the reference of configuration.md, in markdown, out.

use std::fmt::Write;

use super::keys::{Fallback, KEYS, OTHER_VARIABLES};

impl Fallback {
    fn written(&self) -> String {
        match self {
            Self::Text(text) => format!("`\"{text}\"`"),
            Self::Integer(number) => format!("`{number}`"),
            Self::Unset(text) | Self::Derived(text) => (*text).to_owned(),
        }
    }
}

/// The reference of all keys and variables, as markdown tables.
pub fn reference() -> String {
    let mut out = String::from(
        "| key | accepted | default | environment | meaning |\n| --- | --- | --- | --- | --- |\n",
    );
    for key in KEYS {
        writeln!(
            out,
            "| `{}` | {} | {} | `{}` | {} |",
            key.path,
            key.kind.accepted(),
            key.default.written(),
            key.variable(),
            key.meaning
        )
        .expect("writing to a String does not fail");
    }
    out.push_str("\n| variable | meaning |\n| --- | --- |\n");
    for (name, meaning) in OTHER_VARIABLES {
        writeln!(out, "| `{name}` | {meaning} |").expect("writing to a String does not fail");
    }
    out
}
