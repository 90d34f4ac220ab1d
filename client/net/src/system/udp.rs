//! Makes a QUIC endpoint on a UDP socket.

use std::fmt;
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;

use quinn::{AsyncUdpSocket, Endpoint, EndpointConfig, Runtime, ServerConfig, TokioRuntime};
use socket2::SockRef;

use super::datagrams::Datagrams;

/// Replaces the system's sockets, and drives the endpoints on them.
pub trait Network: Send + Sync + 'static {
    /// A socket bound to `address`; port 0 is any that is free. **Errors:** the address is taken.
    fn bind(&self, address: SocketAddr) -> io::Result<Arc<dyn AsyncUdpSocket>>;

    /// Timers and tasks of the endpoints that use these sockets.
    fn runtime(&self) -> Arc<dyn Runtime>;
}

/// The source of QUIC's sockets.
#[derive(Clone, Default)]
pub struct Udp(Option<Arc<dyn Network>>);

impl Udp {
    /// The system's sockets.
    pub const fn real() -> Self {
        Self(None)
    }

    /// The sockets of `network`.
    pub fn of(network: Arc<dyn Network>) -> Self {
        Self(Some(network))
    }

    /// An endpoint on a socket bound to `address`, with `buffer_bytes` asked for each of the socket's buffers.
    ///
    /// **Errors:** the address cannot be bound.
    pub(crate) fn endpoint(
        &self,
        address: SocketAddr,
        buffer_bytes: usize,
        config: EndpointConfig,
        server: Option<ServerConfig>,
    ) -> io::Result<Endpoint> {
        if let Some(network) = &self.0 {
            let socket = network.bind(address)?;
            return Endpoint::new_with_abstract_socket(config, server, socket, network.runtime());
        }
        let socket = UdpSocket::bind(address)?;
        let options = SockRef::from(&socket);
        // The system caps what it grants; a smaller buffer costs speed under bursts, never correctness.
        let _smaller = options.set_recv_buffer_size(buffer_bytes);
        let _smaller = options.set_send_buffer_size(buffer_bytes);
        Endpoint::new_with_abstract_socket(config, server, Datagrams::new(socket)?, Arc::new(TokioRuntime))
    }
}

impl fmt::Debug for Udp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0.is_some() { "Udp(given)" } else { "Udp(system)" })
    }
}
