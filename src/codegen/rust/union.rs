//! Names the members of a union, if each value shows by itself which member it is.
//!
//! Otherwise serde would take the first member that happens to fit, and lose what it has no field for.

use std::collections::BTreeSet;

use serde_json::Value;

use super::super::merge::{Fuel, settled};
use super::super::model::{Document, Node, Object, Shape};
use super::super::names::pascal;

/// Names of the variants, in the order of the members; `None` when two members can have one value.
pub(super) fn variants(document: &Document, members: &[Node], fuel: &mut Fuel) -> Option<Vec<String>> {
    let mut objects = Vec::new();
    let mut names = Vec::new();
    let mut kinds = BTreeSet::new();
    for member in members {
        let (kind, object) = kind(document, member, fuel)?;
        match object {
            Some(object) => objects.push(object),
            None if !kinds.insert(kind) => return None,
            None => {}
        }
        names.push(kind.to_owned());
    }
    if objects.len() > 1 {
        let mut labels = labels(&objects)?.into_iter();
        let is_object = |name: &&mut String| *name == OBJECT;
        names.iter_mut().filter(is_object).zip(&mut labels).for_each(|(name, label)| *name = label);
    }
    Some(names)
}

/// What JSON calls a value of it, and for an object its members.
fn kind(document: &Document, node: &Node, fuel: &mut Fuel) -> Option<(&'static str, Option<Object>)> {
    let node = settled(document, node, fuel);
    let kind = match &node.shape {
        Shape::Boolean => "Boolean",
        Shape::Integer(_) | Shape::Number => "Number",
        Shape::String => "Text",
        Shape::Array(_) => "List",
        Shape::Object(object) => return Some((OBJECT, Some(object.clone()))),
        Shape::Literals(values) if values.iter().all(Value::is_string) => "Text",
        Shape::Literals(values) if values.iter().all(Value::is_number) => "Number",
        Shape::Literals(values) if values.iter().all(Value::is_boolean) => "Boolean",
        // What is in place cannot be circular.
        Shape::Named(at) => return self::kind(document, &document.definitions[*at].node, fuel),
        Shape::Any
        | Shape::Unsaid(_)
        | Shape::Never
        | Shape::Null
        | Shape::Literals(_)
        | Shape::Union(_)
        | Shape::All(_) => return None,
    };
    Some((kind, None))
}

/// A label for each object: what it alone has in a member that all must have.
fn labels(objects: &[Object]) -> Option<Vec<String>> {
    let (first, rest) = objects.split_first()?;
    first.properties.keys().find_map(|name| {
        let mut seen = BTreeSet::new();
        let label = |object: &Object| {
            let property = object.properties.get(name).filter(|property| property.is_required)?;
            let Shape::Literals(values) = &property.node.shape else { return None };
            let texts: Option<Vec<_>> = values.iter().map(Value::as_str).collect();
            let texts = texts.filter(|texts| !texts.is_empty())?;
            texts.iter().all(|text| seen.insert((*text).to_owned())).then(|| pascal(texts[0]))
        };
        std::iter::once(first).chain(rest).map(label).collect()
    })
}

const OBJECT: &str = "Object";
