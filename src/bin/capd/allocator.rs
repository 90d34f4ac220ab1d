//! Restarts this program in place, with glibc's allocator configured for many concurrent messages.

use std::env;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Sets the system's allocator, which is only done as a program starts: unless the owner has set it, this program is
/// started anew in its own place, with its process id, its arguments and its open files.
pub(super) fn set() {
    if !cfg!(target_env = "gnu") || env::var_os(VARIABLE).is_some() {
        return;
    }
    let Ok(program) = env::current_exe() else { return };
    let mut arguments = env::args_os();
    let mut command = Command::new(program);
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    // It returns only when it fails, and then all goes on as before, more slowly.
    let _error = command.args(arguments).env(VARIABLE, SETTINGS).exec();
}

/// Where glibc looks for its settings (the manual of glibc, "Tunables").
const VARIABLE: &str = "GLIBC_TUNABLES";
/// - A turn frees as many pieces of one size as it has messages, and the next turn takes them: each thread keeps 7 of a size
///   by itself, and 32 here. Of sizes above 512 bytes it keeps none, or what a start freed would stay there, too.
/// - By itself the allocator gives back to the system what is free beyond twice the largest piece that it took apart, and each
///   page of the next large message would be made anew: it is to keep up to 16 MiB.
/// - What is larger than any message but the largest is mapped apart, so that the 2 MiB in which datagrams arrive take no pages
///   that were written to before.
/// - All threads take from one arena, so what those of the start freed is there for the rest.
const SETTINGS: &str = concat!(
    "glibc.malloc.tcache_count=32:glibc.malloc.tcache_max=512:glibc.malloc.arena_max=1:",
    "glibc.malloc.mmap_threshold=2000000:glibc.malloc.trim_threshold=16777216"
);
