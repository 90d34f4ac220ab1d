//! Bodies generated from each schema, good and mutated, judged by our programs and by two other crates.

#[path = "support/differential.rs"]
mod differential;
#[path = "support/edn.rs"]
mod edn;
#[path = "support/generate.rs"]
mod generate;

use std::collections::BTreeMap;

use differential::{DEFECTS, Oracle, schemas};
use generate::{Generator, Random};

/// Bodies per schema.
const BODIES: usize = 300;

#[test]
fn our_verdict_is_that_of_the_other_crates_but_for_their_known_defects() {
    let mut found: BTreeMap<(String, String, bool), String> = BTreeMap::new();
    for (at, schema) in schemas().iter().enumerate() {
        let generator = Generator::new(schema.text);
        let mut random = Random::new(at as u64);
        let (mut good, mut bad) = (0, 0);
        for turn in 0..BODIES {
            let mut value = generator.root(&mut random);
            for _ in 0..turn % 4 {
                generate::mutate(&mut value, &mut random);
            }
            let mut bytes = Vec::new();
            ciborium::into_writer(&value, &mut bytes).expect("a vector takes any value");
            if turn % 5 == 4 {
                // Bytes that no value was ever encoded to; most are malformed, and those are not compared.
                let at = random.below(bytes.len());
                bytes[at] = random.below(256) as u8;
            }
            if schema.ours(&bytes).is_ok() {
                good += 1
            } else {
                bad += 1
            }
            for (oracle, ours) in differential::differences(schema, &bytes) {
                let shortest = found.entry((schema.name.into(), format!("{oracle:?}"), ours)).or_default();
                let text = format!("{bytes:02x?}");
                if shortest.is_empty() || text.len() < shortest.len() {
                    *shortest = text;
                }
            }
        }
        assert!(good > BODIES / 20, "{}: only {good} bodies match", schema.name);
        assert!(
            bad > BODIES / 20 || schema.ours(b"\xf7").is_ok(),
            "{}: only {bad} bodies do not match",
            schema.name
        );
    }
    let listing: Vec<String> = found
        .iter()
        .map(|((schema, oracle, ours), body)| format!("{schema} {oracle} ours={ours}: {body}"))
        .collect();
    assert!(found.is_empty(), "{}", listing.join("\n"));
}

#[test]
fn each_known_defect_is_still_there() {
    for defect in DEFECTS {
        let bytes = edn::edn(defect.body);
        let schema =
            schemas().iter().find(|schema| schema.name == defect.schema).expect("a schema by that name");
        assert_eq!(
            schema.theirs(defect.oracle, &bytes),
            Some(defect.accepts),
            "{}: {}",
            defect.reason,
            defect.body
        );
        assert_eq!(schema.ours(&bytes).is_ok(), !defect.accepts, "{}: {}", defect.reason, defect.body);
    }
}

#[test]
fn each_oracle_takes_most_schemas() {
    for (oracle, at_least) in [(Oracle::Cddl, schemas().len()), (Oracle::Cat, schemas().len() - 6)] {
        let taken = schemas().iter().filter(|s| s.theirs(oracle, b"\x01").is_some()).count();
        assert!(taken >= at_least, "{oracle:?} takes {taken} of {}", schemas().len());
    }
}
