//! `capd init`, `capd pair` and `capctl policy grant`: two folders in, two sidecars that know and call each other out.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::UdpSocket;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Instant;

use crate::support::{PATIENCE, capctl, exit_code, run_with, stderr, stdout};

/// A capability of one's own.
const YAML: &str = "version: 1\nnamespace: com.example\ncapabilities:\n  - name: echo\n    command: [/bin/cat]\n    idempotent: true\n";

/// A folder in which a newcomer works.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_capd"));
        command.args(args).env_clear().env("HOME", self.0.path()).current_dir(self.0.path());
        if rustix::process::geteuid().is_root() {
            command.env("CAPD_PROCESS__ALLOW_ROOT", "on");
        }
        command
    }

    fn capd(&self, args: &[&str]) -> Output {
        run_with(&mut self.command(args), b"")
    }

    /// A sidecar's folder, which listens on a port that is free.
    fn init(&self, name: &str) -> String {
        let listen = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let made = self.capd(&["init", name, "--listen", &listen.to_string()]);
        assert_eq!(exit_code(&made), 0, "{}", stderr(&made));
        let did = stdout(&made).lines().find_map(|line| line.strip_prefix("DID   ")).unwrap();
        did.to_owned()
    }

    fn config(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name).join("capd.toml")).unwrap()
    }

    fn spawn(&self, args: &[&str]) -> Running {
        let mut command = self.command(args);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        Running { child, output, seen: String::new() }
    }

    /// `capd pair` that waits, and the place that it tells the other side.
    fn waiting(&self, name: &str, more: &[&str]) -> (Running, String) {
        let config = format!("{name}/capd.toml");
        let args = [&["pair", "--config", &config, "--listen", "127.0.0.1:0"], more].concat();
        let mut running = self.spawn(&args);
        let line = running.until("  capd pair ");
        let place = line.trim().strip_prefix("capd pair ").unwrap().split(' ').next().unwrap();
        (running, place.to_owned())
    }
}

/// A process that is ended when dropped.
struct Running {
    child: Child,
    output: BufReader<ChildStdout>,
    seen: String,
}

impl Running {
    /// The next line that contains `part`.
    fn until(&mut self, part: &str) -> String {
        loop {
            let mut line = String::new();
            let ended = self.output.read_line(&mut line).unwrap() == 0;
            self.seen += &line;
            if line.contains(part) {
                return line;
            }
            if ended {
                let errors = self.errors();
                panic!("it ended before it printed {part:?}: {}{errors}", self.seen);
            }
        }
    }

    fn answer(&mut self, text: &str) {
        self.child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    }

    fn errors(&mut self) -> String {
        let mut text = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut text).unwrap();
        text
    }

    /// Its exit code, and all that it printed.
    fn end(mut self) -> (i32, String, String) {
        let mut rest = String::new();
        self.output.read_to_string(&mut rest).unwrap();
        let errors = self.errors();
        let status = self.child.wait().unwrap();
        (status.code().unwrap(), std::mem::take(&mut self.seen) + &rest, errors)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ended_already = self.child.kill();
        let _ended_already = self.child.wait();
    }
}

fn ctl(home: &Home, args: &[&str]) -> Output {
    run_with(capctl(None).args(args).env("HOME", home.0.path()).current_dir(home.0.path()), b"")
}

/// What a command prints once it ends well.
#[track_caller]
fn eventually(home: &Home, args: &[&str], expected: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let output = ctl(home, args);
        if exit_code(&output) == 0 && stdout(&output).contains(expected) {
            return stdout(&output).to_owned();
        }
        assert!(Instant::now() < deadline, "{args:?}: {}{}", stdout(&output), stderr(&output));
        std::thread::yield_now();
    }
}

#[test]
fn init_writes_a_commented_file_that_runs_and_overwrites_nothing() {
    let home = Home::new();
    std::fs::create_dir(home.path("ann")).unwrap();
    std::fs::write(home.path("ann/capabilities.yaml"), YAML).unwrap();
    let did = home.init("ann");
    let text = home.config("ann");
    assert!(
        text.contains("name = \"ann\"") && text.contains("\ncapabilities = \"capabilities.yaml\""),
        "{text}"
    );
    let checked = home.capd(&["config", "check", "--config", "ann/capd.toml"]);
    assert_eq!(exit_code(&checked), 0, "{}", stderr(&checked));
    let known = home.capd(&["id", "--config", "ann/capd.toml"]);
    assert_eq!(stdout(&known).trim(), did);
    let again = home.capd(&["init", "ann"]);
    assert_eq!(exit_code(&again), 2);
    assert!(stderr(&again).contains("ann/capd.toml exists"), "{}", stderr(&again));
    assert_eq!(home.config("ann"), text);
    let named = home.capd(&["init", "--name", "not a name", "bob"]);
    assert_eq!(exit_code(&named), 2, "{}", stderr(&named));
    assert!(!home.path("bob/capd.toml").exists(), "a mistake leaves no file");
    let odd = home.capd(&["init", "it's ün"]);
    assert_eq!(exit_code(&odd), 0, "{}", stderr(&odd));
    assert!(stdout(&odd).contains(r"capd run --config 'it'\''s ün/capd.toml'"), "{}", stdout(&odd));
    assert!(home.config("it's ün").contains("name = \"it-s--n\""), "{}", home.config("it's ün"));
}

/// A sidecar reads its files, and then listens: whoever changes a file in between finds no socket that takes a reload.
#[test]
fn a_peer_that_is_paired_while_a_sidecar_starts_is_admitted() {
    let home = Home::new();
    let (ann, _) = (home.init("ann"), home.init("bob"));
    let text = home.config("bob") + "\n[policy]\nfiles = [\"rules.cedar\"]\n";
    std::fs::write(home.path("bob/capd.toml"), text).unwrap();
    let rules = home.path("bob/rules.cedar");
    let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
    rustix::fs::mknodat(rustix::fs::CWD, &rules, rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let mut sidecar = home.spawn(&["run", "--announce", "--config", "bob/capd.toml"]);
    // Opening it to write waits until somebody reads: the sidecar, which has read capd.toml by then.
    let mut read_by = std::fs::File::options().write(true).open(&rules).unwrap();
    std::fs::remove_file(&rules).unwrap();
    std::fs::write(&rules, "").unwrap();

    let (waiting, place) = home.waiting("ann", &["--yes"]);
    let dialled = home.capd(&["pair", &place, "--config", "bob/capd.toml", "--yes"]);
    assert_eq!(exit_code(&dialled), 0, "{}{}", stdout(&dialled), stderr(&dialled));
    assert!(stdout(&dialled).contains("the sidecar does not run; it admits ann once it does"), "{dialled:?}");
    assert_eq!(waiting.end().0, 0);

    read_by.write_all(b"\n").unwrap();
    drop(read_by);
    sidecar.until("\"did\"");
    let peers = ctl(&home, &["--socket", "bob/state/capd.sock", "ls", "--peers", "--wide"]);
    assert!(stdout(&peers).contains(&ann), "{}{}", stdout(&peers), stderr(&peers));
}

#[test]
fn two_sidecars_pair_and_one_calls_the_other_after_one_grant() {
    let home = Home::new();
    std::fs::create_dir(home.path("ann")).unwrap();
    std::fs::write(home.path("ann/capabilities.yaml"), YAML).unwrap();
    let (ann, bob) = (home.init("ann"), home.init("bob"));
    let run = |name: &str| home.spawn(&["run", "--announce", "--config", &format!("{name}/capd.toml")]);
    let mut sidecars = [run("ann"), run("bob")];
    for sidecar in &mut sidecars {
        sidecar.until("\"did\"");
    }
    let (waiting, place) = home.waiting("ann", &["--yes"]);
    let dialled = home.capd(&["pair", &place, "--config", "bob/capd.toml", "--yes"]);
    assert_eq!(exit_code(&dialled), 0, "{}{}", stdout(&dialled), stderr(&dialled));
    let (code, waited, errors) = waiting.end();
    assert_eq!((code, errors.as_str()), (0, ""), "{waited}");
    for shown in [stdout(&dialled), &waited] {
        assert!(shown.contains(&ann) && shown.contains(&bob), "{shown}");
        assert!(shown.contains("the running sidecar admits"), "{shown}");
    }
    let (of_ann, of_bob) = (home.config("ann"), home.config("bob"));
    assert!(
        of_ann.contains(&format!("name = \"bob\"\ndid = \"{bob}\"\naddresses = [\"quic://127.0.0.1:")),
        "{of_ann}"
    );
    assert!(
        of_bob.contains(&format!("name = \"ann\"\ndid = \"{ann}\"\naddresses = [\"quic://127.0.0.1:")),
        "{of_bob}"
    );
    assert!(of_bob.ends_with("serves = [\"com.example.*\"]\n"), "{of_bob}");
    assert!(
        of_ann.contains("# The configuration of a sidecar.") && !of_ann.contains("\n[[allow]]"),
        "{of_ann}"
    );

    let call = ["--socket", "bob/state/capd.sock", "call", "com.example.echo", "--params", "{\"a\": 1}"];
    let refused = ctl(&home, &[&call[..], &["--timeout", "5s"]].concat());
    assert_ne!(exit_code(&refused), 0, "nothing is granted yet");
    let granted = ctl(&home, &["policy", "grant", "bob", "com.example.echo", "--config", "ann/capd.toml"]);
    assert_eq!(exit_code(&granted), 0, "{}", stderr(&granted));
    assert!(stdout(&granted).starts_with("granted: bob com.example.echo"), "{}", stdout(&granted));
    eventually(&home, &call, "\"a\": 1");
    let misspelled = ["bob", "com.example.ehco", "--config", "ann/capd.toml"];
    let granted = ctl(&home, &[&["policy", "grant"], &misspelled[..]].concat());
    assert_eq!(
        (exit_code(&granted), stderr(&granted)),
        (0, "nobody serves com.example.ehco here yet; did you mean \"com.example.echo\"?\n")
    );
    assert_eq!(exit_code(&ctl(&home, &[&["policy", "revoke"], &misspelled[..]].concat())), 0);
    peers_are_called_by_their_names(&home, (&ann, &bob));
    let revoked = ctl(&home, &["policy", "revoke", "bob", "com.example.echo", "--config", "ann/capd.toml"]);
    assert_eq!(exit_code(&revoked), 0, "{}", stderr(&revoked));
    assert_eq!(home.config("ann"), of_ann, "the file is as it was before the grant");
    assert_ne!(exit_code(&ctl(&home, &[&call[..], &["--timeout", "5s"]].concat())), 0);
}

/// `bob` calls its peer `ann`, and has called it.
fn peers_are_called_by_their_names(home: &Home, (ann, bob): (&str, &str)) {
    let of = |name: &str, args: &[&str]| {
        let socket = format!("{name}/state/capd.sock");
        ctl(home, &[&["--socket", &socket], args].concat())
    };
    let shown = |name: &str, args: &[&str]| {
        let output = of(name, args);
        assert_eq!(exit_code(&output), 0, "{args:?}: {}", stderr(&output));
        stdout(&output).to_owned()
    };
    let echo = "com.example.echo";
    for args in [
        &["ls"][..],
        &["ls", "--peers"],
        &["query", echo],
        &["describe", "com.example.echo:1.0.0"],
        &["ping", "Ann"],
        &["doctor", "--config", "bob/capd.toml"],
        &["diff", "ann/com.example.echo:1.0.0", "com.example.echo:1.0.0"],
    ] {
        let text = shown("bob", args);
        assert!(!text.contains(ann), "{args:?}: {text}");
        let wide = shown("bob", &[args, &["--wide"]].concat());
        if args[0] != "diff" {
            assert!(text.contains("ann") && wide.contains(ann), "{args:?}: {text}{wide}");
            assert!(shown("bob", &[args, &["--json"]].concat()).contains(ann), "{args:?}");
        }
    }
    assert!(shown("bob", &["query", "com.example.*", "--to", "ann"]).contains(echo));
    let calls = shown("ann", &["calls"]);
    assert!(calls.contains("  bob\n") && !calls.contains(bob), "{calls}");
    assert!(shown("ann", &["calls", "--wide"]).contains(bob));
    assert!(shown("ann", &["audit", "query", "--peer", "bob"]).lines().all(|line| !line.contains(bob)));
    assert!(shown("ann", &["policy", "why", "bob", echo]).contains("allowed"));
    let call = ["call", echo, "--params", "1", "--to"];
    assert_eq!(shown("bob", &[&call[..], &["ann"]].concat()), "1\n");
    let unknown = of("bob", &[&call[..], &["anne"]].concat());
    assert_eq!(exit_code(&unknown), 3);
    assert!(stderr(&unknown).contains("did you mean \"ann\"?"), "{}", stderr(&unknown));
    assert!(
        stderr(&unknown).contains("\"anne\" is neither a DID nor the name of a peer"),
        "{}",
        stderr(&unknown)
    );
}

#[test]
fn nothing_is_written_when_one_owner_says_no() {
    let home = Home::new();
    home.init("ann");
    home.init("bob");
    let before = (home.config("ann"), home.config("bob"));
    for (of_ann, of_bob) in [("y\n", "n\n"), ("no\n", "yes\n"), ("", "y\n")] {
        let (mut waiting, place) = home.waiting("ann", &[]);
        let mut dialling = home.spawn(&["pair", &place, "--config", "bob/capd.toml"]);
        waiting.answer(of_ann);
        dialling.answer(of_bob);
        let ((one, shown, errors), (other, ..)) = (waiting.end(), dialling.end());
        assert_eq!((one, other), (1, 1), "{shown}{errors}");
        assert!(errors.contains("nothing was written"), "{errors}");
    }
    assert_eq!((home.config("ann"), home.config("bob")), before);
}

#[test]
fn whoever_waits_learns_that_the_other_owner_said_no() {
    let home = Home::new();
    home.init("ann");
    home.init("bob");
    for _ in 0..5 {
        let (mut waiting, place) = home.waiting("ann", &["--yes"]);
        let mut dialling = home.spawn(&["pair", &place, "--config", "bob/capd.toml"]);
        // This side has agreed by then, and the other has not read that when it says no.
        waiting.until("waiting for the other side to agree");
        dialling.answer("n\n");
        let ((_, _, errors), (_, _, declined)) = (waiting.end(), dialling.end());
        assert!(errors.contains("the other side declined; nothing was written"), "{errors}");
        assert!(errors.contains("run `capd pair` here again"), "{errors}");
        assert!(declined.contains("you declined; nothing was written"), "{declined}");
    }
}

#[test]
fn a_wrong_or_used_or_expired_code_says_what_to_do() {
    let home = Home::new();
    home.init("ann");
    home.init("bob");
    let before = (home.config("ann"), home.config("bob"));
    let (waiting, place) = home.waiting("ann", &["--yes"]);
    let (_, at) = place.split_once('@').unwrap();
    for tries_left in [2, 1, 0] {
        let wrong = home.capd(&["pair", &format!("0000-0000@{at}"), "--config", "bob/capd.toml", "--yes"]);
        assert_eq!(exit_code(&wrong), 1, "{tries_left}");
        assert!(stderr(&wrong).contains("the code does not match"), "{}", stderr(&wrong));
        assert!(stderr(&wrong).contains("run `capd pair` on the other machine again"), "{}", stderr(&wrong));
    }
    let (code, _, errors) = waiting.end();
    assert_eq!(code, 1);
    for said in ["; 2 tries are left", "; 1 try is left", "said\ncapd: 3 wrong codes came"] {
        assert!(errors.contains(said), "{errors}");
    }
    // The code is made here, so here is where to make another.
    assert!(errors.contains("void; run `capd pair` here again for a new code"), "{errors}");
    let void = home.capd(&["pair", &place, "--config", "bob/capd.toml", "--yes"]);
    assert_eq!(exit_code(&void), 1);
    assert!(stderr(&void).contains("is `capd pair` still waiting there"), "{}", stderr(&void));
    let (waiting, _) = home.waiting("ann", &["--yes", "--valid", "1"]);
    let (code, shown, errors) = waiting.end();
    assert!(shown.contains("Within 1 second,") && code == 1, "{shown}");
    assert!(errors.contains("the code has expired; run `capd pair` here again"), "{errors}");
    assert_eq!((home.config("ann"), home.config("bob")), before);
    let typed = home.capd(&["pair", "7Q2K@host", "--config", "bob/capd.toml"]);
    assert_eq!(exit_code(&typed), 2);
    assert!(stderr(&typed).contains("a code has eight letters and digits"), "{}", stderr(&typed));
}

#[test]
fn a_peer_never_takes_a_name_or_a_namespace_that_is_another_s() {
    let home = Home::new();
    for name in ["ann", "bob"] {
        std::fs::create_dir(home.path(name)).unwrap();
        std::fs::write(home.path(name).join("capabilities.yaml"), YAML).unwrap();
    }
    home.init("ann");
    home.init("bob");
    let eve = home.init("eve");
    let pair = |from: &str, to: &str, more: &[&str]| {
        let (waiting, place) = home.waiting(from, &["--yes"]);
        let config = format!("{to}/capd.toml");
        let dialled = home.capd(&[&["pair", &place, "--config", &config, "--yes"], more].concat());
        assert_eq!(exit_code(&dialled), 0, "{}", stderr(&dialled));
        let (code, shown, errors) = waiting.end();
        assert_eq!(code, 0, "{shown}{errors}");
        stderr(&dialled).to_owned()
    };
    pair("ann", "eve", &[]);
    // Another one that calls itself the same, and offers the same.
    let text = home.config("bob").replace("name = \"bob\"", "name = \"ANN\"");
    std::fs::write(home.path("bob/capd.toml"), text).unwrap();
    let note = pair("bob", "eve", &[]);
    assert!(note.contains("com.example.* is offered, but ann serves it"), "{note}");
    let text = home.config("eve");
    assert!(text.contains("name = \"ann\"") && text.contains("name = \"ANN-2\""), "{text}");
    assert_eq!(text.matches("serves = [\"com.example.*\"]").count(), 1, "{text}");
    // Paired again, it is the same peer.
    pair("ann", "eve", &["--name", "first", "--serves", "com.example.echo"]);
    let text = home.config("eve");
    assert_eq!(text.matches("\n[[peers]]\n").count(), 2, "{text}");
    assert!(text.contains("name = \"first\"") && text.contains("serves = [\"com.example.echo\"]"), "{text}");
    assert!(!eve.is_empty());
}

#[test]
fn a_grant_names_a_peer_that_is_there() {
    let home = Home::new();
    home.init("ann");
    let text = home.config("ann")
        + "[[peers]]\nname = \"bob\"\ndid = \"did:key:z6MktyTewFWmHLrvbwhGR1iR1X5ov4LbrNKarzahnF8AGz2P\"\n";
    std::fs::write(home.path("ann/capd.toml"), &text).unwrap();
    let policy = |args: &[&str]| ctl(&home, &[&["policy"], args, &["--config", "ann/capd.toml"]].concat());
    for (name, hint) in [("bbo", "did you mean \"bob\"?"), ("eve", "its peers: bob")] {
        let unknown = policy(&["grant", name, "com.example.echo"]);
        let said = stderr(&unknown);
        assert_eq!(exit_code(&unknown), 3, "{said}");
        assert!(said.contains(&format!("{name:?} is no peer")) && said.contains(hint), "{said}");
    }
    let granted = policy(&["grant", "BOB", "com.example.*", "--permission", "db:read"]);
    assert_eq!(exit_code(&granted), 0, "{}", stderr(&granted));
    assert!(stderr(&granted).contains("the sidecar does not run"), "{}", stderr(&granted));
    let with = home.config("ann");
    assert!(
        with.starts_with(&text)
            && with.contains("]  # bob\n")
            && with.contains("permissions = [\"db:read\"]"),
        "{with}"
    );
    let again = policy(&["grant", "bob", "com.example.*", "--permission", "db:read"]);
    assert!(stdout(&again).contains("already"), "{}", stdout(&again));
    assert_eq!(exit_code(&policy(&["grant", "bob", "com example"])), 2);
    assert_eq!(exit_code(&policy(&["revoke", "bob", "com.example.*"])), 0);
    assert_eq!(home.config("ann"), text);
    let nobody = ctl(&home, &["policy", "grant", "bob", "org.a.b"]);
    assert!(stderr(&nobody).contains("--config FILE"), "{}", stderr(&nobody));
    // A sidecar that runs says which file that is.
    let mut sidecar = home.command(&["run", "--config", "ann/capd.toml"]);
    let sidecar = sidecar.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let _sidecar = Ended(sidecar);
    let socket = "ann/state/capd.sock";
    eventually(&home, &["--socket", socket, "id"], "did:key:");
    let granted = ctl(&home, &["--socket", socket, "policy", "grant", "bob", "org.a.b"]);
    assert_eq!(exit_code(&granted), 0, "{}", stderr(&granted));
    assert!(home.config("ann").contains("capabilities = [\"org.a.b\"]"), "{}", home.config("ann"));
    let revoked = ctl(&home, &["--socket", socket, "policy", "revoke", "bob", "org.a.b"]);
    assert_eq!(exit_code(&revoked), 0, "{}", stderr(&revoked));
    assert_eq!(home.config("ann"), text);
}

/// A process that is ended when dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ended_already = self.0.kill();
        let _ended_already = self.0.wait();
    }
}

#[test]
fn a_key_that_needs_a_restart_keeps_a_running_sidecar_as_it_was_and_is_named() {
    let home = Home::new();
    home.init("ann");
    home.init("bob");
    let mut sidecar = home.spawn(&["run", "--announce", "--config", "ann/capd.toml"]);
    sidecar.until("\"did\"");
    let text = home.config("ann").replace("[listen]\n", "[listen]\nhealth = \"127.0.0.1:1\"\n");
    std::fs::write(home.path("ann/capd.toml"), text).unwrap();
    let (waiting, place) = home.waiting("ann", &["--yes"]);
    let dialled = home.capd(&["pair", &place, "--config", "bob/capd.toml", "--yes"]);
    assert!(stdout(&dialled).contains("the sidecar does not run; it admits ann once it does"));
    let (code, shown, errors) = waiting.end();
    assert_eq!(code, 0, "{shown}{errors}");
    assert!(errors.contains("listen.health can change only with a restart"), "{errors}");
    let granted = ctl(&home, &["policy", "grant", "bob", "com.example.echo", "--config", "ann/capd.toml"]);
    assert_eq!(exit_code(&granted), 1, "{}", stdout(&granted));
    assert!(
        stderr(&granted).contains("listen.health can change only with a restart"),
        "{}",
        stderr(&granted)
    );
    assert!(home.config("ann").contains("[[allow]]"), "the file is written");
}

#[test]
fn whoever_speaks_another_protocol_is_told_and_waited_on_no_longer() {
    let home = Home::new();
    home.init("ann");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let at = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut length = [0; 4];
        stream.read_exact(&mut length).unwrap();
        // Unread bytes would reset the connection before its answer arrives.
        stream.read_exact(&mut vec![0; u32::from_be_bytes(length) as usize]).unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
    });
    let dialled = home.capd(&["pair", &format!("7Q2K-9XHD@{at}"), "--config", "ann/capd.toml", "--yes"]);
    server.join().unwrap();
    assert_eq!(exit_code(&dialled), 1);
    assert!(stderr(&dialled).contains("does not speak capd's pairing"), "{}", stderr(&dialled));
    assert!(Path::new(&home.path("ann/capd.toml")).exists());
}
