//! Probes quiet links on which something waits, and closes those of dead peers.
//!
//! A peer that restarted answers with a reset, and its calls are retried. A peer that was killed, or hangs, says
//! nothing: its link is suspect after a second, and closed after `timeouts.dead_ms`. **Source:** PROTOCOL 4.

use std::collections::BTreeMap;

use super::Directory;
use crate::net::{CloseReason, Link, LinkId};

/// The links that were asked for a sign of life and have given none.
#[derive(Default)]
pub(in crate::daemon) struct Probes(BTreeMap<LinkId, Asked>);

/// What is known of a link that was asked for a sign of life and has given none.
struct Asked {
    /// When the last PING went out. **Units:** monotonic milliseconds.
    pinged_ms: u64,
    /// Bytes that the transport had taken by then.
    written_bytes: u64,
}

impl Directory {
    /// Whether nothing waits for a peer, so that no link needs a probe before [`Self::disturbed`] resolves.
    pub(in crate::daemon) fn is_quiet(&self, Probes(asked): &Probes) -> bool {
        asked.is_empty() && self.ctx.slots.used() == 0
    }

    /// Resolves once something has begun to wait for a peer. It may have ended by then.
    pub(in crate::daemon) async fn disturbed(&self) {
        tokio::select! {
            () = self.ctx.slots.first_taken() => {}
            () = self.peers.asking() => {}
        }
    }

    /// Asks quiet links on which something waits for a sign of life and closes those that give none. To be called every
    /// 250 ms while something does.
    pub(in crate::daemon) fn probe_links(&self, Probes(asked): &mut Probes) {
        // Most sidecars wait for nothing most of the time, and may have very many links.
        if !self.peers.take_asking() && asked.is_empty() && self.ctx.slots.used() == 0 {
            return;
        }
        let former = std::mem::take(asked);
        for link in self.peers.awaited_links() {
            if let Some(unanswered) = self.probe_link(&link, former.get(&link.id())) {
                asked.insert(link.id(), unanswered);
            }
        }
    }

    /// Gives what is to be remembered of a link that owes a sign of life.
    fn probe_link(&self, link: &Link, former: Option<&Asked>) -> Option<Asked> {
        let now_ms = self.ctx.clock.monotonic_ms();
        let (written_bytes, queued_bytes) = link.written_bytes();
        let Some(since_ms) = link.unanswered_since_ms() else {
            if now_ms.saturating_sub(link.heard_ms()) < QUIET_MS {
                return None;
            }
            link.ask(now_ms);
            return Some(Asked { pinged_ms: now_ms, written_bytes });
        };
        let Some(former) = former else { return Some(Asked { pinged_ms: since_ms, written_bytes }) };
        // The PING may stand behind a large message that the peer's end of the connection is still taking.
        if queued_bytes > 0 && written_bytes > former.written_bytes {
            link.ask_anew(now_ms);
            return Some(Asked { pinged_ms: now_ms, written_bytes });
        }
        // A link that is given up for its silence needs no further reason.
        let timeouts = &self.ctx.config().timeouts;
        let dead_ms = timeouts.dead_ms.min(timeouts.idle_ms);
        if now_ms.saturating_sub(since_ms) >= dead_ms {
            let peer = link.principal();
            tracing::warn!(%peer, link = %link.id(), remote = link.remote(), dead_ms, "closing a link: its peer does not answer PING");
            link.close(CloseReason::Dead);
            return None;
        }
        if now_ms.saturating_sub(former.pinged_ms) >= PING_AGAIN_MS {
            // Only a packet makes a peer that has started again send its reset.
            link.probe();
            return Some(Asked { pinged_ms: now_ms, written_bytes });
        }
        Some(Asked { pinged_ms: former.pinged_ms, written_bytes })
    }
}

/// Silence after which a link on which something waits is asked for a sign of life, in milliseconds.
pub(super) const QUIET_MS: u64 = 500;
/// Pause before the next PING to a peer that answers none, in milliseconds.
const PING_AGAIN_MS: u64 = 1_000;
