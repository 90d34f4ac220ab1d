//! The reviewed files.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use capd::codegen::{Agent, Language, generate};
use capd::daemon::check_schemas;
use capd::declaration::Declaration;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn declarations() -> Vec<PathBuf> {
    let folder = root().join("tests/codegen/declarations");
    let mut files: Vec<_> = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.push(root().join("examples/code-review/capabilities.yaml"));
    files.sort();
    files
}

fn agent(file: &Path) -> Agent {
    let declaration = Declaration::load(file).unwrap_or_else(|error| panic!("{error}"));
    check_schemas(&declaration).unwrap_or_else(|error| panic!("{error}"));
    Agent::declared(&declaration).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn generated_files_are_those_that_were_reviewed() {
    let golden = root().join("tests/codegen/golden");
    let is_writing = std::env::var_os("CAPD_GOLDEN").is_some_and(|value| value == "write");
    let mut written = BTreeSet::new();
    for file in declarations() {
        let agent = agent(&file);
        for language in Language::ALL {
            let generated = generate(language, &agent);
            let path = golden.join(language.as_str()).join(&generated.path);
            if is_writing {
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(&path, &generated.text).unwrap();
            }
            let kept =
                fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
            assert!(
                kept == generated.text,
                "{} is not what is generated from {}; write it with CAPD_GOLDEN=write and review the diff",
                path.display(),
                file.display()
            );
            assert!(written.insert(path.clone()), "two declarations are written to {}", path.display());
        }
    }
    assert_eq!(kept_files(&golden), written, "a golden file that nothing generates");
}

fn kept_files(folder: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(kept_files(&path));
        } else {
            found.insert(path);
        }
    }
    found
}

#[test]
fn the_order_of_keys_and_of_capabilities_changes_no_byte() {
    for file in declarations() {
        let text = fs::read_to_string(&file).unwrap();
        // Two readings of the file, and one with everything the other way round.
        let (first, mut second) = (agent(&file), agent(&file));
        second.capabilities.reverse();
        for capability in &mut second.capabilities {
            for schema in [&mut capability.input, &mut capability.output].into_iter().flatten() {
                let value = serde_json::from_str(&schema.json).unwrap();
                *schema = capd::codegen::Schema::read(backwards(&value).as_bytes()).unwrap();
            }
        }
        for language in Language::ALL {
            assert_eq!(generate(language, &first), generate(language, &second), "{text}");
        }
    }
}

/// The same JSON with the keys of every object in descending order.
fn backwards(value: &serde_json::Value) -> String {
    match value {
        serde_json::Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by(|a, b| b.0.cmp(a.0));
            let member = |(key, value): &(&String, &serde_json::Value)| {
                format!(" {} :\n{}", serde_json::Value::from(key.as_str()), backwards(value))
            };
            format!("{{{}}}", members.iter().map(member).collect::<Vec<_>>().join(","))
        }
        serde_json::Value::Array(items) => {
            format!("[{}]", items.iter().map(backwards).collect::<Vec<_>>().join(" , "))
        }
        other => other.to_string(),
    }
}
