//! Pairs made up, each verdict held against the validator over values made up.
//!
//! `CAPD_SUBTYPE_PAIRS` is the number of pairs (1,500 if it is not set), `CAPD_SUBTYPE_SEED` makes others than the usual
//! ones, and `CAPD_SUBTYPE_SHOW` prints what is not decided. The figures of a run are printed as one line of JSON.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use capd::schema::subtype::{Verdict, is_subtype};
use jsonschema::canonical::{self, Containment};
use serde_json::{Value, json};

use super::generate::{Random, pair};
use super::machine;
use super::support::{compiled, validator};
use super::values::{next_to, value, value_for};

/// Pairs of an ordinary run.
const PAIRS: u64 = 1_500;
/// Values held against each proven pair.
const VALUES: usize = 60;
/// Contradictions that are told.
const TOLD_MAX: usize = 20;

/// What came of the pairs.
#[derive(Default)]
struct Tally {
    proven: u64,
    /// Values of proven pairs that fit the first schema.
    fitting: u64,
    /// Proven pairs on which the validating crate's own check said the same.
    seconded: u64,
    refuted: u64,
    unknown: BTreeMap<String, u64>,
    contradictions: Vec<String>,
    slowest: Duration,
}

impl Tally {
    fn contradict(&mut self, pair: u64, what: &str, sub: &Value, sup: &Value) {
        self.contradictions.push(format!("pair {pair}: {what}\n  sub {sub}\n  sup {sup}"));
    }

    /// Holds a proven pair against values of the first schema, and against another checker.
    fn prove(&mut self, pair: u64, random: &mut Random, sub: &Value, sup: &Value) {
        self.proven += 1;
        let (a, b) = (validator(sub), validator(sup));
        let mut last = Value::Null;
        for at in 0..VALUES {
            let value = match at % 6 {
                0 => value(random, 3),
                1 => value_for(random, sup, sup, 5),
                2 => next_to(random, &last),
                _ => value_for(random, sub, sub, 5),
            };
            if a.is_valid(&value) {
                self.fitting += 1;
                if !b.is_valid(&value) {
                    self.contradict(pair, &format!("{value} fits sub and not sup"), sub, sup);
                    return;
                }
                last = value;
            }
        }
        match covers(sub, sup) {
            Some(Containment::Yes) => self.seconded += 1,
            Some(Containment::No) => self.contradict(pair, "another checker says no", sub, sup),
            Some(Containment::Unknown) | None => {}
        }
    }

    fn refute(&mut self, pair: u64, witness: &Value, sub: &Value, sup: &Value) {
        self.refuted += 1;
        if !validator(sub).is_valid(witness) || validator(sup).is_valid(witness) {
            self.contradict(pair, &format!("{witness} is no witness"), sub, sup);
        }
    }

    fn summary(&self, pairs: u64, seed: u64, took: Duration) -> Value {
        json!({
            "pairs": pairs,
            "seed": seed,
            "proven": self.proven,
            "values_that_fit_a_proven_pair": self.fitting,
            "proven_by_covers_too": self.seconded,
            "refuted": self.refuted,
            "unknown": self.unknown,
            "contradictions": self.contradictions.len(),
            "slowest_proof_us": self.slowest.as_micros() as u64,
            "seconds": took.as_secs(),
            "machine": machine::description(),
            "commit": machine::commit(),
        })
    }
}

/// What the validating crate's own check says, which is no part of the proof.
fn covers(sub: &Value, sup: &Value) -> Option<Containment> {
    // The uuid of draft-07 is asserted by a format of ours, which that check knows nothing of.
    if [sub, sup].iter().any(|schema| schema.get("$schema").is_some() && schema.to_string().contains("uuid"))
    {
        return None;
    }
    let canonical = |schema: &Value| {
        canonical::options().offline().should_validate_formats(true).canonicalize(schema).ok()
    };
    canonical(sup)?.covers(&canonical(sub)?).ok()
}

fn setting(name: &str, otherwise: u64) -> u64 {
    std::env::var(name)
        .ok()
        .map_or(otherwise, |text| text.parse().unwrap_or_else(|_| panic!("{name}={text}")))
}

#[test]
#[allow(clippy::disallowed_methods, reason = "how long a proof took is told, and decides nothing")]
fn no_verdict_is_contradicted_by_a_value() {
    let (pairs, seed) = (setting("CAPD_SUBTYPE_PAIRS", PAIRS), setting("CAPD_SUBTYPE_SEED", 1));
    let shows = std::env::var_os("CAPD_SUBTYPE_SHOW").is_some();
    let begin = Instant::now();
    let mut tally = Tally::default();
    for at in 0..pairs {
        let mut random = Random::seeded(seed.wrapping_mul(0x1000_0000_01b3).wrapping_add(at));
        let (sub, sup) = pair(&mut random);
        let (a, b) = (compiled(&sub), compiled(&sup));
        let asked = Instant::now();
        let verdict = is_subtype(&a, &b);
        tally.slowest = tally.slowest.max(asked.elapsed());
        match verdict {
            Verdict::Proven => tally.prove(at, &mut random, &sub, &sup),
            Verdict::Refuted { witness, path, rule } => {
                assert!(path.starts_with('/') && !rule.is_empty(), "{at}: {path} {rule}");
                tally.refute(at, &witness, &sub, &sup);
            }
            Verdict::Unknown { path, construct } => {
                if shows {
                    println!("UNKNOWN {construct} {path} {sub} {sup}");
                }
                *tally.unknown.entry(construct).or_default() += 1;
            }
        }
    }
    println!("{}", tally.summary(pairs, seed, begin.elapsed()));
    let told = tally.contradictions.iter().take(TOLD_MAX).cloned().collect::<Vec<_>>().join("\n");
    assert!(told.is_empty(), "CAPD_SUBTYPE_SEED={seed}\n{told}");
    assert!(
        tally.proven > 0 && tally.refuted > 0 && tally.fitting > tally.proven,
        "the generator makes both kinds, and values for them"
    );
    let undecided: u64 = tally.unknown.values().sum();
    assert!(undecided * 20 <= pairs, "more than one in twenty undecided");
}
