//! PROTOCOL 6: texts that are no name, version or range in, 4001 that says which form is accepted out.

use ciborium::{Value, cbor};

use crate::fixture::{CAP_INVOKE, CAP_QUERY, REQUEST, loose, served};
use crate::peer::{RawLink, Transport};

const NAMES: [&str; 14] = [
    "",
    "echo",
    "example.echo",
    ".example.echo.x",
    "com.example.",
    "com..echo.x",
    "com.example.-echo",
    "com.example.echo-",
    "com.example.e_cho",
    "com.example.e cho",
    "com.example.écho",
    "com.example.echo\n",
    "com.*.echo",
    "com.example.echo:1",
];

const VERSIONS: [&str; 14] = [
    "",
    "1",
    "v1.0.0",
    "1.0.0.0",
    "01.0.0",
    "1.0.00",
    "1.x",
    "1.0.x",
    "latest",
    " 1.0.0",
    "1.0.0 ",
    "1.0-rc.1",
    "1.0.0-",
    "99999999999999999999.0.0",
];

const RANGES: [&str; 14] = [
    "",
    "^1.0.0",
    "~1.2.0",
    "1.x",
    "*",
    ">=1.0.0 || <0.5.0",
    ">=1.0.0, <2.0.0",
    "1.0.0 - 2.0.0",
    "=>1.0.0",
    ">",
    "!=1.0.0",
    ">=1",
    ">= 1.0.0",
    "latest",
];

/// Each of these bodies is a 4001, and the message holds `says`.
#[track_caller]
fn each_is_4001(typ: u64, says: &[&str], bodies: impl Fn(&str) -> Value, texts: &[&str]) {
    let (sidecar, _agent) = served(vec![loose("com.example.echo:1.0.0")]);
    for transport in [Transport::Unix, Transport::Tcp, Transport::Quic] {
        let mut link = RawLink::open(&sidecar, transport);
        for text in texts {
            let refusal = link.refused(typ, bodies(text));
            assert_eq!(refusal.code, 4001, "{transport:?}: {text:?}: {refusal:?}");
            let is_said = says.iter().any(|says| refusal.message.contains(says));
            assert!(is_said, "{transport:?}: {text:?}: {refusal:?}");
        }
    }
}

#[test]
fn a_query_for_what_is_no_name_is_4001() {
    let query = |name: &str| cbor!({ "filter" => { "capability" => name } }).unwrap();
    each_is_4001(CAP_QUERY, &["capability name"], query, &NAMES);
    let alias = |name: &str| cbor!({ "filter" => { "type" => name } }).unwrap();
    each_is_4001(CAP_QUERY, &["`type`"], alias, &NAMES);
    let too_long = format!("com.example.{}", "x".repeat(244));
    each_is_4001(CAP_QUERY, &["at most 255 bytes"], query, &[&too_long]);
}

#[test]
fn a_query_for_what_is_no_range_is_4001() {
    let query = |range: &str| {
        cbor!({ "filter" => { "capability" => "com.example.echo", "version" => range } }).unwrap()
    };
    let says = ["accepted are =, >, >=, <, <= and bare versions", "a version is MAJOR.MINOR.PATCH"];
    each_is_4001(CAP_QUERY, &says, query, &RANGES);
}

#[test]
fn a_call_of_what_is_no_name_or_version_is_4001() {
    let by_name =
        |name: &str| cbor!({ "capability" => name, "version" => "1.0.0", "params" => null }).unwrap();
    each_is_4001(CAP_INVOKE, &["capability name"], by_name, &NAMES);
    let says = ["a version is", "a number of a version", "two-part version", "pre-release", "accepted are"];
    let by_version = |version: &str| {
        cbor!({ "capability" => "com.example.echo", "version" => version, "params" => null }).unwrap()
    };
    each_is_4001(CAP_INVOKE, &says, by_version, &VERSIONS);
    let by_id =
        |version: &str| cbor!({ "id" => format!("com.example.echo:{version}"), "params" => null }).unwrap();
    each_is_4001(CAP_INVOKE, &says, by_id, &VERSIONS);
    let id = |id: &str| cbor!({ "id" => id, "params" => null }).unwrap();
    each_is_4001(
        CAP_INVOKE,
        &["capability id", "capability name"],
        id,
        &["com.example.echo", "", ":1.0.0", "echo:1.0.0"],
    );
}

#[test]
fn a_negotiation_with_what_is_no_version_or_range_is_4001() {
    let range = |range: &str| {
        cbor!({ "capability" => "com.example.echo", "negotiate" => { "range" => range }, "params" => null })
            .unwrap()
    };
    each_is_4001(CAP_INVOKE, &["`range`"], range, &RANGES);
    let preferred = |version: &str| {
        cbor!({ "capability" => "com.example.echo", "negotiate" => { "preferred" => version }, "params" => null }).unwrap()
    };
    each_is_4001(CAP_INVOKE, &["`preferred`"], preferred, &VERSIONS);
    let acceptable = |version: &str| {
        let negotiate = cbor!({ "acceptable" => ["1.0.0", version] }).unwrap();
        cbor!({ "capability" => "com.example.echo", "negotiate" => negotiate, "params" => null }).unwrap()
    };
    each_is_4001(CAP_INVOKE, &["`acceptable`"], acceptable, &VERSIONS);
    let request = |range: &str| {
        cbor!({ "op" => "negotiate", "capability" => "com.example.echo", "range" => range }).unwrap()
    };
    each_is_4001(REQUEST, &["`range`"], request, &RANGES);
    let name = |name: &str| cbor!({ "op" => "negotiate", "capability" => name, "range" => "1.0.0" }).unwrap();
    each_is_4001(REQUEST, &["capability name"], name, &NAMES);
}

#[test]
fn ranges_choose_by_semver_and_pre_releases_only_where_they_are_named() {
    let ids = ["com.example.echo:1.0.0", "com.example.echo:1.9.0", "com.example.echo:2.0.0-rc.1"];
    let (sidecar, _agent) = served(ids.map(loose).to_vec());
    let cases: [(&str, &[&str]); 8] = [
        (">=1.0.0 <2.0.0", &["1.9.0", "1.0.0"]),
        (">=2.0.0-rc.1", &["2.0.0-rc.1"]),
        (">=1.0.0", &["1.9.0", "1.0.0"]),
        ("1.9.0", &["1.9.0"]),
        ("1.9", &["1.9.0"]),
        ("=1.0.0", &["1.0.0"]),
        (">1.0.0 <=2.0.0-rc.1", &["2.0.0-rc.1", "1.9.0"]),
        ("1.0.0+build", &["1.0.0"]),
    ];
    for transport in [Transport::Unix, Transport::Tcp, Transport::Quic] {
        let mut link = RawLink::open(&sidecar, transport);
        for (range, expected) in cases {
            let query = cbor!({ "filter" => { "capability" => "com.example.echo", "version" => range } });
            let declare = link.ask(CAP_QUERY, query.unwrap());
            let expected: Vec<_> =
                expected.iter().map(|version| format!("com.example.echo:{version}")).collect();
            assert_eq!(crate::fixture::ids(&declare), expected, "{transport:?}: {range}");
        }
        for range in ["2.0.0", "<1.0.0", ">=3.0.0", ">1.9.0"] {
            let query = cbor!({ "filter" => { "capability" => "com.example.echo", "version" => range } });
            let refusal = link.refused(CAP_QUERY, query.unwrap());
            assert_eq!(refusal.code, 4003, "{transport:?}: {range}: {refusal:?}");
            assert_eq!(refusal.available(), ["2.0.0-rc.1", "1.9.0", "1.0.0"], "{transport:?}: {range}");
        }
    }
}
