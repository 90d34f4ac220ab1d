//! A subject in; the processes that carry its calls, what they are asked, and their CPU time, out.

use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_setaffinity};
use tempfile::TempDir;

use crate::load::{Load, Round};
use crate::role::Ready;
use crate::subject::host;

/// The processes of one subject; they end with it.
#[derive(Debug)]
pub(crate) struct World {
    /// The caller first, then along the way of a call.
    pub(crate) processes: Vec<Process>,
    /// Where the caller's sidecar takes agents, if it has one.
    pub(crate) socket: Option<PathBuf>,
    /// Their sockets, certificates and state.
    pub(crate) files: TempDir,
}

impl World {
    /// One round of calls.
    pub(crate) fn round(&mut self, load: &Load) -> Round {
        self.processes[0].begin(load);
        self.processes[0].end(load)
    }

    /// One round of the second caller.
    pub(crate) fn second_round(&mut self, load: &Load) -> Round {
        let second = self.processes.last_mut().expect("there are processes");
        second.begin(load);
        second.end(load)
    }

    /// A round of the caller, and beside it one of the second caller.
    pub(crate) fn rounds_beside(&mut self, load: &Load, second: &Load) -> [Round; 2] {
        let last = self.processes.len() - 1;
        self.processes[0].begin(load);
        self.processes[last].begin(second);
        let beside = self.processes[last].end(second);
        [self.processes[0].end(load), beside]
    }

    /// CPU time of each process so far, in microseconds.
    pub(crate) fn cpu_us(&self) -> Vec<f64> {
        self.processes.iter().map(|process| cpu_us(process.pid)).collect()
    }

    /// Resident memory of each process, and from here on its most, which [`World::peak_bytes`] tells.
    pub(crate) fn resident_bytes(&self) -> Vec<f64> {
        // proc_pid_clear_refs(5): 5 sets the most to what is resident.
        let forget = |process: &Process| std::fs::write(format!("/proc/{}/clear_refs", process.pid), "5");
        self.processes.iter().for_each(|process| forget(process).unwrap());
        self.processes.iter().map(|process| status_bytes(process.pid, "VmRSS:")).collect()
    }

    /// Memory of each process, of what several share a part each. **Units:** bytes.
    pub(crate) fn pss_bytes(&self) -> Vec<f64> {
        self.processes.iter().map(|process| entry_bytes(process.pid, "smaps_rollup", "Pss:")).collect()
    }

    /// Holds each host's processes to a core of the host's own.
    pub(crate) fn place(&self) {
        self.processes.iter().for_each(Process::place);
    }

    /// The most resident memory of each process since [`World::resident_bytes`].
    pub(crate) fn peak_bytes(&self) -> Vec<f64> {
        self.processes.iter().map(|process| status_bytes(process.pid, "VmHWM:")).collect()
    }
}

/// A process that says a line when it is ready, and ends when its standard input does.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) name: &'static str,
    /// The process whose CPU time counts: this one, or one that it runs.
    pid: u32,
    child: Child,
    stdin: Option<ChildStdin>,
    lines: mpsc::Receiver<String>,
}

impl Process {
    /// Starts `command` and waits for its first line, which goes along.
    pub(crate) fn start(name: &'static str, mut command: Command) -> (Self, String) {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{name}, {}: {error}", command.get_program().display()));
        let stdout = BufReader::new(child.stdout.take().expect("it is piped"));
        let (sender, lines) = mpsc::sync_channel(LINES_MAX);
        std::thread::spawn(move || {
            for line in stdout.lines() {
                let Ok(line) = line else { return };
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let process = Self { name, pid: child.id(), stdin: child.stdin.take(), child, lines };
        let line = process.line(PATIENCE);
        (process, line)
    }

    /// Starts this program in a role, its arguments after it; and where it is reached.
    pub(crate) fn role(name: &'static str, args: &[&dyn AsRef<OsStr>]) -> (Self, String) {
        Self::program(name, Command::new(std::env::current_exe().unwrap()), args)
    }

    /// Starts any program that says where it is reached as a role of this one does.
    pub(crate) fn program(
        name: &'static str,
        mut command: Command,
        args: &[&dyn AsRef<OsStr>],
    ) -> (Self, String) {
        command.args(args.iter().map(|arg| arg.as_ref()));
        let (mut process, line) = Self::start(name, command);
        let ready: Ready =
            serde_json::from_str(&line).unwrap_or_else(|error| panic!("{name}: {line:?}: {error}"));
        process.pid = ready.pid;
        (process, ready.address)
    }

    /// Holds all its threads to the core of its host; threads to come inherit that.
    fn place(&self) {
        let Some(core) = host(self.name) else { return };
        let mut cores = CpuSet::new();
        cores.set(core);
        for thread in std::fs::read_dir(format!("/proc/{}/task", self.pid)).unwrap() {
            let thread = thread.unwrap().file_name().into_string().unwrap().parse().unwrap();
            sched_setaffinity(Pid::from_raw(thread), &cores).unwrap();
        }
    }

    /// Says a line, and hears one.
    pub(crate) fn ask(&mut self, line: &str) -> String {
        self.say(line);
        self.line(PATIENCE)
    }

    /// Begins a round of a caller.
    pub(crate) fn begin(&mut self, load: &Load) {
        self.say(&serde_json::to_string(load).unwrap());
    }

    /// Waits until it has ended.
    pub(crate) fn end(&mut self, load: &Load) -> Round {
        let answer = self.line(PATIENCE + Duration::from_millis(load.warm_up_ms() + load.ms));
        serde_json::from_str(&answer).unwrap_or_else(|error| panic!("{}: {answer:?}: {error}", self.name))
    }

    fn say(&mut self, line: &str) {
        writeln!(self.stdin.as_mut().expect("open until it is dropped"), "{line}").unwrap();
    }

    fn line(&self, patience: Duration) -> String {
        let line = self.lines.recv_timeout(patience);
        line.unwrap_or_else(|error| panic!("{} says nothing: {error}", self.name))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // Most have nothing to bring in order and end at once; a sidecar would wait for its calls.
        let deadline = Instant::now() + LEAVE;
        while matches!(self.child.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The machine's busy time from a moment on, to tell what others had of it.
#[derive(Debug)]
pub(crate) struct Machine {
    begin: Instant,
    busy_us: f64,
}

impl Machine {
    pub(crate) fn watch() -> Self {
        Self { begin: Instant::now(), busy_us: busy_us() }
    }

    /// The part of all cores' time since then that went to neither these processes, which had `ours_us`, nor to nobody.
    pub(crate) fn others(&self, ours_us: f64) -> f64 {
        let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        (busy_us() - self.busy_us - ours_us) / (self.begin.elapsed().as_secs_f64() * 1e6 * cores)
    }
}

/// proc_stat(5): what all cores did but idle and wait for the disk, time stolen from a virtual machine included.
fn busy_us() -> f64 {
    let Ok(stat) = std::fs::read_to_string("/proc/stat") else { return f64::NAN };
    let line = stat.lines().next().unwrap_or_default();
    let ticks = line.split_whitespace().skip(1).map(|tick| tick.parse::<f64>().unwrap());
    let busy = ticks.enumerate().filter(|(at, _)| ![3, 4].contains(at) && *at < 8);
    busy.map(|(_, ticks)| ticks).sum::<f64>() * TICK_US
}

/// User and system time from `/proc`; nothing where there is none.
fn cpu_us(pid: u32) -> f64 {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return f64::NAN };
    // proc_pid_stat(5): the name in parentheses may hold anything; utime and stime are fields 14 and 15.
    let after = stat.rsplit(')').next().unwrap_or_default();
    let fields = after.split_whitespace().skip(11).take(2).map(|field| field.parse::<f64>().unwrap());
    fields.sum::<f64>() * TICK_US
}

/// An entry of proc_pid_status(5) that counts in KiB.
fn status_bytes(pid: u32, entry: &str) -> f64 {
    entry_bytes(pid, "status", entry)
}

fn entry_bytes(pid: u32, file: &str, entry: &str) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap();
    let words = |line: &str| line.strip_prefix(entry)?.split_whitespace().next()?.parse::<f64>().ok();
    text.lines().find_map(words).expect("every process has it") * 1_024.0
}

/// A program's file, if it is installed.
pub(crate) fn installed(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(name)).find(|file| Path::is_file(file))
}

/// Longest wait for what should come at once.
const PATIENCE: Duration = Duration::from_secs(60);
/// Time for a process to end by itself.
const LEAVE: Duration = Duration::from_millis(500);
/// Lines that a process may be ahead.
const LINES_MAX: usize = 16;
/// proc_pid_stat(5): clock ticks of 1/100 s on every Linux that is built as usual.
const TICK_US: f64 = 10_000.0;
