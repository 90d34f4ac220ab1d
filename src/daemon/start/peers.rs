//! Admits, expects and dials the peers of a configuration.

use std::sync::Arc;

use capd_proto::identity::Did;

use super::{StartError, address, parse_did};
use crate::config::{Config, Peer};
use crate::daemon::directory::expected::Reason;
use crate::daemon::sidecar::Sidecar;
use crate::net::{Host, dial};

/// Each peer with its DID. **Errors:** [`StartError::Peer`] for the first whose DID is none.
pub(super) fn parsed(config: &Config) -> Result<Vec<(Did, &Peer)>, StartError> {
    config.peers.iter().map(|peer| Ok((parse_did(&peer.did)?, peer))).collect()
}

/// Lets the peers in, and expects those that are dialled.
pub(super) fn take(sidecar: &Sidecar, peers: &[(Did, &Peer)]) {
    for (did, peer) in peers {
        sidecar.directory.serves.list(did.clone(), peer.serves.clone());
        sidecar.door.admission.list(did.clone());
        if !peer.addresses.is_empty() {
            sidecar.directory.peers.expect(did.clone(), Reason::Configured);
        }
    }
}

/// Dials those that have addresses.
pub(super) fn dial(host: &Arc<Host>, config: &Config) -> Result<(), StartError> {
    for (did, peer) in parsed(config)? {
        if !peer.addresses.is_empty() {
            dial::keep_connected(host, did, peer.addresses.iter().map(address).collect());
        }
    }
    Ok(())
}
