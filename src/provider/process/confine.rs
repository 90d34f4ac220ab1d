//! Confines a command: a capability's declared permissions in; a process with those rights only, out.
//!
//! The daemon never starts a command itself. It starts its own program as `capd confine`, which gives up rights and
//! then becomes the command. So no code runs between a fork and an exec, and the daemon keeps its own rights.
//!
//! Rights that a kernel cannot restrict are left open, and [`Enforced`] reports them.

mod calls;
mod denied;
mod files;
mod group;
mod kernel;
mod runtime;
mod system;
mod user;

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use landlock::{
    ABI, Access as _, AccessFs, AccessNet, BitFlags, PathBeneath, Ruleset, RulesetAttr as _, RulesetCreated,
    RulesetCreatedAttr as _, RulesetError, Scope,
};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

pub use calls::Sockets;
pub use denied::Denied;
use files::{Kind, Source, places, resolved};
pub use group::{Group, GroupBounds, Groups};
pub use kernel::Enforced;
pub use system::{OF_ROOT, SYSTEM};
pub use user::User;

/// The rights that a command keeps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// What it may do with files other than those it needs to run.
    pub files: Files,
    /// Which sockets it may open.
    pub sockets: Sockets,
    /// What it needs to run.
    pub ground: Ground,
}

/// The part that all commands of a sidecar share.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ground {
    /// Files that each may read and run.
    pub readable: Vec<PathBuf>,
    /// Files that none may reach, whatever its permissions; resolved, see [`Ground::hide`].
    pub hidden: Vec<PathBuf>,
    /// The user of each command, if not the sidecar's own.
    pub user: Option<User>,
    /// Bounds on what each process uses.
    pub limits: ResourceLimits,
}

/// What a command may do with files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Files {
    /// Read only what it needs to run.
    None,
    /// Read and run everything that its user may.
    Read,
    /// Write as well.
    Write,
}

/// Bounds of one process; each process that it starts has the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceLimits {
    /// Memory of its own. **Units:** bytes.
    pub memory_bytes_max: u64,
    /// The largest file that it writes. **Units:** bytes.
    pub file_bytes_max: u64,
    /// Files and sockets open at once.
    pub open_files_max: u64,
    /// Processes and threads of its user, all together; none if a group bounds those of each call.
    pub processes_max: Option<u64>,
}

/// What is handed to the program that confines.
#[derive(Serialize, Deserialize)]
struct Order<C> {
    confinement: C,
    /// The folder of the call's group.
    group: Option<PathBuf>,
}

/// Why a command cannot be confined.
#[derive(Debug, thiserror::Error)]
pub enum ConfineError {
    /// The daemon's order cannot be read: the two programs have different versions.
    #[error("the confinement cannot be read; restart the sidecar if it has been updated")]
    Spec,
    /// The system refuses a bound.
    #[error("a resource limit cannot be set: {}", .0.kind())]
    Limit(io::Error),
    /// The system refuses to bar new privileges.
    #[error("new privileges cannot be barred: {}", .0.kind())]
    Privileges(io::Error),
    /// The system does not let it leave its user or its capabilities.
    #[error("the rights of its user cannot be dropped: {}", .0.kind())]
    User(io::Error),
    /// The call's group cannot be joined.
    #[error("the group of its call cannot be joined: {}", .0.kind())]
    Group(io::Error),
    /// The kernel filters system calls, but refuses this filter.
    #[error("the filter of system calls cannot be set: {}", .0.kind())]
    Calls(io::Error),
    /// The kernel offers Landlock, but refuses these rules.
    #[error("the rules for files and network cannot be set")]
    Landlock(#[from] RulesetError),
    /// The command cannot be run.
    #[error("the command {:?} cannot be run: {}", .0.display().to_string(), .1.kind())]
    Exec(PathBuf, io::Error),
}

impl Ground {
    /// Hides these files, and everything below them, from every command.
    pub fn hide<'a>(&mut self, paths: impl IntoIterator<Item = &'a Path>) {
        self.hidden.extend(paths.into_iter().map(resolved));
    }
}

impl Confinement {
    /// The rights of declared permissions: `filesystem:read`, `filesystem:write`, `network:read` or `network:write`,
    /// and `network:unix`. No kernel can enforce the others.
    pub fn of(permissions: &[String], ground: Ground) -> Self {
        let has = |permission: &str| permissions.iter().any(|declared| declared == permission);
        let files = match (has("filesystem:read"), has("filesystem:write")) {
            (_, true) => Files::Write,
            (true, false) => Files::Read,
            (false, false) => Files::None,
        };
        let internet = has("network:read") || has("network:write");
        Self { files, sockets: Sockets { internet, unix: has("network:unix") }, ground }
    }

    /// The arguments after which this program confines itself, in the call's group where there is one, and runs a command.
    pub(super) fn arguments(&self, group: Option<&Group>) -> [OsString; 4] {
        let order = Order { confinement: self, group: group.map(|group| group.dir().to_owned()) };
        let order = serde_json::to_string(&order).expect("its paths are text, as the configuration's are");
        ["confine".into(), "--spec".into(), order.into(), "--".into()]
    }

    /// Gives up the rights of this process, and of whatever it becomes; there is no way back.
    fn enforce(&self, program: &Path) -> Result<(), ConfineError> {
        let ResourceLimits { memory_bytes_max, file_bytes_max, open_files_max, processes_max } =
            self.ground.limits;
        limit(Resource::Data, memory_bytes_max)?;
        limit(Resource::Fsize, file_bytes_max)?;
        limit(Resource::Nofile, open_files_max)?;
        if let Some(processes_max) = processes_max {
            limit(Resource::Nproc, processes_max)?;
        }
        // A core would hold the call's params, and be a file.
        limit(Resource::Core, 0)?;
        user::drop_bounds().map_err(ConfineError::User)?;
        rustix::thread::set_no_new_privs(true).map_err(|error| ConfineError::Privileges(error.into()))?;
        self.rules(program)?.restrict_self()?;
        if let Some(user) = self.ground.user {
            user.become_it().map_err(ConfineError::User)?;
        }
        user::drop_all().map_err(ConfineError::User)?;
        // Last, so that nothing above has to be allowed by it.
        calls::restrict(self.sockets).map_err(ConfineError::Calls)?;
        Ok(())
    }

    /// The rules for files, TCP and signals.
    fn rules(&self, program: &Path) -> Result<RulesetCreated, RulesetError> {
        let mut rules = Ruleset::default().handle_access(AccessFs::from_all(RULES))?;
        if !self.sockets.internet {
            rules = rules.handle_access(AccessNet::from_all(RULES))?;
        }
        let mut rules = rules.scope(Scope::from_all(RULES))?.create()?;
        let (read, all) = (AccessFs::from_read(RULES), AccessFs::from_all(RULES));
        let Ground { readable, hidden, .. } = &self.ground;
        let path = std::env::var_os("PATH");
        let needed = runtime::needs(program, Path::new("."), path.as_deref());
        for root in readable.iter().map(PathBuf::as_path).chain([program]) {
            rules = allow(rules, root, Source::Owner, hidden, read)?;
        }
        for root in &needed {
            rules = allow(rules, root, Source::File, hidden, read)?;
        }
        for device in DEVICES {
            rules = allow(
                rules,
                Path::new(device),
                Source::Owner,
                &[],
                AccessFs::ReadFile | AccessFs::WriteFile,
            )?;
        }
        if self.files == Files::None {
            return Ok(rules);
        }
        let access = if self.files == Files::Write { all } else { read };
        // Devices are ways around what is hidden, and the kernel's own files are its switches.
        let hidden: Vec<PathBuf> =
            KERNEL.map(PathBuf::from).into_iter().chain(hidden.iter().cloned()).collect();
        rules = allow(rules, Path::new("/"), Source::Owner, &hidden, access)?;
        rules = allow(rules, Path::new("/dev/shm"), Source::Owner, &hidden[KERNEL.len()..], access)?;
        allow(rules, Path::new("/sys"), Source::Owner, &hidden[KERNEL.len()..], read)
    }
}

/// Allows `access` to all that is beneath `root` and not hidden.
fn allow(
    mut rules: RulesetCreated,
    root: &Path,
    source: Source,
    hidden: &[PathBuf],
    access: BitFlags<AccessFs>,
) -> Result<RulesetCreated, RulesetError> {
    for place in places(root, source, hidden) {
        let access = match place.kind {
            Kind::Folder => access,
            Kind::File => access & AccessFs::from_file(RULES),
            Kind::Way => access & AccessFs::ReadDir,
        };
        rules = rules.add_rule(PathBeneath::new(place.file, access))?;
    }
    Ok(rules)
}

/// Becomes the command: `words` are its file, its name, and its arguments. Returns only on failure.
pub fn confine(order: &str, words: &[OsString]) -> ConfineError {
    let Ok(Order::<Confinement> { confinement, group }) = serde_json::from_str(order) else {
        return ConfineError::Spec;
    };
    let [program, name, args @ ..] = words else { return ConfineError::Spec };
    if let Some(Err(error)) = group.as_deref().map(group::join) {
        return ConfineError::Group(error);
    }
    match confinement.enforce(Path::new(program)) {
        Ok(()) => {
            let error = Command::new(program).arg0(name).args(args).exec();
            ConfineError::Exec(PathBuf::from(program), error)
        }
        Err(error) => error,
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

/// The rights that are spoken of: those of Linux 6.12. An older kernel keeps those that it knows.
const RULES: ABI = ABI::V6;
/// Devices that hold nothing.
const DEVICES: [&str; 5] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"];
/// What a permission for files does not speak of: devices, and the kernel itself.
const KERNEL: [&str; 3] = ["/dev", "/proc", "/sys"];

#[cfg(test)]
mod tests {
    use super::*;

    fn ground() -> Ground {
        Ground {
            readable: vec![PathBuf::from("/a b"), PathBuf::from("/\"c")],
            hidden: vec![PathBuf::from("/d")],
            user: Some(User { uid: 1, gid: 2 }),
            limits: ResourceLimits {
                memory_bytes_max: 1,
                file_bytes_max: 2,
                open_files_max: 3,
                processes_max: Some(4),
            },
        }
    }

    #[test]
    fn permissions_come_to_rights_and_unknown_ones_to_none() {
        let of = |permissions: &[&str]| {
            let permissions: Vec<String> = permissions.iter().map(|text| (*text).to_owned()).collect();
            let Confinement { files, sockets, .. } = Confinement::of(&permissions, ground());
            (files, sockets.internet, sockets.unix)
        };
        assert_eq!(of(&[]), (Files::None, false, false));
        assert_eq!(
            of(&["database:read", "compute:execute", "x:y", "filesystem"]),
            (Files::None, false, false)
        );
        assert_eq!(of(&["filesystem:read", "network:read"]), (Files::Read, true, false));
        assert_eq!(of(&["filesystem:write", "network:unix"]), (Files::Write, false, true));
        assert_eq!(
            of(&["network:write", "filesystem:write", "filesystem:read"]),
            (Files::Write, true, false)
        );
    }

    #[test]
    fn what_is_handed_to_the_program_is_what_it_reads() {
        let confinement = Confinement::of(&["network:read".to_owned()], ground());
        let [command, flag, order, end] = confinement.arguments(None);
        assert_eq!((command, flag, end), ("confine".into(), "--spec".into(), "--".into()));
        let order: Order<Confinement> = serde_json::from_str(order.to_str().unwrap()).unwrap();
        assert_eq!((order.confinement, order.group), (confinement, None));
    }
}
