//! Messages that take long to check, to open or to sign in; that all of it is done on the compute pool, while the links'
//! thread answers whoever else asks, out.
//!
//! The sidecar runs in the test's own process, and the test is its pool: work that comes to the pool is held back until the
//! test has seen to it that PINGs and small calls are answered meanwhile. Work that did not come there would be waited for in
//! vain.

use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use capd::config::Config;
use capd::daemon::Daemon;
use capd::net::{Seed, Spawn, System, Task, Tasks, Work};
use capd::store::Folder;
use ciborium::Value;
use tokio_util::sync::CancellationToken;

use crate::agents::{
    CAP_INVOKE, CAP_RESULT, Caller, ERROR, PROCESSING, Provider, by_id, loose, success, with_schema,
};
use crate::peer::Peer;
use crate::support::{ALLOW_ALL, PATIENCE, field, map};

const ECHO: &str = "org.example.echo:1.0.0";
const LARGE: &str = "org.example.large:1.0.0";

/// A pool that does nothing while it is shut.
#[derive(Default)]
struct Pool {
    state: Mutex<State>,
    came: Condvar,
}

#[derive(Default)]
struct State {
    is_shut: bool,
    held: Vec<Work>,
}

impl Spawn for Pool {
    fn spawn(&self, task: Task) {
        drop(tokio::spawn(task));
    }

    fn compute(&self, work: Work) {
        let mut state = self.state();
        if state.is_shut {
            state.held.push(work);
            self.came.notify_all();
        } else {
            drop(state);
            work();
        }
    }
}

impl Pool {
    /// Also where a test has failed while it waited.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn shut(&self) {
        self.state().is_shut = true;
    }

    /// Waits until work has come.
    #[track_caller]
    fn holds(&self, count: usize) {
        let state = self.state();
        let few = |state: &mut State| state.held.len() < count;
        let (state, waited) = self.came.wait_timeout_while(state, PATIENCE, few).unwrap();
        assert!(!waited.timed_out(), "{} pieces of work came to the pool", state.held.len());
        assert_eq!(state.held.len(), count);
    }

    /// Does the last piece of what is held.
    fn work_last(&self) {
        let last = self.state().held.pop();
        last.unwrap()();
    }

    /// Does what is held, and stays shut.
    fn work(&self) {
        let held = std::mem::take(&mut self.state().held);
        held.into_iter().for_each(|work| work());
    }
}

/// A sidecar whose compute pool is the test's.
struct Apart {
    pool: Arc<Pool>,
    did: String,
    quic: std::net::SocketAddr,
    socket: PathBuf,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
    _dir: tempfile::TempDir,
}

impl Apart {
    fn start(peer: Option<&Peer>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().to_owned();
        let environment = [("HOME".to_owned(), home.display().to_string())];
        let socket = home.join("capd.sock");
        let mut text = format!(
            "[agent]\ndir = {home:?}\n[listen]\nquic = \"127.0.0.1:0\"\nunix = {socket:?}\n[peer]\n\
             admit = \"any\"\nserves = [\"*\"]\n[audit]\nfile = \"off\"\n"
        );
        if let Some(peer) = peer {
            let (did, address) = (peer.did(), peer.address());
            text += &format!("[[peers]]\ndid = {did:?}\naddresses = [{address:?}]\nserves = [\"*\"]\n");
        }
        text += ALLOW_ALL;
        let config = Config::layer(Some((&home.join("capd.toml"), &text)), &environment, &[]).unwrap();
        let pool = Arc::new(Pool::default());
        let tasks = Tasks::run_by(pool.clone());
        let (sender, started) = std::sync::mpsc::sync_channel(1);
        let stop = CancellationToken::new();
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let system = System { tasks, ..System::real() };
                let journal = Folder::new(&home);
                let seed = Seed::random().unwrap();
                let daemon = Daemon::start_on(system, config, &seed, None, &journal).await.unwrap();
                sender.send(daemon.announcement()).unwrap();
                stopped.cancelled().await;
                daemon.shutdown().await;
            });
        });
        let announced: serde_json::Value =
            serde_json::from_str(&started.recv_timeout(PATIENCE).unwrap()).unwrap();
        Self {
            pool,
            did: announced["did"].as_str().unwrap().to_owned(),
            quic: announced["quic"].as_str().unwrap().parse().unwrap(),
            socket,
            stop,
            thread: Some(thread),
            _dir: dir,
        }
    }
}

impl Drop for Apart {
    fn drop(&mut self) {
        // A call that ended with its test may have left work behind.
        self.pool.state().is_shut = false;
        self.pool.work();
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say: a panic there has said so.
            let _panicked = thread.join();
        }
    }
}

/// Large enough to leave the links' thread.
fn large() -> Value {
    Value::Bytes(vec![7; 256 * 1024])
}

fn params(call: &crate::support::Message) -> &Value {
    field(call.body(), "params").unwrap()
}

/// The links answer, and so do small calls of an agent's to another.
#[track_caller]
fn goes_on(caller: &mut Caller, provider: &mut Provider) {
    caller.link.ping();
    let id = caller.invoke(by_id(ECHO, 1.into()));
    provider.echo();
    assert_eq!(success(&caller.result(&id)), &Value::from(1));
}

#[test]
fn payloads_are_checked_on_the_pool() {
    let b = Apart::start(None);
    let schema = r#"{"type":"array","items":{"type":"string"}}"#;
    let elements = Value::Array((0..20_000).map(|at| Value::from(format!("element {at}"))).collect());
    let taken = with_schema(LARGE, "input_schema", schema);
    let given = with_schema("org.example.given:1.0.0", "output_schema", schema);
    let mut provider = Provider::at(&b.socket, vec![taken, given, loose(ECHO)]);
    let mut caller = Caller::at(&b.socket);
    b.pool.shut();
    let id = caller.invoke(by_id(LARGE, elements.clone()));
    b.pool.holds(1);
    goes_on(&mut caller, &mut provider);
    b.pool.work();
    let call = provider.taken();
    assert!(params(&call) == &elements);
    provider.succeed(&call, Value::Null);
    caller.result(&id);

    let id = caller.invoke(by_id("org.example.given:1.0.0", Value::Null));
    let call = provider.taken();
    provider.succeed(&call, elements.clone());
    b.pool.holds(1);
    goes_on(&mut caller, &mut provider);
    b.pool.work();
    assert!(success(&caller.result(&id)) == &elements);
}

#[test]
fn a_schema_is_compiled_on_the_pool() {
    let schema = r#"{"type":"integer"}"#;
    let peer = Peer::serving(vec![with_schema(LARGE, "input_schema", schema)]).document(schema);
    let a = Apart::start(Some(&peer));
    let mut caller = Caller::at(&a.socket);
    a.pool.shut();
    // It is small, and so is what is checked; nobody has compiled it so far.
    let id = caller.invoke(by_id(LARGE, 1.into()));
    a.pool.holds(1);
    caller.link.ping();
    a.pool.work();
    peer.succeed(&peer.heard_type(CAP_INVOKE), Value::Null);
    caller.result(&id);
}

#[test]
fn calls_to_peers_are_signed_and_their_results_verified_on_the_pool() {
    let peer = Peer::serving(vec![loose(LARGE), loose("org.example.far:1.0.0")]);
    let a = Apart::start(Some(&peer));
    let mut provider = Provider::at(&a.socket, vec![loose(ECHO)]);
    let mut caller = Caller::at(&a.socket);
    let first = caller.invoke(by_id(LARGE, Value::Null));
    peer.succeed(&peer.heard_type(CAP_INVOKE), Value::Null);
    caller.result(&first);
    a.pool.shut();
    let id = caller.invoke(by_id(LARGE, large()));
    // To sign it.
    a.pool.holds(1);
    goes_on(&mut caller, &mut provider);
    let small = caller.invoke(by_id("org.example.far:1.0.0", Value::Null));
    let heard = peer.heard_type(CAP_INVOKE);
    assert_eq!(heard.message.id(), small, "a small call to the same peer leaves meanwhile");
    peer.succeed(&heard, Value::Null);
    caller.result(&small);
    a.pool.work();
    let heard = peer.heard_type(CAP_INVOKE);
    assert!(heard.message.id() == id && params(&heard.message) == &large());
    peer.succeed(&heard, large());
    // To decode it, and to verify its signature.
    a.pool.holds(1);
    goes_on(&mut caller, &mut provider);
    a.pool.work();
    assert!(success(&caller.result(&id)) == &large());
}

#[test]
fn calls_of_peers_are_verified_and_their_results_signed_on_the_pool() {
    let b = Apart::start(None);
    let peer = Peer::serving(vec![]);
    let mut provider = Provider::at(&b.socket, vec![loose(LARGE), loose(ECHO)]);
    let mut caller = Caller::at(&b.socket);
    let link = peer.connect_to(b.quic);
    b.pool.shut();
    let (_, envelope) = peer.sealed(&b.did, CAP_INVOKE, None, &by_id(LARGE, large()));
    let _route = peer.request(&link, &envelope);
    b.pool.holds(1);
    goes_on(&mut caller, &mut provider);
    b.pool.work();
    let call = provider.taken();
    assert!(params(&call) == &large());
    provider.succeed(&call, large());
    b.pool.holds(1);
    goes_on(&mut caller, &mut provider);
    b.pool.work();
    let heard = peer.heard_type(CAP_RESULT);
    assert!(success(&heard.message) == &large());
}

#[test]
fn a_large_message_with_a_bad_signature_is_refused_all_the_same() {
    let b = Apart::start(None);
    let peer = Peer::serving(vec![]);
    let mut provider = Provider::at(&b.socket, vec![loose(LARGE)]);
    let link = peer.connect_to(b.quic);
    let (_, envelope) = peer.sealed(&b.did, CAP_INVOKE, None, &by_id(LARGE, large()));
    let mut envelope = envelope.to_vec();
    let at = envelope.windows(64).position(|window| window == [7; 64]).unwrap();
    envelope[at] = 8;
    let _route = peer.request(&link, &envelope.into());
    assert_eq!(peer.heard_type(ERROR).message.code(), Some(1002));
    provider.heard_nothing_more();
}

#[test]
fn what_a_call_says_on_its_stream_is_told_in_order_though_some_of_it_is_large() {
    let peer = Peer::serving(vec![loose(LARGE)]);
    let a = Apart::start(Some(&peer));
    let mut caller = Caller::at(&a.socket);
    a.pool.shut();
    let id = caller.invoke(by_id(LARGE, large()));
    a.pool.holds(1);
    a.pool.work();
    let heard = peer.heard_type(CAP_INVOKE);
    peer.answer(&heard, PROCESSING, &map([("status_text", "so far".into()), ("beside", large())]));
    a.pool.holds(1);
    // Small, and behind the large one.
    peer.succeed(&heard, 1.into());
    a.pool.holds(2);
    a.pool.work_last();
    for _ in 0..2 {
        assert!(caller.link.ping().is_empty(), "the result waits for what was said before it");
    }
    a.pool.work();
    assert_eq!(caller.about(&id).reply_to(), Some(id.clone()));
    // Both are there; which of them leaves first goes by their size.
    assert_eq!(caller.about(&id).reply_to(), Some(id));
}

#[test]
fn a_large_result_that_came_before_its_link_broke_is_the_result() {
    let peer = Peer::serving(vec![loose(LARGE)]);
    let a = Apart::start(Some(&peer));
    let mut caller = Caller::at(&a.socket);
    a.pool.shut();
    let id = caller.invoke(by_id(LARGE, large()));
    a.pool.holds(1);
    a.pool.work();
    let heard = peer.heard_type(CAP_INVOKE);
    peer.succeed(&heard, large());
    a.pool.holds(1);
    peer.close(&heard.link);
    // The sidecar knows that the link is gone once it cannot reach its peer, which is gone as well.
    caller.link.ping();
    a.pool.work();
    assert!(success(&caller.result(&id)) == &large());
}

#[test]
fn a_peer_has_no_more_calls_waiting_than_it_may() {
    let b = Apart::start(None);
    let peer = Peer::serving(vec![]);
    let schema = r#"{"type":"string"}"#;
    let mut provider = Provider::at(&b.socket, vec![with_schema(LARGE, "input_schema", schema)]);
    let text = Value::from("a".repeat(64 * 1024));
    let link = peer.connect_to(b.quic);
    b.pool.shut();
    let routes: Vec<_> = (0..WAITING_MAX + 1)
        .map(|_| peer.request(&link, &peer.sealed(&b.did, CAP_INVOKE, None, &by_id(LARGE, text.clone())).1))
        .collect();
    let refusal = peer.heard_type(ERROR);
    assert_eq!(refusal.message.code(), Some(5004), "{:?}", refusal.message);
    b.pool.holds(WAITING_MAX);
    // Once to verify it, and once to check its payload: those that wait have their places.
    b.pool.work();
    b.pool.holds(WAITING_MAX);
    b.pool.work();
    for _ in 0..WAITING_MAX {
        assert!(params(&provider.taken()) == &text);
    }
    drop(routes);
}

/// Messages of one link that wait at most, as the sidecar has it.
const WAITING_MAX: usize = 128;
