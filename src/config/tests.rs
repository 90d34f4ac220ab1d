use std::path::Path;

use super::keys::{Fallback, KEYS, Kind};
use super::*;

const FILE: &str = "/etc/capd/capd.toml";

fn env(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    let mut all = vec![("HOME".to_owned(), "/home/a".to_owned()), ("PATH".to_owned(), "/bin".to_owned())];
    all.extend(pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())));
    all
}

fn flags(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

fn file(text: &str) -> Result<Config, Mistakes> {
    Config::layer(Some((Path::new(FILE), text)), &env(&[]), &[])
}

/// The one message that `text` gives.
fn refused(text: &str) -> String {
    let mistakes = file(text).expect_err("the file holds a mistake");
    assert_eq!(mistakes.0.len(), 1, "{mistakes}");
    mistakes.to_string()
}

#[track_caller]
fn says(message: &str, parts: &[&str]) {
    for part in parts {
        assert!(message.contains(part), "{message:?} does not say {part:?}");
    }
}

#[test]
fn nothing_set_gives_the_documented_defaults() {
    let config = Config::layer(None, &env(&[]), &[]).unwrap();
    assert_eq!(config.agent.dir, Path::new("/home/a/.local/state/capd"));
    assert_eq!(config.agent.key_file, Path::new("/home/a/.local/state/capd/identity.key"));
    assert_eq!(config.listen.unix.as_deref(), Some(Path::new("/home/a/.local/state/capd/capd.sock")));
    assert_eq!(config.listen.token_file, Path::new("/home/a/.local/state/capd/token"));
    assert_eq!((config.listen.quic, config.listen.tcp, config.listen.local_tcp), (None, None, None));
    assert_eq!(config.peer.signatures, Signatures::Always);
    assert_eq!(config.peer.admit, Admit::Listed);
    assert_eq!(config.limits.msg_size_bytes_max, 16 * 1024 * 1024);
    assert_eq!(config.timeouts.handshake_ms, 10_000);
    assert_eq!(config.timeouts.drain_ms, 30_000);
    assert_eq!(config.timeouts.call_ms, 60_000);
    assert_eq!(config.quic.shared_streams, 4);
    assert_eq!(config.quic.shared_stream_message_bytes_max, 65_536);
    assert_eq!(config.runtime.busy_poll_us, 200);
    assert_eq!(config.audit.file.as_deref(), Some(Path::new("/home/a/.local/state/capd/audit.db")));
    assert_eq!(config.log.level, LevelFilter::INFO);
    assert_eq!((config.log.access, &config.log.payloads_of), (true, &None));
    assert!(config.effective().iter().all(|effective| effective.origin == Origin::Default));
}

#[test]
fn every_key_is_read_from_the_file() {
    let text = r#"
        [agent]
        name = "reviewer"
        dir = "/var/lib/capd"
        key_file = "keys/id"
        capabilities = "capabilities.yaml"
        did_documents = ["a.json", "/b.json"]
        check_files = "off"
        [listen]
        quic = "0.0.0.0:7001"
        tcp = "[::1]:7002"
        unix = "off"
        local_tcp = "127.0.0.1:7003"
        token_file = "t"
        token_plain = "on"
        health = "0.0.0.0:9464"
        [peer]
        signatures = "channel"
        admit = "listed"
        serves = ["org.dev.*"]
        refresh_ms = 5000
        [[peers]]
        did = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
        addresses = ["quic://127.0.0.1:7001", "tcp://[::1]:7002", "quic://peer.example:9"]
        serves = ["org.pay.*", "org.example.echo"]
        [[peers]]
        did = "did:web:example.org"
        [[groups]]
        name = "near"
        members = ["did:web:example.org"]
        [[allow]]
        callers = ["group:near", "did:key:z1", "*"]
        capabilities = ["org.example.*", "org.example.deep.one", "*"]
        actions = ["invoke"]
        permissions = ["network:read", "filesystem:*", "*"]
        [policy]
        files = ["a.cedar"]
        [limits]
        msg_size_bytes_max = 0x200000
        calls_in_flight_max = 10
        calls_in_flight_per_peer_max = 5
        calls_in_flight_per_capability_max = 4
        calls_in_flight_per_provider_max = 3
        requests_waiting_max = 20
        call_rate_per_peer = "600/1m burst 50"
        call_rate = "off"
        denied_rate_per_peer = "1/1s"
        links_max = 7
        links_per_peer_max = 2
        links_opening_max = 6
        links_opening_per_address_max = 3
        links_unvalidated_max = 0
        handshake_rate_per_address = "off"
        streams_per_link_max = 64
        stream_reset_rate_per_link = "5/1s"
        queue_frames_max = 128
        receive_bytes_max = 4194304
        queue_bytes_max = 4194304
        ledger_entries_max = 100
        ledger_bytes_max = 4194304
        ledger_idempotent_bytes_max = 0
        ledger_ttl_max_ms = 60000
        peer_capabilities_max = 10
        peer_capability_bytes_max = 65536
        max_argument_repairs = 3
        [timeouts]
        handshake_ms = 1000
        frame_ms = 2000
        drain_ms = 0
        idle_ms = 9000
        keep_alive_ms = 3000
        dead_ms = 4000
        call_ms = 2000
        reconnect_initial_ms = 10
        reconnect_max_ms = 20
        [quic]
        shared_streams = 2
        shared_stream_message_bytes_max = 0
        [runtime]
        busy_poll_us = 0
        [process]
        memory_bytes_max = 33554432
        file_bytes_max = 0
        open_files_max = 64
        processes_max = 7
        user = "nobody"
        allow_root = "on"
        [fleet]
        cell = "prod"
        authority = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK"
        membership = "member"
        endpoints = ["https://a:2379", "https://b:2379"]
        mdns = "off"
        mdns_port = 15353
        tls_ca = "ca.pem"
        tls_cert = "cert.pem"
        tls_key = "key.pem"
        addresses = ["quic://a.example:7001"]
        zone = "a"
        ttl_ms = 60000
        idle_ms = 1000
        max_stale_ms = 10000
        deny_max_age_ms = 60000
        links_per_name = 4
        [audit]
        file = "a.db"
        tenant = "acme"
        file_bytes_max = 1048576
        reserved_percent = 0
        raw_bytes_max = 0
        [log]
        format = "json"
        level = "debug"
        access = "off"
        payloads_of = "org.example.echo"
        [metrics]
        capabilities = "on"
        [otlp]
        endpoint = "http://127.0.0.1:4318/"
        sample_ratio = 0.25
    "#;
    let config = file(text).unwrap();
    let unset: Vec<_> =
        config.effective().iter().filter(|e| e.origin == Origin::Default).map(|e| e.key).collect();
    // A fleet has one registry.
    assert_eq!(unset, ["fleet.file"]);
    let fleet = config.fleet.as_ref().unwrap();
    assert_eq!((fleet.membership.as_path(), fleet.links_per_name), (Path::new("/etc/capd/member"), 4));
    assert!(matches!(&fleet.registry, Registry::Etcd(etcd) if etcd.endpoints.len() == 2));
    assert_eq!(config.otlp.endpoint.as_ref().unwrap().to_string(), "http://127.0.0.1:4318");
    assert_eq!(config.otlp.sample_ratio, 0.25);
    assert!(config.metrics.capabilities);
    assert_eq!(config.limits.handshake_rate_per_address, None);
    assert_eq!(config.limits.stream_reset_rate_per_link, "5/1s".parse().ok());
    assert_eq!(config.agent.key_file, Path::new("/etc/capd/keys/id"));
    assert_eq!(config.agent.did_documents, [Path::new("/etc/capd/a.json"), Path::new("/b.json")]);
    assert_eq!(config.listen.quic.unwrap().to_string(), "0.0.0.0:7001");
    assert_eq!(config.listen.unix, None);
    assert_eq!(config.peers.len(), 2);
    let written: Vec<String> = config.peers[0].addresses.iter().map(ToString::to_string).collect();
    assert_eq!(written, ["quic://127.0.0.1:7001", "tcp://[::1]:7002", "quic://peer.example:9"]);
    let served =
        |patterns: &[CapabilityPattern]| patterns.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(served(&config.peers[0].serves), ["org.pay.*", "org.example.echo"]);
    assert!(config.peers[1].serves.is_empty(), "nothing, unless said");
    assert_eq!(served(&config.peer.serves), ["org.dev.*"]);
    assert_eq!(config.groups[0].members, ["did:web:example.org"]);
    let who = [Caller::Group("near".into()), Caller::Did("did:key:z1".into()), Caller::Anyone];
    assert_eq!(
        (&config.allow[0].callers[..], &config.allow[0].actions[..]),
        (&who[..], &[Action::Invoke][..])
    );
    assert_eq!(config.allow[0].permissions, ["network:read", "filesystem:*", "*"]);
    assert_eq!(config.policy.files, [Path::new("/etc/capd/a.cedar")]);
    assert_eq!(config.limits.msg_size_bytes_max, 2 * 1024 * 1024);
    let rate = config.limits.call_rate_per_peer.unwrap();
    assert_eq!((rate.requests(), rate.period_ms(), rate.burst()), (600, 60_000, 50));
    assert_eq!(config.limits.call_rate, None);
    assert_eq!(config.peer.signatures, Signatures::Channel);
    assert_eq!(config.audit.file.as_deref(), Some(Path::new("/etc/capd/a.db")));
    assert_eq!((config.audit.tenant.as_str(), config.audit.raw_bytes_max), ("acme", 0));
    assert_eq!(config.log.format, LogFormat::Json);
    assert_eq!((config.log.access, config.log.payloads_of.as_deref()), (false, Some("org.example.echo")));
}

#[test]
fn a_flag_beats_the_environment_and_that_beats_the_file() {
    let text = "[quic]\nshared_streams = 1\n[log]\nlevel = \"warn\"\n[timeouts]\ncall_ms = 1\n";
    let environment = env(&[("CAPD_QUIC__SHARED_STREAMS", "2"), ("CAPD_LOG__LEVEL", "error")]);
    let overrides = flags(&[("quic.shared_streams", "3")]);
    let config = Config::layer(Some((Path::new(FILE), text)), &environment, &overrides).unwrap();
    assert_eq!(config.quic.shared_streams, 3);
    assert_eq!(config.log.level, LevelFilter::ERROR);
    assert_eq!(config.timeouts.call_ms, 1);
    let origin = |key: &str| config.effective().iter().find(|e| e.key == key).unwrap().origin.clone();
    assert_eq!(origin("quic.shared_streams"), Origin::Flag("quic.shared_streams".into()));
    assert_eq!(origin("log.level"), Origin::Environment("CAPD_LOG__LEVEL".into()));
    assert_eq!(origin("timeouts.call_ms"), Origin::File { path: FILE.into(), line: 6 });
}

#[test]
fn lists_outside_the_file_are_comma_separated() {
    let environment = env(&[
        ("CAPD_AGENT__DID_DOCUMENTS", "a.json, b.json"),
        (
            "CAPD_PEERS",
            "did:key:z6Mk1@quic://127.0.0.1:1=org.a.*,did:key:z6Mk1@tcp://127.0.0.1:2=org.b.c,did:key:z6Mk2,\
             did:key:z6Mk3=*",
        ),
        ("CAPD_PEER__SERVES", "org.a.*, *"),
    ]);
    let config = Config::layer(None, &environment, &[]).unwrap();
    assert_eq!(config.agent.did_documents, [Path::new("a.json"), Path::new("b.json")]);
    assert_eq!(config.peers.len(), 3);
    assert_eq!((config.peers[0].addresses.len(), config.peers[0].serves.len()), (2, 2));
    assert!(config.peers[1].addresses.is_empty() && config.peers[1].serves.is_empty());
    assert_eq!(
        (&config.peers[2].addresses[..], &config.peers[2].serves[..]),
        (&[][..], &[CapabilityPattern::Any][..])
    );
    assert_eq!(config.peer.serves.len(), 2);
}

#[test]
fn an_unknown_key_is_refused_with_its_line_and_its_section_s_keys() {
    says(
        &refused("[log]\nformat = \"json\"\ncolour = true\n"),
        &["/etc/capd/capd.toml:3:", "log.colour", "unknown key", "log.format, log.level"],
    );
    says(&refused("[lsiten]\n"), &["unknown key; did you mean \"listen\"?; accepted: listen.quic"]);
    says(&refused("log.levle = \"info\""), &["log.levle: unknown key; did you mean \"log.level\"?"]);
    says(&refused("[loggs]\n"), &["capd.toml:1:", "loggs", "unknown key", "log.format"]);
    says(&refused("[[peers]]\ndid = \"did:key:z1\"\n\nport = 3\n"), &["capd.toml:4:", "peers", "\"port\""]);
    says(&refused("peer.signature = \"always\""), &["peer.signature:", "peer.signatures, peer.admit"]);
}

#[test]
fn a_wrong_type_or_range_is_refused_with_what_is_accepted() {
    says(
        &refused("[limits]\n\nmsg_size_bytes_max = 1024\n"),
        &[
            "capd.toml:3:",
            "limits.msg_size_bytes_max",
            "1024 is below 1048576",
            "bytes, an integer from 1048576",
        ],
    );
    says(&refused("[limits]\nlinks_max = \"9\""), &["limits.links_max", "is a text", "a count, an integer"]);
    says(
        &refused("[timeouts]\ncall_ms = -1"),
        &["timeouts.call_ms", "-1", "milliseconds, an integer from 1"],
    );
    says(&refused("[timeouts]\ncall_ms = 1.5"), &["1.5 is a float"]);
    says(&refused("[timeouts]\ncall_ms = 99999999999999999999999"), &["timeouts.call_ms", "from 1 to"]);
    says(&refused("[peer]\nsignatures = \"never\""), &["\"never\"", "\"always\", \"channel\""]);
    says(&refused("[listen]\nquic = \"localhost:1\""), &["listen.quic", "IP:PORT"]);
    says(
        &refused("[limits]\ncall_rate = \"100/week\""),
        &["limits.call_rate", "\"100/week\" is no rate: `period`", "600/1m"],
    );
    says(&refused("[limits]\ncall_rate = 100"), &["100 is an integer", "REQUESTS/PERIOD burst BURST"]);
    says(
        &refused("[listen]\nlocal_tcp = \"0.0.0.0:1\""),
        &["listen.local_tcp", "not on loopback", "127.0.0.0/8"],
    );
    says(&refused("[agent]\nname = \"\""), &["agent.name", "A-Z"]);
    says(&refused("[log]\npayloads_of = \"echo\""), &["log.payloads_of", "\"echo\"", "a capability's name"]);
    says(
        &refused("[otlp]\nendpoint = \"https://h:4318\""),
        &["capd.toml:2:", "otlp.endpoint", "https is not supported", "http://HOST:PORT"],
    );
    for ratio in ["1.01", "-1", "2", "nan", "\"all\""] {
        says(
            &refused(&format!("[otlp]\nsample_ratio = {ratio}")),
            &["capd.toml:2:", "otlp.sample_ratio", "0.0 to 1.0"],
        );
    }
    says(
        &refused("[agent]\ndid_documents = [\n\"a\",\n3]"),
        &["capd.toml:4:", "3 is an integer", "a list of paths"],
    );
    says(
        &refused("[[peers]]\ndid = \"did:key:z1\"\nserves = [\"pay\"]"),
        &["capd.toml:3:", "\"pay\"", "no capability"],
    );
    says(
        &refused("[[peers]]\ndid = \"did:key:z1\"\nserves = \"*\""),
        &["capd.toml:3:", "serves", "is a text"],
    );
    says(&refused("[[peers]]\naddresses = []"), &["capd.toml:1:", "without did"]);
    says(&refused("[[peers]]\ndid = \"key:z\""), &["capd.toml:2:", "not a DID"]);
    for address in
        ["127.0.0.1:1", "quic://h", "quic://h:0", "quic://:1", "http://h:1", "quic://[x]:1", "tcp://a b:1"]
    {
        let text = format!("[[peers]]\ndid = \"did:key:z\"\naddresses = [\n{address:?}]");
        says(&refused(&text), &["capd.toml:4:", "not a peer's address", "quic://HOST:PORT"]);
    }
}

#[test]
fn text_that_is_no_toml_is_refused_with_its_line() {
    says(&refused("[log]\nlevel = \n"), &["capd.toml:2:", "TOML"]);
    says(&refused("[log]\nlevel = \"info\"\nlevel = \"warn\"\n"), &["capd.toml:3:", "duplicate key"]);
}

#[test]
fn an_unknown_variable_or_flag_is_refused_and_known_others_are_left_alone() {
    let environment = env(&[("CAPD_LOGG__LEVEL", "info"), ("CAPD_SOCKET", "/s"), ("CAPD_LOG", "debug")]);
    let mistakes = Config::layer(None, &environment, &flags(&[("log.levels", "x")])).unwrap_err();
    assert_eq!(mistakes.0.len(), 2, "{mistakes}");
    says(
        &mistakes.0[0].to_string(),
        &["environment CAPD_LOGG__LEVEL", "unknown variable", "CAPD_LOG__LEVEL"],
    );
    says(&mistakes.0[1].to_string(), &["flag log.levels", "unknown key", "log.level"]);
    let wrong = Config::layer(None, &env(&[("CAPD_LIMITS__LINKS_MAX", "many")]), &[]).unwrap_err();
    says(
        &wrong.to_string(),
        &["environment CAPD_LIMITS__LINKS_MAX", "limits.links_max", "\"many\"", "a count"],
    );
}

#[test]
fn what_kubernetes_makes_for_a_service_called_capd_is_ignored_and_named() {
    let made = [
        ("CAPD_PORT", "tcp://10.96.0.7:7001"),
        ("CAPD_PORT_7001_TCP", "tcp://10.96.0.7:7001"),
        ("CAPD_PORT_7001_TCP_ADDR", "10.96.0.7"),
        ("CAPD_PORT_7001_TCP_PORT", "7001"),
        ("CAPD_PORT_7001_TCP_PROTO", "tcp"),
        ("CAPD_PORT_7001_UDP", "udp://10.96.0.7:7001"),
        ("CAPD_PORT_7001_UDP_PROTO", "udp"),
        ("CAPD_SERVICE_HOST", "10.96.0.7"),
        ("CAPD_SERVICE_PORT", "7001"),
        ("CAPD_SERVICE_PORT_QUIC_V1", "7001"),
    ];
    let config = Config::layer(None, &env(&made), &[]).unwrap();
    assert_eq!(config.ignored(), made.map(|(name, _)| name.to_owned()));
    assert!(file("").unwrap().ignored().is_empty());
    let others = [
        // As somebody would set a port.
        ("CAPD_PORT", "7001"),
        ("CAPD_PORTS", "tcp://10.96.0.7:7001"),
        ("CAPD_PORT_QUIC_TCP", "tcp://10.96.0.7:7001"),
        ("CAPD_PORT_70001_TCP", "tcp://10.96.0.7:70001"),
        ("CAPD_PORT_7001_TCP_NAME", "quic"),
        ("CAPD_PORT_7001", "tcp://10.96.0.7:7001"),
        ("CAPD_SERVICE_PORT_", "7001"),
        ("CAPD_SERVICE_PORT_quic", "7001"),
        ("CAPD_SERVICE_NAME", "capd"),
        ("CAPD_B_SERVICE_HOST", "10.96.0.8"),
    ];
    for other in others {
        let wrong = Config::layer(None, &env(&[other]), &[]).unwrap_err();
        says(&wrong.to_string(), &[other.0, "unknown variable"]);
    }
}

#[test]
fn a_log_filter_refines_the_level_by_module() {
    let shown = |filter: &str| {
        let variables = env(&[("CAPD_LOG", filter), ("CAPD_LOG__LEVEL", "warn")]);
        let log = Config::layer(None, &variables, &[]).unwrap().log;
        move |target: &str| least_severe(&log, target)
    };
    for (filter, net, other) in [
        ("", Some("warn"), Some("warn")),
        ("capd::net=trace", Some("trace"), Some("warn")),
        ("capd::net=debug,info", Some("debug"), Some("info")),
        (" INFO , capd::net = off ", None, Some("info")),
        ("off", None, None),
    ] {
        let shown = shown(filter);
        assert_eq!((shown("capd::net::driver"), shown("access")), (net, other), "{filter:?}");
    }
    for (filter, problem) in [
        ("debgu", "\"debgu\" is not a level"),
        ("capd::net", "\"capd::net\" is not a level"),
        ("capd::net=loud", "\"loud\" is not a level"),
        ("=debug", "\"\" is not a module"),
        ("capd[span]=debug", "is not a module"),
    ] {
        let wrong = Config::layer(None, &env(&[("CAPD_LOG", filter)]), &[]).unwrap_err();
        says(&wrong.to_string(), &["environment CAPD_LOG", problem, "MODULE=LEVEL"]);
    }
}

/// The least severe level of `target` that is logged.
fn least_severe(log: &Log, target: &str) -> Option<&'static str> {
    use tracing::Level;
    let levels = [
        ("trace", Level::TRACE),
        ("debug", Level::DEBUG),
        ("info", Level::INFO),
        ("warn", Level::WARN),
        ("error", Level::ERROR),
    ];
    levels.into_iter().find(|(_, level)| log.targets.would_enable(target, level)).map(|(name, _)| name)
}

#[test]
fn all_mistakes_are_told_at_once() {
    let mistakes = file("[log]\nlevel = 1\nx = 2\n[quic]\nshared_streams = 0\n").unwrap_err();
    assert_eq!(mistakes.0.len(), 3, "{mistakes}");
    assert_eq!(mistakes.to_string().lines().count(), 3);
}

#[test]
fn admitting_anybody_is_for_loopback_only() {
    let text = "[listen]\nquic = \"127.0.0.1:1\"\ntcp = \"0.0.0.0:1\"\n[peer]\nadmit = \"any\"\n";
    says(&refused(text), &["capd.toml:5:", "peer.admit", "0.0.0.0:1", "loopback"]);
    assert_eq!(file(&text.replace("0.0.0.0", "[::1]")).unwrap().peer.admit, Admit::Any);
}

#[test]
fn keys_that_contradict_each_other_are_refused_at_the_one_that_was_written() {
    says(
        &refused("[timeouts]\nkeep_alive_ms = 60000\n"),
        &["capd.toml:2:", "timeouts.keep_alive_ms", "idle_ms"],
    );
    says(&refused("[timeouts]\nidle_ms = 10000\n"), &["capd.toml:2:", "timeouts.idle_ms", "keep_alive_ms"]);
    says(&refused("[timeouts]\nreconnect_max_ms = 100\n"), &["timeouts.reconnect_max_ms"]);
    says(&refused("[limits]\ncalls_in_flight_per_peer_max = 5000\n"), &["calls_in_flight_max = 4096"]);
    says(
        &refused("[limits]\nqueue_bytes_max = 1048576\n"),
        &["limits.queue_bytes_max", "msg_size_bytes_max"],
    );
    let twice = "[[peers]]\ndid = \"did:key:z1\"\n[[peers]]\ndid = \"did:key:z1\"\n";
    says(&refused(twice), &["peers", "is a duplicate"]);
}

#[test]
fn a_grant_that_is_none_is_refused_at_its_place() {
    let grant = |callers: &str, more: &str| {
        format!("[[allow]]\ncallers = [\n{callers}]\ncapabilities = [\"a.b.c\"]\n{more}\n")
    };
    says(&refused(&grant("\"bob\"", "")), &["capd.toml:3:", "allow", "\"bob\" is not a DID", "group:NAME"]);
    says(&refused(&grant("\"group:\"", "")), &["capd.toml:3:", "not a name"]);
    says(&refused(&grant("", "")), &["capd.toml:1:", "without callers"]);
    says(&refused("[[allow]]\ncallers = [\"*\"]\n"), &["capd.toml:1:", "without capabilities"]);
    says(&refused(&grant("\"*\"", "actions = [\"declare\"]")), &["capd.toml:5:", "\"declare\" is no action"]);
    says(&refused(&grant("\"*\"", "actions = []")), &["without actions"]);
    for permission in ["read", "network:", ":read", "net work:read", "network:read:now", "**"] {
        let text = grant("\"*\"", &format!("permissions = [{permission:?}]"));
        says(&refused(&text), &["capd.toml:5:", permission, "is no permission", "scope:verb"]);
    }
    says(&refused(&grant("\"*\"", "until = 3")), &["capd.toml:5:", "unknown key \"until\""]);
    says(&refused(&grant("\"*\"", "permissions = 3")), &["permissions: 3 is an integer"]);
    says(&refused(&grant("\"group:ops\"", "")), &["allow", "no group \"ops\""]);
    let text = "[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"echo\"]\n";
    says(&refused(text), &["capd.toml:3:", "\"echo\" is no capability"]);
    let twice = "[[groups]]\nname = \"a\"\nmembers = []\n[[groups]]\nname = \"a\"\nmembers = []\n";
    says(&refused(twice), &["groups", "is a duplicate"]);
    says(&refused("[[groups]]\nname = \"a\"\n"), &["a group without members"]);
}

#[test]
fn grants_and_groups_outside_the_file_are_pairs() {
    let environment = env(&[
        ("CAPD_ALLOW", "*=org.example.*, group:near=*"),
        ("CAPD_GROUPS", "near=did:web:a,far=did:web:b,near=did:web:c"),
    ]);
    let config = Config::layer(None, &environment, &[]).unwrap();
    assert_eq!(config.allow.len(), 2);
    assert_eq!((&config.allow[0].callers[..], config.allow[1].permissions.len()), (&[Caller::Anyone][..], 0));
    assert_eq!(config.groups[0].members, ["did:web:a", "did:web:c"]);
    for (name, text, part) in [
        ("CAPD_ALLOW", "*", "is not CALLER=CAPABILITY"),
        ("CAPD_ALLOW", "bob=*", "is not a DID"),
        ("CAPD_GROUPS", "near", "is not NAME=DID"),
    ] {
        says(&Config::layer(None, &env(&[(name, text)]), &[]).unwrap_err().to_string(), &[name, part]);
    }
}

#[test]
fn no_state_directory_to_be_found_is_refused() {
    let mistakes = Config::layer(None, &[], &[]).unwrap_err();
    says(&mistakes.to_string(), &["agent.dir", "HOME"]);
    let config = Config::layer(None, &env(&[("XDG_STATE_HOME", "/s")]), &[]).unwrap();
    assert_eq!(config.agent.dir, Path::new("/s/capd"));
    let config = Config::layer(None, &[], &flags(&[("agent.dir", "d")])).unwrap();
    assert_eq!(config.agent.key_file, Path::new("d/identity.key"));
}

#[test]
fn a_named_file_that_is_missing_or_too_large_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("capd.toml");
    let sources = Sources { file: Some(path.clone()), environment: env(&[]), overrides: Vec::new() };
    says(&Config::load(&sources).unwrap_err().to_string(), &["capd.toml", "cannot be opened"]);
    std::fs::write(&path, "# ".repeat(600_000)).unwrap();
    says(&Config::load(&sources).unwrap_err().to_string(), &["too large", "1048576 bytes"]);
    std::fs::write(&path, "[agent]\nname = \"b\"\n").unwrap();
    assert_eq!(Config::load(&sources).unwrap().agent.name, "b");
}

#[test]
fn the_reference_names_every_key_once_with_unit_default_and_variable() {
    let text = reference();
    for key in KEYS {
        let lines: Vec<&str> =
            text.lines().filter(|l| l.starts_with(&format!("| `{}` |", key.path))).collect();
        assert_eq!(lines.len(), 1, "{}", key.path);
        says(lines[0], &[&key.variable(), &key.kind.accepted(), key.meaning]);
        if let (Kind::Integer { min, max, .. }, Fallback::Integer(number)) = (key.kind, key.default) {
            assert!((min..=max).contains(&number), "{}", key.path);
            says(lines[0], &[&format!("`{number}`")]);
        }
        assert_eq!(lines[0].matches('|').count(), 7, "{}", key.path);
    }
    says(&text, &["CAPD_LISTEN__QUIC", "CAPD_SOCKET"]);
}
