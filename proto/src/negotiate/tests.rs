use proptest::{prelude::*, sample::select};

use super::*;
use crate::{identity::Did, limits};

fn version(text: &str) -> Version {
    text.parse().unwrap()
}

fn only(text: &str) -> Served {
    Served::only(version(text))
}

fn supporting(own: &str, ranges: &[&str]) -> Served {
    Served { supported_ranges: ranges.iter().map(|range| range.parse().unwrap()).collect(), ..only(own) }
}

fn deprecated(served: Served) -> Served {
    Served { deprecated: true, ..served }
}

fn exact(text: &str) -> Want {
    Want::Exact(version(text))
}

fn range(text: &str) -> Want {
    Want::from(text.parse::<Range>().unwrap())
}

fn negotiate(preferred: &str, acceptable: &[&str], range: &str) -> Want {
    Want::Negotiate(Negotiate {
        preferred: (!preferred.is_empty()).then(|| version(preferred)),
        acceptable: acceptable.iter().map(|text| version(text)).collect(),
        range: (!range.is_empty()).then(|| range.parse().unwrap()),
    })
}

/// The chosen own version, with `!` behind it for the warning, or the available ones in brackets.
fn chosen(want: &Want, served: &[Served]) -> String {
    match choose(want, served) {
        Ok(Choice { index, deprecated }) => {
            format!("{}{}", served[index].version, if deprecated { "!" } else { "" })
        }
        Err(refused) => {
            assert_eq!(refused.code(), Code::VERSION_MISMATCH);
            let available: Vec<_> = refused.available.iter().map(Version::to_string).collect();
            format!("[{}]", available.join(" "))
        }
    }
}

#[test]
fn preferences_are_tried_in_their_order() {
    let served = [only("2.0.0"), only("2.1.0"), only("1.5.0")];
    // AMP 004 appendix A.2, A.3 and A.4 first.
    for (want, expected) in [
        (negotiate("2.1.0", &[], ""), "2.1.0"),
        (negotiate("2.2.0", &["2.1.0", "2.0.0"], ""), "2.1.0"),
        (range(">=3.0.0 <4.0.0"), "[2.1.0 2.0.0 1.5.0]"),
        (negotiate("1.5.0", &["2.1.0"], ">=2.0"), "1.5.0"),
        (negotiate("9.0", &["8.0", "2.0"], ">=1.0"), "2.0.0"),
        (negotiate("9.0", &["8.0"], ">=1.0 <2.1"), "2.0.0"),
        (negotiate("", &[], ">=1.0"), "2.1.0"),
        (negotiate("", &[], ""), "[2.1.0 2.0.0 1.5.0]"),
        (exact("2.0"), "2.0.0"),
        (exact("2.0.1"), "[2.1.0 2.0.0 1.5.0]"),
        (Want::Newest, "2.1.0"),
    ] {
        assert_eq!(chosen(&want, &served), expected, "{want:?}");
    }
}

#[test]
fn a_descriptor_serves_its_supported_ranges_but_nothing_below_its_floor() {
    let two = supporting("2.1.0", &[">=1.0 <3.0"]);
    assert_eq!(chosen(&exact("1.2.0"), std::slice::from_ref(&two)), "2.1.0");
    assert_eq!(chosen(&exact("3.0.0"), std::slice::from_ref(&two)), "[2.1.0]");
    let floored = [Served { min_schema_version: Some(version("1.5.0")), ..two }];
    assert_eq!(chosen(&exact("1.4.9"), &floored), "[2.1.0]");
    assert_eq!(chosen(&exact("1.5.0"), &floored), "2.1.0");
    assert_eq!(chosen(&range(">=1.0 <1.5"), &floored), "[2.1.0]");
    assert_eq!(chosen(&range(">=1.0 <=1.5"), &floored), "2.1.0");
    let sunk = [Served { min_schema_version: Some(version("2.0.0")), ..only("1.0.0") }];
    assert_eq!(chosen(&exact("1.0.0"), &sunk), "[1.0.0]");
    assert_eq!(chosen(&range(">=1.0"), &sunk), "[1.0.0]");
}

#[test]
fn nothing_is_served_from_before_the_capability_was_there() {
    let young = [Served { since: Some(version("1.5.0")), ..supporting("2.1.0", &[">=1.0 <3.0"]) }];
    assert_eq!(chosen(&exact("1.4.9"), &young), "[2.1.0]");
    assert_eq!(chosen(&exact("1.5.0"), &young), "2.1.0");
    assert_eq!(chosen(&range(">=1.0 <1.5"), &young), "[2.1.0]");
    assert_eq!(chosen(&negotiate("1.2.0", &["1.6.0"], ""), &young), "2.1.0");
    // The higher of the two floors holds.
    for (floor, since) in [("1.8.0", "1.5.0"), ("1.5.0", "1.8.0")] {
        let floor = Some(version(floor));
        let both = [Served { min_schema_version: floor, since: Some(version(since)), ..young[0].clone() }];
        assert_eq!(chosen(&exact("1.7.9"), &both), "[2.1.0]");
        assert_eq!(chosen(&exact("1.8.0"), &both), "2.1.0");
    }
}

#[test]
fn the_descriptor_whose_own_version_is_asked_for_wins_and_then_the_highest() {
    let served = [supporting("1.9.0", &[">=1.0 <2.0"]), only("1.5.0"), supporting("2.0.0", &[">=1.0 <2.0"])];
    assert_eq!(chosen(&exact("1.5.0"), &served), "1.5.0");
    assert_eq!(chosen(&exact("1.6.0"), &served), "2.0.0");
    assert_eq!(chosen(&range(">=1.0 <2.0"), &served), "1.9.0");
    assert_eq!(chosen(&range(">=1.6 <1.7"), &served), "2.0.0");
}

#[test]
fn deprecated_descriptors_match_last_and_warn() {
    let served = [deprecated(only("2.0.0")), only("1.0.0")];
    assert_eq!(chosen(&range(">=1.0"), &served), "1.0.0");
    assert_eq!(chosen(&exact("2.0.0"), &served), "2.0.0!");
    assert_eq!(chosen(&Want::Newest, &served), "1.0.0");
    // The order of the caller's preferences stands above deprecation.
    assert_eq!(chosen(&negotiate("2.0.0", &["1.0.0"], ""), &served), "2.0.0!");
    // Both serve 1.5.0; the one that is not deprecated comes first, though it is not the own version.
    let served = [deprecated(only("1.5.0")), supporting("2.0.0", &[">=1.0"])];
    assert_eq!(chosen(&exact("1.5.0"), &served), "2.0.0");
}

#[test]
fn deprecated_versions_and_ranges_warn_for_what_they_name() {
    let served = [Served {
        deprecated_versions: vec![version("1.0")],
        deprecated_ranges: vec!["<0.9".parse().unwrap()],
        ..supporting("2.0.0", &[">=0.1"])
    }];
    assert_eq!(chosen(&exact("1.0.0"), &served), "2.0.0!");
    assert_eq!(chosen(&exact("0.5.0"), &served), "2.0.0!");
    assert_eq!(chosen(&exact("1.1.0"), &served), "2.0.0");
    assert_eq!(chosen(&range(">=0.1 <0.8"), &served), "2.0.0!");
    assert_eq!(chosen(&range(">=0.1 <0.95"), &served), "2.0.0");
}

#[test]
fn a_prerelease_is_chosen_only_when_it_is_named() {
    let served = [only("2.0.0-rc.1"), only("1.0.0")];
    assert_eq!(chosen(&range(">=1.0.0 <2.0.0"), &served), "1.0.0");
    assert_eq!(chosen(&range(">=2.0.0-rc.1"), &served), "2.0.0-rc.1");
    assert_eq!(chosen(&exact("2.0.0-rc.1"), &served), "2.0.0-rc.1");
    assert_eq!(chosen(&Want::Newest, &served), "1.0.0");
}

#[test]
fn a_pinned_version_that_is_gone_is_refused_and_never_replaced() {
    let pinned = Want::Pinned(version("1.5.0"));
    assert_eq!(chosen(&pinned, &[only("1.5.0"), only("2.0.0")]), "1.5.0");
    assert_eq!(chosen(&pinned, &[supporting("2.0.0", &[">=1.0"])]), "[2.0.0]");
    assert_eq!(chosen(&pinned, &[]), "[]");
}

#[test]
fn available_versions_are_newest_first_without_repeats_and_bounded() {
    let served = [only("1.0.0"), only("2.0.0-rc.1"), only("10.0.0"), only("1.0.0")];
    assert_eq!(chosen(&exact("9.0"), &served), "[10.0.0 2.0.0-rc.1 1.0.0]");
    let many: Vec<_> = (0..100).map(|minor| Served::only(Version::new(1, minor, 0))).collect();
    let refused = choose(&exact("9.0"), &many).unwrap_err();
    assert_eq!(refused.available.len(), limits::AVAILABLE_MAX);
    assert_eq!(refused.available[0], version("1.99.0"));
}

const ANN: &str = "did:web:ann.example";
const BOB: &str = "did:web:bob.example";

fn session(id: u8, peer: &str, expires_at: u64) -> Session {
    Session {
        id: SessionId([id; 16]),
        peer: Did::parse(peer).unwrap(),
        name: "a.b.c".parse().unwrap(),
        agreed_version: version("1.5.0"),
        expires_at,
    }
}

#[test]
fn a_session_pins_until_it_expires() {
    let mut sessions = Sessions::new(10, 10);
    sessions.accept(session(1, ANN, 100), 0).unwrap();
    let id = Some(SessionId([1; 16]));
    let want = |asked, now_ms| sessions.want("a.b.c", asked, id, ANN, now_ms);
    assert_eq!(want(None, 99), Ok(Want::Pinned(version("1.5.0"))));
    assert_eq!(want(Some(range(">=2.0")), 99), Ok(Want::Pinned(version("1.5.0"))));
    assert_eq!(want(Some(exact("1.5")), 99), Ok(Want::Pinned(version("1.5.0"))));
    assert_eq!(want(Some(exact("2.0")), 99), Err(PinError::OtherVersion));
    assert_eq!(want(None, 100), Err(PinError::NotPinned));
    assert_eq!(want(Some(exact("2.0")), 100), Ok(exact("2.0")));
}

#[test]
fn a_session_is_nothing_to_another_peer_or_capability() {
    let mut sessions = Sessions::new(10, 10);
    sessions.accept(session(1, ANN, 100), 0).unwrap();
    let id = Some(SessionId([1; 16]));
    assert_eq!(sessions.want("a.b.c", None, id, BOB, 0), Err(PinError::NotPinned));
    assert_eq!(sessions.want("a.b.d", None, id, ANN, 0), Err(PinError::NotPinned));
    assert_eq!(sessions.want("a.b.c", None, Some(SessionId([2; 16])), ANN, 0), Err(PinError::NotPinned));
    assert_eq!(PinError::NotPinned.code(), Code::BAD_REQUEST);
}

#[test]
fn sessions_are_bounded_in_all_and_for_each_peer() {
    let mut sessions = Sessions::new(3, 2);
    sessions.accept(session(1, ANN, 10), 0).unwrap();
    sessions.accept(session(2, ANN, 20), 0).unwrap();
    assert_eq!(sessions.accept(session(3, ANN, 30), 0), Err(SessionsFull));
    sessions.accept(session(3, BOB, 30), 0).unwrap();
    assert_eq!(sessions.accept(session(4, BOB, 40), 0), Err(SessionsFull));
    assert_eq!(SessionsFull.code(), Code::OVERLOADED);
    assert_eq!(sessions.next_expiry(), Some(10));
    // Time makes room, and an id in use is never taken over.
    assert_eq!(sessions.accept(session(2, BOB, 40), 10), Err(SessionsFull));
    sessions.accept(session(4, ANN, 40), 10).unwrap();
    assert_eq!((sessions.expire(40), sessions.len(), sessions.is_empty()), (3, 0, true));
    assert_eq!(sessions.next_expiry(), None);
}

/// Few enough versions that a model can look at each of them; bounds come from the smaller numbers.
fn small_version(numbers: std::ops::Range<u64>) -> impl Strategy<Value = Version> {
    (numbers.clone(), numbers, 0u64..2, select(&["", "", "-a", "-b"][..]))
        .prop_map(|(major, minor, patch, pre)| version(&format!("{major}.{minor}.{patch}{pre}")))
}

fn small_range() -> impl Strategy<Value = Range> {
    let comparator = (select(&["=", ">", ">=", "<", "<="][..]), small_version(0..2))
        .prop_map(|(operator, version)| format!("{operator}{version}"));
    prop::collection::vec(comparator, 1..3).prop_map(|comparators| comparators.join(" ").parse().unwrap())
}

fn small_served() -> impl Strategy<Value = Served> {
    (
        small_version(0..2),
        prop::collection::vec(small_range(), 0..3),
        prop::collection::vec(small_range(), 0..2),
        prop::collection::vec(small_version(0..2), 0..2),
        prop::array::uniform2(prop::option::weighted(0.3, small_version(0..2))),
        prop::bool::weighted(0.2),
    )
        .prop_map(
            |(version, supported_ranges, deprecated_ranges, deprecated_versions, floors, deprecated)| {
                let [min_schema_version, since] = floors;
                Served {
                    version,
                    supported_ranges,
                    deprecated_ranges,
                    deprecated_versions,
                    min_schema_version,
                    since,
                    deprecated,
                }
            },
        )
}

fn small_want() -> impl Strategy<Value = Want> {
    let preferences = (
        prop::option::of(small_version(0..2)),
        prop::collection::vec(small_version(0..2), 0..3),
        prop::option::of(small_range()),
    )
        .prop_map(|(preferred, acceptable, range)| {
            Want::Negotiate(Negotiate { preferred, acceptable, range })
        });
    prop_oneof![
        small_version(0..2).prop_map(Want::Exact),
        small_version(0..2).prop_map(Want::Pinned),
        small_range().prop_map(Want::from),
        preferences,
        Just(Want::Newest),
    ]
}

/// Every version that can tell two small ranges apart.
fn all_small_versions() -> Vec<Version> {
    let mut all = Vec::new();
    for major in [0, 1, 2, u64::MAX] {
        for minor in [0, 1, 2, u64::MAX] {
            for patch in [0, 1, 2, u64::MAX] {
                for pre in ["", "-0", "-a", "-a.0", "-b", "-b.0"] {
                    all.push(version(&format!("{major}.{minor}.{patch}{pre}")));
                }
            }
        }
    }
    all
}

/// PROTOCOL 7.5 by brute force: each step lists every (deprecated, own, version) that serves it and sorts them.
fn model(want: &Want, served: &[Served], all: &[Version]) -> Option<(Version, bool)> {
    type Row = (bool, bool, Version);
    let serves = |served: &Served, version: &Version| {
        let is_above = served.min_schema_version.iter().chain(&served.since).all(|floor| floor <= version);
        is_above && (served.version == *version || served.supported_ranges.iter().any(|r| r.matches(version)))
    };
    let warns = |served: &Served, version: &Version| {
        let ranges = served.deprecated_ranges.iter().any(|range| range.matches(version));
        served.deprecated || ranges || served.deprecated_versions.iter().any(|other| other == version)
    };
    let first = |mut rows: Vec<Row>| {
        rows.sort_by(|one, other| (one.0, !one.1).cmp(&(other.0, !other.1)).then(other.2.total_cmp(&one.2)));
        rows.into_iter().next().map(|(deprecated, _, version)| (version, deprecated))
    };
    let exact = |version: &Version| {
        let fits = served.iter().filter(|served| serves(served, version));
        first(fits.map(|s| (warns(s, version), s.version == *version, s.version.clone())).collect())
    };
    match want {
        Want::Exact(version) => exact(version),
        Want::Pinned(version) => {
            let fits = served.iter().filter(|served| served.version == *version);
            first(fits.map(|s| (warns(s, version), true, s.version.clone())).collect())
        }
        Want::Newest => first(
            served
                .iter()
                .map(|s| (warns(s, &s.version), !s.version.is_prerelease(), s.version.clone()))
                .collect(),
        ),
        Want::Negotiate(Negotiate { preferred, acceptable, range }) => {
            let named = preferred.iter().chain(acceptable).find_map(exact);
            named.or_else(|| {
                let range = range.as_ref()?;
                let rows = served.iter().filter_map(|s| {
                    if range.matches(&s.version) && serves(s, &s.version) {
                        return Some((warns(s, &s.version), true, s.version.clone()));
                    }
                    // Whether there is something to share is found by looking; which of it is asked about the warning
                    // is a definition (the ends), so the model takes it over.
                    all.iter().find(|version| range.matches(version) && serves(s, version))?;
                    let floor = s.min_schema_version.iter().chain(&s.since).max();
                    let is_deprecated = s
                        .supported_ranges
                        .iter()
                        .flat_map(|supported| common_versions(range, supported, floor))
                        .all(|version| warns(s, &version));
                    Some((is_deprecated, false, s.version.clone()))
                });
                first(rows.collect())
            })
        }
    }
}

proptest! {
    #[test]
    fn the_choice_does_not_depend_on_the_order_of_descriptors(
        want in small_want(),
        (served, shuffled) in prop::collection::vec(small_served(), 0..6)
            .prop_flat_map(|served| (Just(served.clone()), Just(served).prop_shuffle())),
    ) {
        prop_assert_eq!(chosen(&want, &served), chosen(&want, &shuffled));
    }

    #[test]
    fn the_choice_is_the_models(want in small_want(), served in prop::collection::vec(small_served(), 0..6)) {
        let all = all_small_versions();
        let ours = choose(&want, &served).ok().map(|c| (served[c.index].version.clone(), c.deprecated));
        prop_assert_eq!(ours, model(&want, &served, &all));
    }

    #[test]
    fn what_two_ranges_share_is_found_exactly_when_there_is_something(
        first in small_range(),
        second in small_range(),
        floor in prop::option::of(small_version(0..2)),
    ) {
        let is_shared = |version: &Version| {
            first.matches(version) && second.matches(version) && floor.iter().all(|floor| floor <= version)
        };
        let found: Vec<_> = common_versions(&first, &second, floor.as_ref()).collect();
        prop_assert!(found.iter().all(is_shared));
        prop_assert_eq!(found.is_empty(), !all_small_versions().iter().any(is_shared));
    }
}
