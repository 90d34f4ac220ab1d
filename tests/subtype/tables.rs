//! What made-up schemas and values are made of: few names and texts, so that they meet, and numbers on both sides of
//! every edge.

pub(crate) const NAMES: &[&str] = &["a", "b", "ab", "kind", "x1"];

pub(crate) const TYPES: &[&str] = &["null", "boolean", "integer", "number", "string", "array", "object"];

/// Among them, strings of each format and close to it.
pub(crate) const TEXTS: &[&str] = &[
    "",
    "a",
    "b",
    "ab",
    "aab",
    "abc",
    "é",
    "\u{10ffff}",
    "1",
    "12",
    "x1",
    "kind",
    " ",
    "a\n",
    "2020-01-01",
    "2020-02-30",
    "2020-02-29",
    "12:00:00Z",
    "2020-01-01T12:00:00Z",
    "P1D",
    "1.2.3.4",
    "::1",
    "a@b.co",
    "a-b.co",
    "/a",
    "/a~0",
    "0/a",
    "a:b",
    "http://a.b/c?d#e",
    "%41",
    "{a}",
    "a+",
    "(",
    "123e4567-e89b-12d3-a456-426614174000",
];

pub(crate) const PATTERNS: &[&str] = &[
    "^a",
    "b$",
    "^[ab]+$",
    "^a*$",
    "[0-9]",
    "^.{2}$",
    "^(ab|é)",
    "^x",
    "^$",
    "a",
    r"^\d+$",
    r"^\w*$",
    r"\.",
    r"^\S+$",
    "^[a-z]{1,3}$",
    "^[^a]*$",
    "^(?:a|ab)(?:b|bc)$",
    r"^\p{L}+$",
    "^.*$",
    "^x[0-9]$|^a",
];

pub(crate) const FORMATS: &[&str] = &[
    "date",
    "date-time",
    "duration",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "iri",
    "iri-reference",
    "json-pointer",
    "regex",
    "relative-json-pointer",
    "time",
    "uri",
    "uri-reference",
    "uri-template",
    "uuid",
];

pub(crate) const NUMBERS: &[f64] =
    &[0.0, 1.0, 2.0, 3.0, -1.0, 0.5, 1.5, 2.5, 10.0, -2.5, 0.1, 100.0, 0.3, 7.0];

pub(crate) const STEPS: &[f64] = &[1.0, 2.0, 3.0, 0.5, 0.1, 1.5, 4.0, 0.25, 0.01, 0.3, 7.0];
