//! Replays every file of every fuzz corpus, and checks that each fuzz target has its body, its corpus and its files.
//!
//! A crash that the fuzzer finds becomes a file in `fuzz/corpus/TARGET/` and a named test beside the code at fault; for
//! the `subtype` target, also a pair with its true answer in `tests/subtype/pairs.jsonl`.

#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]

#[path = "../fuzz/bodies/mod.rs"]
mod bodies;

use std::collections::BTreeSet;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use bodies::{TARGETS, Target};

#[test]
fn every_claim_holds_on_every_corpus_file() {
    let inputs: Vec<_> = TARGETS.iter().flat_map(|target| inputs(target)).collect();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some((target, file, bytes)) = inputs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    if catch_unwind(|| (target.run)(bytes)).is_err() {
                        failed.lock().unwrap().push(format!("{}: {}", target.name, file.display()));
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    assert!(failed.is_empty(), "claims do not hold on {} inputs:\n{}", failed.len(), failed.join("\n"));
}

#[test]
fn every_target_has_a_body_a_corpus_and_its_thin_file() {
    let listed = names(TARGETS.iter().map(|target| target.name.to_owned()));
    assert_eq!(listed.len(), TARGETS.len(), "each name once");
    assert_eq!(in_folder("corpus"), listed, "folders in fuzz/corpus and names in fuzz/bodies/mod.rs");
    for target in &TARGETS {
        assert!(!files(target).is_empty(), "fuzz/corpus/{} is empty", target.name);
        let thin = text(&format!("fuzz_targets/{}.rs", target.name));
        let entry = format!("capd_fuzz::fuzz_target!(\"{}\");", target.name);
        let is_thin = thin.lines().filter(|line| !line.is_empty() && !line.starts_with("//!"));
        let is_thin = is_thin.eq(["#![no_main]", &entry]);
        assert!(is_thin, "fuzz_targets/{}.rs is not a thin file:\n{thin}", target.name);
    }
    // `any` runs the body that an argument names.
    let mut targets = listed;
    targets.insert("any".into());
    assert_eq!(in_folder("fuzz_targets"), targets, "files in fuzz/fuzz_targets");
    let manifest: toml::Table = text("Cargo.toml").parse().unwrap();
    let bins = manifest["bin"].as_array().unwrap().iter();
    assert_eq!(names(bins.map(|bin| bin["name"].as_str().unwrap().to_owned())), targets, "[[bin]]s of fuzz/");
}

#[test]
fn every_body_has_a_target() {
    let list = text("bodies/mod.rs");
    let listed = list.lines().filter_map(|line| line.trim().strip_prefix("Target {")?.split_once("run: "));
    let mut listed = names(listed.filter_map(|(_, run)| Some(run.split_once("::")?.0.to_owned())));
    assert_eq!(listed.len(), TARGETS.len(), "each target runs a body of its own");
    listed.insert("mod".into());
    assert_eq!(in_folder("bodies"), listed, "files in fuzz/bodies and modules in its list of targets");
}

/// Every input of a target: its corpus, and nothing at all.
fn inputs(target: &'static Target) -> Vec<(&'static Target, PathBuf, Vec<u8>)> {
    let mut inputs = vec![(target, PathBuf::from("the empty input"), Vec::new())];
    inputs.extend(files(target).into_iter().map(|file| {
        let bytes = fs::read(&file).unwrap();
        (target, file, bytes)
    }));
    inputs
}

/// The corpus files of a target, in the order of their names.
fn files(target: &Target) -> Vec<PathBuf> {
    let mut files = entries(&fuzz("corpus").join(target.name));
    files.sort();
    files
}

/// The names in a folder under `fuzz/`, without their extensions.
fn in_folder(folder: &str) -> BTreeSet<String> {
    names(entries(&fuzz(folder)).iter().map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()))
}

fn names(all: impl Iterator<Item = String>) -> BTreeSet<String> {
    all.collect()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    entries.map(|entry| entry.unwrap().path()).collect()
}

fn text(path: &str) -> String {
    let path = fuzz(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn fuzz(path: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz").join(path)
}
