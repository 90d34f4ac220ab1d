//! Says why no sidecar answers for a configuration: another one holds its journal.

use std::fs::File;

use capd::config::Config;
use rustix::process::{Flock, FlockType, fcntl_getlk};

use super::report::Check;
use crate::failure::Exit;

/// The process that holds the journal of this configuration's state directory.
pub(super) fn held(config: &Config) -> Option<Check> {
    let journal = config.agent.dir.join(JOURNAL);
    let file = File::open(&journal).ok()?;
    let asked = Flock { start: SHARED_FIRST, length: SHARED_BYTES, ..Flock::from(FlockType::WriteLock) };
    let holder = fcntl_getlk(&file, &asked).ok()??.pid?;
    let text = format!(
        "no sidecar answers at this socket, and process {} has locked {}: it uses the same agent.dir with another configuration",
        holder.as_raw_pid(),
        journal.display()
    );
    let remedy =
        format!("end process {}, or give this configuration an agent.dir of its own", holder.as_raw_pid());
    Some(Check::failed("sidecar", String::new(), Exit::Unavailable, text).remedy(remedy))
}

/// The journal's database.
const JOURNAL: &str = "journal.db";
/// The bytes of an SQLite file that readers and writers lock. **Source:** SQLite, `os_unix.c`, SHARED_FIRST.
const SHARED_FIRST: u64 = 0x4000_0002;
/// How many they are.
const SHARED_BYTES: u64 = 510;
