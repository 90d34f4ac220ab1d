//! A schema and bytes in; our verdict, and those of the `cddl` and `cddl-cat` crates, held together.
//!
//! Both oracles read CDDL in their own way in places. What is known stands in [`DEFECTS`], with a body that shows it,
//! and confines itself to a schema and a direction; every other difference is reported. A fuzz target includes this
//! file and calls [`hold`].

#![allow(
    clippy::wildcard_enum_match_arm,
    reason = "the enums of other crates, of which only some variants matter"
)]
#![allow(dead_code, reason = "each target that includes this file uses its part of it")]

use std::sync::OnceLock;

use capd_proto::cbor;
use capd_proto::cddl::bodies::{Bodies, Shape};
use capd_proto::cddl::{Mismatch, Program, RuleId};
use cddl::validator::Validator;

/// Bytes of a body that the oracles are given: they recurse and allocate as the body says.
const BODY_BYTES_MAX: usize = 4_096;
/// Deepest nesting of a body that the oracles are given.
const BODY_DEPTH_MAX: usize = 16;

/// One construct, or a few that belong together. The rule is `root`.
pub(crate) const SYNTHETIC: &[(&str, &str)] = &[
    ("core", "root = uint / nint / bstr / tstr / bool / null / float"),
    ("uint", "root = uint"),
    ("int", "root = int"),
    ("text", "root = tstr"),
    ("bytes", "root = bstr"),
    ("float", "root = float"),
    ("bool", "root = bool"),
    ("any", "root = any"),
    ("literals", "root = 1 / -1 / 1.5 / \"x\" / true / null"),
    ("range", "root = 1..10"),
    ("exclusive", "root = -3...3"),
    ("float-range", "root = 1.0..2.0"),
    ("choice", "root = [* (int / tstr)] / { * tstr => int } / \"x\""),
    ("extended", "root = [* t] t = int t /= tstr"),
    ("array", "root = [int, tstr, ? bool]"),
    ("repeated", "root = [* int]"),
    ("plus", "root = [+ int, tstr]"),
    ("counted", "root = [2*3 int]"),
    ("pairs", "root = [* (int, tstr)]"),
    ("group-choice", "root = [(int, int // tstr), bool]"),
    ("named-group", "root = [g, bool] g = (int, tstr)"),
    ("map", "root = { x: int, ? y: tstr }"),
    ("open-map", "root = { x: int, ? y: tstr, * tstr => any }"),
    ("arrow", "root = { \"x\" => int, * tstr => any }"),
    ("int-keys", "root = { 1: int, ? 2: tstr, * int => any }"),
    ("table", "root = { * tstr => int }"),
    ("tables", "root = { * tstr => int, * int => tstr }"),
    ("at-least-one", "root = { + tstr => int }"),
    ("optional-group", "root = { ? (a: int, b: int), * tstr => tstr }"),
    ("map-choice", "root = { ( a: int, ? b: tstr // b: tstr ), ? c: int }"),
    ("map-group", "root = { g, z: int } g = (x: int, ? y: int)"),
    ("socket", "root = { x: int, * $$more } $$more //= (y: int)"),
    ("type-socket", "root = [* $t] $t /= int $t /= null"),
    ("unwrap", "root = { ~b, y: int } b = { x: int }"),
    ("unwrap-array", "root = [ ~b, tstr ] b = [ int, int ]"),
    ("enumeration", "root = &(red: 1, green: 2, blue: \"b\")"),
    ("generic", "root = m<\"a\", int> / m<\"b\", tstr> m<t, v> = { type: t, value: v }"),
    ("recursive", "root = { v: int, ? left: root, ? right: root }"),
    ("recursive-array", "root = [* root] / int"),
    ("tag", "root = #6.32(tstr) / #6.1(int)"),
    ("size", "root = bstr .size 2 / tstr .size (1..3)"),
    ("uint-size", "root = uint .size 1"),
    ("regexp", "root = tstr .regexp \"[a-c]+x?\""),
    ("compare", "root = (int .ge -2) .and (int .lt 5)"),
    ("less", "root = int .lt 3"),
    ("not-equal", "root = tstr .ne \"x\""),
    ("embedded", "root = bstr .cbor [int, tstr]"),
    ("nested", "root = { o: { i: [* { k: int, * tstr => any }] }, * tstr => any }"),
];

/// Schemas in which a text literal is the type of an item.
const TEXT_LITERALS: &[&str] = &[
    "choice",
    "enumeration",
    "generic",
    "literals",
    "cap-query-body",
    "cap-result-body",
    "cap-declare-body",
    "descriptor",
    "envelope",
    "error-body",
    "request-body",
    "response-body",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Oracle {
    Cddl,
    Cat,
}

/// Where an oracle gives another verdict than RFC 8610.
pub(crate) struct Defect {
    pub(crate) oracle: Oracle,
    /// The schema of `body`; where `applies` holds, the defect shows on others as well.
    pub(crate) schema: &'static str,
    /// The oracle's verdict, and so not ours.
    pub(crate) accepts: bool,
    /// In diagnostic notation, as small as it goes.
    pub(crate) body: &'static str,
    pub(crate) reason: &'static str,
    /// Whether a case is one of this defect's.
    pub(crate) applies: fn(&Case<'_>) -> bool,
}

/// What a defect is recognised by.
pub(crate) struct Case<'c> {
    pub(crate) schema: &'static str,
    /// Why we refuse the body, if we do.
    pub(crate) mismatch: Option<&'c Mismatch>,
    /// First byte of the item that we refuse.
    pub(crate) item: u8,
}

impl Case<'_> {
    fn says(&self, expected: &str) -> bool {
        self.mismatch.is_some_and(|mismatch| mismatch.expected.contains(expected))
    }

    fn path(&self, part: &str) -> bool {
        self.mismatch.is_some_and(|mismatch| mismatch.path.contains(part))
    }
}

include!("differential_defects.rs");

/// A schema with everything that judges by it.
pub(crate) struct Schema {
    pub(crate) name: &'static str,
    pub(crate) text: &'static str,
    ours: Program,
    rule: RuleId,
    /// `None` where the oracle does not take the text.
    cddl: Option<cddl::ast::CDDL<'static>>,
    cat: Option<cddl_cat::context::BasicContext>,
}

/// All schemas: the synthetic ones, then the rule of each message and shape.
pub(crate) fn schemas() -> &'static [Schema] {
    static SCHEMAS: OnceLock<Vec<Schema>> = OnceLock::new();
    SCHEMAS.get_or_init(|| {
        let synthetic = SYNTHETIC.iter().map(|(name, text)| Schema::new(name, text, text));
        let names = Bodies::messages().iter().map(|(_, rule)| *rule).chain(Shape::ALL.map(Shape::rule));
        let bodies = names.map(|name| {
            let text: &str = format!("root = {name}\n{}", Bodies::text()).leak();
            // cddl-cat knows no `.ne`; without it some schemas take more, which `DEFECTS` lists where it shows.
            let wider: Vec<String> = text.lines().map(plainer).collect();
            Schema::new(name, text, &wider.join("\n"))
        });
        synthetic.chain(bodies).collect()
    })
}

impl Schema {
    fn new(name: &'static str, text: &'static str, cat: &str) -> Schema {
        let ours = Program::compile(text).unwrap_or_else(|error| panic!("{name}: {error}"));
        let rule = ours.rule("root").expect("every schema has a root");
        let cddl = cddl::cddl_from_str(text, false).ok();
        let cat = cddl_cat::flatten::flatten_from_str(cat).ok();
        let cat = cat.map(cddl_cat::context::BasicContext::new);
        Schema { name, text, ours, rule, cddl, cat }
    }

    pub(crate) fn ours(&self, bytes: &[u8]) -> Result<(), Mismatch> {
        self.ours.run(self.rule, bytes)
    }

    /// The oracle's verdict; `None` where it does not take the schema or the body's kinds of items.
    pub(crate) fn theirs(&self, oracle: Oracle, bytes: &[u8]) -> Option<bool> {
        match oracle {
            Oracle::Cddl => {
                // It panics where a byte string meets a text literal.
                if self.ours(bytes).is_err() && holds_bytes(bytes) && TEXT_LITERALS.contains(&self.name) {
                    return None;
                }
                let value = cddl::validator::cbor_value::decode_cbor(bytes).ok()?;
                let mut validator =
                    cddl::validator::cbor::CBORValidator::new(self.cddl.as_ref()?, value, None);
                let verdict: Result<(), cddl::validator::cbor::Error<std::io::Error>> = validator.validate();
                Some(verdict.is_ok())
            }
            Oracle::Cat => {
                let context = self.cat.as_ref()?;
                let value: ciborium::Value = ciborium::from_reader(bytes).ok()?;
                match cddl_cat::cbor::validate_cbor(context.rules.get("root")?, &value, context) {
                    Ok(()) => Some(true),
                    Err(cddl_cat::util::ValidateError::Mismatch(_)) => Some(false),
                    Err(_) => None,
                }
            }
        }
    }
}

/// Differences that no known defect explains, for a body that the oracles can be given.
pub(crate) fn differences(schema: &Schema, bytes: &[u8]) -> Vec<(Oracle, bool)> {
    if bytes.len() > BODY_BYTES_MAX || cbor::check(bytes).is_err() || depth(bytes) > BODY_DEPTH_MAX {
        return Vec::new();
    }
    let ours = schema.ours(bytes);
    let mismatch = ours.as_ref().err();
    let item = mismatch.and_then(|mismatch| bytes.get(mismatch.offset)).copied().unwrap_or_default();
    let case = Case { schema: schema.name, mismatch, item };
    let mut out = Vec::new();
    for oracle in [Oracle::Cddl, Oracle::Cat] {
        let known = |d: &Defect| d.oracle == oracle && d.accepts == ours.is_err() && (d.applies)(&case);
        // The body that it judges is another one wherever it stands, so that no mismatch of ours need be at the tag.
        let is_other_body = oracle == Oracle::Cat && holds_bignum(&mut cbor::Reader::new(bytes));
        if is_other_body || DEFECTS.iter().any(known) {
            continue;
        }
        if schema.theirs(oracle, bytes).is_some_and(|theirs| theirs != ours.is_ok()) {
            out.push((oracle, ours.is_ok()));
        }
    }
    out
}

/// A line of a CDDL text in what cddl-cat knows: without the values that `.ne` excludes, and without `number`.
fn plainer(line: &str) -> String {
    let mut line = line.replace("=> number", "=> int / float");
    while let Some(at) = line.find(" .ne \"") {
        let end = at + 6 + line[at + 6..].find('"').map_or(0, |end| end + 1);
        line.replace_range(at..end, "");
    }
    line.replace("((((tstr))))", "tstr").replace("(tstr)", "tstr")
}

fn holds_bytes(bytes: &[u8]) -> bool {
    fn of(value: &ciborium::Value) -> bool {
        match value {
            ciborium::Value::Bytes(_) => true,
            ciborium::Value::Array(items) => items.iter().any(of),
            ciborium::Value::Map(items) => items.iter().any(|(k, v)| of(k) || of(v)),
            ciborium::Value::Tag(_, item) => of(item),
            _ => false,
        }
    }
    ciborium::from_reader(bytes).is_ok_and(|value: ciborium::Value| of(&value))
}

/// Whether the next item holds a tag 2 or 3, which ciborium turns into an integer.
fn holds_bignum(reader: &mut cbor::Reader<'_>) -> bool {
    let Ok(head) = reader.head() else { return false };
    let mut left = match head.major {
        4 => reader.array(),
        5 => reader.map().map(|pairs| pairs.map(|pairs| pairs * 2)),
        6 => return matches!(reader.tag(), Ok(2 | 3)) || holds_bignum(reader),
        _ => return reader.skip().is_err(),
    }
    .unwrap_or(Some(0));
    let mut found = false;
    while reader.has_next(&mut left) {
        found |= holds_bignum(reader);
    }
    found
}

/// Panics where an oracle differs and no known defect says so.
pub(crate) fn hold(schema: usize, bytes: &[u8]) {
    let schema = &schemas()[schema % schemas().len()];
    let differences = differences(schema, bytes);
    assert!(differences.is_empty(), "{}: {differences:?}: {bytes:02x?}", schema.name);
}

/// The most heads of containers and tags open at one byte, or more: close enough to keep the oracles' stacks small.
fn depth(bytes: &[u8]) -> usize {
    fn of(value: &ciborium::Value) -> usize {
        match value {
            ciborium::Value::Array(items) => 1 + items.iter().map(of).max().unwrap_or(0),
            ciborium::Value::Map(items) => 1 + items.iter().map(|(k, v)| of(k).max(of(v))).max().unwrap_or(0),
            ciborium::Value::Tag(_, item) => 1 + of(item),
            _ => 0,
        }
    }
    // ciborium's own bound on nesting stands well above ours, and what it cannot read the oracles cannot either.
    ciborium::from_reader(bytes).map_or(usize::MAX, |value: ciborium::Value| of(&value))
}
