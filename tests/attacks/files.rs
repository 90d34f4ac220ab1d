//! Files that others may write, sockets of others, and declarations that lead out of their folder in; refusals out.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use crate::support::{PATIENCE, Setup, capctl, exit_code, run_with, stderr, stdout};

const DECLARATION: &str =
    "version: 1\nnamespace: org.example\ncapabilities:\n  - name: echo\n    command: [cat]\n";
const POLICY: &str = "permit (principal, action, resource);";

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// A folder that others can walk through, as `/etc` or `/srv` is; the folders of the tests are their owner's alone.
fn shared_folder() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    set_mode(dir.path(), 0o755);
    dir
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

/// Writes what a sidecar reads into `dir`, all of it its owner's alone to write; the configuration's path.
fn write(dir: &Path) -> std::path::PathBuf {
    let config = dir.join("capd.toml");
    let text = format!(
        "[agent]\ndir = {:?}\ncapabilities = \"capabilities.yaml\"\n[policy]\nfiles = [\"rules.cedar\"]\n",
        dir.join("state")
    );
    std::fs::create_dir(dir.join("state")).unwrap();
    for (name, text) in [("capd.toml", &*text), ("capabilities.yaml", DECLARATION), ("rules.cedar", POLICY)] {
        std::fs::write(dir.join(name), text).unwrap();
        set_mode(&dir.join(name), 0o644);
    }
    set_mode(&dir.join("state"), 0o700);
    config
}

/// Runs a sidecar until it is ready or says why it is not: its exit code, which one that is ready does not have, and its
/// words.
fn start(config: &Path, more: &[&str]) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_capd"));
    command.args(["run", "--announce", "--stop-with-stdin", "--config"]).arg(config).args(more);
    if is_root() {
        command.args(["--set", "process.allow_root=on"]);
    }
    // Standard input that ends at once stops a sidecar as soon as it is ready.
    let output = command.stdin(Stdio::null()).output().unwrap();
    let is_ready = stdout(&output).contains("\"did\"");
    ((!is_ready).then(|| exit_code(&output)), stderr(&output).to_owned())
}

#[test]
fn a_sidecar_does_not_start_on_files_that_others_may_write() {
    let dir = shared_folder();
    let config = write(dir.path());
    assert_eq!(start(&config, &[]).0, None, "{}", start(&config, &[]).1);
    for name in ["state", "capd.toml", "capabilities.yaml", "rules.cedar"] {
        let path = dir.path().join(name);
        let before = path.metadata().unwrap().mode();
        for more in [0o020, 0o002] {
            set_mode(&path, before | more);
            let (code, words) = start(&config, &[]);
            assert_eq!(code, Some(2), "{name} with {more:o}: {words}");
            let said = path.to_str().unwrap();
            assert!(words.contains(said) && words.contains("chmod go-w"), "{name}: {words}");
            assert_eq!(start(&config, &["--set", "agent.check_files=off"]).0, None, "{name}");
        }
        set_mode(&path, before);
    }
    // Whoever may write the folder may put other files in their place.
    set_mode(dir.path(), 0o777);
    let (code, words) = start(&config, &[]);
    assert_eq!(code, Some(2), "{words}");
    set_mode(dir.path(), 0o755);
    assert_eq!(start(&config, &[]).0, None);
}

#[test]
fn a_file_that_nobody_else_can_reach_may_have_any_mode() {
    let dir = tempfile::tempdir().unwrap();
    set_mode(dir.path(), 0o700);
    let config = write(dir.path());
    for name in ["capd.toml", "capabilities.yaml", "rules.cedar"] {
        set_mode(&dir.path().join(name), 0o666);
    }
    assert_eq!(start(&config, &[]).0, None, "{}", start(&config, &[]).1);
}

#[test]
fn a_sidecar_does_not_start_on_files_of_somebody_else() {
    if !is_root() {
        println!("not run: only root can give files away");
        return;
    }
    let dir = shared_folder();
    let config = write(dir.path());
    for name in ["state", "capd.toml", "capabilities.yaml", "rules.cedar"] {
        let path = dir.path().join(name);
        std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
        let (code, words) = start(&config, &[]);
        assert_eq!(code, Some(2), "{name}: {words}");
        assert!(words.contains(path.to_str().unwrap()) && words.contains("65534"), "{name}: {words}");
        std::os::unix::fs::chown(&path, Some(0), None).unwrap();
    }
    assert_eq!(start(&config, &[]).0, None);
}

#[test]
fn the_state_folder_is_made_for_its_owner_alone() {
    let dir = tempfile::tempdir().unwrap();
    let state = dir.path().join("made/for/state");
    for (command, more) in [("id", None), ("run", Some("--stop-with-stdin"))] {
        let mut capd = Command::new(env!("CARGO_BIN_EXE_capd"));
        capd.arg(command).args(more).args(["--set", &format!("agent.dir={}", state.display())]);
        let output = capd.stdin(Stdio::null()).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(state.metadata().unwrap().mode() & 0o777, 0o700, "{command}");
        std::fs::remove_dir_all(dir.path().join("made")).unwrap();
    }
}

#[test]
fn a_policy_that_others_may_write_by_now_is_not_reloaded() {
    let dir = shared_folder();
    let rules = dir.path().join("rules.cedar");
    std::fs::write(&rules, POLICY).unwrap();
    set_mode(&rules, 0o644);
    let sidecar = Setup::new().set("policy.files", rules.to_str().unwrap()).start();
    let reload = || run_with(capctl(Some(&sidecar.socket)).args(["policy", "reload"]), b"");
    assert_eq!(exit_code(&reload()), 0);
    set_mode(&rules, 0o666);
    let refused = reload();
    assert_ne!(exit_code(&refused), 0, "{}", stdout(&refused));
    assert!(sidecar.log().contains("chmod go-w"), "{}", sidecar.log());
}

/// Listens at a socket as another user would who was there first, and says what it was told.
const IMPOSTOR: &str = r#"
use Socket;
socket(my $s, PF_UNIX, SOCK_STREAM, 0) or die;
bind($s, sockaddr_un($ARGV[0])) or die $!;
chmod 0777, $ARGV[0];
listen($s, 5) or die;
$| = 1;
print "ready\n";
while (accept(my $c, $s)) { my $got = sysread($c, my $b, 65536); print defined $got && $got > 0 ? "heard $got\n" : "silence\n"; }
"#;

#[test]
fn capctl_says_nothing_to_a_socket_of_another_user() {
    if !is_root() || Command::new("setpriv").arg("--version").output().is_err() {
        println!("not run: a socket of another user takes root and setpriv");
        return;
    }
    let dir = shared_folder();
    set_mode(dir.path(), 0o777);
    let socket = dir.path().join("capd.sock");
    let mut impostor = Command::new("setpriv");
    impostor.args(["--reuid=65534", "--regid=65534", "--clear-groups", "perl", "-e", IMPOSTOR]).arg(&socket);
    let mut impostor = Killed(impostor.stdout(Stdio::piped()).spawn().unwrap());
    let (sender, heard) = std::sync::mpsc::sync_channel(8);
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(impostor.0.stdout.take().unwrap()));
    std::thread::spawn(move || lines.try_for_each(|line| sender.send(line.unwrap_or_default())));
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), "ready");
    let refused = run_with(capctl(Some(&socket)).arg("id"), b"");
    assert_eq!(exit_code(&refused), 3, "{}", stderr(&refused));
    let words = stderr(&refused);
    assert!(words.contains("65534") && words.contains("--any-owner"), "{words}");
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), "silence");
    let found = run_with(capctl(Some(&socket)).arg("doctor"), b"");
    assert_eq!(exit_code(&found), 3, "{}", stderr(&found));
    let line = stdout(&found).lines().find(|line| line.starts_with("failed")).unwrap();
    assert!(
        line.contains("65534") && line.contains("; to repair: to use it anyway, add --any-owner"),
        "{line}"
    );
    assert_eq!(heard.recv_timeout(PATIENCE).unwrap(), "silence");
    // Where that is meant, it is said.
    let mut meant = capctl(Some(&socket));
    meant.args(["--any-owner", "id"]).stdout(Stdio::null()).stderr(Stdio::null());
    let _meant = Killed(meant.spawn().unwrap());
    assert!(heard.recv_timeout(PATIENCE).unwrap().starts_with("heard "));
}

/// A process that ends with its test.
struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_declaration_takes_no_schema_from_outside_its_folder() {
    let outside = tempfile::tempdir().unwrap();
    let schema = outside.path().join("schema.json");
    std::fs::write(&schema, "{\"type\": \"object\"}").unwrap();
    let declaring = |name: &str| {
        format!(
            "version: 1\nnamespace: org.example\ncapabilities:\n  - name: echo\n    command: [cat]\n    \
             inputSchema: {{ $file: {name:?} }}\n"
        )
    };
    let absolute = schema.to_str().unwrap().to_owned();
    let mut up = "../".repeat(32);
    up.push_str(absolute.trim_start_matches('/'));
    let within = format!("schemas/{up}");
    for name in [absolute, up, within, "schemas/../../x.json".to_owned(), "..".to_owned()] {
        let setup = Setup::new().capabilities(&declaring(&name)).file("schemas/input.json", "{}");
        let refused = setup.refused_to_start();
        assert!(refused.contains("inputSchema.$file"), "{name}: {refused}");
        assert!(refused.contains("outside"), "{name}: {refused}");
    }
    for name in ["schemas/input.json", "./schemas/input.json"] {
        let setup = Setup::new().capabilities(&declaring(name));
        setup.file("schemas/input.json", "{\"type\": \"object\"}").start();
    }
}

#[test]
fn results_cannot_be_read_in_the_journal_once_their_time_is_over() {
    let secret = "the-result-that-nobody-shall-find-later";
    // Not idempotent, so its result is written down; long, so that it has pages of its own.
    let script = format!("perl -e 'print chr(34), q({secret}) x 1000, chr(34)'");
    let yaml = format!(
        "version: 1\nnamespace: org.example\ncapabilities:\n  - name: secret\n    command: [sh, -c, {script:?}]\n"
    );
    let sidecar = Setup::new().capabilities(&yaml).start();
    let files = || -> Vec<u8> {
        let read = |name: &str| std::fs::read(sidecar.dir.join("state").join(name)).unwrap_or_default();
        ["journal.db", "journal.db-wal"].iter().flat_map(|name| read(name)).collect()
    };
    let holds = |bytes: &[u8]| bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
    let mut call = capctl(Some(&sidecar.socket));
    call.args(["call", "org.example.secret", "--params", "{}", "--timeout", "2s", "--ttl", "3s"]);
    let called = run_with(&mut call, b"");
    assert_eq!(exit_code(&called), 0, "{}", stderr(&called));
    assert!(holds(&files()), "it is written down while it may be asked for");
    let deadline = std::time::Instant::now() + PATIENCE;
    while holds(&files()) {
        assert!(std::time::Instant::now() < deadline, "it is still there");
        std::thread::yield_now();
    }
}
