//! Writes a plan as a Python module.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use super::Generated;
use super::merge::{Fuel, settled, settled_document};
use super::model::{Additional, Document, Node, Object, Shape};
use super::names::{Names, pascal};
use super::plan::{Call, Plan, no_type, unsaid};
use super::source::Schema;
use super::text::{Escapes, comment_lines, literal};

/// Writes the module.
pub(super) fn file(plan: &Plan<'_>) -> Generated {
    let mut module = Module::default();
    let mut body = String::new();
    let mut aggregate = String::new();
    for call in &plan.calls {
        let request = module.names.claim(&(call.pascal() + "Request"), "Request");
        let response = module.names.claim(&(call.pascal() + "Response"), "Response");
        for (name, document) in [(&request, &call.input), (&response, &call.output)] {
            body += &module.side(name, document.as_ref());
        }
        let exchange = module.names.claim(&(call.pascal() + "Types"), "Types");
        let _ = write!(
            body,
            "{exchange} = TypedDict({}, {{\"request\": {request}, \"response\": {response}}})\n\n\n",
            quoted(&exchange)
        );
        let _ = writeln!(aggregate, "    {}: {exchange},", quoted(&call.key));
        body += &module.functions(call, &request, &response);
    }
    let never =
        module.never.iter().map(|name| format!("class {name}(Enum):\n    \"\"\"No value.\"\"\"\n\n\n"));
    body.insert_str(0, &never.collect::<String>());
    let enums = if module.never.is_some() { "from enum import Enum\n" } else { "" };
    module.typing.extend(["Optional", "TypedDict", "cast"]);
    let imports: Vec<_> = module.typing.iter().copied().collect();
    let header: String =
        plan.header().iter().map(|line| format!("# {line}").trim_end().to_owned() + "\n").collect();
    let text = format!(
        "{header}\nfrom __future__ import annotations\n\n{enums}from typing import {}\n\n\
         from capd import AsyncClient, BuiltAgainst, Client, Schema\n\n\n\
         {body}#: Every capability, with the types of its params and its result.\n\
         Capabilities = TypedDict(\"Capabilities\", {{\n{aggregate}}})\n",
        imports.join(", ")
    );
    // A module is imported by its name, so that it is one, and no word of the language.
    let stem = Names::new(&[KEYWORDS]).claim(&plan.stem().join("_"), "agent");
    Generated { path: format!("{stem}.py").into(), text }
}

#[derive(Debug)]
struct Module {
    names: Names,
    /// What is imported of `typing`.
    typing: BTreeSet<&'static str>,
    /// The type without a value, once something needs it.
    never: Option<String>,
    fuel: Fuel,
}

impl Default for Module {
    fn default() -> Self {
        Self {
            names: Names::new(&[KEYWORDS, USED]),
            typing: BTreeSet::new(),
            never: None,
            fuel: Fuel::default(),
        }
    }
}

impl Module {
    /// The types of one side.
    fn side(&mut self, name: &str, document: Option<&Document>) -> String {
        let Some(document) = document else {
            return format!("#: No schema is declared.\n{name} = object\n\n\n");
        };
        let document = &settled_document(document, &mut self.fuel);
        let mut names = BTreeMap::from([(0, name.to_owned())]);
        for (at, definition) in document.definitions.iter().enumerate().skip(1) {
            names.insert(at, self.names.claim(&format!("{name}{}", pascal(&definition.label)), "Definition"));
        }
        let mut side = Side { module: self, document, names, out: Vec::new(), notes: Vec::new() };
        for (at, definition) in document.definitions.iter().enumerate() {
            let name = side.names[&at].clone();
            side.define(&name, &definition.node);
        }
        side.out.concat()
    }

    fn never(&mut self) -> String {
        self.never.get_or_insert_with(|| self.names.claim("Never", "Never")).clone()
    }

    /// The schemas of a call, and the functions that make it.
    fn functions(&mut self, call: &Call<'_>, request: &str, response: &str) -> String {
        let function = self.names.claim(&call.snake(), "capability");
        let later = self.names.claim(&format!("{function}_async"), "capability_async");
        let contract =
            self.names.claim(&format!("_{}_BUILT_AGAINST", function.to_ascii_uppercase()), "_BUILT_AGAINST");
        let side = |schema: &Option<Schema>| match schema {
            None => "None".to_owned(),
            Some(schema) => {
                format!(
                    "Schema(\n        sha256=\"{}\",\n        json={},\n    )",
                    schema.sha256,
                    quoted(&schema.json)
                )
            }
        };
        let mut out = format!(
            "{contract} = BuiltAgainst(\n    input={},\n    output={},\n)\n\n\n",
            side(&call.capability.input),
            side(&call.capability.output)
        );
        let (name, range) = (quoted(call.capability.id.name.as_str()), quoted(&call.range));
        let doc = docstring(&call.doc());
        for (def, name_of, client, wait) in
            [("def", &function, "Client", ""), ("async def", &later, "AsyncClient", "await ")]
        {
            let _ = write!(
                out,
                "{def} {name_of}(\n    client: {client},\n    params: {request},\n    *,\n    \
                 version: Optional[str] = {range},\n    timeout: Optional[float] = None,\n    \
                 key: Optional[str] = None,\n    thread: Optional[str] = None,\n) -> {response}:\n{doc}    \
                 result = {wait}client.call(\n        {name},\n        params,\n        version=version,\n        \
                 timeout=timeout,\n        key=key,\n        thread=thread,\n        built_against={contract},\n    )\n    \
                 return cast({}, result)\n\n\n",
                quoted(response)
            );
        }
        out
    }
}

/// The types of one side, as they are written.
struct Side<'a> {
    module: &'a mut Module,
    document: &'a Document,
    /// Of each definition.
    names: BTreeMap<usize, String>,
    /// One text for each type, a type before those that it has parts of.
    out: Vec<String>,
    /// What the type that is being written leaves out.
    notes: Vec<String>,
}

impl Side<'_> {
    /// Writes a type that has this name.
    fn define(&mut self, name: &str, node: &Node) {
        let document = self.document;
        let node = settled(document, node, &mut self.module.fuel);
        let at = self.out.len();
        self.out.push(String::new());
        let notes = std::mem::take(&mut self.notes);
        let text = match &node.shape {
            Shape::Object(object) if is_record(object) => self.record(name, object),
            _ => {
                let text = self.of(&node, name);
                // A name alone, and None, would be a variable, not a type.
                let text = if text.starts_with('"') || text == "None" {
                    format!("{}[{text}]", self.typing("Union"))
                } else {
                    text
                };
                format!("{name} = {text}\n\n\n")
            }
        };
        let mut lines = comment_lines(node.description.as_deref().unwrap_or_default());
        lines.append(&mut self.notes);
        self.out[at] = comment(&lines, "") + &text;
        self.notes = notes;
    }

    fn typing(&mut self, name: &'static str) -> &'static str {
        self.module.typing.insert(name);
        name
    }

    /// The type of a node; a record gets a name made of `hint`. Names of types of this module are between quotes, because
    /// they may be declared further down.
    fn of(&mut self, node: &Node, hint: &str) -> String {
        let document = self.document;
        let node = settled(document, node, &mut self.module.fuel);
        let is_merged = matches!(node, Cow::Owned(_));
        self.module.fuel.enter(is_merged);
        let found = self.of_settled(&node, hint);
        self.module.fuel.leave(is_merged);
        found
    }

    fn of_settled(&mut self, node: &Node, hint: &str) -> String {
        match &node.shape {
            Shape::Any => "object".to_owned(),
            Shape::Unsaid(_) => {
                self.notes.extend(unsaid(node));
                "object".to_owned()
            }
            // A function cannot return NoReturn, but an enum without members.
            Shape::Never => quoted(&self.module.never()),
            Shape::Null => "None".to_owned(),
            Shape::Boolean => "bool".to_owned(),
            Shape::Integer(_) => "int".to_owned(),
            Shape::Number => "float".to_owned(),
            Shape::String => "str".to_owned(),
            Shape::Literals(values) => self.literals(values, &node.pointer),
            Shape::Array(items) => {
                let items = self.of(items, &format!("{hint}Item"));
                format!("{}[{items}]", self.typing("List"))
            }
            Shape::Object(object) if is_record(object) => {
                let name = self.module.names.claim(hint, "Record");
                self.define(&name, node);
                quoted(&name)
            }
            Shape::Object(object) => {
                let value = match &object.additional {
                    Additional::Of(value) if object.properties.is_empty() => {
                        self.of(value, &format!("{hint}Value"))
                    }
                    Additional::Of(_) => {
                        let reason = "Python has no record whose further members have one type";
                        self.notes.push(no_type(&node.pointer, reason));
                        "object".to_owned()
                    }
                    Additional::Open | Additional::Closed => "object".to_owned(),
                };
                format!("{}[str, {value}]", self.typing("Dict"))
            }
            Shape::Union(members) => {
                let mut texts: Vec<String> = Vec::new();
                for (at, member) in members.iter().enumerate() {
                    let text = self.of(member, &format!("{hint}Option{}", at + 1));
                    if !texts.contains(&text) {
                        texts.push(text);
                    }
                }
                if texts.iter().any(|text| text == "object") {
                    return "object".to_owned();
                }
                format!("{}[{}]", self.typing("Union"), texts.join(", "))
            }
            // Settling leaves none.
            Shape::All(_) => "object".to_owned(),
            Shape::Named(at) => quoted(&self.names[at]),
        }
    }

    fn literals(&mut self, values: &[Value], pointer: &str) -> String {
        let text = |value: &Value| match value {
            Value::Bool(true) => Some("True".to_owned()),
            Value::Bool(false) => Some("False".to_owned()),
            Value::Number(number) if number.is_i64() || number.is_u64() => Some(number.to_string()),
            Value::String(text) => Some(quoted(text)),
            Value::Null | Value::Number(_) | Value::Array(_) | Value::Object(_) => None,
        };
        let texts: Option<Vec<_>> = values.iter().map(text).collect();
        match texts {
            Some(texts) if texts.iter().map(|text| text.len() + 2).sum::<usize>() <= LINE_CHARS => {
                format!("{}[{}]", self.typing("Literal"), texts.join(", "))
            }
            Some(texts) => format!("{}[\n    {},\n]", self.typing("Literal"), texts.join(",\n    ")),
            None if values.iter().all(Value::is_number) => "float".to_owned(),
            None => {
                self.notes.push(no_type(pointer, "Python has no literal type for one of its values"));
                "object".to_owned()
            }
        }
    }

    /// A record; members that may be missing stand in a class of their own, which Python before 3.11 needs.
    fn record(&mut self, name: &str, object: &Object) -> String {
        self.typing("TypedDict");
        let mut required = String::new();
        let mut optional = String::new();
        for (member, property) in &object.properties {
            let text = self.of(&property.node, &format!("{name}{}", pascal(member)));
            let mut lines = comment_lines(property.node.description.as_deref().unwrap_or_default());
            // What a member leaves out is said beside it.
            lines.append(&mut self.notes);
            let out = if property.is_required { &mut required } else { &mut optional };
            let _ = writeln!(out, "{}    {}: {text},", comment(&lines, "    "), quoted(member));
        }
        let class = |name: &str, members: &str, total: &str| {
            format!("{name} = TypedDict({}, {{\n{members}}}{total})\n\n\n", quoted(name))
        };
        match (required.is_empty(), optional.is_empty()) {
            (_, true) => class(name, &required, ""),
            (true, false) => class(name, &optional, ", total=False"),
            (false, false) => {
                let base = self.module.names.claim(&format!("_{name}Required"), "_Required");
                let rest = self.module.names.claim(&format!("_{name}Optional"), "_Optional");
                class(&base, &required, "").trim_end().to_owned()
                    + "\n"
                    + class(&rest, &optional, ", total=False").trim_end()
                    + &format!("\n\n\nclass {name}({base}, {rest}):\n    pass\n\n\n")
            }
        }
    }
}

/// Whether an object has members of its own, and no others of a type of theirs.
fn is_record(object: &Object) -> bool {
    match &object.additional {
        Additional::Closed => true,
        Additional::Open => !object.properties.is_empty(),
        Additional::Of(_) => false,
    }
}

fn quoted(text: &str) -> String {
    literal(text, Escapes::Fixed)
}

/// Comments begin with `#:`, which neither the interpreter nor a type checker takes for an order, such as `# type: ignore`.
fn comment(lines: &[String], indent: &str) -> String {
    lines.iter().map(|line| format!("{indent}#: {line}").trim_end().to_owned() + "\n").collect()
}

fn docstring(lines: &[String]) -> String {
    // An example in a description is nothing that a test run should execute.
    let line = |line: &String| line.replace('\\', "\\\\").replace('"', "\\\"").replace(">>>", ">> >");
    let lines: Vec<_> = lines.iter().map(line).collect();
    match lines.as_slice() {
        [line] => format!("    \"\"\"{line}\"\"\"\n"),
        lines => format!("    \"\"\"{}\n    \"\"\"\n", lines.join("\n    ").replace("\n    \n", "\n\n")),
    }
}

/// How long a list of values may be on one line.
const LINE_CHARS: usize = 80;
/// Words of the language, hard and soft.
const KEYWORDS: &[&str] = &[
    "False", "None", "True", "and", "as", "assert", "async", "await", "break", "case", "class", "continue",
    "def", "del", "elif", "else", "except", "finally", "for", "from", "global", "if", "import", "in", "is",
    "lambda", "match", "nonlocal", "not", "or", "pass", "raise", "return", "try", "type", "while", "with",
    "yield", "__init__", "__main__", "_",
];
/// Names that the module uses itself.
const USED: &[&str] = &[
    "annotations",
    "AsyncClient",
    "BuiltAgainst",
    "Capabilities",
    "Client",
    "Dict",
    "List",
    "Literal",
    "Enum",
    "Optional",
    "Schema",
    "TypedDict",
    "Union",
    "bool",
    "cast",
    "float",
    "int",
    "object",
    "str",
];
