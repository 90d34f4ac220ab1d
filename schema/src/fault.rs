//! Reduces the errors of a payload to its independent faults.
//!
//! A validator also reports the consequences of a fault. A text in place of a number also matches no number of an
//! `enum`, fits no branch of an `anyOf`, and leaves properties unevaluated. To repair the payload, you need the fault
//! once.

use std::cmp::Ordering;
use std::collections::BTreeSet;

use jsonschema::ValidationError;
use jsonschema::error::ValidationErrorKind as Kind;

/// The errors that do not follow from another one, in their order.
pub(super) fn independent<'e, 'i>(errors: &'e [ValidationError<'i>]) -> Vec<&'e ValidationError<'i>> {
    let wrong_types = Subtrees::under(errors.iter().filter(|error| is_type(error)).map(path));
    let mut told = BTreeSet::new();
    let mut kept: Vec<_> = errors
        .iter()
        .filter(|error| match error.kind() {
            // Several schemas may want other types of one value: it is wrong once.
            Kind::Type { .. } => wrong_types.has_root(path(error)) && told.insert(path(error)),
            Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
                let follows = |branch: &Vec<ValidationError<'static>>| {
                    !branch.is_empty() && branch.iter().all(|error| wrong_types.hold(path(error)))
                };
                !wrong_types.hold(path(error)) && !context.iter().any(follows)
            }
            _ => !wrong_types.hold(path(error)),
        })
        .collect();
    // A schema that does not fit evaluates nothing, so what else is wrong there decides whether these are faults.
    let others: BTreeSet<Pointer<'_>> =
        kept.iter().filter(|error| !is_unevaluated(error)).map(|error| Pointer(path(error))).collect();
    kept.retain(|error| {
        let below = others.range(Pointer(path(error))..).next();
        !is_unevaluated(error) || !below.is_some_and(|other| other.is_within(Pointer(path(error))))
    });
    kept
}

fn path<'e>(error: &'e ValidationError<'_>) -> &'e str {
    error.instance_path().as_str()
}

fn is_type(error: &ValidationError<'_>) -> bool {
    matches!(error.kind(), Kind::Type { .. })
}

fn is_unevaluated(error: &ValidationError<'_>) -> bool {
    matches!(error.kind(), Kind::UnevaluatedProperties { .. } | Kind::UnevaluatedItems { .. })
}

/// Values and all that is in them, none within another one.
struct Subtrees<'e>(BTreeSet<Pointer<'e>>);

impl<'e> Subtrees<'e> {
    fn under(roots: impl Iterator<Item = &'e str>) -> Self {
        let sorted: BTreeSet<_> = roots.map(Pointer).collect();
        let mut outermost = BTreeSet::new();
        let mut last: Option<Pointer<'_>> = None;
        for root in sorted {
            if !last.is_some_and(|last| root.is_within(last)) {
                last = Some(root);
                outermost.insert(root);
            }
        }
        Self(outermost)
    }

    fn has_root(&self, path: &str) -> bool {
        self.0.contains(&Pointer(path))
    }

    fn hold(&self, path: &str) -> bool {
        self.0.range(..=Pointer(path)).next_back().is_some_and(|root| Pointer(path).is_within(*root))
    }
}

/// A JSON pointer, ordered so that what is within a value follows it directly.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Pointer<'e>(&'e str);

impl Pointer<'_> {
    /// Whether it is `above` or below it.
    fn is_within(self, above: Pointer<'_>) -> bool {
        self.0.strip_prefix(above.0).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }
}

impl Ord for Pointer<'_> {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.split('/').cmp(other.0.split('/'))
    }
}

impl PartialOrd for Pointer<'_> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use capd_proto::cbor::json::from_json;
    use serde_json::{Value, json};

    use crate::{Side, Validator};

    fn violations(schema: &Value, payload: &Value) -> Vec<String> {
        let mut bytes = Vec::new();
        from_json(payload, &mut bytes);
        let validator = Validator::compile(schema.to_string().as_bytes()).unwrap();
        let found = validator.validate(&bytes, Side::Request).err().unwrap_or_default();
        found.into_iter().map(|violation| format!("{} {}", violation.path, violation.keyword)).collect()
    }

    #[test]
    fn a_wrong_type_is_one_violation_whatever_else_follows_from_it() {
        let n = json!({ "type": "integer", "minimum": 3, "enum": [3, 4], "const": 3, "not": { "type": "string" },
                        "anyOf": [{ "const": 3 }, { "const": 4 }], "oneOf": [{ "type": "integer" }] });
        let object = json!({ "type": "object", "properties": { "n": n } });
        let nested = json!({ "n": "x" });
        for (schema, payload, found) in [
            (json!({ "properties": { "n": n } }), json!({ "n": "x" }), "/n type"),
            (
                json!({ "properties": { "n": { "anyOf": [n, { "type": "null" }] } } }),
                nested.clone(),
                "/n anyOf",
            ),
            (
                json!({ "properties": { "n": { "oneOf": [n, { "type": "null" }] } } }),
                nested.clone(),
                "/n oneOf",
            ),
            (
                json!({ "properties": { "n": { "allOf": [n, { "type": ["integer", "null"] }] } } }),
                nested.clone(),
                "/n type",
            ),
            (
                json!({ "allOf": [object, { "properties": { "n": { "type": "number" } } }] }),
                nested.clone(),
                "/n type",
            ),
            (
                json!({ "properties": { "n": n }, "anyOf": [object, { "required": ["m"] }] }),
                nested.clone(),
                "/n type",
            ),
            (
                json!({ "properties": { "n": n }, "oneOf": [object, { "required": ["m"] }] }),
                nested.clone(),
                "/n type",
            ),
            (json!({ "anyOf": [object, { "type": "null" }] }), nested.clone(), "/ anyOf"),
            (json!({ "allOf": [object], "unevaluatedProperties": false }), nested.clone(), "/n type"),
            (json!({ "type": "object", "items": n, "required": ["a"] }), json!(["x", "y"]), "/ type"),
            (json!({ "type": "string", "enum": ["a"] }), json!(5), "/ type"),
            (json!({ "items": { "$ref": "#/$defs/n" }, "$defs": { "n": n } }), json!(["x"]), "/0 type"),
        ] {
            assert_eq!(violations(&schema, &payload), [found], "{schema} {payload}");
        }
    }

    #[test]
    fn names_that_begin_alike_are_not_within_each_other() {
        let schema = json!({
            "properties": { "a": { "type": "integer" }, "a-b": { "minLength": 3 }, "ab": { "minLength": 3 } },
            "additionalProperties": { "unevaluatedProperties": false }
        });
        let mut found = violations(
            &schema,
            &json!({ "a": { "x": 1 }, "a-b": "x", "ab": "x", "c": { "d": 1 }, "c-": { "d": 1 } }),
        );
        found.sort();
        assert_eq!(
            found,
            [
                "/a type",
                "/a-b minLength",
                "/ab minLength",
                "/c-/d unevaluatedProperties",
                "/c/d unevaluatedProperties"
            ]
        );
    }

    #[test]
    fn faults_that_do_not_follow_from_each_other_are_all_told() {
        let schema = json!({
            "type": "object",
            "properties": { "a": { "type": "integer" }, "ab": { "minLength": 3, "pattern": "^x" }, "c": { "anyOf": [{ "minimum": 3 }] } },
            "required": ["d"],
            "anyOf": [{ "required": ["e"] }, { "required": ["f"] }]
        });
        let mut found = violations(&schema, &json!({ "a": "x", "ab": "y", "c": 1 }));
        found.sort();
        assert_eq!(found, ["/ anyOf", "/a type", "/ab minLength", "/ab pattern", "/c anyOf", "/d required"]);
    }

    #[test]
    fn what_two_schemas_say_alike_is_told_once() {
        let branch = json!({ "required": ["a"], "properties": { "b": { "minimum": 3 } }, "additionalProperties": false });
        let schema = json!({ "allOf": [branch, branch] });
        assert_eq!(
            violations(&schema, &json!({ "b": 1, "c": 1 })),
            ["/b minimum", "/c additionalProperties", "/a required"]
        );
    }

    #[test]
    fn a_property_is_not_called_undeclared_because_its_schema_failed_elsewhere() {
        let schema = json!({
            "allOf": [{ "properties": { "a": { "minLength": 3 }, "b": {} } }], "unevaluatedProperties": false
        });
        assert_eq!(violations(&schema, &json!({ "a": "x", "b": 1 })), ["/a minLength"]);
        assert_eq!(violations(&schema, &json!({ "a": "xyz", "c": 1 })), ["/c unevaluatedProperties"]);
    }
}
