//! What a run's figures were made with, for docs/evidence.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

/// The machine: its cores, its processor and its kernel.
pub(crate) fn description() -> Value {
    let processor = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let processor = processor.lines().find_map(|line| line.strip_prefix("model name")).unwrap_or_default();
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    json!({
        "cores": std::thread::available_parallelism().map_or(0, usize::from),
        "processor": processor.trim_start_matches([' ', '\t', ':']),
        "kernel": kernel.trim(),
    })
}

/// The commit that was built, as git names it.
pub(crate) fn commit() -> String {
    let head =
        std::process::Command::new("git").args(["describe", "--always", "--dirty", "--abbrev=12"]).output();
    head.ok().and_then(|output| String::from_utf8(output.stdout).ok()).unwrap_or_default().trim().to_owned()
}

/// What a piece of work gives, and the processor's time that it took of this thread: a machine that is busy with other
/// things makes it no longer.
pub(crate) fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    // **Source:** proc_pid_schedstat(5): nanoseconds on a processor come first. To yield brings them up to date.
    let spent = || {
        std::thread::yield_now();
        let told = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
        told.split_whitespace().next()?.parse().ok().map(Duration::from_nanos)
    };
    let before = spent();
    let (done, wall) = by_the_clock(work);
    let took = spent().zip(before).map(|(after, before)| after.saturating_sub(before));
    (done, took.unwrap_or(wall))
}

/// What a piece of work gives, and how long it took, whatever else the machine did.
#[allow(clippy::disallowed_methods, reason = "how long a proof took is told, and decides nothing")]
pub(crate) fn by_the_clock<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let done = work();
    (done, begin.elapsed())
}

/// The most memory that the process has had, in KiB; 0 where the system does not tell.
pub(crate) fn memory_peak_kib() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    peak.and_then(|text| text.trim().trim_end_matches("kB").trim().parse().ok()).unwrap_or(0)
}

/// Forgets that peak, so that the next one is of what comes after; gives the memory in use, in KiB.
pub(crate) fn memory_in_use_kib() -> u64 {
    // **Source:** proc_pid_clear_refs(5): 5 sets the peak to what is in use.
    let _ = std::fs::write("/proc/self/clear_refs", "5");
    memory_peak_kib()
}
