//! Pairs made up, each verdict held against the validator over values made up.
//!
//! `CAPD_SUBTYPE_PAIRS` is the number of pairs of a seed (1,500 if it is not set), `CAPD_SUBTYPE_SEED` makes others than
//! the usual ones: a seed, or a first and a last one (`1-20`). After each seed the figures so far are printed as one line
//! of JSON, and written to the file that `CAPD_SUBTYPE_WRITE` names, so that a long run may be stopped.
//! `CAPD_SUBTYPE_SHOW` prints what is not decided.
//!
//! The validating crate's own check is no judge of them; where it says no of a proven pair, somebody has to look.

use std::collections::BTreeMap;
use std::time::Duration;

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
    pairs: u64,
    proven: u64,
    /// Values of proven pairs that fit the first schema.
    fitting: u64,
    refuted: u64,
    unknown: BTreeMap<String, u64>,
    contradictions: Vec<String>,
    covers: Covers,
    slowest: Duration,
}

/// What the validating crate's own check says of the pairs that are decided.
#[derive(Default)]
struct Covers {
    same: u64,
    undecided: u64,
    /// Refuted pairs that it takes for proven: a witness shows each to be wrong.
    refuted_by_a_witness: u64,
    /// Proven pairs that it takes for refuted, by seed and number.
    no_of_proven: Vec<(u64, u64)>,
}

/// One pair and where it is from.
struct Pair {
    seed: u64,
    at: u64,
    sub: Value,
    sup: Value,
}

impl Pair {
    /// The pair of a number under a seed, and the choices that follow it.
    fn made(seed: u64, at: u64) -> (Self, Random) {
        let mut random = Random::seeded(seed.wrapping_mul(0x1000_0000_01b3).wrapping_add(at));
        let (sub, sup) = pair(&mut random);
        (Self { seed, at, sub, sup }, random)
    }
}

impl Tally {
    fn contradict(&mut self, Pair { seed, at, sub, sup }: &Pair, what: &str) {
        self.contradictions.push(format!("seed {seed}, pair {at}: {what}\n  sub {sub}\n  sup {sup}"));
    }

    /// Holds a proven pair against values of the first schema.
    fn prove(&mut self, pair: &Pair, random: &mut Random) {
        self.proven += 1;
        let (fitting, contradiction) = contradicted(pair, random, VALUES);
        self.fitting += fitting;
        if let Some(value) = contradiction {
            return self.contradict(pair, &format!("{value} fits sub and not sup"));
        }
        match covers(&pair.sub, &pair.sup) {
            Some(Containment::Yes) => self.covers.same += 1,
            Some(Containment::No) => self.covers.no_of_proven.push((pair.seed, pair.at)),
            Some(Containment::Unknown) | None => self.covers.undecided += 1,
        }
    }

    fn refute(&mut self, pair: &Pair, witness: &Value) {
        self.refuted += 1;
        if !validator(&pair.sub).is_valid(witness) || validator(&pair.sup).is_valid(witness) {
            self.contradict(pair, &format!("{witness} is no witness"));
        }
        match covers(&pair.sub, &pair.sup) {
            Some(Containment::No) => self.covers.same += 1,
            Some(Containment::Yes) => self.covers.refuted_by_a_witness += 1,
            Some(Containment::Unknown) | None => self.covers.undecided += 1,
        }
    }

    fn look_at(&mut self, seed: u64, at: u64, shows: bool) {
        let (pair, mut random) = Pair::made(seed, at);
        let (a, b) = (compiled(&pair.sub), compiled(&pair.sup));
        let (verdict, wall) = machine::by_the_clock(|| is_subtype(&a, &b));
        if wall > self.slowest {
            self.slowest = self.slowest.max(machine::timed(|| is_subtype(&a, &b)).1);
        }
        self.pairs += 1;
        match verdict {
            Verdict::Proven => self.prove(&pair, &mut random),
            Verdict::Refuted { witness, path, rule } => {
                assert!(path.starts_with('/') && !rule.is_empty(), "{at}: {path} {rule}");
                self.refute(&pair, &witness);
            }
            Verdict::Unknown { path, construct } => {
                if shows {
                    println!("UNKNOWN {construct} {path} {} {}", pair.sub, pair.sup);
                }
                *self.unknown.entry(construct).or_default() += 1;
            }
        }
    }

    fn undecided(&self) -> u64 {
        self.unknown.values().sum()
    }

    fn summary(&self, commit: &str, (first, last): (u64, u64), took: Duration) -> Value {
        let no_of_proven: Vec<Value> =
            self.covers.no_of_proven.iter().map(|(seed, at)| json!({ "seed": seed, "pair": at })).collect();
        json!({
            "commit": commit,
            "machine": machine::description(),
            "seeds": [first, last],
            "pairs": self.pairs,
            "proven": self.proven,
            "refuted": self.refuted,
            "unknown": self.undecided(),
            "unknown_by_construct": self.unknown,
            "values_that_fit_a_proven_pair": self.fitting,
            "contradictions_by_value": self.contradictions.len(),
            "covers": {
                "says_the_same": self.covers.same,
                "undecided": self.covers.undecided,
                "yes_of_refuted_pairs": self.covers.refuted_by_a_witness,
                "no_of_proven_pairs": no_of_proven,
            },
            "slowest_proof_us": took_us(self.slowest),
            "cpu_seconds": took.as_secs(),
        })
    }
}

/// How many of the values made for a pair fit the first schema, and one of these that does not fit the second.
fn contradicted(pair: &Pair, random: &mut Random, values: usize) -> (u64, Option<Value>) {
    let Pair { sub, sup, .. } = pair;
    let (a, b) = (validator(sub), validator(sup));
    let (mut last, mut fitting) = (Value::Null, 0);
    for at in 0..values {
        let value = match at % 6 {
            0 => value(random, 3),
            1 => value_for(random, sup, sup, 5),
            2 => next_to(random, &last),
            _ => value_for(random, sub, sub, 5),
        };
        if a.is_valid(&value) {
            fitting += 1;
            if !b.is_valid(&value) {
                return (fitting, Some(value));
            }
            last = value;
        }
    }
    (fitting, None)
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

fn took_us(took: Duration) -> u64 {
    took.as_micros() as u64
}

fn setting(name: &str, otherwise: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| otherwise.to_owned())
}

fn number(name: &str, text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{name}: {text:?} is no number"))
}

#[test]
fn no_verdict_is_contradicted_by_a_value() {
    let pairs = number("CAPD_SUBTYPE_PAIRS", &setting("CAPD_SUBTYPE_PAIRS", &PAIRS.to_string()));
    let seeds = setting("CAPD_SUBTYPE_SEED", "1");
    let (first, last) = seeds.split_once('-').unwrap_or((&seeds, &seeds));
    let (first, last) = (number("CAPD_SUBTYPE_SEED", first), number("CAPD_SUBTYPE_SEED", last));
    let shows = std::env::var_os("CAPD_SUBTYPE_SHOW").is_some();
    // As it is at the start: the tree may go on while a long run does.
    let commit = machine::commit();
    let (mut tally, mut took) = (Tally::default(), Duration::ZERO);
    for seed in first..=last {
        took += machine::timed(|| (0..pairs).for_each(|at| tally.look_at(seed, at, shows))).1;
        let summary = tally.summary(&commit, (first, seed), took);
        println!("{summary}");
        if let Some(file) = std::env::var_os("CAPD_SUBTYPE_WRITE") {
            std::fs::write(file, format!("{summary:#}\n")).unwrap();
        }
    }
    let told = tally.contradictions.iter().take(TOLD_MAX).cloned().collect::<Vec<_>>().join("\n");
    assert!(told.is_empty(), "{told}");
    assert!(
        tally.proven > 0 && tally.refuted > 0 && tally.fitting > tally.proven,
        "the generator makes both kinds, and values for them"
    );
    assert!(tally.undecided() * 20 <= tally.pairs, "more than one in twenty undecided");
    let no_of_proven = tally.covers.no_of_proven.iter();
    let open: Vec<String> = no_of_proven
        .map(|(seed, at)| {
            let (Pair { sub, sup, .. }, _) = Pair::made(*seed, *at);
            format!("seed {seed}, pair {at}\n  sub {sub}\n  sup {sup}")
        })
        .collect();
    assert!(open.is_empty(), "proven, and the validating crate's check says no:\n{}", open.join("\n"));
}
