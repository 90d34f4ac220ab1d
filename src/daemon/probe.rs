//! Links with calls in flight in, a PING on each out: a peer that has started again is found out at once.

use std::time::Duration;

use super::node::Node;

impl Node {
    /// Probes the links on which somebody waits, until shutdown. A peer that has started again answers with a reset,
    /// and its calls are tried again; the next keep-alive would find out much later.
    pub(super) async fn probe_links(&self) {
        loop {
            tokio::time::sleep(PROBE_INTERVAL).await;
            for link in self.peers.busy() {
                link.probe();
            }
        }
    }
}

/// How soon a peer is missed while an answer is awaited from it.
const PROBE_INTERVAL: Duration = Duration::from_secs(1);
