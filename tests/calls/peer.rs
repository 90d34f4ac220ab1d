//! A sidecar in the test's own process, on a real QUIC link, whose every word the test chooses.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use capd::net::dial::{Address, ConnectError, Transport, connect};
use capd::net::{CloseReason, Host, Link, Route, Seed, Service, Settings, System, quic};
use capd_proto::envelope::{Draft, Ext, MessageId, Recipients};
use capd_proto::identity::Identity;
use capd_proto::ledger::JournalId;
use ciborium::Value;
use tokio::runtime::Handle;
use tokio_util::sync::CancellationToken;

use crate::agents::{CAP_DECLARE, CAP_QUERY, DOC_REQUEST, DOC_SEND, ERROR};
use crate::support::{Message, PATIENCE, Setup, Sidecar, decode, encode, field, map, set};

/// A sidecar with a link to `peer`, which it dials again soon after the link breaks.
pub fn beside(peer: &Peer) -> Sidecar {
    Setup::new()
        .set("timeouts.reconnect_initial_ms", "10")
        .set("timeouts.reconnect_max_ms", "20")
        .peer_at(peer.did(), &[&peer.address()])
        .start()
}

/// A message and the way back.
pub struct Heard {
    pub message: Message,
    pub route: Route,
    pub link: Arc<Link>,
}

/// The peer; it answers queries and document requests by itself and leaves everything else to the test.
pub struct Peer {
    heard: mpsc::Receiver<Heard>,
    script: Arc<Script>,
    host: Arc<Host>,
    runtime: Background,
    listens_at: std::net::SocketAddr,
}

struct Script {
    identity: Identity,
    signs: bool,
    descriptors: Mutex<Vec<Value>>,
    documents: Mutex<Vec<Vec<u8>>>,
    document_requests: AtomicUsize,
    withholds_documents: AtomicBool,
    /// The code that requests for documents are refused with; 0 is none.
    document_refusal: AtomicU64,
    format: Mutex<Option<String>>,
    journal: Mutex<Option<JournalId>>,
    heard: mpsc::SyncSender<Heard>,
}

impl Peer {
    /// A peer that serves these.
    pub fn serving(descriptors: Vec<Value>) -> Self {
        Self::with(descriptors, Settings::default(), true)
    }

    /// A peer with link settings of its own, which signs or leaves `sig` empty.
    pub fn with(descriptors: Vec<Value>, settings: Settings, signs: bool) -> Self {
        let seed = Seed::random().unwrap();
        let (sender, heard) = mpsc::sync_channel(1_024);
        let script = Arc::new(Script {
            identity: seed.identity(),
            signs,
            descriptors: Mutex::new(descriptors),
            documents: Mutex::default(),
            document_requests: AtomicUsize::new(0),
            withholds_documents: AtomicBool::new(false),
            document_refusal: AtomicU64::new(0),
            format: Mutex::default(),
            journal: Mutex::default(),
            heard: sender,
        });
        let runtime = Background::start();
        let settings = Settings { drain_timeout: Duration::from_millis(10), ..settings };
        let host =
            Host::sidecar(settings, &seed, Arc::clone(&script) as Arc<dyn Service>, System::real()).unwrap();
        let listens_at =
            runtime.handle.block_on(async { quic::listen(&host, "127.0.0.1:0".parse().unwrap()) }).unwrap();
        Self { heard, script, host, runtime, listens_at }
    }

    /// Serves a schema document by its hash.
    pub fn document(self, document: &str) -> Self {
        self.script.documents.lock().unwrap().push(document.as_bytes().to_vec());
        self
    }

    /// Serves these from here on.
    pub fn serve(&self, descriptors: Vec<Value>) {
        *self.script.descriptors.lock().unwrap() = descriptors;
    }

    /// Says that its descriptors are of this version of the format.
    pub fn write_format(&self, version: &str) {
        *self.script.format.lock().unwrap() = Some(version.to_owned());
    }

    /// Names this journal on links that open from here on; before, it names none, as older sidecars do.
    pub fn remember_in(&self, journal: Option<JournalId>) {
        *self.script.journal.lock().unwrap() = journal;
    }

    /// Refuses requests for documents with this code.
    pub fn refuse_documents(&self, code: u64) {
        self.script.document_refusal.store(code, Ordering::Relaxed);
    }

    /// Leaves requests for documents without an answer, or answers those to come.
    pub fn withhold_documents(&self, withheld: bool) {
        self.script.withholds_documents.store(withheld, Ordering::Relaxed);
    }

    pub fn did(&self) -> &str {
        self.script.identity.did().as_str()
    }

    /// Where it listens, as a configuration has it.
    pub fn address(&self) -> String {
        format!("quic://{}", self.listens_at)
    }

    /// How often it was asked for a document.
    pub fn document_requests(&self) -> usize {
        self.script.document_requests.load(Ordering::Relaxed)
    }

    /// Opens a link to a sidecar.
    pub fn connect(&self, sidecar: &Sidecar) -> Arc<Link> {
        self.try_connect(sidecar).unwrap()
    }

    /// Opens a link to a sidecar that listens there.
    pub fn connect_to(&self, at: std::net::SocketAddr) -> Arc<Link> {
        self.try_connect_to(at).unwrap()
    }

    /// Closes a link at once.
    pub fn close(&self, link: &Arc<Link>) {
        link.close(CloseReason::Local("as told".to_owned()));
        self.runtime.handle.block_on(link.closed());
    }

    pub fn try_connect(&self, sidecar: &Sidecar) -> Result<Arc<Link>, ConnectError> {
        self.try_connect_to(sidecar.quic.unwrap())
    }

    fn try_connect_to(&self, at: std::net::SocketAddr) -> Result<Arc<Link>, ConnectError> {
        let address = Address {
            transport: Transport::Quic,
            host: at.ip().to_string(),
            port: at.port(),
            is_shared: false,
        };
        self.runtime.handle.block_on(connect(&self.host, &address, None))
    }

    /// The next message.
    pub fn heard(&self) -> Heard {
        self.heard.recv_timeout(PATIENCE).expect("a message")
    }

    /// The next message, which must be of this type.
    #[track_caller]
    pub fn heard_type(&self, typ: u64) -> Heard {
        let heard = self.heard();
        assert_eq!(heard.message.typ(), typ, "{:?}", heard.message);
        heard
    }

    /// Bytes of an envelope to `to`, and its id.
    pub fn sealed(&self, to: &str, typ: u64, reply_to: Option<&[u8]>, body: &Value) -> (Vec<u8>, Bytes) {
        self.script.sealed(to, typ, reply_to, body)
    }

    /// The same with an `ext`.
    pub fn sealed_with(&self, to: &str, typ: u64, body: &Value, ext: &Value) -> (Vec<u8>, Bytes) {
        self.script.sealed_with(to, typ, None, body, Some(ext))
    }

    /// Sends a request on a link; the route is in flight until it is dropped.
    pub fn request(&self, link: &Arc<Link>, envelope: &Bytes) -> Route {
        let _runtime = self.runtime.handle.enter();
        link.request(envelope.clone()).unwrap()
    }

    /// Answers a message.
    pub fn answer(&self, heard: &Heard, typ: u64, body: &Value) -> Vec<u8> {
        let _runtime = self.runtime.handle.enter();
        self.script.answer(&heard.link, &heard.route, &heard.message, typ, body)
    }

    /// Answers a call with a result.
    pub fn succeed(&self, heard: &Heard, result: Value) -> Vec<u8> {
        let body = map([("status", "success".into()), ("result", result)]);
        self.answer(heard, crate::agents::CAP_RESULT, &body)
    }

    /// Answers a call with an error result.
    pub fn fail(&self, heard: &Heard, code: u64) -> Vec<u8> {
        let error = map([("code", code.into()), ("message", "as told".into())]);
        let body = map([("status", "error".into()), ("error", error)]);
        self.answer(heard, crate::agents::CAP_RESULT, &body)
    }

    /// Refuses a message with ERROR.
    pub fn refuse(&self, heard: &Heard, code: u64, category: &str) -> Vec<u8> {
        let body = map([("code", code.into()), ("category", category.into()), ("message", "as told".into())]);
        self.answer(heard, ERROR, &body)
    }
}

/// A runtime that a thread of its own drives.
struct Background {
    handle: Handle,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Background {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let (handle, stop) = (runtime.handle().clone(), CancellationToken::new());
        let stopped = stop.clone();
        let thread = std::thread::spawn(move || runtime.block_on(stopped.cancelled()));
        Self { handle, stop, thread: Some(thread) }
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // It has nothing to say: a task that panicked has said so.
            let _panicked = thread.join();
        }
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        self.host.shut_down();
        // Whatever does not end in time ends with the runtime.
        let _ended =
            self.runtime.handle.block_on(async { tokio::time::timeout(PATIENCE, self.host.ended()).await });
    }
}

impl Script {
    fn sealed(&self, to: &str, typ: u64, reply_to: Option<&[u8]>, body: &Value) -> (Vec<u8>, Bytes) {
        self.sealed_with(to, typ, reply_to, body, None)
    }

    fn sealed_with(
        &self,
        to: &str,
        typ: u64,
        reply_to: Option<&[u8]>,
        body: &Value,
        ext: Option<&Value>,
    ) -> (Vec<u8>, Bytes) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis();
        let mut random = [0; 8];
        random.copy_from_slice(&NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        let id = MessageId::new(u64::try_from(now).unwrap(), random);
        let (body, ext) = (encode(body), ext.map(encode));
        let draft = Draft {
            id,
            typ,
            ts: id.ts_ms(),
            ttl: 60_000,
            from: self.identity.did().as_str(),
            to: Recipients::one(to),
            reply_to,
            thread_id: None,
            body: &body,
            ext: ext.as_deref().map_or(Ext::None, Ext::Raw),
        };
        let mut out = Vec::new();
        draft.seal(&self.identity, self.signs, &mut out);
        (id.as_bytes().to_vec(), out.into())
    }

    fn answer(&self, link: &Arc<Link>, route: &Route, message: &Message, typ: u64, body: &Value) -> Vec<u8> {
        let (id, envelope) = self.sealed(link.principal().as_str(), typ, Some(&message.id()), body);
        // The link may have gone meanwhile.
        let _gone = route.send(envelope);
        id
    }

    fn on_query(&self, link: &Arc<Link>, route: &Route, message: &Message) {
        let descriptors = self.descriptors.lock().unwrap().clone();
        if descriptors.is_empty() {
            let body = map([
                ("code", 4002.into()),
                ("category", "client".into()),
                ("message", "nothing is served".into()),
            ]);
            self.answer(link, route, message, ERROR, &body);
            return;
        }
        let mut body = map([("capabilities", Value::Array(descriptors))]);
        if let Some(format) = self.format.lock().unwrap().as_deref() {
            set(&mut body, "capabilities_version", format.into());
        }
        self.answer(link, route, message, CAP_DECLARE, &body);
    }

    fn on_document_request(&self, link: &Arc<Link>, route: &Route, message: &Message) {
        use sha2::Digest as _;
        self.document_requests.fetch_add(1, Ordering::Relaxed);
        if self.withholds_documents.load(Ordering::Relaxed) {
            return;
        }
        let refusal = self.document_refusal.load(Ordering::Relaxed);
        if refusal > 0 {
            let body = map([
                ("code", refusal.into()),
                ("category", "protocol".into()),
                ("message", "as told".into()),
            ]);
            self.answer(link, route, message, ERROR, &body);
            return;
        }
        let hash = field(message.body(), "hash").and_then(Value::as_bytes).unwrap();
        let documents = self.documents.lock().unwrap();
        let found = documents.iter().find(|document| sha2::Sha256::digest(document).as_slice() == hash);
        let data = found.cloned().unwrap_or_default();
        let body = map([
            ("content_type", "application/schema+json".into()),
            ("filename", "schema.json".into()),
            ("size", u64::try_from(data.len()).unwrap().into()),
            ("hash", Value::Bytes(hash.clone())),
            ("data", Value::Bytes(data)),
        ]);
        self.answer(link, route, message, DOC_SEND, &body);
    }
}

impl Service for Script {
    fn journal(&self) -> Option<JournalId> {
        *self.journal.lock().unwrap()
    }

    fn on_open(&self, _link: &Arc<Link>) {}

    fn on_message(&self, link: &Arc<Link>, route: &Route, payload: Bytes) {
        let message = Message { value: decode(&payload), bytes: payload.to_vec() };
        match message.typ() {
            CAP_QUERY => self.on_query(link, route, &message),
            DOC_REQUEST => self.on_document_request(link, route, &message),
            _ => {
                let heard = Heard { message, route: route.clone(), link: Arc::clone(link) };
                // The test may be over.
                let _gone = self.heard.try_send(heard);
            }
        }
    }

    fn on_reset(&self, _link: &Arc<Link>, _route: &Route) {}

    fn on_close(&self, _link: &Arc<Link>, _reason: &CloseReason) {}
}

static NEXT: std::sync::atomic::AtomicU64 = std::sync::atomic::AtomicU64::new(1);
