//! Writes a plan as a Go package of one file.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

use super::Generated;
use super::merge::{Fuel, settled, settled_document};
use super::model::{Additional, Bounds, Document, Node, Object, Shape};
use super::names::{Names, pascal};
use super::plan::{Call, Plan, no_type, unsaid};
use super::source::Schema;
use super::text::{Escapes, comment_lines, literal};

/// Writes the package. Two agents have two packages, so that their names do not meet; the file's name has no `_`, behind
/// which Go reads for which systems it is.
pub(super) fn file(plan: &Plan<'_>) -> Generated {
    let mut package = Package { names: Names::new(&[KEYWORDS, USED]), fuel: Fuel::default() };
    let mut body = String::new();
    let mut aggregate = Vec::new();
    let mut fields = Names::new(&[]);
    for call in &plan.calls {
        let function = package.names.claim(&call.pascal(), "Capability");
        let request = package.names.claim(&(call.pascal() + "Request"), "Request");
        let response = package.names.claim(&(call.pascal() + "Response"), "Response");
        for (name, document) in [(&request, &call.input), (&response, &call.output)] {
            body += &package.side(name, document.as_ref());
        }
        let field = fields.claim(&call.pascal(), "Capability");
        // Keys are labels, names and versions, which a tag can always have.
        aggregate.push(format!(
            "\t{field} struct {{\n\t\tRequest {request}\n\n\t\tResponse {response}\n\t}} `json:\"{}\"`\n",
            call.key
        ));
        body += &package.function(call, &function, &request, &response);
    }
    let header: String =
        plan.header().iter().map(|line| format!("// {line}").trim_end().to_owned() + "\n").collect();
    // The name of a package is one word.
    let stem = Names::new(&[KEYWORDS, PACKAGES]).claim(&plan.stem().concat(), "agent").replace('_', "x");
    let text = format!(
        "{header}\npackage {stem}\n\nimport (\n\t\"context\"\n\n\t\"capd\"\n)\n\n\
         {body}// Capabilities has every capability, with the types of its params and its result.\n\
         type Capabilities struct {{\n{}}}\n",
        aggregate.join("\n")
    );
    Generated { path: format!("{stem}/{stem}.go").into(), text }
}

struct Package {
    names: Names,
    fuel: Fuel,
}

impl Package {
    /// The types of one side.
    fn side(&mut self, name: &str, document: Option<&Document>) -> String {
        let Some(document) = document else {
            return format!("// {name} is anything: no schema is declared.\ntype {name} = any\n\n");
        };
        let document = &settled_document(document, &mut self.fuel);
        let mut names = BTreeMap::from([(0, name.to_owned())]);
        for (at, definition) in document.definitions.iter().enumerate().skip(1) {
            names.insert(at, self.names.claim(&format!("{name}{}", pascal(&definition.label)), "Definition"));
        }
        let mut side = Side { package: self, document, names, out: Vec::new(), notes: Vec::new() };
        for (at, definition) in document.definitions.iter().enumerate() {
            let name = side.names[&at].clone();
            side.define(&name, &definition.node);
        }
        side.out.concat()
    }

    fn function(&mut self, call: &Call<'_>, function: &str, request: &str, response: &str) -> String {
        let mut out = String::new();
        let mut sides = Vec::new();
        for (end, schema) in [("Input", &call.capability.input), ("Output", &call.capability.output)] {
            let Some(Schema { json, sha256 }) = schema else {
                sides.push("nil".to_owned());
                continue;
            };
            let name = self.names.claim(&format!("{}{end}", call.camel()), "schema");
            let _ =
                write!(out, "var {name} = capd.Schema{{SHA256: \"{sha256}\", JSON: {}}}\n\n", quoted(json));
            sides.push(format!("&{name}"));
        }
        let (name, range) = (quoted(call.capability.id.name.as_str()), quoted(&call.range));
        let mut doc = call.doc();
        let begin = format!("{function} calls {}.", call.capability.id);
        doc.pop();
        doc.insert(0, begin);
        if doc.last().is_some_and(String::is_empty) {
            doc.pop();
        }
        if doc.len() > 1 {
            doc.insert(1, String::new());
        }
        out += &comment(&doc, "");
        let sides = sides.join(", ");
        let _ = write!(
            out,
            "func {function}(ctx context.Context, client *capd.Client, params {request}, options ...capd.CallOption) ({response}, error) {{\n\
             \tall := append([]capd.CallOption{{capd.Version({range})}}, options...)\n\
             \tall = append(all, capd.BuiltAgainst({sides}))\n\
             \treturn capd.Call[{request}, {response}](ctx, client, {name}, params, all...)\n}}\n\n"
        );
        out
    }
}

struct Side<'a> {
    package: &'a mut Package,
    document: &'a Document,
    names: BTreeMap<usize, String>,
    /// One text for each type, a type before those that it has parts of.
    out: Vec<String>,
    /// What the type that is being written leaves out.
    notes: Vec<String>,
}

/// A type, and whether it has a value that stands for nothing.
struct Typed {
    text: String,
    is_nilable: bool,
}

impl Typed {
    fn value(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_nilable: false }
    }

    fn nilable(text: impl Into<String>) -> Self {
        Self { text: text.into(), is_nilable: true }
    }
}

impl Side<'_> {
    fn define(&mut self, name: &str, node: &Node) {
        let document = self.document;
        let node = settled(document, node, &mut self.package.fuel);
        let at = self.out.len();
        self.out.push(String::new());
        let notes = std::mem::take(&mut self.notes);
        let text = match &node.shape {
            Shape::Object(object) if is_record(object) => {
                format!("type {name} struct{}\n\n", self.fields(name, object))
            }
            Shape::Literals(values) if values.iter().all(Value::is_string) => self.strings(name, values),
            _ => {
                let Typed { text, .. } = self.of(&node, name);
                // A type of its own may name itself; one that is a pointer or anything must stay what it is.
                let sign = if text.starts_with(['*', 'a']) { "= " } else { "" };
                format!("type {name} {sign}{text}\n\n")
            }
        };
        let mut lines = comment_lines(node.description.as_deref().unwrap_or_default());
        lines.append(&mut self.notes);
        self.out[at] = comment(&lines, "") + &text;
        self.notes = notes;
    }

    fn of(&mut self, node: &Node, hint: &str) -> Typed {
        let document = self.document;
        let node = settled(document, node, &mut self.package.fuel);
        let is_merged = matches!(node, Cow::Owned(_));
        self.package.fuel.enter(is_merged);
        let found = self.of_settled(&node, hint);
        self.package.fuel.leave(is_merged);
        found
    }

    fn of_settled(&mut self, node: &Node, hint: &str) -> Typed {
        match &node.shape {
            Shape::Any => Typed::nilable("any"),
            Shape::Unsaid(_) => {
                self.notes.extend(unsaid(node));
                Typed::nilable("any")
            }
            Shape::Never => self.unknown(node, "no value fits"),
            Shape::Null => self.unknown(node, "Go has no type for null alone"),
            Shape::Boolean => Typed::value("bool"),
            Shape::Integer(bounds) => Typed::value(integer(*bounds)),
            Shape::Number => Typed::value("float64"),
            Shape::String => Typed::value("string"),
            Shape::Literals(values) => self.literals(node, values, hint),
            Shape::Array(items) => {
                let Typed { text, .. } = self.of(items, &format!("{hint}Item"));
                Typed::nilable(format!("[]{text}"))
            }
            Shape::Object(object) if is_record(object) => {
                let name = self.package.names.claim(hint, "Record");
                self.define(&name, node);
                Typed::value(name)
            }
            Shape::Object(object) => {
                let value = match &object.additional {
                    Additional::Of(value) if object.properties.is_empty() => {
                        self.of(value, &format!("{hint}Value")).text
                    }
                    Additional::Of(_) => {
                        let reason = "Go has no struct whose further members have one type";
                        self.notes.push(no_type(&node.pointer, reason));
                        "any".to_owned()
                    }
                    Additional::Open if object.properties.is_empty() => "any".to_owned(),
                    Additional::Open | Additional::Closed => {
                        self.notes.push(no_type(
                            &node.pointer,
                            "Go cannot write the name of one of its members in a tag",
                        ));
                        "any".to_owned()
                    }
                };
                Typed::nilable(format!("map[string]{value}"))
            }
            Shape::Union(_) => {
                let (rest, has_null) = node.without_null();
                if !has_null || matches!(rest.shape, Shape::Union(_)) {
                    return self.unknown(node, "Go has no type for one of several");
                }
                let inner = self.of(&rest, hint);
                if inner.is_nilable { inner } else { Typed::nilable(format!("*{}", inner.text)) }
            }
            Shape::All(_) => self.unknown(node, "Go has no type for several at once"),
            Shape::Named(at) => self.named(*at),
        }
    }

    fn unknown(&mut self, node: &Node, reason: &str) -> Typed {
        self.notes.push(no_type(&node.pointer, reason));
        Typed::nilable("any")
    }

    fn named(&mut self, at: usize) -> Typed {
        let definition = &self.document.definitions[at];
        let text = self.names[&at].clone();
        match self.is_nilable(&definition.node) {
            true => Typed::nilable(text),
            // A struct cannot have itself as a part, but a pointer to it.
            false if definition.is_recursive => Typed::nilable(format!("*{text}")),
            false => Typed::value(text),
        }
    }

    fn is_nilable(&mut self, node: &Node) -> bool {
        let document = self.document;
        let node = settled(document, node, &mut self.package.fuel);
        match &node.shape {
            Shape::Any | Shape::Unsaid(_) | Shape::Never | Shape::Null | Shape::All(_) | Shape::Array(_) => {
                true
            }
            // Of several, or of one and null: anything, or a pointer.
            Shape::Union(_) => true,
            Shape::Object(object) => !is_record(object),
            Shape::Literals(values) => kind(values).is_none(),
            Shape::Named(at) => {
                let definition = &document.definitions[*at];
                definition.is_recursive || self.is_nilable(&definition.node)
            }
            Shape::Boolean | Shape::Integer(_) | Shape::Number | Shape::String => false,
        }
    }

    fn literals(&mut self, node: &Node, values: &[Value], hint: &str) -> Typed {
        match kind(values) {
            Some("string") => {
                let name = self.package.names.claim(hint, "Text");
                self.define(&name, node);
                Typed::value(name)
            }
            Some(kind) => Typed::value(kind),
            None => self.unknown(node, "Go has no type for its values"),
        }
    }

    /// A string type with a constant for each value.
    fn strings(&mut self, name: &str, values: &[Value]) -> String {
        let mut out = format!("type {name} string\n\n");
        for value in values.iter().filter_map(Value::as_str) {
            let constant = self.package.names.claim(&format!("{name}{}", pascal(value)), "Value");
            let _ = write!(out, "const {constant} {name} = {}\n\n", quoted(value));
        }
        out
    }

    fn fields(&mut self, name: &str, object: &Object) -> String {
        let mut names = Names::new(&[]);
        let mut fields = Vec::new();
        for (member, property) in &object.properties {
            let field = names.claim(&pascal(member), "Field");
            let Typed { text, is_nilable } = self.of(&property.node, &format!("{name}{}", pascal(member)));
            let mut lines = comment_lines(property.node.description.as_deref().unwrap_or_default());
            lines.append(&mut self.notes);
            // What is left out is nothing, and not the zero of its type.
            let (pointer, end) = match (property.is_required, is_nilable) {
                (true, _) => ("", ""),
                (false, true) => ("", ",omitempty"),
                (false, false) => ("*", ",omitempty"),
            };
            fields.push(format!(
                "{}\t{field} {pointer}{text} `json:\"{member}{end}\"`\n",
                comment(&lines, "\t")
            ));
        }
        if fields.is_empty() { "{}".to_owned() } else { format!(" {{\n{}}}", fields.join("\n")) }
    }
}

/// Whether an object has members of its own, all with names that a tag can have, and no others of a type of theirs.
fn is_record(object: &Object) -> bool {
    let is_named = match &object.additional {
        Additional::Closed => true,
        Additional::Open => !object.properties.is_empty(),
        Additional::Of(_) => false,
    };
    is_named && object.properties.keys().all(|name| is_tag(name))
}

/// Whether Go's `encoding/json` takes a name from a tag as it is. It takes more letters than these.
fn is_tag(name: &str) -> bool {
    let is_letter = |char: char| {
        matches!(char, '\u{c0}'..='\u{24f}' | '\u{391}'..='\u{3a1}' | '\u{3b1}'..='\u{3c9}' | '\u{400}'..='\u{481}')
            && !matches!(char, '\u{d7}' | '\u{f7}')
            || matches!(char, '\u{3041}'..='\u{3096}' | '\u{30a1}'..='\u{30fa}' | '\u{4e00}'..='\u{9fa5}' | '\u{ac00}'..='\u{d7a3}')
    };
    !name.is_empty()
        && name != "-"
        && name.chars().all(|char| {
            char.is_ascii_alphanumeric() || "!#$%&()*+-./:;<=>?@[]^_{|}~".contains(char) || is_letter(char)
        })
}

/// The type that all of the values have.
fn kind(values: &[Value]) -> Option<&'static str> {
    let is = |test: fn(&Value) -> bool| values.iter().all(test);
    if is(Value::is_string) {
        Some("string")
    } else if is(Value::is_boolean) {
        Some("bool")
    } else if is(Value::is_i64) {
        Some("int64")
    } else if is(Value::is_number) {
        Some("float64")
    } else {
        None
    }
}

/// 64 bits, with a sign where nothing says that it cannot have one.
fn integer(bounds: Bounds) -> &'static str {
    let is_unsigned = bounds.min.is_some_and(|min| min >= 0.0);
    if is_unsigned && bounds.max.is_some_and(|max| max >= I64_END) { "uint64" } else { "int64" }
}

fn quoted(text: &str) -> String {
    literal(text, Escapes::Fixed)
}

/// Comments without what gofmt takes for a condition on the build, and would move to the head of the file, or for an
/// example, and would set anew.
fn comment(lines: &[String], indent: &str) -> String {
    let plain = |line: &String| {
        let words: Vec<_> = line.split_whitespace().collect();
        words.join(" ").replace("+build", "+ build")
    };
    lines.iter().map(|line| format!("{indent}// {}", plain(line)).trim_end().to_owned() + "\n").collect()
}

/// 2^63.
const I64_END: f64 = 9_223_372_036_854_775_808.0;
const KEYWORDS: &[&str] = &[
    "break",
    "case",
    "chan",
    "const",
    "continue",
    "default",
    "defer",
    "else",
    "fallthrough",
    "for",
    "func",
    "go",
    "goto",
    "if",
    "import",
    "interface",
    "map",
    "package",
    "range",
    "return",
    "select",
    "struct",
    "switch",
    "type",
    "var",
];
/// Names that the package uses itself.
const USED: &[&str] =
    &["Capabilities", "any", "bool", "capd", "context", "error", "float64", "int64", "string", "uint64"];
/// Folders and packages that Go treats in a way of its own.
const PACKAGES: &[&str] = &["main", "init", "internal", "vendor", "testdata", "capd", "context"];
