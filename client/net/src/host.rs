//! Holds what every link of this process shares: settings, identity, permits, tasks, shutdown.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use capd_proto::identity::{Did, Identity};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use super::address::{Handshakes, Origin};
use super::claim::{Claim, Held, Room, Tally};
use super::half_open::{HalfOpen, Place};
use super::http::Front;
use super::meter::{Carried, Levels, Limit, Meter};
use super::quic::ResetKey;
use super::settings::Settings;
use super::spare::Spare;
use super::system::{System, Tasks};
use super::tls::Credentials;
use super::turnstile::Turnstile;
use super::{Service, connection, quinn};
#[cfg(feature = "peer")]
use super::{key_file::Seed, tls::CredentialsError};

/// The links of one process: each is opened for its service and ends with it.
pub struct Host {
    /// Those of links to come; a link keeps what it opened with.
    settings: RwLock<Arc<Settings>>,
    pub(super) system: System,
    pub(super) service: Arc<dyn Service>,
    pub(super) owner: Owner,
    /// The sockets that peers connect to, and those they are dialled from.
    quic: Mutex<Vec<quinn::Endpoint>>,
    pub(super) tasks: Tasks,
    pub(super) shutdown: CancellationToken,
    pub(super) meter: Arc<Meter>,
    pub(super) spare: Arc<Spare>,
    pub(super) turnstile: Arc<Turnstile>,
    peers: Links,
    locals: Links,
    /// Local links that are opening.
    half_open: Arc<HalfOpen>,
    handshakes: RwLock<Option<Arc<Handshakes>>>,
    /// Chooses the buckets of handshakes.
    handshake_key: [u8; 16],
    /// Peers' links that are opening, by origin.
    opening: Arc<Tally<Origin>>,
    /// Links that peers opened, by peer.
    opened: Arc<Tally<Did>>,
    /// The front that answers the agent's HTTP requests.
    front: OnceLock<Arc<dyn Front>>,
}

/// Room for links that others open; peers cannot take the agent's.
#[derive(Default)]
struct Links {
    links: Arc<Room>,
    opening: Arc<Room>,
}

impl Links {
    fn permits(&self, settings: &Settings, origin: Option<Claim<Origin>>) -> Result<Permits, Limit> {
        let opening = self.opening.take(settings.links_opening_max).ok_or(Limit::LinksOpening)?;
        let link = self.links.take(settings.links_max).ok_or(Limit::Links)?;
        let opening = OpeningPermit { _opening: opening, _origin: origin, place: None };
        Ok(Permits { _link: link, opening: Some(opening) })
    }

    /// Links, and those that are opening.
    fn used(&self) -> (usize, usize) {
        (self.links.used(), self.opening.used())
    }
}

/// Whose process this is.
pub(super) enum Owner {
    /// A sidecar: it has the agent's key and speaks to peers.
    Sidecar { identity: Arc<Identity>, credentials: Credentials, reset_key: ResetKey },
    /// An agent: it has no key and speaks only to its own sidecar.
    Agent,
}

/// The right to be one of `links_max`, and until HELLO is done one of `links_opening_max`.
pub(super) struct Permits {
    _link: Held,
    pub(super) opening: Option<OpeningPermit>,
}

/// The right to be opening.
pub(super) struct OpeningPermit {
    _opening: Held,
    /// Of a peer known only by its address.
    _origin: Option<Claim<Origin>>,
    /// Of a local connection, which may have to make room.
    pub(super) place: Option<Place>,
}

impl Permits {
    /// Set when the connection has to make room while it says nothing.
    pub(super) fn wait(&self) -> CancellationToken {
        let place = self.opening.as_ref().and_then(|opening| opening.place.as_ref());
        place.map_or_else(CancellationToken::new, Place::wait)
    }
}

impl Host {
    /// A sidecar's side: its links prove and sign with the identity of `seed`.
    ///
    /// **Errors:** no certificate can be made of the seed.
    #[cfg(feature = "peer")]
    pub fn sidecar(
        settings: Settings,
        seed: &Seed,
        service: Arc<dyn Service>,
        system: System,
    ) -> Result<Arc<Self>, CredentialsError> {
        let owner = Owner::Sidecar {
            identity: Arc::new(seed.identity()),
            credentials: Credentials::new(seed, Arc::clone(&system.crypto))?,
            reset_key: ResetKey::of(seed),
        };
        let handshake_key = system.random.bytes()?;
        Ok(Self::new(settings, owner, handshake_key, service, system))
    }

    /// An agent's side: it can only connect to its own sidecar, which signs for it.
    pub fn agent(settings: Settings, service: Arc<dyn Service>, system: System) -> Arc<Self> {
        // Nobody connects to it.
        Self::new(settings, Owner::Agent, [0; 16], service, system)
    }

    fn new(
        settings: Settings,
        owner: Owner,
        handshake_key: [u8; 16],
        service: Arc<dyn Service>,
        system: System,
    ) -> Arc<Self> {
        let handshakes = settings.handshake_rate.map(|rate| Arc::new(Handshakes::new(rate, handshake_key)));
        Arc::new(Self {
            meter: Meter::new(system.clock.clone()),
            spare: Arc::default(),
            turnstile: Arc::default(),
            handshakes: RwLock::new(handshakes),
            handshake_key,
            opening: Tally::new(),
            opened: Tally::new(),
            settings: RwLock::new(Arc::new(settings)),
            tasks: system.tasks.group(),
            system,
            service,
            owner,
            quic: Mutex::default(),
            shutdown: CancellationToken::new(),
            peers: Links::default(),
            locals: Links::default(),
            half_open: Arc::default(),
            front: OnceLock::new(),
        })
    }

    /// Limits, times and sizes of links that open now.
    pub(super) fn settings(&self) -> Arc<Settings> {
        // They are replaced whole, so a panic leaves nothing half done.
        Arc::clone(&self.settings.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces them for links that open from here on. Links that are open keep theirs, and bounds of all links together
    /// refuse only what is new.
    pub fn replace_settings(&self, settings: Settings) {
        let rate = settings.handshake_rate;
        if self.settings().handshake_rate != rate {
            let handshakes = rate.map(|rate| Arc::new(Handshakes::new(rate, self.handshake_key)));
            *self.handshakes.write().unwrap_or_else(PoisonError::into_inner) = handshakes;
        }
        *self.settings.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(settings);
    }

    fn handshakes(&self) -> Option<Arc<Handshakes>> {
        self.handshakes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The DID of the sidecar's identity; an agent's host has none.
    pub fn did(&self) -> Option<&Did> {
        match &self.owner {
            Owner::Sidecar { identity, .. } => Some(identity.did()),
            Owner::Agent => None,
        }
    }

    /// Accepts no more links, stops dialling, and drains open links; [`Host::ended`] waits for that.
    pub fn shut_down(&self) {
        self.shutdown.cancel();
        self.tasks.close();
    }

    /// Waits until everything that [`Host::shut_down`] ends has ended, at the latest after the drain timeout and a little.
    pub async fn ended(&self) {
        self.tasks.wait().await;
        let endpoints = std::mem::take(&mut *self.quic());
        for endpoint in endpoints {
            connection::end(endpoint).await;
        }
    }

    /// Answers HTTP requests on local listeners with `front` from here on; only the first call counts.
    ///
    /// It must not hold this host: that would keep both forever.
    pub fn answer_http(&self, front: Arc<dyn Front>) {
        let _first = self.front.set(front);
    }

    /// What answers HTTP requests, if anything does.
    pub(super) fn front(&self) -> Option<Arc<dyn Front>> {
        self.front.get().cloned()
    }

    /// The QUIC sockets, those that listen and those that only dial.
    pub(super) fn quic(&self) -> MutexGuard<'_, Vec<quinn::Endpoint>> {
        // They are added and taken whole, so a panic leaves nothing half done.
        self.quic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How often a limit of its links refused or cut off something.
    pub fn refusals(&self, limit: Limit) -> u64 {
        self.meter.refusals(limit)
    }

    /// The use of the limits of its links.
    pub fn levels(&self) -> Levels {
        let ((peers, peers_opening), (locals, locals_opening)) = (self.peers.used(), self.locals.used());
        Levels {
            links: peers.max(locals),
            links_opening: peers_opening.max(locals_opening),
            peer_links_opening: peers_opening,
            links_opening_per_address: self.opening.highest(),
            links_per_peer: self.opened.highest(),
            ..self.meter.levels()
        }
    }

    /// What the links of each peer have carried since the start.
    pub fn carried_by_peer(&self) -> BTreeMap<Did, Carried> {
        self.meter.carried_by_peer()
    }

    /// The right of somebody who connected from `address` to become a peer link. **Errors:** the bound that is reached.
    pub(super) fn peer_permits(&self, address: SocketAddr) -> Result<Permits, Limit> {
        let origin = Origin::of(address);
        let now_ms = self.system.clock.monotonic_ms();
        let settings = self.settings();
        let permits = if self.handshakes().is_none_or(|handshakes| handshakes.take(origin, now_ms)) {
            let claim = self.opening.claim(origin, settings.links_opening_per_address_max);
            let claim = claim.ok_or(Limit::LinksOpeningPerAddress);
            claim.and_then(|claim| self.peers.permits(&settings, Some(claim)))
        } else {
            Err(Limit::HandshakeRate)
        };
        permits.inspect_err(|limit| self.meter.refused(*limit))
    }

    /// The right of somebody who connected to become a local link; where too many are opening, the oldest makes room.
    ///
    /// **Errors:** the bound that is reached.
    pub(super) async fn local_permits(&self) -> Result<Permits, Limit> {
        let settings = self.settings();
        let mut permits = self.locals.permits(&settings, None);
        for _ in 0..ROOM_TRIES_MAX {
            if permits.as_ref().err() != Some(&Limit::LinksOpening) {
                break;
            }
            if self.half_open.end_oldest() {
                self.meter.refused(Limit::LinksOpening);
            }
            // Its driver needs a turn to end, and those that came just now one to begin.
            let free = self.locals.opening.below(settings.links_opening_max);
            drop(timeout(ROOM_WAIT, free).await);
            permits = self.locals.permits(&settings, None);
        }
        let mut permits = permits.inspect_err(|limit| self.meter.refused(*limit))?;
        if let Some(opening) = &mut permits.opening {
            opening.place = Some(self.half_open.place());
        }
        Ok(permits)
    }

    /// The same for a stream within this process: nobody makes room for it.
    pub(super) fn stream_permits(&self) -> Result<Permits, Limit> {
        self.locals.permits(&self.settings(), None).inspect_err(|limit| self.meter.refused(*limit))
    }

    /// One more link that `peer` opened; `None` when it has opened all that it may.
    pub(super) fn peer_link(&self, peer: &Did) -> Option<Claim<Did>> {
        let claim = self.opened.claim(peer.clone(), self.settings().links_per_peer_max);
        if claim.is_none() {
            self.meter.refused(Limit::LinksPerPeer);
        }
        claim
    }

    /// Whether so many peers are opening links that whoever else comes shall first prove its address.
    pub(super) fn is_crowded(&self) -> bool {
        let (_, opening) = self.peers.used();
        opening >= self.settings().links_unvalidated_max
    }

    /// Whether peers have opened so many links that further ones shall be lean.
    pub(super) fn has_many_links(&self) -> bool {
        let (links, _) = self.peers.used();
        links > self.settings().links_max / 8
    }

    /// The key of stateless resets; an agent's host has none, and opens no QUIC socket.
    pub(super) fn reset_key(&self) -> Option<&ResetKey> {
        match &self.owner {
            Owner::Sidecar { reset_key, .. } => Some(reset_key),
            Owner::Agent => None,
        }
    }

    /// The credentials for peer links. **Errors:** an agent's host has none.
    pub(super) fn credentials(&self) -> std::io::Result<&Credentials> {
        match &self.owner {
            Owner::Sidecar { credentials, .. } => Ok(credentials),
            Owner::Agent => {
                Err(std::io::Error::new(std::io::ErrorKind::Unsupported, "an agent does not speak to peers"))
            }
        }
    }
}

/// Longest wait for a half-open local connection to make room, and how often it is tried.
const ROOM_WAIT: Duration = Duration::from_millis(100);
const ROOM_TRIES_MAX: usize = 10;

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("did", &self.did()).finish_non_exhaustive()
    }
}
