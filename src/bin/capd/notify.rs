//! Tells the service manager, such as systemd, that the sidecar is ready, alive, or stopping.
//!
//! The protocol is that of sd_notify(3): datagrams to the socket that `NOTIFY_SOCKET` names. No message waits: a manager
//! that does not read must not stop the sidecar, whose one thread sends them.

use std::env;
use std::ffi::OsStr;
use std::future::pending;
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::process;
use std::time::Duration;

use tokio::time::sleep;

/// The service manager that started this process, if one did.
pub(super) struct Manager {
    socket: Option<UnixDatagram>,
    /// How often it must hear that the process lives.
    watchdog: Option<Duration>,
}

impl Manager {
    /// The one that the environment names; none where it names none, or one that cannot be reached.
    pub(super) fn of_environment() -> Self {
        let socket = env::var_os("NOTIFY_SOCKET").and_then(|name| {
            let failed = |error: &io::Error| {
                tracing::warn!(%error, socket = ?name, "NOTIFY_SOCKET cannot be used: the service manager hears nothing");
            };
            connect(&name).inspect_err(failed).ok()
        });
        let number = |name| env::var(name).ok().and_then(|text| text.parse::<u64>().ok());
        let is_ours = number("WATCHDOG_PID").is_none_or(|pid| pid == u64::from(process::id()));
        let watchdog = number("WATCHDOG_USEC").filter(|us| is_ours && *us > 0).map(Duration::from_micros);
        Self { socket, watchdog }
    }

    /// Everything listens.
    pub(super) fn ready(&self) {
        self.send("READY=1");
    }

    /// The sidecar drains and will end.
    pub(super) fn stopping(&self) {
        self.send("STOPPING=1");
    }

    /// Says that the process lives, twice as often as it must, for as long as the future is polled.
    pub(super) async fn stay_alive(&self) {
        let Some(watchdog) = self.watchdog else { return pending().await };
        loop {
            self.send("WATCHDOG=1");
            sleep(watchdog / 2).await;
        }
    }

    fn send(&self, state: &str) {
        if let Some(socket) = &self.socket {
            // A manager that does not read loses what it is told; there is nobody else to tell.
            let _sent = socket.send(state.as_bytes());
        }
    }
}

fn connect(name: &OsStr) -> io::Result<UnixDatagram> {
    let address = match name.as_bytes() {
        [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest)?,
        _ => SocketAddr::from_pathname(name)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.set_nonblocking(true)?;
    socket.connect_addr(&address)?;
    Ok(socket)
}
