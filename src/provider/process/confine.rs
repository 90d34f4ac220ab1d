//! What a capability declares in; a process that may do no more than that out.
//!
//! The daemon does not start a command itself: it starts the program that it is, as `capd confine`, which gives up rights
//! and then becomes the command. So nothing runs between a fork and an exec, and the daemon keeps its own rights.
//!
//! What a kernel does not offer is left out, and [`Enforced`] says so.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, RulesetError, RulesetStatus, Scope, path_beneath_rules,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

/// The rights that a command keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// What it may do with files other than those it needs to run.
    pub files: Files,
    /// Whether it may open and take TCP connections.
    pub network: bool,
    /// What it may read and run.
    pub readable: Vec<PathBuf>,
    /// Bounds on what it uses.
    pub limits: ResourceLimits,
}

/// What a command may do with files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Files {
    /// Read what it needs to run.
    None,
    /// Read and run all that its user may.
    Read,
    /// Write as well.
    Write,
}

/// Bounds of one process; each that it starts has the same again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Memory of its own. **Units:** bytes.
    pub memory_bytes_max: u64,
    /// The largest file that it writes. **Units:** bytes.
    pub file_bytes_max: u64,
    /// Files and sockets open at once.
    pub open_files_max: u64,
}

/// How far this machine keeps a command to its rights, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Enforced {
    files: bool,
    tcp: bool,
    signals: bool,
}

/// Why a command cannot be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// What the daemon hands over is not what this program reads: the two are of different versions.
    #[error("the confinement cannot be read; restart the sidecar if it has been updated")]
    Spec,
    /// The system refuses a bound.
    #[error("a resource limit cannot be set: {}", .0.kind())]
    Limit(io::Error),
    /// The system refuses to bar new privileges.
    #[error("new privileges cannot be barred: {}", .0.kind())]
    Privileges(io::Error),
    /// The kernel offers Landlock and refuses what is asked of it.
    #[error("the rules for files and network cannot be set")]
    Landlock(#[from] RulesetError),
    /// The command cannot be run.
    #[error("the command cannot be run: {}", .0.kind())]
    Exec(io::Error),
}

impl Confinement {
    /// What the permissions of a declaration come to: `filesystem:read`, `filesystem:write`, and either of `network:*`.
    /// Others speak of things that no kernel tells apart.
    pub fn of(permissions: &[String], readable: Vec<PathBuf>, limits: ResourceLimits) -> Self {
        let has = |permission: &str| permissions.iter().any(|declared| declared == permission);
        let files = match (has("filesystem:read"), has("filesystem:write")) {
            (_, true) => Files::Write,
            (true, false) => Files::Read,
            (false, false) => Files::None,
        };
        Self { files, network: has("network:read") || has("network:write"), readable, limits }
    }

    /// The arguments after which this program confines itself and runs `program`.
    pub(super) fn arguments(&self) -> [OsString; 4] {
        let spec = serde_json::to_string(self).expect("its paths are text, as `beside` sees to");
        ["confine".into(), "--spec".into(), spec.into(), "--".into()]
    }

    /// Gives up the rights of this process, and of whatever it becomes; there is no way back.
    fn enforce(&self, program: &Path) -> Result<(), ConfineError> {
        let ResourceLimits { memory_bytes_max, file_bytes_max, open_files_max } = self.limits;
        limit(Resource::Data, memory_bytes_max)?;
        limit(Resource::Fsize, file_bytes_max)?;
        limit(Resource::Nofile, open_files_max)?;
        // A core would hold the call's params, and be a file.
        limit(Resource::Core, 0)?;
        rustix::thread::set_no_new_privs(true).map_err(|error| ConfineError::Privileges(error.into()))?;
        let readable = self.readable.iter().map(PathBuf::as_path).chain([program]);
        let mut rules = rules(self.network)?
            .add_rules(path_beneath_rules(readable, AccessFs::from_read(RULES)))?
            .add_rules(path_beneath_rules(DEVICES, AccessFs::ReadFile | AccessFs::WriteFile))?;
        rules = match self.files {
            Files::None => rules,
            Files::Read => rules.add_rules(path_beneath_rules(["/"], AccessFs::from_read(RULES)))?,
            Files::Write => rules.add_rules(path_beneath_rules(["/"], AccessFs::from_all(RULES)))?,
        };
        rules.restrict_self()?;
        Ok(())
    }
}

/// Becomes the command: `words` are its file, its name, and its arguments. Returns only where that fails.
pub fn confine(spec: &str, words: &[OsString]) -> ConfineError {
    let Ok(confinement) = serde_json::from_str::<Confinement>(spec) else { return ConfineError::Spec };
    let [program, name, args @ ..] = words else { return ConfineError::Spec };
    match confinement.enforce(Path::new(program)) {
        Ok(()) => ConfineError::Exec(Command::new(program).arg0(name).args(args).exec()),
        Err(error) => error,
    }
}

/// Where the system keeps programs, libraries, and what they read.
pub const SYSTEM: [&str; 11] = [
    "/usr",
    "/bin",
    "/sbin",
    "/lib",
    "/lib32",
    "/lib64",
    "/etc",
    "/opt",
    "/nix/store",
    "/proc",
    "/sys/devices/system/cpu",
];

/// What commands may read of a folder: all of it, but for what leads to one of the `hidden`, such as the agent's key.
pub fn beside(dir: &Path, hidden: &[&Path]) -> Vec<PathBuf> {
    let resolved = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
    let dir = resolved(dir);
    let inside = hidden.iter().filter_map(|path| Some(resolved(path).strip_prefix(&dir).ok()?.to_owned()));
    let inside: Vec<PathBuf> = inside.collect();
    if inside.is_empty() {
        return utf8(dir).into_iter().collect();
    }
    if inside.iter().any(|path| path.as_os_str().is_empty()) {
        // The folder itself is hidden.
        return Vec::new();
    }
    let firsts: Vec<_> =
        inside.iter().filter_map(|path| path.components().next()).map(|first| dir.join(first)).collect();
    let entries = std::fs::read_dir(&dir).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut beside: Vec<_> = entries.filter(|path| !firsts.contains(path)).filter_map(utf8).collect();
    beside.sort();
    beside
}

fn utf8(path: PathBuf) -> Option<PathBuf> {
    path.to_str().is_some().then_some(path)
}

impl Enforced {
    /// What the kernel takes of such rules: they are tried on a thread that ends with them.
    pub fn here() -> Self {
        let tried = std::thread::Builder::new().spawn(|| {
            let holds = |rules: Result<RulesetCreated, RulesetError>| {
                let status = rules.and_then(RulesetCreated::restrict_self);
                status.is_ok_and(|status| status.ruleset == RulesetStatus::FullyEnforced)
            };
            Self {
                files: holds(
                    Ruleset::default().handle_access(AccessFs::from_all(RULES)).and_then(Ruleset::create),
                ),
                tcp: holds(
                    Ruleset::default().handle_access(AccessNet::from_all(RULES)).and_then(Ruleset::create),
                ),
                signals: holds(Ruleset::default().scope(Scope::from_all(RULES)).and_then(Ruleset::create)),
            }
        });
        let nothing = Self { files: false, tcp: false, signals: false };
        tried.ok().and_then(|thread| thread.join().ok()).unwrap_or(nothing)
    }

    /// What is enforced, and what is not.
    pub fn told(self) -> (String, String) {
        let parts = [("files", self.files), ("TCP", self.tcp), ("signals", self.signals)];
        let (mut enforced, mut left) = (ALWAYS.to_vec(), Vec::new());
        for (part, is_enforced) in parts {
            if is_enforced { enforced.push(part) } else { left.push(part) }
        }
        left.extend(NEVER);
        (enforced.join(", "), left.join(", "))
    }
}

impl fmt::Display for Files {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::None => "what it needs to run",
            Self::Read => "read",
            Self::Write => "read and write",
        })
    }
}

fn limit(resource: Resource, max: u64) -> Result<(), ConfineError> {
    // A lower bound that stands already cannot be raised, and need not be.
    let max = getrlimit(resource).maximum.map_or(max, |hard| hard.min(max));
    let bound = Rlimit { current: Some(max), maximum: Some(max) };
    setrlimit(resource, bound).map_err(|error| ConfineError::Limit(error.into()))
}

fn rules(network: bool) -> Result<RulesetCreated, RulesetError> {
    let mut rules = Ruleset::default().handle_access(AccessFs::from_all(RULES))?;
    if !network {
        rules = rules.handle_access(AccessNet::from_all(RULES))?;
    }
    rules.scope(Scope::from_all(RULES))?.create()
}

/// The rights that are spoken of: those of Linux 6.12. An older kernel keeps those that it knows.
const RULES: ABI = ABI::V6;
/// Devices that hold nothing.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// Kept whatever the kernel is.
const ALWAYS: [&str; 3] = ["environment", "no new privileges", "resource limits"];
/// Declared or not, nothing here tells them apart.
const NEVER: [&str; 3] = ["UDP", "unix sockets", "permissions of other scopes"];

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: ResourceLimits =
        ResourceLimits { memory_bytes_max: 1, file_bytes_max: 2, open_files_max: 3 };

    #[test]
    fn permissions_come_to_rights_and_unknown_ones_to_none() {
        let of = |permissions: &[&str]| {
            let permissions: Vec<String> = permissions.iter().map(|text| (*text).to_owned()).collect();
            let confinement = Confinement::of(&permissions, Vec::new(), LIMITS);
            (confinement.files, confinement.network)
        };
        assert_eq!(of(&[]), (Files::None, false));
        assert_eq!(of(&["database:read", "compute:execute", "x:y", "filesystem"]), (Files::None, false));
        assert_eq!(of(&["filesystem:read", "network:read"]), (Files::Read, true));
        assert_eq!(of(&["filesystem:write"]), (Files::Write, false));
        assert_eq!(of(&["network:write", "filesystem:write", "filesystem:read"]), (Files::Write, true));
    }

    #[test]
    fn what_is_handed_to_the_program_is_what_it_reads() {
        let readable = vec![PathBuf::from("/a b"), PathBuf::from("/\"c")];
        let confinement = Confinement::of(&["network:read".to_owned()], readable, LIMITS);
        let [command, flag, spec, end] = confinement.arguments();
        assert_eq!((command, flag, end), ("confine".into(), "--spec".into(), "--".into()));
        assert_eq!(serde_json::from_str::<Confinement>(spec.to_str().unwrap()).unwrap(), confinement);
    }

    #[test]
    fn nothing_that_leads_to_what_is_hidden_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().canonicalize().unwrap().join(name);
        for name in ["state/deep", "schemas", "keys"] {
            std::fs::create_dir_all(at(name)).unwrap();
        }
        std::fs::write(at("tool"), "").unwrap();
        let (state, key) = (at("state/deep"), at("keys"));
        assert_eq!(beside(dir.path(), &[&state, &key]), [at("schemas"), at("tool")]);
        assert_eq!(beside(dir.path(), &[Path::new("/nonexistent")]), [at("")]);
        assert_eq!(beside(&at("schemas"), &[&state]), [at("schemas")]);
        assert!(beside(dir.path(), &[dir.path()]).is_empty());
        // A declaration within the state folder reads its own folder.
        assert_eq!(beside(&at("state/deep"), &[&at("state")]), [at("state/deep")]);
    }
}
