//! Any bytes in, read as a schema document; claims on what each way of loading it takes, refuses and says.

use capd::schema::subtype::{Compiled, Verdict, is_subtype};
use capd::schema::{CompileError, Profile, Side, Validator};

/// Whatever is refused says where; what a profile takes is enforced, and the profiles lie within each other.
pub(crate) fn run(bytes: &[u8]) {
    let [strict, full] = [Profile::Strict, Profile::Full].map(|profile| profile.check(bytes));
    let compiled = Validator::compile(bytes);
    let any = Validator::compile_any(bytes);
    for refused in [strict.as_ref().err(), full.as_ref().err(), compiled.as_ref().err(), any.as_ref().err()] {
        refused.into_iter().for_each(says_where);
    }
    assert!(strict.is_err() || full.is_ok(), "strict takes it, full says {full:?}");
    assert!(full.is_ok() || compiled.is_err(), "the profile says {full:?}, and it is compiled");
    assert!(compiled.is_err() || any.is_ok(), "without a profile: {any:?}");
    assert_eq!(Validator::compile_under(Profile::Full, bytes).err(), compiled.as_ref().err().cloned());
    let for_proof = Compiled::compile(bytes);
    match (for_proof.as_ref().err(), any.as_ref().err()) {
        // Of several references that lead nowhere, the validating crate names any one.
        (Some(one), Some(other)) if leads_nowhere(one) && leads_nowhere(other) => {}
        (one, other) => assert_eq!(one, other, "for the proof, and for payloads"),
    }
    if let Ok(schema) = for_proof {
        let [all, none] = ["true", "false"].map(|text| Compiled::compile(text.as_bytes()));
        let (all, none) = (all.expect("a schema"), none.expect("a schema"));
        for (sub, sup) in [(&schema, &schema), (&schema, &all), (&none, &schema)] {
            assert_eq!(is_subtype(sub, sup), Verdict::Proven, "within itself and all, around nothing");
        }
    }
    for validator in compiled.iter().chain(&any) {
        for payload in PAYLOADS {
            holds(validator, payload);
        }
    }
}

fn leads_nowhere(error: &CompileError) -> bool {
    let CompileError::Invalid { problem, .. } = error else { return false };
    // A long one is cut at its end.
    problem.starts_with("Resource '") || problem.ends_with("accepted: references inside the document")
}

fn says_where(error: &CompileError) {
    let text = error.to_string();
    assert!(!text.is_empty() && text.len() <= TEXT_BYTES_MAX, "{} bytes", text.len());
    if let CompileError::Invalid { pointer, problem } = error {
        assert!(pointer.starts_with('/') && !problem.is_empty(), "{pointer:?}: {problem:?}");
    }
}

/// A verdict is the same each time, and a payload that is refused is refused for a reason with a place.
fn holds(validator: &Validator, payload: &[u8]) {
    let verdict = validator.validate(payload, Side::Request);
    assert_eq!(validator.validate(payload, Side::Request), verdict);
    if let Err(violations) = verdict {
        assert!((1..=64).contains(&violations.len()), "{violations:?}");
        assert!(violations.iter().all(|violation| violation.path.starts_with('/')), "{violations:?}");
    }
}

/// CBOR: null, 0, -1.5, "a", [], [0, 0], {}, {"a": {"a": null}}.
const PAYLOADS: &[&[u8]] = &[
    &[0xf6],
    &[0x00],
    &[0xf9, 0xbe, 0x00],
    &[0x61, b'a'],
    &[0x80],
    &[0x82, 0x00, 0x00],
    &[0xa0],
    &[0xa1, 0x61, b'a', 0xa1, 0x61, b'a', 0xf6],
];
/// A message and the pointer in front of it, each of which is cut.
const TEXT_BYTES_MAX: usize = 16 * 1024;
