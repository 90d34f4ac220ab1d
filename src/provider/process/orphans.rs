//! Collects the processes that commands leave behind, once they end.
//!
//! The sidecar adopts every process whose parent ended, so descendants of a command stay descendants of the sidecar, in
//! whatever sessions and groups. So it must also collect them when they end.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, getpid, kill_process_group, set_child_subreaper, waitid,
};
use tokio::signal::unix::{SignalKind, signal};

use crate::kin;

/// Makes this process adopt the orphans of its commands. **Errors:** the system does not allow it.
pub fn adopt() -> io::Result<()> {
    Ok(set_child_subreaper(Some(getpid()))?)
}

/// Collects adopted processes that have ended, forever. **Errors:** the signals of ended processes cannot be watched.
pub async fn collect() -> io::Result<()> {
    let mut child_changes = signal(SignalKind::child())?;
    loop {
        child_changes.recv().await;
        let any = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        if waitid(WaitId::All, any).is_ok_and(|ended| ended.is_some()) {
            collect_once();
        }
    }
}

/// Kills the commands of running calls, for a process that ends without its tasks.
pub fn end_commands() {
    for leader in leaders().iter().copied().filter_map(Pid::from_raw) {
        // Failing means that nobody is left in the group.
        let _gone = kill_process_group(leader, Signal::KILL);
    }
}

fn collect_once() {
    // Held throughout, so that no command is started between the two.
    let leaders = leaders();
    for pid in kin::children().into_iter().filter(|pid| !leaders.contains(pid)).filter_map(Pid::from_raw) {
        // One that runs on is left alone, and another thread may have been faster.
        let _running = waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOHANG);
    }
}

/// The processes that were started for a call and are collected with it.
pub(super) fn leaders() -> MutexGuard<'static, BTreeSet<i32>> {
    // Numbers are added and removed whole, so a panic leaves nothing half done.
    LEADERS.lock().unwrap_or_else(PoisonError::into_inner)
}

static LEADERS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());
