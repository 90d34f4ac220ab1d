//! Compiles a schema document into a table of shapes, each schema once.

use std::collections::HashMap;
use std::ptr;

use jsonschema::Draft;
use serde_json::{Map, Value};

use super::{
    ANY, ARRAY, FALSE, FLOAT, INTEGER, Key, Literals, NEVER, NULL, OBJECT, Property, Quick, STRING, Shape,
    TRUE, Text,
};

impl Quick {
    /// The shapes of a document whose depth is bounded and whose references lead inside; `None` where nothing could be
    /// decided.
    pub(crate) fn compile(document: &Value, draft: Draft) -> Option<Self> {
        if holds_resource(document, true) {
            return None;
        }
        let mut compiler = Compiler {
            document,
            draft,
            shapes: vec![Shape::any(), Shape::never()],
            known: HashMap::new(),
            pending: Vec::new(),
            parts_left: PARTS_MAX,
        };
        let root = compiler.shape_of(document);
        while let Some((at, members)) = compiler.pending.pop() {
            compiler.shapes[at as usize] = compiler.shape(members).unwrap_or(Shape::never());
        }
        let mut shapes = compiler.shapes.into_boxed_slice();
        // What a shape refers to mostly stands behind it.
        for at in (0..shapes.len()).rev() {
            if shapes[at].asks_for_undecided(&shapes) {
                shapes[at] = Shape::never();
            }
        }
        (shapes[root as usize].types != 0).then_some(Self { shapes, root })
    }
}

impl Shape {
    /// Whether each value of it has a member that nothing decides.
    fn asks_for_undecided(&self, shapes: &[Self]) -> bool {
        let undecided = |property: &Property| shapes[property.shape as usize].types == 0;
        self.types == OBJECT
            && self.properties.iter().any(|property| property.required != 0 && undecided(property))
    }
}

/// Shapes by the schemas they are of. A document's depth bounds nothing that follows references, so this follows none:
/// what is met is put down, and taken up in its turn.
struct Compiler<'s> {
    document: &'s Value,
    draft: Draft,
    shapes: Vec<Shape>,
    /// By the address of a schema.
    known: HashMap<*const Value, u32>,
    /// Shapes that are still to be made.
    pending: Vec<(u32, &'s Map<String, Value>)>,
    /// Shapes, properties and literals that may still be made.
    parts_left: usize,
}

impl<'s> Compiler<'s> {
    /// Where the shape of a schema stands, or will.
    fn shape_of(&mut self, schema: &'s Value) -> u32 {
        match self.target(schema) {
            Some(Value::Bool(true)) => ANY,
            Some(Value::Object(members)) if members.keys().all(|keyword| asserts_nothing(keyword)) => ANY,
            Some(target @ Value::Object(members)) => {
                if let Some(known) = self.known.get(&ptr::from_ref(target)) {
                    return *known;
                }
                if self.take(1).is_none() {
                    return NEVER;
                }
                let at = self.shapes.len() as u32;
                self.shapes.push(Shape::never());
                self.known.insert(target, at);
                self.pending.push((at, members));
                at
            }
            Some(_) | None => NEVER,
        }
    }

    /// Takes so many parts of those that may be made, if there are as many.
    fn take(&mut self, parts: usize) -> Option<()> {
        self.parts_left = self.parts_left.checked_sub(parts)?;
        Some(())
    }

    /// The schema that this one refers to, or itself; `None` where that is beyond what is followed.
    fn target(&self, schema: &'s Value) -> Option<&'s Value> {
        let mut at = schema;
        // So a value meets one schema, in a bounded number of steps, and a circle of references none.
        for _ in 0..REFERENCES_MAX {
            let Value::Object(members) = at else { return Some(at) };
            let Some(reference) = members.get("$ref") else { return Some(at) };
            let is_beside = |keyword: &String| keyword != "$ref" && !asserts_nothing(keyword);
            // Draft-07 reads nothing beside a reference.
            if self.draft != Draft::Draft7 && members.keys().any(is_beside) {
                return None;
            }
            at = self.definition(reference.as_str()?)?;
        }
        None
    }

    fn definition(&self, reference: &str) -> Option<&'s Value> {
        if reference == "#" {
            return Some(self.document);
        }
        let (within, name) = reference.strip_prefix("#/")?.split_once('/')?;
        // A name with none of these stands for itself.
        if !matches!(within, "$defs" | "definitions") || name.contains(['/', '~', '%']) {
            return None;
        }
        self.document.get(within)?.get(name)
    }

    /// The shape of a schema that is an object; `None` where a keyword is not of those that are decided.
    fn shape(&mut self, members: &'s Map<String, Value>) -> Option<Shape> {
        let mut shape = Shape::any();
        for (keyword, value) in members {
            match keyword.as_str() {
                "type" => shape.types &= types(value)?,
                "enum" => self.literals(&mut shape, value.as_array()?)?,
                "const" => self.literals(&mut shape, std::slice::from_ref(value))?,
                "minimum" => shape.integers.0 = shape.integers.0.max(integer(value)?),
                "maximum" => shape.integers.1 = shape.integers.1.min(integer(value)?),
                "exclusiveMinimum" => shape.integers.0 = shape.integers.0.max(integer(value)? + 1),
                "exclusiveMaximum" => shape.integers.1 = shape.integers.1.min(integer(value)? - 1),
                "minLength" => shape.chars.min = value.as_u64()?,
                "maxLength" => shape.chars.max = value.as_u64()?,
                "minItems" => shape.items.min = value.as_u64()?,
                "maxItems" => shape.items.max = value.as_u64()?,
                "minProperties" => shape.members.min = value.as_u64()?,
                "maxProperties" => shape.members.max = value.as_u64()?,
                "items" => shape.item = self.shape_of(value),
                "additionalProperties" => shape.additional = self.shape_of(value),
                // Beside each other, these are of one table.
                "properties" | "required" => {}
                keyword if asserts_nothing(keyword) => {}
                _ => return None,
            }
        }
        if shape.integers != (i128::MIN, i128::MAX) {
            // A float is held against no bound.
            shape.types &= !FLOAT;
        }
        self.properties(&mut shape, members)?;
        Some(shape)
    }

    fn literals(&mut self, shape: &mut Shape, values: &[Value]) -> Option<()> {
        // Anything but texts alone is compared one by one, by steps of which a check has so many for each value.
        let is_long = values.len() > MIXED_LITERALS_MAX && !values.iter().all(Value::is_string);
        if is_long || shape.literals.is_some() {
            return None;
        }
        self.take(values.len())?;
        let mut literals = Literals::default();
        let mut types = 0;
        for value in values {
            types |= match value {
                Value::Null => NULL,
                Value::Bool(false) => FALSE,
                Value::Bool(true) => TRUE,
                Value::String(text) => {
                    literals.texts.push(Text::of(text));
                    STRING
                }
                Value::Number(_) => match integer(value) {
                    Some(integer) => {
                        literals.integers.push(integer);
                        INTEGER
                    }
                    None => 0,
                },
                // Neither containers nor floats are compared.
                Value::Array(_) | Value::Object(_) => 0,
            };
        }
        literals.texts.sort_unstable_by(|a, b| a.cmp(&b.bytes));
        literals.integers.sort_unstable();
        shape.types &= types;
        shape.literals = Some(Box::new(literals));
        Some(())
    }

    /// The table of what `properties` and `required` say.
    fn properties(&mut self, shape: &mut Shape, members: &'s Map<String, Value>) -> Option<()> {
        let required = match members.get("required") {
            Some(names) => names.as_array()?.iter().map(Value::as_str).collect::<Option<Vec<_>>>()?,
            None => Vec::new(),
        };
        if required.len() > u64::BITS as usize {
            return None;
        }
        let declared = match members.get("properties") {
            Some(properties) => Some(properties.as_object()?),
            None => None,
        };
        self.take(declared.map_or(0, Map::len) + required.len())?;
        let mut shapes: HashMap<_, _> = required.iter().map(|name| (*name, shape.additional)).collect();
        for (name, schema) in declared.into_iter().flatten() {
            shapes.insert(name, self.shape_of(schema));
        }
        let bit = |name: &str| required.iter().position(|one| *one == name).map_or(0, |at| 1 << at);
        let property = |(name, shape): (&str, u32)| Property {
            name: Text::of(name),
            key: Key::of(name),
            shape,
            required: bit(name),
        };
        let mut properties: Vec<_> = shapes.into_iter().map(property).collect();
        properties.sort_unstable_by(|a, b| a.name.cmp(&b.name.bytes));
        shape.required = properties.iter().fold(0, |bits, property| bits | property.required);
        shape.properties = properties.into();
        Some(())
    }
}

/// Whether a keyword tells of a schema, or keeps others in store for references.
fn asserts_nothing(keyword: &str) -> bool {
    matches!(
        keyword,
        "$schema"
            | "$id"
            | "$anchor"
            | "$comment"
            | "$defs"
            | "definitions"
            | "title"
            | "description"
            | "default"
            | "examples"
            | "deprecated"
            | "readOnly"
            | "writeOnly"
    )
}

/// Whether a schema inside a document may be one of its own: references in it then start elsewhere.
fn holds_resource(value: &Value, is_root: bool) -> bool {
    let is_named = |keyword: &&str| value.get(*keyword).is_some_and(Value::is_string);
    match value {
        Value::Object(members) => {
            (!is_root && ["$id", "$schema"].iter().any(is_named))
                || members.values().any(|member| holds_resource(member, false))
        }
        Value::Array(items) => items.iter().any(|item| holds_resource(item, false)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

fn types(named: &Value) -> Option<u8> {
    match named {
        Value::String(name) => TYPES.iter().find(|(one, _)| one == name).map(|(_, types)| *types),
        Value::Array(names) => names.iter().try_fold(0, |all, name| Some(all | types(name)?)),
        _ => None,
    }
}

fn integer(number: &Value) -> Option<i128> {
    number.as_i64().map(i128::from).or_else(|| number.as_u64().map(i128::from))
}

/// A float may be an integer by its value, which is not looked at.
const TYPES: [(&str, u8); 7] = [
    ("null", NULL),
    ("boolean", FALSE | TRUE),
    ("integer", INTEGER),
    ("number", INTEGER | FLOAT),
    ("string", STRING),
    ("array", ARRAY),
    ("object", OBJECT),
];

/// Shapes, properties and literals of a document, which bounds their memory; more of them make no table.
const PARTS_MAX: usize = 4_096;
/// References that are followed from one to the next.
const REFERENCES_MAX: usize = 16;
/// Values of an `enum` that holds more than texts.
const MIXED_LITERALS_MAX: usize = 32;
