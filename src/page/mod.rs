//! Serves the page of a sidecar to a browser on this machine: a link to the sidecar in; a URL that opens the page out.
//!
//! The page is a process of its own beside the sidecar, `capd page`, and one more agent of it: it reads over a local link
//! and the HTTP API, as `capctl` and `curl` do. So a sidecar serves nothing to browsers, and the page is gone when the
//! command ends.
//!
//! Read in this order: `serve` accepts connections, `door` admits requests and keeps sessions, `assets` are the files of
//! the page, `sidecar` leads to the sidecar, `fault` writes errors. Then come the data, a file for each view: `overview`
//! with `advice`, `lists` for calls and capabilities, `fleet` for the registry, `contracts`, `policy`, `audit` and `configuration`; `stream` sends
//! what changes. `actions` is all that changes anything.

mod actions;
mod advice;
mod assets;
mod audit;
mod configuration;
mod contracts;
mod door;
mod fault;
mod fleet;
mod lists;
mod overview;
mod policy;
mod serve;
mod sidecar;
mod stream;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;

use crate::client::{ClientError, Endpoint};
use crate::net::System;
use door::Sessions;
use overview::Watch;
use sidecar::Sidecar;

/// What the page is opened with.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the page listens, on loopback; port 0 lets the system choose.
    pub listen: SocketAddr,
    /// Where the sidecar takes local links.
    pub endpoint: Endpoint,
    /// Whether the sidecar's socket may be anybody's.
    pub any_owner: bool,
}

/// Why the page cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum PageError {
    /// There is no sidecar to show.
    #[error("{0}; start one with `capd run`, or name its configuration: capd page --config FILE")]
    Sidecar(ClientError),
    /// Others could reach it.
    #[error("--listen {0}: the page listens on loopback only, such as 127.0.0.1:0")]
    NotLoopback(SocketAddr),
    /// The address cannot be bound.
    #[error("--listen {address}: cannot listen there: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: io::Error,
    },
    /// The system gives no random bytes for a token.
    #[error("no random bytes for the token: {0}")]
    Random(io::Error),
}

/// A page that is bound.
pub struct Page {
    listener: TcpListener,
    address: SocketAddr,
    shown: Arc<Shown>,
    token: String,
}

/// What requests share.
struct Shown {
    system: System,
    sidecar: Sidecar,
    sessions: Sessions,
    watch: Watch,
}

impl Page {
    /// Links to the sidecar, and binds the page's address.
    ///
    /// **Errors:** [`PageError`].
    pub async fn open(options: Options) -> Result<Self, PageError> {
        let Options { listen, endpoint, any_owner } = options;
        if !listen.ip().is_loopback() {
            return Err(PageError::NotLoopback(listen));
        }
        let sidecar = Sidecar::new(endpoint, any_owner);
        sidecar.connect().await.map_err(PageError::Sidecar)?;
        let failed = |error| PageError::Listen { address: listen, error };
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let system = System::real();
        let sessions = Sessions::new(system.random.clone(), address.port()).map_err(PageError::Random)?;
        let token = sessions.token().to_owned();
        let watch = Watch::default();
        let shown = Arc::new(Shown { system, sidecar, sessions, watch });
        Ok(Self { listener, address, shown, token })
    }

    /// The URL that opens the page. What stands behind `#` is a secret, which browsers send to nobody.
    pub fn url(&self) -> String {
        format!("http://{}/#token={}", self.address, self.token)
    }

    /// Serves the page until the future is dropped.
    pub async fn serve(self) {
        let watching = overview::watch(&self.shown);
        let serving = serve::serve(self.listener, &self.shown);
        tokio::join!(watching, serving);
    }
}
