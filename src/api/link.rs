//! Connects a client to the sidecar by a local link within this process.

use tokio::io::duplex;

use super::Api;
use super::problem::Problem;
use crate::client::{Client, Options};
use crate::net::local;

impl Api {
    /// The client that serves requests; a link that ended is opened anew.
    ///
    /// **Errors:** 503 while the sidecar stops, or when it has as many local links as it may.
    pub(super) async fn client(&self) -> Result<Client, Problem> {
        let mut link = self.link.lock().await;
        if let Some(client) = link.as_ref().filter(|client| !client.is_closed()) {
            return Ok(client.clone());
        }
        let client = self.open().await?;
        *link = Some(client.clone());
        Ok(client)
    }

    /// A client with a link of its own.
    pub(super) async fn open(&self) -> Result<Client, Problem> {
        let stopping = || Problem::refused(capd_proto::code::Code::UNAVAILABLE, "the sidecar is stopping");
        let host = self.host.upgrade().ok_or_else(stopping)?;
        let (ours, theirs) = duplex(PIPE_BYTES);
        local::serve_stream(&host, theirs);
        let options = Options {
            agent_name: "capd-http".to_owned(),
            pending_max: self.options().calls_max,
            ..Options::default()
        };
        let client = Client::connect_stream(ours, options, self.system.clone()).await;
        client.map_err(|error| {
            let detail = format!("the sidecar takes no further local link: {error}");
            Problem::refused(capd_proto::code::Code::OVERLOADED, detail)
        })
    }
}

/// Bytes on their way in one direction.
const PIPE_BYTES: usize = 256 * 1024;
