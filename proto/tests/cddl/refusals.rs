//! What is refused when a text is compiled, by name.

use super::refused;
use capd_proto::cddl::CompileError;

fn unsupported(text: &str, named: &str) {
    let error = refused(text);
    assert!(
        matches!(&error, CompileError::Unsupported { construct, .. } if construct.contains(named)),
        "{text}: {error}"
    );
}

fn invalid(text: &str, rule: &str, named: &str) {
    let error = refused(text);
    assert!(
        matches!(&error, CompileError::Invalid { rule: at, reason } if at == rule && reason.contains(named)),
        "{text}: {error:?}"
    );
}

#[test]
fn control_operators_without_an_implementation_are_named_whole() {
    for name in [
        "cborseq", "pcre", "iregexp", "abnf", "abnfb", "b64u", "hex", "printf", "json", "join", "sizes",
        "bitfield", "nosuch",
    ] {
        unsupported(&format!("a = tstr .{name} \"x\""), &format!("`.{name}`"));
        unsupported(&format!("a = [tstr .{name} seq] seq = int"), &format!("`.{name}`"));
    }
}

#[test]
fn spellings_that_the_parser_misreads_are_refused() {
    unsupported("a = h\"00\"", "h\"");
    unsupported("a = b32'AA'", "b32");
    unsupported("a = [b45'AA']", "b45");
    unsupported("a = 'x\\q'", "\\q");
    for text in ["a = h'0'", "a = h'zz'", "a = b64'!'", "a = 'x", "a = \"x"] {
        assert!(matches!(refused(text), CompileError::Syntax(_)), "{text}");
    }
}

#[test]
fn what_looks_like_an_operator_inside_text_or_comments_is_left_alone() {
    use super::holds;
    holds("a = \"x .nosuch b32'y' h\\\"z\" ; .nosuch 'open \" \n", "\"x .nosuch b32'y' h\\\"z\"", "\"\"");
    holds("a = my.size my.size = 1.5..2.5 ; it's fine", "2.0", "3.0");
    holds("a = min...max min = 1 max = 3", "1; 2", "3");
}

#[test]
fn undefined_names_are_named_with_their_rule() {
    for (text, rule, name) in [
        ("a = b", "a", "b"),
        ("a = [* b]", "a", "b"),
        ("a = { x: b }", "a", "b"),
        ("a = { b => int }", "a", "b"),
        ("a = int c = { (x: int // b) }", "c", "b"),
        ("a = ~b", "a", "b"),
        ("a = &b", "a", "b"),
        ("a = tstr .size b", "a", "b"),
        ("a = g<b> g<t> = [t]", "a", "b"),
        ("a = g<int> g<t> = [b]", "g", "b"),
        ("a = string", "a", "string"),
    ] {
        let expected = CompileError::Undefined { rule: rule.into(), name: name.into() };
        assert_eq!(refused(text), expected, "{text}");
    }
}

#[test]
fn entries_without_a_key_cannot_stand_in_a_map() {
    for text in [
        "a = { int }",
        "a = { b } b = { x: int }",
        "a = { ( { x: int } // { y: int } ) }",
        "a = { x: int, ? (y: int, tstr) }",
        "a = { g } g = (int)",
        "a = { g } g = (x: int, int)",
        "a = { ~b } b = [int]",
        "a = { $b }",
    ] {
        invalid(text, "a", "without a key");
    }
    invalid("a = [b] b = { c: { int } }", "b", "without a key");
}

#[test]
fn rules_that_consume_nothing_before_themselves_are_refused() {
    for text in [
        "a = a",
        "a = int / a",
        "a = b b = a",
        "a = a .size 3",
        "a = (a)",
        "a = int .and a",
        "a = [g] g = (g, int)",
        "a = [g] g = (? int, g)",
        "a = [g] g = (* g)",
        "a = { g } g = (h) h = (? g, x: int)",
    ] {
        let error = refused(text);
        assert!(matches!(&error, CompileError::Invalid { .. }), "{text}: {error}");
    }
    assert!(matches!(refused("a = g<int> g<t> = [g<[t]>]"), CompileError::Invalid { .. }));
}

#[test]
fn definitions_must_not_contradict_each_other() {
    assert!(matches!(refused("a = int a = tstr"), CompileError::Syntax(m) if m.contains("already defined")));
    invalid("a /= int a = tstr", "a", "defined twice");
    invalid("a = b b = 1 tstr = int", "tstr", "prelude");
    invalid("a = int uri = tstr", "uri", "prelude");
    invalid("a = int int /= tstr", "int", "prelude");
    invalid("a = g<int> g<t> = [t] g<u> /= u", "g", "generic parameters");
    invalid("a = int / g g = (x: int)", "a", "group");
    invalid("a = { x: g } g = (x: int, y: int)", "a", "group");
    invalid("a = [3*2 int]", "a", "never be met");
}

#[test]
fn text_that_is_no_cddl_is_a_syntax_error() {
    for text in [
        "a",
        "a =",
        "a = {",
        "a = [int",
        "= int",
        "a = int int",
        "a = 99999999999999999999999",
        "a = { $x: int }",
    ] {
        assert!(
            matches!(refused(text), CompileError::Syntax(_) | CompileError::Invalid { .. }),
            "{text}: {}",
            refused(text)
        );
    }
}
