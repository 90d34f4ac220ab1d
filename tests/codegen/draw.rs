//! Bytes in; an agent whose names, descriptions and schemas want out of their place, out. Any bytes give some agent.

use capd::codegen::{Agent, Capability, Schema};
use serde_json::{Map, Value, json};

/// What texts are put together from. Each that could begin or end something has a `$` beside it, which no code of ours has.
const PIECES: &[&str] = &[
    "*/$",
    "/*$",
    "\"\"\"$",
    "'''$",
    "`$",
    "\"$",
    "'$",
    "\\$",
    "\\\"$",
    "\n$",
    "\r$",
    "\r\n$",
    "\u{2028}$",
    "\u{2029}$",
    "\u{85}$",
    "\u{c}$",
    "\0$",
    "\u{202e}$",
    "\u{200b}$",
    "//$",
    "#$",
    "${x}",
    "{$}",
    "\u{feff}$",
    "日本",
    "größe",
    "😀$",
    "e\u{301}",
    "a",
    "B",
    "2",
    "-",
    "_",
    " ",
    "  ",
    "~",
    "/",
    ".",
    "..",
    ",",
    "@ts-ignore",
    "@ts-expect-error",
    "type: ignore",
    "mypy: ignore-errors",
    "+build ignore",
    "go:build ignore",
    "```",
    "~~~",
    ">>> $",
    "\t$",
    "]]>$",
    "?>$",
    "<!--$",
    "*$",
    "\\u{22}$",
    "\\n$",
    "%2F",
    "$ref",
    "class",
    "self",
    "Self",
    "type",
    "fn",
    "func",
    "def",
    "import",
    "None",
    "null",
    "true",
    "constructor",
    "__proto__",
    "Option",
    "any",
    "object",
    "Client",
    "Schema",
    "value",
    "field",
    "more",
];

/// Bytes that are drawn from; none are left at the end, and zero is drawn from there on.
pub(crate) struct Draw<'b>(pub(crate) &'b [u8]);

impl Draw<'_> {
    fn below(&mut self, limit: usize) -> usize {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        usize::from(*first) % limit
    }

    fn text(&mut self) -> String {
        let count = self.below(5);
        (0..count).map(|_| PIECES[self.below(PIECES.len())]).collect()
    }

    fn list<T>(&mut self, most: usize, mut one: impl FnMut(&mut Self) -> T) -> Vec<T> {
        let count = self.below(most + 1);
        (0..count).map(|_| one(self)).collect()
    }

    fn value(&mut self, depth: usize) -> Value {
        match self.below(if depth > 2 { 5 } else { 7 }) {
            0 => Value::Null,
            1 => true.into(),
            2 => json!(self.below(200) as i64 - 100),
            3 => json!(self.below(200) as f64 / 8.0),
            4 => self.text().into(),
            5 => self.list(3, |draw| draw.value(depth + 1)).into(),
            _ => {
                Value::Object(self.list(3, |draw| (draw.text(), draw.value(depth + 1))).into_iter().collect())
            }
        }
    }

    fn schema(&mut self, depth: usize, names: &[String]) -> Value {
        let mut schema = Map::new();
        let inner = |draw: &mut Self| draw.schema(depth + 1, names);
        let kind = self.below(if depth > 4 { 6 } else { 14 });
        match kind {
            0 => return (self.below(2) == 0).into(),
            1 => drop(schema.insert("type".into(), json!(TYPES[self.below(TYPES.len())]))),
            2 => {
                let types: std::collections::BTreeSet<_> =
                    self.list(3, |draw| TYPES[draw.below(TYPES.len())]).into_iter().collect();
                schema.insert("type".into(), json!(types));
            }
            3 => drop(schema.insert("enum".into(), self.list(6, |draw| draw.value(0)).into())),
            4 => drop(schema.insert("const".into(), self.value(0))),
            5 | 6 if !names.is_empty() => {
                let name = &names[self.below(names.len())];
                let step = name.replace('~', "~0").replace('/', "~1").replace('%', "%25");
                schema.insert("$ref".into(), format!("#/definitions/{step}").into());
            }
            5..=9 => {
                let members = self.list(4, |draw| (draw.text(), draw.schema(depth + 1, names)));
                if self.below(8) != 0 {
                    schema.insert("type".into(), "object".into());
                }
                let required: std::collections::BTreeSet<_> =
                    members.iter().map(|(name, _)| name.clone()).filter(|_| self.below(2) == 0).collect();
                schema.insert("required".into(), json!(required));
                schema.insert("properties".into(), Value::Object(members.into_iter().collect()));
                match self.below(4) {
                    0 => drop(schema.insert("additionalProperties".into(), false.into())),
                    1 => drop(schema.insert("additionalProperties".into(), inner(self))),
                    _ => {}
                }
            }
            10 => {
                schema.insert("type".into(), "array".into());
                schema.insert("items".into(), inner(self));
            }
            11 => drop(schema.insert("oneOf".into(), self.list(4, inner).into())),
            12 => drop(schema.insert("anyOf".into(), self.list(4, inner).into())),
            _ => drop(schema.insert("allOf".into(), self.list(4, inner).into())),
        }
        if self.below(3) == 0 {
            schema.insert("description".into(), self.text().into());
        }
        if self.below(40) == 1 {
            schema.insert("if".into(), true.into());
        }
        schema.into()
    }

    fn side(&mut self) -> Option<Schema> {
        if self.below(8) == 1 {
            return None;
        }
        let names: Vec<_> = self.list(3, Self::text);
        let definitions: Map<_, _> =
            names.iter().map(|name| (name.clone(), self.schema(1, &names))).collect();
        let mut schema = self.schema(0, &names);
        if let Value::Object(members) = &mut schema {
            members.insert("definitions".into(), definitions.into());
        }
        Some(Schema::read(schema.to_string().as_bytes()).unwrap())
    }

    pub(crate) fn agent(&mut self) -> Agent {
        let name = (self.below(8) != 1)
            .then(|| ["agent://", "did:key:", "", "../../", "/"][self.below(5)].to_owned() + &self.text());
        let count = 1 + self.below(3);
        let mut capabilities = Vec::new();
        for _ in 0..count {
            let label = LABELS[self.below(LABELS.len())];
            let id = format!(
                "org.{}.{label}:{}",
                ["a", "b"][self.below(2)],
                ["1.0.0", "0.1.2", "2.0.0-rc.1"][self.below(3)]
            );
            capabilities.push(Capability {
                id: id.parse().unwrap(),
                description: (self.below(4) != 1).then(|| self.text() + &self.text()),
                input: self.side(),
                output: self.side(),
            });
        }
        Agent { name, capabilities }
    }
}

const TYPES: &[&str] = &["null", "boolean", "integer", "number", "string", "array", "object"];
const LABELS: &[&str] = &[
    "a-b",
    "A-B",
    "a-b-request",
    "2fa",
    "class",
    "import",
    "func",
    "fn",
    "delete",
    "undefined",
    "client",
    "capabilities",
    "self",
    "type",
    "list",
    "str",
    "int",
    "object",
    "never",
    "schema",
    "main",
    "async",
    "yield",
    "v1",
    "a",
];
