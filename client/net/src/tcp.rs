//! Accepts and dials peer links over TCP: the frames of a link on one TLS byte stream (PROTOCOL 4, TCP binding).

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use capd_proto::identity::Did;
use capd_proto::link::Role;
use rustls::AlertDescription;
use rustls::pki_types::ServerName;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::{Instant, timeout_at};
use tokio_rustls::{TlsAcceptor, TlsConnector, TlsStream};
use tracing::debug;

use super::Refused;
use super::close::CloseReason;
use super::dial::ConnectError;
use super::driver::{self, Opening};
use super::greeting::End;
use super::host::{Host, Permits};
use super::link::{Kind, Link};
use super::meter::Limit;
use super::tls;
use super::wire::Sender;

/// Accepts links of peers at `address` until the host shuts down; returns the bound address.
///
/// **Errors:** the address cannot be bound, or the host has no identity.
pub async fn listen(host: &Arc<Host>, address: SocketAddr) -> io::Result<SocketAddr> {
    let acceptor = TlsAcceptor::from(host.credentials()?.server());
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    let host = Arc::clone(host);
    let tasks = host.tasks.clone();
    tasks.spawn(async move {
        while let Some((stream, remote)) = driver::accept(&host, || listener.accept()).await {
            let permits = match host.peer_permits(remote) {
                Ok(permits) => permits,
                Err(limit) => {
                    debug!(%remote, ?limit, "the limit of links is reached");
                    continue;
                }
            };
            let (host, acceptor) = (Arc::clone(&host), acceptor.clone());
            let tasks = host.tasks.clone();
            tasks.spawn(async move {
                let serving = serve(&host, acceptor, stream, remote, permits);
                // A link that is open by then drains by itself.
                if let Some(Err(reason)) = host.shutdown.run_until_cancelled(serving).await {
                    debug!(%remote, %reason, "no link");
                }
            });
        }
    });
    Ok(bound)
}

/// Opens a link to the peer at `address`, which must be `pin` when one is given.
///
/// **Errors:** [`ConnectError`]; nothing is left behind then.
pub async fn connect(
    host: &Arc<Host>,
    address: SocketAddr,
    pin: Option<&Did>,
) -> Result<Arc<Link>, ConnectError> {
    let deadline = Instant::now() + host.settings().handshake_timeout;
    let (config, pinned) = host.credentials()?.client(pin).map_err(io::Error::other)?;
    let connecting = async {
        let stream = TcpStream::connect(address).await?;
        prepare(&stream)?;
        let name = ServerName::IpAddress(address.ip().into());
        TlsConnector::from(config).connect(name, stream).await
    };
    let stream = match timeout_at(deadline, connecting).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return Err(ConnectError::of(error, pin, &pinned)),
        Err(_elapsed) => return Err(CloseReason::OpenTimedOut.into()),
    };
    let opening = opening(TlsStream::Client(stream), address, Role::Client, deadline, None)?;
    Ok(driver::open(host, opening).await?)
}

async fn serve(
    host: &Arc<Host>,
    acceptor: TlsAcceptor,
    stream: TcpStream,
    remote: SocketAddr,
    permits: Permits,
) -> Result<Arc<Link>, ConnectError> {
    let deadline = Instant::now() + host.settings().handshake_timeout;
    prepare(&stream)?;
    let stream = match timeout_at(deadline, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => {
            if is_other_wanted(&error) {
                let reason = CloseReason::other_wanted();
                host.service.on_refused(&Refused { peer: None, address: remote, reason: &reason });
            }
            return Err(error.into());
        }
        Err(_elapsed) => {
            host.meter.refused(Limit::HandshakeTime);
            return Err(CloseReason::OpenTimedOut.into());
        }
    };
    let opening = opening(TlsStream::Server(stream), remote, Role::Server, deadline, Some(permits))?;
    Ok(driver::open(host, opening).await?)
}

/// Whether the peer gave up on our certificate: it pins another identity.
fn is_other_wanted(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|inner| inner.downcast_ref());
    matches!(error, Some(rustls::Error::AlertReceived(AlertDescription::CertificateUnknown)))
}

/// Has frames leave at once, and few wait in the system: it takes megabytes otherwise, behind which a PING would stand.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    #[cfg(target_os = "linux")]
    socket2::SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES_MAX)?;
    Ok(())
}

fn opening(
    stream: TlsStream<TcpStream>,
    remote: SocketAddr,
    role: Role,
    deadline: Instant,
    permits: Option<Permits>,
) -> io::Result<Opening> {
    let (_, session) = stream.get_ref();
    let principal =
        tls::principal(session.peer_certificates().unwrap_or_default()).map_err(io::Error::other)?;
    let (receive, send) = tokio::io::split(stream);
    Ok(Opening {
        role,
        end: End::peer(Kind::PeerTcp, principal, remote),
        receive: Box::new(receive),
        send: Sender::Bytes(Box::new(send)),
        connection: None,
        permits,
        deadline,
    })
}

/// Bytes that the system takes of a connection beyond those that are on their way.
const UNSENT_BYTES_MAX: u32 = 128 * 1024;
