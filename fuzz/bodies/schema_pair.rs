//! A line and the bytes behind it in, read as a schema document and a payload; claims on the verdict and what it took.

use capd::schema::validator::STEPS_MAX;
use capd::schema::{Side, Validator, Violation};

/// A verdict takes no more steps than it may, is the same each time, and gives its reasons. What takes long all the same is
/// what steps are not charged for, and a timeout of the fuzzer's.
pub(crate) fn run(bytes: &[u8]) {
    let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return };
    let (document, payload) = (&bytes[..end], &bytes[end + 1..]);
    let Ok(validator) = Validator::compile(document) else { return };
    if capd_proto::cbor::check(payload).is_err() {
        return;
    }
    let steps = validator.steps(payload);
    assert!(steps <= STEPS_MAX, "{steps}");
    assert_eq!(validator.steps(payload), steps, "of the same check");
    for side in [Side::Request, Side::Response] {
        let verdict = validator.validate(payload, side);
        assert_eq!(validator.validate(payload, side), verdict);
        if let Err(violations) = verdict {
            assert!((1..=64).contains(&violations.len()), "{} violations", violations.len());
            violations.iter().for_each(is_bounded);
        }
    }
}

fn is_bounded(violation: &Violation) {
    let Violation { path, message, keyword } = violation;
    assert!(path.starts_with('/') && path.len() <= 1024, "{path:?}");
    assert!(!message.is_empty() && message.len() <= 512 && !keyword.is_empty(), "{message:?} {keyword:?}");
}
