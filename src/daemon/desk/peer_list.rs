//! Answers REQUEST `peers`: each peer, whether calls reach it, and why not.

use std::borrow::Cow;
use std::collections::BTreeMap;

use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::message::{ListedPeer, PeerList, PeerState, Response, Type};

use super::Desk;
use crate::daemon::context::{Inbound, Refusal};

impl Desk {
    /// Answers with all peers. **Errors:** 4001 for anybody but the agent.
    pub(in crate::daemon) fn on_peers(&self, inbound: &Inbound<'_>) -> Result<(), Refusal> {
        if !inbound.link.kind().is_local() {
            // A peer learns no more than of an operation that we do not have.
            return Err(Refusal::new(Code::BAD_REQUEST, "the operation \"peers\" is not known here"));
        }
        let mut body = Vec::new();
        Response::Peers(PeerList { peers: self.listed_peers() }).encode(&mut body);
        self.ctx.reply(inbound, Type::Response, &body);
        Ok(())
    }

    /// Those that are configured, those that have a link, and those that asked for one and got none.
    pub(super) fn listed_peers(&self) -> Vec<ListedPeer<'static>> {
        let refused: BTreeMap<Did, String> =
            self.directory.unlinked.refused_peers(self.ctx.clock.monotonic_ms()).into_iter().collect();
        let mut dids = self.directory.peers.all();
        dids.extend(self.door.admission.named());
        dids.extend(refused.keys().cloned());
        let config = self.ctx.config();
        // Where anyone is admitted, nobody is listed for that.
        dids.extend(config.peers.iter().filter_map(|peer| Did::parse(&peer.did).ok()));
        let name = |did: &Did| {
            let peer = config.peers.iter().find(|peer| peer.did == did.as_str());
            peer.and_then(|peer| peer.name.clone())
        };
        let listed = dids.into_iter().map(|did| {
            let links = self.directory.peers.links(&did);
            let (state, reason) = match (links, self.directory.unlinked.cause(&did), refused.get(&did)) {
                (1.., ..) if self.directory.peers.is_responsive(&did) => (PeerState::Connected, None),
                (1.., ..) => (PeerState::Silent, Some("it answers no PING".to_owned())),
                (0, Some(cause), _) if cause.is_lasting => (PeerState::Refused, Some(cause.text)),
                (0, _, Some(text)) => (PeerState::Refused, Some(text.clone())),
                (0, Some(cause), None) => (PeerState::Unreachable, Some(cause.text)),
                (0, None, None) => (PeerState::Waiting, None),
            };
            ListedPeer {
                did: Cow::Owned(did.as_str().to_owned()),
                name: name(&did).map(Cow::Owned),
                state,
                links: links as u64,
                reason: reason.map(Cow::Owned),
            }
        });
        listed.collect()
    }
}
