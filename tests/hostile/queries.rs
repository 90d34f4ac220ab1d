//! Floods of queries with cursors, good and forged, in; pages and 4001, and nothing kept for any of them, out.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::JoinHandle;

use ciborium::{Value, cbor};

use crate::field::{CAP_DECLARE, CAP_QUERY, ERROR, Field};
use crate::peer::{RawLink, Transport};
use crate::support::{BytePeer, Message, PATIENCE, field as field_of, map, set};

/// Versions of the capability that is asked for.
const SERVED: usize = 500;
/// Queries sent before the answers are read.
const BATCH: usize = 8;
/// Rounds of each link before honest peers have their turn; more follow until they had it.
const AT_FIRST: usize = 5;

/// Peers that ask until they are dropped.
struct Flood {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Flood {
    fn begin(field: &Field) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let rounds = Arc::new(AtomicUsize::new(0));
        let links = (0..2).flat_map(|_| Transport::PEER).map(|kind| RawLink::open(&field.sidecar, kind));
        let threads: Vec<_> = links
            .map(|link| {
                let (stop, rounds) = (Arc::clone(&stop), Arc::clone(&rounds));
                std::thread::spawn(move || ask(link, &stop, &rounds))
            })
            .collect();
        let flood = Self { stop, threads };
        let begin = std::time::Instant::now();
        while rounds.load(Ordering::Relaxed) < AT_FIRST * flood.threads.len() {
            assert!(begin.elapsed() < PATIENCE, "{} rounds of queries", rounds.load(Ordering::Relaxed));
            assert!(flood.threads.iter().all(|thread| !thread.is_finished()), "a link of the flood broke");
            std::thread::yield_now();
        }
        flood
    }
}

impl Drop for Flood {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ends: Vec<_> = self.threads.drain(..).map(JoinHandle::join).collect();
        if !std::thread::panicking() {
            ends.into_iter().for_each(|end| end.expect("the flood was answered as it should be"));
        }
    }
}

fn question(limit: usize, cursor: Option<&Value>) -> Value {
    let mut question =
        cbor!({ "filter" => { "capability" => "org.example.many" }, "limit" => limit }).unwrap();
    if let Some(cursor) = cursor {
        set(&mut question, "cursor", cursor.clone());
    }
    question
}

fn cursor(page: &Message) -> Value {
    assert_eq!(page.typ(), CAP_DECLARE, "{page:?}");
    field_of(page.body(), "next_cursor").cloned().unwrap_or_else(|| panic!("no cursor: {page:?}"))
}

/// First pages, next pages and forged cursors, over and over.
fn ask(mut link: RawLink, stop: &AtomicBool, rounds: &AtomicUsize) {
    while !stop.load(Ordering::Relaxed) {
        let first = link.ask(CAP_QUERY, question(10, None));
        let good = cursor(&first);
        let mut forged = good.as_text().unwrap().as_bytes().to_vec();
        let middle = forged.len() / 2;
        forged[middle] = if forged[middle] == b'A' { b'B' } else { b'A' };
        let forged = Value::from(String::from_utf8(forged).unwrap());
        let good_ids: Vec<_> = (0..BATCH).map(|_| link.send(CAP_QUERY, question(100, None))).collect();
        for id in &good_ids {
            cursor(&link.reply(id));
        }
        let next_ids: Vec<_> = (0..BATCH).map(|_| link.send(CAP_QUERY, question(10, Some(&good)))).collect();
        for id in &next_ids {
            cursor(&link.reply(id));
        }
        let forged_ids: Vec<_> =
            (0..BATCH).map(|_| link.send(CAP_QUERY, question(10, Some(&forged)))).collect();
        for id in &forged_ids {
            let refusal = link.reply(id);
            assert_eq!((refusal.typ(), refusal.code()), (ERROR, Some(4001)), "{refusal:?}");
        }
        rounds.fetch_add(1, Ordering::Relaxed);
    }
}

#[test]
fn floods_of_queries_are_answered_page_by_page_and_keep_nothing() {
    let mut field = Field::start();
    let mut agent = BytePeer::open(&field.sidecar.socket);
    let descriptors = (0..SERVED).map(|minor| map([("id", format!("org.example.many:1.{minor}.0").into())]));
    agent.send(CAP_DECLARE, map([("capabilities", Value::Array(descriptors.collect()))]));
    assert!(agent.ping().is_empty(), "the declaration is refused");
    field.withstands("floods of queries", Flood::begin);
}
