//! `capd dev --fleet`, as a newcomer meets it: calls spread, a kill loses none, and Ctrl-C leaves nothing behind.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tempfile::TempDir;

use super::cell;

/// How many calls of a round each replica answered; all of them were.
fn answered(round: &Value) -> Vec<(&str, u64)> {
    assert_eq!(round["failed"], serde_json::json!({}), "{round}");
    let answered = round["answered"].as_object().unwrap();
    let answered: Vec<_> =
        answered.iter().map(|(name, count)| (name.as_str(), count.as_u64().unwrap())).collect();
    assert_eq!(answered.iter().map(|(_, count)| count).sum::<u64>(), round["calls"].as_u64().unwrap());
    answered
}

/// A `capd dev --fleet` with a temporary folder of its own, and what it said.
struct Fleet {
    process: Child,
    temporary: TempDir,
    said: Value,
}

impl Fleet {
    fn start(count: usize) -> Self {
        let etcd = std::env::var("CAPD_ETCD").unwrap();
        let temporary = tempfile::tempdir().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_capd"));
        command.args(["dev", "--json", "--fleet", &count.to_string(), "--etcd", &etcd]);
        // These are the tests'; a sidecar takes them for settings that it does not know.
        for name in ["CAPD_ETCD", "CAPD_ETCDCTL", "CAPD_FLEET_VIRTUAL"] {
            command.env_remove(name);
        }
        // The settings of an etcd that somebody else runs here are not this one's.
        command.env("ETCD_DATA_DIR", "/nowhere").env("TMPDIR", temporary.path());
        let mut process = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let said: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(said["sidecars"].as_array().unwrap().len(), count);
        Self { process, temporary, said }
    }

    fn rounds(&self) -> &[Value] {
        self.said["rounds"].as_array().unwrap()
    }

    /// As Ctrl-C ends it.
    fn interrupt(mut self) {
        kill_process(Pid::from_child(&self.process), Signal::INT).unwrap();
        assert!(self.process.wait().unwrap().success());
        assert_eq!(fs::read_dir(self.temporary.path()).unwrap().count(), 0, "files are left");
        self.is_gone();
    }

    /// Waits until no process is left.
    fn is_gone(&self) {
        let endpoint = self.said["etcd"]["endpoint"].as_str().unwrap().trim_start_matches("http://");
        cell::until("etcd has ended", || TcpStream::connect(endpoint).is_err());
        for sidecar in self.said["sidecars"].as_array().unwrap() {
            let socket = Path::new(sidecar["socket"].as_str().unwrap());
            cell::until("the sidecar has ended", || UnixStream::connect(socket).is_err());
        }
    }
}

impl Drop for Fleet {
    fn drop(&mut self) {
        let _ended_already = self.process.kill();
        let _ended_already = self.process.wait();
    }
}

#[test]
fn a_fleet_of_five_spreads_calls_and_loses_none_with_a_replica() {
    let fleet = Fleet::start(5);
    let killed = fleet.said["killed"].as_str().unwrap();
    let [before, during, after] = fleet.rounds() else { panic!("{}", fleet.said) };
    let idle = |round| -> Vec<_> {
        answered(round).into_iter().filter(|(_, count)| *count == 0).map(|(name, _)| name).collect()
    };
    // Three of four are linked; the fourth takes the place of the one that is killed.
    let spare = idle(before);
    assert!(spare.len() == 1 && spare[0] != killed, "{}", fleet.said);
    answered(during);
    assert_eq!(idle(after), [killed], "{}", fleet.said);
    fleet.interrupt();
}

#[test]
fn the_only_replica_of_a_fleet_of_two_is_started_again_beneath_the_calls() {
    let fleet = Fleet::start(2);
    let [before, during] = fleet.rounds() else { panic!("{}", fleet.said) };
    assert_eq!(answered(before), answered(during));
    fleet.interrupt();
}

#[test]
fn a_fleet_that_is_killed_leaves_no_process() {
    let mut fleet = Fleet::start(3);
    fleet.process.kill().unwrap();
    fleet.process.wait().unwrap();
    fleet.is_gone();
}
