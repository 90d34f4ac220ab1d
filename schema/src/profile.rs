//! Finds the first part of a schema document that no check would enforce, with its JSON pointer.
//!
//! A contract that is read but not enforced is worse than none: a misspelled keyword, an unknown format, a reference to
//! nothing. So this module examines every schema in the document, even where no check can reach it.

use jsonschema::Draft;
use serde_json::{Map, Value};

use super::validator::{self, CompileError};
pub(super) use keyword::each_schema;
use keyword::{Holds, Keyword};
use references::References;
pub(super) use references::percent_decoded;

mod keyword;
mod references;
#[cfg(test)]
mod tests;

/// Which keywords a schema may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Profile {
    /// The list for capability payloads, which every side of a fleet can enforce: a small part of draft-07.
    ///
    /// `type`, `enum`, `const`, `properties`, `required`, `additionalProperties`, `items` (one schema), `minimum`,
    /// `maximum`, `exclusiveMinimum`, `exclusiveMaximum`, `minLength`, `maxLength`, `pattern`, `minItems`, `maxItems`,
    /// `uniqueItems`, `oneOf`, `anyOf`, `allOf`, `not`, `$ref` to `#/definitions/<name>`, `format` of `uuid`, `email`,
    /// `uri`, `uri-reference`, `date-time`, `title`, `description`, `default`, `examples`, `definitions`; and `$schema`
    /// at the root, which names the draft.
    Strict,
    /// All of draft-07 or 2020-12 that the validator enforces.
    Full,
}

impl Profile {
    /// The profile's name in a declaration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Full => "full",
        }
    }

    /// Checks a document without compiling it.
    ///
    /// **Errors:** what is wrong with the document, and where.
    pub fn check(self, document: &[u8]) -> Result<(), CompileError> {
        validator::load(document, Some(self)).map(drop)
    }

    /// Looks through a tree whose depth is bounded, and which has so many patterns.
    pub(super) fn check_tree(
        self,
        schema: &Value,
        draft: Draft,
        patterns: usize,
    ) -> Result<(), CompileError> {
        let references = References::default();
        let mut walk = Walk { profile: self, draft, patterns, places: Vec::new(), references };
        walk.schema(schema, Place::default(), 0)?;
        walk.references.check(&walk.places)
    }
}

/// Where a schema stands: its parent's place, the keyword there, and the step below the keyword.
#[derive(Clone, Copy, Debug, Default)]
struct Place<'s> {
    parent: Option<usize>,
    keyword: &'s str,
    step: Option<Step<'s>>,
}

#[derive(Clone, Copy, Debug)]
enum Step<'s> {
    Key(&'s str),
    Index(usize),
}

/// Everything that is looked at, in document order. Pointers are written only for what is refused: a document's keys
/// may be long, and thousands of schemas may stand below one.
struct Walk<'s> {
    profile: Profile,
    draft: Draft,
    /// How many patterns share the bound on their size.
    patterns: usize,
    places: Vec<Place<'s>>,
    references: References<'s>,
}

impl<'s> Walk<'s> {
    /// One schema and all below it; `base` is the resource that its references start from.
    fn schema(&mut self, schema: &'s Value, place: Place<'s>, base: usize) -> Result<usize, CompileError> {
        let at = self.places.len();
        self.places.push(place);
        let base = self.references.enter(schema, at, base, self.draft, &self.places)?;
        // What is neither an object nor a boolean is no schema, which compiling says.
        let Value::Object(members) = schema else { return Ok(at) };
        for (name, value) in members {
            let keyword = self.keyword(name, at, members)?;
            self.value(keyword, name, value, at)?;
            self.inner(keyword, name, value, at, base)?;
        }
        Ok(at)
    }

    fn keyword(
        &self,
        name: &str,
        at: usize,
        members: &Map<String, Value>,
    ) -> Result<&'static Keyword, CompileError> {
        let refused = |problem: String| Err(self.refused(at, &[name], problem));
        let Some(keyword) = Keyword::of(name) else {
            return refused(format!("is no keyword; accepted: {}", self.accepted()));
        };
        if self.profile == Profile::Strict && !keyword.strict {
            return refused(format!("is not of the profile strict; accepted: {}", self.accepted()));
        }
        if !keyword.drafts.has(self.draft) {
            return refused(keyword.drafts.elsewhere(name));
        }
        // In draft-07 a reference stands alone: what is beside it is read by nobody.
        if self.draft == Draft::Draft7 && members.contains_key("$ref") && !keyword.beside_reference {
            return refused(
                "has no effect beside $ref in draft-07; accepted: allOf with the $ref in it, or 2020-12"
                    .to_owned(),
            );
        }
        if name == "$schema" && at != 0 {
            return refused("is inside the document; accepted: $schema at its root".to_owned());
        }
        Ok(keyword)
    }

    fn accepted(&self) -> String {
        match self.profile {
            Profile::Strict => format!("{}; or the profile full", Keyword::strict_names()),
            Profile::Full => format!("the keywords of {}, spelled as there", keyword::draft_name(self.draft)),
        }
    }

    /// What a keyword's own value may be, where the metaschema leaves more open than is enforced.
    fn value(&self, keyword: &Keyword, name: &str, value: &Value, at: usize) -> Result<(), CompileError> {
        let refused = |problem: String| Err(self.refused(at, &[name], problem));
        let text = value.as_str();
        match (keyword.name, text) {
            ("type", _) => {
                let named = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                let unknown = named.iter().find(|one| !one.as_str().is_some_and(|one| TYPES.contains(&one)));
                unknown.map_or(Ok(()), |one| {
                    refused(format!("{} is no type; accepted: {}", quoted(one), TYPES.join(", ")))
                })
            }
            ("format", Some(format)) => {
                let known = keyword::formats(self.profile, self.draft);
                if known.contains(&format) {
                    return Ok(());
                }
                let accepted = known.join(", ");
                refused(format!("{} is no format that is enforced; accepted: {accepted}", quoted(value)))
            }
            ("pattern", Some(pattern)) if !validator::is_linear(pattern, self.patterns) => {
                refused(unfit_pattern())
            }
            ("contentEncoding", Some(encoding)) if !CONTENT_ENCODINGS.contains(&encoding) => {
                let accepted = CONTENT_ENCODINGS.join(", ");
                refused(format!("{} is not enforced; accepted: {accepted}", quoted(value)))
            }
            ("contentMediaType", Some(media_type)) if media_type != CONTENT_MEDIA_TYPE => {
                refused(format!("{} is not enforced; accepted: {CONTENT_MEDIA_TYPE}", quoted(value)))
            }
            ("$ref", Some(reference)) if self.profile == Profile::Strict => {
                let name = reference.strip_prefix("#/definitions/");
                if name.is_some_and(|name| !name.is_empty() && !name.contains('/')) {
                    return Ok(());
                }
                refused(format!("{} is not local; accepted: #/definitions/<name>", quoted(value)))
            }
            ("items", None) if self.profile == Profile::Strict && value.is_array() => {
                refused("is a tuple; accepted: one schema for all items, or the profile full".to_owned())
            }
            _ => Ok(()),
        }
    }

    /// The schemas that a keyword holds.
    fn inner(
        &mut self,
        keyword: &'static Keyword,
        name: &'s str,
        value: &'s Value,
        at: usize,
        base: usize,
    ) -> Result<(), CompileError> {
        let place = Place { parent: Some(at), keyword: name, step: None };
        let mut inner = Vec::new();
        match (keyword.holds, value) {
            (Holds::Schema | Holds::SchemaOrList, Value::Object(_) | Value::Bool(_)) => {
                inner.push((value, place));
            }
            (Holds::List | Holds::SchemaOrList, Value::Array(items)) => {
                let step = |index| Place { step: Some(Step::Index(index)), ..place };
                inner.extend(items.iter().enumerate().map(|(index, item)| (item, step(index))));
            }
            (Holds::Members, Value::Object(members)) => {
                for (key, member) in members {
                    if keyword.name == "patternProperties" && !validator::is_linear(key, self.patterns) {
                        return Err(self.refused(at, &[name, key], unfit_pattern()));
                    }
                    // The metaschema of draft-07 does not look in there.
                    if keyword.name == "$defs" && self.draft == Draft::Draft7 {
                        self.is_draft_7(at, &[name, key], member)?;
                    }
                    // `dependencies` holds lists of names as well.
                    if member.is_object() || member.is_boolean() {
                        inner.push((member, Place { step: Some(Step::Key(key)), ..place }));
                    }
                }
            }
            (Holds::Value | Holds::Schema | Holds::List | Holds::SchemaOrList | Holds::Members, _) => {}
        }
        for (schema, place) in inner {
            let below = self.schema(schema, place, base)?;
            if keyword.in_place {
                self.references.same_value(at, below);
            }
        }
        Ok(())
    }

    fn is_draft_7(&self, at: usize, below: &[&str], schema: &Value) -> Result<(), CompileError> {
        let Err(error) = jsonschema::draft7::meta::validate(schema) else { return Ok(()) };
        Err(self.refused(at, below, error.to_string()))
    }

    #[cold]
    fn refused(&self, at: usize, below: &[&str], problem: String) -> CompileError {
        refused(&self.places, at, below, problem)
    }
}

#[cold]
fn refused(places: &[Place<'_>], at: usize, below: &[&str], problem: String) -> CompileError {
    use capd_proto::cbor::json::push_token;
    let mut way = vec![];
    let mut next = Some(at);
    while let Some(index) = next {
        way.push(places[index]);
        next = places[index].parent;
    }
    let mut pointer = String::new();
    // The root has no keyword of its own.
    for place in way.iter().rev().skip(1) {
        push_token(&mut pointer, place.keyword);
        match place.step {
            Some(Step::Key(key)) => push_token(&mut pointer, key),
            Some(Step::Index(index)) => push_token(&mut pointer, &index.to_string()),
            None => {}
        }
    }
    below.iter().for_each(|token| push_token(&mut pointer, token));
    CompileError::invalid(&pointer, problem)
}

fn unfit_pattern() -> String {
    "not a pattern that runs in linear time; accepted: a regular expression without look-around and \
     back-references, and not too large beside the other patterns of the schema"
        .to_owned()
}

/// A part of the schema as JSON, cut to a bounded length.
fn quoted(value: &Value) -> String {
    let mut text = value.to_string();
    super::violation::cut(&mut text, 120);
    text
}

const TYPES: [&str; 7] = ["object", "array", "string", "integer", "number", "boolean", "null"];
/// What the validator decodes in draft-07.
const CONTENT_ENCODINGS: [&str; 5] = ["base64", "base64url", "base32", "base32hex", "base16"];
/// What the validator parses in draft-07.
const CONTENT_MEDIA_TYPE: &str = "application/json";
