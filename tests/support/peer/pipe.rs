//! A sidecar's address in; bytes to it and from it, over each transport, out.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use quinn::crypto::rustls::QuicClientConfig;
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use super::Transport;
use super::tls::{Certificate, client_config};
use crate::support::{PATIENCE, Sidecar};

/// A connection of any kind.
pub enum Pipe {
    Unix(UnixStream),
    Tcp(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
    Quic(Box<Quic>),
}

impl Pipe {
    pub fn connect(sidecar: &Sidecar, transport: Transport, certificate: &Certificate) -> io::Result<Self> {
        match transport {
            Transport::Unix => Self::unix(sidecar),
            Transport::Loopback => Ok(Self::Tcp(connect_tcp(sidecar.local_tcp.expect("a loopback port"))?)),
            Transport::Tcp => Self::tls(sidecar, certificate),
            Transport::Quic => Ok(Self::Quic(Box::new(Quic::connect(sidecar, certificate)?))),
        }
    }

    /// On QUIC, what follows travels on an exchange stream.
    pub fn use_exchange_stream(&mut self) {
        if let Self::Quic(quic) = self {
            quic.use_exchange_stream().unwrap();
        }
    }

    /// On QUIC, what follows travels on the control stream.
    pub fn use_control_stream(&mut self) {
        if let Self::Quic(quic) = self {
            quic.current = 0;
        }
    }

    fn unix(sidecar: &Sidecar) -> io::Result<Self> {
        let stream = UnixStream::connect(&sidecar.socket)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_write_timeout(Some(PATIENCE))?;
        Ok(Self::Unix(stream))
    }

    fn tls(sidecar: &Sidecar, certificate: &Certificate) -> io::Result<Self> {
        let address = sidecar.tcp.expect("a TCP port");
        let config = Arc::new(client_config(&sidecar.did, certificate));
        let name = ServerName::IpAddress(address.ip().into());
        let connection = ClientConnection::new(config, name).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(connection, connect_tcp(address)?);
        while stream.conn.is_handshaking() {
            stream.conn.complete_io(&mut stream.sock)?;
        }
        assert_eq!(stream.conn.alpn_protocol(), Some(&b"amp.v1"[..]));
        assert_eq!(stream.conn.protocol_version(), Some(rustls::ProtocolVersion::TLSv1_3));
        Ok(Self::Tls(Box::new(stream)))
    }

    /// Resets our half of the QUIC stream in use.
    pub fn reset_stream(&mut self, code: u32) {
        let Self::Quic(quic) = self else { panic!("only QUIC has streams to reset") };
        quic.streams[quic.current].0.reset(code.into()).unwrap();
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Unix(stream) => stream.write_all(bytes),
            Self::Tcp(stream) => stream.write_all(bytes),
            Self::Tls(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
            Self::Quic(quic) => quic.write(bytes),
        }
    }

    /// Fills the buffer; `false` when the other side has closed.
    pub fn fill(&mut self, buffer: &mut [u8]) -> bool {
        let read = match self {
            Self::Unix(stream) => stream.read_exact(buffer),
            Self::Tcp(stream) => stream.read_exact(buffer),
            Self::Tls(stream) => stream.read_exact(buffer),
            Self::Quic(quic) => quic.read(buffer),
        };
        match read {
            Ok(()) => true,
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("nothing came within {PATIENCE:?}")
            }
            // However it ends, by the stream's end, a reset or a TLS alert, it is closed.
            Err(_) => false,
        }
    }

    pub fn finish(&mut self) {
        match self {
            Self::Unix(stream) => stream.shutdown(std::net::Shutdown::Write).unwrap(),
            Self::Tcp(stream) => stream.shutdown(std::net::Shutdown::Write).unwrap(),
            Self::Tls(stream) => {
                stream.conn.send_close_notify();
                stream.flush().unwrap();
                stream.sock.shutdown(std::net::Shutdown::Write).unwrap();
            }
            Self::Quic(quic) => quic.streams[quic.current].0.finish().unwrap(),
        }
    }
}

fn connect_tcp(address: SocketAddr) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    Ok(stream)
}

/// A QUIC connection; `streams[0]` is the control stream.
pub struct Quic {
    connection: quinn::Connection,
    streams: Vec<(quinn::SendStream, quinn::RecvStream)>,
    current: usize,
    /// Of a runtime on a thread of its own, so that packets move while a test waits for something else.
    runtime: tokio::runtime::Handle,
    /// The thread ends when this is dropped.
    _running: tokio::sync::oneshot::Sender<()>,
}

impl Quic {
    fn connect(sidecar: &Sidecar, certificate: &Certificate) -> io::Result<Self> {
        let crypto =
            QuicClientConfig::try_from(client_config(&sidecar.did, certificate)).map_err(io::Error::other)?;
        let config = quinn::ClientConfig::new(Arc::new(crypto));
        let address = sidecar.quic.expect("a QUIC port");
        let driving = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let runtime = driving.handle().clone();
        let endpoint = {
            let _entered = runtime.enter();
            quinn::Endpoint::client(SocketAddr::from(([127, 0, 0, 1], 0)))?
        };
        let (running, stopped) = tokio::sync::oneshot::channel::<()>();
        let closing = endpoint.clone();
        std::thread::spawn(move || {
            driving.block_on(async {
                // The sender never sends: it is dropped.
                let _dropped = stopped.await;
                // A sidecar that does not take the close in time finds out by itself.
                let _elapsed = tokio::time::timeout(Duration::from_secs(1), closing.wait_idle()).await;
            });
        });
        let (connection, control) = runtime.block_on(within(async {
            let connecting = endpoint.connect_with(config, address, "capd").map_err(io::Error::other)?;
            let connection = connecting.await?;
            let control = connection.open_bi().await?;
            Ok::<_, io::Error>((connection, control))
        }))?;
        Ok(Self { connection, streams: vec![control], current: 0, runtime, _running: running })
    }

    fn use_exchange_stream(&mut self) -> io::Result<()> {
        let opened = self.runtime.block_on(within(self.connection.open_bi()))?;
        self.streams.push(opened);
        self.current = self.streams.len() - 1;
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let stream = &mut self.streams[self.current].0;
        Ok(self.runtime.block_on(within(stream.write_all(bytes)))?)
    }

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<()> {
        let stream = &mut self.streams[self.current].1;
        self.runtime.block_on(within(stream.read_exact(buffer))).map_err(io::Error::other)
    }
}

impl Drop for Quic {
    fn drop(&mut self) {
        self.connection.close(0u32.into(), b"");
    }
}

async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.unwrap_or_else(|_| panic!("nothing came within {PATIENCE:?}"))
}
