use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;

fn hex(text: &str) -> String {
    sha_256(&[text.as_bytes()]).to_string()
}

#[test]
fn the_published_vectors_come_out() {
    let file: Value = serde_json::from_str(include_str!("../../../tests/vectors/hash.json")).unwrap();
    let vectors = file["static_hash"].as_array().unwrap();
    assert_eq!(vectors.len(), 2);
    for vector in vectors {
        let payload = &vector["payload"];
        let schema = payload["schema"].to_string();
        let input = match (payload["schema"]["vendor"].as_str(), payload["schema"]["version"].as_u64()) {
            (Some(vendor), Some(version)) => Form::Vendor { vendor, version },
            _ => Form::Document(schema.as_bytes()),
        };
        let name = payload["name"].as_str().unwrap();
        let hash = Contract { name, input: Some(input), ..Contract::default() }.static_hash().unwrap();
        assert_eq!(hash.to_string(), vector["sha256"].as_str().unwrap());
        let canonical = canonical(payload.to_string().as_bytes()).unwrap();
        assert_eq!(sha_256(&[&canonical]), hash);
    }
}

#[test]
fn what_stands_for_the_schema_depends_on_the_sides_that_have_one() {
    let (number, text) = (br#"{"type":"number"}"#, br#"{"type":"string"}"#);
    let hash = |input, output| {
        let contract = Contract { name: "a", input, output, ..Contract::default() };
        contract.static_hash().unwrap().to_string()
    };
    let payload = |schema: &str| {
        hex(&format!(
            r#"{{"description":null,"instructions":[],"kind":"tool","name":"a","policies":[],"schema":{schema}}}"#
        ))
    };
    let (number, text) = (Some(Form::Document(number)), Some(Form::Document(text)));
    assert_eq!(hash(None, None), payload("null"));
    assert_eq!(hash(number, None), payload(r#"{"type":"number"}"#));
    assert_eq!(hash(number, text), payload(r#"{"input":{"type":"number"},"output":{"type":"string"}}"#));
    assert_eq!(hash(None, text), payload(r#"{"input":null,"output":{"type":"string"}}"#));
    let vendor = Some(Form::Vendor { vendor: "zod", version: 1 });
    assert_eq!(
        hash(vendor, text),
        payload(r#"{"input":{"vendor":"zod","version":1},"output":{"type":"string"}}"#)
    );
}

#[test]
fn a_toolkit_hashes_alike_in_any_order_and_a_lineage_does_not() {
    let [a, b] = [1, 2].map(|byte| Fingerprint([byte; 32]));
    let text =
        format!(r#"{{"kind":"toolkit","tools":[{{"hash":"{b}","name":"x"}},{{"hash":"{a}","name":"y"}}]}}"#);
    assert_eq!(toolkit([("x", b), ("y", a)]).to_string(), hex(&text));
    assert_eq!(toolkit([("y", a), ("x", b)]), toolkit([("x", b), ("y", a)]));
    assert_eq!(toolkit([]).to_string(), hex(r#"{"kind":"toolkit","tools":[]}"#));
    let first = lineage(None, a);
    assert_eq!(first, sha_256(&[&[1; 32]]));
    assert_eq!(lineage(Some(first), b), sha_256(&[&[&first.0[..], &[2; 32][..]].concat()]));
    assert_ne!(lineage(Some(first), b), lineage(Some(lineage(None, b)), a));
}

#[test]
fn integers_that_floats_cannot_tell_apart_are_refused_and_floats_are_not() {
    for (text, pointer, found) in [
        ("9007199254740993", "/", "9007199254740993"),
        (r#"{"a": [0, -9007199254740993]}"#, "/a/1", "-9007199254740993"),
        (r#"{"a/b": 18446744073709551615}"#, "/a~1b", "18446744073709551615"),
        ("[100000000000000000000001]", "/", "100000000000000000000001"),
        ("-9223372036854775809", "/", "-9223372036854775809"),
        (r#"{"\"1": -123456789012345678901 }"#, "/", "-123456789012345678901"),
    ] {
        let error = canonical(text.as_bytes()).unwrap_err();
        assert_eq!(error, HashError::Integer { pointer: pointer.to_owned(), found: found.to_owned() });
    }
    for (text, written) in [
        ("9007199254740992", "9007199254740992"),
        ("-9007199254740992", "-9007199254740992"),
        ("1E30", "1e+30"),
        ("1.7976931348623157e308", "1.7976931348623157e+308"),
        (r#""100000000000000000000001""#, r#""100000000000000000000001""#),
        (r#"["\\", "\"99999999999999999999999"]"#, r#"["\\","\"99999999999999999999999"]"#),
        ("100000000000000000000.5", "100000000000000000000"),
        ("-0", "0"),
    ] {
        assert_eq!(String::from_utf8(canonical(text.as_bytes()).unwrap()).unwrap(), written);
    }
    assert!(matches!(canonical(br#"{"a":1,"a":1}"#), Err(HashError::NotJson { line: 1, .. })));
    let vendor = Form::Vendor { vendor: "x", version: u64::MAX };
    assert!(Contract { input: Some(vendor), ..Contract::default() }.static_hash().is_err());
}

/// Any JSON that has a hash.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-9_007_199_254_740_992_i64..=9_007_199_254_740_992).prop_map(Value::from),
        any::<f64>().prop_filter_map("finite", |float| float.is_finite().then(|| Value::from(float))),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec((any::<String>(), inner), 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect::<Map<_, _>>())),
        ]
    })
}

/// The same value with its members the other way round and white space between everything.
fn rewritten(value: &Value, out: &mut String) {
    match value {
        Value::Array(items) => {
            out.push_str("[ ");
            for (index, item) in items.iter().enumerate() {
                out.push_str(if index > 0 { "\n,\t" } else { "" });
                rewritten(item, out);
            }
            out.push_str(" ]");
        }
        Value::Object(members) => {
            out.push_str("\r\n{ ");
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|a, b| b.0.cmp(a.0));
            for (index, (key, member)) in members.into_iter().enumerate() {
                out.push_str(if index > 0 { " , " } else { "" });
                out.push_str(&format!("{} :\n", Value::from(key.as_str())));
                rewritten(member, out);
            }
            out.push('}');
        }
        leaf => out.push_str(&leaf.to_string()),
    }
}

#[derive(Clone, Debug)]
struct Parts {
    name: String,
    description: Option<String>,
    input: Option<Value>,
    output: Option<Value>,
    instructions: Vec<String>,
    policies: Vec<String>,
}

impl Parts {
    fn hash(&self) -> Fingerprint {
        let [input, output] = [&self.input, &self.output].map(|side| side.as_ref().map(Value::to_string));
        self.hash_of(input.as_deref(), output.as_deref())
    }

    fn hash_of(&self, input: Option<&str>, output: Option<&str>) -> Fingerprint {
        let [input, output] = [input, output].map(|side| side.map(|text| Form::Document(text.as_bytes())));
        let contract = Contract {
            name: &self.name,
            description: self.description.as_deref(),
            input,
            output,
            instructions: &self.instructions,
            policies: &self.policies,
        };
        contract.static_hash().unwrap()
    }
}

fn parts() -> impl Strategy<Value = Parts> {
    // A side's schema has no `input` and no `output` of its own, as no JSON Schema has.
    let side = || prop::option::of(any_json().prop_map(|inner| json!({ "const": inner })));
    let texts = || prop::collection::vec(any::<String>(), 0..4);
    (any::<String>(), prop::option::of(any::<String>()), side(), side(), texts(), texts()).prop_map(
        |(name, description, input, output, instructions, policies)| Parts {
            name,
            description,
            input,
            output,
            instructions,
            policies,
        },
    )
}

proptest! {
    #[test]
    fn key_order_and_white_space_never_change_a_hash(parts in parts()) {
        let again = |side: &Option<Value>| side.as_ref().map(|value| {
            let mut text = String::new();
            rewritten(value, &mut text);
            text
        });
        let mut shuffled = parts.clone();
        shuffled.instructions.reverse();
        shuffled.policies.reverse();
        let (input, output) = (again(&parts.input), again(&parts.output));
        prop_assert_eq!(parts.hash(), shuffled.hash_of(input.as_deref(), output.as_deref()));
    }

    #[test]
    fn any_change_of_a_part_changes_the_hash(before in parts(), other in parts(), which in 0..6) {
        let mut after = before.clone();
        let sorted = |texts: &[String]| { let mut texts = texts.to_vec(); texts.sort(); texts };
        let is_same = match which {
            0 => { after.name = other.name; before.name == after.name }
            1 => { after.description = other.description; before.description == after.description }
            2 => { after.input = other.input; same(&before.input, &after.input) }
            3 => { after.output = other.output; same(&before.output, &after.output) }
            4 => {
                after.instructions = other.instructions;
                sorted(&before.instructions) == sorted(&after.instructions)
            }
            _ => { after.policies = other.policies; sorted(&before.policies) == sorted(&after.policies) }
        };
        prop_assert_eq!(before.hash() == after.hash(), is_same);
    }

    #[test]
    fn any_change_within_a_schema_changes_the_hash(a in any_json(), b in any_json()) {
        let hash = |value: &Value| sha_256(&[&canonical(value.to_string().as_bytes()).unwrap()]);
        prop_assert_eq!(hash(&a) == hash(&b), same(&Some(a), &Some(b)));
    }
}

/// Whether two values are the same to JSON, for which 1.0 is 1.
fn same(a: &Option<Value>, b: &Option<Value>) -> bool {
    fn value(a: &Value, b: &Value) -> bool {
        match (a, b) {
            (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
            (Value::Array(a), Value::Array(b)) => {
                a.len() == b.len() && a.iter().zip(b).all(|(a, b)| value(a, b))
            }
            (Value::Object(a), Value::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(key, a)| b.get(key).is_some_and(|b| value(a, b)))
            }
            (a, b) => a == b,
        }
    }
    match (a, b) {
        (Some(a), Some(b)) => value(a, b),
        (a, b) => a.is_none() && b.is_none(),
    }
}
