//! Finds and runs etcd for `capd dev --fleet`: a program in; one that serves on loopback, and ends with us, out.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::net::SocketAddr;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStderr, Command};

use super::super::Failure;
use super::READY_TIMEOUT;

/// An etcd that can be started.
pub(super) struct Program {
    pub(super) path: PathBuf,
    pub(super) version: String,
}

impl Program {
    /// The one that is named, or else the first one of `PATH`.
    ///
    /// **Errors:** there is none, or it cannot be run.
    pub(super) fn find(named: Option<PathBuf>) -> Result<Self, Failure> {
        let path = match named {
            Some(path) => path,
            None => in_path(std::env::var_os("PATH")).ok_or_else(|| {
                Failure::runtime(
                    "capd dev --fleet: no folder of PATH has the program etcd; install it (Debian, Ubuntu: sudo \
                     apt-get install etcd-server), or unpack a release from \
                     https://github.com/etcd-io/etcd/releases and name the program with --etcd PATH",
                )
            })?,
        };
        let failed = |why: String| Failure::mistake(format!("--etcd {}: {why}", path.display()));
        let asked = std::process::Command::new(&path).arg("--version").stdin(Stdio::null()).output();
        let said = asked.map_err(|error| failed(error.to_string()))?.stdout;
        let said = String::from_utf8_lossy(&said);
        let version = said.lines().find_map(|line| line.strip_prefix("etcd Version: "));
        let version = version.ok_or_else(|| failed("it is no etcd: --version names none".to_owned()))?;
        Ok(Self { version: version.trim().to_owned(), path })
    }
}

fn in_path(folders: Option<OsString>) -> Option<PathBuf> {
    let is_program =
        |file: &PathBuf| file.metadata().is_ok_and(|of| of.is_file() && of.permissions().mode() & 0o111 != 0);
    std::env::split_paths(&folders?).map(|folder| folder.join("etcd")).find(is_program)
}

/// An etcd of ours.
pub(super) struct Etcd {
    /// A shell that ends etcd when its standard input does, however we end.
    guard: Child,
    pub(super) address: SocketAddr,
}

impl Etcd {
    /// Starts it in a folder of its own, with ports from the system, and waits until it serves.
    pub(super) async fn start(program: &Program, data: &Path) -> Result<Self, Failure> {
        let mut command = Command::new("sh");
        command.args(["-c", GUARD, "etcd"]).arg(&program.path).args(ARGUMENTS);
        command.arg(format!("--data-dir={}", data.display()));
        for (name, _) in std::env::vars_os().filter(|(name, _)| name.as_encoded_bytes().starts_with(b"ETCD_"))
        {
            command.env_remove(name);
        }
        // A group of its own: Ctrl-C ends the sidecars first.
        command.process_group(0).stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut guard = command.spawn().map_err(Failure::runtime)?;
        let stderr = guard.stderr.take().ok_or_else(|| Failure::runtime("etcd has no standard error"))?;
        let mut log = BufReader::new(stderr).lines();
        let address = tokio::time::timeout(READY_TIMEOUT, served(&mut log))
            .await
            .map_err(|_| Failure::runtime(format!("etcd did not serve within {READY_TIMEOUT:?}")))??;
        // A full pipe would stop it.
        tokio::spawn(async move { while let Ok(Some(_)) = log.next_line().await {} });
        Ok(Self { guard, address })
    }

    /// Ends it. What it knows is thrown away, so it need not write anything.
    pub(super) async fn stop(mut self) {
        drop(self.guard.stdin.take());
        let _ended = tokio::time::timeout(READY_TIMEOUT, self.guard.wait()).await;
    }
}

/// Reads the log until it says where clients are served.
async fn served(log: &mut Lines<BufReader<ChildStderr>>) -> Result<SocketAddr, Failure> {
    let mut last = VecDeque::new();
    while let Some(line) = log.next_line().await.map_err(Failure::runtime)? {
        if let Some(address) = address(&line) {
            return Ok(address);
        }
        last.push_back(line);
        if last.len() > LINES_SHOWN {
            last.pop_front();
        }
    }
    let said = Vec::from(last).join("\n");
    Err(Failure::runtime(format!("etcd ended before it served; it said at last:\n{said}")))
}

fn address(line: &str) -> Option<SocketAddr> {
    let is_it = line.contains("serving client traffic");
    let (_, rest) = line.split_once("\"address\":\"").filter(|_| is_it)?;
    rest.split('"').next()?.parse().ok()
}

/// Standard error is etcd's alone, so that its end is seen.
const GUARD: &str = r#""$@" </dev/null & exec 2>/dev/null; read -r _; kill -9 $!; wait $!"#;
/// It is the only member of its cluster, so the addresses that are no listeners are only names.
const ARGUMENTS: [&str; 7] = [
    "--listen-client-urls=http://127.0.0.1:0",
    "--advertise-client-urls=http://127.0.0.1:1",
    "--listen-peer-urls=http://127.0.0.1:0",
    "--initial-advertise-peer-urls=http://127.0.0.1:1",
    "--initial-cluster=default=http://127.0.0.1:1",
    "--logger=zap",
    "--log-level=info",
];
/// Lines of its log in an error.
const LINES_SHOWN: usize = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_that_of_the_line_which_says_that_clients_are_served() {
        let line = r#"{"level":"info","msg":"serving client traffic insecurely; this is strongly discouraged!","address":"127.0.0.1:37941"}"#;
        assert_eq!(address(line), Some(([127, 0, 0, 1], 37941).into()));
        assert_eq!(address(r#"{"msg":"serving peer traffic","address":"127.0.0.1:2380"}"#), None);
    }

    #[test]
    fn the_first_program_of_the_path_is_taken_and_a_file_that_is_none_is_not() {
        let home = tempfile::tempdir().unwrap();
        let folders: Vec<_> = ["a", "b", "c"].iter().map(|name| home.path().join(name)).collect();
        for (folder, mode) in folders.iter().zip([0o644, 0o755, 0o755]) {
            std::fs::create_dir(folder).unwrap();
            let file = folder.join("etcd");
            std::fs::write(&file, "").unwrap();
            std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        }
        let path = |folders: &[PathBuf]| std::env::join_paths(folders).ok();
        assert_eq!(in_path(path(&folders)), Some(folders[1].join("etcd")));
        assert_eq!(in_path(path(&folders[..1])), None);
        assert_eq!(in_path(None), None);
    }
}
