//! Describes each verb: whether it asks a sidecar, examples, and its exit codes.

use super::{Asks, NOT_FOUND, Verb};

/// Every verb, in the order of the help.
pub(super) const VERBS: &[Verb] = &[
    Verb {
        name: "call",
        asks: Asks::Sidecar,
        examples: &[
            "capctl call org.example.upper --params '\"hello\"'",
            "capctl call upper:1.0.0 --params @params.json --timeout 30s",
            "echo '\"hello\"' | capctl call 'upper@>=1.0.0 <2.0.0' --params -",
        ],
        codes: &[
            NOT_FOUND,
            (4, "params (4004, 4904) or result (5901) do not fit the schema; drift (4902, 4903)"),
            (5, "unavailable or out of time: no sidecar, 2xxx, 5002, 5003, 5004"),
            (6, "the call ended with another error result"),
            (130, "interrupted; the call was cancelled"),
        ],
    },
    Verb {
        name: "calls",
        asks: Asks::Sidecar,
        examples: &[
            "capctl calls --state running",
            "capctl calls --capability upper --since 2h",
            "capctl calls 0000019f3c2a41d07f0a6b1c55e2d984",
        ],
        codes: &[(3, "no such call, capability or peer, or refused")],
    },
    Verb {
        name: "top",
        asks: Asks::Sidecar,
        examples: &["capctl top", "capctl top --interval 10s --count 1"],
        codes: &[],
    },
    Verb { name: "metrics", asks: Asks::Sidecar, examples: &["capctl metrics > capd.prom"], codes: &[] },
    Verb {
        name: "audit query",
        asks: Asks::Perhaps,
        examples: &[
            "capctl audit query --since 24h --kind drift",
            "capctl audit query --capability upper --peer billing",
        ],
        codes: &[NOT_FOUND, (4, "the audit log cannot be read: it is damaged")],
    },
    Verb {
        name: "audit verify",
        asks: Asks::Perhaps,
        examples: &["capctl audit verify", "capctl audit verify --file audit.db"],
        codes: &[(4, "the chain is broken")],
    },
    Verb {
        name: "audit export",
        asks: Asks::Perhaps,
        examples: &["capctl audit export --output audit.jsonl"],
        codes: &[(4, "the audit log cannot be read: it is damaged")],
    },
    Verb {
        name: "audit prune",
        asks: Asks::Perhaps,
        examples: &["capctl audit prune --older-than 90d"],
        codes: &[(4, "the audit log cannot be read: it is damaged")],
    },
    Verb {
        name: "ls",
        asks: Asks::Sidecar,
        examples: &[
            "capctl ls",
            "capctl ls org.example.upper",
            "capctl ls 'org.example.*' --limit 20",
            "capctl ls --peers",
        ],
        codes: &[NOT_FOUND],
    },
    Verb {
        name: "doctor",
        asks: Asks::Sidecar,
        examples: &["capctl doctor", "capctl doctor --config capd.toml"],
        codes: &[
            (0, "nothing failed; a warning is no failure"),
            (2, "a mistake in the files"),
            (3, "what a provider declares cannot be read (4905), or another refusal"),
            (
                4,
                "a provider has drifted from what the agent requires (4902), or that cannot be proven (4903)",
            ),
            (5, "the sidecar, a peer or a required provider is not there; the journal cannot be written"),
        ],
    },
    Verb {
        name: "describe",
        asks: Asks::Sidecar,
        examples: &["capctl describe org.example.upper", "capctl describe upper:1.0.0 --json"],
        codes: &[NOT_FOUND],
    },
    Verb {
        name: "serve",
        asks: Asks::Sidecar,
        examples: &[
            "capctl serve org.example.upper:1.0.0 --idempotent -- tr a-z A-Z",
            "capctl serve org.example.sum:1.0.0 --input-schema input.json -- python3 sum.py",
        ],
        codes: &[(0, "ended by Ctrl-C or SIGTERM"), (5, "no sidecar answers, or it stopped")],
    },
    Verb {
        name: "cancel",
        asks: Asks::Sidecar,
        examples: &["capctl cancel 0000019f3c2a41d07f0a6b1c55e2d984"],
        codes: &[(3, "this agent has made no such call, or refused")],
    },
    Verb {
        name: "ping",
        asks: Asks::Sidecar,
        examples: &["capctl ping", "capctl ping billing --count 3"],
        codes: &[(3, "no such peer, or refused"), (5, "no sidecar or peer answers in time")],
    },
    Verb {
        name: "bench",
        asks: Asks::Sidecar,
        examples: &[
            "capctl bench org.example.upper --params '\"hello\"'",
            "capctl bench upper --params '\"hello\"' --rate 500 --duration 30s",
        ],
        codes: &[
            NOT_FOUND,
            (4, "the first call: params or result do not fit, or drift"),
            (5, "the first call: unavailable or out of time; or the sidecar went away"),
            (6, "the first call ended with another error result"),
            (130, "interrupted; what was measured is printed"),
        ],
    },
    Verb { name: "id", asks: Asks::Sidecar, examples: &["capctl id"], codes: &[] },
    Verb {
        name: "diff",
        asks: Asks::Perhaps,
        examples: &[
            "capctl diff old/capabilities.yaml#upper capabilities.yaml#upper",
            "capctl diff capabilities.yaml#upper billing/org.example.upper:1.0.0",
        ],
        codes: &[(0, "compared, whatever the verdict is"), NOT_FOUND],
    },
    Verb {
        name: "check",
        asks: Asks::Perhaps,
        examples: &[
            "capctl check old/capabilities.yaml capabilities.yaml",
            "capctl check old.yaml callers/shop.yaml capabilities.yaml --format github",
        ],
        codes: &[(0, "no caller breaks"), NOT_FOUND, (4, "a caller breaks, or that is not decided")],
    },
    Verb {
        name: "matrix",
        asks: Asks::Perhaps,
        examples: &[
            "capctl matrix org.example.upper",
            "capctl matrix callers/shop.yaml capabilities.yaml#upper",
        ],
        codes: &[(0, "drawn, whatever the verdicts are"), NOT_FOUND],
    },
    Verb {
        name: "decode",
        asks: Asks::Nobody,
        examples: &["capctl decode --hex 0000000303abcd", "capctl decode captured.bin --envelope"],
        codes: &[(3, "the protocol refuses some of the bytes")],
    },
    Verb {
        name: "gen",
        asks: Asks::Perhaps,
        examples: &[
            "capctl gen --lang python --capabilities capabilities.yaml",
            "capctl gen --lang typescript --peer billing --out src/generated",
            "capctl gen --lang go --capabilities capabilities.yaml --check",
        ],
        codes: &[(1, "with --check: a file would change; or something unexpected"), NOT_FOUND],
    },
    Verb {
        name: "cddl check",
        asks: Asks::Nobody,
        examples: &["capctl cddl check --cddl point.cddl point.cbor"],
        codes: &[(3, "at least one file does not match")],
    },
    Verb { name: "hash", asks: Asks::Nobody, examples: &["capctl hash capabilities.yaml"], codes: &[] },
    Verb {
        name: "subtype",
        asks: Asks::Nobody,
        examples: &["capctl subtype old.json new.json", "capctl subtype --pairs pairs.jsonl"],
        codes: &[(0, "proven; with --pairs: every line was decided on"), (4, "refuted"), (7, "not decided")],
    },
    Verb {
        name: "policy show",
        asks: Asks::Nobody,
        examples: &["capctl policy show --config capd.toml"],
        codes: &[],
    },
    Verb {
        name: "policy check",
        asks: Asks::Nobody,
        examples: &["capctl policy check --config capd.toml"],
        codes: &[],
    },
    Verb {
        name: "policy test",
        asks: Asks::Nobody,
        examples: &["capctl policy test cases.toml --config capd.toml"],
        codes: &[(4, "a decision differs from what its case expects")],
    },
    Verb {
        name: "policy why",
        asks: Asks::Sidecar,
        examples: &["capctl policy why billing org.example.upper"],
        codes: &[(0, "explained, whatever the decision is"), NOT_FOUND],
    },
    Verb {
        name: "policy grant",
        asks: Asks::Sidecar,
        examples: &[
            "capctl policy grant billing org.example.upper",
            "capctl policy grant billing 'org.example.*' --permission db:read",
        ],
        codes: &[
            (0, "granted; a sidecar that does not run reads it when it starts"),
            (1, "written, but another change of the file needs a restart"),
            NOT_FOUND,
        ],
    },
    Verb {
        name: "policy revoke",
        asks: Asks::Sidecar,
        examples: &["capctl policy revoke billing org.example.upper"],
        codes: &[
            (0, "revoked; a sidecar that does not run reads it when it starts"),
            (1, "written, but another change of the file needs a restart"),
            (3, "another rule still allows the call; no such capability or peer; or refused"),
        ],
    },
    Verb {
        name: "policy reload",
        asks: Asks::Sidecar,
        examples: &["capctl policy reload"],
        codes: &[(3, "a mistake in the files, or a change that needs a restart; nothing is changed")],
    },
    Verb {
        name: "reload",
        asks: Asks::Sidecar,
        examples: &["capctl reload"],
        codes: &[
            (1, "a change needs a restart; nothing is changed"),
            (2, "a mistake in the files; nothing is changed"),
        ],
    },
    Verb {
        name: "config diff",
        asks: Asks::Sidecar,
        examples: &["capctl config diff"],
        codes: &[(0, "compared, whatever would change"), (2, "a mistake in the files")],
    },
    Verb {
        name: "drain",
        asks: Asks::Sidecar,
        examples: &["capctl drain --timeout 2m", "capctl drain --retire"],
        codes: &[
            (0, "nothing is in flight; with --retire, nothing is remembered that a caller may ask for"),
            (5, "calls are still in flight or remembered; or no sidecar answers"),
        ],
    },
    Verb { name: "backup", asks: Asks::Sidecar, examples: &["capctl backup agent.backup"], codes: &[] },
    Verb {
        name: "restore",
        asks: Asks::Nobody,
        examples: &["capctl restore agent.backup --config capd.toml"],
        codes: &[(3, "a sidecar runs with this state, or there is one already")],
    },
    Verb { name: "fleet init", asks: Asks::Nobody, examples: &["capctl fleet init --cell prod"], codes: &[] },
    Verb {
        name: "fleet admit",
        asks: Asks::Nobody,
        examples: &[
            "capctl fleet admit did:key:z6MkgdVE8znf5WwkgBq96qJLg2i2JzTBQZ9LsvzgBWKdi6vi --cell prod --serves 'org.example.*'",
        ],
        codes: &[],
    },
    Verb {
        name: "fleet revoke",
        asks: Asks::Nobody,
        examples: &[
            "capctl fleet revoke did:key:z6MkgdVE8znf5WwkgBq96qJLg2i2JzTBQZ9LsvzgBWKdi6vi --cell prod",
        ],
        codes: &[],
    },
    Verb {
        name: "fleet ls",
        asks: Asks::Sidecar,
        examples: &["capctl fleet ls"],
        codes: &[
            (2, "usage: the command line; or the sidecar is in no fleet"),
            (5, "no sidecar or registry answers"),
        ],
    },
    Verb {
        name: "fleet why",
        asks: Asks::Sidecar,
        examples: &["capctl fleet why org.example.upper"],
        codes: &[(2, "usage: the command line; or the sidecar is in no fleet")],
    },
    Verb {
        name: "fleet doctor",
        asks: Asks::Sidecar,
        examples: &["capctl fleet doctor"],
        codes: &[
            (0, "nothing failed; a warning is no failure"),
            (2, "usage: the command line; or the sidecar is in no fleet"),
            (5, "no sidecar or registry answers"),
        ],
    },
    Verb { name: "context ls", asks: Asks::Nobody, examples: &["capctl context ls"], codes: &[] },
    Verb { name: "context show", asks: Asks::Chooses, examples: &["capctl context show"], codes: &[] },
    Verb { name: "context use", asks: Asks::Nobody, examples: &["capctl context use laptop"], codes: &[] },
    Verb {
        name: "context set",
        asks: Asks::Chooses,
        examples: &[
            "capctl context set laptop --socket /run/user/1000/capd/capd.sock",
            "capctl context set container --address 127.0.0.1:7003 --token-file token",
        ],
        codes: &[],
    },
    Verb {
        name: "completion",
        asks: Asks::Nobody,
        examples: &["capctl completion bash > ~/.local/share/bash-completion/completions/capctl"],
        codes: &[],
    },
    Verb { name: "man", asks: Asks::Nobody, examples: &["capctl man", "capctl man --out man"], codes: &[] },
];
