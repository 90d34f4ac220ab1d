//! Compares each format's automata with the validating crate, over strings from both and from neither.

use super::*;

const TEXTS: &[&str] = &[
    "",
    "a",
    "0",
    "/",
    "~",
    "~0",
    "/a~1b",
    "/a~2",
    "//",
    "0#",
    "01",
    "10/a",
    "0a",
    "-1",
    "a.b",
    "a-b",
    "-a",
    "a-",
    "a..b",
    "xn--a",
    "ab--c",
    "a.",
    "1.2.3.4",
    "01.2.3.4",
    "256.1.1.1",
    "1.2.3",
    "::",
    "::1",
    "1::2",
    ":::",
    "1:2",
    "1:2:3:4:5:6:7:8",
    "::ffff:1.2.3.4",
    "2020-02-29",
    "2021-02-29",
    "1900-02-29",
    "2000-02-29",
    "0000-01-01",
    "2020-13-01",
    "2020-04-31",
    "2020-1-01",
    "12:00:00Z",
    "24:00:00Z",
    "23:59:60Z",
    "12:00:60Z",
    "12:00:00",
    "12:00:00.5+01:30",
    "00:59:60+01:00",
    "2020-01-01T00:00:00Z",
    "2020-01-01t00:00:00z",
    "2020-01-01 00:00:00Z",
    "P1D",
    "P",
    "PT",
    "P1W2D",
    "PT1H",
    "P1DT1M",
    "P1M1Y",
    "a@b",
    "a@b.co",
    "@b",
    "a@",
    "\"\"@b.co",
    "a@[1.2.3.4]",
    "a@[IPv6:::1]",
    "é@b.co",
    "a b@c.de",
    "http://example.com",
    "http:",
    "a:b",
    "1:b",
    "//a",
    "/a?b#c",
    "#",
    "?",
    "%41",
    "%4",
    "a b",
    "http://[::1]/",
    "http://a:b@c:1/",
    "http://a:b:c/",
    "é",
    "http://é/",
    "{a}",
    "{a",
    "{+a,b*}",
    "{}",
    "a|b",
    "[",
    "(",
    "a{2",
    "\\",
    "\\d",
    "(?=a)",
    "123e4567-e89b-12d3-a456-426614174000",
    "123E4567E89B",
    "\u{7f}",
    "\n",
    "a\n",
    "\u{10ffff}",
    "mailto:a@b.co",
    "urn:a:b",
    "http://a/%zz",
    "a://b//c",
    "a:///b",
    "a:/b",
    "./a:b",
    "a/:b",
    "*",
    "a*",
    "a(",
    "a+",
    "a++",
    "(a)",
    "a)",
    ":a",
    "1/:",
    "%41:b",
    "\"(",
    "^@a.aa",
    "a'b",
    "[(]",
    "+000-01-01",
    "*999-12-28",
    "+0*0-01-01T00:00:00Z",
    "////-01-01",
    "!$&'()*+,;=",
    "a:(",
    "a://(",
    "a:////",
    "//*+,",
];

fn all() -> impl Iterator<Item = Format> {
    (0..ROWS.len()).map(|at| Format(u8::try_from(at).unwrap()))
}

/// The texts, and each of them cut, joined or with a byte changed.
fn texts() -> Vec<String> {
    let mut texts: Vec<String> = TEXTS.iter().map(|text| (*text).to_owned()).collect();
    for text in TEXTS {
        for (at, _) in text.char_indices() {
            texts.push(text[..at].to_owned());
            for other in ["a", "0", ":", "/", "-", ".", "%", "~", "@", " ", "é", "[", "9", "(", "*"] {
                let rest: String = text[at..].chars().skip(1).collect();
                texts.push(format!("{}{other}{rest}", &text[..at]));
                texts.push(format!("{}{other}{}", &text[..at], &text[at..]));
            }
        }
        texts.extend(TEXTS.iter().map(|other| format!("{text}{other}")));
    }
    texts
}

#[test]
fn automata_lie_on_their_side_of_each_format() {
    let texts = texts();
    for format in all() {
        let (above, below) = (format.above().unwrap(), format.below().unwrap());
        for text in &texts {
            let is = format.accepts(text).unwrap();
            assert!(!is || above.accepts(text), "{}: {text:?} is one, and not above", format.name());
            assert!(is || !below.accepts(text), "{}: {text:?} is none, and below", format.name());
            let is_never = format.never().is_some_and(|never| never.accepts(text));
            assert!(!is || !is_never, "{}: {text:?} is one, and never", format.name());
        }
    }
}

#[test]
fn the_longest_strings_below_are_ones() {
    let label = ["abcdefghijk"; 5].join("-");
    let hostname = [label.as_str(), "abcdefghijk", "abcdefghijk", "abcdefghijk"].join(".");
    let email = format!("{0}@{0}.{1}.{1}.{1}", "a".repeat(16), "a".repeat(8));
    for (name, text) in [("hostname", hostname), ("email", email)] {
        let format = Format::named(name, Draft::Draft202012).unwrap();
        assert!(format.below().unwrap().accepts(&text) && format.accepts(&text).unwrap(), "{name}: {text}");
    }
}

#[test]
fn each_format_has_strings_and_lacks_some() {
    let texts = texts();
    for format in all() {
        assert!(texts.iter().any(|text| format.below().unwrap().accepts(text)), "{}", format.name());
        assert!(texts.iter().any(|text| !format.accepts(text).unwrap()), "{}", format.name());
    }
}

#[test]
fn the_table_of_supersets_holds() {
    let texts = texts();
    for (format, other) in all().flat_map(|format| all().map(move |other| (format, other))) {
        if format.is_within(other) {
            for text in &texts {
                let is = format.accepts(text).unwrap();
                assert!(!is || other.accepts(text).unwrap(), "{text:?}: {}, {}", format.name(), other.name());
            }
        }
    }
}

#[test]
fn a_draft_asserts_what_its_validator_asserts() {
    for (draft, has) in [(Draft::Draft7, false), (Draft::Draft202012, true)] {
        assert_eq!(Format::named("duration", draft).is_some(), has);
        assert!(Format::named("uuid", draft).is_some() && Format::named("nothing", draft).is_none());
    }
}
