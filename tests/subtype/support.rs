//! What the tests of the proof share: compiling, and the validator that judges witnesses, set up by itself.

use capd::schema::subtype::{Compiled, Verdict, is_subtype};
use jsonschema::{Draft, PatternOptions, Validator};
use serde_json::Value;

pub(crate) const DRAFT_7: &str = "http://json-schema.org/draft-07/schema#";

/// The schema, ready for the proof.
pub(crate) fn compiled(schema: &Value) -> Compiled {
    Compiled::compile(schema.to_string().as_bytes())
        .unwrap_or_else(|error| panic!("{}: {error}", short(schema)))
}

/// The validating crate's own validator, with formats asserted.
pub(crate) fn validator(schema: &Value) -> Validator {
    let is_draft_7 = schema
        .get("$schema")
        .and_then(Value::as_str)
        .is_some_and(|draft| draft.trim_end_matches('#') == DRAFT_7.trim_end_matches('#'));
    jsonschema::options()
        .with_draft(if is_draft_7 { Draft::Draft7 } else { Draft::Draft202012 })
        .offline()
        .with_pattern_options(PatternOptions::regex())
        .should_validate_formats(true)
        .with_format("uuid", |text: &str| {
            let groups: Vec<&str> = text.split('-').collect();
            groups.iter().map(|group| group.len()).eq([8, 4, 4, 4, 12])
                && groups.concat().bytes().all(|byte| byte.is_ascii_hexdigit())
        })
        .build(schema)
        .unwrap_or_else(|error| panic!("{}: {error}", short(schema)))
}

/// The schema, or as much of it as is worth reading.
fn short(schema: &Value) -> String {
    schema.to_string().chars().take(1_000).collect()
}

/// The verdict, after its witness, if there is one, was looked at once more.
pub(crate) fn verdict(sub: &Value, sup: &Value) -> Verdict {
    let verdict = is_subtype(&compiled(sub), &compiled(sup));
    if let Verdict::Refuted { witness, .. } = &verdict {
        assert!(validator(sub).is_valid(witness), "{witness} is none of {sub}");
        assert!(!validator(sup).is_valid(witness), "{witness} is one of {sup}");
    }
    verdict
}
