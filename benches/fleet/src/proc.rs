//! Processes in; their CPU time and memory, and the machine's, out.

use std::time::Instant;

/// User and system time of a process so far; none if it has ended. **Units:** seconds.
pub(crate) fn cpu_s(pid: u32) -> Option<f64> {
    fields(&format!("/proc/{pid}/stat"), 2)
}

/// The same of this process and of its children that have ended.
fn own_cpu_s() -> f64 {
    fields("/proc/self/stat", 4).unwrap_or(0.0)
}

/// proc_pid_stat(5): the name in parentheses may hold anything; utime and stime are fields 14 and 15, those of children follow.
fn fields(file: &str, count: usize) -> Option<f64> {
    let stat = std::fs::read_to_string(file).ok()?;
    let after = stat.rsplit(')').next()?;
    let ticks = after.split_whitespace().skip(11).take(count).map(|field| field.parse::<f64>().ok());
    ticks.sum::<Option<f64>>().map(|ticks| ticks / TICKS_PER_S)
}

/// Memory of a process. **Units:** bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Memory {
    /// All that is resident, pages of the program among it.
    pub(crate) resident: f64,
    /// What the process made itself.
    pub(crate) own: f64,
    /// What is resident, of what several share a part each.
    pub(crate) shared_out: f64,
}

impl Memory {
    pub(crate) fn of(pid: u32) -> Option<Self> {
        let entry = |file: &str, name: &str| {
            let text = std::fs::read_to_string(format!("/proc/{pid}/{file}")).ok()?;
            let value = text.lines().find_map(|line| line.strip_prefix(name))?;
            value.split_whitespace().next()?.parse::<f64>().ok().map(|kib| kib * 1_024.0)
        };
        Some(Self {
            resident: entry("status", "VmRSS:")?,
            own: entry("status", "RssAnon:")?,
            shared_out: entry("smaps_rollup", "Pss:")?,
        })
    }
}

/// The machine's busy time from a moment on, to tell what others had of it.
#[derive(Debug)]
pub(crate) struct Machine {
    begin: Instant,
    busy_s: f64,
    ours_s: f64,
}

impl Machine {
    pub(crate) fn watch(children: impl Iterator<Item = u32>) -> Self {
        Self { begin: Instant::now(), busy_s: busy_s(), ours_s: ours_s(children) }
    }

    /// The part of all cores' time since then that went to neither these processes nor to nobody.
    pub(crate) fn others(&self, children: impl Iterator<Item = u32>) -> f64 {
        let cores = std::thread::available_parallelism().map_or(1.0, |cores| cores.get() as f64);
        let ours_s = ours_s(children) - self.ours_s;
        (busy_s() - self.busy_s - ours_s) / (self.begin.elapsed().as_secs_f64() * cores)
    }
}

fn ours_s(children: impl Iterator<Item = u32>) -> f64 {
    own_cpu_s() + children.filter_map(cpu_s).sum::<f64>()
}

/// proc_stat(5): what all cores did but idle and wait for the disk.
fn busy_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let line = stat.lines().next().unwrap_or_default();
    let ticks = line.split_whitespace().skip(1).map(|tick| tick.parse::<f64>().unwrap_or(0.0));
    let busy = ticks.enumerate().filter(|(at, _)| ![3, 4].contains(at) && *at < 8);
    busy.map(|(_, ticks)| ticks).sum::<f64>() / TICKS_PER_S
}

/// A value that so many of a hundred are not above. **Shape:** the values are sorted.
pub(crate) fn percentile(sorted: &[f64], percent: f64) -> f64 {
    let at = (sorted.len() as f64 * percent / 100.0).ceil() as usize;
    sorted.get(at.saturating_sub(1)).copied().unwrap_or(f64::NAN)
}

/// Sorts, for [`percentile`].
pub(crate) fn sorted(mut values: Vec<f64>) -> Vec<f64> {
    values.sort_by(f64::total_cmp);
    values
}

/// On every Linux that is built as usual.
const TICKS_PER_S: f64 = 100.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_percentile_is_one_of_the_values() {
        let values: Vec<_> = (1..=100).map(f64::from).collect();
        assert_eq!([50.0, 99.0, 100.0].map(|percent| percentile(&values, percent)), [50.0, 99.0, 100.0]);
        assert_eq!(percentile(&[7.0], 99.0), 7.0);
        assert!(percentile(&[], 50.0).is_nan());
    }
}
