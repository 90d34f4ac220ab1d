//! PROTOCOL 3: bytes that are no frames in, ERROR 1001 and a closed link out.

use ciborium::Value;

use crate::fixture::{CAP_QUERY, PING, closed_with, error_frame, quiet_sidecar};
use crate::peer::{RawLink, Transport, frame};
use crate::support::{Setup, encode, field, map, set};

const MIB: usize = 1024 * 1024;

/// Every link is refused with 1001 and closed, and the sidecar takes the next link.
#[track_caller]
fn closes_with_1001(bytes: &[u8], says: &str) {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        link.use_control_stream();
        link.send_raw(bytes);
        let (code, message) = closed_with(&mut link);
        assert_eq!(code, 1001, "{transport:?}: {message}");
        assert!(message.contains(says), "{transport:?}: {message}");
        RawLink::open(&sidecar, transport).ping();
    }
}

#[test]
fn length_zero_is_1001_and_closes() {
    closes_with_1001(&[0, 0, 0, 0], "length is 0");
}

#[test]
fn length_above_the_maximum_is_1001_before_a_byte_of_it_came() {
    let above = u32::try_from(16 * MIB + 1).unwrap().to_be_bytes();
    closes_with_1001(&above, "above the maximum");
    closes_with_1001(&[0xff; 4], "above the maximum");
}

#[test]
fn unknown_types_are_1001_and_close() {
    closes_with_1001(&[0, 0, 0, 1, 0x07], "unknown frame type");
    closes_with_1001(&[0, 0, 0, 2, 0x00, 0xa0], "unknown frame type");
    closes_with_1001(&[0, 0, 0, 2, 0xff, 0xa0], "unknown frame type");
}

#[test]
fn ping_above_64_bytes_is_1001_and_one_of_64_is_answered() {
    closes_with_1001(&frame(0x03, &[7; 65]), "64");
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        link.use_control_stream();
        for payload in [&[][..], &[7; 64]] {
            link.send_frame(0x03, payload);
            let pong = link.answering_frame();
            assert_eq!((pong.frame_type, pong.payload.as_slice()), (0x04, payload), "{transport:?}");
        }
    }
}

#[test]
fn control_frames_of_another_shape_are_1001_and_close() {
    closes_with_1001(&frame(0x05, &encode(&map([("reason", "none".into())]))), "");
    closes_with_1001(&frame(0x05, &[0xa1]), "");
    closes_with_1001(&frame(0x06, &encode(&map([("code", 1001.into())]))), "");
    closes_with_1001(
        &frame(0x02, &encode(&map([("version", 1.into()), ("max_msg_size", (MIB as u64).into())]))),
        "HANDSHAKE",
    );
}

#[test]
fn bytes_that_end_inside_a_frame_are_1001() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        for cut in [&[0, 0][..], &[0, 0, 0, 9, 1], &[0, 0, 0, 9, 1, 0xa1]] {
            let mut link = RawLink::open(&sidecar, transport);
            link.use_control_stream();
            link.send_raw(cut);
            link.finish();
            assert_eq!(closed_with(&mut link).0, 1001, "{transport:?}: {cut:?}");
        }
    }
}

#[test]
fn a_message_whose_cbor_ends_early_is_1001_and_not_a_hang() {
    // The two examples of PROTOCOL 3.
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        link.send_raw(&[0, 0, 0, 4, 1, 0xa1, 0x61, 0x78]);
        let cut = link.nameless_refusal();
        assert_eq!(cut.code, 1001, "{transport:?}: {cut:?}");
        assert!(cut.message.contains("at byte 3"), "{transport:?}: {cut:?}");
        link.send_raw(&[0, 0, 0, 5, 1, 0xa1, 0x61, 0x78, 0x01]);
        let whole = link.nameless_refusal();
        assert_eq!(whole.code, 1001, "{transport:?}: {whole:?}");
    }
}

#[test]
fn frames_arrive_one_byte_at_a_time_and_many_at_once() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        let letters = [0; 3].map(|_| link.letter(PING, &map([])));
        let frames: Vec<u8> = letters.iter().flat_map(|letter| frame(0x01, &link.seal(letter))).collect();
        let first = frames.len() / 3;
        for byte in &frames[..first] {
            link.send_raw(&[*byte]);
        }
        link.send_raw(&frames[first..]);
        for letter in &letters {
            assert_eq!(link.reply(&letter.id).typ(), 0x02, "{transport:?}");
        }
    }
}

#[test]
fn the_effective_maximum_is_the_smaller_of_both_sides() {
    let sidecar = Setup::new().set("limits.msg_size_bytes_max", &(2 * MIB).to_string()).start();
    for transport in Transport::ALL {
        for (ours, effective) in [(MIB, MIB), (64 * MIB, 2 * MIB)] {
            let mut link = RawLink::connect(&sidecar, transport);
            let mut request = link.handshake_request();
            set(&mut request, "max_msg_size", (ours as u64).into());
            link.send_frame(0x02, &encode(&request));
            let answer = crate::support::decode(&link.answering_frame().payload);
            assert_eq!(
                field(&answer, "max_msg_size").and_then(Value::as_integer),
                Some((2 * MIB as u64).into())
            );
            link.hello();
            let length = u32::try_from(effective + 1).unwrap();
            link.send_raw(&length.to_be_bytes());
            assert_eq!(closed_with(&mut link).0, 1001, "{transport:?}: {ours}");
        }
    }
}

#[test]
fn a_message_of_the_effective_maximum_is_taken() {
    let sidecar = quiet_sidecar();
    for transport in Transport::ALL {
        let mut link = RawLink::open(&sidecar, transport);
        // Exactly 16 MiB of frame length, filled by a field that nobody knows.
        let mut padding = 16 * MIB - 1_000;
        let payload = loop {
            let body = map([
                ("filter", map([("capability", "com.example.none".into())])),
                ("padding", Value::Bytes(vec![0; padding])),
            ]);
            let payload = link.seal(&link.letter(CAP_QUERY, &body));
            match (16 * MIB - 1).checked_sub(payload.len()).unwrap() {
                0 => break payload,
                missing => padding += missing,
            }
        };
        link.send_frame(0x01, &payload);
        let answer = link.message_of(0x0f);
        assert_eq!(answer.code(), Some(4002), "{transport:?}: {answer:?}");
        link.ping();
    }
}

#[test]
fn only_messages_belong_on_an_exchange_stream() {
    let sidecar = quiet_sidecar();
    for bytes in [
        frame(0x03, b"x"),
        frame(0x05, &encode(&map([("reason", 0.into())]))),
        vec![0, 0, 0, 0],
        vec![0, 0, 0, 1, 9],
    ] {
        let mut link = RawLink::open(&sidecar, Transport::Quic);
        link.send_raw(&bytes);
        link.use_control_stream();
        let frames = link.closed();
        let error =
            frames.iter().find(|frame| frame.frame_type == 0x06).unwrap_or_else(|| panic!("{frames:?}"));
        assert_eq!(error_frame(error).0, 1001, "{bytes:?}");
    }
}
