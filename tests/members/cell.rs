//! A cell with its authority in, setups of sidecars that are members of it out.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use capd_proto::fleet::Membership;
use capd_proto::identity::Identity;
use serde_json::Value;

use crate::support::{PATIENCE, Setup, Sidecar, capctl, exit_code, run_with, stderr, stdout};

/// A cell. The seed of its authority and of each member is one byte, so that tests can make the wrong ones as well.
pub struct Cell {
    pub name: &'static str,
    authority: Identity,
    pub dir: tempfile::TempDir,
    /// What all members are configured with: keys and values.
    settings: Vec<(String, String)>,
}

/// What a membership says besides whose it is.
pub struct Terms<'a> {
    pub serves: &'a [&'a str],
    /// From when to when, from now on. **Units:** seconds.
    pub from_s: i64,
    pub until_s: i64,
}

impl Default for Terms<'_> {
    fn default() -> Self {
        Self { serves: &[], from_s: -60, until_s: 3_600 }
    }
}

impl Cell {
    /// A cell without a registry.
    pub fn alone(name: &'static str, authority: u8) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o700)).unwrap();
        Self { name, authority: Identity::from_seed([authority; 32]), dir, settings: Vec::new() }
    }

    /// A cell with a registry in a file.
    pub fn in_file() -> Self {
        let cell = Self::alone("test", 200);
        let file = cell.file().display().to_string();
        cell.with("fleet.file", &file)
    }

    /// A cell whose members are configured with this as well.
    pub fn with(mut self, key: &str, value: &str) -> Self {
        self.settings.push((key.to_owned(), value.to_owned()));
        self
    }

    /// The file of [`Cell::in_file`].
    pub fn file(&self) -> PathBuf {
        self.dir.path().join("fleet.db")
    }

    /// A member that may serve these names.
    pub fn member(&self, seed: u8, serves: &[&str]) -> Setup {
        self.member_on(seed, &Terms { serves, ..Terms::default() })
    }

    pub fn member_on(&self, seed: u8, terms: &Terms<'_>) -> Setup {
        let identity = Identity::from_seed([seed; 32]);
        self.setup(seed, &self.membership(&identity, terms))
    }

    /// A sidecar with this identity that shows these bytes as its membership.
    pub fn setup(&self, seed: u8, membership: &[u8]) -> Setup {
        let key = self.dir.path().join(format!("key-{seed}"));
        write_private(&key, &digits([seed; 32]));
        let file = self.membership_file(seed);
        write_private(&file, &BASE64_STANDARD.encode(membership));
        let setup = Setup::new()
            .set("peer.admit", "listed")
            .set("peer.serves", "")
            .set("agent.key_file", key.to_str().unwrap())
            .set("fleet.cell", self.name)
            .set("fleet.authority", self.authority.did().as_str())
            .set("fleet.membership", file.to_str().unwrap())
            .set("fleet.ttl_ms", "2000");
        self.settings.iter().fold(setup, |setup, (key, value)| setup.set(key, value))
    }

    pub fn membership(&self, identity: &Identity, terms: &Terms<'_>) -> Vec<u8> {
        let at = |seconds: i64| now_ms().saturating_add_signed(seconds * 1_000);
        let membership = Membership {
            agent: identity.public_key().into(),
            cell: self.name.parse().unwrap(),
            serves: terms.serves.iter().map(|pattern| pattern.parse().unwrap()).collect(),
            not_before_ms: at(terms.from_s),
            not_after_ms: at(terms.until_s),
            serial: now_ms(),
        };
        membership.sign(&self.authority).unwrap()
    }

    /// Gives a member another membership, for its next start.
    pub fn renew(&self, seed: u8) {
        let membership = self.membership(&Identity::from_seed([seed; 32]), &Terms::default());
        write_private(&self.membership_file(seed), &BASE64_STANDARD.encode(membership));
    }

    /// Waits until a sidecar is registered, or is not.
    #[track_caller]
    pub fn until_registered(sidecar: &Sidecar, is_registered: bool) {
        let what = format!("registered: {is_registered}");
        until(&what, || sidecar.metric("capd_fleet_registered") == u64::from(is_registered));
    }

    /// Waits until a provider runs a call.
    #[track_caller]
    pub fn until_executing(provider: &Sidecar) {
        until("the slow call runs", || provider.metric("capd_calls_in_flight{role=\"executor\"}") == 1);
    }

    fn membership_file(&self, seed: u8) -> PathBuf {
        self.dir.path().join(format!("membership-{seed}"))
    }

    /// Ends the memberships that a member has, as the owner of the authority does it.
    pub fn revoke(&self, seed: u8) {
        let key = self.dir.path().join("authority.key");
        write_private(&key, &digits([200; 32]));
        let did = Identity::from_seed([seed; 32]).did().to_string();
        let mut command = capctl(None);
        command.args(["fleet", "revoke", &did, "--cell", self.name, "--authority", key.to_str().unwrap()]);
        let output = run_with(command.args(["--file", self.file().to_str().unwrap()]), b"");
        assert_eq!(exit_code(&output), 0, "{}", stderr(&output));
    }
}

fn digits(seed: [u8; 32]) -> String {
    seed.iter().fold(String::new(), |mut digits, byte| {
        write!(digits, "{byte:02x}").unwrap();
        digits
    })
}

fn write_private(path: &Path, text: &str) {
    fs::write(path, format!("{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).unwrap();
}

fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as u64
}

/// A declaration of idempotent capabilities whose results name `who`.
pub fn declaring(who: &str, names: &[&str]) -> String {
    let mut yaml = "version: 1\nnamespace: org.example\ncapabilities:\n".to_owned();
    for name in names {
        let script = format!("printf '{{\"who\": \"{who}\"}}'");
        writeln!(yaml, "  - name: {name}\n    idempotent: true\n    command: [sh, -c, {script:?}]").unwrap();
    }
    yaml
}

/// A declaration of `org.example.quick`, and of `org.example.slow`, which runs for three seconds and only once.
pub fn slow() -> String {
    let quick = declaring("quick", &["quick"]);
    format!(
        "{quick}  - name: slow\n    command: [sh, -c, \"sleep 3; printf '{{\\\"who\\\": \\\"slow\\\"}}'\"]\n"
    )
}

/// A call by `capctl`: the result, or what it says went wrong.
pub fn call(sidecar: &Sidecar, name: &str) -> Result<Value, String> {
    let output = run_with(
        capctl(Some(&sidecar.socket)).args(["call", name, "--params", "{}", "--timeout", "20s"]),
        b"",
    );
    match exit_code(&output) {
        0 => Ok(serde_json::from_str(stdout(&output)).unwrap()),
        _ => Err(stderr(&output).to_owned()),
    }
}

/// Who answered a call that must succeed.
#[track_caller]
pub fn answered(sidecar: &Sidecar, name: &str) -> String {
    match call(sidecar, name) {
        Ok(result) => result["who"].as_str().unwrap_or_else(|| panic!("{result}")).to_owned(),
        Err(error) => panic!("{error}"),
    }
}

/// Waits until something holds, and says what it is that does not.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not in time: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}
