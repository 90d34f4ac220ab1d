//! The version suite of the `node-semver` project in, every version and comparison of it checked against ours.
//!
//! Run by hand: `CAPD_SUITES=<directory with semver/> cargo test -p capd-proto --test suites_semver`.

use std::{collections::BTreeSet, env, fs, path::PathBuf};

use capd_proto::capability::Version;
use serde_json::Value;

/// Versions that the suite takes and we refuse: each begins with one of these, node's "loose" reading or a trimmed
/// one. PROTOCOL 6 takes SemVer 2.0.0, which knows no prefix and no space.
const LOOSE_PREFIXES: &[char] = &['v', '=', ' '];

/// Versions that the suite refuses and we take, with the reason.
const WIDER: &[(&str, &str)] = &[
    ("90071992547409910.0.0", "node's numbers end at 2^53; SemVer sets no bound and ours is 2^64"),
    ("0.90071992547409910.0", "node's numbers end at 2^53; SemVer sets no bound and ours is 2^64"),
    ("0.0.90071992547409910", "node's numbers end at 2^53; SemVer sets no bound and ours is 2^64"),
];

fn rows(file: &str) -> Vec<Value> {
    let root = env::var_os("CAPD_SUITES").expect("CAPD_SUITES names the directory that holds semver/");
    let path = PathBuf::from(root).join("semver").join(file);
    let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let rows: Vec<Value> = serde_json::from_str(&text).expect("a suite is a list of rows");
    assert!(!rows.is_empty(), "{file} is empty");
    rows
}

/// Both versions of a row, or `None` when one is a loose form.
fn pair(row: &Value) -> Option<(Version, Version)> {
    let text = [0, 1].map(|at| row[at].as_str().expect("a row begins with two versions"));
    if text.iter().any(|text| text.starts_with(LOOSE_PREFIXES)) {
        assert!(
            text.iter().any(|text| text.parse::<Version>().is_err()),
            "{row} has a loose form that was taken"
        );
        return None;
    }
    let [Ok(first), Ok(second)] = text.map(str::parse) else { panic!("{row} was refused") };
    Some((first, second))
}

#[test]
fn the_first_of_each_comparison_comes_after_the_second() {
    let pairs: Vec<_> = rows("comparisons.json").iter().filter_map(pair).collect();
    assert_eq!(pairs.len(), 19, "comparisons between strict versions");
    for (greater, lesser) in pairs {
        assert!(greater > lesser, "{greater} > {lesser}");
        assert!(lesser < greater, "{lesser} < {greater}");
        assert_ne!(greater, lesser);
    }
}

#[test]
fn versions_that_differ_in_their_build_are_equal() {
    let pairs: Vec<_> = rows("equality.json").iter().filter_map(pair).collect();
    assert_eq!(pairs.len(), 2, "equalities between strict versions");
    for (first, second) in pairs {
        assert_eq!(first, second);
    }
}

#[test]
fn valid_versions_have_the_suites_parts() {
    for row in rows("valid-versions.json") {
        let text = row[0].as_str().unwrap();
        if text.starts_with(LOOSE_PREFIXES) {
            assert!(text.parse::<Version>().is_err(), "{text} is a loose form");
            continue;
        }
        let version: Version = text.parse().unwrap();
        let numbers = [version.major(), version.minor(), version.patch()];
        assert_eq!(numbers.map(Value::from).as_slice(), &row.as_array().unwrap()[1..4], "{text}");
        assert_eq!(version.prerelease(), identifiers(&row[4]), "{text}");
        assert_eq!(version.build(), identifiers(&row[5]), "{text}");
        assert_eq!(version.to_string(), text);
    }
}

fn identifiers(list: &Value) -> String {
    let list = list.as_array().expect("a row ends with lists of identifiers");
    let texts = list
        .iter()
        .map(|identifier| identifier.as_str().map_or_else(|| identifier.to_string(), str::to_owned));
    texts.collect::<Vec<_>>().join(".")
}

#[test]
fn invalid_versions_are_refused_except_those_listed() {
    let mut taken = BTreeSet::new();
    for row in rows("invalid-versions.json") {
        // The rows without text try values that are no text, which FromStr cannot be given.
        let Some(text) = row[0].as_str() else { continue };
        if text.parse::<Version>().is_ok() {
            taken.insert(text.to_owned());
        }
    }
    let listed: BTreeSet<_> = WIDER.iter().map(|(text, _)| (*text).to_owned()).collect();
    assert_eq!(taken, listed);
}
