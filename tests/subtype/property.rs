//! Pairs made up, each verdict held against the validator over values made up.
//!
//! `CAPD_SUBTYPE_PAIRS=N` runs N pairs, and `CAPD_SUBTYPE_SEED=N` others than the usual ones.

use std::collections::BTreeMap;

use capd::schema::subtype::Verdict;

use super::generate::{Random, close_to, document};
use super::support::{compiled, validator};
use super::values::{value, value_for};

/// Pairs of an ordinary run.
const PAIRS: u64 = 1_500;
/// Values held against each proven pair.
const VALUES: usize = 60;

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
}

#[test]
fn no_verdict_is_contradicted_by_a_value() {
    let (pairs, seed) = (setting("CAPD_SUBTYPE_PAIRS", PAIRS), setting("CAPD_SUBTYPE_SEED", 1));
    let (mut proven, mut fitting, mut refuted, mut unknown) =
        (0_u64, 0_u64, 0_u64, BTreeMap::<String, u64>::new());
    for pair in 0..pairs {
        let mut random = Random(seed.wrapping_mul(0x1000_0000_01b3).wrapping_add(pair));
        let draft_7 = random.one_in(2);
        let sub = document(&mut random, draft_7);
        let sup = if random.one_in(3) {
            document(&mut random, draft_7)
        } else {
            close_to(&mut random, &sub, draft_7)
        };
        let (a, b) = (validator(&sub), validator(&sup));
        match capd::schema::subtype::is_subtype(&compiled(&sub), &compiled(&sup)) {
            Verdict::Proven => {
                proven += 1;
                for at in 0..VALUES {
                    let value = match at % 3 {
                        0 => value(&mut random, 3),
                        _ => value_for(&mut random, &sub, &sub, 5),
                    };
                    let is_sub = a.is_valid(&value);
                    fitting += u64::from(is_sub);
                    assert!(!is_sub || b.is_valid(&value), "{pair}: {value} is of {sub}, not of {sup}");
                }
            }
            Verdict::Refuted { witness, path, rule } => {
                refuted += 1;
                assert!(a.is_valid(&witness) && !b.is_valid(&witness), "{pair}: {witness}, {sub}, {sup}");
                assert!(path.starts_with('/') && !rule.is_empty(), "{pair}: {path} {rule}");
            }
            Verdict::Unknown { path, construct } => {
                *unknown.entry(construct.clone()).or_default() += 1;
                if std::env::var_os("CAPD_SUBTYPE_SHOW").is_some() {
                    println!("UNKNOWN {construct} {path} {sub} {sup}");
                }
            }
        }
    }
    println!(
        "{pairs} pairs: {proven} proven over {fitting} values that fit, {refuted} refuted, unknown {unknown:?}"
    );
    assert!(
        proven > 0 && refuted > 0 && fitting > proven,
        "the generator makes both kinds, and values for them"
    );
    let undecided: u64 = unknown.values().sum();
    assert!(undecided * 20 <= pairs, "more than one in twenty undecided");
}
