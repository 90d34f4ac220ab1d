//! Finds the SemVer step that a change needs, and whether the new version made it.

use std::fmt;

use capd_proto::capability::Version;

use super::{Contract, Verdict, compare};

/// A step of a version. **Source:** SemVer 2.0.0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Bump {
    /// The same promise in other words.
    Patch,
    /// An addition; every caller of the old version can use the new one.
    Minor,
    /// A removal, or a change that is not proven to keep everything.
    Major,
}

impl Bump {
    /// `patch`, `minor` or `major`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Patch => "patch",
            Self::Minor => "minor",
            Self::Major => "major",
        }
    }
}

impl fmt::Display for Bump {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// The step that a change of the schemas needs; none without a change.
///
/// Major unless every caller of `old` is proven to be served in full by `new`; then minor, unless a caller of `new` is
/// served in full by `old` as well.
pub fn needed(old: &Contract, new: &Contract) -> Option<Bump> {
    if old.is_same(new) {
        return None;
    }
    let backward = compare(old, new).verdict();
    // What breaks needs no second look.
    let forward = if backward == Verdict::Full { compare(new, old).verdict() } else { backward };
    Some(of_change(backward, forward))
}

/// The step of a change, by the verdicts of old callers with the new declaration and of new callers with the old one.
pub fn of_change(backward: Verdict, forward: Verdict) -> Bump {
    match (backward, forward) {
        (Verdict::Full, Verdict::Full) => Bump::Patch,
        (Verdict::Full, Verdict::Partial | Verdict::Unknown | Verdict::Incompatible) => Bump::Minor,
        (Verdict::Partial | Verdict::Unknown | Verdict::Incompatible, _) => Bump::Major,
    }
}

/// The step between the versions; none if they go back, stay, or only leave a pre-release.
pub fn taken(old: &Version, new: &Version) -> Option<Bump> {
    if new <= old {
        None
    } else if new.major() != old.major() {
        Some(Bump::Major)
    } else if new.minor() != old.minor() {
        Some(Bump::Minor)
    } else if new.patch() != old.patch() {
        Some(Bump::Patch)
    } else {
        None
    }
}

/// Whether the step from `old` to `new` is at least the needed one.
///
/// Below 1.0.0 a minor step may break, and a patch may add. A version after a pre-release may change anything, if it
/// follows. A version never goes back.
pub fn suffices(needed: Option<Bump>, old: &Version, new: &Version) -> bool {
    let Some(needed) = needed else { return new >= old };
    // SemVer 2.0.0, 9: a pre-release may not satisfy what its version promises.
    if old.is_prerelease() {
        return new > old;
    }
    // SemVer 2.0.0, 4: below 1.0.0 anything may change; the next number still tells.
    let below_one = if needed == Bump::Major { Bump::Minor } else { Bump::Patch };
    let needed = if old.major() > 0 { needed } else { below_one };
    taken(old, new).is_some_and(|taken| taken >= needed)
}
