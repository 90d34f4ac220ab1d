//! Groups the processes of a call (cgroup v2): bounds them together, and ends all that is left of them.
//!
//! A group needs a part of the machine's tree of groups that capd can write and that contains no process but the
//! sidecar. The sidecar moves into its own leaf there, because a group with processes cannot have bounded groups below
//! it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Makes the groups of calls.
#[derive(Debug)]
pub struct Groups {
    dir: PathBuf,
    bounds: GroupBounds,
    next: AtomicU64,
    /// Groups of ended calls whose processes were still ending.
    ending: Mutex<Vec<PathBuf>>,
}

/// Bounds of all processes of one call together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupBounds {
    /// Memory. **Units:** bytes.
    pub memory_bytes_max: u64,
    /// Processes and threads.
    pub processes_max: u64,
}

/// The group of one call: dropping it ends every process that is left in it.
#[derive(Debug)]
pub struct Group {
    dir: PathBuf,
    all: Arc<Groups>,
}

impl Groups {
    /// Groups beneath the sidecar's own. **Errors:** why there can be none, for the log.
    pub fn here(bounds: GroupBounds) -> Result<Arc<Self>, String> {
        let own =
            fs::read_to_string("/proc/self/cgroup").map_err(|error| format!("/proc/self/cgroup: {error}"))?;
        let own =
            own.lines().find_map(|line| line.strip_prefix("0::/")).ok_or("the kernel has no cgroup v2")?;
        let roots = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"].map(Path::new);
        let root = roots.into_iter().find(|root| root.join("cgroup.controllers").exists());
        let root = root.ok_or("cgroup v2 is not mounted at /sys/fs/cgroup")?;
        Self::under(&root.join(own), std::process::id(), bounds)
    }

    /// Groups beneath `dir`, which holds the process `pid`.
    fn under(dir: &Path, pid: u32, bounds: GroupBounds) -> Result<Arc<Self>, String> {
        let read = |name: &str| {
            let path = dir.join(name);
            fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
        };
        let controllers = read("cgroup.controllers")?;
        for wanted in CONTROLLERS {
            if !controllers.split_whitespace().any(|controller| controller == wanted) {
                return Err(format!("{} has no controller {wanted:?}", dir.display()));
            }
        }
        if read("cgroup.procs")?.lines().any(|line| line.trim() != pid.to_string()) {
            return Err(format!("{} contains other processes", dir.display()));
        }
        let failed = |path: &Path| {
            let path = path.display().to_string();
            move |error: io::Error| format!("{path}: {error}")
        };
        let leaf = dir.join(LEAF);
        make(&leaf).map_err(failed(&leaf))?;
        let moved = fs::write(leaf.join("cgroup.procs"), pid.to_string()).map_err(failed(&leaf));
        let control = dir.join("cgroup.subtree_control");
        moved.and_then(|()| {
            let wanted = CONTROLLERS.map(|controller| format!("+{controller}")).join(" ");
            fs::write(&control, wanted).map_err(failed(&control))
        })?;
        Ok(Arc::new(Self { dir: dir.to_owned(), bounds, next: AtomicU64::new(0), ending: Mutex::default() }))
    }

    /// A group for one call. **Errors:** it cannot be made or bounded.
    pub fn of_call(self: &Arc<Self>) -> io::Result<Group> {
        self.remove(None);
        let dir = self.dir.join(format!("call-{}", self.next.fetch_add(1, Ordering::Relaxed)));
        make(&dir)?;
        let group = Group { dir, all: Arc::clone(self) };
        group.set("memory.max", self.bounds.memory_bytes_max)?;
        group.set("pids.max", self.bounds.processes_max)?;
        // Kernels without swap do not have the first, those before 4.19 not the second.
        let _missing = group.set("memory.swap.max", 0);
        let _missing = group.set("memory.oom.group", 1);
        Ok(group)
    }

    /// Removes the group at `dir`, and those before it that could not be removed yet.
    fn remove(&self, dir: Option<PathBuf>) {
        let mut ending = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        ending.extend(dir);
        ending.retain(|dir| {
            fs::remove_dir(dir).is_err_and(|error| error.kind() == io::ErrorKind::ResourceBusy)
        });
    }
}

impl Group {
    /// Its folder.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    fn set(&self, name: &str, value: u64) -> io::Result<()> {
        fs::write(self.dir.join(name), value.to_string())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Before Linux 5.14 there is no such file, and what left the call's process group stays.
        let _missing = self.set("cgroup.kill", 1);
        self.all.remove(Some(std::mem::take(&mut self.dir)));
    }
}

/// Joins this process to the group at `dir`.
pub(super) fn join(dir: &Path) -> io::Result<()> {
    fs::write(dir.join("cgroup.procs"), "0")
}

fn make(dir: &Path) -> io::Result<()> {
    match fs::create_dir(dir) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// What bounds a call's processes.
const CONTROLLERS: [&str; 2] = ["memory", "pids"];
/// Where the sidecar itself is.
const LEAF: &str = "capd";

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: GroupBounds = GroupBounds { memory_bytes_max: 5_000_000, processes_max: 7 };

    /// A folder with the files of a group; a kernel's would make those of its children by itself.
    fn tree(controllers: &str, processes: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("cgroup.controllers"), controllers).unwrap();
        fs::write(dir.path().join("cgroup.procs"), processes).unwrap();
        dir
    }

    #[test]
    fn the_sidecar_moves_into_a_leaf_and_calls_get_bounded_groups() {
        let tree = tree("cpu memory pids\n", "42\n");
        let read = |name: &str| fs::read_to_string(tree.path().join(name)).unwrap();
        let groups = Groups::under(tree.path(), 42, BOUNDS).unwrap();
        assert_eq!(
            (read("capd/cgroup.procs"), read("cgroup.subtree_control")),
            ("42".into(), "+memory +pids".into())
        );
        let (first, second) = (groups.of_call().unwrap(), groups.of_call().unwrap());
        assert_ne!(first.dir(), second.dir());
        assert_eq!((read("call-0/memory.max"), read("call-0/pids.max")), ("5000000".into(), "7".into()));
        join(first.dir()).unwrap();
        assert_eq!(read("call-0/cgroup.procs"), "0");
        drop(first);
        assert_eq!(read("call-0/cgroup.kill"), "1");
    }

    #[test]
    fn a_tree_that_is_not_ours_is_left_alone() {
        for (controllers, processes, said) in [
            ("cpu memory\n", "42\n", "no controller \"pids\""),
            ("cpu memory pids\n", "41\n42\n", "contains other processes"),
        ] {
            let tree = tree(controllers, processes);
            let refused = Groups::under(tree.path(), 42, BOUNDS).unwrap_err();
            assert!(refused.contains(said), "{refused}");
            assert!(!tree.path().join("capd").exists());
        }
        assert!(Groups::under(Path::new("/nonexistent"), 42, BOUNDS).is_err());
    }
}
