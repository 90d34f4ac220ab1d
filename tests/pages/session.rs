//! The shell of a reader who types a page's commands one after the other, in a home where nothing is yet.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process, kill_process_group, test_kill_process};

use crate::support::PATIENCE;

/// The line that ends the output of a command, before its exit code.
const END: &str = "--- the end of a command of a page:";

/// A shell, and what it runs. Whatever is left when it is dropped is killed.
pub(super) struct Session {
    shell: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    /// What a page calls by another name: how the page writes it, and how it is.
    names: [(&'static str, String); 3],
    running: Vec<Running>,
    commands: usize,
    root: tempfile::TempDir,
}

/// A command that runs until it is ended.
struct Running {
    pid: Pid,
    command: String,
    output: PathBuf,
}

impl Session {
    pub(super) fn start() -> Self {
        let root = tempfile::tempdir().unwrap();
        let [home, tmp, commands] = ["home", "tmp", "commands"].map(|name| root.path().join(name));
        for dir in [&home, &tmp, &commands] {
            std::fs::create_dir(dir).unwrap();
        }
        for folder in ["examples", "sdk"] {
            let folder_here = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
            std::os::unix::fs::symlink(folder_here, home.join(folder)).unwrap();
        }
        // Its progress is for a terminal, and a page shows what a reader's terminal shows at the end.
        std::fs::write(home.join(".curlrc"), "no-progress-meter\n").unwrap();
        let mut shell = shell(&home, &tmp).spawn().unwrap();
        let stdout = BufReader::new(shell.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            // It ends with the shell, or with the session that no longer listens.
            let _ = stdout.lines().map_while(Result::ok).try_for_each(|line| sender.send(line));
        });
        let text = |path: &Path| path.to_str().unwrap().to_owned();
        Self {
            stdin: shell.stdin.take(),
            names: [("127.0.0.1", address()), ("/home/you", text(&home)), ("/tmp", text(&tmp))],
            running: Vec::new(),
            commands: 0,
            shell,
            lines,
            root,
        }
    }

    /// Runs a command to its end. Returns what it printed, and its exit code. **Errors:** it does not end.
    pub(super) fn run(&mut self, command: &str) -> Result<(String, i32), String> {
        self.run_with(command, "")
    }

    /// Runs a command to its end, with these lines as its input.
    pub(super) fn run_with(&mut self, command: &str, input: &str) -> Result<(String, i32), String> {
        let input = self.input(input);
        let script = self.script(command);
        // The file is read in the shell itself, so that variables, and the code of the last command, stay.
        let (printed, code) = self.tell(&format!(
            ". '{}' <'{}'; session_code=$?; printf '\\n%s%d\\n' '{END}' $session_code; (exit $session_code)",
            script.display(),
            input.display()
        ))?;
        Ok((self.as_in_page(&printed), code))
    }

    /// Begins a command, and waits until `is_ready` takes what it has printed. Then ends it if `is_ended`.
    pub(super) fn begin(
        &mut self,
        (command, input): (&str, &str),
        is_ended: bool,
        mut is_ready: impl FnMut(&str) -> Result<(), String>,
    ) -> Result<(), String> {
        let input = self.input(input);
        let script = self.script(&format!("exec {command}"));
        let output = script.with_extension("output");
        let (_, pid) = self.tell(&format!(
            "( . '{}' ) <'{}' >'{}' 2>&1 & printf '\\n%s%d\\n' '{END}' $!",
            script.display(),
            input.display(),
            output.display()
        ))?;
        let pid = Pid::from_raw(pid).expect("a shell tells the id of what it began");
        let running = Running { pid, command: command.to_owned(), output: output.clone() };
        self.running.push(running);
        let deadline = Instant::now() + PATIENCE;
        loop {
            let has_ended = test_kill_process(pid).is_err();
            // The shell opens the file when it begins the command.
            let printed = self.as_in_page(&std::fs::read_to_string(&output).unwrap_or_default());
            match is_ready(&printed) {
                Ok(()) => break,
                Err(failure) if has_ended => {
                    self.running.pop();
                    return Err(format!("it ended\n{failure}"));
                }
                Err(failure) if Instant::now() > deadline => return Err(failure),
                Err(_) => std::thread::sleep(Duration::from_millis(10)),
            }
        }
        if is_ended { self.interrupt() } else { Ok(()) }
    }

    /// Ends what was begun, the last first, as a reader does with Ctrl-C, and then the shell. **Errors:** what did not
    /// end well.
    pub(super) fn end(mut self) -> Result<(), String> {
        while !self.running.is_empty() {
            self.interrupt()?;
        }
        // What the page began with `&`.
        self.run("for job in $(jobs -p); do kill -TERM $job; done; wait")?;
        self.stdin = None;
        self.shell.wait().map(drop).map_err(|error| error.to_string())
    }

    fn interrupt(&mut self) -> Result<(), String> {
        let Some(Running { pid, command, output }) = self.running.pop() else { return Ok(()) };
        // It may have ended; its exit code tells.
        let _ = kill_process(pid, Signal::INT);
        match self.run(&format!("wait {}", pid.as_raw_nonzero()))? {
            (_, 0 | 130) => Ok(()),
            (_, code) => {
                let printed = self.as_in_page(&std::fs::read_to_string(output).unwrap_or_default());
                Err(format!("Ctrl-C: {command}: it ended with exit code {code} and printed\n{printed}"))
            }
        }
    }

    /// Has the shell run a line that prints the mark of an end. Returns what came before it, and the number behind it.
    fn tell(&mut self, line: &str) -> Result<(String, i32), String> {
        let stdin = self.stdin.as_mut().expect("only the end of the session takes it");
        writeln!(stdin, "{line}").map_err(|error| format!("the shell is gone: {error}"))?;
        let deadline = Instant::now() + PATIENCE;
        let mut printed = String::new();
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok(line) => match line.strip_prefix(END) {
                    Some(number) => return Ok((printed, number.parse().unwrap())),
                    None => printed += &format!("{line}\n"),
                },
                Err(error) => return Err(format!("it does not end ({error}); it has printed\n{printed}")),
            }
        }
    }

    /// What a command reads: nothing, or a file with these lines.
    fn input(&self, text: &str) -> PathBuf {
        if text.is_empty() {
            return PathBuf::from("/dev/null");
        }
        let path = self.root.path().join("commands").join(format!("{}.input", self.commands + 1));
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Writes a command with this session's names into a file of its own.
    fn script(&mut self, command: &str) -> PathBuf {
        let names = self.names.iter();
        let command = names.fold(command.to_owned(), |text, (page, real)| text.replace(page, real));
        self.commands += 1;
        let path = self.root.path().join("commands").join(self.commands.to_string());
        std::fs::write(&path, format!("{command}\n")).unwrap();
        path
    }

    fn as_in_page(&self, printed: &str) -> String {
        self.names.iter().fold(printed.to_owned(), |text, (page, real)| text.replace(real, page))
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // No job control, so all that it began is of its group.
        let _all_ended_already = kill_process_group(Pid::from_child(&self.shell), Signal::KILL);
        let _ended_already = self.shell.wait();
    }
}

fn shell(home: &Path, tmp: &Path) -> Command {
    use std::os::unix::process::CommandExt as _;
    let binaries = Path::new(env!("CARGO_BIN_EXE_capctl")).parent().unwrap();
    let path = std::env::var_os("PATH").unwrap();
    let dirs = std::iter::once(binaries.to_owned()).chain(std::env::split_paths(&path));
    let mut shell = Command::new("bash");
    shell.args(["--noprofile", "--norc", "-c", "exec 2>&1 bash --noprofile --norc"]);
    shell.env_clear().env("PATH", std::env::join_paths(dirs).unwrap());
    shell.env("HOME", home).env("TMPDIR", tmp).env("LANG", "C.UTF-8").current_dir(home);
    // The Python SDK counts as installed.
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR")).join("sdk/python/src");
    shell.env("PYTHONPATH", sdk).env("PYTHONDONTWRITEBYTECODE", "1");
    if rustix::process::geteuid().is_root() {
        // Pages are for readers who are not root.
        shell.env("CAPD_PROCESS__ALLOW_ROOT", "on");
    }
    shell.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::inherit()).process_group(0);
    shell
}

/// Whether the shell finds a program.
pub(super) fn has_program(name: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Joined to a folder, an absolute path stays as it is.
    std::env::split_paths(&path).any(|dir| dir.join(name).is_file())
}

/// An address on loopback that no other session has, so that the ports which pages name are free.
fn address() -> String {
    static SESSIONS: AtomicU16 = AtomicU16::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    format!("127.{}.{high}.{low}", SESSIONS.fetch_add(1, Ordering::Relaxed))
}
