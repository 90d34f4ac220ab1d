//! What a run's figures were made with, for docs/evidence.

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
