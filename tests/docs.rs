//! What the documentation shows, run: a page that is wrong fails here.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]

mod pages;
mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

use support::{exit_code, run_with, stderr, stdout};

fn page(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The fenced blocks of one language.
fn blocks(page: &str, language: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut block: Option<String> = None;
    for line in page.lines() {
        match &mut block {
            None if line == format!("```{language}") => block = Some(String::new()),
            Some(_) if line == "```" => found.extend(block.take()),
            Some(block) => {
                block.push_str(line);
                block.push('\n');
            }
            None => {}
        }
    }
    found
}

fn capd(args: &[&str]) -> std::process::Output {
    run_with(Command::new(env!("CARGO_BIN_EXE_capd")).env_clear().env("HOME", "/nonexistent").args(args), b"")
}

#[test]
fn the_configuration_page_lists_every_key_as_capd_does() {
    let page = page("docs/configuration.md");
    let reference = capd(&["config", "reference"]);
    assert!(
        page.ends_with(stdout(&reference)),
        "write it anew: `capd config reference` behind \"## All keys\""
    );
}

#[test]
fn the_operations_page_lists_every_metric_as_the_code_does() {
    let page = page("docs/operations.md");
    let reference = capd::admin::reference();
    assert!(page.contains(&format!("\n\n{reference}\n")), "write the table of metrics anew:\n{reference}");
}

#[test]
fn rules_and_dashboard_name_only_metrics_that_are_served_and_the_page_explains_each_alert() {
    let rules = page("deploy/prometheus/alerts.yml");
    let dashboard = page("deploy/grafana/capd.json");
    let is_of_name = |c: char| c.is_ascii_lowercase() || c == '_';
    let mut seen = 0;
    for text in [&rules, &dashboard] {
        for (start, _) in text.match_indices("capd_") {
            let name: String = text[start..].chars().take_while(|c| is_of_name(*c)).collect();
            let family = ["_bucket", "_sum", "_count"].iter().find_map(|part| name.strip_suffix(part));
            let is_served = |name: &str| capd::admin::METRICS.iter().any(|metric| metric.name == name);
            assert!(is_served(&name) || family.is_some_and(is_served), "{name} is not served");
            seen += 1;
        }
    }
    assert!(seen > 30, "{seen}");
    let operations = page("docs/operations.md");
    for alert in rules.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        assert!(operations.contains(&format!("`{alert}`")), "docs/operations.md does not explain {alert}");
    }
}

#[test]
fn every_configuration_shown_is_one_that_capd_takes() {
    for name in ["docs/configuration.md", "docs/operations.md"] {
        let shown = blocks(&page(name), "toml");
        assert!(!shown.is_empty(), "{name} shows none");
        for (number, text) in shown.iter().enumerate() {
            let dir = tempfile::tempdir().unwrap();
            // The pages name files of an owner's machine, and a DID with its middle left out.
            let text = text
                .replace("/var/lib/capd", dir.path().to_str().unwrap())
                .replace("/etc/capd/", "")
                .replace("did:key:z6Mk…", "did:key:z6MktyTewFWmHLrvbwhGR1iR1X5ov4LbrNKarzahnF8AGz2P");
            std::fs::write(
                dir.path().join("capabilities.yaml"),
                page("examples/code-review/capabilities.yaml"),
            )
            .unwrap();
            copy_schemas(dir.path());
            let config = dir.path().join("capd.toml");
            std::fs::write(&config, text).unwrap();
            let checked = capd(&["config", "check", "--config", config.to_str().unwrap()]);
            assert_eq!(exit_code(&checked), 0, "{name}, block {number}: {}", stderr(&checked));
        }
    }
}

#[test]
fn every_policy_shown_is_one_that_capd_takes() {
    let shown = blocks(&page("docs/concepts.md"), "cedar").concat();
    assert!(shown.contains("permit"), "docs/concepts.md shows none");
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("shown.cedar"), shown).unwrap();
    let config = dir.path().join("capd.toml");
    let text = "[agent]\ndir = \"state\"\n[[groups]]\nname = \"analysts\"\nmembers = []\n[policy]\nfiles = [\"shown.cedar\"]\n";
    std::fs::write(&config, text).unwrap();
    let checked = capd(&["config", "check", "--config", config.to_str().unwrap()]);
    assert_eq!(exit_code(&checked), 0, "{}", stderr(&checked));
    assert_eq!(stdout(&checked), "the configuration has no mistakes\n", "no warning either");
}

fn copy_schemas(to: &Path) {
    for version in ["1.5.0", "2.0.0"] {
        let from =
            PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("examples/code-review/schemas").join(version);
        let to = to.join("schemas").join(version);
        std::fs::create_dir_all(&to).unwrap();
        for side in ["input.json", "output.json"] {
            std::fs::copy(from.join(side), to.join(side)).unwrap();
        }
    }
}

#[test]
fn the_readme_names_only_what_is_there() {
    let readme = page("README.md");
    assert_eq!(
        blocks(&readme, "sh"),
        ["cargo run --release --bin capd -- dev\n", "cargo test --workspace\n"],
        "the two commands"
    );
    let links = readme.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
    for link in links.filter(|link| !link.contains("://")) {
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        let path = if path.is_empty() { "README.md" } else { path };
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(path).exists(), "README.md links to {link}");
        // As GitHub makes them.
        let slug = |line: &str| {
            let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            heading.chars().filter(kept).collect::<String>().replace(' ', "-")
        };
        let is_there = || page(path).lines().any(|line| line.starts_with('#') && slug(line) == anchor);
        assert!(anchor.is_empty() || is_there(), "README.md links to {link}");
    }
    let folders =
        readme.lines().filter_map(|line| line.strip_prefix("| `")).filter_map(|row| row.split_once("/`"));
    for (folder, _) in folders {
        assert!(Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).is_dir(), "README.md names {folder}/");
    }
}

#[test]
fn the_security_page_names_only_what_is_there() {
    let text = page("SECURITY.md");
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let links = text.split("](").skip(1).filter_map(|rest| rest.split_once(')')).map(|(link, _)| link);
    for link in links {
        let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
        // As GitHub makes them.
        let slug = |line: &str| {
            let kept = |c: &char| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_');
            let heading = line.trim_start_matches('#').trim().to_lowercase();
            heading.chars().filter(kept).collect::<String>().replace(' ', "-")
        };
        let is_there =
            anchor.is_empty() || page(path).lines().any(|line| line.starts_with('#') && slug(line) == anchor);
        assert!(root.join(path).exists() && is_there, "SECURITY.md links to {link}");
    }
    let reference = capd(&["config", "reference"]);
    let words: Vec<_> = text.split('`').skip(1).step_by(2).collect();
    for folder in ["tests/", "benches/", "proto/", "fuzz/", ".ci/"] {
        for path in words.iter().filter(|word| word.starts_with(folder)) {
            assert!(root.join(path).exists(), "SECURITY.md names {path}");
        }
    }
    for table in ["limits.", "timeouts.", "audit.", "peer.", "log."] {
        for word in words.iter().filter(|word| word.starts_with(table)) {
            let key = word.split([' ', '*']).next().unwrap();
            assert!(stdout(&reference).contains(&format!("| `{key}")), "SECURITY.md names {key}");
        }
    }
    assert!(words.contains(&"limits.*") && words.contains(&"tests/hostile"), "{words:?}");
}
