//! A configuration in, real processes and raw bytes out: what the integration tests stand on.
//!
//! [`Sidecar`] is a `capd` process of its own in a directory of its own. [`BytePeer`] speaks to it in bytes that it
//! makes itself, with none of the project's codecs, so that a test sees what is on the wire. Nothing here sleeps: it
//! waits for lines and bytes, each within [`PATIENCE`].

#![allow(dead_code, unused_imports, reason = "each test binary compiles this and uses a part of it")]
#![allow(unreachable_pub, missing_docs, reason = "it is no library: its callers stand beside it")]
#![allow(clippy::unwrap_used, reason = "these are tests, though not all of it stands in a test function")]
#![allow(clippy::disallowed_methods, reason = "real processes are waited for in real time")]

mod byte_peer;
mod sidecar;

use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

pub use byte_peer::{
    AMP_MESSAGE, BytePeer, Frame, HANDSHAKE, Message, PING, decode, encode, field, map, set,
};
pub use sidecar::{ALLOW_ALL, Setup, Sidecar};

/// Longest wait for anything that should come at once; only a failing test waits this long.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// A `capctl` that knows no sidecar but the one that `socket` names.
pub fn capctl(socket: Option<&Path>) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capctl"));
    command.env_clear().stdin(Stdio::null());
    if let Some(path) = std::env::var_os("PATH") {
        command.env("PATH", path);
    }
    if let Some(socket) = socket {
        command.env("CAPD_SOCKET", socket);
    }
    command
}

/// Runs `command` to its end with `input` on stdin.
pub fn run_with(command: &mut Command, input: &[u8]) -> Output {
    use std::io::Write as _;
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // A command that does not read its stdin may have closed it.
    let _ = child.stdin.take().unwrap().write_all(input);
    child.wait_with_output().unwrap()
}

/// stdout as text.
pub fn stdout(output: &Output) -> &str {
    std::str::from_utf8(&output.stdout).unwrap()
}

/// stderr as text.
pub fn stderr(output: &Output) -> &str {
    std::str::from_utf8(&output.stderr).unwrap()
}

/// The exit code; a process ended by a signal has none.
pub fn exit_code(output: &Output) -> i32 {
    output.status.code().unwrap_or_else(|| panic!("ended by a signal: {}", output.status))
}
