//! Accepts and makes local links, between an agent and its own sidecar: unix and loopback connections (PROTOCOL 1).
//!
//! The mode of a unix socket admits its owner only. Loopback TCP admits everyone who knows the token.

use std::fmt;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixListener as StdUnixListener;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use capd_proto::code::Code;
use capd_proto::frame::{self, ErrorFrame, FrameType};
use capd_proto::limits::PROOF_BYTES;
use capd_proto::link::Role;
use ring::hmac;
use sha2::{Digest, Sha256};
use socket2::{Domain, SockAddr, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::unix::UCred;
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};
use tracing::{debug, warn};

use super::close::{CloseReason, Fault};
use super::dial::ConnectError;
use super::driver::{self, Opening};
use super::greeting::End;
use super::half_open::CROWDED;
use super::host::{Host, Permits};
use super::http;
use super::link::{Kind, Link};
use super::meter::Limit;
use super::socket;
use super::wire::Sender;
use crate::kin::{Kin, kin};

/// The secret of loopback TCP links; never printed.
#[derive(Clone)]
pub struct Token(Vec<u8>);

impl Token {
    /// A token of these bytes.
    pub fn new(bytes: impl Into<Vec<u8>>) -> Self {
        Self(bytes.into())
    }

    /// That whoever is at the end `role` knows the token, for the nonces of the client and of the server.
    ///
    /// **Shape:** HMAC-SHA-256 of the end's label, the other end's nonce and its own. Each has a length of its own, so no
    /// two proofs are for the same bytes. **Source:** PROTOCOL 4.
    pub(super) fn prove(&self, role: Role, nonces: &Nonces) -> [u8; PROOF_BYTES] {
        let tag = hmac::sign(&self.key(), &nonces.proven_by(role));
        // HMAC-SHA-256 has 32 bytes.
        tag.as_ref().try_into().unwrap_or([0; PROOF_BYTES])
    }

    /// Whether the end `role` has proven that it knows the token, in a time that does not tell how much of it is right.
    pub(super) fn is_proven(&self, role: Role, nonces: &Nonces, proof: &[u8; PROOF_BYTES]) -> bool {
        hmac::verify(&self.key(), &nonces.proven_by(role), proof).is_ok()
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Compares `shown` with this token in constant time.
    pub fn is(&self, shown: &[u8]) -> bool {
        // Digests have one length and differ anywhere, so comparing all their bytes tells nothing about the token.
        let (ours, theirs) = (Sha256::digest(&self.0), Sha256::digest(shown));
        let difference = ours.iter().zip(theirs.iter()).fold(0, |difference, (a, b)| difference | (a ^ b));
        std::hint::black_box(difference) == 0
    }
}

/// What both ends of a link chose anew for it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nonces {
    pub(super) client: [u8; PROOF_BYTES],
    pub(super) server: [u8; PROOF_BYTES],
}

impl Nonces {
    /// What the end `role` proves the token for.
    fn proven_by(&self, role: Role) -> Vec<u8> {
        match role {
            Role::Server => [SERVER_LABEL, &self.client, &self.server].concat(),
            Role::Client => [CLIENT_LABEL, &self.server, &self.client].concat(),
        }
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Accepts links of the agent at the unix socket `path` until the host shuts down.
///
/// The socket has mode 0600 from its first moment. A socket file that nobody listens on is replaced; the file is
/// removed at the end.
///
/// **Errors:** another process already listens there, the path is not a socket, or the system refuses.
pub fn listen_unix(host: &Arc<Host>, path: &Path) -> io::Result<()> {
    let (listener, file) = bind_unix(path)?;
    let host = Arc::clone(host);
    let tasks = host.tasks.clone();
    tasks.spawn(async move {
        let _file = file;
        let mut refusals = Refusals::default();
        let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
        while let Some((stream, _)) = driver::accept(&host, || listener.accept()).await {
            let peer = stream.peer_cred().ok();
            if host.settings().starts_commands && peer.is_none_or(is_command) {
                refusals.refuse(peer.and_then(|peer| peer.pid()), stream);
                continue;
            }
            let permits = match host.local_permits().await {
                Ok(permits) => permits,
                Err(limit) => {
                    turn_away(&host, stream, limit, &turned_away);
                    continue;
                }
            };
            let deadline = Instant::now() + host.settings().handshake_timeout;
            let remote =
                peer.and_then(|peer| peer.pid()).map_or_else(String::new, |pid| format!(" pid {pid}"));
            let end = End::local(Kind::LocalUnix, format!("unix{remote}"));
            http::sort(&host, stream, end, permits, deadline, &turned_away);
        }
    });
    Ok(())
}

/// Whether a process that connected is a command of this one, or was started by one: it may be neither the agent nor speak
/// for it.
fn is_command(peer: UCred) -> bool {
    let Some(pid) = peer.pid().filter(|pid| *pid != 0) else {
        // A process that this one cannot see is none that it started.
        return false;
    };
    match kin(pid) {
        Kin::Descendant => true,
        Kin::Other => false,
        // Of other users, some systems show only root that they are there. Commands of an ordinary user are its own.
        Kin::Gone => {
            rustix::process::geteuid().is_root() || peer.uid() == rustix::process::geteuid().as_raw()
        }
    }
}

/// Counts and tells of local links that commands tried to open.
#[derive(Default)]
struct Refusals(u64);

impl Refusals {
    fn refuse(&mut self, pid: Option<i32>, stream: UnixStream) {
        self.0 += 1;
        // A command that tries without end must not fill the log.
        if self.0.is_power_of_two() {
            warn!(pid, count = self.0, "refused a local link: a command of this sidecar is not its agent");
        }
        let mut payload = Vec::new();
        let message = "commands of this sidecar are not its agent".into();
        ErrorFrame { code: u64::from(Code::UNAUTHORIZED.0), message, msg_id: None }.encode(&mut payload);
        let mut frame = Vec::new();
        if frame::encode(FrameType::Error, &payload, &mut frame).is_ok()
            && let Ok(mut stream) = stream.into_std()
        {
            // Whoever does not take it learns by the end of the stream.
            let _told = stream.write(&frame);
        }
    }
}

/// Accepts links of the agent at loopback `address` from everyone who knows `token`, until the host shuts down; returns
/// the bound address.
///
/// **Errors:** the address is not loopback or cannot be bound, or the token is empty.
pub async fn listen_tcp(host: &Arc<Host>, address: SocketAddr, token: Token) -> io::Result<SocketAddr> {
    if !address.ip().is_loopback() {
        // PROTOCOL 4: TLS is required except on loopback and unix sockets.
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!("{address} is not a loopback address"),
        ));
    }
    if token.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "an empty token protects nothing"));
    }
    let listener = TcpListener::bind(address).await?;
    let bound = listener.local_addr()?;
    let host = Arc::clone(host);
    let tasks = host.tasks.clone();
    tasks.spawn(async move {
        let turned_away = Arc::new(Semaphore::new(TURNED_AWAY_MAX));
        while let Some((stream, remote)) = driver::accept(&host, || listener.accept()).await {
            let permits = match host.local_permits().await {
                Ok(permits) => permits,
                Err(limit) => {
                    turn_away(&host, stream, limit, &turned_away);
                    continue;
                }
            };
            let deadline = Instant::now() + host.settings().handshake_timeout;
            // The option only saves time; a socket that is already gone shows that when it is read.
            let _unset = stream.set_nodelay(true);
            let end = End::loopback(remote, token.clone());
            http::sort(&host, stream, end, permits, deadline, &turned_away);
        }
    });
    Ok(bound)
}

/// Accepts one link of the agent over a byte stream, such as a pipe within this process: the holder of the other end is
/// the agent.
pub fn serve_stream<S>(host: &Arc<Host>, stream: S)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let Ok(permits) = host.stream_permits() else {
        debug!("the limit of links is reached");
        return;
    };
    let deadline = Instant::now() + host.settings().handshake_timeout;
    let end = End::local(Kind::LocalUnix, STREAM.to_owned());
    serve(host, opening(Role::Server, end, tokio::io::split(stream), deadline, Some(permits)));
}

/// Opens a link to the sidecar over a byte stream whose other end is with [`serve_stream`].
///
/// **Errors:** [`ConnectError`].
pub async fn connect_stream<S>(host: &Arc<Host>, stream: S) -> Result<Arc<Link>, ConnectError>
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    let deadline = Instant::now() + host.settings().handshake_timeout;
    let end = End::local(Kind::LocalUnix, STREAM.to_owned());
    Ok(driver::open(host, opening(Role::Client, end, tokio::io::split(stream), deadline, None)).await?)
}

/// Opens a link to the sidecar at the unix socket `path`, which this user or root must own, unless `any_owner` allows
/// anybody.
///
/// **Errors:** [`ConnectError`]; nothing is sent to another user's socket.
pub async fn connect_unix(host: &Arc<Host>, path: &Path, any_owner: bool) -> Result<Arc<Link>, ConnectError> {
    let deadline = Instant::now() + host.settings().handshake_timeout;
    let stream = timeout_at(deadline, UnixStream::connect(path))
        .await
        .map_err(|_elapsed| CloseReason::OpenTimedOut)??;
    // Of whoever listens, whatever has become of the path since.
    let (owner, own) = (stream.peer_cred()?.uid(), rustix::process::geteuid().as_raw());
    if !any_owner && ![own, 0].contains(&owner) {
        return Err(ConnectError::Owner { owner, own });
    }
    let end = End::local(Kind::LocalUnix, path.display().to_string());
    let halves = socket::split(stream.into_std()?)?;
    Ok(driver::open(host, opening(Role::Client, end, halves, deadline, None)).await?)
}

/// Opens a link to the sidecar at loopback `address`, after both sides prove that they know `token`, which is not sent.
/// **Errors:** [`ConnectError`].
pub async fn connect_tcp(
    host: &Arc<Host>,
    address: SocketAddr,
    token: Token,
) -> Result<Arc<Link>, ConnectError> {
    let deadline = Instant::now() + host.settings().handshake_timeout;
    let stream = timeout_at(deadline, TcpStream::connect(address))
        .await
        .map_err(|_elapsed| CloseReason::OpenTimedOut)??;
    stream.set_nodelay(true)?;
    let nonce = host.system.random.bytes().map_err(io::Error::other)?;
    let end = End { nonce: Some(nonce), ..End::loopback(address, token) };
    let halves = socket::split(stream.into_std()?)?;
    Ok(driver::open(host, opening(Role::Client, end, halves, deadline, None)).await?)
}

pub(super) fn opening<R, W>(
    role: Role,
    end: End,
    (receive, send): (R, W),
    deadline: Instant,
    permits: Option<Permits>,
) -> Opening
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let (receive, send) = (Box::new(receive), Sender::Bytes(Box::new(send)));
    Opening { role, end, receive, send, connection: None, permits, deadline }
}

/// Tells somebody who connected that there is no place, and why, unless too many are being told.
pub(super) fn turn_away<S>(host: &Host, mut stream: S, limit: Limit, turned_away: &Arc<Semaphore>)
where
    S: AsyncRead + AsyncWrite + Send + Unpin + 'static,
{
    debug!(?limit, "the limit of local links is reached");
    let Ok(permit) = Arc::clone(turned_away).try_acquire_owned() else { return };
    let what = match limit {
        Limit::Links => "has reached limits.links_max local links",
        _ => CROWDED,
    };
    let Fault { code, message } = Fault::crowded(what);
    let mut error = Vec::new();
    ErrorFrame { code: u64::from(code.0), message: message.into(), msg_id: None }.encode(&mut error);
    let mut bytes = Vec::new();
    if frame::encode(FrameType::Error, &error, &mut bytes).is_err() {
        return;
    }
    host.tasks.spawn(async move {
        let _permit = permit;
        // Closed with what it said unread, the connection would be reset before it has read this; and what it said tells
        // whether it speaks HTTP.
        let mut said = [0; 1024];
        let read = timeout(TOLD_TIMEOUT, stream.read(&mut said)).await;
        let is_http = matches!(read, Ok(Ok(_))) && said[0].is_ascii_alphabetic();
        let told = if is_http { http::crowded(what) } else { bytes };
        let _gone = timeout(TOLD_TIMEOUT, stream.write_all(&told)).await;
    });
}

pub(super) fn serve(host: &Arc<Host>, opening: Opening) {
    let (host, tasks) = (Arc::clone(host), host.tasks.clone());
    tasks.spawn(async move {
        let remote = opening.end.remote.clone();
        if let Err(reason) = driver::open(&host, opening).await {
            debug!(%remote, %reason, "no link");
        }
    });
}

/// A bound socket's file, removed when dropped if it is still the same file.
struct SocketFile {
    path: PathBuf,
    identity: (u64, u64),
}

impl SocketFile {
    fn identity(path: &Path) -> io::Result<(u64, u64)> {
        std::fs::symlink_metadata(path).map(|file| (file.dev(), file.ino()))
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if Self::identity(&self.path).is_ok_and(|found| found == self.identity)
            && let Err(error) = std::fs::remove_file(&self.path)
        {
            warn!(path = %self.path.display(), %error, "the socket file stays");
        }
    }
}

fn bind_unix(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    remove_stale(path)?;
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The file that bind makes takes the socket's own mode, so it is never open to others, not even for a moment.
    rustix::fs::fchmod(&socket, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    socket.bind(&SockAddr::unix(path)?)?;
    let file = SocketFile { path: path.to_owned(), identity: SocketFile::identity(path)? };
    let mode = std::fs::symlink_metadata(path)?.mode() & 0o777;
    if mode & 0o077 != 0 {
        return Err(io::Error::other(format!(
            "the socket was created with mode {mode:03o}, which others may use"
        )));
    }
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    let listener = UnixListener::from_std(StdUnixListener::from(std::os::fd::OwnedFd::from(socket)))?;
    Ok((listener, file))
}

fn remove_stale(path: &Path) -> io::Result<()> {
    let found = match std::fs::symlink_metadata(path) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    if !found.file_type().is_socket() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            format!("{} is not a socket", path.display()),
        ));
    }
    match std::os::unix::net::UnixStream::connect(path) {
        Ok(_) => Err(io::Error::new(
            io::ErrorKind::AddrInUse,
            format!("another process listens on {}", path.display()),
        )),
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path),
        Err(error) => Err(error),
    }
}

/// What a proof begins with: each end's own, so that none can be sent back.
const SERVER_LABEL: &[u8] = b"capd token-proof server";
const CLIENT_LABEL: &[u8] = b"capd token-proof client";
/// What a byte stream without an address is called in logs.
const STREAM: &str = "stream";
/// Connections that are told at once that there is no place.
const TURNED_AWAY_MAX: usize = 16;
/// Longest wait for such a connection to speak.
const TOLD_TIMEOUT: Duration = Duration::from_secs(1);
/// Connections the system keeps waiting for us.
const BACKLOG: i32 = 128;
