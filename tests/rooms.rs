//! Holds the layers of the house: reads what every source file names of other modules, and fails on an edge that the layers
//! do not allow.
//!
//! A module may name modules of lower layers only. [`LAYERS`] is the table of the design, from the lowest up; [`BESIDE`] are
//! the edges within one layer, each with its reason. A module that the table does not have fails as well: whoever adds one
//! says where it stands. Tests, examples and benchmarks may name anything.
//!
//! No struct of the daemon's has more than [`FIELDS_MAX`] fields: those that belong together have a struct of their own.

#![allow(clippy::unwrap_used, reason = "whatever cannot be read fails the test")]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the sources of each crate are, and what the table calls it. Modules of an empty name stand in the table themselves.
const CRATES: [(&str, &str, &str); 8] = [
    ("src", "capd", ""),
    ("proto/src", "capd_proto", "proto"),
    ("schema/src", "capd_schema", "schema"),
    ("client/net/src", "capd_net", "net"),
    ("client/src", "capd_client", "client"),
    ("bridges/base/src", "capd_bridge", "bridge"),
    ("bridges/mcp/src", "capd_mcp", "mcp"),
    ("bridges/a2a/src", "capd_a2a", "a2a"),
];

/// Crates and modules that the table has module by module.
const OPEN: [&str; 2] = ["proto", "daemon"];

const LAYERS: [&[&str]; 28] = [
    // The protocol without I/O.
    &["proto/limits", "proto/code"],
    &["proto/frame", "proto/cbor", "proto/capability", "proto/identity", "proto/rate"],
    &["proto/envelope", "proto/negotiate"],
    &["proto/cddl"],
    &["proto/message"],
    &["proto/link", "proto/call", "proto/ledger"],
    &["proto/fleet"],
    &["proto/error"],
    &["proto"],
    // What each of the parts may use.
    &["schema"],
    &["changes", "fault", "kin", "manual", "text"],
    &["suggest"],
    &["log", "otlp"],
    // The parts, which meet in the daemon alone.
    &[
        "admin",
        "client",
        "config",
        "declaration",
        "fleet",
        "net",
        "pair",
        "policy",
        "provider",
        "registry",
        "router",
        "store",
    ],
    // Fronts: an agent that speaks HTTP is one over an in-process link, so it needs nothing of the daemon's.
    &["api", "backup", "codegen", "health"],
    // Bridges: programs of their own, agents like others.
    &["bridge"],
    &["a2a", "mcp"],
    // The daemon's rooms.
    &["daemon/context"],
    &["daemon/journal", "daemon/account", "daemon/asks"],
    &["daemon/directory"],
    &["daemon/fleet"],
    &["daemon/door"],
    &["daemon/executor", "daemon/caller"],
    &["daemon/desk"],
    &["daemon/sidecar"],
    &["daemon"],
    // What people and programs meet.
    &["page"],
    &["bin"],
];

/// Files of the daemon's that stand on top of its rooms.
const ON_ROOMS: [&str; 3] = ["start", "fault", "hooks"];

/// Edges within one layer, or up: from, to, and why.
const BESIDE: [(&str, &str, &str); 10] = [
    ("client", "net", "an agent's link is made of the same transport"),
    ("router", "registry/snapshot", "it chooses among what one snapshot has, and nothing else"),
    ("provider", "store", "tickets"),
    ("daemon/asks", "daemon/account", "what a bound refuses is counted"),
    ("proto/frame", "proto/cbor", "the payloads of HELLO and its answers are CBOR"),
    ("proto/message", "proto/ledger/JournalId", "HELLO names the journal"),
    ("fleet", "net/Clock", "a simulation gives the clock that leases and watches run by"),
    ("fleet", "net/Random", "a simulation gives the jitter"),
    ("fleet", "net/Tasks", "a simulation runs the tasks"),
    // Not in the design yet: the clock would have to move below `net`.
    ("policy", "net/Clock", "a simulation gives the clock that rates count by"),
];

/// Of rooms that may use but a part of a lower one: who, which room, which part.
const NARROW: [(&str, &str, &str); 2] = [
    ("daemon/executor", "daemon/door", "daemon/door/permit"),
    ("daemon/caller", "daemon/door", "daemon/door/permit"),
];

/// Named fields of one struct. Ours: about as many as a reader keeps in mind at once.
const FIELDS_MAX: usize = 12;

#[test]
fn no_import_goes_up() {
    let mut wrong = BTreeSet::new();
    let mut files = 0;
    for (root, name, _) in CRATES {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join(root);
        for file in sources(&root) {
            let module = module_of(file.strip_prefix(&root).unwrap());
            if is_for_tests(&module) {
                continue;
            }
            files += 1;
            let text = fs::read_to_string(&file).unwrap();
            wrong.extend(faults(name, &module, &text).into_iter().map(|fault| (file.clone(), fault)));
        }
    }
    assert!(files > 200, "only {files} sources were found");
    let told: Vec<_> = wrong.iter().map(|(file, fault)| format!("{}: {fault}", file.display())).collect();
    assert!(told.is_empty(), "imports that the layers do not allow:\n{}", told.join("\n"));
}

#[test]
fn every_crate_of_the_workspace_is_read() {
    let manifest = include_str!("../Cargo.toml");
    let members = manifest.lines().find_map(|line| line.strip_prefix("members = [")).unwrap();
    for member in members.trim_end_matches(']').split(", ").map(|member| member.trim_matches('"')) {
        let root = if member == "." { "src".to_owned() } else { format!("{member}/src") };
        assert!(CRATES.iter().any(|(known, ..)| *known == root), "{member} is not in CRATES");
    }
}

#[test]
fn a_forbidden_import_fails_however_it_is_written() {
    let caller = ["daemon", "caller", "drive"].map(str::to_owned);
    let fails = |text: &str| faults("capd", &caller, text);
    for text in [
        "use crate::daemon::executor::Executor;",
        "use super::super::executor::Executor;",
        "use crate::{daemon::{context::Ctx, executor as other}, net::Link};",
        "fn f() { crate::daemon::executor::run::<u8>() }",
        "pub(in crate::daemon) fn f(a: &super::super::executor::Executor) {}",
    ] {
        assert_eq!(fails(text), ["daemon/caller names daemon/executor"], "{text}");
    }
    assert_eq!(fails("use crate::daemon::door::Door;"), ["daemon/caller names daemon/door/Door"]);
    assert_eq!(fails("use crate::daemon::Daemon;"), ["daemon/caller names daemon"]);
    assert_eq!(fails("use crate::daemon::desk;"), ["daemon/caller names daemon/desk"]);
    for text in [
        "use crate::daemon::door::permit::OwnRights;",
        "use super::outgoing::Outgoing;\nuse crate::net::Link;\nuse capd_proto::code::Code;",
        "//! See [`crate::daemon::executor`].\n/* crate::daemon::desk */ const A: &str = \"crate::daemon::desk\";",
        "const A: &str = r#\"\"crate::daemon::desk\"#; const B: char = '\"'; fn f<'a>(a: &'a str) {}",
        "pub(in crate::daemon) fn f() {}",
        "#[cfg(test)]\nmod tests { use crate::daemon::executor::Executor; }",
        "#[cfg(test)]\nuse crate::daemon::executor::Executor;",
    ] {
        assert_eq!(fails(text), Vec::<String>::new(), "{text}");
    }
}

#[test]
fn layers_hold_between_crates_and_a_module_without_a_layer_fails() {
    let module = |text: &str| text.split("::").map(str::to_owned).collect::<Vec<_>>();
    let fails = |name, at: &str, text: &str| faults(name, &module(at), text);
    assert_eq!(fails("capd", "store::journal", "use crate::daemon::Daemon;"), ["store names daemon"]);
    assert_eq!(fails("capd", "store::journal", "use crate::registry::Registry;"), ["store names registry"]);
    assert_eq!(fails("capd", "router", "use crate::registry::Registry;"), ["router names registry/Registry"]);
    assert_eq!(fails("capd", "router", "use crate::registry::snapshot::Entry;"), Vec::<String>::new());
    assert_eq!(fails("capd_schema", "subtype", "use capd_net::Link;"), ["schema names net"]);
    assert_eq!(fails("capd_client", "call", "use capd_net::Link;"), Vec::<String>::new());
    assert_eq!(fails("capd_proto", "cbor", "use crate::message::Type;"), ["proto/cbor names proto/message"]);
    assert_eq!(fails("capd", "attic", ""), ["attic has no layer"]);
    assert_eq!(fails("capd", "daemon::attic", ""), ["daemon/attic has no layer"]);
    assert_eq!(fails("capd", "daemon::start::files", "use super::super::sidecar;"), Vec::<String>::new());
}

#[test]
fn no_struct_of_a_room_has_more_fields_than_fit_in_one_head() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut wide = BTreeSet::new();
    let mut found = 0;
    for file in sources(&root.join("daemon")) {
        let place = file.strip_prefix(&root).unwrap();
        if is_for_tests(&module_of(place)) {
            continue;
        }
        let structs = structs(&fs::read_to_string(&file).unwrap());
        found += structs.len();
        wide.extend(too_wide(structs).into_iter().map(|fault| format!("{}: {fault}", file.display())));
    }
    assert!(found > 100, "only {found} structs with named fields were found");
    let wide: Vec<_> = wide.into_iter().collect();
    assert!(wide.is_empty(), "structs of more than {FIELDS_MAX} fields:\n{}", wide.join("\n"));
}

#[test]
fn fields_are_counted_however_they_are_written() {
    let text = r#"
        struct Unit;
        struct Tuple(u8, u8);
        struct TupleWhere<F>(F, u8) where F: Fn(u8, u8);
        pub(super) struct Empty {}
        struct One { one: u8 }
        /// struct Quoted { a: u8, b: u8 }
        #[derive(Clone, Debug)]
        pub struct Three<'a, const N: usize, F: Fn(u8, u8) -> Vec<u8> = fn(u8, u8) -> Vec<u8>>
        where
            F: Fn(u8, u8) -> Option<(u8, u8)>,
        {
            /// One, of: two, three.
            #[cfg_attr(feature = "a", serde(rename = "x: y, z", default))]
            pub(in crate::daemon) map: BTreeMap<Vec<u8>, Result<(u8, [u8; 1 << 3]), fn(a: u8, b: u8) -> u8>>,
            // four: five,
            pub bytes: [u8; { N }],
            r#type: &'a dyn Fn(u8, u8) -> std::io::Result<Vec<F>>
        }
        enum Other { Variant { a: u8, b: u8 }, Last(u8, u8) }
        fn f() -> Three { struct Inner { a: u8, b: u8, } let c: u8 = 1; Three { map, bytes, r#type: b"{" } }
        #[cfg(test)]
        mod tests { struct Hidden { a: u8 } }
    "#;
    let counted: Vec<_> = ["Empty 0", "One 1", "Three 3", "Inner 2"].map(str::to_owned).into();
    let structs = structs(text).into_iter().map(|(name, fields)| format!("{name} {fields}"));
    assert_eq!(structs.collect::<Vec<_>>(), counted);
}

#[test]
fn one_field_past_the_bound_fails() {
    let fails = |fields: usize| {
        let fields: String = (0..fields).map(|at| format!("pub field_{at}: Vec<(u8, u8)>,\n")).collect();
        too_wide(structs(&format!("struct Narrow {{ a: u8 }}\nstruct Wide {{\n{fields}}}")))
    };
    assert_eq!(fails(FIELDS_MAX), Vec::<String>::new());
    assert_eq!(fails(FIELDS_MAX + 1), ["Wide has 13 fields"]);
}

/// What one file names that it must not.
fn faults(name: &str, module: &[String], text: &str) -> Vec<String> {
    let Some(from) = unit(name, module) else { return Vec::new() };
    let Some(layer) = layer(&from) else { return vec![format!("{from} has no layer")] };
    let mut faults = BTreeSet::new();
    for path in paths(text) {
        let Some((to_name, inner)) = resolved(name, module, &path) else { continue };
        // A crate's own root, which is its map, is nothing in particular.
        let Some(to) = unit(to_name, &inner) else { continue };
        let whole = [crate_unit(to_name)].into_iter().filter(|unit| !unit.is_empty());
        let whole = whole.chain(inner.iter().map(String::as_str)).collect::<Vec<_>>().join("/");
        let is_in = |part: &str| whole == part || whole.starts_with(&format!("{part}/"));
        let is_beside = || BESIDE.iter().any(|(who, part, _)| *who == from && is_in(part));
        let is_narrow = NARROW.iter().any(|(who, room, part)| *who == from && *room == to && !is_in(part));
        if to != from && is_narrow {
            faults.insert(format!("{from} names {}", shortened(&whole, &to)));
        } else if to != from && self::layer(&to).is_some_and(|other| other >= layer) && !is_beside() {
            let is_partly =
                BESIDE.iter().any(|(who, part, _)| *who == from && part.starts_with(&format!("{to}/")));
            faults.insert(format!("{from} names {}", if is_partly { shortened(&whole, &to) } else { to }));
        }
    }
    faults.into_iter().collect()
}

/// A path up to the first segment behind its unit.
fn shortened(whole: &str, unit: &str) -> String {
    let rest = whole[unit.len()..].trim_start_matches('/').split('/').next().unwrap_or_default();
    if rest.is_empty() { unit.to_owned() } else { format!("{unit}/{rest}") }
}

/// What the table calls a module, or what stands in it; none for the root of a crate.
fn unit(name: &str, module: &[String]) -> Option<String> {
    let of_crate = crate_unit(name);
    let mut path: Vec<&str> = module.iter().map(String::as_str).collect();
    if !of_crate.is_empty() {
        path.insert(0, of_crate);
    }
    let first = *path.first()?;
    let Some(second) = path.get(1).copied().filter(|_| OPEN.contains(&first)) else {
        return Some(first.to_owned());
    };
    let is_item = second.starts_with(char::is_uppercase);
    let is_on_rooms = first == "daemon" && ON_ROOMS.contains(&second);
    Some(if is_item || is_on_rooms { first.to_owned() } else { format!("{first}/{second}") })
}

fn crate_unit(name: &str) -> &'static str {
    CRATES.iter().find(|(_, known, _)| *known == name).map_or("", |(.., unit)| unit)
}

fn layer(unit: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&unit))
}

/// The crate that a path leads to, and the path within; none for what leads out of the workspace.
fn resolved<'a>(name: &'a str, module: &[String], path: &[String]) -> Option<(&'a str, Vec<String>)> {
    let (first, rest) = path.split_first()?;
    if first == "crate" {
        // A binary is a crate of its own, whatever folder it lies in.
        let own = module.first().filter(|first| *first == "bin").cloned();
        return Some((name, own.into_iter().chain(rest.iter().cloned()).collect()));
    }
    if first == "super" || first == "self" {
        let ups = path.iter().take_while(|part| *part == "super" || *part == "self");
        let (skipped, ups) = (ups.clone().count(), ups.filter(|part| *part == "super").count());
        let mut inner = module[..module.len().checked_sub(ups)?].to_vec();
        inner.extend_from_slice(&path[skipped..]);
        return Some((name, inner));
    }
    CRATES.iter().find(|(_, known, _)| known == first).map(|(_, known, _)| (*known, rest.to_vec()))
}

/// Every path in a source text that begins at a root: of imports, each of their branches.
fn paths(text: &str) -> Vec<Vec<String>> {
    let tokens = without_tests(tokens(text));
    let is_root = |token: &str| {
        ["crate", "super", "self"].contains(&token) || CRATES.iter().any(|(_, name, _)| *name == token)
    };
    let mut paths = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        let before = at.checked_sub(1).map(|before| tokens[before].as_str());
        let is_path = is_root(&tokens[at]) && tokens.get(at + 1).is_some_and(|next| next == "::");
        // `pub(in crate::daemon)` says who may name something, and names nothing.
        if is_path && before != Some("::") && before != Some("in") {
            at = branch(&tokens, at, Vec::new(), &mut paths);
        } else {
            at += 1;
        }
    }
    paths
}

/// Reads a path, and whatever it branches into, from `at` on; where it ends.
fn branch(tokens: &[String], mut at: usize, mut path: Vec<String>, into: &mut Vec<Vec<String>>) -> usize {
    loop {
        match tokens.get(at).map(String::as_str) {
            Some("{") => {
                at += 1;
                while tokens.get(at).is_some_and(|token| token != "}") {
                    let is_name = |token: &str| token == "{" || token.starts_with(is_name_part);
                    // Renames and commas come between branches.
                    if tokens[at] == "as" {
                        at += 2;
                    } else if is_name(&tokens[at]) {
                        at = branch(tokens, at, path.clone(), into);
                    } else {
                        at += 1;
                    }
                }
                return at + 1;
            }
            Some(name) if name.starts_with(is_name_part) => {
                if name != "self" || path.is_empty() {
                    path.push(name.to_owned());
                }
                at += 1;
                if tokens.get(at).is_none_or(|token| token != "::") {
                    into.push(path);
                    return at;
                }
                at += 1;
            }
            Some(_) | None => {
                into.push(path);
                return at;
            }
        }
    }
}

/// What is said of structs with too many fields.
fn too_wide(structs: Vec<(String, usize)>) -> Vec<String> {
    let wide = structs.into_iter().filter(|(_, fields)| *fields > FIELDS_MAX);
    wide.map(|(name, fields)| format!("{name} has {fields} fields")).collect()
}

/// Every struct of a source text whose fields have names, and how many it has.
fn structs(text: &str) -> Vec<(String, usize)> {
    let tokens = without_tests(tokens(text));
    let mut found = Vec::new();
    for (at, _) in tokens.iter().enumerate().filter(|(_, token)| *token == "struct") {
        let Some((name, behind)) = tokens[at + 1..].split_first() else { continue };
        // Generics and bounds come before the fields; parentheses outside of bounds are a tuple's.
        let mut has_bounds = false;
        let opening = flat(behind).find(|(_, token)| {
            has_bounds |= *token == "where";
            ["{", ";"].contains(token) || (*token == "(" && !has_bounds)
        });
        if let Some((opening, "{")) = opening {
            // A type's own `:` is inside of brackets, and a path's is another token.
            let inner = flat(&behind[opening + 1..]).take_while(|(_, token)| *token != "}");
            found.push((name.clone(), inner.filter(|(_, token)| *token == ":").count()));
        }
    }
    found
}

/// Tokens that are not within brackets, each with its place; brackets themselves are not within.
fn flat(tokens: &[String]) -> impl Iterator<Item = (usize, &str)> {
    let mut open: Vec<&str> = Vec::new();
    tokens.iter().enumerate().filter_map(move |(at, token)| {
        let token = token.as_str();
        let is_in_generics = open.last().is_none_or(|last| *last == "<");
        let is_arrow = at > 0 && tokens[at - 1] == "-";
        let closes = ["}", ")", "]"].contains(&token) || (token == ">" && is_in_generics && !is_arrow);
        if closes {
            open.pop();
        }
        let is_flat = open.is_empty();
        // Within other brackets, these may be shifts.
        if ["{", "(", "["].contains(&token) || (token == "<" && is_in_generics) {
            open.push(token);
        }
        is_flat.then_some((at, token))
    })
}

/// Leaves out items that only tests have.
fn without_tests(tokens: Vec<String>) -> Vec<String> {
    let marks = ["#", "[", "cfg", "(", "test", ")", "]"];
    let mut kept = Vec::new();
    let mut at = 0;
    while at < tokens.len() {
        if !tokens[at..].iter().map(String::as_str).take(marks.len()).eq(marks) {
            kept.push(tokens[at].clone());
            at += 1;
            continue;
        }
        let mut depth = 0;
        for token in &tokens[at + marks.len()..] {
            at += 1;
            match token.as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                _ => {}
            }
            if depth == 0 && (token == "}" || token == ";") {
                break;
            }
        }
        at += marks.len();
    }
    kept
}

/// Names, `::`, and single signs; without comments, texts and characters.
fn tokens(text: &str) -> Vec<String> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let hashes = rest.trim_start_matches(['b', 'r']).chars().take_while(|sign| *sign == '#').count();
        let raw = format!("r{}\"", "#".repeat(hashes));
        let skipped = if rest.starts_with("//") {
            rest.find('\n').unwrap_or(rest.len())
        } else if rest.starts_with("/*") {
            rest.find("*/").map_or(rest.len(), |end| end + 2)
        } else if rest.starts_with(&raw) || rest.starts_with(&format!("b{raw}")) {
            let start = rest.find('"').unwrap() + 1;
            let end = format!("\"{}", "#".repeat(hashes));
            start + rest[start..].find(&end).map_or(rest.len() - start, |found| found + end.len())
        } else if first == '"' {
            quoted(rest)
        } else if first == '\'' {
            character(rest)
        } else {
            0
        };
        if skipped > 0 {
            rest = &rest[skipped..];
            continue;
        }
        let length = match first {
            ':' if rest.starts_with("::") => 2,
            _ if is_name_part(first) => rest.find(|sign| !is_name_part(sign)).unwrap_or(rest.len()),
            _ => first.len_utf8(),
        };
        let (token, behind) = rest.split_at(length);
        if !first.is_whitespace() {
            tokens.push(token.to_owned());
        }
        rest = behind;
    }
    tokens
}

fn is_name_part(sign: char) -> bool {
    sign.is_alphanumeric() || sign == '_'
}

/// How long the text is that begins here, with its quotes.
fn quoted(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.char_indices().skip(1).find(|(_, sign)| {
        let ends = *sign == '"' && !is_escaped;
        is_escaped = *sign == '\\' && !is_escaped;
        ends
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// How long the character is that begins here, with its quotes; a lifetime's mark alone.
fn character(text: &str) -> usize {
    let mut signs = text.char_indices().skip(1);
    match signs.next() {
        Some((_, '\\')) => text[2..].find('\'').filter(|at| *at > 0).map_or(4, |at| at + 3),
        Some((at, sign)) if text[at + sign.len_utf8()..].starts_with('\'') => at + sign.len_utf8() + 1,
        Some(_) | None => 1,
    }
}

/// The module of a file, as a path from its crate's root.
fn module_of(file: &Path) -> Vec<String> {
    let mut module: Vec<_> =
        file.with_extension("").iter().map(|part| part.to_str().unwrap().to_owned()).collect();
    if module.last().is_some_and(|last| last == "mod" || last == "lib") {
        module.pop();
    }
    module
}

/// Whether a module is there for tests only.
fn is_for_tests(module: &[String]) -> bool {
    module.iter().any(|part| part == "tests" || part.ends_with("_tests"))
}

/// Every source file beneath a folder.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            found.push(path);
        }
    }
    found
}
