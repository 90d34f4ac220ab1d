use super::*;

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn decoder() -> Decoder {
    Decoder::new(MSG_SIZE_BYTES_FLOOR)
}

fn decode(bytes: &[u8]) -> Result<Option<Frame>, FrameError> {
    decoder().decode(&mut BytesMut::from(bytes))
}

fn decode_bytewise(bytes: &[u8]) -> Result<Option<Frame>, FrameError> {
    let (mut decoder, mut buffer) = (decoder(), BytesMut::new());
    for (at, byte) in bytes.iter().enumerate() {
        buffer.put_u8(*byte);
        if let Some(frame) = decoder.decode(&mut buffer)? {
            assert_eq!(at + 1, bytes.len(), "a frame came out before its last byte went in");
            assert!(buffer.is_empty());
            return Ok(Some(frame));
        }
    }
    Ok(None)
}

#[test]
fn example_with_whole_payload_is_one_amp_message() {
    let bytes = hex("0000000501a1617801");
    let frame = Frame { frame_type: FrameType::AmpMessage, payload: Bytes::from(hex("a1617801")) };
    assert_eq!(decode(&bytes), Ok(Some(frame.clone())));
    assert_eq!(decode_bytewise(&bytes), Ok(Some(frame.clone())));
    let mut out = Vec::new();
    encode(frame.frame_type, &frame.payload, &mut out).unwrap();
    assert_eq!(out, bytes);
}

#[test]
fn example_that_ends_its_cbor_early_is_a_frame_whose_payload_is_refused() {
    let mut buffer = BytesMut::from(&hex("0000000401a1617801")[..]);
    let frame = decoder().decode(&mut buffer).unwrap().unwrap();
    assert_eq!(frame.payload, hex("a16178"));
    assert_eq!(buffer, hex("01"));
    let error = crate::cbor::check(&frame.payload).unwrap_err();
    assert_eq!(error.offset, 3);
}

#[test]
fn every_truncation_waits_and_consumes_nothing() {
    for frame_type in FrameType::ALL {
        let mut bytes = Vec::new();
        encode(frame_type, &[7; PING_BYTES_MAX], &mut bytes).unwrap();
        for end in 0..bytes.len() {
            let mut buffer = BytesMut::from(&bytes[..end]);
            assert_eq!(decoder().decode(&mut buffer), Ok(None));
            assert_eq!(buffer, bytes[..end]);
        }
        assert_eq!(decode_bytewise(&bytes), decode(&bytes));
        assert_eq!(decode(&bytes).unwrap().unwrap().frame_type, frame_type);
    }
}

#[test]
fn frames_that_arrive_together_come_out_in_order() {
    let mut buffer = BytesMut::new();
    for (frame_type, payload) in FrameType::ALL.into_iter().zip([&b""[..], b"a", b"", b"bc", b"d", b""]) {
        encode(frame_type, payload, &mut buffer).unwrap();
    }
    let mut decoder = decoder();
    let types: Vec<_> =
        std::iter::from_fn(|| decoder.decode(&mut buffer).unwrap()).map(|frame| frame.frame_type).collect();
    assert_eq!(types, FrameType::ALL);
    assert!(buffer.is_empty());
}

#[test]
fn length_of_zero_is_refused_with_four_bytes() {
    assert_eq!(decode(&[0, 0, 0]), Ok(None));
    assert_eq!(decode(&[0, 0, 0, 0]), Err(FrameError::Empty));
    assert_eq!(decode_bytewise(&[0, 0, 0, 0, 1]), Err(FrameError::Empty));
}

#[test]
fn length_above_the_maximum_is_refused_with_four_bytes_and_reserves_nothing() {
    let length_max = MSG_SIZE_BYTES_FLOOR;
    assert_eq!(decode(&length_max.to_be_bytes()), Ok(None));
    for length in [length_max + 1, u32::MAX] {
        let mut buffer = BytesMut::from(&length.to_be_bytes()[..]);
        let capacity = buffer.capacity();
        let error = FrameError::TooLong { length: u64::from(length), length_max };
        assert_eq!(decoder().decode(&mut buffer), Err(error));
        assert_eq!(decoder().decode(&mut buffer), Err(error), "the error stays");
        assert_eq!(buffer.capacity(), capacity);
        assert_eq!(error.code(), Code::INVALID_MESSAGE);
    }
}

#[test]
fn promised_length_reserves_nothing_while_bytes_arrive() {
    let mut bytes = MSG_SIZE_BYTES_FLOOR.to_be_bytes().to_vec();
    bytes.push(FrameType::AmpMessage.code());
    let mut buffer = BytesMut::from(&bytes[..]);
    let capacity = buffer.capacity();
    assert_eq!(decoder().decode(&mut buffer), Ok(None));
    assert_eq!(buffer.capacity(), capacity);
}

#[test]
fn unknown_type_is_refused_with_five_bytes() {
    for code in (0u8..=255).filter(|code| !(1..=6).contains(code)) {
        assert_eq!(decode(&[0, 0, 1, 0, code]), Err(FrameError::UnknownType(code)));
        assert_eq!(FrameType::from_code(code), None);
    }
    for frame_type in FrameType::ALL {
        assert_eq!(FrameType::from_code(frame_type.code()), Some(frame_type));
    }
}

#[test]
fn ping_and_pong_take_64_bytes_and_not_65() {
    for frame_type in [FrameType::Ping, FrameType::Pong] {
        let mut out = Vec::new();
        encode(frame_type, &[1; 64], &mut out).unwrap();
        assert_eq!(decode(&out).unwrap().unwrap().payload.len(), 64);
        let error = FrameError::PingTooLong { payload_bytes: 65 };
        assert_eq!(encode(frame_type, &[1; 65], &mut out), Err(error));
        assert_eq!(out.len(), 5 + 64, "a refused frame leaves nothing behind");
        assert_eq!(decode(&[0, 0, 0, 66, frame_type.code()]), Err(error));
    }
}

#[test]
fn largest_frame_passes_and_one_byte_more_does_not() {
    let payload_bytes = MSG_SIZE_BYTES_FLOOR as usize - 1;
    let mut out = Vec::new();
    encode(FrameType::AmpMessage, &vec![0; payload_bytes], &mut out).unwrap();
    assert_eq!(decode(&out).unwrap().unwrap().payload.len(), payload_bytes);
    assert_eq!(check_payload_fits(payload_bytes, MSG_SIZE_BYTES_FLOOR), Ok(()));
    let (length, length_max) = (u64::from(MSG_SIZE_BYTES_FLOOR) + 1, MSG_SIZE_BYTES_FLOOR);
    assert_eq!(
        check_payload_fits(payload_bytes + 1, MSG_SIZE_BYTES_FLOOR),
        Err(FrameError::TooLong { length, length_max })
    );
    assert!(encode_header(FrameType::AmpMessage, u32::MAX as usize).is_err());
    assert!(encode_header(FrameType::AmpMessage, u32::MAX as usize - 1).is_ok());
}

#[test]
fn effective_maximum_is_the_smaller_one_and_never_under_the_floor() {
    let mut decoder = Decoder::new(4 * MSG_SIZE_BYTES_FLOOR);
    decoder.settle(u64::MAX);
    assert_eq!(decoder.length_max(), 4 * MSG_SIZE_BYTES_FLOOR);
    decoder.settle(u64::from(2 * MSG_SIZE_BYTES_FLOOR));
    assert_eq!(decoder.length_max(), 2 * MSG_SIZE_BYTES_FLOOR);
    decoder.settle(1);
    assert_eq!(decoder.length_max(), MSG_SIZE_BYTES_FLOOR);
    assert_eq!(Decoder::new(0).length_max(), MSG_SIZE_BYTES_FLOOR);
}

#[test]
fn payload_written_in_place_equals_payload_copied() {
    let (mut copied, mut in_place) = (vec![9], vec![9]);
    encode(FrameType::Ping, b"abc", &mut copied).unwrap();
    encode_with(FrameType::Ping, &mut in_place, |out| out.extend_from_slice(b"abc")).unwrap();
    assert_eq!(copied, in_place);
    assert!(encode_with(FrameType::Ping, &mut in_place, |out| out.resize(100, 0)).is_err());
    assert_eq!(copied, in_place, "a refused frame leaves nothing behind");
}

mod payloads {
    use super::hex;
    use crate::cbor::is_deterministic;
    use crate::frame::*;

    fn encoded(encode: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut out);
        assert!(is_deterministic(&out));
        out
    }

    /// Every payload that is cut short is refused.
    fn refuses_truncations<'a, T: std::fmt::Debug>(
        bytes: &'a [u8],
        decode: impl Fn(&'a [u8]) -> Result<T, PayloadError>,
    ) {
        for end in 0..bytes.len() {
            assert!(matches!(decode(&bytes[..end]), Err(PayloadError::Cbor(_))), "cut at {end}");
        }
    }

    #[test]
    fn handshake_request_round_trips_whole_and_bare() {
        let full = HandshakeRequest {
            version: 1,
            max_msg_size: 16 << 20,
            did: Some("did:key:z6Mk".into()),
            nonce: Some([1; 32]),
            proof: Some([2; 32]),
            token: Some(b"secret"[..].into()),
            extensions: Some(vec!["channel-auth".into(), "x".into()]),
        };
        let bytes = encoded(|out| full.encode(out));
        assert_eq!(HandshakeRequest::decode(&bytes), Ok(full.clone()));
        refuses_truncations(&bytes, HandshakeRequest::decode);
        assert!(!format!("{full:?}").contains("115"), "the token is never printed");

        let bare = HandshakeRequest { version: 1, max_msg_size: 1 << 20, ..Default::default() };
        let bytes = encoded(|out| bare.encode(out));
        assert_eq!(bytes, hex("a26776657273696f6e016c6d61785f6d73675f73697a651a00100000"));
        assert_eq!(HandshakeRequest::decode(&bytes), Ok(bare));
    }

    #[test]
    fn handshake_response_round_trips_whole_and_bare() {
        let full = HandshakeResponse {
            version: 1,
            accepted: false,
            max_msg_size: 16 << 20,
            error: Some("no".into()),
            nonce: Some([3; 32]),
            proof: Some([4; 32]),
            extensions: Some(Vec::new()),
            did: Some("did:key:z6Mk".into()),
        };
        let bytes = encoded(|out| full.encode(out));
        assert_eq!(HandshakeResponse::decode(&bytes), Ok(full));
        refuses_truncations(&bytes, HandshakeResponse::decode);

        let bare = HandshakeResponse { version: 1, accepted: true, max_msg_size: 1, ..Default::default() };
        let bytes = encoded(|out| bare.encode(out));
        assert_eq!(HandshakeResponse::decode(&bytes), Ok(bare));
    }

    #[test]
    fn nonces_and_proofs_of_another_length_are_refused() {
        // {"nonce": 31 bytes, "version": 1, "max_msg_size": 1 MiB}, and the same as a proof of 33.
        for (key, bytes) in [("656e6f6e6365", vec![0; 31]), ("6570726f6f66", vec![0; 33])] {
            let mut payload = hex("a3");
            payload.extend(hex(key));
            payload.extend([0x58, bytes.len() as u8]);
            payload.extend(bytes);
            payload.extend(hex("6776657273696f6e016c6d61785f6d73675f73697a651a00100000"));
            let refused = HandshakeRequest::decode(&payload);
            assert!(matches!(refused, Err(PayloadError::Field { expected: "32 bytes", .. })), "{refused:?}");
        }
    }

    #[test]
    fn goaway_and_error_round_trip() {
        let goaway = Goaway { reason: 0, message: Some("bye".into()), last_id: Some([7; 16]) };
        let bytes = encoded(|out| goaway.encode(out));
        assert_eq!(Goaway::decode(&bytes), Ok(goaway));
        refuses_truncations(&bytes, Goaway::decode);

        let error = ErrorFrame { code: u64::MAX, message: "m".into(), msg_id: Some([8; 16]) };
        let bytes = encoded(|out| error.encode(out));
        assert_eq!(ErrorFrame::decode(&bytes), Ok(error));
        refuses_truncations(&bytes, ErrorFrame::decode);
    }

    #[test]
    fn missing_field_is_named() {
        let error = HandshakeRequest::decode(&hex("a16776657273696f6e01")).unwrap_err();
        assert_eq!(error, PayloadError::Missing("max_msg_size"));
        assert_eq!(error.code(), Code::INVALID_MESSAGE);
        assert_eq!(Goaway::decode(&[0xa0]), Err(PayloadError::Missing("reason")));
        assert_eq!(ErrorFrame::decode(&hex("a164636f646501")), Err(PayloadError::Missing("message")));
    }

    #[test]
    fn ill_typed_field_names_its_byte() {
        // {"reason": "x"}
        let error = Goaway::decode(&hex("a166726561736f6e6178")).unwrap_err();
        assert_eq!(error.to_string(), "expected an unsigned integer at byte 8");
        // {"reason": 0, "last_id": h'00'}
        let error = Goaway::decode(&hex("a266726561736f6e00676c6173745f69644100")).unwrap_err();
        assert_eq!(error.to_string(), "field \"last_id\" must be 16 bytes, at byte 17");
    }

    #[test]
    fn unknown_keys_pass_and_duplicates_and_tags_do_not() {
        // {"reason": 0, "future": [1]}
        assert!(Goaway::decode(&hex("a266726561736f6e00666675747572658101")).is_ok());
        // {"reason": 0, "reason": 1}
        assert!(Goaway::decode(&hex("a266726561736f6e0066726561736f6e01")).is_err());
        // {"reason": 0, "future": 1(1)}
        assert!(Goaway::decode(&hex("a266726561736f6e0066667574757265c101")).is_err());
    }
}
