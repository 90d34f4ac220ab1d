//! Control operators.

use super::{edn, holds, refused, run};
use capd_proto::cddl::CompileError;

#[test]
fn size_counts_bytes() {
    holds("a = bstr .size 2", "h'0102'", "h''; h'01'; h'010203'; \"ab\"");
    holds("a = tstr .size 2", "\"ab\"; \"é\"", "\"a\"; \"éa\"");
    holds("a = bstr .size (1..3)", "h'01'; h'010203'", "h''; h'01020304'");
    holds("a = bstr .size (1 / 3)", "h'01'; h'010203'", "h'0102'");
    holds("a = bstr .size n n = 2", "h'0102'", "h'01'");
    holds("a = bstr .size uint", "h''; h'01'", "\"\"");
    holds("a = uint .size 1", "0; 255", "256; -1");
    holds("a = uint .size 8", "18446744073709551615", "-1");
    holds("a = uint .size 0", "0", "1");
    holds("a = int .size 2", "65535", "65536; -1");
    for text in ["a = bstr .size -1", "a = bstr .size \"x\"", "a = bstr .size 1.0"] {
        assert!(matches!(refused(text), CompileError::Invalid { .. }), "{text}");
    }
}

#[test]
fn bits_may_be_set_only_where_they_are_named() {
    holds("a = bstr .bits (1 / 3)", "h''; h'00'; h'0a'; h'02'", "h'01'; h'0001'");
    holds("a = bstr .bits (8..9)", "h'0003'", "h'01'; h'0004'");
    holds("a = uint .bits &(x: 0, w: 1)", "0; 3", "4");
}

#[test]
fn comparisons_are_numeric() {
    holds("a = int .lt 3", "2; -5", "3");
    holds("a = int .le 3", "3", "4");
    holds("a = int .gt 3", "4", "3");
    holds("a = int .ge 3", "3", "2; -9");
    holds("a = float .ge 0.5", "0.5; 9.5; Infinity", "0.25; NaN; 1");
    holds("a = number .gt 0", "1; 0.5", "0; -0.5; -1; NaN");
    holds("a = number .lt 1.5", "1; 1.25; -7", "2; 1.5");
    holds("a = uint .lt 1e300", "18446744073709551615", "-1");
    holds(
        "a = number .le 9007199254740993",
        "9007199254740993; 9007199254740992.0",
        "9007199254740994; 9007199254740994.0",
    );
    assert!(matches!(refused("a = tstr .lt \"x\""), CompileError::Invalid { .. }));
    assert!(matches!(refused("a = int .lt int"), CompileError::Invalid { .. }));
}

#[test]
fn equality_is_of_the_same_kind() {
    holds("a = number .eq 1", "1", "1.0; 2");
    holds("a = tstr .ne \"x\"", "\"y\"", "\"x\"; 1");
    holds("a = bstr .ne h'00'", "h''; h'01'", "h'00'");
    holds("a = any .ne null", "1; {}; undefined", "null");
    holds("a = bool .eq true", "true", "false");
    assert!(matches!(refused("a = int .eq int"), CompileError::Invalid { .. }));
    assert!(matches!(refused("a = int .ne (1 / 2)"), CompileError::Invalid { .. }));
}

#[test]
fn regular_expressions_match_the_whole_text() {
    holds("a = tstr .regexp \"ab*\"", "\"a\"; \"abb\"", "\"xa\"; \"ac\"; \"a\\n\"; 'a'; \"\"");
    holds("a = tstr .regexp \"a|bc\"", "\"a\"; \"bc\"", "\"ac\"; \"ab\"");
    holds(
        "a = tstr .regexp \"[A-Za-z0-9]+@[A-Za-z0-9]+(\\\\.[A-Za-z0-9]+)+\"",
        "\"N1@CH57HF.4Znqe0.dYJRN.igjf\"",
        "\"N1@CH57HF\"",
    );
    holds("a = tstr .regexp \"\"", "\"\"", "\"a\"");
    holds("a = tstr .regexp \"a.c\"", "\"abc\"; \"aéc\"", "\"a\\nc\"; \"a\\rc\"");
    holds("a = tstr .regexp \"^a$\"", "\"^a$\"", "\"a\"");
    holds("a = tstr .regexp \"\\\\d{2,3}\"", "\"12\"; \"123\"; \"١٢\"", "\"1\"; \"1234\"");
    holds("a = tstr .regexp \"\\\\w\\\\s\\\\S\\\\W\"", "\"a\\tb-\"", "\"- b-\"; \"a bb\"");
    holds("a = tstr .regexp \"[a-z-[aeiou]]+\"", "\"bcd\"", "\"bad\"; \"B\"");
    holds("a = tstr .regexp \"[^a-z-[0-9]]+\"", "\"ABC\"", "\"a\"; \"0\"");
    holds("a = tstr .regexp \"[a\\\\-^]+\"", "\"a-^\"", "\"b\"");
    holds("a = tstr .regexp \"[-a]\"", "\"-\"; \"a\"", "\"b\"");
    holds("a = tstr .regexp \"\\\\p{Lu}\\\\P{Lu}\"", "\"Ab\"", "\"ab\"; \"AB\"");
    holds("a = tstr .regexp \"a#&~ b\"", "\"a#&~ b\"", "\"ab\"");
    for pattern in [
        "(?i)a",
        "a*?",
        "*a",
        "a)",
        "(a",
        "[a",
        "[]",
        "a{x}",
        "\\\\bx",
        "\\\\i",
        "\\\\p{IsGreek}",
        "[a[b]]",
        "\\\\1",
        "a{1000}{1000}",
    ] {
        let error = refused(&format!("a = tstr .regexp \"{pattern}\""));
        assert!(
            matches!(&error, CompileError::Unsupported { construct, .. } if construct.contains("regular expression")),
            "{pattern}: {error}"
        );
    }
    assert!(matches!(refused("a = tstr .regexp tstr"), CompileError::Invalid { .. }));
}

#[test]
fn embedded_cbor_is_one_item_of_its_type() {
    holds("a = bstr .cbor int", "h'01'; h'1903e8'", "h''; h'0102'; h'6161'; h'19'; 1; \"\\u0001\"");
    holds("a = bstr .cbor { x: bstr .cbor [* int] }", "h'a1617842810a'", "h'a16178428161'");
    assert_eq!(run("a = bstr .cbor int", b"\x5f\x41\x19\x42\x03\xe8\xff"), Ok(()));
    assert!(run("a = bstr .cbor tstr", b"\x5f\x41\x19\x42\x03\xe8\xff").is_err());
    // The outer check does not look inside byte strings, so the inner item is checked here.
    holds("a = bstr .cbor any", "h'a10101'", "h'a201010102'; h'62c0ae'; h'ff'; h'9f'");
    let mismatch = run("a = {k: bstr .cbor [int, tstr]}", &edn("{\"k\": h'820102'}")).unwrap_err();
    assert_eq!((mismatch.path.as_str(), mismatch.offset), ("/k", 6));
}

#[test]
fn intersections_hold_both_sides() {
    holds("a = int .and (1..5)", "1; 5", "6; 0");
    holds("a = $m .within [uint, * any] $m /= [3, tstr] $m /= \"x\"", "[3, \"s\"]", "\"x\"; [3, 4]; [-1]");
    holds("a = (tstr .size (1..3)) .and (tstr .regexp \"a*\")", "\"a\"; \"aaa\"", "\"\"; \"aaaa\"; \"b\"");
}

#[test]
fn defaults_and_features_do_not_narrow() {
    holds("a = uint .default 3", "3; 4", "-1");
    holds("a = { ? n: (int .gt 0) .default 1 }", "{}; {\"n\": 1}; {\"n\": 2}", "{\"n\": 0}");
    holds("a = int .feature \"f\" / tstr .feature [\"g\", 1]", "1; \"s\"", "null");
}

#[test]
fn computed_literals_are_literals() {
    holds("a = 3 .plus 5", "8", "3; 8.0");
    holds("a = 1.5 .plus 1", "2.5", "1.5; 2");
    holds("a = b .. (b .plus 2) b = 10", "10; 12", "13; 9");
    holds("a = \"a\" .cat 'b'", "\"ab\"", "'ab'");
    holds("a = 'a' .cat h'ff'", "h'61ff'", "h'61'");
    holds("a = \"\n  x\n   y\n\" .det \"  z\"", "\"\\nx\\n y\\nz\"", "\"x\"");
    for text in ["a = 1 .plus \"x\"", "a = \"a\" .cat 1", "a = \"a\" .cat h'ff'", "a = int .plus 1"] {
        assert!(matches!(refused(text), CompileError::Invalid { .. }), "{text}");
    }
}
