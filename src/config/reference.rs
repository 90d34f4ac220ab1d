//! Writes the reference of docs/configuration.md: the table of keys in, Markdown out.

use std::fmt::Write;

use super::difference::Effect;
use super::keys::{Fallback, KEYS};

/// `CAPD_*` variables that are not keys: the name and its reader.
pub const OTHER_VARIABLES: &[(&str, &str)] = &[
    ("CAPD_CONFIG", "The configuration file, if no flag names one."),
    ("CAPD_CONTEXT", "The context of `capctl`: the sidecar that it uses."),
    (
        "CAPD_LOG",
        "Levels by module in place of `log.level` (`capd::net=debug`, `access=off`), separated by commas. A level alone applies to all other modules.",
    ),
    ("CAPD_SOCKET", "The socket of the sidecar that `capctl` uses."),
    ("CAPD_SUITES", "The folder of the public test suites; only tests read it."),
    ("CAPD_TOKEN_FILE", "The token file for loopback TCP; `capctl` proves that it knows the token."),
];

impl Fallback {
    fn written(&self) -> String {
        match self {
            Self::Text(text) => format!("`\"{text}\"`"),
            Self::Integer(number) => format!("`{number}`"),
            Self::Number(number) => format!("`{number}`"),
            Self::Unset(text) | Self::Derived(text) => (*text).to_owned(),
        }
    }
}

/// The reference of all keys and variables, as markdown tables.
pub fn reference() -> String {
    let mut out = String::from(
        "| key | accepted | default | environment | reload | meaning |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for key in KEYS {
        writeln!(
            out,
            "| `{}` | {} | {} | `{}` | {} | {} |",
            key.path,
            key.kind.accepted(),
            key.default.written(),
            key.variable(),
            Effect::of(key.path).as_str(),
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
