//! Tests two ends over real sockets on loopback, and one end against a peer that writes bytes by hand.

mod bytes_peer;
mod greedy;
mod limits;
mod links;
mod local;
mod peers;
mod refusals;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::{Admit, CloseReason, Host, Link, Route, Seed, Service, Settings, System};

/// What a service was told.
#[derive(Debug)]
enum Event {
    Opened(Arc<Link>),
    Message(Bytes, Route),
    Reset(Route),
    Closed(CloseReason),
}

/// A service that reports everything, and answers `?…` with `!…` unless told to hold.
struct Probe {
    events: mpsc::Sender<Event>,
    is_holding: AtomicBool,
    is_admitting: AtomicBool,
    /// The most streams whose messages it was given at once.
    gathered_streams: AtomicUsize,
}

impl Service for Probe {
    fn admit(&self, _newcomer: &super::Newcomer<'_>) -> Admit {
        if self.is_admitting.load(Ordering::Relaxed) { Admit::Yes } else { Admit::No }
    }

    fn on_open(&self, link: &Arc<Link>) {
        self.report(Event::Opened(Arc::clone(link)));
    }

    fn on_message(&self, _link: &Arc<Link>, route: &Route, payload: Bytes) {
        if payload.starts_with(b"?") && !self.is_holding.load(Ordering::Relaxed) {
            let mut answer = payload.to_vec();
            answer[0] = b'!';
            route.send(answer).unwrap();
            return;
        }
        self.report(Event::Message(payload, route.clone()));
    }

    fn on_gathered(&self, link: &Arc<Link>, messages: &[(Route, Bytes)]) {
        let is_first = |at: usize| !messages[..at].iter().any(|(route, _)| route.is_same(&messages[at].0));
        let streams = (0..messages.len()).filter(|at| is_first(*at)).count();
        self.gathered_streams.fetch_max(streams, Ordering::Relaxed);
        messages.iter().for_each(|(route, payload)| self.on_message(link, route, payload.clone()));
    }

    fn on_reset(&self, _link: &Arc<Link>, route: &Route) {
        self.report(Event::Reset(route.clone()));
    }

    fn on_close(&self, _link: &Arc<Link>, reason: &CloseReason) {
        self.report(Event::Closed(reason.clone()));
    }
}

impl Probe {
    fn report(&self, event: Event) {
        // A test that has seen enough drops its receiver.
        let _gone = self.events.try_send(event);
    }
}

/// One process's end: its host, its service, and what the service was told.
struct End {
    host: Arc<Host>,
    probe: Arc<Probe>,
    events: mpsc::Receiver<Event>,
}

impl End {
    fn sidecar(seed: u8) -> Self {
        Self::sidecar_with(seed, settings())
    }

    fn sidecar_with(seed: u8, settings: Settings) -> Self {
        Self::sidecar_on(System::real(), seed, settings)
    }

    fn sidecar_on(system: System, seed: u8, settings: Settings) -> Self {
        let (probe, events) = probe();
        let host = Host::sidecar(settings, &Seed::new([seed; 32]), Arc::clone(&probe) as _, system).unwrap();
        Self { host, probe, events }
    }

    fn agent() -> Self {
        let (probe, events) = probe();
        let host = Host::agent(settings(), Arc::clone(&probe) as _, System::real());
        Self { host, probe, events }
    }

    fn did(&self) -> super::Did {
        self.host.did().unwrap().clone()
    }

    fn hold(&self) {
        self.probe.is_holding.store(true, Ordering::Relaxed);
    }

    async fn next(&mut self) -> Event {
        timeout(PATIENCE, self.events.recv()).await.expect("an event").expect("the service lives")
    }

    async fn opened(&mut self) -> Arc<Link> {
        match self.next().await {
            Event::Opened(link) => link,
            other => panic!("expected an open link, got {other:?}"),
        }
    }

    async fn message(&mut self) -> (Bytes, Route) {
        match self.next().await {
            Event::Message(payload, route) => (payload, route),
            other => panic!("expected a message, got {other:?}"),
        }
    }

    async fn closed(&mut self) -> CloseReason {
        match self.next().await {
            Event::Closed(reason) => reason,
            other => panic!("expected the end, got {other:?}"),
        }
    }

    async fn shut_down(&self) {
        self.host.shut_down();
        timeout(PATIENCE, self.host.ended()).await.expect("everything ends");
    }
}

fn probe() -> (Arc<Probe>, mpsc::Receiver<Event>) {
    let (events, receiver) = mpsc::channel(4_096);
    let probe = Probe {
        events,
        is_holding: AtomicBool::new(false),
        is_admitting: AtomicBool::new(true),
        gathered_streams: AtomicUsize::new(0),
    };
    (Arc::new(probe), receiver)
}

fn settings() -> Settings {
    Settings { drain_timeout: Duration::from_secs(2), ..Settings::default() }
}

/// Longest any single step of a test may take.
const PATIENCE: Duration = Duration::from_secs(10);
