//! Types, choices and arrays.

use super::{edn, holds, refused, run};
use capd_proto::cddl::CompileError;

#[test]
fn prelude_types_match_their_items_only() {
    let all = "0; -1; 1.5; true; null; undefined; \"\"; h''; []; {}; 1(0); simple(99)";
    holds("a = any", all, "");
    holds("a = uint", "0; 18446744073709551615", "-1; 1.0; \"0\"; true; 2(h'01')");
    holds("a = nint", "-1; -18446744073709551616", "0; -1.0");
    holds("a = int", "0; -1", "1.0; null; h''");
    holds("a = bstr", "h''; h'00'", "\"\"; []");
    holds("a = bytes", "'x'", "\"x\"");
    holds("a = tstr", "\"\"; \"é\"", "h''; {}; []; 0");
    holds("a = text", "\"x\"", "'x'; {\"x\": 1}");
    holds("a = bool", "true; false", "null; 0; 1; simple(19)");
    holds("a = true", "true", "false; 1");
    holds("a = false", "false", "true; 0");
    holds("a = null", "null", "undefined; false; 0");
    holds("a = nil", "null", "undefined");
    holds("a = undefined", "undefined", "null");
    holds("a = float", "1.5; 0.0; NaN; Infinity; 1e300", "1; null");
    holds("a = number", "1; -1; 1.5", "\"1\"; true");
    holds("a = tdate", "0(\"2026-01-01T00:00:00Z\")", "\"2026\"; 1(\"x\"); 0(1)");
    holds("a = time", "1(5); 1(5.5)", "5; 1(\"5\")");
    holds("a = biguint", "2(h'01')", "3(h'01'); 1; 2(1)");
    holds("a = integer", "1; -1; 2(h'01'); 3(h'01')", "1.0; 4(h'01')");
    holds("a = decfrac", "4([1, 2]); 4([-1, 2(h'01')])", "4([1]); 4([1, 2, 3]); [1, 2]");
    holds("a = bigfloat", "5([1, 2])", "5([1.0, 2])");
    holds("a = encoded-cbor", "24(h'01')", "24(\"x\")");
    holds("a = uri", "32(\"https://example.org\")", "\"https://example.org\"");
    holds("a = eb64url", "21(1)", "22(1)");
    holds("a = cbor-any", "55799(1)", "1");
}

#[test]
fn float_widths_are_those_of_the_encoding() {
    for (bytes, width) in
        [(&b"\xf9\x3e\x00"[..], 16), (b"\xfa\x3f\xc0\x00\x00", 32), (b"\xfb\x3f\xf8\0\0\0\0\0\0", 64)]
    {
        for (name, widths) in [
            ("float16", &[16][..]),
            ("float32", &[32]),
            ("float64", &[64]),
            ("float16-32", &[16, 32]),
            ("float32-64", &[32, 64]),
        ] {
            assert_eq!(run(&format!("a = {name}"), bytes).is_ok(), widths.contains(&width), "{name} {width}");
        }
        assert!(run("a = 1.5", bytes).is_ok(), "a literal matches by value");
    }
}

#[test]
fn literals_match_one_value() {
    holds("a = 1", "1", "2; -1; 1.0; \"1\"");
    holds("a = -1", "-1", "1; 0");
    holds("a = 0x1F", "31", "30");
    holds("a = 0b11", "3", "2");
    holds("a = 1.5", "1.5", "1; 1.25");
    holds("a = 1e3", "1000.0", "1000");
    holds("a = \"x\"", "\"x\"", "\"\"; \"xx\"; 'x'; \"X\"");
    holds("a = \"a\\\"b\\u0041\"", "\"a\\\"bA\"", "\"a\"");
    holds("a = 'x'", "'x'", "\"x\"; 'xx'");
    holds("a = 'it\\'s'", "h'69742773'", "'its'");
    holds("a = h'0aFf'", "h'0aff'", "h'0a'; h''");
    holds("a = h'0a ff'", "h'0aff'", "h'0a'");
    holds("a = b64'YWE'", "'aa'", "'a'");
    holds("a = b64'_-8='", "h'ffef'", "h'ff'");
}

#[test]
fn a_string_in_chunks_is_the_string() {
    let bytes = edn("(_ \"a\", \"bc\", \"\")");
    for text in ["a = \"abc\"", "a = tstr", "a = tstr .size 3", "a = tstr .regexp \"a.c\""] {
        assert_eq!(run(text, &bytes), Ok(()), "{text}");
    }
    assert!(run("a = \"ab\"", &bytes).is_err());
    assert!(run("a = bstr", &bytes).is_err());
    assert_eq!(run("a = {abc: 1}", &[&[0xa1], &bytes[..], &[1]].concat()), Ok(()));
    assert_eq!(run("a = {* tstr => 1}", &[&[0xa1], &bytes[..], &[1]].concat()), Ok(()));
    assert!(run("a = {abc: 2, * tstr => any}", &[&[0xa1], &bytes[..], &[1]].concat()).is_err());
    assert_eq!(run("a = bstr .bits (0)", b"\x5f\x41\x01\x41\x00\xff"), Ok(()));
    assert!(run("a = bstr .bits (0)", b"\x5f\x41\x01\x41\x01\xff").is_err());
}

#[test]
fn ranges_take_their_bounds_as_written() {
    holds("a = 1..3", "1; 2; 3", "0; 4; 2.0");
    holds("a = 1...3", "1; 2", "0; 3");
    holds("a = -5..-3", "-5; -3", "-6; -2; 4");
    holds("a = -1..1", "-1; 0; 1", "-2; 2");
    holds("a = 0..18446744073709551615", "18446744073709551615", "-1");
    holds("a = 1.0..2.0", "1.0; 1.5; 2.0", "0.5; 2.5; 1; NaN");
    holds("a = 1.0...2.0", "1.0; 1.5", "2.0");
    holds("a = low..high low = 2 high = 4", "2; 4", "1; 5");
    for text in ["a = 1..1.5", "a = 1..int", "a = \"a\"..\"b\"", "a = 3..1", "a = 1...1"] {
        assert!(matches!(refused(text), CompileError::Invalid { .. }), "{text}");
    }
}

#[test]
fn choices_of_types_take_any_alternative() {
    holds("a = int / tstr / null", "1; \"x\"; null", "1.0; h''; undefined");
    holds("a = \"x\" / 1..3 / [int]", "\"x\"; 2; [9]", "\"y\"; 4; [\"x\"]; []");
    holds("a = (int / tstr) / bool", "1; \"x\"; true", "null");
    holds("a = int a /= tstr a /= bool", "1; \"x\"; true", "null");
    holds("a /= int", "1", "\"x\"");
    // What is written with a number of its own is looked up in the rule's text, wherever that stands.
    holds("a = null\n\n; Apart.\nb = a\n\na /= #6.999(tstr) / #7.25", "null; 999(\"x\"); 1.5", "\"x\"");
}

#[test]
fn representation_types_match_by_head() {
    holds("a = #", "1; {}; 1(1)", "");
    holds("a = #0", "1", "-1");
    holds("a = #1", "-1", "1");
    holds("a = #2", "h''", "\"\"");
    holds("a = #3", "\"\"", "h''");
    holds("a = #4", "[]; [1]", "{}");
    holds("a = #5", "{}; {1: 1}", "[]");
    holds("a = #6", "1(1); 99(\"x\")", "1");
    holds("a = #7", "true; 1.5; simple(99)", "1");
    holds("a = #7.20", "false", "true");
    holds("a = #7.25", "1.5", "1.1");
    holds("a = #7.99", "simple(99)", "simple(98)");
    holds("a = #7.<20..22>", "false; null", "undefined");
    holds("a = #3.2", "\"ab\"", "\"a\"; h'0000'");
    holds("a = #6.32(tstr)", "32(\"x\")", "32(1); 33(\"x\"); \"x\"");
    holds("a = #6.32", "32(\"x\"); 32(1)", "33(1)");
    holds("a = #6.<1 / 30..40>(int)", "1(0); 35(0)", "2(0); 1(\"x\")");
    holds("a = #6(int)", "1(0); 77(5)", "1(\"x\"); 0");
    holds("a = #6.1(#6.2(int))", "1(2(3))", "1(3); 2(1(3))");
    for text in
        ["a = #8", "a = #9.1", "a = #7.24", "a = #7.31", "a = #2(int)", "a = #(int)", "a = #6.<int>(int)"]
    {
        assert!(matches!(refused(text), CompileError::Unsupported { .. }), "{text}: {}", refused(text));
    }
}

#[test]
fn arrays_match_in_order_and_repetitions_are_greedy() {
    holds("a = []", "[]", "[1]; {}; 1");
    holds(
        "a = [int, tstr]",
        "[1, \"x\"]; [_ 1, \"x\"]",
        "[]; [1]; [\"x\", 1]; [1, \"x\", 1]; [_ 1]; [_ 1, \"x\", 2]",
    );
    holds("a = [x: int, y: tstr]", "[1, \"x\"]", "[\"x\", 1]");
    holds("a = [* int]", "[]; [1, 2, 3]; [_ ]", "[\"x\"]; [1, \"x\"]");
    holds("a = [+ int]", "[1]; [1, 2]", "[]; [\"x\"]");
    holds("a = [? int, tstr]", "[1, \"x\"]; [\"x\"]", "[1]; [1, 1, \"x\"]");
    holds("a = [2*3 int]", "[1, 2]; [1, 2, 3]", "[1]; [1, 2, 3, 4]");
    holds("a = [2* int]", "[1, 2]; [1, 2, 3]", "[1]");
    holds("a = [*2 int]", "[]; [1, 2]", "[1, 2, 3]");
    holds("a = [* int, int]", "", "[1]; [1, 2]");
    holds("a = [? int, int]", "[1, 2]", "[1]");
    holds("a = [* (int, tstr)]", "[]; [1, \"x\", 2, \"y\"]", "[1]; [1, \"x\", 2]; [1, 2]");
    holds("a = [(int, int // tstr), bool]", "[1, 2, true]; [\"x\", true]", "[1, true]; [true]; [\"x\"]");
    holds("a = [int // tstr, tstr]", "[1]; [\"x\", \"y\"]", "[\"x\"]; [1, \"y\"]");
    holds("a = [g, bool] g = (int, tstr)", "[1, \"x\", true]", "[1, true]; [[1, \"x\"], true]");
    holds("a = [* g] g = (int // tstr)", "[1, \"x\", 2]", "[true]");
    holds("a = [* ()]", "[]", "[1]");
    holds("a = [(? int, ? tstr)]", "[]; [1]; [\"x\"]; [1, \"x\"]", "[\"x\", 1]");
}

#[test]
fn the_first_group_choice_that_matches_is_taken_for_good() {
    // RFC 8610 appendix A: parsing expressions do not go back to a choice that has matched.
    holds("a = [(int // int, tstr)]", "[1]", "[1, \"x\"]");
    holds("a = [(? int // tstr)]", "[]; [1]", "[\"x\"]");
    holds("a = { (? \"x\" => int // \"y\" => int) }", "{}; {\"x\": 1}", "{\"y\": 1}");
}
