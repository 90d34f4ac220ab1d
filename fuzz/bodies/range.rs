//! Lines of text in: two ranges, then versions; the claims that what is accepted is what the `semver` crate's reading of its
//! parts says, that it is written and read again as it was, and that it holds the same versions.

use capd_proto::capability::{Error, Range, Version, common_versions};
use capd_proto::limits::{RANGE_BYTES_MAX, RANGE_COMPARATORS_MAX, VERSION_BYTES_MAX};
use semver::VersionReq;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let mut lines = text.split('\n');
    let ranges: Vec<_> = lines.by_ref().take(2).filter_map(range).collect();
    let versions: Vec<_> = lines.take(VERSIONS_MAX).filter_map(version).collect();
    for range in &ranges {
        for version in &versions {
            assert_eq!(range.matches(version), holds(range, version), "{range} and {version}");
        }
    }
    if let [first, second] = ranges.as_slice() {
        overlap(first, second, &versions);
    }
}

/// Reads a range, and holds the verdict against the grammar of its words.
fn range(text: &str) -> Option<Range> {
    let words: Vec<_> = text.split(' ').filter(|word| !word.is_empty()).collect();
    let is_one = text.len() <= RANGE_BYTES_MAX
        && !text.starts_with(' ')
        && !text.ends_with(' ')
        && (1..=RANGE_COMPARATORS_MAX).contains(&words.len())
        && words.iter().all(|word| is_version(bound(word)));
    let read = text.parse::<Range>().map_err(|error| check(text, error)).ok();
    assert_eq!(read.is_some(), is_one, "{text:?}");
    let range = read?;
    assert_eq!(range.comparators().len(), words.len(), "{text:?}");
    let written = range.to_string();
    // Two-part versions and bare ones are written longer than they were.
    if written.len() <= RANGE_BYTES_MAX {
        assert_eq!(written.parse::<Range>().as_ref(), Ok(&range), "{text:?}");
        assert_eq!(written.parse::<Range>().map(|again| again.to_string()), Ok(written), "{text:?}");
    }
    Some(range)
}

/// A comparator's version.
fn bound(word: &str) -> &str {
    let operators = [">=", "<=", ">", "<", "="];
    operators.into_iter().find_map(|operator| word.strip_prefix(operator)).unwrap_or(word)
}

fn is_version(text: &str) -> bool {
    text.len() <= VERSION_BYTES_MAX && whole(text).is_some()
}

/// PROTOCOL 6: a SemVer 2.0.0 version, or two numbers of one.
fn whole(text: &str) -> Option<semver::Version> {
    let is_two_part =
        text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.') && text.split('.').count() == 2;
    if is_two_part { format!("{text}.0").parse().ok() } else { text.parse().ok() }
}

fn version(text: &str) -> Option<Version> {
    let read = text.parse::<Version>().map_err(|error| check(text, error)).ok();
    assert_eq!(read.is_some(), is_version(text), "{text:?}");
    let version = read?;
    assert_eq!(Some(version.to_string()), whole(text).map(|theirs| theirs.to_string()), "{text:?}");
    Some(version)
}

fn check(text: &str, error: Error) {
    assert!(error.offset <= text.len(), "{error} of {text:?}");
}

/// Whether a version is in a range, as the `semver` crate decides it.
fn holds(range: &Range, version: &Version) -> bool {
    let words: Vec<_> = range.comparators().iter().map(ToString::to_string).collect();
    let theirs =
        words.join(", ").parse::<VersionReq>().expect("operators and whole versions are its grammar too");
    theirs.matches(&version.to_string().parse().expect("it is a whole version"))
}

/// What two ranges have in common is in both, and is there whenever any version is.
fn overlap(first: &Range, second: &Range, versions: &[Version]) {
    let mut common = common_versions(first, second, None).peekable();
    let is_met = versions.iter().any(|version| holds(first, version) && holds(second, version));
    assert!(common.peek().is_some() || !is_met, "{first} and {second} have one of {versions:?}");
    for version in common.take(VERSIONS_MAX) {
        assert!(holds(first, &version) && holds(second, &version), "{version} in {first} and {second}");
    }
}

const VERSIONS_MAX: usize = 32;
