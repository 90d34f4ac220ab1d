//! The bodies of the table: for each message type what is usually sent, and what costs its rule most.

use capd_proto::cbor::Writer;
use capd_proto::cddl::bodies::Bodies;

/// A named body.
pub(crate) struct Row {
    pub(crate) name: &'static str,
    pub(crate) typ: u64,
    pub(crate) body: Vec<u8>,
}

/// The text of the rules.
pub(crate) fn crate_text() -> &'static str {
    Bodies::text()
}

/// One data item.
#[derive(Clone)]
enum Item {
    Text(String),
    Bytes(usize),
    Uint(u64),
    Bool(bool),
    Array(Vec<Item>),
    Map(Vec<(String, Item)>),
}

impl Item {
    /// Map keys in the order that senders write them in.
    fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Item::Text(text) => drop(writer.text(text)),
            Item::Bytes(length) => drop(writer.bytes(&vec![7; *length])),
            Item::Uint(value) => drop(writer.uint(*value)),
            Item::Bool(value) => drop(writer.bool(*value)),
            Item::Array(items) => {
                writer.array(items.len() as u64);
                items.iter().for_each(|item| item.write(writer));
            }
            Item::Map(members) => {
                let mut members = members.clone();
                members.sort_by(|(a, _), (b, _)| (a.len(), a).cmp(&(b.len(), b)));
                writer.map(members.len() as u64);
                for (key, value) in &members {
                    writer.text(key);
                    value.write(writer);
                }
            }
        }
    }
}

fn t(text: &str) -> Item {
    Item::Text(text.into())
}

fn list(texts: &[&str]) -> Item {
    Item::Array(texts.iter().map(|text| t(text)).collect())
}

fn map<const N: usize>(members: [(&str, Item); N]) -> Item {
    Item::Map(members.into_iter().map(|(key, value)| (key.to_string(), value)).collect())
}

/// The map with `count` more members that no rule names.
fn and_unknown(item: Item, count: usize, value: Item) -> Item {
    let Item::Map(mut members) = item else { return item };
    members.extend((0..count).map(|n| (format!("x{n:02}"), value.clone())));
    Item::Map(members)
}

/// An object as calls carry them.
fn object(fields: u64) -> Item {
    let field = |n: u64| {
        let value = match n % 3 {
            0 => Item::Uint(n * 37),
            1 => t("a line of text"),
            _ => map([("lat", Item::Uint(52)), ("lon", Item::Uint(4)), ("name", t("Noord"))]),
        };
        (format!("field_{n}"), value)
    };
    Item::Map((0..fields).map(field).collect())
}

fn by_uri() -> Item {
    map([
        ("uri", t("https://example.org/schemas/forecast-input.json")),
        ("hash", Item::Bytes(32)),
        ("hash_alg", t("sha-256")),
        ("media_type", t("application/schema+json")),
    ])
}

fn bare(source: [(&str, Item); 2]) -> Item {
    let Item::Map(mut members) = map(source) else { unreachable!("`map` makes maps") };
    members.extend([("hash".to_string(), Item::Bytes(64)), ("hash_alg".to_string(), t("sha-512"))]);
    Item::Map(members)
}

fn bundled() -> Item {
    bare([("bundle_id", t("b1")), ("artifact_key", t("in"))])
}

/// The shortest reference there is, and the last of all alternatives.
fn inline() -> Item {
    map([("inline", Item::Bool(true)), ("hash", Item::Bytes(64)), ("hash_alg", t("sha-512"))])
}

fn all_sources() -> Item {
    map([
        ("uri", t("u")),
        ("bundle_id", t("b")),
        ("artifact_key", t("a")),
        ("inline", Item::Uint(1)),
        ("hash", Item::Bytes(64)),
        ("hash_alg", t("sha-512")),
        ("media_type", t("m")),
        ("updated_at", Item::Uint(1)),
    ])
}

fn full_descriptor(n: usize) -> Item {
    map([
        ("id", t(&format!("org.example.capability-{n}:1.0.0"))),
        ("name", t("org.example.capability")),
        ("version", t("1.0.0")),
        ("description", t("Forecasts for a place, a few days ahead.")),
        ("input_schema", by_uri()),
        ("output_schema", by_uri()),
        ("supported_ranges", list(&["^1.0", "~0.9"])),
        ("idempotent", Item::Bool(true)),
        ("timeout_ms", Item::Uint(30_000)),
        ("permissions", list(&["net", "location"])),
        ("rate_limit", map([("requests", Item::Uint(60)), ("period", t("1m"))])),
    ])
}

fn with_schema(schema: &Item) -> Item {
    map([("id", t("a:1")), ("input_schema", schema.clone()), ("output_schema", schema.clone())])
}

fn declare(descriptors: impl IntoIterator<Item = Item>) -> Item {
    map([("capabilities", Item::Array(descriptors.into_iter().collect()))])
}

fn hundred_refs() -> Item {
    declare((0..100).map(|n| {
        let schema = map([
            ("uri", t("https://example.org/schema")),
            ("hash", Item::Bytes(32)),
            ("hash_alg", t("sha-256")),
        ]);
        let id = t(&format!("org.example.capability-{n}:1.0.0"));
        map([("id", id), ("idempotent", Item::Bool(true)), ("input_schema", schema)])
    }))
}

fn declares() -> Vec<(&'static str, u64, Item)> {
    let many = |schema: Item| declare(std::iter::repeat_n(with_schema(&schema), 100));
    vec![
        ("CAP_DECLARE 1 full", 0x21, declare([full_descriptor(1)])),
        ("CAP_DECLARE 20 full", 0x21, declare((0..20).map(full_descriptor))),
        ("CAP_DECLARE 100 schema-refs", 0x21, hundred_refs()),
        ("CAP_DECLARE 100 ids", 0x21, declare((0..100).map(|_| map([("id", t("a:1"))])))),
        ("CAP_DECLARE schema urls", 0x21, many(t("u"))),
        ("CAP_DECLARE bundled refs", 0x21, many(bundled())),
        ("CAP_DECLARE inline refs", 0x21, many(inline())),
        ("CAP_DECLARE all sources", 0x21, many(all_sources())),
        ("CAP_DECLARE refs 10 unknown", 0x21, many(and_unknown(inline(), 10, Item::Uint(1)))),
        ("CAP_DECLARE refs 90 unknown", 0x21, many(and_unknown(inline(), 90, Item::Uint(1)))),
        ("CAP_DECLARE inline objects", 0x21, many(bare([("uri", t("u")), ("inline", object(30))]))),
        ("CAP_DECLARE ranges", 0x21, {
            let ranges = Item::Array(vec![t("^1"); 200]);
            declare((0..20).map(|_| map([("id", t("a:1")), ("supported_ranges", ranges.clone())])))
        }),
    ]
}

fn results() -> Vec<(&'static str, u64, Item)> {
    let session = || map([("session_id", Item::Bytes(16)), ("session_scope", Item::Bool(true))]);
    let success = |result| map([("status", t("success")), ("result", result), ("session", session())]);
    let failure =
        |error| map([("status", t("error")), ("error", error), ("execution_time_ms", Item::Uint(3))]);
    let error = |details| {
        map([
            ("code", Item::Uint(4006)),
            ("name", t("params")),
            ("message", t("params do not match")),
            ("details", details),
        ])
    };
    vec![
        ("CAP_RESULT success", 0x23, success(object(6))),
        ("CAP_RESULT success 200", 0x23, success(object(200))),
        ("CAP_RESULT error", 0x23, failure(error(object(2)))),
        ("CAP_RESULT error 200", 0x23, failure(error(object(200)))),
        ("CAP_RESULT error unknown", 0x23, failure(and_unknown(error(Item::Uint(1)), 90, Item::Uint(1)))),
        ("CAP_RESULT error other", 0x23, {
            failure(and_unknown(
                map([("code", Item::Uint(1)), ("zzzz", Item::Uint(1)), ("message", Item::Uint(1))]),
                90,
                Item::Uint(1),
            ))
        }),
        ("CAP_RESULT costs", 0x23, {
            let Item::Map(mut members) = success(Item::Uint(1)) else { unreachable!("`map` makes maps") };
            members.push(("cost_estimate".into(), and_unknown(map([]), 90, Item::Uint(1))));
            Item::Map(members)
        }),
        ("CAP_RESULT error short", 0x23, map([("status", t("error")), ("error", Item::Uint(1))])),
        ("CAP_RESULT error more", 0x23, {
            and_unknown(map([("status", t("error")), ("error", Item::Uint(1))]), 90, Item::Uint(1))
        }),
    ]
}

fn sessions() -> Vec<(&'static str, u64, Item)> {
    let negotiate = map([
        ("op", t("negotiate")),
        ("capability", t("weather.forecast")),
        ("preferred_version", t("1.2.0")),
        ("acceptable_versions", list(&["1.2.0", "1.1.0"])),
    ]);
    let accept = map([
        ("op", t("accept")),
        ("capability", t("weather.forecast")),
        ("agreed_version", t("1.2.0")),
        ("session_id", Item::Bytes(16)),
        ("expires_at", Item::Uint(1_790_000_000_000)),
    ]);
    let cancelled = map([("op", t("cancel")), ("target", Item::Bytes(16)), ("state", t("unknown"))]);
    vec![
        ("REQUEST negotiate", 0x11, negotiate),
        ("REQUEST cancel", 0x11, map([("op", t("cancel")), ("target", Item::Bytes(16))])),
        ("REQUEST other", 0x11, map([("op", t("resume")), ("from", Item::Uint(1))])),
        (
            "REQUEST other 90",
            0x11,
            and_unknown(map([("zzzz", t("")), ("op", t("resume"))]), 90, Item::Uint(1)),
        ),
        ("REQUEST short", 0x11, map([("op", t("r"))])),
        ("RESPONSE accept", 0x12, accept),
        ("RESPONSE cancel", 0x12, cancelled),
        ("RESPONSE other", 0x12, map([("op", t("resume")), ("from", Item::Uint(1))])),
        ("RESPONSE short", 0x12, map([("op", t("r"))])),
        ("RESPONSE other first keys", 0x12, {
            // Keys shorter than `op` stand before it and are passed once for each alternative.
            let Item::Map(mut members) = map([("op", t("resume"))]) else { unreachable!("`map` makes maps") };
            members.extend((b'a'..=b'z').map(|key| (char::from(key).to_string(), Item::Uint(1))));
            Item::Map(members)
        }),
    ]
}

fn steering() -> Vec<(&'static str, u64, Item)> {
    let error = map([
        ("code", Item::Uint(1001)),
        ("category", t("server")),
        ("message", t("body does not match its rule")),
        ("retry", Item::Bool(false)),
    ]);
    let hello = map([
        ("versions", list(&["1.0"])),
        ("extensions", list(&["org.example.zip"])),
        ("agent_info", map([("name", t("capd")), ("implementation", t("capd/0.1.0"))])),
    ]);
    vec![
        ("PING", 0x01, map([("nonce", Item::Uint(1))])),
        ("PONG", 0x02, map([("nonce", Item::Uint(1))])),
        ("ACK", 0x03, map([])),
        (
            "PROCESSING",
            0x09,
            map([
                ("status_text", t("queued")),
                ("eta_ms", Item::Uint(500)),
                ("cancellable", Item::Bool(true)),
            ]),
        ),
        ("PROGRESS", 0x0a, map([("progress_pct", Item::Uint(40))])),
        ("INPUT_REQUIRED", 0x0b, map([("prompt", t("Which city?")), ("options", list(&["Oslo", "Rome"]))])),
        ("ERROR", 0x0f, error),
        ("HELLO", 0x70, hello),
        ("HELLO 200 versions", 0x70, map([("versions", Item::Array(vec![t("1"); 200]))])),
        ("HELLO_ACK", 0x71, map([("selected", t("1.0"))])),
        ("HELLO_ACK 90 unknown", 0x71, and_unknown(map([("selected", t("1.0"))]), 90, Item::Uint(1))),
        ("HELLO_REJECT", 0x72, map([("reason", t("no version in common"))])),
    ]
}

fn calls() -> Vec<(&'static str, u64, Item)> {
    let filter = map([("capability", t("weather.*")), ("version", t("^1.0"))]);
    let preferences =
        map([("range", t("^1.0")), ("preferred", t("1.2.0")), ("acceptable", list(&["1.2.0"]))]);
    let invoke = map([
        ("capability", t("weather.forecast")),
        ("negotiate", preferences),
        ("params", object(6)),
        ("timeout_ms", Item::Uint(5_000)),
        ("session", map([("session_id", Item::Bytes(16))])),
    ]);
    let document = map([
        ("content_type", t("application/json")),
        ("filename", t("forecast.json")),
        ("size", Item::Uint(4096)),
        ("hash", Item::Bytes(32)),
        ("data", Item::Bytes(4096)),
    ]);
    vec![
        (
            "CAP_QUERY",
            0x20,
            map([("filter", filter), ("limit", Item::Uint(20)), ("order", t("newest-first"))]),
        ),
        ("CAP_INVOKE", 0x22, invoke),
        ("CAP_INVOKE 200", 0x22, map([("id", t("weather.forecast@1")), ("params", object(200))])),
        ("CAP_INVOKE empty", 0x22, map([("params", map([]))])),
        ("CAP_INVOKE 90 unknown", 0x22, and_unknown(map([("params", map([]))]), 90, Item::Uint(1))),
        ("DOC_SEND", 0x30, document),
        ("DOC_REQUEST", 0x31, map([("hash", Item::Bytes(32))])),
    ]
}

/// All rows, by type of message.
pub(crate) fn rows() -> Vec<Row> {
    let all = [steering(), sessions(), calls(), declares(), results()];
    let row = |(name, typ, item): (&'static str, u64, Item)| {
        let mut body = Vec::new();
        item.write(&mut Writer::new(&mut body));
        Row { name, typ, body }
    };
    all.into_iter().flatten().map(row).collect()
}
