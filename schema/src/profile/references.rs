//! Finds references that leave the document, lead nowhere, or only lead back to themselves.

use std::collections::HashMap;

use jsonschema::{Draft, Uri, uri};
use serde_json::Value;

use super::{Place, quoted, refused};
use crate::validator::CompileError;

/// Resources that a document may hold, and the longest name of one: each name is kept resolved.
const RESOURCES_MAX: usize = 256;
const RESOURCE_URI_BYTES_MAX: usize = 2_048;
/// What a document without a name is resolved against.
const NAMELESS: &str = "json-schema:///";

/// What a document's references may lead to, and where they stand.
#[derive(Default)]
pub(super) struct References<'s> {
    /// By the address of a schema: its place.
    known: HashMap<*const Value, usize>,
    resources: Vec<Resource<'s>>,
    /// Places where a reference stands, with the resource that it starts from.
    found: Vec<Reference<'s>>,
    /// For each place, those that look at the same value.
    same_value: HashMap<usize, Vec<usize>>,
}

struct Resource<'s> {
    uri: Uri<String>,
    root: &'s Value,
    anchors: HashMap<&'s str, &'s Value>,
}

struct Reference<'s> {
    at: usize,
    base: usize,
    keyword: &'static str,
    text: &'s str,
}

impl<'s> References<'s> {
    /// Notes one schema; the resource that its references start from.
    pub(super) fn enter(
        &mut self,
        schema: &'s Value,
        at: usize,
        base: usize,
        draft: Draft,
        places: &[Place<'s>],
    ) -> Result<usize, CompileError> {
        self.known.insert(schema, at);
        if self.resources.is_empty() {
            let uri =
                uri::from_str(NAMELESS).map_err(|error| CompileError::invalid("", error.to_string()))?;
            self.resources.push(Resource { uri, root: schema, anchors: HashMap::new() });
        }
        let text = |name: &str| schema.get(name).and_then(Value::as_str);
        // In draft-07 nothing beside a reference names anything.
        let is_alone = draft == Draft::Draft7 && text("$ref").is_some();
        let mut base = base;
        if let Some(id) = text("$id").filter(|_| !is_alone) {
            let wrong = |problem: String| refused(places, at, &["$id"], problem);
            base = self.name(schema, id, base, draft).map_err(wrong)?;
        }
        for name in ["$anchor", "$dynamicAnchor"] {
            if let Some(anchor) = text(name) {
                self.resources[base].anchors.insert(anchor, schema);
            }
        }
        for keyword in ["$ref", "$dynamicRef"] {
            if let Some(text) = text(keyword) {
                self.found.push(Reference { at, base, keyword, text });
            }
        }
        Ok(base)
    }

    /// Notes that the schema at `below` looks at the value that the one at `at` looks at.
    pub(super) fn same_value(&mut self, at: usize, below: usize) {
        self.same_value.entry(at).or_default().push(below);
    }

    fn name(&mut self, schema: &'s Value, id: &'s str, base: usize, draft: Draft) -> Result<usize, String> {
        let (name, fragment) = id.split_once('#').unwrap_or((id, ""));
        let mut base = base;
        if !name.is_empty() {
            let uri = uri::resolve_against(&self.resources[base].uri.borrow(), name)
                .map_err(|error| format!("{error}; accepted: a URI"))?;
            if uri.as_str().len() > RESOURCE_URI_BYTES_MAX || self.resources.len() > RESOURCES_MAX {
                return Err(format!(
                    "is one too many or too long; accepted: {RESOURCES_MAX} names of {RESOURCE_URI_BYTES_MAX} bytes"
                ));
            }
            base = self.resources.len();
            self.resources.push(Resource { uri, root: schema, anchors: HashMap::new() });
        }
        match (fragment, draft) {
            ("", _) => {}
            // Draft-07 names places with it; 2020-12 has $anchor for that.
            (anchor, Draft::Draft7) => drop(self.resources[base].anchors.insert(anchor, schema)),
            _ => return Err("has a fragment; accepted: a URI without one, and $anchor".to_owned()),
        }
        Ok(base)
    }

    /// Follows every reference.
    ///
    /// **Errors:** the first that leads outside, nowhere, to what is no schema, or back without a step into the value.
    pub(super) fn check(mut self, places: &[Place<'s>]) -> Result<(), CompileError> {
        for reference in std::mem::take(&mut self.found) {
            let wrong = |problem: &str| {
                let text = quoted(&Value::from(reference.text));
                let problem = format!("{text} {problem}; accepted: references inside the document");
                refused(places, reference.at, &[reference.keyword], problem)
            };
            let target = self.target(&reference).map_err(wrong)?;
            self.same_value(reference.at, target);
            self.found.push(reference);
        }
        let Some(at) = self.circle(places.len()) else { return Ok(()) };
        let keyword = self.found.iter().find(|reference| reference.at == at);
        let keyword = keyword.map_or("$ref", |reference| reference.keyword);
        let problem = "leads back to itself on the same value, so nothing decides; accepted: references that lead \
                       back from properties or items";
        Err(refused(places, at, &[keyword], problem.to_owned()))
    }

    fn target(&self, reference: &Reference<'s>) -> Result<usize, &'static str> {
        let (name, fragment) = reference.text.split_once('#').unwrap_or((reference.text, ""));
        let resource = if name.is_empty() {
            &self.resources[reference.base]
        } else {
            let base = self.resources[reference.base].uri.borrow();
            let uri = uri::resolve_against(&base, name).map_err(|_| "is no URI")?;
            let named = self.resources.iter().find(|resource| resource.uri == uri);
            named.ok_or("leads outside the document")?
        };
        let fragment = percent_decoded(fragment).ok_or("is no URI")?;
        let found = if fragment.is_empty() || fragment.starts_with('/') {
            resource.root.pointer(&fragment)
        } else {
            resource.anchors.get(fragment.as_str()).copied()
        };
        let found = found.ok_or("leads to nothing in this document")?;
        self.known.get(&std::ptr::from_ref(found)).copied().ok_or("leads to something that is no schema")
    }

    /// A place with a reference from which schemas lead back to it, all looking at the same value.
    fn circle(&self, places: usize) -> Option<usize> {
        #[derive(Clone, Copy, PartialEq)]
        enum Seen {
            Not,
            OnTheWay,
            Done,
        }
        let mut seen = vec![Seen::Not; places];
        let below = |at: usize| self.same_value.get(&at).map_or(&[][..], Vec::as_slice);
        for start in 0..places {
            // No recursion: references chain as long as the document is.
            let mut way = vec![(start, 0)];
            while let Some((at, next)) = way.pop() {
                if next == 0 && seen[at] == Seen::Done {
                    continue;
                }
                seen[at] = Seen::OnTheWay;
                let Some(to) = below(at).get(next) else {
                    seen[at] = Seen::Done;
                    continue;
                };
                way.push((at, next + 1));
                match seen[*to] {
                    Seen::Not => way.push((*to, 0)),
                    Seen::OnTheWay => {
                        // Only a reference leads back up; it stands on the way between the two.
                        let circle = way.iter().rev().map(|(at, _)| *at);
                        let has_reference =
                            |at: &usize| self.found.iter().any(|reference| reference.at == *at);
                        return circle.into_iter().find(has_reference);
                    }
                    Seen::Done => {}
                }
            }
        }
        None
    }
}

/// The text of a URI's fragment.
pub(crate) fn percent_decoded(text: &str) -> Option<String> {
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
