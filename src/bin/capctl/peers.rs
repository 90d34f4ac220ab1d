//! Implements `ls --peers`: a sidecar in; its peers, and why one is not connected, out.

use std::time::Duration;

use capd::client::{Client, ClientError, peer_json};
use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::message::{ListedPeer, PeerState};

use crate::failure::{Exit, Failure};
use crate::{Sidecar, output};

/// Lists the peers of the sidecar.
pub(crate) async fn ls(sidecar: &Sidecar, json: bool) -> Result<(), Failure> {
    let client = sidecar.connect_for_people().await?;
    let peers = client.peers().await?;
    if json {
        return peers.iter().try_for_each(|peer| output::print_json(&peer_json(peer)));
    }
    if peers.is_empty() {
        output::note("no peers");
        return Ok(());
    }
    let row = |peer: &ListedPeer<'_>| {
        let reason = peer.reason.as_deref().unwrap_or_default().to_owned();
        vec![peer.did.to_string(), peer.state.as_str().to_owned(), peer.links.to_string(), reason]
    };
    let rows: Vec<_> = peers.iter().map(row).collect();
    output::print_table(&output::table(&["PEER", "STATE", "LINKS", "REASON"], &rows))
}

/// The time to `to` and back.
///
/// **Errors:** as the client has them; where nothing came in time, with what the sidecar knows of the peer.
pub(crate) async fn ping(client: &Client, to: &Did, wait: Duration) -> Result<Duration, Failure> {
    let error = match client.ping(to, wait).await {
        Ok(round_trip) => return Ok(round_trip),
        Err(error @ ClientError::Timeout { .. }) => error,
        // It is its own to connect, and may have been refused.
        Err(ClientError::Refused(wire)) if wire.code == Code::RECIPIENT_NOT_FOUND => {
            ClientError::Refused(wire)
        }
        Err(error) => return Err(error.into()),
    };
    let reason = match client.peers().await {
        Ok(peers) => peers.into_iter().find(|peer| peer.did == to.as_str()).and_then(reason),
        // What went wrong first is what is told.
        Err(_) => None,
    };
    let Some(reason) = reason else { return Err(error.into()) };
    Err(Failure::unexpected(format!("no answer from {to} within {wait:?}: {reason}")).exit(Exit::Unavailable))
}

/// Why calls do not reach a peer.
pub(crate) fn reason(peer: ListedPeer<'_>) -> Option<String> {
    let reason = peer.reason.map(std::borrow::Cow::into_owned);
    match peer.state {
        PeerState::Connected => None,
        PeerState::Silent | PeerState::Refused | PeerState::Unreachable => reason,
        PeerState::Waiting => Some(WAITING.to_owned()),
    }
}

/// What is said of a peer that has never had a link.
pub(crate) const WAITING: &str = "it has not connected";
