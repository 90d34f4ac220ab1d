//! Encodes the operation `peers` of REQUEST and RESPONSE: the peers of a sidecar, and why one has no link.
//!
//! It is an extension of capd for local links only; a peer gets the error of an unknown operation.

use std::borrow::Cow;

use super::body::{BodyError, MapWriter, read_array, read_map, required, wrong_value};
use crate::cbor::{Reader, Writer};

/// The peers of a sidecar at one moment.
///
/// **Shape:** `{"op": "peers", "peers": [* listed-peer]}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerList<'a> {
    /// The peers, each DID once.
    pub peers: Vec<ListedPeer<'a>>,
}

/// One peer.
///
/// **Shape:** `{"did": tstr, ? "name": tstr, "state": peer-state, "links": uint, ? "reason": tstr}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListedPeer<'a> {
    /// Its DID.
    pub did: Cow<'a, str>,
    /// What the sidecar's owner calls it.
    pub name: Option<Cow<'a, str>>,
    /// Whether calls reach it.
    pub state: PeerState,
    /// Open links to it.
    pub links: u64,
    /// Why it is in this state, if known.
    pub reason: Option<Cow<'a, str>>,
}

/// Whether calls reach a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PeerState {
    /// It has a link.
    Connected,
    /// It has a link, but answers no PING on it.
    Silent,
    /// One side refuses the other, until somebody changes a configuration.
    Refused,
    /// It could not be reached at its addresses; this may pass.
    Unreachable,
    /// It has no link yet, or it must connect itself.
    Waiting,
}

impl PeerState {
    /// The state as written in a RESPONSE.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Silent => "silent",
            Self::Refused => "refused",
            Self::Unreachable => "unreachable",
            Self::Waiting => "waiting",
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        match &*reader.text()? {
            "connected" => Ok(Self::Connected),
            "silent" => Ok(Self::Silent),
            "refused" => Ok(Self::Refused),
            "unreachable" => Ok(Self::Unreachable),
            "waiting" => Ok(Self::Waiting),
            _ => Err(wrong_value(reader, "state", "the state of a peer")),
        }
    }
}

impl<'a> PeerList<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut peers = None;
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"peers" => peers = Some(read_array(reader, ListedPeer::read)?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { peers: required(peers, "peers")? })
    }

    pub(super) fn write(&self, map: &mut MapWriter<'_>) {
        map.text("op", OP);
        let out = map.key_then("peers");
        Writer::new(out).array(self.peers.len() as u64);
        for peer in &self.peers {
            peer.write(out);
        }
    }
}

impl<'a> ListedPeer<'a> {
    /// The same peer, owned.
    pub fn into_owned(self) -> ListedPeer<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        let Self { did, name, state, links, reason } = self;
        ListedPeer { did: owned(did), name: name.map(owned), state, links, reason: reason.map(owned) }
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, BodyError> {
        let (mut did, mut name, mut state, mut links, mut reason) = (None, None, None, None, None);
        read_map(reader, |key, reader| {
            match key {
                b"did" => did = Some(reader.text()?),
                b"name" => name = Some(reader.text()?),
                b"links" => links = Some(reader.uint()?),
                b"state" => state = Some(PeerState::read(reader)?),
                b"reason" => reason = Some(reader.text()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self {
            did: required(did, "did")?,
            name,
            state: required(state, "state")?,
            links: required(links, "links")?,
            reason,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.text("did", &self.did);
        map.text_if("name", self.name.as_deref());
        map.uint("links", self.links);
        map.text("state", self.state.as_str());
        map.text_if("reason", self.reason.as_deref());
    }
}

/// The operation's name.
pub(super) const OP: &str = "peers";
