//! Reads the keywords that contain further schemas into the nodes that join them.

use std::collections::BTreeMap;

use jsonschema::Draft;
use serde_json::{Map, Value};

use super::node::{ArrayAtom, Form, Id, Members, ObjectAtom, Opaque, Types};
use super::read::{Reader, size};

type Schema = Map<String, Value>;

impl<'s> Reader<'s> {
    /// The node that holds of what equals one of `values`.
    pub(super) fn equal_to(&mut self, values: &'s [Value], origin: u32) -> Id {
        let (joined, scalars): (Vec<&Value>, Vec<&Value>) =
            values.iter().partition(|value| value.is_array() || value.is_object());
        let mut ways: Vec<Id> = joined.into_iter().map(|value| self.equal(value, origin)).collect();
        if !scalars.is_empty() {
            ways.push(self.push(Form::Scalars(scalars.into_iter().cloned().collect()), origin));
        }
        self.any(ways, origin)
    }

    /// The node that holds of what equals `value`: for arrays and objects, item by item and member by member.
    fn equal(&mut self, value: &'s Value, origin: u32) -> Id {
        match value {
            Value::Array(items) => {
                let prefix: Box<[Id]> = items.iter().map(|item| self.equal(item, origin)).collect();
                let count = prefix.len() as u64;
                let parts = vec![
                    self.push(Form::Type(Types::ARRAY), origin),
                    self.push(Form::Array(ArrayAtom::MinItems(count)), origin),
                    self.push(Form::Array(ArrayAtom::MaxItems(count)), origin),
                    self.push(Form::Array(ArrayAtom::Items { prefix, rest: None }), origin),
                ];
                self.all(parts, origin)
            }
            Value::Object(members) => {
                let named: BTreeMap<Box<str>, Id> = members
                    .iter()
                    .map(|(name, member)| (name.as_str().into(), self.equal(member, origin)))
                    .collect();
                let mut parts = vec![self.push(Form::Type(Types::OBJECT), origin)];
                for name in named.keys() {
                    parts.push(self.push(Form::Object(ObjectAtom::Has(name.clone())), origin));
                }
                let members =
                    Members { named: named.into_iter().collect(), patterns: [].into(), rest: Some(Self::NO) };
                parts.push(self.push(Form::Object(ObjectAtom::Members(members)), origin));
                self.all(parts, origin)
            }
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                self.push(Form::Scalars([value.clone()].into()), origin)
            }
        }
    }

    fn list(&mut self, schemas: &'s Value, origin: u32) -> Vec<Id> {
        let mut nodes = Vec::new();
        for (at, schema) in schemas.as_array().map_or(&[][..], Vec::as_slice).iter().enumerate() {
            let at = self.origin(origin, at.to_string());
            nodes.push(self.schema(schema, at));
        }
        nodes
    }

    /// `allOf`, `anyOf`, `oneOf`, `not`, `if`.
    pub(super) fn joining_keyword(
        &mut self,
        keyword: &str,
        value: &'s Value,
        members: &'s Schema,
        origin: u32,
        parts: &mut Vec<Id>,
    ) -> bool {
        if !matches!(keyword, "allOf" | "anyOf" | "oneOf" | "not" | "if") {
            return false;
        }
        let at = self.origin(origin, keyword);
        match keyword {
            "allOf" => parts.extend(self.list(value, at)),
            "anyOf" => {
                let ways = self.list(value, at);
                parts.push(self.any(ways, at));
            }
            "oneOf" => {
                let ways = self.list(value, at);
                parts.push(if let [way] = ways[..] { way } else { self.push(Form::One(ways.into()), at) });
            }
            "not" => {
                let inner = self.schema(value, at);
                parts.push(self.push(Form::Not(inner), at));
            }
            _ => self.condition(value, members, origin, at, parts),
        }
        true
    }

    fn condition(&mut self, test: &'s Value, members: &'s Schema, origin: u32, at: u32, parts: &mut Vec<Id>) {
        let (then, other) = (members.get("then"), members.get("else"));
        if then.is_none() && other.is_none() {
            return;
        }
        let test = self.schema(test, at);
        let fails = self.push(Form::Not(test), at);
        if let Some(then) = then {
            let at = self.origin(origin, "then");
            let then = self.schema(then, at);
            parts.push(self.any(vec![fails, then], at));
        }
        if let Some(other) = other {
            let at = self.origin(origin, "else");
            let other = self.schema(other, at);
            parts.push(self.any(vec![test, other], at));
        }
    }

    /// `items`, `prefixItems`, `additionalItems`, `contains`, `uniqueItems` and the bounds on length.
    pub(super) fn array_keyword(
        &mut self,
        keyword: &str,
        value: &'s Value,
        members: &'s Schema,
        origin: u32,
        parts: &mut Vec<Id>,
    ) -> bool {
        let atom = match keyword {
            "items" => match value {
                Value::Array(_) => {
                    let at = self.origin(origin, "items");
                    let prefix = self.list(value, at).into();
                    let rest = members.get("additionalItems").map(|rest| {
                        let at = self.origin(origin, "additionalItems");
                        self.schema(rest, at)
                    });
                    Some(ArrayAtom::Items { prefix, rest })
                }
                _ => {
                    let skipped = if self.draft == Draft::Draft7 { None } else { members.get("prefixItems") };
                    let skipped = skipped.and_then(Value::as_array).map_or(0, Vec::len);
                    let at = self.origin(origin, "items");
                    let rest = Some(self.schema(value, at));
                    Some(ArrayAtom::Items { prefix: vec![Self::YES; skipped].into(), rest })
                }
            },
            "prefixItems" if self.draft != Draft::Draft7 => {
                let at = self.origin(origin, "prefixItems");
                Some(ArrayAtom::Items { prefix: self.list(value, at).into(), rest: None })
            }
            "minItems" => size(value).map(ArrayAtom::MinItems),
            "maxItems" => size(value).map(ArrayAtom::MaxItems),
            "uniqueItems" => (value == &Value::Bool(true)).then_some(ArrayAtom::Unique),
            "contains" => {
                self.contains(value, members, origin, parts);
                None
            }
            _ => return false,
        };
        if let Some(atom) = atom {
            let at = self.origin(origin, keyword);
            parts.push(self.push(Form::Array(atom), at));
        }
        true
    }

    fn contains(&mut self, value: &'s Value, members: &'s Schema, origin: u32, parts: &mut Vec<Id>) {
        let at = self.origin(origin, "contains");
        let item = self.schema(value, at);
        let bound =
            |keyword: &str| members.get(keyword).filter(|_| self.draft != Draft::Draft7).and_then(size);
        let (least, most) = (bound("minContains").unwrap_or(1), bound("maxContains"));
        if least > 0 {
            parts.push(self.push(Form::Array(ArrayAtom::MinContains(item, least)), at));
        }
        if let Some(most) = most {
            let at = self.origin(origin, "maxContains");
            parts.push(self.push(Form::Array(ArrayAtom::MaxContains(item, most)), at));
        }
    }

    /// `properties` with its companions, `required`, `propertyNames`, the dependencies and the bounds on count.
    pub(super) fn object_keyword(
        &mut self,
        keyword: &str,
        value: &'s Value,
        members: &'s Schema,
        origin: u32,
        parts: &mut Vec<Id>,
    ) -> bool {
        let is_first = |of: &[&str]| !of.iter().any(|earlier| members.contains_key(*earlier));
        match keyword {
            "properties" => self.members(members, origin, parts),
            "patternProperties" if is_first(&["properties"]) => self.members(members, origin, parts),
            "additionalProperties" if is_first(&["properties", "patternProperties"]) => {
                self.members(members, origin, parts);
            }
            "patternProperties" | "additionalProperties" => {}
            "required" => {
                let at = self.origin(origin, "required");
                parts.extend(self.has_all(value, at));
            }
            "propertyNames" => {
                let at = self.origin(origin, "propertyNames");
                let names = self.schema(value, at);
                parts.push(self.push(Form::Object(ObjectAtom::Names(names)), at));
            }
            "minProperties" | "maxProperties" => {
                let at = self.origin(origin, keyword);
                let is_least = keyword == "minProperties";
                let bound = if is_least { ObjectAtom::MinProperties } else { ObjectAtom::MaxProperties };
                parts.extend(size(value).map(|size| self.push(Form::Object(bound(size)), at)));
            }
            "dependentRequired" | "dependentSchemas" if self.draft != Draft::Draft7 => {
                self.dependencies(keyword, value, origin, parts);
            }
            "dependencies" => self.dependencies(keyword, value, origin, parts),
            _ => return false,
        }
        true
    }

    fn has_all(&mut self, names: &'s Value, origin: u32) -> Vec<Id> {
        let names = names.as_array().map_or(&[][..], Vec::as_slice).iter().filter_map(Value::as_str);
        names.map(|name| self.push(Form::Object(ObjectAtom::Has(name.into())), origin)).collect()
    }

    fn members(&mut self, members: &'s Schema, origin: u32, parts: &mut Vec<Id>) {
        let empty = || static_empty();
        let mut named = BTreeMap::new();
        let properties = self.origin(origin, "properties");
        for (name, schema) in members.get("properties").and_then(Value::as_object).unwrap_or(empty()) {
            let at = self.origin(properties, name.as_str());
            named.insert(Box::from(name.as_str()), self.schema(schema, at));
        }
        let mut patterns = Vec::new();
        let by_pattern = self.origin(origin, "patternProperties");
        for (source, schema) in members.get("patternProperties").and_then(Value::as_object).unwrap_or(empty())
        {
            let at = self.origin(by_pattern, source.as_str());
            let pattern = self.pattern(source, at);
            if self.is_opaque(pattern) {
                // Which names match it is not known, so nothing here is.
                parts.push(self.push(Form::Opaque(Opaque::here("patternProperties")), at));
                return;
            }
            patterns.push((pattern, self.schema(schema, at)));
        }
        let rest = members.get("additionalProperties").map(|rest| {
            let at = self.origin(origin, "additionalProperties");
            self.schema(rest, at)
        });
        let members = Members { named: named.into_iter().collect(), patterns: patterns.into(), rest };
        parts.push(self.push(Form::Object(ObjectAtom::Members(members)), properties));
    }

    fn dependencies(&mut self, keyword: &str, value: &'s Value, origin: u32, parts: &mut Vec<Id>) {
        let origin = self.origin(origin, keyword);
        for (name, needed) in value.as_object().unwrap_or(static_empty()) {
            let at = self.origin(origin, name.as_str());
            let needed = if needed.is_array() {
                let names = self.has_all(needed, at);
                self.all(names, at)
            } else {
                self.schema(needed, at)
            };
            let has = self.push(Form::Object(ObjectAtom::Has(name.as_str().into())), at);
            let has_not = self.push(Form::Not(has), at);
            let other = self.push(Form::Type(Types::OBJECT.not()), at);
            parts.push(self.any(vec![other, has_not, needed], at));
        }
    }
}

fn static_empty() -> &'static Schema {
    static EMPTY: std::sync::LazyLock<Schema> = std::sync::LazyLock::new(Schema::new);
    &EMPTY
}
