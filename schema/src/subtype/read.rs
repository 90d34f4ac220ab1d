//! Reads a schema document into nodes, keyword by keyword.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{DefaultHasher, Hasher};

use jsonschema::Draft;
use serde_json::{Map, Value};
use sha2::{Digest as _, Sha256};

use super::compiled::{Compiled, Origin, Pattern};
use super::format::Format;
use super::node::{Form, Id, Node, NumberAtom, Opaque, StringAtom, Types};
use super::number::{Num, Ratio};
use super::pattern::Automaton;
use crate::validator::Validator;

/// States that the patterns of one document may have together; further ones are opaque.
const PATTERN_STATES_MAX: usize = 8_192;

/// Reads one document.
pub(super) struct Reader<'s> {
    schema: &'s Value,
    pub(super) draft: Draft,
    nodes: Vec<Node>,
    origins: Vec<Origin>,
    patterns: Vec<Pattern>,
    pattern_states: usize,
    /// By source; `None` when it has no automaton.
    known_patterns: HashMap<&'s str, Option<u32>>,
    /// Targets of references by address: the node that stands for each.
    targets: HashMap<*const Value, Id>,
    /// Targets that are still to be read, with the node that stands for them.
    open: Vec<(&'s Value, Id, u32)>,
    /// Whether some inner schema has a base of its own, so that `#` may mean another document.
    has_inner_ids: bool,
}

impl<'s> Reader<'s> {
    /// The node that holds of every value.
    pub(super) const YES: Id = 0;
    /// The node that holds of none.
    pub(super) const NO: Id = 1;

    /// Starts on a document that the validating crate compiles.
    pub(super) fn new(schema: &'s Value, draft: Draft) -> Self {
        let mut reader = Self {
            schema,
            draft,
            nodes: Vec::new(),
            origins: vec![Origin { parent: 0, token: "".into() }],
            patterns: Vec::new(),
            pattern_states: 0,
            known_patterns: HashMap::new(),
            targets: HashMap::new(),
            open: Vec::new(),
            has_inner_ids: has_inner_ids(schema, true),
        };
        reader.push(Form::Type(Types::ALL), 0);
        reader.push(Form::Type(Types::NONE), 0);
        reader
    }

    /// Reads all of it.
    pub(super) fn read(mut self, validator: Validator) -> Compiled {
        let root = self.target(self.schema, 0);
        while let Some((schema, stands, origin)) = self.open.pop() {
            let id = self.schema(schema, origin);
            self.nodes[stands as usize].form = Form::Same(id);
        }
        super::masks::settle(&mut self.nodes);
        let identity = Sha256::digest(self.schema.to_string()).into();
        let Self { nodes, origins, patterns, .. } = self;
        Compiled { nodes, root, origins, patterns, validator, identity }
    }

    pub(super) fn push(&mut self, form: Form, origin: u32) -> Id {
        let id = self.nodes.len() as Id;
        let (may, must) = (Types::ALL, Types::NONE);
        let mut node = Node { form, may, must, origin, hash: 0 };
        (node.may, node.must) = super::masks::of(&node.form, &self.nodes);
        node.hash = self.hash(&node.form);
        self.nodes.push(node);
        id
    }

    pub(super) fn origin(&mut self, parent: u32, token: impl Into<Box<str>>) -> u32 {
        self.origins.push(Origin { parent, token: token.into() });
        (self.origins.len() - 1) as u32
    }

    pub(super) fn all(&mut self, mut parts: Vec<Id>, origin: u32) -> Id {
        match parts.len() {
            0 => Self::YES,
            1 => parts.remove(0),
            _ => self.push(Form::All(parts.into()), origin),
        }
    }

    pub(super) fn any(&mut self, mut parts: Vec<Id>, origin: u32) -> Id {
        match parts.len() {
            0 => Self::NO,
            1 => parts.remove(0),
            _ => self.push(Form::Any(parts.into()), origin),
        }
    }

    /// The node that stands for what a reference leads to.
    fn target(&mut self, schema: &'s Value, origin: u32) -> Id {
        let key: *const Value = schema;
        match self.targets.entry(key) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(free) => {
                let id = *free.insert(self.nodes.len() as Id);
                self.nodes.push(Node {
                    form: Form::Opaque(Opaque::here("$ref")),
                    may: Types::ALL,
                    must: Types::NONE,
                    origin,
                    hash: 0,
                });
                self.open.push((schema, id, origin));
                id
            }
        }
    }

    /// Reads one schema.
    pub(super) fn schema(&mut self, schema: &'s Value, origin: u32) -> Id {
        let members = match schema {
            Value::Bool(true) => return Self::YES,
            Value::Object(members) => members,
            // `false`; the validating crate has refused anything else.
            _ => return Self::NO,
        };
        if origin != 0 && members.get("$schema").is_some_and(Value::is_string) {
            return self.push(Form::Opaque(Opaque::here("$schema")), origin);
        }
        if let Some(Value::String(reference)) = members.get("$ref") {
            let target = self.reference(reference, origin);
            // Draft-07: what stands beside a reference is ignored.
            if self.draft == Draft::Draft7 {
                return target;
            }
            let mut parts = vec![target];
            self.keywords(members, origin, &mut parts);
            return self.all(parts, origin);
        }
        let mut parts = Vec::new();
        self.keywords(members, origin, &mut parts);
        self.all(parts, origin)
    }

    fn reference(&mut self, reference: &'s str, origin: u32) -> Id {
        let at = self.origin(origin, "$ref");
        let found = (!self.has_inner_ids).then(|| self.resolve(reference)).flatten();
        match found {
            Some(target) => {
                let origin = if std::ptr::eq(target, self.schema) { 0 } else { at };
                self.target(target, origin)
            }
            None => self.push(Form::Opaque(Opaque::here("$ref")), at),
        }
    }

    fn resolve(&self, reference: &str) -> Option<&'s Value> {
        let fragment = reference.strip_prefix('#')?;
        if fragment.is_empty() || fragment.starts_with('/') {
            return self.schema.pointer(&percent_decoded(fragment)?);
        }
        None
    }

    fn keywords(&mut self, members: &'s Map<String, Value>, origin: u32, parts: &mut Vec<Id>) {
        for (keyword, value) in members {
            let known = self.value_keyword(keyword, value, origin, parts)
                || self.joining_keyword(keyword, value, members, origin, parts)
                || self.array_keyword(keyword, value, members, origin, parts)
                || self.object_keyword(keyword, value, members, origin, parts);
            if let Some(name) = (!known).then(|| opaque(keyword, self.draft)).flatten() {
                let at = self.origin(origin, name);
                parts.push(self.push(Form::Opaque(Opaque::here(name)), at));
            }
        }
    }

    /// Keywords on the kind of a value, its equality, numbers and strings.
    fn value_keyword(&mut self, keyword: &str, value: &'s Value, origin: u32, parts: &mut Vec<Id>) -> bool {
        let number = || value.as_number().and_then(Num::of);
        let form = match keyword {
            "type" => {
                let names = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
                let types = names.iter().filter_map(Value::as_str).filter_map(Types::named);
                Some(Form::Type(types.fold(Types::NONE, Types::or)))
            }
            "const" => {
                let at = self.origin(origin, "const");
                parts.push(self.equal_to(std::slice::from_ref(value), at));
                return true;
            }
            "enum" => {
                let at = self.origin(origin, "enum");
                parts.push(self.equal_to(value.as_array().map_or(&[], Vec::as_slice), at));
                return true;
            }
            "minimum" => number().map(|limit| Form::Number(NumberAtom::AtLeast(limit))),
            "maximum" => number().map(|limit| Form::Number(NumberAtom::AtMost(limit))),
            "exclusiveMinimum" => number().map(|limit| Form::Number(NumberAtom::Above(limit))),
            "exclusiveMaximum" => number().map(|limit| Form::Number(NumberAtom::Below(limit))),
            "multipleOf" => {
                let step = value.as_number().and_then(Ratio::of).filter(Ratio::is_divided_exactly);
                Some(step.map_or_else(
                    || Form::Opaque(Opaque::saying("multipleOf", value.to_string())),
                    |step| Form::Number(NumberAtom::MultipleOf(step)),
                ))
            }
            "minLength" => size(value).map(|least| Form::String(StringAtom::MinLength(least))),
            "maxLength" => size(value).map(|most| Form::String(StringAtom::MaxLength(most))),
            "pattern" => {
                let at = self.origin(origin, "pattern");
                parts.extend(value.as_str().map(|source| self.pattern(source, at)));
                return true;
            }
            "format" => {
                let format = value.as_str().and_then(|name| Format::named(name, self.draft));
                format.map(|format| Form::String(StringAtom::Format(format)))
            }
            _ => return false,
        };
        if let Some(form) = form {
            let at = self.origin(origin, keyword);
            parts.push(self.push(form, at));
        }
        true
    }

    /// The node that asserts a pattern.
    pub(super) fn pattern(&mut self, source: &'s str, origin: u32) -> Id {
        let known = match self.known_patterns.get(source) {
            Some(known) => *known,
            None => {
                let made =
                    (self.pattern_states < PATTERN_STATES_MAX).then(|| Automaton::search(source)).flatten();
                // One that came to nothing was work as well.
                self.pattern_states += if made.is_none() { PATTERN_STATES_MAX / 8 } else { 0 };
                let known = made.map(|automaton| {
                    self.pattern_states += automaton.len();
                    self.patterns.push(Pattern { source: source.into(), automaton });
                    (self.patterns.len() - 1) as u32
                });
                self.known_patterns.insert(source, known);
                known
            }
        };
        let form = known.map_or_else(
            || Form::Opaque(Opaque::saying("pattern", source)),
            |at| Form::String(StringAtom::Pattern(at)),
        );
        self.push(form, origin)
    }

    /// Whether a node asserts what the proof models, so that it can tell which names match it.
    pub(super) fn is_opaque(&self, id: Id) -> bool {
        matches!(self.nodes[id as usize].form, Form::Opaque(_))
    }

    fn hash(&self, form: &Form) -> u64 {
        let mut hasher = DefaultHasher::new();
        if !super::same::hash(form, &self.nodes, &self.patterns, &mut hasher) {
            return 0;
        }
        hasher.finish().max(1)
    }
}

/// A bound on a size, as the validating crate reads it.
pub(super) fn size(value: &Value) -> Option<u64> {
    value.as_u64().or_else(|| value.as_f64().filter(|size| *size >= 0.0).map(|size| size as u64))
}

/// Keywords that assert something which is not modelled.
fn opaque(keyword: &str, draft: Draft) -> Option<&'static str> {
    Some(match keyword {
        "unevaluatedProperties" if draft != Draft::Draft7 => "unevaluatedProperties",
        "unevaluatedItems" if draft != Draft::Draft7 => "unevaluatedItems",
        "$dynamicRef" if draft != Draft::Draft7 => "$dynamicRef",
        "contentMediaType" if draft == Draft::Draft7 => "contentMediaType",
        "contentEncoding" if draft == Draft::Draft7 => "contentEncoding",
        _ => return None,
    })
}

fn has_inner_ids(value: &Value, is_root: bool) -> bool {
    match value {
        Value::Object(members) => members.iter().any(|(key, member)| {
            (!is_root && key == "$id" && member.is_string()) || has_inner_ids(member, false)
        }),
        Value::Array(items) => items.iter().any(|item| has_inner_ids(item, false)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn percent_decoded(fragment: &str) -> Option<String> {
    if !fragment.contains('%') {
        return Some(fragment.to_owned());
    }
    let bytes = fragment.as_bytes();
    let (mut decoded, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        if bytes[at] == b'%' {
            let digits = std::str::from_utf8(bytes.get(at + 1..at + 3)?).ok()?;
            decoded.push(u8::from_str_radix(digits, 16).ok()?);
            at += 3;
        } else {
            decoded.push(bytes[at]);
            at += 1;
        }
    }
    String::from_utf8(decoded).ok()
}
