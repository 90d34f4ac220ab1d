//! Opens the sockets that mDNS is spoken over: an interface's address and a port in; a socket that shares both, or what is
//! wrong and what to do, out.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use socket2::{Domain, Protocol, Socket, Type};
use thiserror::Error;
use tokio::net::UdpSocket;

/// Why mDNS cannot be spoken.
#[derive(Debug, Error)]
pub enum OpenError {
    /// Another program has the port for itself.
    #[error(
        "UDP port {0} is in use by a program that does not share it; stop that program (ss -ulnp shows it), or set \
         fleet.mdns_port to another port on every sidecar of the cell"
    )]
    InUse(u16),
    /// No interface has the address.
    #[error("no interface of this machine has {0}; name one of its addresses in fleet.addresses")]
    NoInterface(Ipv4Addr),
    /// The system knows no interface for multicast.
    #[error(
        "this machine has no interface for multicast; connect it to a network, or name an address of it in \
         fleet.addresses"
    )]
    NoNetwork,
    /// The interface cannot be used.
    #[error(
        "multicast on {interface} failed: {error}; use an address of another interface in fleet.addresses"
    )]
    Interface {
        /// Its address.
        interface: Ipv4Addr,
        /// What the system says.
        error: io::Error,
    },
}

/// A socket on the interface that has this address; on that which the system chooses for [`Ipv4Addr::UNSPECIFIED`].
pub(super) fn open(interface: Ipv4Addr, port: u16) -> Result<UdpSocket, OpenError> {
    let failed = |error: io::Error| OpenError::Interface { interface, error };
    let socket = Socket::new(Domain::IPV4, Type::DGRAM, Some(Protocol::UDP)).map_err(failed)?;
    // RFC 6762 15.1: others on this machine speak mDNS as well.
    socket.set_reuse_address(true).map_err(failed)?;
    socket.set_reuse_port(true).map_err(failed)?;
    // Bound to the group, so that nothing but multicast arrives: no message from beyond the network's own link.
    let group = SocketAddr::V4(SocketAddrV4::new(GROUP, port));
    socket.bind(&group.into()).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => OpenError::InUse(port),
        _ => failed(error),
    })?;
    // Else it would hear what comes in at interfaces that others have joined.
    socket.set_multicast_all_v4(false).map_err(failed)?;
    let joined = socket.join_multicast_v4(&GROUP, &interface);
    let joined = joined.and_then(|()| socket.set_multicast_if_v4(&interface));
    joined.map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV | libc::EADDRNOTAVAIL) if interface.is_unspecified() => OpenError::NoNetwork,
        Some(libc::ENODEV | libc::EADDRNOTAVAIL) => OpenError::NoInterface(interface),
        _ => failed(error),
    })?;
    // Sidecars of one machine hear each other.
    socket.set_multicast_loop_v4(true).map_err(failed)?;
    // RFC 6762 11.
    socket.set_multicast_ttl_v4(TTL).map_err(failed)?;
    socket.set_nonblocking(true).map_err(failed)?;
    UdpSocket::from_std(socket.into()).map_err(failed)
}

/// The group of mDNS.
pub(super) const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const TTL: u32 = 255;
