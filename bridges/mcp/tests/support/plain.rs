//! A plain client of a real SDK, which calls the scripted server without capd, and calls again when an attempt fails: what the protocol
//! tells clients to do.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;

use serde_json::Value;

use super::importing::Script;
use super::{PATIENCE, eventually, scripted};

/// The variable with the client's command, without the server's.
pub const COMMAND: &str = "CAPD_PLAIN_CLIENT";

/// A running client; it and its server are killed when dropped.
pub struct Plain {
    child: Child,
    lines: mpsc::Receiver<Value>,
}

/// What happens to a call while it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    Nothing,
    ServerKilled,
    ClientKilled,
}

impl Plain {
    /// Starts a client of the script's server; none where no client is named.
    pub fn start(script: &Script) -> Option<Self> {
        let command = std::env::var(COMMAND).ok()?;
        let mut words = command.split(' ');
        let mut command = Command::new(words.next()?);
        command.args(words).args(scripted::command("scripted_server"));
        command.env(scripted::FOLDER, script.folder.path()).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        let (out, lines) = mpsc::sync_channel(16);
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                if out.send(serde_json::from_str(&line).unwrap()).is_err() {
                    return;
                }
            }
        });
        Some(Self { child, lines })
    }

    fn attempt(&mut self, key: &str) {
        // A client that was killed reads nothing.
        let _ = writeln!(self.child.stdin.as_mut().unwrap(), "{key}");
    }

    /// Calls until an attempt succeeds; the first one meets `hit`, `pause_us` after it was begun.
    pub fn round(mut self, script: &Script, key: &str, hit: Hit, pause_us: u64) -> Self {
        self.attempt(key);
        std::thread::sleep(std::time::Duration::from_micros(pause_us));
        match hit {
            Hit::Nothing => {}
            Hit::ServerKilled => kill(&script.read("pid")),
            Hit::ClientKilled => {
                self.kill();
                self = Self::start(script).unwrap();
                self.attempt(key);
            }
        }
        for _ in 0..ATTEMPTS_MAX {
            let said = self.lines.recv_timeout(PATIENCE).expect("an attempt ends");
            if said["ok"] == true {
                return self;
            }
            script.set("mode", "");
            self.attempt(key);
        }
        panic!("no attempt succeeded")
    }

    fn kill(&mut self) {
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
    }
}

impl Drop for Plain {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Ends the script's server, which this test has started.
fn kill(pid: &str) {
    let _ended_already = Command::new("kill").args(["-9", pid.trim()]).stderr(Stdio::null()).status();
    let gone = || (!std::path::Path::new("/proc").join(pid.trim()).exists()).then_some(());
    eventually("the server is gone", gone);
}

const ATTEMPTS_MAX: usize = 10;
