//! Reads a schema document into the shapes of its root and of everything it refers to.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::model::{
    Additional, Bounds, Definition, Document, Node, Object, Property, Shape, distinct, union,
};
use super::types::Types;

/// Reads a document whose depth is bounded.
pub(super) fn document(root: &Value) -> Document {
    let mut reader = Reader { root, targets: vec![String::new()], fuel: FUEL };
    let mut definitions = Vec::new();
    // References are found while their definitions are read, and each is read once.
    while let Some(pointer) = reader.targets.get(definitions.len()).cloned() {
        let node = match root.pointer(&pointer) {
            Some(schema) => reader.schema(schema, &format!("#{pointer}"), Types::ALL, 0),
            None => Node::new(&format!("#{pointer}"), Shape::Unsaid("the reference leads nowhere".into())),
        };
        let label = pointer.rsplit('/').next().unwrap_or_default().replace("~1", "/").replace("~0", "~");
        definitions.push(Definition { label, node, is_recursive: false });
    }
    cut_circles(&mut definitions);
    mark_recursive(&mut definitions);
    Document { definitions }
}

struct Reader<'s> {
    root: &'s Value,
    /// Pointers of what has been referred to, in the order in which it was met.
    targets: Vec<String>,
    /// Steps that looking through references may still take; without any left, less is known of a value's type.
    fuel: usize,
}

impl<'s> Reader<'s> {
    fn schema(&mut self, schema: &'s Value, pointer: &str, allowed: Types, depth: usize) -> Node {
        let members = match schema {
            Value::Bool(true) => return Node::new(pointer, Shape::Any),
            Value::Bool(false) => return Node::new(pointer, Shape::Never),
            Value::Object(members) => members,
            _ => return Node::new(pointer, Shape::Unsaid("this is no schema".into())),
        };
        let shape = match unread(members, pointer) {
            _ if depth > DEPTH_MAX => Shape::Unsaid(format!("it is nested deeper than {DEPTH_MAX} levels")),
            Some(reason) => Shape::Unsaid(reason),
            None => self.shape(members, pointer, allowed, depth),
        };
        let text =
            |name: &str| members.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
        let description = text("description").or_else(|| text("title")).map(str::to_owned);
        Node { pointer: pointer.to_owned(), description, shape }
    }

    fn shape(
        &mut self,
        members: &'s Map<String, Value>,
        pointer: &str,
        allowed: Types,
        depth: usize,
    ) -> Shape {
        let types = allowed & self.types(members, 0);
        if let Some(values) = literals(members) {
            return of_literals(pointer, values.into_iter().filter(|value| types.has(value)).collect());
        }
        let mut parts = Vec::new();
        if let Some(reference) = members.get("$ref") {
            let shape = match self.target(reference) {
                Some(at) => Shape::Named(at),
                None => Shape::Unsaid(format!("{reference} leads outside the document")),
            };
            parts.push(Node::new(pointer, shape));
        }
        for (at, part) in list(members, "allOf").iter().enumerate() {
            parts.push(self.schema(part, &format!("{pointer}/allOf/{at}"), types, depth + 1));
        }
        for keyword in ["anyOf", "oneOf"] {
            if !members.contains_key(keyword) {
                continue;
            }
            let branches = list(members, keyword).iter().enumerate();
            let branches: Vec<_> = branches
                .map(|(at, branch)| {
                    self.schema(branch, &format!("{pointer}/{keyword}/{at}"), types, depth + 1)
                })
                .collect();
            let pointer = format!("{pointer}/{keyword}");
            parts.push(Node::new(&pointer, union(&pointer, branches)));
        }
        let says_parts = PARTS.iter().any(|keyword| members.contains_key(*keyword));
        parts.retain(|part| part.shape != Shape::Any);
        if parts.is_empty() || says_parts {
            // What the other parts say of the type is known here, and this says the rest.
            let own = self.own(members, pointer, types, depth);
            if own != Shape::Any {
                parts.insert(0, Node::new(pointer, own));
            }
        }
        all(parts)
    }

    /// What the keywords say that are about this value's own type and parts.
    fn own(&mut self, members: &'s Map<String, Value>, pointer: &str, types: Types, depth: usize) -> Shape {
        if types == Types::ALL {
            let part = PARTS.iter().chain(&["not"]).find(|keyword| members.contains_key(**keyword));
            return match part {
                Some(keyword) => {
                    Shape::Unsaid(format!("without a type, {keyword} leaves open what a value is"))
                }
                None => Shape::Any,
            };
        }
        let mut shapes = Vec::new();
        for (of, name) in Types::EACH {
            // Every integer is a number, and one word for both is enough.
            if !types.contains(of) || (of == Types::INTEGER && types.contains(Types::NUMBER)) {
                continue;
            }
            let shape = match name {
                "null" => Shape::Null,
                "boolean" => Shape::Boolean,
                "integer" => Shape::Integer(bounds(members)),
                "number" => Shape::Number,
                "string" => Shape::String,
                "array" => Shape::Array(Box::new(match members.get("items") {
                    Some(items) => self.schema(items, &format!("{pointer}/items"), Types::ALL, depth + 1),
                    None => Node::new(pointer, Shape::Any),
                })),
                _ => Shape::Object(self.object(members, pointer, depth)),
            };
            shapes.push(Node::new(pointer, shape));
        }
        union(pointer, shapes)
    }

    fn object(&mut self, members: &'s Map<String, Value>, pointer: &str, depth: usize) -> Object {
        let required = list(members, "required");
        let is_required = |name: &str| required.iter().any(|one| one.as_str() == Some(name));
        let mut properties = BTreeMap::new();
        if let Some(Value::Object(declared)) = members.get("properties") {
            for (name, schema) in declared {
                let pointer = format!("{pointer}/properties/{}", escaped(name));
                let node = self.schema(schema, &pointer, Types::ALL, depth + 1);
                properties.insert(name.clone(), Property { node, is_required: is_required(name) });
            }
        }
        let additional = match members.get("additionalProperties") {
            None | Some(Value::Bool(true)) => Additional::Open,
            Some(Value::Bool(false)) => Additional::Closed,
            Some(schema) => {
                let pointer = format!("{pointer}/additionalProperties");
                Additional::Of(Box::new(self.schema(schema, &pointer, Types::ALL, depth + 1)))
            }
        };
        for name in required.iter().filter_map(Value::as_str) {
            let shape = || match &additional {
                Additional::Open => Node::new(pointer, Shape::Any),
                Additional::Closed => Node::new(pointer, Shape::Never),
                Additional::Of(node) => Node::clone(node),
            };
            let property = || Property { node: shape(), is_required: true };
            properties.entry(name.to_owned()).or_insert_with(property);
        }
        Object { properties, additional }
    }

    /// The types that a value may have, as far as is seen without looking into its parts.
    fn types(&mut self, members: &'s Map<String, Value>, depth: usize) -> Types {
        if self.fuel == 0 || depth > TYPES_DEPTH_MAX {
            return Types::ALL;
        }
        self.fuel -= 1;
        let mut types = members.get("type").map_or(Types::ALL, Types::named);
        if let Some(values) = literals(members) {
            types = types & values.iter().fold(Types::NONE, |types, value| types | Types::of(value));
        }
        for part in list(members, "allOf") {
            types = types & self.types_of(part, depth + 1);
        }
        for keyword in ["anyOf", "oneOf"] {
            if members.contains_key(keyword) {
                let branches = list(members, keyword);
                let any =
                    branches.iter().fold(Types::NONE, |types, one| types | self.types_of(one, depth + 1));
                types = types & any;
            }
        }
        if let Some(schema) = members.get("$ref").and_then(|reference| self.referred(reference)) {
            types = types & self.types_of(schema, depth + 1);
        }
        types
    }

    fn types_of(&mut self, schema: &'s Value, depth: usize) -> Types {
        match schema {
            Value::Bool(false) => Types::NONE,
            Value::Object(members) => self.types(members, depth),
            _ => Types::ALL,
        }
    }

    fn referred(&self, reference: &Value) -> Option<&'s Value> {
        self.root.pointer(&local(reference)?)
    }

    /// The number of the definition that a reference leads to; `None` for one that leads outside.
    fn target(&mut self, reference: &Value) -> Option<usize> {
        let pointer = local(reference)?;
        self.root.pointer(&pointer)?;
        let known = self.targets.iter().position(|known| *known == pointer);
        Some(known.unwrap_or_else(|| {
            self.targets.push(pointer);
            self.targets.len() - 1
        }))
    }
}

/// The pointer of a reference into its own document.
fn local(reference: &Value) -> Option<String> {
    let fragment = percent_decoded(reference.as_str()?.strip_prefix('#')?)?;
    (fragment.is_empty() || fragment.starts_with('/')).then_some(fragment)
}

/// The text of a URI's fragment.
fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first == b'%' {
            let digits = std::str::from_utf8(rest.get(..2)?).ok()?;
            bytes.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}

/// Why a schema is not read: it has a keyword that changes what the strict ones say, or that nothing here knows.
fn unread(members: &Map<String, Value>, pointer: &str) -> Option<String> {
    let foreign = members.iter().find(|(name, value)| match name.as_str() {
        "$id" | "$schema" => pointer != "#",
        "items" => value.is_array(),
        name => !STRICT.contains(&name) && !REMARKS.contains(&name),
    });
    foreign.map(|(name, _)| format!("the keyword {name} is not of the strict profile"))
}

/// The values that `enum` and `const` leave.
fn literals(members: &Map<String, Value>) -> Option<Vec<Value>> {
    let listed = members.get("enum").and_then(Value::as_array);
    match (listed, members.get("const")) {
        (None, None) => None,
        (Some(values), None) => Some(distinct(values.clone())),
        (None, Some(value)) => Some(vec![value.clone()]),
        (Some(values), Some(value)) => {
            Some(if values.contains(value) { vec![value.clone()] } else { Vec::new() })
        }
    }
}

fn of_literals(pointer: &str, values: Vec<Value>) -> Shape {
    let (nulls, values): (Vec<_>, Vec<_>) = values.into_iter().partition(Value::is_null);
    let null = (!nulls.is_empty()).then(|| Node::new(pointer, Shape::Null));
    let values = (!values.is_empty()).then(|| Node::new(pointer, Shape::Literals(values)));
    union(pointer, values.into_iter().chain(null).collect())
}

/// Brings parts that all hold into one shape.
pub(super) fn all(parts: Vec<Node>) -> Shape {
    let mut seen: Vec<Node> = Vec::new();
    for part in parts {
        match &part.shape {
            Shape::Any => {}
            Shape::Never => return Shape::Never,
            _ if seen.iter().any(|other| super::model::is_same(other, &part)) => {}
            _ => seen.push(part),
        }
    }
    match <[Node; 1]>::try_from(seen) {
        Ok([one]) => one.shape,
        Err(seen) if seen.is_empty() => Shape::Any,
        Err(seen) => Shape::All(seen),
    }
}

fn bounds(members: &Map<String, Value>) -> Bounds {
    let number = |name: &str| members.get(name).and_then(Value::as_f64);
    let tighter = |a: Option<f64>, b: Option<f64>, pick: fn(f64, f64) -> f64| match (a, b) {
        (Some(a), Some(b)) => Some(pick(a, b)),
        (a, b) => a.or(b),
    };
    Bounds {
        min: tighter(number("minimum"), number("exclusiveMinimum"), f64::max),
        max: tighter(number("maximum"), number("exclusiveMaximum"), f64::min),
    }
}

fn list<'s>(members: &'s Map<String, Value>, name: &str) -> &'s [Value] {
    members.get(name).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

/// A key as a step of a JSON pointer.
fn escaped(key: &str) -> String {
    key.replace('~', "~0").replace('/', "~1")
}

/// Definitions that lead back to themselves on the same value say nothing, and no type can be made of them.
fn cut_circles(definitions: &mut [Definition]) {
    let steps: Vec<Vec<usize>> = definitions
        .iter()
        .map(|definition| {
            let mut to = Vec::new();
            definition.node.in_place(&mut |node| to.extend(named(node)));
            to
        })
        .collect();
    for at in reaching_themselves(&steps) {
        definitions[at].node.shape =
            Shape::Unsaid("it leads back to itself on the same value, so nothing decides".into());
    }
}

fn mark_recursive(definitions: &mut [Definition]) {
    let steps: Vec<Vec<usize>> = definitions
        .iter()
        .map(|definition| {
            let mut to = Vec::new();
            definition.node.each(false, &mut |node| to.extend(named(node)));
            to
        })
        .collect();
    for at in reaching_themselves(&steps) {
        definitions[at].is_recursive = true;
    }
}

fn named(node: &Node) -> Option<usize> {
    match node.shape {
        Shape::Named(at) => Some(at),
        _ => None,
    }
}

/// Those from which steps lead back to where they began.
pub(super) fn reaching_themselves(steps: &[Vec<usize>]) -> Vec<usize> {
    let reaches = |start: usize| {
        let mut seen = vec![false; steps.len()];
        let mut open = steps[start].clone();
        while let Some(at) = open.pop() {
            if at == start {
                return true;
            }
            if !std::mem::replace(&mut seen[at], true) {
                open.extend(&steps[at]);
            }
        }
        false
    };
    (0..steps.len()).filter(|start| reaches(*start)).collect()
}

/// Deepest nesting that is read; a document has at most 127 levels of any kind.
const DEPTH_MAX: usize = 128;
/// How far types are looked for through references and branches.
const TYPES_DEPTH_MAX: usize = 32;
/// Steps that looking for types may take in one document.
const FUEL: usize = 200_000;
/// Keywords about the parts of a value.
const PARTS: &[&str] = &["properties", "required", "additionalProperties", "items"];
/// The keywords of the strict profile.
const STRICT: &[&str] = &[
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "minLength",
    "maxLength",
    "pattern",
    "minItems",
    "maxItems",
    "uniqueItems",
    "oneOf",
    "anyOf",
    "allOf",
    "not",
    "$ref",
    "format",
    "title",
    "description",
    "default",
    "examples",
    "definitions",
];
/// Keywords beyond it that assert nothing, or that only narrow one value and no part of it.
const REMARKS: &[&str] = &[
    "$comment",
    "$defs",
    "readOnly",
    "writeOnly",
    "deprecated",
    "multipleOf",
    "minProperties",
    "maxProperties",
    "contentEncoding",
    "contentMediaType",
];
