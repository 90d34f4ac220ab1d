//! Holds a registry to what a driver relies on: questions and their answers, watches and their reports. Every engine is run
//! through the same.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capd::fleet::engine::{Engine, Report};
use capd_proto::fleet::engine::{Ask, Change, EngineError, LeaseId, Page, Revision, Told};
use capd_proto::fleet::machine::WatchId;
use capd_proto::fleet::{Agent, Fence, Key, Prefix};
use capd_proto::ledger::JournalId;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::member::{agent, cell, name};

/// Runs an empty registry through everything. `engine` is the way of one agent to it; its watches are polled here.
pub async fn holds(engine: impl Fn(Agent) -> Arc<dyn Engine>) {
    let (ours, others) = (engine(agent(1)), engine(agent(2)));
    fences(&*ours).await;
    let (to, reports) = mpsc::channel(64);
    let reporting = tokio::spawn(Arc::clone(&ours).report(to));
    let mut watching = Watching { engine: Arc::clone(&ours), reports };
    values(&*ours, &*others, &mut watching).await;
    leases(&*ours, &mut watching).await;
    reporting.abort();
}

/// A fence is put only where the one that was read still stands, and nothing is registered under another one.
async fn fences(ours: &dyn Engine) {
    assert_eq!(ours.ask(Ask::ReadFence).await, Ok(Told::Stands(None)));
    let claim = |incarnation, read| ours.ask(Ask::Claim { fence: fence(incarnation), read });
    assert_eq!(claim(1, None).await, Ok(Told::Done));
    assert_eq!(claim(2, None).await, Err(EngineError::Fenced(Some(encoded(1)))));
    let read = stands(ours, 1).await;
    assert_eq!(claim(2, Some(read)).await, Ok(Told::Done));
    assert_eq!(claim(3, Some(read)).await, Err(EngineError::Fenced(Some(encoded(2)))));
    assert!(stands(ours, 2).await > read);
    let fenced = register(ours, 1, 1, b"a").await;
    assert_eq!(fenced, Err(EngineError::Fenced(Some(encoded(2)))));
    assert_eq!(list(ours, None, None, true).await.items, []);
}

/// What is put is listed and reported, in order, and nothing else is.
async fn values(ours: &dyn Engine, others: &dyn Engine, watching: &mut Watching) {
    let empty = list(ours, None, None, true).await;
    assert!(!empty.has_more && empty.count == 0);
    watching.begin(1, empty.revision).await;

    let (lease, first) = register(ours, 2, 1, b"a").await.unwrap();
    assert!(first > empty.revision);
    watching.is_put(1, 1, b"a", first).await;
    assert_eq!(others.ask(Ask::Claim { fence: fence(1), read: None }).await, Ok(Told::Done));
    let (other_lease, _) = register(others, 1, 2, b"b").await.unwrap();
    assert_ne!(lease, other_lease);
    let page = list(ours, None, None, true).await;
    watching.is_put(1, 2, b"b", page.revision).await;

    assert_eq!((page.items.len(), page.count, page.has_more), (2, 2, false));
    let ours_item = page.items.iter().find(|item| item.path == path(1)).unwrap();
    assert_eq!(ours_item.value.as_deref(), Some(&b"a"[..]));
    assert_eq!((ours_item.mark.lease, ours_item.mark.modified), (Some(lease), first));
    let keys = list(ours, None, None, false).await;
    assert!(keys.items.iter().all(|item| item.value.is_none()));
    let marks = |page: &Page| page.items.iter().map(|item| item.mark).collect::<Vec<_>>();
    assert_eq!(marks(&keys), marks(&page), "a mark is the same with the value and without");
    let rest = list(ours, Some(page.items[0].path.clone()), Some(page.revision), true).await;
    assert_eq!(rest.items, page.items[1..]);
    // What was so at an earlier revision can still be read, and what has not come to be cannot.
    assert_eq!(list(ours, None, Some(first), true).await.items.len(), 1);
    let future = Revision(page.revision.0 + 1_000);
    assert_eq!(try_list(ours, None, Some(future), true).await, Err(EngineError::Compacted));

    let replace = |at, puts, gone| {
        let stands = Some((key(1), at));
        Ask::Replace { lease, fence: fence(2), stands, puts, gone }
    };
    // A registry that has lost what it acknowledged has not what we put, or has it as of another revision.
    let other = Revision(first.0 - 1);
    assert_eq!(ours.ask(replace(other, puts(1, b"x"), Vec::new())).await, Err(EngineError::Gone));
    let replaced = ours.ask(replace(first, puts(1, b"c"), Vec::new())).await;
    let Ok(Told::Held { lease: kept, revision }) = replaced else { panic!("values are not replaced") };
    assert_eq!(kept, lease);
    watching.is_put(1, 1, b"c", revision).await;
    // A second watch, from before: it is told everything since.
    watching.begin(2, first).await;
    watching.is_put(2, 2, b"b", page.revision).await;
    watching.is_put(2, 1, b"c", revision).await;
    watching.engine.unwatch(watch(2));
    let gone = ours.ask(replace(revision, Vec::new(), vec![key(1)])).await;
    assert!(matches!(gone, Ok(Told::Held { .. })), "{gone:?}");
    watching.is_gone(1, 1).await;
    let stale = Ask::Replace { lease, fence: fence(1), stands: None, puts: puts(1, b"d"), gone: Vec::new() };
    assert_eq!(ours.ask(stale).await, Err(EngineError::Fenced(Some(encoded(2)))));
    assert_eq!(list(ours, None, None, false).await.count, 1);
}

/// What stands under a lease ends with it; a lease that ended is gone.
async fn leases(ours: &dyn Engine, watching: &mut Watching) {
    let (lease, put) = register(ours, 2, 1, b"e").await.unwrap();
    watching.is_put(1, 1, b"e", put).await;
    assert_eq!(ours.ask(Ask::Renew(lease)).await, Ok(Told::Done));
    assert_eq!(ours.ask(Ask::Withdraw(lease)).await, Ok(Told::Done));
    watching.is_gone(1, 1).await;
    assert_eq!(ours.ask(Ask::Withdraw(lease)).await, Ok(Told::Done), "there is nothing to withdraw");
    assert_eq!(ours.ask(Ask::Renew(lease)).await, Err(EngineError::Gone));
    let late = Ask::Replace { lease, fence: fence(2), stands: None, puts: puts(1, b"f"), gone: Vec::new() };
    assert_eq!(ours.ask(late).await, Err(EngineError::Gone));
    watching.engine.probe();
    let (of, change) = watching.next().await;
    assert!(of == watch(1) && matches!(change, Change::Progress { .. }), "{change:?}");
}

/// The watches of one engine.
struct Watching {
    engine: Arc<dyn Engine>,
    reports: mpsc::Receiver<Report>,
}

impl Watching {
    async fn begin(&mut self, number: u64, after: Revision) {
        self.engine.watch(watch(number), prefix(), after);
        let (of, change) = self.next().await;
        assert!(of == watch(number) && matches!(change, Change::Started { .. }), "{change:?}");
    }

    async fn is_put(&mut self, number: u64, of: u8, value: &[u8], at: Revision) {
        let (reported, change) = self.next().await;
        let Change::Put { revision, item } = change else { panic!("{change:?} instead of a put") };
        assert_eq!((reported, item.path), (watch(number), path(of)));
        assert_eq!((item.value.as_deref(), revision, item.mark.modified), (Some(value), at, at));
    }

    async fn is_gone(&mut self, number: u64, of: u8) {
        let (reported, change) = self.next().await;
        let Change::Delete { path: gone, .. } = change else { panic!("{change:?} instead of a deletion") };
        assert_eq!((reported, gone), (watch(number), path(of)));
    }

    async fn next(&mut self) -> Report {
        timeout(PATIENCE, self.reports.recv()).await.expect("a report in time").expect("reports go on")
    }
}

async fn stands(engine: &dyn Engine, incarnation: u64) -> Revision {
    match engine.ask(Ask::ReadFence).await {
        Ok(Told::Stands(Some((value, revision)))) if value == encoded(incarnation) => revision,
        other => panic!("{other:?} instead of fence {incarnation}"),
    }
}

async fn register(
    engine: &dyn Engine,
    incarnation: u64,
    number: u8,
    value: &[u8],
) -> Result<(LeaseId, Revision), EngineError> {
    let ask = Ask::Register { fence: fence(incarnation), ttl_ms: 60_000, puts: puts(number, value) };
    match engine.ask(ask).await? {
        Told::Held { lease, revision } => Ok((lease, revision)),
        other => panic!("{other:?} instead of a lease"),
    }
}

async fn list(engine: &dyn Engine, after: Option<String>, at: Option<Revision>, values: bool) -> Page {
    try_list(engine, after, at, values).await.unwrap()
}

async fn try_list(
    engine: &dyn Engine,
    after: Option<String>,
    at: Option<Revision>,
    values: bool,
) -> Result<Page, EngineError> {
    match engine.ask(Ask::List { prefix: prefix(), after, at, values }).await? {
        Told::Page(page) => Ok(page),
        other => panic!("{other:?} instead of a page"),
    }
}

fn fence(incarnation: u64) -> Fence {
    Fence { incarnation, journal: JournalId([9; 16]) }
}

fn encoded(incarnation: u64) -> Bytes {
    Bytes::copy_from_slice(&fence(incarnation).encode())
}

fn key(number: u8) -> Key {
    Key::registration(name(), agent(number))
}

fn path(number: u8) -> String {
    key(number).path(&cell())
}

fn puts(number: u8, value: &[u8]) -> Vec<(Key, Bytes)> {
    vec![(key(number), Bytes::copy_from_slice(value))]
}

fn prefix() -> Prefix {
    Prefix::Name(name(), None)
}

fn watch(number: u64) -> WatchId {
    WatchId::numbered(number)
}

const PATIENCE: Duration = Duration::from_secs(30);
