//! A byte stream in; claims on how it is cut into frames, and on the payloads below the messages.

use bytes::BytesMut;
use capd_proto::frame::{
    self, Decoder, ErrorFrame, Frame, FrameError, FrameType, Goaway, HandshakeRequest, HandshakeResponse,
};
use capd_proto::limits::MSG_SIZE_BYTES_FLOOR;

/// However the bytes arrive, the same frames come out and then the same error, and each frame is encoded as it came.
pub(crate) fn run(bytes: &[u8]) {
    let whole = cut(bytes, bytes.len().max(1));
    for chunk_bytes in [1, 3, 7] {
        assert_eq!(cut(bytes, chunk_bytes), whole, "in chunks of {chunk_bytes}");
    }
    let mut encoded = Vec::new();
    for frame in &whole.0 {
        frame::encode(frame.frame_type, &frame.payload, &mut encoded)
            .expect("a decoded frame is within the limits");
        payload(frame);
    }
    assert_eq!(encoded, bytes[..encoded.len()]);
}

fn cut(bytes: &[u8], chunk_bytes: usize) -> (Vec<Frame>, Option<FrameError>) {
    let mut decoder = Decoder::new(MSG_SIZE_BYTES_FLOOR);
    let mut buffer = BytesMut::new();
    let mut frames = Vec::new();
    for chunk in bytes.chunks(chunk_bytes) {
        buffer.extend_from_slice(chunk);
        let capacity = buffer.capacity();
        loop {
            let before = buffer.len();
            match decoder.decode(&mut buffer) {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(buffer.len(), before, "an error takes nothing");
                    assert_eq!(decoder.decode(&mut buffer), Err(error), "an error stays");
                    return (frames, Some(error));
                }
            }
        }
        assert!(buffer.capacity() <= capacity, "the buffer grows with what arrived, not with a promise");
    }
    (frames, None)
}

fn payload(frame: &Frame) {
    macro_rules! stable {
        ($payload:ty) => {
            if let Ok(decoded) = <$payload>::decode(&frame.payload) {
                let mut encoded = Vec::new();
                decoded.encode(&mut encoded);
                assert!(capd_proto::cbor::is_deterministic(&encoded));
                assert_eq!(<$payload>::decode(&encoded).as_ref(), Ok(&decoded));
            }
        };
    }
    match frame.frame_type {
        FrameType::Handshake => {
            stable!(HandshakeRequest<'_>);
            stable!(HandshakeResponse<'_>);
        }
        FrameType::Goaway => stable!(Goaway<'_>),
        FrameType::Error => stable!(ErrorFrame<'_>),
        FrameType::AmpMessage | FrameType::Ping | FrameType::Pong => {}
    }
}
