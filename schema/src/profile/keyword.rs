//! Lists keywords: where each may occur, and what it holds.

use jsonschema::Draft;
use serde_json::{Map, Value};

use super::Profile;

/// What stands under a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holds {
    /// No schema.
    Value,
    /// One schema.
    Schema,
    /// A list of schemas.
    List,
    /// One schema or a list of them.
    SchemaOrList,
    /// Schemas by name.
    Members,
}

/// The drafts that have a keyword.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Drafts {
    Both,
    Draft7,
    Draft2020,
}

/// One keyword that is enforced, or that only describes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Keyword {
    pub(super) name: &'static str,
    pub(super) holds: Holds,
    pub(super) drafts: Drafts,
    /// Whether the profile strict has it.
    pub(super) strict: bool,
    /// Whether its schemas look at the same value, and not at a part of it.
    pub(super) in_place: bool,
    /// Whether draft-07 lets it stand beside `$ref`: it asserts nothing there.
    pub(super) beside_reference: bool,
}

impl Keyword {
    pub(super) fn of(name: &str) -> Option<&'static Self> {
        KEYWORDS.iter().find(|keyword| keyword.name == name)
    }

    /// The names of the profile strict, for messages.
    pub(super) fn strict_names() -> String {
        let names = KEYWORDS.iter().filter(|keyword| keyword.strict).map(|keyword| keyword.name);
        names.collect::<Vec<_>>().join(", ")
    }

    const fn new(name: &'static str, holds: Holds) -> Self {
        Self { name, holds, drafts: Drafts::Both, strict: false, in_place: false, beside_reference: false }
    }

    const fn strict(self) -> Self {
        Self { strict: true, ..self }
    }

    const fn only(self, drafts: Drafts) -> Self {
        Self { drafts, ..self }
    }

    const fn in_place(self) -> Self {
        Self { in_place: true, ..self }
    }

    const fn beside_reference(self) -> Self {
        Self { beside_reference: true, ..self }
    }
}

/// Visits the members of every schema of a document whose depth is bounded, wherever a keyword holds one.
pub(crate) fn each_schema(schema: &mut Value, visit: &mut impl FnMut(&mut Map<String, Value>)) {
    let Value::Object(members) = schema else { return };
    for (name, value) in members.iter_mut() {
        let holds = Keyword::of(name).map_or(Holds::Value, |keyword| keyword.holds);
        match (holds, value) {
            (Holds::List | Holds::SchemaOrList, Value::Array(items)) => {
                items.iter_mut().for_each(|item| each_schema(item, visit));
            }
            (Holds::Members, Value::Object(members)) => {
                members.values_mut().for_each(|member| each_schema(member, visit));
            }
            (Holds::Schema | Holds::SchemaOrList, value) => each_schema(value, visit),
            (Holds::Value | Holds::List | Holds::Members, _) => {}
        }
    }
    visit(members);
}

impl Drafts {
    pub(super) fn has(self, draft: Draft) -> bool {
        match self {
            Self::Both => true,
            Self::Draft7 => draft == Draft::Draft7,
            Self::Draft2020 => draft != Draft::Draft7,
        }
    }

    /// Why a keyword of these drafts is refused in the other one.
    pub(super) fn elsewhere(self, name: &str) -> String {
        match (self, name) {
            (_, "contentEncoding" | "contentMediaType") => {
                format!(
                    "2020-12 reads {name} as an annotation and checks nothing; accepted: draft-07, which checks it"
                )
            }
            (Self::Draft7, _) => {
                format!("2020-12 has no {name}; accepted: its own keyword for it, or draft-07")
            }
            (Self::Draft2020 | Self::Both, _) => {
                format!("draft-07 has no {name}; accepted: its own keyword for it, or 2020-12")
            }
        }
    }
}

/// How messages name a draft.
pub(super) fn draft_name(draft: Draft) -> &'static str {
    if draft == Draft::Draft7 { "draft-07" } else { "2020-12" }
}

/// The formats that are asserted.
pub(super) fn formats(profile: Profile, draft: Draft) -> &'static [&'static str] {
    match (profile, draft) {
        (Profile::Strict, _) => &STRICT_FORMATS,
        (Profile::Full, Draft::Draft7) => &FORMATS[1..],
        (Profile::Full, _) => &FORMATS,
    }
}

const STRICT_FORMATS: [&str; 5] = ["uuid", "email", "uri", "uri-reference", "date-time"];

/// The first one is not of draft-07. Those of international mail and host names need tables that are not built in.
const FORMATS: [&str; 17] = [
    "duration",
    "date",
    "date-time",
    "time",
    "email",
    "hostname",
    "ipv4",
    "ipv6",
    "iri",
    "iri-reference",
    "json-pointer",
    "relative-json-pointer",
    "regex",
    "uri",
    "uri-reference",
    "uri-template",
    "uuid",
];

pub(super) const KEYWORDS: &[Keyword] = &[
    Keyword::new("type", Holds::Value).strict(),
    Keyword::new("enum", Holds::Value).strict(),
    Keyword::new("const", Holds::Value).strict(),
    Keyword::new("properties", Holds::Members).strict(),
    Keyword::new("required", Holds::Value).strict(),
    Keyword::new("additionalProperties", Holds::Schema).strict(),
    Keyword::new("items", Holds::SchemaOrList).strict(),
    Keyword::new("minimum", Holds::Value).strict(),
    Keyword::new("maximum", Holds::Value).strict(),
    Keyword::new("exclusiveMinimum", Holds::Value).strict(),
    Keyword::new("exclusiveMaximum", Holds::Value).strict(),
    Keyword::new("minLength", Holds::Value).strict(),
    Keyword::new("maxLength", Holds::Value).strict(),
    Keyword::new("pattern", Holds::Value).strict(),
    Keyword::new("minItems", Holds::Value).strict(),
    Keyword::new("maxItems", Holds::Value).strict(),
    Keyword::new("uniqueItems", Holds::Value).strict(),
    Keyword::new("oneOf", Holds::List).strict().in_place(),
    Keyword::new("anyOf", Holds::List).strict().in_place(),
    Keyword::new("allOf", Holds::List).strict().in_place(),
    Keyword::new("not", Holds::Schema).strict().in_place(),
    Keyword::new("$ref", Holds::Value).strict().beside_reference(),
    Keyword::new("format", Holds::Value).strict(),
    Keyword::new("title", Holds::Value).strict().beside_reference(),
    Keyword::new("description", Holds::Value).strict().beside_reference(),
    Keyword::new("default", Holds::Value).strict().beside_reference(),
    Keyword::new("examples", Holds::Value).strict().beside_reference(),
    Keyword::new("definitions", Holds::Members).strict().beside_reference(),
    // Not a constraint but the language that the others are written in.
    Keyword::new("$schema", Holds::Value).strict().beside_reference(),
    Keyword::new("$id", Holds::Value).beside_reference(),
    Keyword::new("$comment", Holds::Value).beside_reference(),
    Keyword::new("readOnly", Holds::Value).beside_reference(),
    Keyword::new("writeOnly", Holds::Value).beside_reference(),
    Keyword::new("multipleOf", Holds::Value),
    Keyword::new("maxProperties", Holds::Value),
    Keyword::new("minProperties", Holds::Value),
    Keyword::new("patternProperties", Holds::Members),
    Keyword::new("propertyNames", Holds::Schema),
    Keyword::new("contains", Holds::Schema),
    Keyword::new("dependencies", Holds::Members).in_place(),
    Keyword::new("if", Holds::Schema).in_place(),
    Keyword::new("then", Holds::Schema).in_place(),
    Keyword::new("else", Holds::Schema).in_place(),
    Keyword::new("additionalItems", Holds::Schema).only(Drafts::Draft7),
    Keyword::new("contentEncoding", Holds::Value).only(Drafts::Draft7),
    Keyword::new("contentMediaType", Holds::Value).only(Drafts::Draft7),
    // 2020-12's name for definitions; references lead there in draft-07 as well, where many write it.
    Keyword::new("$defs", Holds::Members).beside_reference(),
    Keyword::new("$anchor", Holds::Value).only(Drafts::Draft2020),
    Keyword::new("$dynamicAnchor", Holds::Value).only(Drafts::Draft2020),
    Keyword::new("$dynamicRef", Holds::Value).only(Drafts::Draft2020),
    Keyword::new("deprecated", Holds::Value).only(Drafts::Draft2020),
    Keyword::new("prefixItems", Holds::List).only(Drafts::Draft2020),
    Keyword::new("minContains", Holds::Value).only(Drafts::Draft2020),
    Keyword::new("maxContains", Holds::Value).only(Drafts::Draft2020),
    Keyword::new("dependentRequired", Holds::Value).only(Drafts::Draft2020),
    Keyword::new("dependentSchemas", Holds::Members).only(Drafts::Draft2020).in_place(),
    Keyword::new("unevaluatedItems", Holds::Schema).only(Drafts::Draft2020),
    Keyword::new("unevaluatedProperties", Holds::Schema).only(Drafts::Draft2020),
];
