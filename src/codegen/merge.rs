//! Merges several schemas' shapes into one that a language without intersections can express.

use std::borrow::Cow;

use super::model::{Additional, Definition, Document, Node, Object, Property, Shape, is_same};
use super::plan::no_type;
use super::read::all;

/// Shapes that may still be copied in one file; references can name each other many times over.
#[derive(Debug)]
pub(super) struct Fuel {
    left: usize,
    /// How many shapes that were brought together the present one is a part of.
    depth: usize,
}

impl Default for Fuel {
    fn default() -> Self {
        Self { left: FUEL, depth: 0 }
    }
}

impl Fuel {
    /// Goes into the parts of a shape, which [`settled`] brought together or not; whoever does so comes out again by
    /// [`leave`](Self::leave).
    pub(super) fn enter(&mut self, is_merged: bool) {
        self.depth += usize::from(is_merged);
    }

    pub(super) fn leave(&mut self, is_merged: bool) {
        self.depth -= usize::from(is_merged);
    }
}

/// The same document with no [`Shape::All`] at the head of a definition, so that whoever refers to one finds the same shape.
pub(super) fn settled_document(document: &Document, fuel: &mut Fuel) -> Document {
    let settle = |definition: &Definition| {
        let node = settled(document, &definition.node, fuel).into_owned();
        Definition { node, label: definition.label.clone(), is_recursive: definition.is_recursive }
    };
    Document { definitions: document.definitions.iter().map(settle).collect() }
}

/// The same node with no [`Shape::All`] at its head.
pub(super) fn settled<'n>(document: &Document, node: &'n Node, fuel: &mut Fuel) -> Cow<'n, Node> {
    let Shape::All(parts) = &node.shape else { return Cow::Borrowed(node) };
    let mut flat = Vec::new();
    let mut remarks = Vec::new();
    let shape = match flatten(document, parts, &mut flat, &mut remarks, fuel) {
        Ok(()) => together(flat),
        Err(reason) => Shape::Unsaid(reason),
    };
    let lines = node.description.clone().into_iter().chain(remarks);
    let description = lines.collect::<Vec<_>>().join("\n");
    Cow::Owned(Node {
        pointer: node.pointer.clone(),
        description: Some(description).filter(|text| !text.is_empty()),
        shape,
    })
}

/// Brings the parts below each other into one list.
///
/// **Errors:** why that cannot be done.
fn flatten<'n>(
    document: &'n Document,
    parts: &'n [Node],
    flat: &mut Vec<&'n Node>,
    remarks: &mut Vec<String>,
    fuel: &mut Fuel,
) -> Result<(), String> {
    for part in parts {
        let mut weight = 0;
        part.each(true, &mut |_| weight += 1);
        // A record that is made of its own definition and more would have such a record as a part, and so on.
        if fuel.depth >= DEPTH_MAX {
            return Err("its parts lead back to themselves".into());
        }
        fuel.left = fuel.left.checked_sub(weight).ok_or("its parts refer to each other too often")?;
        match &part.shape {
            Shape::All(parts) => flatten(document, parts, flat, remarks, fuel)?,
            // A definition that leads back to itself on the same value has no shape to follow.
            Shape::Named(at) => {
                flatten(
                    document,
                    std::slice::from_ref(&document.definitions[*at].node),
                    flat,
                    remarks,
                    fuel,
                )?;
            }
            Shape::Any => {}
            Shape::Unsaid(reason) => remarks.push(no_type(&part.pointer, reason)),
            _ => flat.push(part),
        }
    }
    Ok(())
}

fn together(parts: Vec<&Node>) -> Shape {
    let Some((first, rest)) = parts.split_first() else {
        return Shape::Unsaid("none of its parts has a type".into());
    };
    let mut shape = first.shape.clone();
    for part in rest {
        shape = match (shape, &part.shape) {
            (Shape::Object(one), Shape::Object(other)) => Shape::Object(both(one, other)),
            (Shape::Literals(values), Shape::Literals(others)) => {
                Shape::Literals(values.into_iter().filter(|value| others.contains(value)).collect())
            }
            // The reader has kept only values of the types that all parts have.
            (literals @ Shape::Literals(_), _) => literals,
            (_, literals @ Shape::Literals(_)) => literals.clone(),
            (Shape::Number, integer @ Shape::Integer(_)) => integer.clone(),
            (integer @ Shape::Integer(_), Shape::Number | Shape::Integer(_)) => integer,
            (one, other) if is_same(&Node::new("", one.clone()), &Node::new("", other.clone())) => one,
            _ => return Shape::Unsaid("what all its parts have in common has no type here".into()),
        };
    }
    if shape == Shape::Literals(Vec::new()) { Shape::Never } else { shape }
}

fn both(mut one: Object, other: &Object) -> Object {
    for (name, property) in &other.properties {
        let merged = match one.properties.remove(name) {
            None => property.clone(),
            Some(known) => {
                let pointer = known.node.pointer.clone();
                let description =
                    known.node.description.clone().or_else(|| property.node.description.clone());
                let shape = all(vec![known.node, property.node.clone()]);
                Property {
                    node: Node { pointer, description, shape },
                    is_required: known.is_required || property.is_required,
                }
            }
        };
        one.properties.insert(name.clone(), merged);
    }
    one.additional = match (one.additional, &other.additional) {
        (Additional::Closed, _) | (_, Additional::Closed) => Additional::Closed,
        (Additional::Open, other) => other.clone(),
        (one, Additional::Open) => one,
        (Additional::Of(one), Additional::Of(other)) => {
            let pointer = one.pointer.clone();
            Additional::Of(Box::new(Node::new(&pointer, all(vec![*one, Node::clone(other)]))))
        }
    };
    one
}

/// More than a schema of many thousand lines takes.
const FUEL: usize = 200_000;
/// How often a shape that was brought together may be a part of another one.
const DEPTH_MAX: usize = 6;
