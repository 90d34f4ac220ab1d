use std::collections::{BTreeMap, HashSet};

use proptest::prelude::*;

use super::*;
use crate::{code::Code, limits};

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

fn range(text: &str) -> Range {
    text.parse().unwrap()
}

#[track_caller]
fn refused<T: FromStr<Err = Error> + fmt::Debug>(text: &str, offset: usize, kind: ErrorKind) {
    let error = text.parse::<T>().unwrap_err();
    assert_eq!(error, Error::new(offset, kind), "{text:?}");
    assert_eq!(error.code(), Code::BAD_REQUEST);
}

#[test]
fn names_of_three_labels_or_more_are_taken_and_kept_byte_by_byte() {
    for text in ["a.b.c", "org.agentries.code-review", "A.b.C", "0.1.2", "a.b.c.d.e", "x--y.a.b"] {
        let name: CapabilityName = text.parse().unwrap();
        assert_eq!(name.as_str(), text);
        assert_eq!(name.to_string(), text);
    }
    assert_ne!("a.b.c".parse::<CapabilityName>(), "a.b.C".parse::<CapabilityName>());
}

#[test]
fn names_outside_the_grammar_are_refused_at_their_byte() {
    use ErrorKind::*;
    refused::<CapabilityName>("", 0, EmptyLabel);
    refused::<CapabilityName>("a", 1, TooFewLabels);
    refused::<CapabilityName>("a.b", 3, TooFewLabels);
    refused::<CapabilityName>("a..b.c", 2, EmptyLabel);
    refused::<CapabilityName>(".a.b.c", 0, EmptyLabel);
    refused::<CapabilityName>("a.b.c.", 6, EmptyLabel);
    refused::<CapabilityName>("a.-b.c", 2, LabelEdge);
    refused::<CapabilityName>("a.b-.c", 3, LabelEdge);
    refused::<CapabilityName>("a.-.c", 2, LabelEdge);
    refused::<CapabilityName>("a.b_.c", 3, LabelCharacter);
    refused::<CapabilityName>("a.b.ü", 4, LabelCharacter);
    refused::<CapabilityName>("a.b.c ", 5, LabelCharacter);
    refused::<CapabilityName>("a.b.c:1.0", 5, LabelCharacter);
}

#[test]
fn a_name_is_bounded_to_the_byte() {
    let longest = format!("a.b.{}", "c".repeat(limits::NAME_BYTES_MAX - 4));
    assert_eq!(longest.parse::<CapabilityName>().unwrap().as_str().len(), limits::NAME_BYTES_MAX);
    refused::<CapabilityName>(&format!("{longest}c"), limits::NAME_BYTES_MAX, ErrorKind::NameTooLong);
}

#[test]
fn a_map_of_names_is_looked_up_by_text() {
    let names = BTreeMap::from([("a.b.c".parse::<CapabilityName>().unwrap(), 1)]);
    assert_eq!(names.get("a.b.c"), Some(&1));
    assert_eq!(names.get("a.b.d"), None);
}

#[test]
fn a_two_part_version_is_written_with_three() {
    assert_eq!(version("2.1").to_string(), "2.1.0");
    assert_eq!(version("2.1"), version("2.1.0"));
    assert_eq!(version("1.2.3-rc.1+b.07").to_string(), "1.2.3-rc.1+b.07");
}

#[test]
fn versions_outside_semver_are_refused_at_their_byte() {
    use ErrorKind::*;
    refused::<Version>("", 0, NotAVersion);
    refused::<Version>("1", 1, NotAVersion);
    refused::<Version>("1.", 2, NotAVersion);
    refused::<Version>("v1.2.3", 0, NotAVersion);
    refused::<Version>(" 1.2.3", 0, NotAVersion);
    refused::<Version>("1.2.3 ", 5, NotAVersion);
    refused::<Version>("1.2.3.4", 5, NotAVersion);
    refused::<Version>("1.02.3", 2, LeadingZero);
    refused::<Version>("1.2.18446744073709551616", 4, NumberTooLarge);
    refused::<Version>("1.2-rc.1", 3, TwoPartSuffix);
    refused::<Version>("1.2+b", 3, TwoPartSuffix);
    refused::<Version>("1.2.3-", 6, Identifier);
    refused::<Version>("1.2.3-a..b", 8, Identifier);
    refused::<Version>("1.2.3-a.ü", 8, Identifier);
    refused::<Version>("1.2.3-01", 6, LeadingZero);
    refused::<Version>("1.2.3-a+", 8, Identifier);
    refused::<Version>("1.2.3+a+b", 7, Identifier);
    refused::<Version>(&format!("1.2.3-{}", "a".repeat(251)), limits::VERSION_BYTES_MAX, VersionTooLong);
    assert!(format!("1.2.3-{}", "a".repeat(250)).parse::<Version>().is_ok());
}

#[test]
fn precedence_orders_versions_and_ignores_the_build() {
    // SemVer 2.0.0 11.4, its own example.
    let ascending = [
        "1.0.0-alpha",
        "1.0.0-alpha.1",
        "1.0.0-alpha.beta",
        "1.0.0-beta",
        "1.0.0-beta.2",
        "1.0.0-beta.11",
        "1.0.0-rc.1",
        "1.0.0",
        "2.0.0",
        "2.1.0",
        "2.1.1",
    ];
    for pair in ascending.windows(2) {
        assert!(version(pair[0]) < version(pair[1]), "{pair:?}");
    }
    assert_eq!(version("1.0.0+a"), version("1.0.0+b"));
    assert!(version("1.0.0+a").total_cmp(&version("1.0.0+b")).is_lt());
    assert_eq!(HashSet::from([version("1.0.0+a"), version("1.0.0+b")]).len(), 1);
}

#[test]
fn an_id_is_a_name_a_colon_and_a_version() {
    let id: CapabilityId = "org.agentries.code-review:2.1".parse().unwrap();
    assert_eq!((id.name.as_str(), &id.version), ("org.agentries.code-review", &version("2.1.0")));
    assert_eq!(id.to_string(), "org.agentries.code-review:2.1.0");
    refused::<CapabilityId>("a.b.c", 5, ErrorKind::IdWithoutVersion);
    refused::<CapabilityId>("a.b:1.0", 3, ErrorKind::TooFewLabels);
    refused::<CapabilityId>("a.b.c:1.0:2", 9, ErrorKind::NotAVersion);
    refused::<CapabilityId>("a.b.c:", 6, ErrorKind::NotAVersion);
}

#[test]
fn a_range_holds_what_all_its_comparators_admit() {
    for (text, inside, outside) in [
        (">=2.0 <3.0", &["2.0.0", "2.9.9"][..], &["1.9.9", "3.0.0", "2.0.0-rc.1", "3.0.0-rc.1"][..]),
        ("1.2", &["1.2.0", "1.2.0+b"], &["1.2.1", "1.3.0", "1.2.0-rc.1"]),
        ("=1.2.3+x", &["1.2.3", "1.2.3+y"], &["1.2.4"]),
        (">1.0.0", &["1.0.1"], &["1.0.0", "1.0.0+b", "1.0.1-rc.1"]),
        ("<=1.0.0", &["1.0.0", "0.1.0"], &["1.0.1", "1.0.0-rc.1"]),
        (">=2.0.0-rc.1", &["2.0.0-rc.1", "2.0.0-rc.2", "2.0.0", "3.1.0"], &["2.0.0-beta", "2.1.0-rc.1"]),
        (">=1.0.0 <2.0.0", &["1.0.0"], &["2.0.0-rc.1"]),
        (">=1.0.0 <2.0.0-rc.2", &["1.5.0", "2.0.0-rc.1"], &["2.0.0-rc.2", "1.5.0-rc.1"]),
        ("<1.0.0 >2.0.0", &[], &["1.5.0", "0.1.0", "3.0.0"]),
    ] {
        let range = range(text);
        for inside in inside {
            assert!(range.matches(&version(inside)), "{inside} in {text}");
        }
        for outside in outside {
            assert!(!range.matches(&version(outside)), "{outside} not in {text}");
        }
    }
}

#[test]
fn range_forms_of_other_dialects_are_refused_and_the_accepted_form_is_named() {
    use ErrorKind::*;
    for (text, offset, kind) in [
        ("1.0.0 || 2.0.0", 6, Or),
        ("1.0.0||2.0.0", 5, Or),
        ("~1.2", 0, Tilde),
        (">=1.0 ~1.2", 6, Tilde),
        ("^1.2.3", 0, Caret),
        ("*", 0, Wildcard),
        ("1.x", 2, Wildcard),
        ("1.2.*", 4, Wildcard),
        (">=1.X", 4, Wildcard),
        (">=1.0,<2.0", 5, Comma),
        (">= 1.0", 2, SpaceAfterOperator),
        ("", 0, EmptyRange),
        ("  ", 0, EmptyRange),
        (" 1.0", 0, OuterSpace),
        ("1.0 ", 3, OuterSpace),
    ] {
        refused::<Range>(text, offset, kind);
        let said = text.parse::<Range>().unwrap_err().to_string();
        assert!(said.contains("accepted are =, >, >=, <, <= and bare versions"), "{said}");
    }
    refused::<Range>(">=1", 3, NotAVersion);
    refused::<Range>("1.0 - 2.0", 4, NotAVersion);
    refused::<Range>("=>1.0", 1, NotAVersion);
    refused::<Range>(">=1.0\t<2.0", 5, NotAVersion);
}

#[test]
fn a_range_is_bounded_in_bytes_and_comparators() {
    let longest = vec![">1.0"; limits::RANGE_COMPARATORS_MAX].join(" ");
    assert_eq!(range(&longest).comparators().len(), limits::RANGE_COMPARATORS_MAX);
    refused::<Range>(&format!("{longest} >1.0"), longest.len() + 1, ErrorKind::TooManyComparators);
    let padded = format!(">1.0{}<2.0", " ".repeat(limits::RANGE_BYTES_MAX - 8));
    assert_eq!(range(&padded), range(">1.0 <2.0"));
    let padded = format!(">1.0{}<2.0", " ".repeat(limits::RANGE_BYTES_MAX - 7));
    refused::<Range>(&padded, limits::RANGE_BYTES_MAX, ErrorKind::RangeTooLong);
}

#[test]
fn a_range_is_written_in_one_form() {
    assert_eq!(range(">=1.0   <2.0 1.5").to_string(), ">=1.0.0 <2.0.0 =1.5.0");
    assert_eq!(range("1.5").as_exact(), Some(&version("1.5.0")));
    assert_eq!(range(">=1.5").as_exact(), None);
}

#[test]
fn a_pattern_is_a_name_a_namespace_or_everything() {
    for (text, inside, outside) in [
        ("a.b.c", &["a.b.c"][..], &["a.b.c.d", "a.b.d"][..]),
        ("a.b.*", &["a.b.c", "a.b.c.d"], &["a.bb.c", "a.c.b", "b.a.b.c"]),
        ("a.*", &["a.b.c"], &["aa.b.c"]),
        ("a.b.c.*", &["a.b.c.d"], &["a.b.c"]),
        ("*", &["a.b.c", "x.y.z"], &[]),
    ] {
        let pattern: CapabilityPattern = text.parse().unwrap();
        assert_eq!(pattern.to_string(), text);
        assert!(inside.iter().all(|name| pattern.matches(name)), "{text}");
        assert!(!outside.iter().any(|name| pattern.matches(name)), "{text}");
    }
    refused::<CapabilityPattern>(".*", 0, ErrorKind::EmptyLabel);
    refused::<CapabilityPattern>("a.*.c", 2, ErrorKind::LabelCharacter);
    refused::<CapabilityPattern>("a.b", 3, ErrorKind::TooFewLabels);
    refused::<CapabilityPattern>("", 0, ErrorKind::EmptyLabel);
}

proptest! {
    #[test]
    fn no_text_panics(text in "\\PC{0,40}|[-0-9a.x+ <>=|~^*,:]{0,40}") {
        let _ = text.parse::<CapabilityName>();
        let _ = text.parse::<CapabilityId>();
        let _ = text.parse::<CapabilityPattern>();
        let _ = text.parse::<Version>();
        let _ = text.parse::<Range>();
    }

    #[test]
    fn a_name_is_taken_where_each_label_is_one(text in "[-.aZ0_é]{0,12}|[-.a]{0,8}") {
        let is_label = |label: &str| {
            let is_inner = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            !label.is_empty() && label.bytes().all(is_inner) && !label.starts_with('-') && !label.ends_with('-')
        };
        let is_name = text.split('.').all(is_label) && text.split('.').count() >= 3;
        prop_assert_eq!(CapabilityName::check(&text).is_ok(), is_name);
    }

    #[test]
    fn three_part_versions_agree_with_the_semver_crate(text in "[0-9]{1,2}(\\.[0-9]{1,2}){2,3}([-+][-0-9a.]{0,6}){0,2}") {
        let theirs = semver::Version::parse(&text);
        let ours = text.parse::<Version>();
        prop_assert_eq!(ours.is_ok(), theirs.is_ok());
        if let (Ok(ours), Ok(theirs)) = (ours, theirs) {
            prop_assert_eq!(ours.to_string(), theirs.to_string());
        }
    }

    #[test]
    fn what_is_written_is_read_back(text in "(>|>=|<|<=|=)?[0-9]\\.[0-9](\\.[0-9](-[a-z0-9]{1,3})?)?( (>|<)[0-9]\\.[0-9]){0,3}") {
        let Ok(range) = text.parse::<Range>() else { return Ok(()) };
        prop_assert_eq!(range.to_string().parse::<Range>(), Ok(range));
    }
}
