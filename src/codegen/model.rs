//! Models the shape of a value in the terms of types.
//!
//! A shape accepts every value that its schema accepts, and perhaps more: bounds, patterns, formats and `not` narrow
//! values in ways that types cannot, and the sidecars check those. If even a shape cannot be given, it is
//! [`Shape::Unsaid`], with the reason. Nothing is guessed.

use std::collections::BTreeMap;

use serde_json::Value;

/// One side's schema: its root, and the definitions that its references lead to.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Document {
    /// What references may name; the first one is the root.
    pub(super) definitions: Vec<Definition>,
}

/// A schema that has a name of its own.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Definition {
    /// What its pointer ends with; empty for the root.
    pub(super) label: String,
    pub(super) node: Node,
    /// Whether a value of it would hold another one directly, with no list or map between them.
    pub(super) is_recursive: bool,
}

/// A shape, and where it stands.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Node {
    /// **Shape:** JSON pointer into the schema document, `#` for its root.
    pub(super) pointer: String,
    /// `description`, else `title`.
    pub(super) description: Option<String>,
    pub(super) shape: Shape,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Shape {
    /// Every value.
    Any,
    /// What no type says, and why.
    Unsaid(String),
    /// No value.
    Never,
    Null,
    Boolean,
    Integer(Bounds),
    Number,
    String,
    /// These values, in the schema's order; null is never among others.
    Literals(Vec<Value>),
    Array(Box<Node>),
    Object(Object),
    /// A value of one or more of these; at least two.
    Union(Vec<Node>),
    /// A value of all of these; at least two.
    All(Vec<Node>),
    /// A definition.
    Named(usize),
}

/// What an integer cannot be below or above, as far as the schema says.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Bounds {
    pub(super) min: Option<f64>,
    pub(super) max: Option<f64>,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Object {
    pub(super) properties: BTreeMap<String, Property>,
    pub(super) additional: Additional,
}

#[derive(Clone, Debug, PartialEq)]
pub(super) struct Property {
    pub(super) node: Node,
    pub(super) is_required: bool,
}

/// What other members an object may have.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Additional {
    /// Any.
    Open,
    /// None.
    Closed,
    /// Those of this shape.
    Of(Box<Node>),
}

impl Node {
    pub(super) fn new(pointer: &str, shape: Shape) -> Self {
        Self { pointer: pointer.to_owned(), description: None, shape }
    }

    /// The shape without null, and whether null was one of its values.
    pub(super) fn without_null(&self) -> (Self, bool) {
        let Shape::Union(members) = &self.shape else { return (self.clone(), false) };
        let rest: Vec<_> = members.iter().filter(|node| node.shape != Shape::Null).cloned().collect();
        let has_null = rest.len() < members.len();
        let node = match <[Self; 1]>::try_from(rest) {
            Ok([one]) => Self { description: self.description.clone().or(one.description), ..one },
            Err(rest) => Self { shape: Shape::Union(rest), ..self.clone() },
        };
        (node, has_null)
    }

    /// Visits the shapes that look at the same value as this one, and not at a part of it.
    pub(super) fn in_place<'a>(&'a self, visit: &mut impl FnMut(&'a Self)) {
        visit(self);
        if let Shape::Union(members) | Shape::All(members) = &self.shape {
            members.iter().for_each(|node| node.in_place(visit));
        }
    }

    /// Visits every shape in this one; `through_lists` also those of a list's items and of a map's values.
    pub(super) fn each<'a>(&'a self, through_lists: bool, visit: &mut impl FnMut(&'a Self)) {
        visit(self);
        match &self.shape {
            Shape::Union(members) | Shape::All(members) => {
                members.iter().for_each(|node| node.each(through_lists, visit));
            }
            Shape::Array(items) if through_lists => items.each(through_lists, visit),
            Shape::Object(object) => {
                object.properties.values().for_each(|property| property.node.each(through_lists, visit));
                if let (Additional::Of(node), true) = (&object.additional, through_lists) {
                    node.each(through_lists, visit);
                }
            }
            Shape::Any
            | Shape::Unsaid(_)
            | Shape::Never
            | Shape::Null
            | Shape::Boolean
            | Shape::Integer(_)
            | Shape::Number
            | Shape::String
            | Shape::Literals(_)
            | Shape::Array(_)
            | Shape::Named(_) => {}
        }
    }
}

/// Brings members into the one form that a union has: flat, each shape once, nothing that says nothing.
pub(super) fn union(pointer: &str, members: Vec<Node>) -> Shape {
    let mut flat: Vec<Node> = Vec::new();
    let mut literals: Vec<Value> = Vec::new();
    let mut only_literals = true;
    let all = members.into_iter().flat_map(|node| match node.shape {
        Shape::Union(members) => members,
        _ => vec![node],
    });
    for node in all {
        match &node.shape {
            Shape::Any | Shape::Unsaid(_) => return node.shape,
            Shape::Never => continue,
            Shape::Literals(values) => literals.extend(values.iter().cloned()),
            Shape::Null => {}
            _ => only_literals = false,
        }
        flat.push(node);
    }
    if only_literals && !literals.is_empty() {
        // Descriptions of single values are lost; one list of values is what every language has.
        let null = flat.iter().find(|node| node.shape == Shape::Null).cloned();
        let values = Node::new(pointer, Shape::Literals(distinct(literals)));
        flat = std::iter::once(values).chain(null).collect();
    }
    let mut seen: Vec<Node> = Vec::new();
    for node in flat {
        // A document is bounded and most unions are short; those of many values are one node by here.
        if !seen.iter().any(|other| is_same(other, &node)) {
            seen.push(node);
        }
    }
    match <[Node; 1]>::try_from(seen) {
        Ok([one]) => one.shape,
        Err(seen) if seen.is_empty() => Shape::Never,
        Err(seen) => Shape::Union(seen),
    }
}

/// The values, each once, in their order.
pub(super) fn distinct(values: Vec<Value>) -> Vec<Value> {
    let mut seen = std::collections::BTreeSet::new();
    values.into_iter().filter(|value| seen.insert(value.to_string())).collect()
}

/// Whether two nodes have one shape, wherever they stand.
pub(super) fn is_same(one: &Node, other: &Node) -> bool {
    match (&one.shape, &other.shape) {
        (Shape::Array(a), Shape::Array(b)) => is_same(a, b),
        (Shape::Union(a), Shape::Union(b)) | (Shape::All(a), Shape::All(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| is_same(a, b))
        }
        (Shape::Object(a), Shape::Object(b)) => {
            let additional = match (&a.additional, &b.additional) {
                (Additional::Open, Additional::Open) | (Additional::Closed, Additional::Closed) => true,
                (Additional::Of(a), Additional::Of(b)) => is_same(a, b),
                _ => false,
            };
            additional
                && a.properties.len() == b.properties.len()
                && a.properties.iter().zip(&b.properties).all(|((key_a, a), (key_b, b))| {
                    key_a == key_b && a.is_required == b.is_required && is_same(&a.node, &b.node)
                })
        }
        (a, b) => a == b,
    }
}
