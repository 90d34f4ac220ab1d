//! Maps, groups, cuts, and what builds on groups.

use super::{fails, holds, refused};
use capd_proto::cddl::CompileError;

#[test]
fn map_members_come_in_any_order() {
    holds(
        "a = {x: int, y: tstr}",
        "{\"x\": 1, \"y\": \"s\"}; {\"y\": \"s\", \"x\": 1}; {_ \"y\": \"s\", \"x\": 1}",
        "{}; {\"x\": 1}; {\"x\": 1, \"y\": 1}; {\"x\": 1, \"y\": \"s\", \"z\": 1}; []; {_ \"x\": 1}",
    );
    holds("a = {? x: int}", "{}; {\"x\": 1}", "{\"x\": \"s\"}; {\"y\": 1}; {'x': 1}");
    holds(
        "a = {\"x\": int, 1: tstr, -1: bool, 1.5: null}",
        "{1: \"s\", -1: true, 1.5: null, \"x\": 1}",
        "{1: \"s\", -1: true, \"x\": 1}; {1: 1, -1: true, 1.5: null, \"x\": 1}",
    );
    holds("a = {* tstr => int}", "{}; {\"x\": 1, \"y\": 2}", "{\"x\": \"s\"}; {1: 1}");
    holds("a = {+ tstr => int}", "{\"x\": 1}", "{}; {\"x\": 1, \"y\": null}");
    holds(
        "a = {2*3 tstr => int}",
        "{\"x\": 1, \"y\": 1}; {\"x\": 1, \"y\": 1, \"z\": 1}",
        "{\"x\": 1}; {\"w\": 1, \"x\": 1, \"y\": 1, \"z\": 1}",
    );
    holds(
        "a = {int => tstr, tstr => int}",
        "{\"x\": 1, 1: \"x\"}; {1: \"x\", \"x\": 1}",
        "{1: \"x\"}; {1: \"x\", 2: \"y\"}",
    );
    holds("a = {* int => int, * tstr => tstr}", "{1: 1, \"x\": \"s\", 2: 2}; {}", "{1: \"s\"}; {null: 1}");
    holds("a = {[int] => 1}", "{[5]: 1}", "{[]: 1}; {5: 1}");
    holds("a = {h: int} h = \"nothing\"", "{\"h\": 1}", "{\"nothing\": 1}");
    holds("a = {h => int} h = \"key\"", "{\"key\": 1}", "{\"h\": 1}");
}

#[test]
fn an_entry_that_fits_several_members_takes_one_that_leaves_the_rest_a_match() {
    // RFC 8610 appendix C: some order of the members has to match, not the one on the wire.
    let text = "a = {int => int, int => 6}";
    holds(text, "{1: 5, 2: 6}; {2: 6, 1: 5}; {1: 6, 2: 6}", "{1: 5, 2: 5}; {1: 6}; {1: 5, 2: 6, 3: 6}");
    holds("a = {? int => int, int => 6}", "{1: 6, 2: 5}; {1: 5, 2: 6}", "{1: 5, 2: 5}");
    holds("a = {2*2 int => int, int => 6}", "{1: 6, 2: 5, 3: 5}; {1: 5, 2: 5, 3: 6}", "{1: 6, 2: 6}");
}

#[test]
fn a_cut_keeps_a_known_key_from_the_wildcard() {
    let wild = "* tstr => any }";
    for entry in ["? \"k\": int,", "? k: int,", "? \"k\" ^ => int,"] {
        let text = format!("a = {{ {entry} {wild}");
        holds(
            &text,
            "{\"k\": 1}; {}; {\"z\": \"s\"}; {\"k\": 1, \"z\": null}",
            "{\"k\": \"s\"}; {\"z\": 1, \"k\": null}",
        );
    }
    holds("a = { ? \"k\" => int, * tstr => any }", "{\"k\": 1}; {\"k\": \"s\"}", "{1: 1}");
    holds("a = { * \"k\" ^ => int, * tstr => any }", "{\"k\": 1}", "{\"k\": \"s\"}");
    holds("a = { * int ^ => int, * any => any }", "{1: 1, \"x\": null}", "{1: null}");
    holds("a = { ? 1: int, * int => tstr }", "{1: 5}; {2: \"s\"}", "{1: \"s\"}");
    holds("a = { ? 1 => int, * int => tstr }", "{1: 5}; {1: \"s\"}", "{1: null}");
}

#[test]
fn a_cut_is_final_for_its_map_and_no_further() {
    // RFC 8610 3.5.4: the pick is locked in, so the entire map does not match.
    holds("a = { ( \"k\": int // \"k\": tstr ) }", "{\"k\": 1}", "{\"k\": \"s\"}");
    holds("a = { ( \"k\" => int // \"k\" => tstr ) }", "{\"k\": 1}; {\"k\": \"s\"}", "{\"k\": null}");
    holds("a = { \"k\": int } / { \"k\": tstr }", "{\"k\": 1}; {\"k\": \"s\"}", "{\"k\": null}");
    holds(
        "a = { (\"k\": int, \"x\": int // \"k\": int, \"y\": int) }",
        "{\"k\": 1, \"x\": 1}; {\"k\": 1, \"y\": 1}",
        "{\"k\": 1}; {\"k\": 1, \"x\": 1, \"y\": 1}",
    );
    holds(
        "a = { o: { \"k\": int } / tstr }",
        "{\"o\": \"s\"}; {\"o\": {\"k\": 1}}",
        "{\"o\": {\"k\": \"s\"}}",
    );
    holds(
        "a = [{ (\"k\": int // \"j\": int) } / int // { \"k\": tstr }]",
        "[1]; [{\"k\": 1}]; [{\"k\": \"s\"}]",
        "[{\"k\": null}]",
    );
}

#[test]
fn groups_stand_inside_maps() {
    holds("a = { (x: int, y: int) }", "{\"y\": 1, \"x\": 1}", "{\"x\": 1}");
    holds(
        "a = { g, z: int } g = (x: int, ? y: int)",
        "{\"z\": 1, \"x\": 1}; {\"z\": 1, \"x\": 1, \"y\": 1}",
        "{\"z\": 1}; {\"x\": 1, \"z\": 1, \"y\": null}",
    );
    holds("a = { ? (x: int, y: int) }", "{}; {\"x\": 1, \"y\": 1}", "{\"x\": 1}; {\"y\": 1}");
    holds(
        "a = { ? (x: int, y: int), * tstr => any }",
        "{}; {\"x\": 1, \"y\": 1}; {\"x\": 1}; {\"z\": 0}",
        "{\"x\": null}",
    );
    holds(
        "a = { (x: int // y: int), ? z: int }",
        "{\"x\": 1}; {\"y\": 1}; {\"z\": 1, \"y\": 1}",
        "{}; {\"x\": 1, \"y\": 1}; {\"z\": 1}",
    );
    holds(
        "a = { x: int // y: int, z: int }",
        "{\"x\": 1}; {\"y\": 1, \"z\": 1}",
        "{}; {\"y\": 1}; {\"x\": 1, \"z\": 1}",
    );
    holds(
        "a = { * (int => tstr, tstr => int) }",
        "{}; {1: \"x\", \"y\": 2}; {1: \"x\", 2: \"z\", \"y\": 2, \"w\": 3}",
        "{1: \"x\"}; {1: \"x\", 2: \"y\", \"z\": 1}",
    );
    holds("a = { 1*2 (int => tstr, tstr => int) }", "{1: \"x\", \"y\": 2}", "{}; {1: \"x\"}");
    holds(
        "a = { * g } g = (x: int // y: tstr // z: bool)",
        "{}; {\"z\": true, \"x\": 1}; {\"y\": \"s\"}",
        "{\"w\": 1}; {\"z\": 1}",
    );
    // The form that the protocol's own by-name invoke takes.
    let named = "a = { ( \"capability\": tstr, ? \"type\": tstr // \"type\": tstr ), \"params\": any }";
    holds(
        named,
        "{\"capability\": \"c\", \"params\": 1}; {\"type\": \"c\", \"params\": 1}; {\"params\": 1, \"type\": \"t\", \"capability\": \"c\"}",
        "{\"params\": 1}; {\"capability\": 1, \"type\": \"c\", \"params\": 1}",
    );
}

#[test]
fn sockets_are_empty_until_plugged() {
    holds("a = { x: int, * $$more }", "{\"x\": 1}", "{\"x\": 1, \"y\": 1}; {}");
    holds(
        "a = { x: int, * $$more } $$more //= (y: int) $$more //= (z: int)",
        "{\"x\": 1}; {\"z\": 1, \"x\": 1, \"y\": 1}",
        "{\"x\": 1, \"y\": \"s\"}",
    );
    holds("a = { x: int, $$more }", "", "{\"x\": 1}");
    holds("a = $t", "", "1; null");
    holds("a = int / $t", "1", "\"s\"");
    holds("a = int / $t $t /= tstr $t /= null", "1; \"s\"; null", "true");
    holds("a = [* $t] $t /= 1", "[]; [1]", "[2]");
}

#[test]
fn unwrapping_takes_one_layer_off() {
    holds(
        "a = { ~b, y: int } b = { x: int }",
        "{\"x\": 1, \"y\": 2}",
        "{\"y\": 2}; {\"b\": {\"x\": 1}, \"y\": 2}",
    );
    holds("a = [ ~b, tstr ] b = [ int, int ]", "[1, 2, \"s\"]", "[[1, 2], \"s\"]");
    holds("a = ~uri", "\"x\"", "32(\"x\")");
    holds("a = { t: ~time }", "{\"t\": 1.5}", "{\"t\": 1(1)}");
    holds("a = { ? ~b } b = { x: int, y: int }", "{}; {\"x\": 1, \"y\": 1}", "{\"x\": 1}");
    assert!(matches!(refused("a = ~b b = int"), CompileError::Invalid { .. }));
    assert!(matches!(refused("a = ~b b = { x: int }"), CompileError::Invalid { .. }));
}

#[test]
fn enumerations_take_the_values_of_a_group() {
    holds("a = &(red: 1, green: 2)", "1; 2", "3; \"red\"");
    holds("a = &g g = (red: 1, green: 2, (blue: 3 // 4))", "1; 2; 3; 4", "5; 0");
    holds("a = &(1, \"x\", int)", "7; \"x\"", "\"y\"");
    assert!(matches!(refused("a = &b b = int"), CompileError::Invalid { .. }));
}

#[test]
fn generic_rules_are_instantiated() {
    holds(
        "a = m<\"reboot\", \"now\"> / m<\"sleep\", 1..100> m<t, v> = {type: t, value: v}",
        "{\"type\": \"reboot\", \"value\": \"now\"}; {\"type\": \"sleep\", \"value\": 5}",
        "{\"type\": \"reboot\", \"value\": 5}; {\"type\": \"sleep\", \"value\": 0}",
    );
    holds(
        "a = list<int> list<t> = [t, list<t>] / null",
        "null; [1, null]; [1, [2, null]]",
        "[\"s\", null]; [1, 2]",
    );
    holds("a = list<\"x\"> list<t> = [t, list<t>] / null", "[\"x\", [\"x\", null]]", "[\"y\", null]");
    holds(
        "a = { pair<\"x\", int>, pair<\"y\", tstr> } pair<k, v> = (k => v)",
        "{\"x\": 1, \"y\": \"s\"}",
        "{\"x\": 1}",
    );
    holds("a = [wrap<g>] wrap<t> = (t, t) g = (int, tstr)", "[1, \"s\", 2, \"s\"]", "[1, \"s\"]");
    holds("a = twice<(int / tstr)> twice<t> = [t, t]", "[1, \"s\"]", "[1]");
    for text in
        ["a = g<int> g<t, u> = [t, u]", "a = g g<t> = [t]", "a = b<int> b = int", "a = g<int> g<t> = t<int>"]
    {
        assert!(matches!(refused(text), CompileError::Invalid { .. }), "{text}");
    }
}

#[test]
fn rules_may_refer_to_themselves() {
    let tree = "a = {? \"left\": a, ? \"right\": a, \"v\": int}";
    holds(
        tree,
        "{\"v\": 1}; {\"v\": 1, \"left\": {\"v\": 2, \"right\": {\"v\": 3}}}",
        "{\"v\": 1, \"left\": {\"v\": \"s\"}}; {\"v\": 1, \"left\": {}}",
    );
    holds("a = [* a] / int", "[]; [[[], 1], 2]; 5", "[\"s\"]; [[[\"s\"]]]");
    holds("a = [g] g = (int, ? g)", "[1]; [1, 2, 3]", "[]; [1, \"s\"]");
    let mismatch = fails("a = [* a] / int", "[[], [1, [\"s\"]]]");
    assert_eq!((mismatch.path.as_str(), mismatch.offset), ("/1/1/0", 5));
}
