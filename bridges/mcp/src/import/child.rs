//! Runs the server's program: a command in; its streams, confined to the rights that were given, out.
//!
//! `capd confine` takes the rights away and becomes the command, as it does for the commands of a sidecar's own capabilities.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, geteuid, kill_process_group};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::time::timeout;

use crate::lines::{self, Line};
use crate::system::{OF_ROOT, SYSTEM};

/// How the server's program is started.
#[derive(Clone, Debug)]
pub struct Program {
    /// Its name and arguments.
    pub words: Vec<OsString>,
    /// What it may do, in the words of a declaration.
    pub permissions: Vec<String>,
    /// The program that confines it; without, it has the rights of this process.
    pub helper: Option<PathBuf>,
    /// What it never reaches: the sidecar's files, and what its owner approved.
    pub hidden: Vec<PathBuf>,
    /// Variables of our environment that it gets besides the usual ones.
    pub environment: Vec<String>,
}

/// A running server; ended with everything that it started when dropped.
pub struct Server {
    child: Child,
    group: Option<Pid>,
}

impl Program {
    /// Starts it.
    ///
    /// **Errors:** it is not found, or cannot be started.
    pub fn start(&self) -> io::Result<(Server, ChildStdout, ChildStdin)> {
        let mut command = self.command()?;
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mut child = command.kill_on_drop(true).spawn()?;
        let pipe = || io::Error::other("the process has no pipes");
        let output = child.stdout.take().ok_or_else(pipe)?;
        let input = child.stdin.take().ok_or_else(pipe)?;
        let complaints = child.stderr.take().ok_or_else(pipe)?;
        tokio::spawn(log_lines(complaints));
        let group = child.id().and_then(|id| i32::try_from(id).ok()).and_then(Pid::from_raw);
        Ok((Server { child, group }, output, input))
    }

    fn command(&self) -> io::Result<Command> {
        let (name, arguments) = self.words.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let path = std::env::var_os("PATH").unwrap_or_else(|| PATH_DEFAULT.into());
        let mut command = match &self.helper {
            None => Command::new(name),
            Some(helper) => {
                let file = find(name, &path).ok_or_else(|| {
                    io::Error::new(
                        io::ErrorKind::NotFound,
                        format!("{} is in no folder of PATH", name.display()),
                    )
                })?;
                let spec = self.confinement(&std::env::current_dir()?).to_string();
                let mut command = Command::new(helper);
                command.args(["confine", "--spec", &spec, "--"]).arg(file).arg(name);
                command
            }
        };
        command.args(arguments).env_clear().env("PATH", path);
        let named = self.environment.iter().map(String::as_str);
        for name in INHERITED.into_iter().chain(named) {
            if let Some(value) = std::env::var_os(name) {
                command.env(name, value);
            }
        }
        Ok(command)
    }

    /// What `capd confine` reads: what is left of the rights.
    fn confinement(&self, dir: &Path) -> Value {
        let has = |permission: &str| self.permissions.iter().any(|given| given == permission);
        let files = match (has("filesystem:read"), has("filesystem:write")) {
            (_, true) => "write",
            (true, false) => "read",
            (false, false) => "none",
        };
        let text = |path: &Path| path.to_str().map(str::to_owned);
        let readable: Vec<_> = SYSTEM
            .iter()
            .map(|path| (*path).to_owned())
            .chain(text(dir))
            .chain(self.helper.as_deref().and_then(text))
            .collect();
        let of_root = OF_ROOT.iter().filter(|_| geteuid().is_root()).map(PathBuf::from);
        let hidden = self.hidden.iter().cloned().chain(of_root);
        let hidden: Vec<_> = hidden.filter_map(|path| text(&path.canonicalize().unwrap_or(path))).collect();
        json!({
            "confinement": {
                "files": files,
                "sockets": {
                    "internet": has("network:read") || has("network:write"),
                    "unix": has("network:unix"),
                },
                "ground": {
                    "readable": readable,
                    "hidden": hidden,
                    "user": null,
                    "limits": {
                        // Programs in JavaScript reserve far more than they use.
                        "memory_bytes_max": 64_u64 << 30,
                        "file_bytes_max": 1_u64 << 30,
                        "open_files_max": 4_096,
                        "processes_max": null,
                    },
                },
            },
            "group": null,
        })
    }
}

impl Server {
    /// Lets it end after its input was closed, and ends what is left.
    pub async fn end(mut self) {
        if timeout(END_WAIT, self.child.wait()).await.is_err() {
            self.signal(Signal::TERM);
            let _ = timeout(END_WAIT, self.child.wait()).await;
        }
    }

    fn signal(&self, signal: Signal) {
        if let Some(group) = self.group {
            // Failing means that nobody is left in the group.
            let _ = kill_process_group(group, signal);
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

/// The program that confines: beside this one, or in PATH.
pub fn helper() -> Option<PathBuf> {
    let beside = std::env::current_exe().ok()?.with_file_name("capd");
    if beside.is_file() {
        return Some(beside);
    }
    find("capd".as_ref(), &std::env::var_os("PATH")?)
}

fn find(name: &std::ffi::OsStr, path: &std::ffi::OsStr) -> Option<PathBuf> {
    if Path::new(name).components().count() > 1 {
        return std::path::absolute(name).ok();
    }
    std::env::split_paths(path).map(|folder| folder.join(name)).find(|file| file.is_file())
}

/// Logs what the server complains of, line by line.
async fn log_lines(stream: impl AsyncRead + Unpin) {
    let mut stream = BufReader::new(stream);
    while let Ok(Some(line)) = lines::next(&mut stream, COMPLAINT_BYTES_MAX).await {
        match line {
            Line::Whole(line) => {
                tracing::info!(said = %String::from_utf8_lossy(&line), "the server's stderr")
            }
            Line::TooLong(bytes) => {
                tracing::info!(bytes, "a line of the server's stderr is too long to show")
            }
        }
    }
}

/// Variables that a server gets.
const INHERITED: [&str; 5] = ["HOME", "LANG", "TMPDIR", "USER", "TERM"];
const PATH_DEFAULT: &str = "/usr/local/bin:/usr/bin:/bin";
/// How long a server may take to end by itself.
const END_WAIT: Duration = Duration::from_secs(2);
const COMPLAINT_BYTES_MAX: usize = 8 * 1024;
