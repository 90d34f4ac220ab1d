//! What a registry that lies may try, and for which reason each attempt fails.

use super::*;
use crate::cbor::{Reader, Writer};

/// A registration's three parts, to be put together otherwise.
fn parts(value: &[u8]) -> [Vec<u8>; 3] {
    let mut reader = Reader::new(value);
    assert_eq!(reader.array(), Ok(Some(3)));
    std::array::from_fn(|_| reader.bytes().unwrap().into_owned())
}

fn joined(parts: &[Vec<u8>; 3]) -> Vec<u8> {
    let mut value = Vec::new();
    let mut writer = Writer::new(&mut value);
    writer.array(3);
    for part in parts {
        writer.bytes(part);
    }
    value
}

fn why(value: &[u8]) -> &'static str {
    verify(&mut verifier(), value, NOW_MS).map_or_else(|refused| refused.why(), |_| "believed")
}

fn with(change: impl FnOnce(&mut Registration)) -> Vec<u8> {
    let mut registration = registration();
    change(&mut registration);
    signed(&registration)
}

fn with_member(change: impl FnOnce(&mut Membership)) -> Vec<u8> {
    let mut membership = membership();
    change(&mut membership);
    registration().sign(&identity(), &membership.sign(&authority()).unwrap()).unwrap()
}

#[test]
fn an_honest_registration_is_believed() {
    assert_eq!(why(&with(|_| ())), "believed");
}

#[test]
fn a_value_that_is_too_long_is_not_even_read() {
    let mut value = with(|_| ());
    value.resize(2_049, 0);
    assert_eq!(why(&value), "too_long");
    value.truncate(2_048);
    assert_eq!(why(&value), "malformed");
}

#[test]
fn a_record_under_the_key_of_another_agent_is_refused() {
    let other = Identity::from_seed([3; 32]);
    let registration = Registration { agent: agent_of(&other), ..registration() };
    let value = registration.sign(&other, &membership().sign(&authority()).unwrap()).unwrap();
    assert_eq!(why(&value), "other_agent");
}

#[test]
fn a_record_under_another_name_cell_or_shard_is_refused() {
    assert_eq!(why(&with(|of| of.name = "org.example.billing.refund".parse().unwrap())), "other_place");
    assert_eq!(why(&with(|of| of.cell = "prod-us".parse().unwrap())), "other_place");
    let agent = agent_of(&identity());
    for shard in Shard::all().filter(|shard| *shard != Shard::of(&agent)) {
        let refused = verifier().registration(&name(), shard, &agent, &with(|_| ()), NOW_MS).unwrap_err();
        assert_eq!(refused, Refused::OtherPlace);
    }
}

#[test]
fn a_second_spelling_is_refused_although_its_body_is_signed() {
    let [body, signature, membership] = parts(&with(|_| ()));
    // The outer array with a length that is one byte longer than it has to be.
    let mut long_head = vec![0x98, 3];
    long_head.extend_from_slice(&joined(&[body.clone(), signature.clone(), membership.clone()])[1..]);
    assert_eq!(why(&long_head), "not_canonical");
    let sign = |body: &[u8]| {
        let message = [b"capd-registration-v1\0", body].concat();
        joined(&[body.to_vec(), identity().sign(&message).to_vec(), membership.clone()])
    };
    assert_eq!(sign(&body), joined(&[body.clone(), signature, membership.clone()]));
    // Its first value, the format, in two bytes.
    let mut long_format = body.clone();
    long_format.splice(2..3, [0x18, 1]);
    assert_eq!(why(&sign(&long_format)), "not_canonical");
    // A field behind the last one, and the first two in the wrong order.
    let mut further = body.clone();
    further[0] += 1;
    further.extend_from_slice(&[0x18, 99, 0]);
    assert_eq!(why(&sign(&further)), "malformed");
    let mut swapped = body.clone();
    let first: Vec<u8> = swapped.drain(1..3).collect();
    swapped.splice(1 + 35..1 + 35, first);
    assert_eq!(why(&sign(&swapped)), "malformed");
}

#[test]
fn a_version_in_two_parts_is_no_canonical_encoding() {
    let [body, _, membership] = parts(&with(|_| ()));
    let at = body.windows(6).position(|bytes| bytes == b"\x651.4.0").unwrap();
    let mut short = body;
    short.splice(at..at + 6, *b"\x631.4");
    let message = [b"capd-registration-v1\0", short.as_slice()].concat();
    assert_eq!(why(&joined(&[short, identity().sign(&message).to_vec(), membership])), "not_canonical");
}

#[test]
fn a_record_counts_within_its_time_only() {
    let value = with(|_| ());
    let skew_ms = 5 * 60 * 1_000;
    let at = |now_ms| verify(&mut verifier(), &value, now_ms).map(drop);
    assert_eq!(at(NOW_MS + DAY_MS - 1), Ok(()));
    assert_eq!(at(NOW_MS + DAY_MS), Err(Refused::Expired));
    let early = with(|of| (of.made_at_ms, of.not_after_ms) = (NOW_MS + skew_ms, NOW_MS + skew_ms + 1));
    assert_eq!(why(&early), "believed");
    let too_early = with(|of| (of.made_at_ms, of.not_after_ms) = (NOW_MS + skew_ms + 1, NOW_MS + DAY_MS));
    assert_eq!(why(&too_early), "from_the_future");
    assert_eq!(why(&with(|of| of.not_after_ms += 1)), "expired", "good for longer than a day");
}

#[test]
fn a_key_without_a_membership_of_this_cell_serves_nothing() {
    // The registry makes a key of its own and signs correctly with it.
    let forged = |signer: &Identity, membership: &Membership| {
        registration().sign(&identity(), &membership.sign(signer).unwrap()).unwrap()
    };
    assert_eq!(why(&forged(&identity(), &membership())), "membership");
    assert_eq!(why(&with_member(|of| of.cell = "prod-us".parse().unwrap())), "membership");
    assert_eq!(why(&with_member(|of| of.not_before_ms = NOW_MS + 1)), "membership");
    assert_eq!(
        why(&with_member(|of| (of.not_before_ms, of.not_after_ms) = (NOW_MS - 1, NOW_MS))),
        "membership"
    );
    assert_eq!(why(&with_member(|of| of.agent = agent_of(&authority()))), "other_member");
    let [body, signature, _] = parts(&with(|_| ()));
    assert_eq!(why(&joined(&[body, signature, Vec::new()])), "membership");
}

#[test]
fn a_member_serves_no_name_outside_its_patterns() {
    let allow = |text: &str| with_member(|of| of.serves = vec![text.parse().unwrap()]);
    assert_eq!(why(&allow("org.example.billing.invoice")), "believed");
    assert_eq!(why(&allow("*")), "believed");
    assert_eq!(why(&allow("org.example.bill.*")), "not_allowed");
    assert_eq!(why(&with_member(|of| of.serves.clear())), "not_allowed");
}

#[test]
fn a_signature_by_any_other_key_is_refused() {
    let value = registration().sign(&authority(), &membership().sign(&authority()).unwrap()).unwrap();
    assert_eq!(why(&value), "signature");
    // A signature for another purpose does not pass as one for this.
    let [body, _, membership] = parts(&with(|_| ()));
    let message = [b"capd-member-v1\0", body.as_slice()].concat();
    assert_eq!(why(&joined(&[body, identity().sign(&message).to_vec(), membership])), "signature");
}

#[test]
fn a_revoked_membership_stays_revoked_and_a_later_one_counts() {
    let mut verifier = verifier();
    let agent = agent_of(&identity());
    let revoke = |serial_min| Revocation { agent, cell: cell(), serial_min, at_ms: NOW_MS };
    assert!(verify(&mut verifier, &with(|_| ()), NOW_MS).is_ok());
    verifier.revocation(&agent, &revoke(4).sign(&authority())).unwrap();
    assert_eq!(verify(&mut verifier, &with(|_| ()), NOW_MS), Err(Refused::Revoked));
    // The registry brings an older revocation back.
    verifier.revocation(&agent, &revoke(1).sign(&authority())).unwrap();
    assert_eq!(verify(&mut verifier, &with(|_| ()), NOW_MS), Err(Refused::Revoked));
    let member = membership().sign(&authority()).unwrap();
    assert_eq!(verifier.membership(&member, &agent, NOW_MS), Err(Refused::Revoked));
    let anew = with_member(|of| of.serial = 4);
    assert!(verify(&mut verifier, &anew, NOW_MS).is_ok());
}

#[test]
fn nobody_but_the_authority_revokes() {
    let agent = agent_of(&identity());
    let revocation = Revocation { agent, cell: cell(), serial_min: 9, at_ms: NOW_MS };
    let by_itself = revocation.sign(&identity());
    assert_eq!(verifier().revocation(&agent, &by_itself), Err(Refused::Signature));
    let of_another = Revocation { agent: agent_of(&authority()), ..revocation.clone() }.sign(&authority());
    assert_eq!(verifier().revocation(&agent, &of_another), Err(Refused::OtherAgent));
    let elsewhere = Revocation { cell: "prod-us".parse().unwrap(), ..revocation }.sign(&authority());
    assert_eq!(verifier().revocation(&agent, &elsewhere), Err(Refused::Signature));
}

#[test]
fn a_registry_that_goes_back_in_time_is_not_believed() {
    let mut verifier = verifier();
    let at = |incarnation, generation| {
        with(|of| (of.fence.incarnation, of.generation) = (incarnation, generation))
    };
    let mut says = |value: &[u8]| verify(&mut verifier, value, NOW_MS).map(drop);
    assert_eq!(says(&at(7, 300)), Ok(()));
    assert_eq!(says(&at(7, 299)), Err(Refused::Older));
    assert_eq!(says(&at(7, 300)), Ok(()), "the same one again, after a relist");
    assert_eq!(says(&at(7, 301)), Ok(()));
    assert_eq!(says(&at(8, 1)), Ok(()), "a new process counts anew");
    assert_eq!(says(&at(7, 900)), Err(Refused::Older), "a paused old process wakes up");
    assert_eq!(says(&at(8, 0)), Err(Refused::Older));
}

#[test]
fn a_new_process_ends_the_old_one_under_all_names() {
    let mut verifier = verifier();
    let agent = agent_of(&identity());
    let other: CapabilityName = "org.example.billing.refund".parse().unwrap();
    let shard = Shard::of(&agent);
    let new = with(|of| of.fence.incarnation = 8);
    verifier.registration(&name(), shard, &agent, &new, NOW_MS).unwrap();
    let old = with(|of| of.name = other.clone());
    assert_eq!(verifier.registration(&other, shard, &agent, &old, NOW_MS), Err(Refused::Older));
}

#[test]
fn what_was_seen_is_forgotten_only_once_it_has_expired() {
    let mut verifier = verifier();
    let later = with(|of| of.generation = 301);
    verify(&mut verifier, &later, NOW_MS).unwrap();
    verifier.forget(NOW_MS + DAY_MS - 1);
    assert_eq!(verify(&mut verifier, &with(|_| ()), NOW_MS), Err(Refused::Older));
    verifier.forget(NOW_MS + DAY_MS);
    assert!(verify(&mut verifier, &with(|_| ()), NOW_MS).is_ok());
}

#[test]
fn what_was_verified_once_is_held_to_time_and_membership_again() {
    let mut verifier = verifier();
    let value = with(|_| ());
    verify(&mut verifier, &value, NOW_MS).unwrap();
    assert_eq!(verify(&mut verifier, &value, NOW_MS + DAY_MS), Err(Refused::Expired));
    let short = with_member(|of| of.not_after_ms = NOW_MS + 10);
    verify(&mut verifier, &short, NOW_MS).unwrap();
    let refused = verify(&mut verifier, &short, NOW_MS + 10).unwrap_err();
    assert_eq!(refused.why(), "membership");
}

#[test]
fn a_record_out_of_bounds_is_neither_written_nor_read() {
    let member = membership().sign(&authority()).unwrap();
    let refuses = |change: &dyn Fn(&mut Registration), field| {
        let mut registration = registration();
        change(&mut registration);
        assert_eq!(registration.sign(&identity(), &member), Err(RecordError::Field(field)));
    };
    refuses(&|of| of.addresses.clear(), "addresses");
    refuses(&|of| of.addresses = vec![of.addresses[0].clone(); 5], "addresses");
    refuses(&|of| of.versions.clear(), "versions");
    refuses(&|of| of.versions = vec![of.versions[0].clone(); 17], "versions");
    refuses(&|of| of.zone = Some(String::new()), "zone");
    refuses(&|of| of.zone = Some("z".repeat(65)), "zone");
    refuses(&|of| of.addresses[0].port = 0, "address");
    refuses(&|of| of.addresses[0].host = "a b".to_owned(), "address");
    refuses(&|of| of.addresses[0].host = "a".repeat(256), "address");
    let many = Membership { serves: vec!["*".parse().unwrap(); 17], ..membership() };
    assert_eq!(many.sign(&authority()), Err(RecordError::Field("patterns")));
    let long = "a".repeat(60) + ".b.c.*";
    let long = Membership { serves: vec![long.parse().unwrap(); 16], ..membership() };
    assert!(matches!(long.sign(&authority()), Err(RecordError::TooLong(_, 1_024))));
}

#[test]
fn keys_of_other_kinds_cells_and_spellings_are_refused() {
    let agent = agent_of(&identity());
    let refused = |path: &str| Key::parse(&cell(), path).unwrap_err();
    assert_eq!(refused("/capd/1/prod-us/i/x"), PathError::OtherCell);
    assert_eq!(refused("/capd/2/prod-eu/i/x"), PathError::OtherCell);
    assert_eq!(refused("/capd/1/prod-eu/x/y"), PathError::Kind);
    assert_eq!(refused("/capd/1/prod-eu/"), PathError::Kind);
    assert_eq!(refused("/capd/1/prod-eu/n/org.example.a/0"), PathError::Parts);
    assert_eq!(refused(&format!("/capd/1/prod-eu/n/org.example.a/0/{agent}/x")), PathError::Parts);
    for shard in ["", "A", "g", "00"] {
        assert_eq!(refused(&format!("/capd/1/prod-eu/n/org.example.a/{shard}/{agent}")), PathError::Shard);
    }
    assert!(matches!(refused(&format!("/capd/1/prod-eu/n/a.b/0/{agent}")), PathError::Name(_)));
    assert!(matches!(refused(&format!("/capd/1/prod-eu/i/{agent}#{agent}")), PathError::Agent(_)));
    assert!(matches!(refused("/capd/1/prod-eu/d/z6Mk"), PathError::Agent(_)));
}

#[test]
fn names_of_cells_have_one_form() {
    for text in ["a", "prod-eu", "0-9", &"c".repeat(32)] {
        assert_eq!(text.parse::<Cell>().unwrap().as_str(), text);
    }
    assert_eq!("".parse::<Cell>(), Err(CellError::Length(0)));
    assert_eq!("c".repeat(33).parse::<Cell>(), Err(CellError::Length(33)));
    assert_eq!("prod_eu".parse::<Cell>(), Err(CellError::Character { offset: 4 }));
    assert_eq!("Prod".parse::<Cell>(), Err(CellError::Character { offset: 0 }));
    assert_eq!("a/b".parse::<Cell>(), Err(CellError::Character { offset: 1 }));
}
