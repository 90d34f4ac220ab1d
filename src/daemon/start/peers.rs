//! Reads the peers of a configuration, and dials them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use capd_proto::capability::CapabilityPattern;
use capd_proto::identity::Did;

use super::{StartError, address, parse_did};
use crate::config::{Admit, Config, Peer};
use crate::daemon::context::lock;
use crate::net::Host;
use crate::net::dial::{self, Address, Dialling};

/// The peers of a configuration, by their DIDs.
#[derive(Debug)]
pub(super) struct Peered {
    /// Whether any key is admitted.
    pub(super) is_open: bool,
    peers: BTreeMap<Did, Peer>,
}

impl Peered {
    /// **Errors:** [`StartError::Peer`] for the first whose DID is none.
    pub(super) fn of(config: &Config) -> Result<Self, StartError> {
        let peers = config.peers.iter().map(|peer| Ok((parse_did(&peer.did)?, peer.clone())));
        let is_open = match config.peer.admit {
            Admit::Listed => false,
            Admit::Any => true,
        };
        Ok(Self { is_open, peers: peers.collect::<Result<_, StartError>>()? })
    }

    /// Has the log call them by the names that their owner gave them.
    pub(super) fn name_in_log(&self) {
        let named = self.peers.iter().filter_map(|(did, peer)| Some((did.to_string(), peer.name.clone()?)));
        crate::log::name_peers(named);
    }

    pub(super) fn listed(&self) -> BTreeSet<Did> {
        self.peers.keys().cloned().collect()
    }

    /// What each may serve.
    pub(super) fn serves(&self) -> BTreeMap<Did, Vec<CapabilityPattern>> {
        self.peers.iter().map(|(did, peer)| (did.clone(), peer.serves.clone())).collect()
    }

    /// Those that are dialled.
    pub(super) fn dialled(&self) -> BTreeSet<Did> {
        let dialled = self.peers.iter().filter(|(_, peer)| !peer.addresses.is_empty());
        dialled.map(|(did, _)| did.clone()).collect()
    }

    fn addresses(&self) -> BTreeMap<Did, Vec<Address>> {
        let dialled = self.peers.iter().filter(|(_, peer)| !peer.addresses.is_empty());
        dialled.map(|(did, peer)| (did.clone(), peer.addresses.iter().map(address).collect())).collect()
    }
}

/// The peers that are being dialled.
#[derive(Default)]
pub(super) struct Dials(Mutex<BTreeMap<Did, (Vec<Address>, Dialling)>>);

impl Dials {
    /// Dials these peers at their addresses, and no others.
    pub(super) fn replace(&self, host: &Arc<Host>, peered: &Peered) {
        let mut dials = lock(&self.0);
        let mut wanted = peered.addresses();
        dials.retain(|did, (_, dialling)| {
            let is_wanted = wanted.contains_key(did);
            if !is_wanted {
                dialling.stop();
            }
            is_wanted
        });
        for (did, (known, dialling)) in dials.iter_mut() {
            if let Some(addresses) = wanted.remove(did)
                && addresses != *known
            {
                dialling.set_addresses(addresses.clone());
                *known = addresses;
            }
        }
        for (did, addresses) in wanted {
            let dialling = dial::keep_connected(host, did.clone(), addresses.clone());
            dials.insert(did, (addresses, dialling));
        }
    }
}
