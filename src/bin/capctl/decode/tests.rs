//! Tests the output for frames, envelopes and bodies, as reviewed text.

use capd_proto::envelope::{Draft, Ext, MessageId, Recipients};
use capd_proto::frame;
use capd_proto::identity::Identity;
use capd_proto::message::Invoke;
use insta::assert_snapshot;

use super::*;

/// AMP 001 appendix A.6: a MESSAGE whose body is encrypted.
const ENCRYPTED: &str = "a9617601626964500000018d746b46a0000000000000000762746f781d6469643a7765623a6578616d706c652e636f6d3a6167656e743a626f626274731b0000018d746b46a063656e63a463616c6778185832353531392d5853616c736132302d506f6c7931333035646d6f646569617574686372797074656e6f6e63655818000102030405060708090a0b0c0d0e0f10111213141516176a63697068657274657874581c924706080f2aa18f82f7b18ac051c9884fbc614779749f98c1031101637369675840f9b70bbd8de3e7aba29b2f7ac2de00d3f5d021b651d687f059a86a0e5b5da7f90a970839892f1ae629c4d4aa1b1ee247ba657cf502d7c621b38950fda5710d096374746c1a05265c0063747970106466726f6d781f6469643a7765623a6578616d706c652e636f6d3a6167656e743a616c696365";

/// A CAP_INVOKE body with params that are shown on several lines.
fn body() -> Vec<u8> {
    let mut params = Vec::new();
    let value = serde_json::json!({"code": "fn main() { println!(\"a line that is rather long\"); }", "lines": [1, 2, 3],
        "note": "so that it does not fit on one line"});
    capd_proto::cbor::json::from_json(&value, &mut params);
    let mut body = Vec::new();
    let invoke = Invoke {
        capability: Some("org.example.review".into()),
        timeout_ms: Some(30_000),
        ..Invoke::new(&params)
    };
    invoke.encode(&mut body);
    body
}

/// An envelope of a `did:key` with every optional field.
fn sealed(body: &[u8], is_signed: bool) -> Vec<u8> {
    let identity = Identity::from_seed([7; 32]);
    let traceparent = Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01");
    let draft = Draft {
        id: MessageId::new(1_707_055_200_000, [0, 0, 0, 0, 0, 0, 0, 1]),
        typ: 0x22,
        ts: 1_707_055_200_000,
        ttl: 60_000,
        from: identity.did(),
        to: Recipients::one("did:web:example.com"),
        reply_to: Some(&[9; 16]),
        thread_id: Some(b"thread"),
        body,
        ext: Ext::Fields { traceparent, deprecated: false },
    };
    let mut bytes = Vec::new();
    draft.seal(&identity, is_signed, &mut bytes);
    bytes
}

fn envelope(bytes: &[u8]) -> Item {
    Item::Envelope(EnvelopeView::of(bytes))
}

fn shown(item: &Item) -> String {
    format!("{}refused: {:?}\n", view::text(item), item.refusals())
}

#[test]
fn a_signed_envelope_is_shown_with_its_body_and_both_verdicts() {
    let item = envelope(&sealed(&body(), true));
    assert_snapshot!(shown(&item));
    let document = view::json(&item);
    assert_eq!(document["envelope"]["signature"], "valid");
    assert_eq!(document["envelope"]["cddl"]["rule"], "cap-invoke-body");
    assert_eq!(document["refusals"], serde_json::json!([]));
}

#[test]
fn a_changed_body_does_not_fit_its_signature() {
    let mut bytes = sealed(&body(), true);
    let at = bytes.windows(4).position(|window| window == b"main").unwrap();
    bytes[at] = b'M';
    let item = envelope(&bytes);
    assert_eq!(item.refusals(), ["1002: the signature is invalid"]);
    assert!(view::text(&item).contains("invalid (1002)"));
}

#[test]
fn a_body_that_breaks_its_rule_is_told_with_rule_path_and_offset() {
    // {"params": null, "timeout_ms": "soon"}
    let body = hex::decode("a266706172616d73f66a74696d656f75745f6d7364736f6f6e").unwrap();
    assert_snapshot!(shown(&envelope(&sealed(&body, false))));
}

#[test]
fn an_encrypted_envelope_is_shown_without_its_body() {
    assert_snapshot!(shown(&envelope(&hex::decode(ENCRYPTED).unwrap())));
}

#[test]
fn bytes_that_are_no_envelope_are_refused_with_code_and_offset() {
    assert_snapshot!(shown(&envelope(&hex::decode("a26176016269644101").unwrap())));
    let mut short = sealed(&body(), true);
    short.truncate(100);
    assert_snapshot!(shown(&envelope(&short)));
}

#[test]
fn frames_are_shown_one_after_the_other_until_they_break() {
    let mut bytes = Vec::new();
    // HANDSHAKE {"version": 1, "max_msg_size": 1048576}, then the same without its version.
    let request = hex::decode("a26776657273696f6e016c6d61785f6d73675f73697a651a00100000").unwrap();
    let incomplete = hex::decode("a16c6d61785f6d73675f73697a651a00100000").unwrap();
    for (frame_type, payload) in [
        (FrameType::Handshake, &request),
        (FrameType::Handshake, &incomplete),
        (FrameType::Ping, &vec![1, 2]),
    ] {
        frame::encode(frame_type, payload, &mut bytes).unwrap();
    }
    bytes.extend([0, 0, 0, 9, 1, 0xa0]);
    let items = frames(&bytes);
    let texts: Vec<_> = items.iter().map(shown).collect();
    assert_snapshot!(texts.join("\n"));
}

#[test]
fn a_type_is_named_or_numbered() {
    for text in ["CAP_INVOKE", "cap_invoke", "22", "0x22"] {
        assert_eq!(message_type(text), Some(0x22), "{text}");
    }
    assert_eq!(message_type("7f"), Some(0x7f));
    assert_eq!(message_type("CAP_FLY"), None);
    let unknown = Item::Body(BodyView::of(0x7f, &[0xa0]));
    assert_eq!(unknown.refusals(), ["1005: unknown message type 7F"]);
}
