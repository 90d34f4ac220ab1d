//! Intersects two ranges: both in, versions that represent the intersection out.

use super::{range::Range, version::Version};

/// Some versions that are in both ranges and not below `floor`; none exactly if the ranges share none.
///
/// These are the ends of the shared interval. It begins, and among releases ends, at a bound of a range or next to one,
/// so it is enough to try those.
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
