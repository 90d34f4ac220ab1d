//! Finds the sidecar and keeps one local link to it, made anew when it has closed.

use std::path::PathBuf;
use std::time::Duration;

use capd_client::{Client, ClientError, Endpoint, Options};
use tokio::sync::Mutex;
use tokio::time::{Instant, sleep};

/// Which sidecar to speak to.
#[derive(clap::Args, Clone, Debug, Default)]
pub struct SidecarArgs {
    /// The sidecar's socket; by default that of `capd run` without a configuration.
    #[arg(long, env = "CAPD_SOCKET", value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

/// The link to a sidecar.
pub struct Sidecar {
    endpoint: Endpoint,
    options: Options,
    link: Mutex<Option<Client>>,
}

impl SidecarArgs {
    /// The socket.
    ///
    /// **Errors:** nothing says where it is.
    pub fn socket(&self) -> Result<PathBuf, String> {
        let variable =
            |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
        let state = || {
            let dir = variable("XDG_STATE_HOME").or_else(|| Some(variable("HOME")?.join(".local/state")))?;
            Some(dir.join("capd/capd.sock"))
        };
        self.socket
            .clone()
            .or_else(state)
            .ok_or_else(|| "no sidecar is named: use --socket PATH, or set CAPD_SOCKET".to_owned())
    }
}

impl Sidecar {
    /// The sidecar behind a socket; nothing is connected yet.
    pub fn new(socket: PathBuf, agent_name: &str) -> Self {
        let options = Options { agent_name: agent_name.to_owned(), ..Options::default() };
        Self { endpoint: Endpoint::Unix(socket), options, link: Mutex::default() }
    }

    /// The open link.
    ///
    /// **Errors:** as [`Client::connect`].
    pub async fn client(&self) -> Result<Client, ClientError> {
        let mut link = self.link.lock().await;
        if let Some(client) = link.as_ref().filter(|client| !client.is_closed()) {
            return Ok(client.clone());
        }
        let client = Client::connect(self.endpoint.clone(), self.options.clone()).await?;
        *link = Some(client.clone());
        Ok(client)
    }

    /// The open link, waiting for a sidecar that is away until `deadline`.
    ///
    /// **Errors:** those of the last try.
    pub async fn client_by(&self, deadline: Instant) -> Result<Client, ClientError> {
        let mut pause = PAUSE_MIN;
        loop {
            match self.client().await {
                Ok(client) => return Ok(client),
                Err(error) if Instant::now() + pause >= deadline => return Err(error),
                Err(_) => sleep(pause).await,
            }
            pause = (pause * 2).min(PAUSE_MAX);
        }
    }

    /// Drops the link, whatever is on its way; the next one is made anew.
    pub async fn forget(&self) {
        self.link.lock().await.take();
    }

    /// Closes the link once calls in flight have ended.
    pub async fn close(&self) {
        let client = self.link.lock().await.take();
        if let Some(client) = client {
            client.close().await;
        }
    }
}

/// Pauses between tries to connect.
const PAUSE_MIN: Duration = Duration::from_millis(20);
const PAUSE_MAX: Duration = Duration::from_millis(500);
