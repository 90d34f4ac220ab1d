//! Chooses a version: a request and the served descriptors in, one descriptor or a refusal out.
//!
//! The choice is a pure function: the same request and the same descriptors, in any order, give the same version.
//! **Source:** PROTOCOL 7.5, AMP 004 6.3.

use std::borrow::Borrow;
use std::cmp::{Ordering, Reverse};

use crate::{
    capability::{Range, Version, common_versions},
    code::Code,
    limits::AVAILABLE_MAX,
};

mod session;

pub use session::{PinError, Session, SessionId, Sessions, SessionsFull};

#[cfg(test)]
mod tests;

/// The version facts of one descriptor. **Source:** PROTOCOL 7.2, 7.5.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Served {
    /// The descriptor's own version, which is chosen and runs.
    pub version: Version,
    /// Further versions whose callers it serves.
    pub supported_ranges: Vec<Range>,
    /// Versions it serves with a warning.
    pub deprecated_ranges: Vec<Range>,
    /// Single versions it serves with a warning.
    pub deprecated_versions: Vec<Version>,
    /// The lowest served version, whatever the ranges say.
    pub min_schema_version: Option<Version>,
    /// The version that introduced the capability; nothing below it is served.
    pub since: Option<Version>,
    /// Whether everything it serves has the warning.
    pub deprecated: bool,
}

impl Served {
    /// A descriptor that serves exactly its own version.
    pub const fn only(version: Version) -> Self {
        Self {
            version,
            supported_ranges: Vec::new(),
            deprecated_ranges: Vec::new(),
            deprecated_versions: Vec::new(),
            min_schema_version: None,
            since: None,
            deprecated: false,
        }
    }

    /// Whether a request for exactly `version` is served.
    pub fn serves(&self, version: &Version) -> bool {
        // PROTOCOL 7.5: its own version and every version in its supported_ranges, but none below
        // min_schema_version; and none from before the capability was there.
        self.is_above_floor(version)
            && (self.version == *version || self.supported_ranges.iter().any(|range| range.matches(version)))
    }

    /// Whether a request for exactly `version` gets the warning.
    pub fn deprecates(&self, version: &Version) -> bool {
        self.deprecated
            || self.deprecated_versions.contains(version)
            || self.deprecated_ranges.iter().any(|range| range.matches(version))
    }

    /// The oldest version that can be served, if anything says so.
    fn floor(&self) -> Option<&Version> {
        self.min_schema_version.as_ref().max(self.since.as_ref())
    }

    fn is_above_floor(&self, version: &Version) -> bool {
        self.floor().is_none_or(|floor| version >= floor)
    }

    fn fit_version(&self, version: &Version) -> Option<Fit> {
        self.serves(version)
            .then(|| Fit { is_deprecated: self.deprecates(version), is_own: self.version == *version })
    }

    fn fit_range(&self, range: &Range) -> Option<Fit> {
        if range.matches(&self.version) && self.is_above_floor(&self.version) {
            return Some(Fit { is_deprecated: self.deprecates(&self.version), is_own: true });
        }
        // Served through supported_ranges only: a warning when every end of what is shared is deprecated.
        let mut is_deprecated = true;
        let mut is_served = false;
        for supported in &self.supported_ranges {
            for version in common_versions(range, supported, self.floor()) {
                is_served = true;
                is_deprecated = is_deprecated && self.deprecates(&version);
            }
        }
        is_served.then_some(Fit { is_deprecated, is_own: false })
    }

    fn fit_pinned(&self, version: &Version) -> Option<Fit> {
        (self.version == *version).then(|| Fit { is_deprecated: self.deprecates(version), is_own: true })
    }

    fn fit_newest(&self) -> Option<Fit> {
        // PROTOCOL 6: a pre-release is only for those who name it, so it stands behind every release.
        let is_own = !self.version.is_prerelease();
        Some(Fit { is_deprecated: self.deprecates(&self.version), is_own })
    }
}

/// The version that a request asks for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Want {
    /// Any descriptor that serves this version.
    Exact(Version),
    /// The caller's preferences, tried in their order.
    Negotiate(Negotiate),
    /// The descriptor of this version and no other: what a session agreed on.
    Pinned(Version),
    /// The highest version, a release if there is one; for queries about a capability, never for a call.
    Newest,
}

/// A caller's preferences; if all are missing, nothing fits.
///
/// **Shape:** `{? "preferred": version, ? "acceptable": [* version], ? "range": range}`. **Source:** PROTOCOL 7.3, 7.5.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Negotiate {
    /// The preferred version.
    pub preferred: Option<Version>,
    /// Acceptable versions, preferred first.
    pub acceptable: Vec<Version>,
    /// Otherwise the highest of these.
    pub range: Option<Range>,
}

impl From<Range> for Want {
    fn from(range: Range) -> Self {
        Self::Negotiate(Negotiate { range: Some(range), ..Negotiate::default() })
    }
}

/// The descriptor that serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// Its index in the slice that was chosen from.
    pub index: usize,
    /// Whether the result carries the warning `deprecated: true` in its `ext`.
    pub deprecated: bool,
}

/// No descriptor serves the request: a 4003.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no served version fits the request")]
pub struct NoMatch {
    /// The served versions, newest first, each once, at most 64; they go into `details.available`.
    pub available: Vec<Version>,
}

impl NoMatch {
    /// The wire code, always 4003. **Source:** PROTOCOL 7.5.
    pub const fn code(&self) -> Code {
        Code::VERSION_MISMATCH
    }

    /// The refusal of a request that no version in `served` fits.
    pub fn among<'a>(served: impl IntoIterator<Item = &'a Served>) -> Self {
        let mut available: Vec<_> = served.into_iter().map(|served| served.version.clone()).collect();
        available.sort_by(|one, other| other.total_cmp(one));
        available.dedup();
        available.truncate(AVAILABLE_MAX);
        Self { available }
    }
}

/// Chooses the descriptor that serves `want`.
///
/// **Errors:** 4003 when none does. **Source:** PROTOCOL 7.5.
pub fn choose(want: &Want, served: &[impl Borrow<Served>]) -> Result<Choice, NoMatch> {
    let found = match want {
        Want::Exact(version) => best(served, |served| served.fit_version(version)),
        Want::Pinned(version) => best(served, |served| served.fit_pinned(version)),
        Want::Newest => best(served, Served::fit_newest),
        // PROTOCOL 7.5: preferred if served, else the first of acceptable that is served, else the highest served
        // version in range, else 4003.
        Want::Negotiate(Negotiate { preferred, acceptable, range }) => preferred
            .iter()
            .chain(acceptable)
            .find_map(|version| best(served, |served| served.fit_version(version)))
            .or_else(|| best(served, |served| served.fit_range(range.as_ref()?))),
    };
    found.ok_or_else(|| NoMatch::among(served.iter().map(Borrow::borrow)))
}

/// How a descriptor serves a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Fit {
    is_deprecated: bool,
    is_own: bool,
}

fn best(served: &[impl Borrow<Served>], fit: impl Fn(&Served) -> Option<Fit>) -> Option<Choice> {
    let mut best: Option<(usize, Fit)> = None;
    for (index, candidate) in served.iter().enumerate() {
        let candidate = candidate.borrow();
        let Some(fit) = fit(candidate) else { continue };
        let is_better = best.is_none_or(|(other, other_fit)| {
            compare((candidate, fit), (served[other].borrow(), other_fit)) == Ordering::Greater
        });
        if is_better {
            best = Some((index, fit));
        }
    }
    best.map(|(index, fit)| Choice { index, deprecated: fit.is_deprecated })
}

/// Which of two fitting descriptors comes first; the greater does.
fn compare((one, one_fit): (&Served, Fit), (other, other_fit): (&Served, Fit)) -> Ordering {
    // PROTOCOL 7.5: deprecated ones match last; the one whose own version is asked for wins, then the highest.
    let rank = |fit: Fit| (Reverse(fit.is_deprecated), fit.is_own);
    rank(one_fit).cmp(&rank(other_fit)).then_with(|| one.version.total_cmp(&other.version))
}
