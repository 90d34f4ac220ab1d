//! Tests the client over a real unix socket, against a sidecar whose messages each test writes.

mod asking;
mod providing;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use capd_proto::capability::CapabilityId;
use capd_proto::envelope::{Draft, Envelope, Ext, MessageId, Recipients};
use capd_proto::identity::Identity;
use capd_proto::message::{Message, Type};
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::*;
use capd_net::{Route, Seed, Service, System};

/// Longest wait for what should come at once; only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(20);

/// What a scripted sidecar answers to one message: any number of messages.
type Script = Box<dyn Fn(&Envelope<'_>, &Message<'_>) -> Vec<(Type, Vec<u8>)> + Send + Sync>;

/// A message that the client sent.
#[derive(Debug, PartialEq, Eq)]
struct Seen {
    typ: Type,
    reply_to: Option<MessageId>,
    to: String,
    ts: u64,
    ttl: u64,
    body: Bytes,
}

/// The service of a scripted sidecar.
struct Scripted {
    script: Script,
    seen: mpsc::Sender<Seen>,
    link: Mutex<Option<Arc<Link>>>,
}

impl Service for Scripted {
    fn on_open(&self, link: &Arc<Link>) {
        *self.link.lock().unwrap() = Some(Arc::clone(link));
    }

    fn on_message(&self, _link: &Arc<Link>, route: &Route, payload: Bytes) {
        let envelope = Envelope::decode(&payload).unwrap();
        let typ = Type::from_code(envelope.typ).unwrap();
        let body = envelope.body().unwrap();
        let message = Message::decode(typ, body).unwrap();
        for (typ, body) in (self.script)(&envelope, &message) {
            route.send(sealed(typ, &body, fresh_id(), Some(envelope.id))).unwrap();
        }
        let seen = Seen {
            typ,
            reply_to: envelope.reply_id(),
            to: envelope.to.iter().next().unwrap().to_owned(),
            ts: envelope.ts,
            ttl: envelope.ttl,
            body: payload.slice_ref(body),
        };
        self.seen.try_send(seen).unwrap();
    }

    fn on_reset(&self, _link: &Arc<Link>, _route: &Route) {}

    fn on_close(&self, _link: &Arc<Link>, _reason: &CloseReason) {}
}

/// A sidecar on a unix socket of its own, and a client of it.
struct Pair {
    client: Client,
    service: Arc<Scripted>,
    seen: mpsc::Receiver<Seen>,
    _host: Arc<Host>,
    _dir: tempfile::TempDir,
}

impl Pair {
    async fn new(
        script: impl Fn(&Envelope<'_>, &Message<'_>) -> Vec<(Type, Vec<u8>)> + Send + Sync + 'static,
    ) -> Self {
        Self::with(Options { request_timeout: PATIENCE, ..Options::default() }, script).await
    }

    async fn with(
        options: Options,
        script: impl Fn(&Envelope<'_>, &Message<'_>) -> Vec<(Type, Vec<u8>)> + Send + Sync + 'static,
    ) -> Self {
        let (sender, seen) = mpsc::channel(1_024);
        let service = Arc::new(Scripted { script: Box::new(script), seen: sender, link: Mutex::default() });
        let (dir, socket) = socket();
        let host =
            Host::sidecar(Settings::default(), &Seed::new(SEED), Arc::clone(&service) as _, System::real())
                .unwrap();
        local::listen_unix(&host, &socket).unwrap();
        let client = Client::connect(Endpoint::Unix(socket), options).await.unwrap();
        Self { client, service, seen, _host: host, _dir: dir }
    }

    /// The next message that the client sent.
    async fn next(&mut self) -> Seen {
        timeout(PATIENCE, self.seen.recv()).await.expect("the client sends something").unwrap()
    }

    /// The sidecar speaks first.
    fn say(&self, typ: Type, body: &[u8], id: MessageId) {
        let link = self.service.link.lock().unwrap();
        link.as_ref().unwrap().notify(sealed(typ, body, id, None)).unwrap();
    }
}

const SEED: [u8; 32] = [5; 32];

fn socket() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("capd.sock");
    (dir, socket)
}

fn sidecar() -> Identity {
    Identity::from_seed(SEED)
}

fn fresh_id() -> MessageId {
    let mut random = [0; 8];
    getrandom::fill(&mut random).unwrap();
    MessageId::new(System::real().clock.wall_ms(), random)
}

fn sealed(typ: Type, body: &[u8], id: MessageId, reply_to: Option<MessageId>) -> Bytes {
    sealed_by(sidecar().did(), typ, body, id, reply_to)
}

fn sealed_by(from: &str, typ: Type, body: &[u8], id: MessageId, reply_to: Option<MessageId>) -> Bytes {
    let identity = sidecar();
    let mut bytes = Vec::new();
    let draft = Draft {
        id,
        typ: typ.code(),
        ts: id.ts_ms(),
        ttl: 60_000,
        from,
        to: Recipients::one(identity.did()),
        reply_to: reply_to.as_ref().map(|id| id.as_bytes().as_slice()),
        thread_id: None,
        body,
        ext: Ext::None,
    };
    draft.write_unsigned(&mut bytes);
    bytes.into()
}

/// Nothing at all is answered.
fn silence(_: &Envelope<'_>, _: &Message<'_>) -> Vec<(Type, Vec<u8>)> {
    Vec::new()
}

fn capability(text: &str) -> CapabilityId {
    text.parse().unwrap()
}

fn call_of(text: &str) -> CallRequest {
    CallRequest::new(Target::Id(capability(text)))
}

/// CBOR of a JSON value.
fn cbor(value: &serde_json::Value) -> Bytes {
    let mut bytes = Vec::new();
    capd_proto::cbor::json::from_json(value, &mut bytes);
    bytes.into()
}

/// A future that ends, or the test fails.
async fn soon<T>(work: impl Future<Output = T>) -> T {
    timeout(PATIENCE, work).await.expect("it ends")
}
