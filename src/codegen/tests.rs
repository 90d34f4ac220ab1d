mod sound;

use serde_json::json;

use super::*;

/// The type of the params in one language, for an agent that takes what fits `schema`.
fn request(language: Language, schema: &serde_json::Value) -> String {
    let input = Some(Schema::read(schema.to_string().as_bytes()).unwrap());
    let id = "org.example.a:1.0.0".parse().unwrap();
    let agent =
        Agent { name: None, capabilities: vec![Capability { id, description: None, input, output: None }] };
    let text = generate(language, &agent).text;
    let (start, end) = match language {
        Language::TypeScript => ("export type ARequest = ", ";\n\n/** No schema"),
        Language::Python => ("ARequest = ", "\n\n\n#: No schema"),
        Language::Go => ("type ARequest ", "\n\n// AResponse"),
        Language::Rust => ("pub type ARequest = ", ";\n\n/// No schema"),
    };
    let begin = text.find(start).unwrap_or_else(|| panic!("{text}")) + start.len();
    text[begin..][..text[begin..].find(end).unwrap_or_else(|| panic!("{text}"))].to_owned()
}

#[test]
fn typescript_writes_each_keyword_as_a_type() {
    for (schema, text) in [
        (json!(true), "unknown"),
        (json!(false), "never"),
        (json!({}), "unknown"),
        (json!({"type": "string", "minLength": 3, "format": "uuid", "not": {"const": "x"}}), "string"),
        (json!({"type": "integer"}), "number"),
        (json!({"type": ["integer", "number"]}), "number"),
        (json!({"type": ["null", "string"]}), "string | null"),
        (json!({"enum": []}), "never"),
        (json!({"enum": ["b", "a", "b", 1, null]}), "\"b\" | \"a\" | 1 | null"),
        (json!({"type": "string", "enum": ["a", 1]}), "\"a\""),
        (json!({"const": {"a": [1, "*/"]}}), "{ a: [1, \"*/\"] }"),
        (json!({"enum": ["a", "b"], "const": "b"}), "\"b\""),
        (json!({"type": "array", "items": {"enum": ["a", "b"]}}), "(\"a\" | \"b\")[]"),
        (json!({"type": "array", "items": {"type": ["string", "null"]}}), "(string | null)[]"),
        (json!({"type": "array"}), "unknown[]"),
        (json!({"type": "object"}), "{ [key: string]: unknown }"),
        (json!({"type": "object", "additionalProperties": {"type": "string"}}), "{ [key: string]: string }"),
        (json!({"oneOf": [{"const": "a"}, {"const": "b"}]}), "\"a\" | \"b\""),
        (
            json!({"anyOf": [{"type": "string"}, {"anyOf": [{"type": "null"}, {"type": "string"}]}]}),
            "string | null",
        ),
        (json!({"anyOf": [{"type": "string"}, {}]}), "unknown"),
        (json!({"allOf": [{"type": ["string", "null"]}, {"minLength": 1}], "type": "string"}), "string"),
        (json!({"allOf": [{"type": "string"}, {"type": "integer"}]}), "never"),
    ] {
        assert_eq!(request(Language::TypeScript, &schema), text, "{schema}");
    }
}

#[test]
fn a_union_inside_all_of_keeps_its_parentheses() {
    let record = |name: &str| json!({"type": "object", "properties": {name: {"type": "string"}}});
    let schema = json!({"allOf": [{"oneOf": [record("a"), record("b")]}, record("c")]});
    assert_eq!(
        request(Language::TypeScript, &schema),
        "({\n  a?: string;\n} | {\n  b?: string;\n}) & {\n  c?: string;\n}"
    );
}

#[test]
fn what_has_no_type_is_unknown_in_every_language_and_says_where() {
    let schema = json!({"type": "array", "items": {"if": true}});
    for (language, text) in [
        (
            Language::TypeScript,
            "(unknown /* No type for #/items: the keyword if is not of the strict profile. */)[]",
        ),
        (Language::Python, "List[object]"),
        (Language::Go, "[]any"),
        (Language::Rust, "Vec<::serde_json::Value>"),
    ] {
        assert_eq!(request(language, &schema), text);
    }
}

#[test]
fn other_languages_write_what_they_have() {
    for (schema, python, go, rust) in [
        (json!({"type": "integer"}), "int", "int64", "i64"),
        (json!({"type": "integer", "minimum": 0}), "int", "int64", "i64"),
        (json!({"type": "integer", "minimum": 0, "maximum": 1.8e19}), "int", "uint64", "u64"),
        (json!({"type": "number"}), "float", "float64", "f64"),
        (json!({"type": ["string", "null"]}), "Union[str, None]", "= *string", "Option<String>"),
        (json!({"enum": [1, 2]}), "Literal[1, 2]", "int64", "i64"),
        (json!({"enum": [1.5, 2]}), "float", "float64", "f64"),
        (json!({"enum": [true]}), "Literal[True]", "bool", "bool"),
        (
            json!({"type": "object"}),
            "Dict[str, object]",
            "map[string]any",
            "::serde_json::Map<String, ::serde_json::Value>",
        ),
        (
            json!({"type": "object", "additionalProperties": {"type": "array", "items": {"type": "boolean"}}}),
            "Dict[str, List[bool]]",
            "map[string][]bool",
            "::std::collections::BTreeMap<String, Vec<bool>>",
        ),
        (json!({"type": "null"}), "Union[None]", "= any", "()"),
    ] {
        for (language, text) in [(Language::Python, python), (Language::Go, go), (Language::Rust, rust)] {
            assert_eq!(request(language, &schema), text, "{schema}");
        }
    }
}

#[test]
fn an_integer_that_has_no_hash_of_its_own_is_refused() {
    assert!(Schema::read(br#"{"maximum": 9007199254740993}"#).is_err());
    assert_eq!(Schema::read(b"{\"b\": 1.0,\n\"a\": []}").unwrap().json, "{\"a\":[],\"b\":1}");
}
