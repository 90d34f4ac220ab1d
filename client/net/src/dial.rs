//! Describes the addresses of a peer, and why no link to it exists; `keep` dials them again and again.

#[cfg(feature = "peer")]
mod keep;

use std::fmt;
use std::io;

use capd_proto::identity::Did;

#[cfg(feature = "peer")]
pub use keep::{Dialling, connect, dial_once, keep_connected};

use super::close::CloseReason;

/// The transport of a peer link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// QUIC.
    Quic,
    /// TCP with TLS.
    Tcp,
}

/// An address of a peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    /// The transport.
    pub transport: Transport,
    /// An IP address, or a name that is resolved each time.
    pub host: String,
    /// The port.
    pub port: u16,
    /// Whether other sidecars answer under this name as well, each at an address of its own.
    pub is_shared: bool,
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = match self.transport {
            Transport::Quic => "quic",
            Transport::Tcp => "tcp",
        };
        let dns = if self.is_shared { "+dns" } else { "" };
        if self.host.contains(':') {
            return write!(f, "{scheme}{dns}://[{}]:{}", self.host, self.port);
        }
        write!(f, "{scheme}{dns}://{}:{}", self.host, self.port)
    }
}

/// Why a link could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The connection could not be made, or broke, before the link's own handshake.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The address's host name stands for no IP address, as far as anybody tells.
    #[error("the host name {host} cannot be resolved: {source}")]
    Unresolved {
        /// The name.
        host: String,
        /// What the resolver says.
        source: io::Error,
    },
    /// Another peer answered at the address.
    #[error("{found} answered in place of {expected}")]
    WrongPeer {
        /// The expected peer.
        expected: Did,
        /// The peer that answered.
        found: Did,
    },
    /// The unix socket belongs to another user.
    #[error("the socket was opened by user {owner}, not by root or by user {own}, who connects")]
    Owner {
        /// The user id that listens.
        owner: u32,
        /// The user id that connects.
        own: u32,
    },
    /// The link closed before it was open.
    #[error(transparent)]
    Closed(#[from] CloseReason),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_read_as_they_are_written() {
        let address = |host: &str| Address {
            transport: Transport::Quic,
            host: host.to_owned(),
            port: 4433,
            is_shared: false,
        };
        assert_eq!(address("10.0.0.1").to_string(), "quic://10.0.0.1:4433");
        assert_eq!(address("::1").to_string(), "quic://[::1]:4433");
        let shared = Address { is_shared: true, ..address("capd-headless") };
        assert_eq!(shared.to_string(), "quic+dns://capd-headless:4433");
    }
}
