//! The example's declaration and the project's own sources in; reviews that keep the declared contracts out.

use std::path::{Path, PathBuf};

use capd::declaration::{Declaration, Declared, SchemaSource};
use jsonschema::Validator;
use serde_json::{Value, json};

#[path = "../examples/code-review/review/mod.rs"]
mod review;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn declared() -> Vec<Declared> {
    let declaration = Declaration::load(&root().join("examples/code-review/capabilities.yaml"));
    let declaration = declaration.expect("the example's declaration is right");
    assert_eq!(declaration.warnings, Vec::<String>::new());
    declaration.capabilities
}

fn validator(schema: Option<&SchemaSource>) -> Validator {
    let schema = schema.expect("both sides are declared");
    let document = serde_json::from_slice(&schema.bytes).expect("a schema is JSON");
    jsonschema::options()
        .with_draft(jsonschema::Draft::Draft7)
        .build(&document)
        .expect("a schema of the example compiles")
}

/// Some of the project's own files, with their language's name.
fn sources() -> Vec<(PathBuf, &'static str)> {
    let folders = [("src", "rust"), ("proto/src", "rust"), ("examples/code-review/review/rules", "rust")];
    let mut sources: Vec<(PathBuf, &str)> = Vec::new();
    for (folder, language) in folders {
        for entry in std::fs::read_dir(root().join(folder)).expect("the folder is there") {
            let path = entry.expect("the folder is readable").path();
            if path.is_file() {
                sources.push((path, language));
            }
        }
    }
    sources.push((root().join("README.md"), "markdown"));
    sources.push((root().join("Cargo.toml"), "toml"));
    sources.retain(|(path, _)| path.exists());
    sources
}

#[test]
fn versions_stand_side_by_side() {
    let ids: Vec<String> = declared().iter().map(|declared| declared.id.to_string()).collect();
    assert_eq!(ids, ["org.agentries.code-review:1.5.0", "org.agentries.code-review:2.0.0"]);
}

#[test]
fn reviews_of_real_sources_keep_the_declared_contracts() {
    for declared in declared() {
        let (input, output) =
            (validator(declared.input_schema.as_ref()), validator(declared.output_schema.as_ref()));
        let api = declared.id.version.to_string();
        for (path, language) in sources() {
            let code = std::fs::read_to_string(&path).expect("sources are text");
            let params = json!({ "code": code, "language": language });
            assert!(input.is_valid(&params), "{}", path.display());
            let mut result = Vec::new();
            review::answer(&api, params.to_string().as_bytes(), &mut result).expect("the params are right");
            let result: Value = serde_json::from_slice(&result).expect("a review is JSON");
            let problems: Vec<String> = output.iter_errors(&result).map(|error| error.to_string()).collect();
            assert_eq!(problems, Vec::<String>::new(), "{api} of {}", path.display());
        }
    }
}

#[test]
fn context_belongs_to_the_newer_version_alone() {
    let params = json!({ "code": "", "language": "rust", "context": "a public library" });
    let takes: Vec<bool> = declared()
        .iter()
        .map(|declared| validator(declared.input_schema.as_ref()).is_valid(&params))
        .collect();
    assert_eq!(takes, [false, true]);
}

#[test]
fn newer_review_can_be_read_as_an_older_one() {
    let older = &declared()[0];
    let mut result = Vec::new();
    let params = json!({ "code": "x.unwrap();", "language": "rust", "context": "a parser" }).to_string();
    review::answer("2.0.0", params.as_bytes(), &mut result).expect("the params are right");
    let result: Value = serde_json::from_slice(&result).expect("a review is JSON");
    assert!(result["score"].is_u64());
    assert!(validator(older.output_schema.as_ref()).is_valid(&result));
}
