//! Writes a plan as a Rust module.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::Value;

use super::Generated;
use super::merge::{Fuel, settled, settled_document};
use super::model::{Additional, Bounds, Document, Node, Object, Shape};
use super::names::{Names, pascal, snake};
use super::plan::{Call, Plan, no_type, unsaid};
use super::read::reaching_themselves;
use super::source::Schema;
use super::text::{Escapes, comment_lines, literal};

mod union;

/// Writes the module.
pub(super) fn file(plan: &Plan<'_>) -> Generated {
    let mut module = Module { names: Names::new(&[KEYWORDS, USED]), fuel: Fuel::default(), never: None };
    let mut body = String::new();
    let mut aggregate = String::new();
    let mut fields = Names::new(&[KEYWORDS]);
    for call in &plan.calls {
        let request = module.names.claim(&(call.pascal() + "Request"), "Request");
        let response = module.names.claim(&(call.pascal() + "Response"), "Response");
        for (name, document) in [(&request, &call.input), (&response, &call.output)] {
            body += &module.side(name, document.as_ref());
        }
        let field = fields.claim(&call.snake(), "capability");
        let _ = writeln!(aggregate, "    /// `{}`", call.capability.id);
        let _ = writeln!(aggregate, "    pub {field}: ({request}, {response}),");
        body += &module.function(call, &request, &response);
    }
    if let Some(never) = &module.never {
        let _ = write!(body, "/// No value.\n{DERIVES}\npub enum {never} {{}}\n\n");
    }
    let header: String =
        plan.header().iter().map(|line| format!("// {line}").trim_end().to_owned() + "\n").collect();
    let text = format!(
        "{header}\n#![allow(dead_code, clippy::all, clippy::pedantic, missing_docs, non_camel_case_types, unreachable_pub)]\n\n\
         use capd_client::{{BuiltAgainst, CallOptions, Client, ClientError, Schema}};\n\n\
         {body}/// Every capability, with the types of its params and its result.\n\
         #[derive(Clone, Debug, PartialEq)]\npub struct Capabilities {{\n{aggregate}}}\n"
    );
    let stem = Names::new(&[KEYWORDS, FILES]).claim(&plan.stem().join("_"), "agent");
    Generated { path: format!("{stem}.rs").into(), text }
}

struct Module {
    names: Names,
    fuel: Fuel,
    /// The type without a value, once something needs it.
    never: Option<String>,
}

impl Module {
    /// The types of one side.
    fn side(&mut self, name: &str, document: Option<&Document>) -> String {
        let Some(document) = document else {
            return format!("/// No schema is declared.\npub type {name} = ::serde_json::Value;\n\n");
        };
        let document = &settled_document(document, &mut self.fuel);
        let mut names = BTreeMap::from([(0, name.to_owned())]);
        for (at, definition) in document.definitions.iter().enumerate().skip(1) {
            names.insert(at, self.names.claim(&format!("{name}{}", pascal(&definition.label)), "Definition"));
        }
        let steps = document.definitions.iter().map(|definition| {
            let mut steps = Vec::new();
            definition.node.each(true, &mut |node| {
                if let Shape::Named(at) = node.shape {
                    steps.push(at);
                }
            });
            steps
        });
        let circular = reaching_themselves(&steps.collect::<Vec<_>>()).into_iter().collect();
        let mut side = Side { module: self, document, names, circular, out: Vec::new(), notes: Vec::new() };
        for (at, definition) in document.definitions.iter().enumerate() {
            let name = side.names[&at].clone();
            side.define(&name, &definition.node, side.circular.contains(&at));
        }
        side.out.concat()
    }

    fn function(&mut self, call: &Call<'_>, request: &str, response: &str) -> String {
        let function = self.names.claim(&call.snake(), "capability");
        let contract = self.names.claim(&function.to_ascii_uppercase(), "CAPABILITY");
        let side = |schema: &Option<Schema>| match schema {
            None => "None".to_owned(),
            Some(schema) => format!(
                "Some(Schema {{\n        sha256: \"{}\",\n        json: {},\n    }})",
                schema.sha256,
                quoted(&schema.json)
            ),
        };
        let mut out = format!(
            "const {contract}: BuiltAgainst = BuiltAgainst {{\n    input: {},\n    output: {},\n}};\n\n",
            side(&call.capability.input),
            side(&call.capability.output)
        );
        out += &comment(&call.doc(), "");
        let (name, range) = (quoted(call.capability.id.name.as_str()), quoted(&call.range));
        let _ = write!(
            out,
            "pub async fn {function}(\n    client: &Client,\n    params: &{request},\n    options: CallOptions,\n\
             ) -> Result<{response}, ClientError> {{\n    \
             let version = options.version.or_else(|| Some({range}.to_owned()));\n    \
             let options = CallOptions {{ version, built_against: Some({contract}), ..options }};\n    \
             client.call_typed({name}, params, options).await\n}}\n\n"
        );
        out
    }

    fn never(&mut self) -> String {
        self.never.get_or_insert_with(|| self.names.claim("Never", "Never")).clone()
    }
}

struct Side<'a> {
    module: &'a mut Module,
    document: &'a Document,
    names: BTreeMap<usize, String>,
    /// Definitions that lead back to themselves in any way.
    circular: BTreeSet<usize>,
    /// One text for each type, a type before those that it has parts of.
    out: Vec<String>,
    /// What the type that is being written leaves out.
    notes: Vec<String>,
}

impl Side<'_> {
    /// Writes a type that has this name; an alias cannot name itself, so that a circular one is a type of its own.
    fn define(&mut self, name: &str, node: &Node, is_circular: bool) {
        let document = self.document;
        let node = settled(document, node, &mut self.module.fuel);
        let at = self.out.len();
        self.out.push(String::new());
        let notes = std::mem::take(&mut self.notes);
        let variants = match &node.shape {
            Shape::Union(members) if members.iter().all(|one| one.shape != Shape::Null) => {
                union::variants(document, members, &mut self.module.fuel)
            }
            _ => None,
        };
        let text = match (&node.shape, variants) {
            (Shape::Object(object), _) if is_record(object) => self.record(name, object),
            (Shape::Literals(values), _) if is_enum(values) => texts(name, values),
            (Shape::Union(members), Some(variants)) => self.choice(name, members, &variants),
            _ => {
                let text = self.of(&node, name);
                if is_circular {
                    format!("{DERIVES}\n#[serde(transparent)]\npub struct {name}(pub {text});\n\n")
                } else {
                    format!("pub type {name} = {text};\n\n")
                }
            }
        };
        let mut lines = comment_lines(node.description.as_deref().unwrap_or_default());
        lines.append(&mut self.notes);
        self.out[at] = comment(&lines, "") + &text;
        self.notes = notes;
    }

    /// A type that has its name from where it stands.
    fn hoisted(&mut self, hint: &str, node: &Node) -> String {
        let name = self.module.names.claim(hint, "Record");
        self.define(&name, node, false);
        name
    }

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
        let document = self.document;
        match &node.shape {
            Shape::Any => ANY.to_owned(),
            Shape::Unsaid(_) => {
                self.notes.extend(unsaid(node));
                ANY.to_owned()
            }
            Shape::Never => self.module.never(),
            Shape::Null => "()".to_owned(),
            Shape::Boolean => "bool".to_owned(),
            Shape::Integer(bounds) => integer(*bounds).to_owned(),
            Shape::Number => "f64".to_owned(),
            Shape::String => "String".to_owned(),
            Shape::Literals(values) if is_enum(values) => self.hoisted(hint, node),
            Shape::Literals(values) => match kind(values) {
                Some(kind) => kind.to_owned(),
                None => self.unknown(node, "its values are of several types"),
            },
            Shape::Array(items) => format!("Vec<{}>", self.of(items, &format!("{hint}Item"))),
            Shape::Object(object) if is_record(object) => self.hoisted(hint, node),
            Shape::Object(object) => match &object.additional {
                Additional::Of(value) => {
                    let value = self.of(value, &format!("{hint}Value"));
                    format!("::std::collections::BTreeMap<String, {value}>")
                }
                Additional::Open | Additional::Closed => format!("::serde_json::Map<String, {ANY}>"),
            },
            Shape::Union(_) => self.one_of(node, hint),
            Shape::All(_) => self.unknown(node, "several types at once"),
            Shape::Named(at) => {
                let name = &self.names[at];
                // A list or a map in between would do, but not a type that holds itself.
                if document.definitions[*at].is_recursive { format!("Box<{name}>") } else { name.clone() }
            }
        }
    }

    fn one_of(&mut self, node: &Node, hint: &str) -> String {
        let (rest, has_null) = node.without_null();
        let text = match &rest.shape {
            Shape::Union(members) => match union::variants(self.document, members, &mut self.module.fuel) {
                Some(_) => self.hoisted(hint, &rest),
                None => return self.unknown(node, "nothing in a value says which of several types it has"),
            },
            _ => self.of(&rest, hint),
        };
        if has_null { format!("Option<{text}>") } else { text }
    }

    fn unknown(&mut self, node: &Node, reason: &str) -> String {
        self.notes.push(no_type(&node.pointer, reason));
        ANY.to_owned()
    }

    fn record(&mut self, name: &str, object: &Object) -> String {
        let mut names = Names::new(&[KEYWORDS]);
        let mut fields = String::new();
        for (member, property) in &object.properties {
            let field = names.claim(&snake(member), "field");
            let (inner, has_null) = property.node.without_null();
            let node = if property.is_required { &property.node } else { &inner };
            let text = self.of(node, &format!("{name}{}", pascal(member)));
            let mut lines = comment_lines(property.node.description.as_deref().unwrap_or_default());
            if has_null && !property.is_required {
                lines.push("Null and missing are the same here; null is not sent.".to_owned());
            }
            lines.append(&mut self.notes);
            fields += &comment(&lines, "    ");
            let mut attributes = Vec::new();
            if field != *member {
                attributes.push(format!("rename = {}", quoted(member)));
            }
            if !property.is_required {
                attributes.push("default, skip_serializing_if = \"Option::is_none\"".to_owned());
            }
            if !attributes.is_empty() {
                let _ = writeln!(fields, "    #[serde({})]", attributes.join(", "));
            }
            let text = if property.is_required { text } else { format!("Option<{text}>") };
            let _ = writeln!(fields, "    pub {field}: {text},");
        }
        if let (Additional::Of(node), false) = (&object.additional, object.properties.is_empty()) {
            let field = names.claim("more", "more");
            let value = self.of(node, &format!("{name}Value"));
            let mut lines = vec!["Members that have no field of their own.".to_owned()];
            lines.append(&mut self.notes);
            fields += &comment(&lines, "    ");
            let _ = writeln!(
                fields,
                "    #[serde(flatten)]\n    pub {field}: ::std::collections::BTreeMap<String, {value}>,"
            );
        }
        if fields.is_empty() {
            return format!("{DERIVES}\npub struct {name} {{}}\n\n");
        }
        format!("{DERIVES}\npub struct {name} {{\n{fields}}}\n\n")
    }

    fn choice(&mut self, name: &str, members: &[Node], variants: &[String]) -> String {
        let mut names = Names::new(&[KEYWORDS]);
        let mut out = format!("{DERIVES}\n#[serde(untagged)]\npub enum {name} {{\n");
        for (member, variant) in members.iter().zip(variants) {
            let variant = names.claim(variant, "Variant");
            let text = self.of(member, &format!("{name}{variant}"));
            let lines = std::mem::take(&mut self.notes);
            let _ = writeln!(out, "{}    {variant}({text}),", comment(&lines, "    "));
        }
        out + "}\n\n"
    }
}

/// An enum of texts.
fn texts(name: &str, values: &[Value]) -> String {
    let mut names = Names::new(&[KEYWORDS]);
    let mut out = format!("{DERIVES}\npub enum {name} {{\n");
    for value in values.iter().filter_map(Value::as_str) {
        let variant = names.claim(&pascal(value), "Value");
        if variant != value {
            let _ = writeln!(out, "    #[serde(rename = {})]", quoted(value));
        }
        let _ = writeln!(out, "    {variant},");
    }
    out + "}\n\n"
}

/// Whether an object becomes a struct: it has members of its own, or can have none.
fn is_record(object: &Object) -> bool {
    !object.properties.is_empty() || object.additional == Additional::Closed
}

fn is_enum(values: &[Value]) -> bool {
    !values.is_empty() && values.iter().all(Value::is_string)
}

/// The type that all of the values have.
fn kind(values: &[Value]) -> Option<&'static str> {
    let is = |test: fn(&Value) -> bool| values.iter().all(test);
    if is(Value::is_boolean) {
        Some("bool")
    } else if is(Value::is_i64) {
        Some("i64")
    } else if is(Value::is_number) {
        Some("f64")
    } else {
        None
    }
}

/// 64 bits, with a sign where nothing says that it cannot have one.
fn integer(bounds: Bounds) -> &'static str {
    let is_unsigned = bounds.min.is_some_and(|min| min >= 0.0);
    if is_unsigned && bounds.max.is_some_and(|max| max >= I64_END) { "u64" } else { "i64" }
}

fn quoted(text: &str) -> String {
    literal(text, Escapes::Braced)
}

/// Doc comments without what rustdoc takes for an example: it would compile and run somebody else's code with the tests.
fn comment(lines: &[String], indent: &str) -> String {
    let plain = |line: &String| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.join(" ").replace("```", "\\`\\`\\`").replace("~~~", "\\~\\~\\~")
    };
    lines.iter().map(|line| format!("{indent}/// {}", plain(line)).trim_end().to_owned() + "\n").collect()
}

const DERIVES: &str = "#[derive(Clone, Debug, PartialEq, ::serde::Serialize, ::serde::Deserialize)]";
const ANY: &str = "::serde_json::Value";
/// 2^63.
const I64_END: f64 = 9_223_372_036_854_775_808.0;
const KEYWORDS: &[&str] = &[
    "Self", "abstract", "as", "async", "await", "become", "box", "break", "const", "continue", "crate", "do",
    "dyn", "else", "enum", "extern", "false", "final", "fn", "for", "gen", "if", "impl", "in", "let", "loop",
    "macro", "match", "mod", "move", "mut", "override", "priv", "pub", "ref", "return", "self", "static",
    "struct", "super", "trait", "true", "try", "type", "typeof", "union", "unsafe", "unsized", "use",
    "virtual", "where", "while", "yield", "_",
];
/// Names that the module uses itself.
const USED: &[&str] = &[
    "Box",
    "BuiltAgainst",
    "CallOptions",
    "Capabilities",
    "Client",
    "ClientError",
    "None",
    "Option",
    "Result",
    "Schema",
    "Some",
    "String",
    "Vec",
];
/// Files that cargo treats in a way of its own.
const FILES: &[&str] = &["mod", "lib", "main", "build"];
