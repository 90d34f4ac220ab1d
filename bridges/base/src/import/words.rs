//! Tells what a schema asserts from the words in it: words reach a model, so they change only with approval.

use serde_json::{Map, Value};

/// A place in a schema, as the keys that lead there.
pub(super) type Place = [String];

/// Calls `visit` for each schema object within a schema, from the root down, with its place.
pub(super) fn each_schema(schema: &mut Value, visit: &mut impl FnMut(&mut Map<String, Value>, &Place)) {
    walk(schema, &mut Vec::new(), visit);
}

fn walk(
    schema: &mut Value,
    place: &mut Vec<String>,
    visit: &mut impl FnMut(&mut Map<String, Value>, &Place),
) {
    let Value::Object(fields) = schema else { return };
    visit(fields, place);
    for (key, value) in fields {
        place.push(key.clone());
        match value {
            Value::Object(named) if NAMED.contains(&key.as_str()) => {
                for (name, schema) in named {
                    place.push(name.clone());
                    walk(schema, place, visit);
                    place.pop();
                }
            }
            Value::Array(schemas) if LISTED.contains(&key.as_str()) => {
                for (index, schema) in schemas.iter_mut().enumerate() {
                    place.push(index.to_string());
                    walk(schema, place, visit);
                    place.pop();
                }
            }
            value if !DATA.contains(&key.as_str()) => walk(value, place, visit),
            _ => {}
        }
        place.pop();
    }
}

/// The schema without words.
pub(super) fn without_words(schema: &Value) -> Value {
    let mut schema = schema.clone();
    each_schema(&mut schema, &mut |fields, _| fields.retain(|key, _| !WORDS.contains(&key.as_str())));
    schema
}

/// The schema with the words that `approved` has at the same places, and no others.
pub(super) fn with_words_of(schema: &Value, approved: &Value) -> Value {
    let mut schema = without_words(schema);
    each_schema(&mut schema, &mut |fields, place| {
        let known = place.iter().try_fold(approved, |at, key| match at {
            Value::Array(items) => key.parse::<usize>().ok().and_then(|index| items.get(index)),
            at => at.get(key),
        });
        for word in WORDS {
            if let Some(text) = known.and_then(|known| known.get(word)) {
                fields.insert(word.to_owned(), text.clone());
            }
        }
    });
    schema
}

/// Keywords that assert nothing and that a model reads.
const WORDS: [&str; 5] = ["title", "description", "default", "examples", "$comment"];
/// Keywords whose members are schemas under names, which are no keywords.
const NAMED: [&str; 6] =
    ["properties", "patternProperties", "dependentSchemas", "dependencies", "$defs", "definitions"];
/// Keywords that are lists of schemas.
const LISTED: [&str; 5] = ["allOf", "anyOf", "oneOf", "prefixItems", "items"];
/// Keywords whose values are data, whatever they look like.
const DATA: [&str; 4] = ["enum", "const", "default", "examples"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn words_are_told_from_names_and_data() {
        let schema = json!({
            "description": "w",
            "properties": {"description": {"type": "string", "title": "w"}, "title": {"const": {"title": "data"}}},
            "items": [{"default": 1}],
            "$defs": {"default": {"examples": [1], "enum": [{"description": "data"}]}},
        });
        assert_eq!(
            without_words(&schema),
            json!({
                "properties": {"description": {"type": "string"}, "title": {"const": {"title": "data"}}},
                "items": [{}],
                "$defs": {"default": {"enum": [{"description": "data"}]}},
            })
        );
    }

    #[test]
    fn words_come_from_what_was_approved_at_the_same_place() {
        let approved =
            json!({"description": "old", "properties": {"a": {"description": "a"}, "c": {"title": "c"}}});
        let new = json!({"description": "new", "properties": {"a": {"type": "string"}, "b": {"description": "steal"}}});
        assert_eq!(
            with_words_of(&new, &approved),
            json!({"description": "old", "properties": {"a": {"type": "string", "description": "a"}, "b": {}}})
        );
    }
}
