//! Tells from `/proc` whether a process descends from this one.

use std::fs;

/// The relation of a process to this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kin {
    /// This process or one of its descendants started it.
    Descendant,
    /// This process itself, or an unrelated one.
    Other,
    /// It has ended, so the relation is unknown.
    Gone,
}

/// The relation of the process `pid` to this one.
///
/// An orphan belongs to the next ancestor that adopts orphans: this process, if it does so.
pub fn kin(pid: i32) -> Kin {
    let own = own();
    if pid == own {
        return Kin::Other;
    }
    // A process on the way may end meanwhile, and what it leaves has another parent from then on.
    for _ in 0..ATTEMPTS_MAX {
        match climb(pid, own) {
            Some(kin) => return kin,
            None if parent(pid).is_none() => return Kin::Gone,
            None => {}
        }
    }
    Kin::Gone
}

fn climb(mut pid: i32, own: i32) -> Option<Kin> {
    for _ in 0..GENERATIONS_MAX {
        pid = parent(pid)?;
        if pid == own {
            return Some(Kin::Descendant);
        }
        // The first process has no parent, and neither has one that came in from outside a container.
        if pid <= 1 {
            return Some(Kin::Other);
        }
    }
    None
}

/// The parent of a process; none of one that is not there.
fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The state and the parent follow the name, which stands in parentheses and may hold some.
    stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()
}

/// The children of this process, including adopted ones.
pub fn children() -> Vec<i32> {
    let threads = fs::read_dir("/proc/self/task").into_iter().flatten().flatten();
    let lists: Vec<String> =
        threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok()).collect();
    if !lists.is_empty() {
        return lists
            .iter()
            .flat_map(|list| list.split_whitespace())
            .filter_map(|pid| pid.parse().ok())
            .collect();
    }
    // A kernel without such lists.
    let own = own();
    let all = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    pids.filter(|pid| parent(*pid) == Some(own)).collect()
}

fn own() -> i32 {
    rustix::process::getpid().as_raw_nonzero().get()
}

/// Most generations that are climbed; more there are only to tire whoever climbs.
const GENERATIONS_MAX: usize = 4_096;
/// Most attempts to climb while processes on the way end.
const ATTEMPTS_MAX: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn children_are_kin_and_others_are_not() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        assert_eq!((kin(pid), kin(own()), kin(1)), (Kin::Descendant, Kin::Other, Kin::Other));
        assert!(children().contains(&pid));
        child.kill().unwrap();
        // Until it is collected it is still there, and still a child.
        assert_eq!(kin(pid), Kin::Descendant);
        child.wait().unwrap();
        assert_eq!(kin(pid), Kin::Gone);
        assert!(!children().contains(&pid));
    }
}
