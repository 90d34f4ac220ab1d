//! Settings, identity, a system and a service in, what every link of this process shares out: permits, tasks, shutdown.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use capd_proto::identity::{Did, Identity};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::Service;
use super::key_file::Seed;
use super::quic::ResetKey;
use super::settings::Settings;
use super::system::{System, Tasks};
use super::tls::{Credentials, CredentialsError};

/// Where links of one process meet: each is opened for its service and ends with it.
pub struct Host {
    pub(super) settings: Settings,
    pub(super) system: System,
    pub(super) service: Arc<dyn Service>,
    pub(super) owner: Owner,
    /// The sockets that peers connect to, and those they are dialled from.
    quic: Mutex<Vec<quinn::Endpoint>>,
    pub(super) tasks: Tasks,
    pub(super) shutdown: CancellationToken,
    peers: Room,
    locals: Room,
}

/// Room for links that others open; peers cannot take the agent's.
struct Room {
    links: Arc<Semaphore>,
    opening: Arc<Semaphore>,
    opening_max: usize,
}

impl Room {
    fn new(settings: &Settings) -> Self {
        Self {
            links: Arc::new(Semaphore::new(settings.links_max)),
            opening: Arc::new(Semaphore::new(settings.links_opening_max)),
            opening_max: settings.links_opening_max,
        }
    }

    fn permits(&self) -> Option<Permits> {
        let opening = Arc::clone(&self.opening).try_acquire_owned().ok()?;
        let link = Arc::clone(&self.links).try_acquire_owned().ok()?;
        Some(Permits { _link: link, opening: Some(opening) })
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
    _link: OwnedSemaphorePermit,
    pub(super) opening: Option<OwnedSemaphorePermit>,
}

impl Host {
    /// A sidecar's side: its links prove and sign with the identity of `seed`.
    ///
    /// **Errors:** no certificate can be made of the seed.
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
        Ok(Self::new(settings, owner, service, system))
    }

    /// An agent's side: it can only connect to its own sidecar, which signs for it.
    pub fn agent(settings: Settings, service: Arc<dyn Service>, system: System) -> Arc<Self> {
        Self::new(settings, Owner::Agent, service, system)
    }

    fn new(settings: Settings, owner: Owner, service: Arc<dyn Service>, system: System) -> Arc<Self> {
        let (peers, locals) = (Room::new(&settings), Room::new(&settings));
        Arc::new(Self {
            settings,
            tasks: system.tasks.group(),
            system,
            service,
            owner,
            quic: Mutex::default(),
            shutdown: CancellationToken::new(),
            peers,
            locals,
        })
    }

    /// The DID of the sidecar's identity; an agent's host has none.
    pub fn did(&self) -> Option<&Did> {
        match &self.owner {
            Owner::Sidecar { identity, .. } => Some(identity.did()),
            Owner::Agent => None,
        }
    }

    /// Takes no more links, stops dialling, and drains the links there are; [`Host::ended`] says when that is done.
    pub fn shut_down(&self) {
        self.shutdown.cancel();
        self.tasks.close();
    }

    /// Waits until everything that [`Host::shut_down`] ends has ended, at the latest after the drain timeout and a little.
    pub async fn ended(&self) {
        self.tasks.wait().await;
        let endpoints = std::mem::take(&mut *self.quic());
        for endpoint in endpoints {
            endpoint.close(quinn::VarInt::from_u32(0), b"");
            endpoint.wait_idle().await;
        }
    }

    /// The QUIC sockets, those that listen and those that only dial.
    pub(super) fn quic(&self) -> MutexGuard<'_, Vec<quinn::Endpoint>> {
        // They are added and taken whole, so a panic leaves nothing half done.
        self.quic.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The right of somebody who connected to become a peer link, if there is room.
    pub(super) fn peer_permits(&self) -> Option<Permits> {
        self.peers.permits()
    }

    /// The right of somebody who connected to become a local link, if there is room.
    pub(super) fn local_permits(&self) -> Option<Permits> {
        self.locals.permits()
    }

    /// Whether so many peers are opening links that whoever else comes shall first prove its address.
    pub(super) fn is_crowded(&self) -> bool {
        self.peers.opening.available_permits() < self.peers.opening_max / 2
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
                Err(std::io::Error::new(std::io::ErrorKind::Unsupported, "an agent speaks to no peers"))
            }
        }
    }
}

impl fmt::Debug for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Host").field("did", &self.did()).finish_non_exhaustive()
    }
}
