use super::bodies::{Bodies, Shape, bodies};

/// PROTOCOL 7, first paragraph.
const SPOKEN: [u64; 18] = [
    0x01, 0x02, 0x03, 0x09, 0x0a, 0x0b, 0x0f, 0x11, 0x12, 0x20, 0x21, 0x22, 0x23, 0x30, 0x31, 0x70, 0x71,
    0x72,
];

#[test]
fn each_message_type_has_a_rule_and_every_rule_compiles() {
    let types: Vec<u64> = Bodies::messages().iter().map(|(typ, _)| *typ).collect();
    assert_eq!(types, SPOKEN);
    for (typ, name) in Bodies::messages() {
        assert_eq!(bodies().rule(*typ), bodies().program().rule(name), "{typ:#x}");
    }
    for shape in Shape::ALL {
        assert!(bodies().program().rule(shape.rule()).is_some(), "{shape:?}");
    }
    assert_eq!(bodies().rule(0x04), None);
}

#[test]
fn the_plain_maps_run_by_table() {
    use super::program::Node;
    let program = bodies().program();
    for name in ["cap-invoke-body", "descriptor", "hello-body", "cap-success", "cap-failure", "goaway"] {
        let rule = program.rule(name).unwrap();
        let Node::Rule { body, .. } = &program.nodes[rule.0.0 as usize] else { panic!("{name} is no rule") };
        assert!(matches!(program.nodes[body.0 as usize], Node::Map { table: Some(_), .. }), "{name}");
    }
}

#[test]
fn a_text_means_the_same_however_its_rules_stand() {
    use super::Program;
    let texts = [
        "a = [b, c]\nb = uint\nc = tstr / nil\n",
        "; What it is about.\n\n; Of a.\na = [b, c]\n\nb = uint\n\nc = tstr / nil\n",
        "a = [b,\n\nc]\n\nb = uint\n\nc = tstr /\n\nnil",
        "a = [b, c]\n\nb = uint\n\nc = tstr\n\n; or nothing\n/ nil\n",
        "\n\na = [b, c]\n\n\n\nb = uint\n\nc = tstr\n\nc /= nil\n\n; The end.\n",
        "a = [b, c] b = uint c = tstr / nil",
        "a=[b,c]b=uint c=tstr c/=nil d<k,v>={*k=>v}; b = nil",
        "a = [b, c] ; = nil\nb = uint\nc = tstr / nil\nd = {\"b = nil\" => b, h'3d' ^ => \"\\\"; e = \", e: {b => c}}",
        "a = pair<b, c>\npair<x, y> = [x, y] b = uint .lt two\ntwo = 2 c = tstr / nil\n$$d //= (e: b)\n$$d //= (f: c)",
        "a = [both] both = (same) same = (b, c) b = 0..1 c = tstr / #7.22 d = {$$e} $e /= 1.5 $e /= #6.1(b)",
    ];
    for text in texts {
        let program = Program::compile(text).unwrap_or_else(|error| panic!("{error}: {text}"));
        let rule = program.rule("a").unwrap();
        assert!(program.run(rule, &[0x82, 1, 0x61, b'x']).is_ok(), "{text}");
        assert!(program.run(rule, &[0x82, 1, 0xf6]).is_ok(), "{text}");
        assert!(program.run(rule, &[0x82, 0x61, b'x', 1]).is_err(), "{text}");
    }
    assert!(Program::compile("a = [uint\n\nb = tstr\n").is_err());
    assert!(Program::compile("a = uint\n\na = tstr\n").is_err());
    for text in
        ["] a = uint", "a = uint ]", "a = uint b", "a = uint\nb<x> = [", "a = uint\n= tstr", "= uint", "a"]
    {
        assert!(Program::compile(text).is_err(), "{text}");
    }
    let Err(error) = Program::compile("; One.\na = uint\n\nb = [tstr\n") else { panic!("a bracket is open") };
    assert!(error.to_string().contains("line: 4"), "{error}");
}

#[test]
fn a_long_chain_of_names_is_refused_and_ends_no_process() {
    use super::Program;
    let chain: String = (0..2_000).map(|at| format!("a{at:05} = a{:05}\n", at + 1)).collect();
    let Err(error) = Program::compile(&chain[..chain.len() - 1]) else { panic!("its end is not defined") };
    assert!(error.to_string().contains("too large"), "{error}");
}
