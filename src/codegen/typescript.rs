//! Writes a plan as a TypeScript module.

use std::fmt::Write as _;

use serde_json::Value;

use super::Generated;
use super::model::{Additional, Document, Node, Object, Shape};
use super::names::{Names, pascal};
use super::plan::{Call, Plan, doc, unsaid};
use super::source::Schema;
use super::text::{Escapes, literal};

/// Writes the module.
pub(super) fn file(plan: &Plan<'_>) -> Generated {
    let mut names = Names::new(&[RESERVED]);
    let mut body = String::new();
    let mut aggregate = String::new();
    for call in &plan.calls {
        let exchange = Exchange::of(call, &mut names);
        for (name, document) in [(&exchange.request, &call.input), (&exchange.response, &call.output)] {
            Side::write(name, document.as_ref(), &mut names, &mut body);
        }
        let (key, Exchange { request, response, .. }) = (quoted(&call.key), &exchange);
        let _ = writeln!(aggregate, "  {key}: {{ request: {request}; response: {response} }};");
        exchange.write(call, &mut body);
    }
    let header: String =
        plan.header().iter().map(|line| format!("// {line}").trim_end().to_owned() + "\n").collect();
    let text = format!(
        "{header}\n/* eslint-disable */\n\nimport type {{ BuiltAgainst, CallOptions, Client }} from \"capd\";\n\n\
         {body}/** Every capability, with the types of its params and its result. */\n\
         export interface Capabilities {{\n{aggregate}}}\n"
    );
    Generated { path: format!("{}.ts", plan.stem().join("-")).into(), text }
}

/// The names of what one capability comes to.
struct Exchange {
    request: String,
    response: String,
    function: String,
    contract: String,
}

impl Exchange {
    fn of(call: &Call<'_>, names: &mut Names) -> Self {
        let function = names.claim(&call.camel(), "capability");
        Self {
            request: names.claim(&(call.pascal() + "Request"), "Request"),
            response: names.claim(&(call.pascal() + "Response"), "Response"),
            contract: names.claim(&(function.clone() + "BuiltAgainst"), "builtAgainst"),
            function,
        }
    }

    fn write(&self, call: &Call<'_>, out: &mut String) {
        let Self { request, response, function, contract } = self;
        let side = |schema: &Option<Schema>| match schema {
            None => "undefined".to_owned(),
            Some(schema) => {
                format!("{{\n    sha256: \"{}\",\n    json: {},\n  }}", schema.sha256, quoted(&schema.json))
            }
        };
        let (input, output) = (side(&call.capability.input), side(&call.capability.output));
        let _ = write!(
            out,
            "const {contract}: BuiltAgainst = {{\n  input: {input},\n  output: {output},\n}};\n\n"
        );
        comment(&call.doc(), "", out);
        let (name, range) = (quoted(call.capability.id.name.as_str()), quoted(&call.range));
        let _ = write!(
            out,
            "export function {function}(\n  client: Client,\n  params: {request},\n  \
             options?: Omit<CallOptions, \"builtAgainst\">,\n): Promise<{response}> {{\n  \
             return client.call<{response}>({name}, params, {{\n    version: {range},\n    ...options,\n    \
             builtAgainst: {contract},\n  }});\n}}\n\n"
        );
    }
}

/// The types of one side.
struct Side {
    /// Of each definition.
    names: Vec<String>,
}

impl Side {
    fn write(name: &str, document: Option<&Document>, names: &mut Names, out: &mut String) {
        let Some(document) = document else {
            let _ = write!(out, "/** No schema is declared. */\nexport type {name} = unknown;\n\n");
            return;
        };
        let named = |(at, label): (usize, &str)| match at {
            0 => name.to_owned(),
            _ => names.claim(&format!("{name}{}", pascal(label)), "Definition"),
        };
        let labels = document.definitions.iter().map(|definition| definition.label.as_str());
        let side = Side { names: labels.enumerate().map(named).collect() };
        for (definition, name) in document.definitions.iter().zip(&side.names) {
            comment(&doc(&definition.node), "", out);
            let _ = write!(out, "export type {name} = {};\n\n", side.of(&definition.node, 0));
        }
    }

    fn of(&self, node: &Node, depth: usize) -> String {
        match &node.shape {
            Shape::Any => "unknown".to_owned(),
            Shape::Unsaid(_) => {
                let reason = unsaid(node).unwrap_or_default();
                format!("unknown /* {} */", inside_comment(&reason))
            }
            Shape::Never => "never".to_owned(),
            Shape::Null => "null".to_owned(),
            Shape::Boolean => "boolean".to_owned(),
            Shape::Integer(_) | Shape::Number => "number".to_owned(),
            Shape::String => "string".to_owned(),
            Shape::Literals(values) => joined(values.iter().map(of_value).collect(), "|", depth),
            Shape::Array(items) => format!("{}[]", self.grouped(items, depth)),
            Shape::Object(object) => self.object(object, depth),
            Shape::Union(members) => {
                let mut texts: Vec<String> = Vec::new();
                for text in members.iter().map(|member| self.of(member, depth)) {
                    if !texts.contains(&text) {
                        texts.push(text);
                    }
                }
                joined(texts, "|", depth)
            }
            Shape::All(parts) => {
                joined(parts.iter().map(|part| self.grouped(part, depth)).collect(), "&", depth)
            }
            Shape::Named(at) => self.names[*at].clone(),
        }
    }

    /// A type that keeps together beside `&` and `[]`.
    fn grouped(&self, node: &Node, depth: usize) -> String {
        let text = self.of(node, depth);
        match &node.shape {
            Shape::Union(_) | Shape::All(_) | Shape::Literals(_) | Shape::Unsaid(_) => format!("({text})"),
            Shape::Any
            | Shape::Never
            | Shape::Null
            | Shape::Boolean
            | Shape::Integer(_)
            | Shape::Number
            | Shape::String
            | Shape::Array(_)
            | Shape::Object(_)
            | Shape::Named(_) => text,
        }
    }

    fn object(&self, object: &Object, depth: usize) -> String {
        if object.properties.is_empty() {
            return match &object.additional {
                Additional::Open => "{ [key: string]: unknown }".to_owned(),
                Additional::Closed => "{ [key: string]: never }".to_owned(),
                Additional::Of(node) => format!("{{ [key: string]: {} }}", self.of(node, depth)),
            };
        }
        let indent = "  ".repeat(depth + 1);
        let mut out = "{\n".to_owned();
        for (name, property) in &object.properties {
            comment(&doc_of_member(&property.node), &indent, &mut out);
            let mark = if property.is_required { "" } else { "?" };
            let _ = writeln!(out, "{indent}{}{mark}: {};", key(name), self.of(&property.node, depth + 1));
        }
        if let Additional::Of(node) = &object.additional {
            // TypeScript holds the declared members to this too, so that it must take all of them.
            let text = format!("More members, each {}.", self.of(node, 0).replace('\n', " "));
            comment(&[text], &indent, &mut out);
            let _ = writeln!(out, "{indent}[key: string]: unknown;");
        }
        out + &"  ".repeat(depth) + "}"
    }
}

/// What a member says of itself; what has no type says so where the type would be.
fn doc_of_member(node: &Node) -> Vec<String> {
    super::text::comment_lines(node.description.as_deref().unwrap_or_default())
}

/// Types on one line where they are short, else each on its own.
fn joined(texts: Vec<String>, sign: &str, depth: usize) -> String {
    let width: usize = texts.iter().map(|text| text.len() + 3).sum();
    if texts.is_empty() {
        return "never".to_owned();
    }
    if texts.len() < 2 || width <= LINE_CHARS || texts.iter().any(|text| text.contains('\n')) {
        return texts.join(&format!(" {sign} "));
    }
    let indent = "  ".repeat(depth + 1);
    texts.iter().fold(String::new(), |out, text| format!("{out}\n{indent}{sign} {text}"))
}

/// A value as the type that only it has.
fn of_value(value: &Value) -> String {
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(number) => number.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", items.iter().map(of_value).collect::<Vec<_>>().join(", ")),
        Value::Object(members) if members.is_empty() => "{ [key: string]: never }".to_owned(),
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(name, _)| *name);
            let member = |(name, value): &(&String, &Value)| format!("{}: {}", key(name), of_value(value));
            format!("{{ {} }}", members.iter().map(member).collect::<Vec<_>>().join("; "))
        }
    }
}

/// A member's name, quoted where it is no plain word.
fn key(name: &str) -> String {
    let is_word = name.starts_with(|char: char| char.is_ascii_alphabetic() || char == '_')
        && name.chars().all(|char| char.is_ascii_alphanumeric() || char == '_');
    if is_word { name.to_owned() } else { quoted(name) }
}

fn quoted(text: &str) -> String {
    literal(text, Escapes::Utf16)
}

/// Text that ends no comment, and that the compiler takes for no order such as `@ts-ignore`.
fn inside_comment(text: &str) -> String {
    text.replace("*/", "*\\/").replace("@ts-", "@ ts-")
}

fn comment(lines: &[String], indent: &str, out: &mut String) {
    match lines {
        [] => {}
        [line] => {
            let _ = writeln!(out, "{indent}/** {} */", inside_comment(line));
        }
        lines => {
            let _ = writeln!(out, "{indent}/**");
            for line in lines {
                out.push_str(format!("{indent} * {}", inside_comment(line)).trim_end());
                out.push('\n');
            }
            let _ = writeln!(out, "{indent} */");
        }
    }
}

/// How long a line of members of a union may be.
const LINE_CHARS: usize = 80;
/// Words that no function of a module may be called, and the names that the module uses itself.
const RESERVED: &[&str] = &[
    "abstract",
    "any",
    "arguments",
    "as",
    "async",
    "await",
    "bigint",
    "boolean",
    "break",
    "case",
    "catch",
    "class",
    "const",
    "continue",
    "debugger",
    "declare",
    "default",
    "delete",
    "do",
    "else",
    "enum",
    "eval",
    "export",
    "extends",
    "false",
    "finally",
    "for",
    "function",
    "get",
    "if",
    "implements",
    "import",
    "in",
    "instanceof",
    "interface",
    "is",
    "keyof",
    "let",
    "module",
    "namespace",
    "never",
    "new",
    "null",
    "number",
    "object",
    "of",
    "package",
    "private",
    "protected",
    "public",
    "readonly",
    "require",
    "return",
    "set",
    "static",
    "string",
    "super",
    "switch",
    "symbol",
    "this",
    "throw",
    "true",
    "try",
    "type",
    "typeof",
    "undefined",
    "unique",
    "unknown",
    "var",
    "void",
    "while",
    "with",
    "yield",
    "globalThis",
    "exports",
    "constructor",
    "BuiltAgainst",
    "CallOptions",
    "Capabilities",
    "Client",
    "Omit",
    "Promise",
];
