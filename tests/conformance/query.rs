//! PROTOCOL 7.1: queries that have no answer in, 4001, 4002 or 4003 out; and pages that neither skip nor repeat.

use ciborium::{Value, cbor};

use crate::fixture::{CAP_DECLARE, CAP_QUERY, declare, ids, loose, served};
use crate::peer::{RawLink, Transport};
use crate::support::{Message, Sidecar, field, set};

const KINDS: [Transport; 3] = [Transport::Unix, Transport::Tcp, Transport::Quic];

fn query(name: &str) -> Value {
    cbor!({ "filter" => { "capability" => name } }).unwrap()
}

fn catalogue() -> (Sidecar, RawLink) {
    let mut all: Vec<_> = (0..12).map(|minor| loose(&format!("com.example.many:1.{minor}.0"))).collect();
    all.push(loose("com.example.other:1.0.0"));
    all.push(loose("com.example.deep.one:1.0.0"));
    all.push(loose("org.example.far:1.0.0"));
    served(all)
}

fn cursor(page: &Message) -> Option<Value> {
    assert_eq!(page.typ(), CAP_DECLARE, "{page:?}");
    field(page.body(), "next_cursor").cloned()
}

/// Every page of a question, and the cursors between them.
fn pages(link: &mut RawLink, mut question: Value) -> (Vec<Vec<String>>, Vec<Value>) {
    let (mut pages, mut cursors) = (Vec::new(), Vec::new());
    loop {
        let page = link.ask(CAP_QUERY, question.clone());
        pages.push(ids(&page).into_iter().map(str::to_owned).collect());
        let Some(next) = cursor(&page) else { return (pages, cursors) };
        cursors.push(next.clone());
        set(&mut question, "cursor", next);
    }
}

#[test]
fn a_filter_without_a_name_is_4001() {
    let (sidecar, _agent) = catalogue();
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        for filter in
            [cbor!({}), cbor!({ "version" => "1.0.0" }), cbor!({ "capabilities" => "com.example.many" })]
        {
            let refusal = link.refused(CAP_QUERY, cbor!({ "filter" => filter.unwrap() }).unwrap());
            assert_eq!(refusal.code, 4001, "{transport:?}: {refusal:?}");
        }
    }
}

#[test]
fn an_unknown_name_is_4002_and_never_an_empty_declare() {
    let (sidecar, _agent) = catalogue();
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        for name in [
            "com.example.none",
            "com.example.MANY",
            "com.example.many.x",
            "net.*",
            "com.example.many.*",
            "com.exam.*",
        ] {
            let refusal = link.refused(CAP_QUERY, query(name));
            assert_eq!(refusal.code, 4002, "{transport:?}: {name}: {refusal:?}");
        }
    }
}

#[test]
fn a_sidecar_that_serves_nothing_answers_4002() {
    let sidecar = Sidecar::start();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        for name in ["*", "com.*", "com.example.many"] {
            assert_eq!(link.refused(CAP_QUERY, query(name)).code, 4002, "{transport:?}: {name}");
        }
    }
}

#[test]
fn a_name_without_a_version_in_range_is_4003_with_what_there_is() {
    let (sidecar, _agent) =
        served(["com.example.a:2.0.0", "com.example.a:10.0.0", "com.example.a:1.0.0"].map(loose).to_vec());
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        let question = cbor!({ "filter" => { "capability" => "com.example.a", "version" => ">=11.0.0" } });
        let refusal = link.refused(CAP_QUERY, question.unwrap());
        assert_eq!(refusal.code, 4003, "{transport:?}: {refusal:?}");
        assert_eq!(refusal.available(), ["10.0.0", "2.0.0", "1.0.0"], "{transport:?}");
    }
}

#[test]
fn the_old_alias_is_read_and_capability_wins() {
    let (sidecar, _agent) = catalogue();
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        let alias = link.ask(CAP_QUERY, cbor!({ "filter" => { "type" => "com.example.other" } }).unwrap());
        assert_eq!(ids(&alias), ["com.example.other:1.0.0"], "{transport:?}");
        let both =
            cbor!({ "filter" => { "type" => "com.example.none", "capability" => "com.example.other" } });
        assert_eq!(ids(&link.ask(CAP_QUERY, both.unwrap())), ["com.example.other:1.0.0"], "{transport:?}");
        let both =
            cbor!({ "filter" => { "type" => "com.example.other", "capability" => "com.example.none" } });
        assert_eq!(link.refused(CAP_QUERY, both.unwrap()).code, 4002, "{transport:?}");
    }
}

#[test]
fn names_ascend_and_versions_go_as_asked() {
    let of_many = |minors: [u32; 3]| minors.map(|minor| format!("com.example.many:1.{minor}.0"));
    let (sidecar, _agent) = catalogue();
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        let newest = link.ask(CAP_QUERY, query("com.example.many"));
        assert_eq!(ids(&newest)[..3], of_many([11, 10, 9]), "{transport:?}");
        let mut oldest = query("com.example.many");
        set(&mut oldest, "order", "oldest-first".into());
        assert_eq!(ids(&link.ask(CAP_QUERY, oldest))[..3], of_many([0, 1, 2]), "{transport:?}");
        let listed = link.ask(CAP_QUERY, query("com.example.*"));
        let listed = ids(&listed);
        assert_eq!(listed.len(), 14, "{transport:?}");
        assert_eq!(
            (listed[0], listed[13]),
            ("com.example.deep.one:1.0.0", "com.example.other:1.0.0"),
            "{transport:?}"
        );
        assert_eq!(ids(&link.ask(CAP_QUERY, query("*"))).len(), 15, "{transport:?}");
    }
}

#[test]
fn pages_neither_skip_nor_repeat() {
    let (sidecar, _agent) = catalogue();
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        for order in ["newest-first", "oldest-first"] {
            let mut question = query("*");
            set(&mut question, "order", order.into());
            let whole = pages(&mut link, question.clone()).0.concat();
            for limit in [1, 2, 7, 14, 15, 16] {
                set(&mut question, "limit", limit.into());
                let (pages, cursors) = pages(&mut link, question.clone());
                assert_eq!(pages.concat(), whole, "{transport:?}: {order}, {limit}");
                assert_eq!(cursors.len(), pages.len() - 1, "{transport:?}: {order}, {limit}");
                let full = &pages[..pages.len() - 1];
                assert!(
                    full.iter().all(|page| page.len() == limit as usize),
                    "{transport:?}: {order}, {limit}"
                );
            }
        }
    }
}

#[test]
fn the_limit_is_100_by_default_at_least_1_and_capped_at_1000() {
    let (sidecar, _agent) =
        served((0..1_005).map(|minor| loose(&format!("com.example.many:1.{minor}.0"))).collect());
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        let question = |limit: u64| {
            let mut question = query("com.example.many");
            set(&mut question, "limit", limit.into());
            question
        };
        assert_eq!(ids(&link.ask(CAP_QUERY, query("com.example.many"))).len(), 100, "{transport:?}");
        for limit in [1_000, 1_001, u64::MAX] {
            let page = link.ask(CAP_QUERY, question(limit));
            assert_eq!(ids(&page).len(), 1_000, "{transport:?}: {limit}");
            assert!(cursor(&page).is_some(), "{transport:?}: {limit}");
        }
        assert_eq!(link.refused(CAP_QUERY, question(0)).code, 4001, "{transport:?}");
    }
}

#[test]
fn a_broken_cursor_is_4001() {
    let (sidecar, _agent) = catalogue();
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        let mut question = query("com.example.many");
        set(&mut question, "limit", 5.into());
        let good = cursor(&link.ask(CAP_QUERY, question.clone())).unwrap();
        let good = good.as_text().unwrap();
        let mut flipped = good.as_bytes().to_vec();
        flipped[good.len() / 2] ^= 1;
        let broken = [
            String::new(),
            "5".to_owned(),
            "!!!".to_owned(),
            good[..good.len() - 1].to_owned(),
            format!("{good}A"),
            String::from_utf8(flipped).unwrap(),
            "A".repeat(100_000),
        ];
        for cursor in broken {
            set(&mut question, "cursor", cursor.as_str().into());
            let refusal = link.refused(CAP_QUERY, question.clone());
            assert_eq!(refusal.code, 4001, "{transport:?}: {refusal:?}");
        }
        set(&mut question, "cursor", good.into());
        assert_eq!(ids(&link.ask(CAP_QUERY, question)).len(), 5, "{transport:?}: the good one still holds");
    }
}

#[test]
fn a_cursor_of_another_question_is_4001() {
    let (sidecar, _agent) = catalogue();
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        let mut question = query("com.example.many");
        set(&mut question, "limit", 5.into());
        let cursor = cursor(&link.ask(CAP_QUERY, question)).unwrap();
        let others = [
            cbor!({ "filter" => { "capability" => "com.example.*" }, "cursor" => cursor }),
            cbor!({ "filter" => { "capability" => "com.example.many", "version" => ">=1.0.0" }, "cursor" => cursor }),
            cbor!({ "filter" => { "capability" => "com.example.many" }, "order" => "oldest-first", "cursor" => cursor }),
        ];
        for other in others {
            let refusal = link.refused(CAP_QUERY, other.unwrap());
            assert_eq!(refusal.code, 4001, "{transport:?}: {refusal:?}");
        }
    }
}

#[test]
fn a_cursor_borrowed_from_another_agent_is_4001() {
    let (sidecar, _agent) = catalogue();
    for lender in KINDS {
        let mut lending = RawLink::open(&sidecar, lender);
        let mut question = query("com.example.many");
        set(&mut question, "limit", 5.into());
        let lent = cursor(&lending.ask(CAP_QUERY, question.clone())).unwrap();
        set(&mut question, "cursor", lent);
        for borrower in KINDS {
            let mut borrowing = RawLink::open(&sidecar, borrower);
            if lender.is_local() && borrower.is_local() {
                // Every local link is the same agent's.
                assert_eq!(ids(&borrowing.ask(CAP_QUERY, question.clone())).len(), 5);
                continue;
            }
            let refusal = borrowing.refused(CAP_QUERY, question.clone());
            assert_eq!(refusal.code, 4001, "{lender:?} to {borrower:?}: {refusal:?}");
        }
    }
}

#[test]
fn a_cursor_into_another_snapshot_is_4001() {
    let (sidecar, mut agent) = catalogue();
    for transport in KINDS {
        let mut link = RawLink::open(&sidecar, transport);
        let mut question = query("com.example.many");
        set(&mut question, "limit", 5.into());
        let stale = cursor(&link.ask(CAP_QUERY, question.clone())).unwrap();
        let version = format!("com.example.many:2.{}.0", transport as u8);
        declare(
            &mut agent,
            (0..9)
                .map(|minor| loose(&format!("com.example.many:1.{minor}.0")))
                .chain([loose(&version)])
                .collect(),
        );
        let mut old = question.clone();
        set(&mut old, "cursor", stale);
        let refusal = link.refused(CAP_QUERY, old);
        assert_eq!(refusal.code, 4001, "{transport:?}: {refusal:?}");
        assert_eq!(ids(&link.ask(CAP_QUERY, question))[0], version, "{transport:?}");
    }
}
