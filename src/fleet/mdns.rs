//! Implements a registry without a server, for the sidecars of one network: each announces its own registrations by mDNS,
//! and listens to those of others.
//!
//! A registration is an instance of `_capd._udp.local` with the signed bytes in its TXT record. Nothing of what comes in is
//! believed here: the machine verifies each registration, as it does with every registry. A lease is the lifetime of the
//! records: renewing announces them again, and withdrawing takes them back.
//!
//! 1. `packet` is the codec of the messages, `text` that of a registration within one.
//! 2. `table` keeps what is known, and answers the machine's questions from it.
//! 3. `socket` opens the sockets; here is what is sent when.

mod packet;
mod socket;
mod table;
mod text;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use bytes::Bytes;
use capd_proto::fleet::engine::{Ask, EngineError, Revision, StoreId, Told};
use capd_proto::fleet::machine::WatchId;
use capd_proto::fleet::{Cell, Prefix, Registration};
use sha2::{Digest as _, Sha256};
use tokio::io::ReadBuf;
use tokio::net::UdpSocket;
use tokio::sync::{Notify, mpsc};
use tokio::time::sleep_until;

use self::packet::{Instance, Message};
use self::table::{HEARD_MAX, Said, Table};
use super::engine::{Answer, Engine, Health, Report, Reporting};
use crate::net::{Clock, Random};

pub use socket::OpenError;

/// A cell's registrations, as one sidecar announces and hears them.
#[derive(Debug)]
pub struct Mdns(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    sockets: Vec<UdpSocket>,
    group: SocketAddr,
    cell: Cell,
    clock: Clock,
    random: Random,
    state: Mutex<State>,
    /// Something is to be sent or reported.
    wake: Notify,
    /// Something was heard.
    heard: Notify,
    shown: String,
}

/// All times are milliseconds, monotonic.
#[derive(Debug)]
struct State {
    table: Table,
    /// When listening began.
    began_ms: Option<u64>,
    /// When all of ours is announced again, and when it was last.
    say_ms: Option<u64>,
    said_ms: Option<u64>,
    /// When the network was last asked, and how many of the first questions have gone out.
    asked_ms: Option<u64>,
    asked: usize,
    error: Option<String>,
}

/// Where and as what mDNS is spoken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The cell whose registrations are announced and heard.
    pub cell: Cell,
    /// Addresses of the interfaces; none for the one that the system chooses.
    pub interfaces: Vec<Ipv4Addr>,
    /// The UDP port, 5353 for all of mDNS.
    pub port: u16,
}

impl Mdns {
    /// Opens the sockets. Nothing is heard before [`Engine::report`] runs.
    ///
    /// **Errors:** an interface that is not there or has no multicast, or a port that is not shared.
    pub fn open(settings: Settings, clock: Clock, random: Random) -> Result<Self, OpenError> {
        let Settings { cell, mut interfaces, port } = settings;
        let names: Vec<_> = interfaces.iter().map(ToString::to_string).collect();
        let shown = match &names[..] {
            [] => format!("mDNS, port {port}"),
            names => format!("mDNS on {}, port {port}", names.join(", ")),
        };
        if interfaces.is_empty() {
            interfaces.push(Ipv4Addr::UNSPECIFIED);
        }
        let sockets = interfaces.into_iter().map(|interface| socket::open(interface, port));
        let sockets = sockets.collect::<Result<_, _>>()?;
        // Without randomness the id is an unlikely one as well.
        let id = random.bytes().map_or(clock.wall_ms(), u64::from_be_bytes);
        let store = StoreId { id, era: 0 };
        let state = State {
            table: Table::new(cell.clone(), store),
            began_ms: None,
            say_ms: None,
            said_ms: None,
            asked_ms: None,
            asked: 0,
            error: None,
        };
        Ok(Self(Arc::new(Shared {
            sockets,
            group: SocketAddr::V4(SocketAddrV4::new(socket::GROUP, port)),
            cell,
            clock,
            random,
            state: Mutex::new(state),
            wake: Notify::new(),
            heard: Notify::new(),
            shown,
        })))
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, ask: Ask) -> Result<Told, EngineError> {
        if let Ask::List { prefix, .. } = &ask {
            self.listen(prefix).await?;
        }
        let is_new = matches!(ask, Ask::Register { .. } | Ask::Replace { .. });
        let now_ms = self.clock.monotonic_ms();
        let (told, said) = {
            let mut state = self.state();
            if is_new {
                // RFC 6762 8.3: an announcement is made twice, for the first may be lost.
                state.say_ms = Some(now_ms + AGAIN_MS);
            }
            state.table.ask(ask, now_ms)
        };
        self.wake.notify_one();
        for said in &said {
            self.say(said).await.map_err(|_| EngineError::Lost)?;
        }
        told
    }

    /// Asks the network for what is not known yet, and waits for those who are slow to answer. Later on everybody has
    /// announced what they have, so that what is not known is not there.
    async fn listen(&self, prefix: &Prefix) -> Result<(), EngineError> {
        if !matches!(prefix, Prefix::Name(..) | Prefix::Names) {
            return Ok(());
        }
        let now_ms = self.clock.monotonic_ms();
        let until_ms = self.state().began_ms.unwrap_or(now_ms) + LISTEN_MS;
        let is_known = || matches!(prefix, Prefix::Name(..)) && self.state().table.has(prefix);
        // All names are asked for again and again by whoever looks on.
        let is_asked = matches!(prefix, Prefix::Name(..)) || now_ms < until_ms;
        if is_asked && !is_known() {
            self.query().await.map_err(|_| EngineError::Lost)?;
        }
        loop {
            let heard = self.heard.notified();
            if is_known() || self.clock.monotonic_ms() >= until_ms {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = heard => {}
                () = sleep_until(self.clock.moment(until_ms)) => {}
            }
        }
    }

    /// Asks the network who is there, at most once a second.
    async fn query(&self) -> io::Result<()> {
        let now_ms = self.clock.monotonic_ms();
        {
            let mut state = self.state();
            if state.asked_ms.is_some_and(|asked_ms| now_ms < asked_ms + AGAIN_MS) {
                return Ok(());
            }
            state.asked_ms = Some(now_ms);
        }
        self.send(&packet::query()).await
    }

    async fn say(&self, said: &Said) -> io::Result<()> {
        self.send(&packet::announcement(&self.instance(&said.path, &said.value), said.ttl_s)).await
    }

    /// Sends to all interfaces. One of them is enough. **Errors:** that of the last one, where none takes it.
    async fn send(&self, packet: &[u8]) -> io::Result<()> {
        let mut sent = Err(io::ErrorKind::NotConnected.into());
        let mut error = None;
        for socket in &self.sockets {
            match socket.send_to(packet, self.group).await {
                Ok(_) => sent = Ok(()),
                Err(failed) => {
                    error = Some(failed.to_string());
                    sent = sent.or(Err(failed));
                }
            }
        }
        self.state().error = error;
        sent
    }

    /// How a registration looks to whoever browses the network.
    fn instance(&self, path: &str, value: &[u8]) -> Instance {
        let address = Registration::unverified(value).ok().and_then(|of| of.addresses.into_iter().next());
        let digest = Sha256::digest(path);
        Instance {
            label: digest[..LABEL_BYTES].iter().map(|byte| format!("{byte:02x}")).collect(),
            host: path.rsplit('/').next().unwrap_or("capd").to_owned(),
            port: address.as_ref().map_or(0, |address| address.port),
            address: address.and_then(|address| address.host.parse().ok()),
            strings: text::strings(&self.cell, path, value),
        }
    }

    /// Does what is due, and says when something is next.
    async fn upkeep(&self) -> Option<u64> {
        let now_ms = self.clock.monotonic_ms();
        let (is_asking, said) = {
            let mut state = self.state();
            state.table.expire(now_ms);
            let is_asking = state.ask_ms().is_some_and(|ask_ms| ask_ms <= now_ms);
            state.asked += usize::from(is_asking);
            let is_saying = state.say_ms.is_some_and(|say_ms| say_ms <= now_ms);
            if is_saying {
                (state.say_ms, state.said_ms) = (None, Some(now_ms));
            }
            (is_asking, if is_saying { state.table.said() } else { Vec::new() })
        };
        // What cannot be sent now is shown, and sent again when the lease is renewed.
        if is_asking {
            drop(self.query().await);
        }
        for said in &said {
            drop(self.say(said).await);
        }
        let state = self.state();
        [state.ask_ms(), state.say_ms, state.table.due_ms()].into_iter().flatten().min()
    }

    /// Waits for a message; then takes in it and those that have come by then, up to a bound.
    async fn hear(&self, buffer: &mut [u8]) {
        let came = std::future::poll_fn(|context| {
            for socket in &self.sockets {
                let mut buffer = ReadBuf::new(buffer);
                // An error is that of a message sent before.
                if let Poll::Ready(came) = socket.poll_recv_from(context, &mut buffer) {
                    return Poll::Ready(came.map(|from| (buffer.filled().len(), from)));
                }
            }
            Poll::Pending
        });
        if let Ok((length, from)) = came.await {
            self.take(&buffer[..length], from);
        }
        for socket in &self.sockets {
            for _ in 0..BATCH_MAX {
                let Ok((length, from)) = socket.try_recv_from(buffer) else { break };
                self.take(&buffer[..length], from);
            }
        }
        self.heard.notify_waiters();
    }

    fn take(&self, packet: &[u8], from: SocketAddr) {
        let message = match packet::decode(packet) {
            Ok(message) => message,
            Err(error) => return tracing::trace!(%from, %error, "a message of mDNS is not understood"),
        };
        let now_ms = self.clock.monotonic_ms();
        match message {
            Message::Query(false) => {}
            Message::Query(true) => {
                // RFC 6762 6: not all at the same moment, and nothing more than once a second.
                let jitter_ms = u64::from(self.random.u32().unwrap_or(0)) % (SAY_MS_MAX - SAY_MS_MIN);
                let mut state = self.state();
                let rested_ms = state.said_ms.map_or(0, |said_ms| said_ms + AGAIN_MS);
                let say_ms = rested_ms.max(now_ms + SAY_MS_MIN + jitter_ms);
                state.say_ms = Some(state.say_ms.map_or(say_ms, |earlier| earlier.min(say_ms)));
            }
            // RFC 6762 6: an answer comes from the port of mDNS.
            Message::Response(_) if from.port() != self.group.port() => {}
            Message::Response(texts) => {
                let registrations = texts.into_iter().filter_map(|text| {
                    text::read(&self.cell, &text.strings).map(|(path, value)| (path, value, text.ttl_s))
                });
                let mut state = self.state();
                registrations.for_each(|(path, value, ttl_s): (String, Bytes, u32)| {
                    state.table.hear(path, value, ttl_s, now_ms);
                });
            }
        }
    }
}

impl State {
    /// When the network is asked next without anybody wanting to know: soon after the start, for messages get lost.
    fn ask_ms(&self) -> Option<u64> {
        Some(self.began_ms? + ASK_AFTER_MS.get(self.asked)?)
    }
}

impl Engine for Mdns {
    fn ask(&self, ask: Ask) -> Answer {
        let shared = Arc::clone(&self.0);
        Box::pin(async move { shared.answer(ask).await })
    }

    fn watch(&self, watch: WatchId, prefix: Prefix, after: Revision) {
        self.0.state().table.watch(watch, &prefix, after);
        self.0.wake.notify_one();
    }

    fn unwatch(&self, watch: WatchId) {
        self.0.state().table.unwatch(watch);
    }

    fn probe(&self) {
        self.0.state().table.probe();
        self.0.wake.notify_one();
    }

    fn report(self: Arc<Self>, to: mpsc::Sender<Report>) -> Reporting {
        let shared = Arc::clone(&self.0);
        Box::pin(async move {
            let began_ms = shared.clock.monotonic_ms();
            shared.state().began_ms = Some(began_ms);
            let mut buffer = vec![0; packet::PACKET_BYTES_MAX];
            loop {
                let due_ms = shared.upkeep().await;
                let reports = shared.state().table.reports();
                // While nobody takes them, nothing more is read: the system drops what comes then.
                for report in reports {
                    if to.send(report).await.is_err() {
                        return;
                    }
                }
                let due = async {
                    match due_ms {
                        Some(due_ms) => sleep_until(shared.clock.moment(due_ms)).await,
                        None => std::future::pending().await,
                    }
                };
                tokio::select! {
                    biased;
                    () = shared.wake.notified() => {}
                    () = due => {}
                    () = shared.hear(&mut buffer) => {}
                }
            }
        })
    }

    fn health(&self) -> Health {
        let state = self.0.state();
        let is_full = state.table.is_full();
        let full = || is_full.then(|| format!("{HEARD_MAX} registrations are known, and more are left out"));
        let error = state.error.clone().or_else(full);
        Health { endpoint: self.0.shown.clone(), version: None, error }
    }
}

/// Between two announcements of one thing, and between two questions. **Units:** milliseconds. **Source:** RFC 6762
/// sections 5.2, 6 and 8.3.
const AGAIN_MS: u64 = 1_000;
/// How soon a question is answered. **Units:** milliseconds. **Source:** RFC 6762 section 6.
const SAY_MS_MIN: u64 = 20;
const SAY_MS_MAX: u64 = 120;
/// When the network is asked after the start. **Units:** milliseconds. **Source:** RFC 6762 section 5.2.
const ASK_AFTER_MS: [u64; 3] = [0, 1_000, 3_000];
/// How long after the start somebody may still answer the first question: each is silent for a second after it has spoken.
/// **Units:** milliseconds.
const LISTEN_MS: u64 = AGAIN_MS + SAY_MS_MAX + 100;
/// Messages that are taken in at once.
const BATCH_MAX: usize = 64;
/// Bytes of a key's hash in an instance's name.
const LABEL_BYTES: usize = 16;
