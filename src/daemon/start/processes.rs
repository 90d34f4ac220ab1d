//! Makes process providers from a declaration's commands, each confined to its permissions.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::process::geteuid;

use super::StartError;
use crate::config::Config;
use crate::daemon::executor::Place;
use crate::daemon::sidecar::Sidecar;
use crate::declaration::{Declaration, HttpTarget, Mistake, Mistakes};
use crate::provider::http;
use crate::provider::process::confine::{
    Enforced, Ground, GroupBounds, Groups, OF_ROOT, ResourceLimits, SYSTEM, User,
};
use crate::provider::process::{orphans, program};

/// What all commands of a declaration in `dir` have in common, if it has any.
///
/// **Errors:** commands could not be confined as the configuration wants it.
pub(super) fn place(
    sidecar: &Arc<Sidecar>,
    config: &Config,
    dir: &Path,
    has_commands: bool,
    helper: Option<PathBuf>,
) -> Result<Place, StartError> {
    let (user, groups) = match (has_commands, &helper) {
        (true, Some(_)) => {
            collect_orphans(sidecar)?;
            (user(config)?, groups(config))
        }
        (true, None) => {
            tracing::warn!("commands are not confined: no program that confines them is configured");
            (None, None)
        }
        (false, _) => (None, None),
    };
    let ground = ground(config, dir, user, groups.is_some())?;
    Ok(Place { dir: dir.to_owned(), helper, ground, groups })
}

/// Where commands run: the declaration's folder.
pub(super) fn folder(config: &Config) -> Result<PathBuf, StartError> {
    let dir = config.agent.capabilities.as_deref().and_then(Path::parent).unwrap_or(Path::new("."));
    std::path::absolute(if dir.as_os_str().is_empty() { Path::new(".") } else { dir })
        .map_err(|error| StartError::File { path: dir.to_owned(), error })
}

/// Looks for each command's program, where its provider will, and reads what each program that listens is asked with.
///
/// **Errors:** [`StartError::Declaration`] with every one that cannot be started, or posted to.
pub(super) fn check_commands(config: &Config, declaration: &Declaration) -> Result<(), StartError> {
    let dir = folder(config)?;
    let mut mistakes = Vec::new();
    for (index, declared) in declaration.capabilities.iter().enumerate() {
        if let Some(target) = &declared.http
            && let Some(problem) = unusable(target, &dir)
        {
            mistakes.push(Mistake {
                file: config.agent.capabilities.clone().unwrap_or_default(),
                line: target.line,
                at: format!("capabilities[{index}].http"),
                problem,
                accepted: "http://127.0.0.1:PORT/PATH or unix:/SOCKET:/PATH, and a headersFile that only its owner reads"
                    .to_owned(),
            });
        }
        let Some(name) = declared.command.as_ref().and_then(|words| words.first()) else { continue };
        if let Err(error) = program::find(name, &dir) {
            mistakes.push(Mistake {
                file: config.agent.capabilities.clone().unwrap_or_default(),
                line: declared.command_line,
                at: format!("capabilities[{index}].command[0]"),
                problem: format!("{name:?} {error}"),
                accepted: format!(
                    "a program in PATH, or an executable file by its path, from {}",
                    dir.display()
                ),
            });
        }
    }
    if mistakes.is_empty() { Ok(()) } else { Err(StartError::Declaration(Mistakes(mistakes))) }
}

/// Why calls cannot be posted there; none where they can.
fn unusable(target: &HttpTarget, dir: &Path) -> Option<String> {
    let place = http::Place::parse(&target.url, target.allow_remote);
    let wrong = place.err().map(|error| error.to_string());
    let headers = || Some(http::load_headers(&dir.join(target.headers_file.as_ref()?)).err()?.to_string());
    wrong.or_else(headers)
}

/// Takes in what commands leave behind, for as long as the sidecar runs.
fn collect_orphans(sidecar: &Arc<Sidecar>) -> Result<(), StartError> {
    orphans::adopt()
        .map_err(|error| StartError::System(format!("orphan processes cannot be adopted: {error}")))?;
    let shutdown = sidecar.ctx.shutdown.clone();
    sidecar.ctx.spawn(async move {
        tokio::select! {
            () = shutdown.cancelled() => {}
            collected = orphans::collect() => {
                if let Err(error) = collected {
                    tracing::warn!(%error, "processes that commands leave behind are not reaped when they end");
                }
            }
        }
    });
    Ok(())
}

/// Whom commands run as: nobody in particular, where that is whom the sidecar runs as.
///
/// **Errors:** it would be root, and nothing says that it may be; or there is no such user.
fn user(config: &Config) -> Result<Option<User>, StartError> {
    let wrong = |text: String| StartError::Setting(format!("config key process.user: {text}"));
    match (&config.process.user, geteuid().is_root()) {
        (Some(name), true) => {
            let user = User::named(name).map_err(|error| wrong(error.to_string()))?;
            if user.uid == 0 {
                let text = format!(
                    "{name:?} is root; name another user, or set process.allow_root = \"on\" instead"
                );
                return Err(wrong(text));
            }
            Ok(Some(user))
        }
        (Some(name), false) => match User::named(name) {
            Ok(user) if user.uid == geteuid().as_raw() => Ok(None),
            _ => Err(wrong(format!(
                "only root can run commands as {name:?}; remove the key, or run capd as root"
            ))),
        },
        (None, true) if !config.process.allow_root => Err(StartError::Setting(AS_ROOT.to_owned())),
        (None, _) => Ok(None),
    }
}

/// What all commands have in common.
fn ground(config: &Config, dir: &Path, user: Option<User>, has_groups: bool) -> Result<Ground, StartError> {
    let uid = user.map_or_else(|| geteuid().as_raw(), |user| user.uid);
    let folders = SYSTEM.iter().map(PathBuf::from).chain([dir.to_owned()]);
    let mut ground = Ground {
        readable: folders.chain(std::env::current_exe().ok()).collect(),
        hidden: Vec::new(),
        user,
        limits: ResourceLimits {
            memory_bytes_max: config.process.memory_bytes_max,
            file_bytes_max: config.process.file_bytes_max,
            open_files_max: config.process.open_files_max,
            // The system bounds no processes of root.
            processes_max: (!has_groups && uid != 0)
                .then(|| processes_of(uid).saturating_add(config.process.processes_max)),
        },
    };
    let (agent, listen) = (&config.agent, &config.listen);
    let files = [Some(&agent.dir), Some(&agent.key_file), Some(&listen.token_file), listen.unix.as_ref()];
    ground.hide(files.into_iter().flatten().map(PathBuf::as_path));
    if let Some(audit) = &config.audit.file {
        let beside = ["", "-wal", "-shm", "-journal"].map(|suffix| {
            let mut path = audit.as_os_str().to_owned();
            path.push(suffix);
            PathBuf::from(path)
        });
        ground.hide(beside.iter().map(PathBuf::as_path));
    }
    if uid == 0 {
        ground.hide(OF_ROOT.map(Path::new));
    }
    // They are handed on as text.
    ground.readable.retain(|path| path.to_str().is_some());
    match ground.hidden.iter().find(|path| path.to_str().is_none()) {
        None => Ok(ground),
        Some(path) => {
            let error = io::Error::new(
                io::ErrorKind::InvalidFilename,
                "the path is not UTF-8, so commands cannot be kept away from it",
            );
            Err(StartError::File { path: path.clone(), error })
        }
    }
}

/// Where the processes of each call are bounded together; says what commands are kept from on this machine, and what not.
fn groups(config: &Config) -> Option<Arc<Groups>> {
    let bounds = GroupBounds {
        memory_bytes_max: config.process.memory_bytes_max,
        processes_max: config.process.processes_max,
    };
    let groups = Groups::here(bounds);
    let each = match (&groups, geteuid().is_root() && config.process.user.is_none()) {
        (Ok(_), _) => "bounded for each call (cgroup v2)".to_owned(),
        (Err(why), false) => format!("bounded for the user (RLIMIT_NPROC), memory for each process: {why}"),
        (Err(why), true) => format!("not bounded for root, memory for each process: {why}"),
    };
    let enforced = Enforced::here();
    let (landlock, seccomp) = enforced.kernel();
    let (enforced, not_enforced) = enforced.told();
    tracing::info!(
        landlock,
        seccomp,
        processes = each,
        enforced,
        not_enforced,
        "commands are confined to what their capabilities declare"
    );
    groups.ok()
}

/// Processes and threads that a user has.
fn processes_of(uid: u32) -> u64 {
    let of = |entry: io::Result<std::fs::DirEntry>| {
        let status = std::fs::read_to_string(entry.ok()?.path().join("status")).ok()?;
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            line.split_whitespace().next()?.parse::<u64>().ok()
        };
        (field("Uid:")? == u64::from(uid)).then(|| field("Threads:")).flatten()
    };
    std::fs::read_dir("/proc").into_iter().flatten().filter_map(of).sum()
}

/// Why commands do not start as root.
const AS_ROOT: &str = "capd runs as root and would run commands as root; set process.user to the user for commands, \
                       or process.allow_root = \"on\" to run them as root without capabilities";
