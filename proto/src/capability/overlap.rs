//! Intersects two ranges: both in, versions that represent the intersection out.

use super::{range::Range, version::Version};

/// Versions that are in both ranges and not below `floor`: none exactly when the ranges have none in common.
///
/// They are not all of them, but the ends: whatever stretch of versions the ranges share begins, and among releases
/// ends, at one of the bounds they name or at its neighbour, so it is enough to try those.
pub fn common_versions<'a>(
    first: &'a Range,
    second: &'a Range,
    floor: Option<&'a Version>,
) -> impl Iterator<Item = Version> + 'a {
    let bounds = first.comparators().iter().chain(second.comparators()).map(|comparator| &comparator.version);
    let ends = [Version::new(0, 0, 0), Version::new(u64::MAX, u64::MAX, u64::MAX)];
    bounds
        .chain(floor)
        .flat_map(|bound| {
            [
                Some(bound.clone()),
                Some(bound.release()),
                bound.next_release(),
                bound.previous_release(),
                bound.first_prerelease(),
                bound.next_prerelease(),
            ]
        })
        .flatten()
        .chain(ends)
        .filter(move |version| floor.is_none_or(|floor| version >= floor))
        .filter(|version| first.matches(version) && second.matches(version))
}
