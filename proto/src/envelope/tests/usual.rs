//! Compares the single pass over a usual envelope with the general decoder.

use super::*;
use crate::envelope::{decode, usual};

/// One with all that a usual envelope may have, and one with the least.
fn usual_ones() -> [Vec<u8>; 2] {
    let body = hex("a2626964716f72672e6578616d706c652e613a312e3066706172616d73a2616101616282f5c24101");
    let (alice, bob) = (alice(), bob());
    let least = draft(&alice, &bob, &body);
    let most = Draft { reply_to: Some(&[7; 16]), thread_id: Some(b"thread"), ..least.clone() };
    let mut bytes = [Vec::new(), Vec::new()];
    most.seal(&alice, true, &mut bytes[0]);
    least.write_unsigned(&mut bytes[1]);
    bytes
}

/// Holds one reading against the other; says whether the first took it.
#[track_caller]
fn agree(bytes: &[u8]) -> bool {
    let read = usual::read(bytes);
    if let Some(envelope) = &read {
        assert_eq!(Ok(envelope), decode::decode(bytes).as_ref(), "{bytes:02x?}");
    }
    read.is_some()
}

#[test]
fn what_drafts_write_is_read_in_one_pass() {
    for bytes in usual_ones() {
        assert!(agree(&bytes));
    }
}

#[test]
fn whatever_one_byte_is_both_agree() {
    for bytes in usual_ones() {
        let mut damaged = bytes.clone();
        for at in 0..bytes.len() {
            for byte in 0..=0xff {
                damaged[at] = byte;
                agree(&damaged);
            }
            damaged[at] = bytes[at];
        }
    }
}

#[test]
fn what_is_cut_longer_or_in_another_order_is_for_the_other() {
    for bytes in usual_ones() {
        for end in 0..bytes.len() {
            assert!(!agree(&bytes[..end]));
        }
        assert!(!agree(&[&bytes[..], &[0]].concat()));
    }
    let usual = Loose::new();
    assert!(agree(&usual.bytes()));
    for name in ["v", "id", "to", "ts", "sig", "ttl", "typ", "body", "from"] {
        let (key, value) = usual.0.iter().find(|(key, _)| *key == text(name)).unwrap().clone();
        assert!(!agree(&usual.clone().without(name).bytes()));
        assert!(!agree(&usual.clone().and(&key, &value).bytes()));
        if name != "from" {
            assert!(!agree(&usual.clone().without(name).and(&key, &value).bytes()));
        }
    }
    assert!(!agree(&usual.with("ext", &[0xa0]).bytes()));
}
