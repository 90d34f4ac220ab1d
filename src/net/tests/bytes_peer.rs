//! A peer that writes bytes by hand over a unix socket, well or badly.

use std::path::{Path, PathBuf};

use bytes::BytesMut;
use capd_proto::cbor::Writer;
use capd_proto::code::Code;
use capd_proto::frame::{
    Decoder, ErrorFrame, Frame, FrameType, Goaway, HandshakeRequest, HandshakeResponse, encode,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::super::local;
use super::*;

/// The other end of a local link, byte by byte.
pub(super) struct BytesPeer {
    stream: UnixStream,
    buffer: BytesMut,
    did: String,
}

impl BytesPeer {
    /// A sidecar with `settings` and a connection to it on which nothing was said.
    pub(super) async fn connect(settings: Settings) -> (Sidecar, Self) {
        let end = End::sidecar_with(1, settings);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("s");
        local::listen_unix(&end.host, &path).unwrap();
        let sidecar = Sidecar { end, path, _dir: dir };
        let peer = sidecar.connect().await;
        (sidecar, peer)
    }

    /// The same with an open link.
    pub(super) async fn open(settings: Settings) -> (Sidecar, Self, Arc<Link>) {
        let (mut sidecar, mut peer) = Self::connect(settings).await;
        peer.handshake().await;
        peer.write(FrameType::AmpMessage, &peer.hello()).await;
        let link = sidecar.end.opened().await;
        assert_eq!(peer.frame().await.unwrap().frame_type, FrameType::AmpMessage);
        (sidecar, peer, link)
    }

    pub(super) async fn handshake(&mut self) {
        let mut request = Vec::new();
        HandshakeRequest { version: 1, max_msg_size: 1 << 24, ..HandshakeRequest::default() }
            .encode(&mut request);
        self.write(FrameType::Handshake, &request).await;
        let frame = self.frame().await.unwrap();
        assert_eq!(frame.frame_type, FrameType::Handshake);
        assert!(HandshakeResponse::decode(&frame.payload).unwrap().accepted);
    }

    /// Whether the other side answers at all, rather than end the connection.
    pub(super) async fn answers(mut self) -> bool {
        let mut ping = Vec::new();
        encode(FrameType::Ping, b"", &mut ping).unwrap();
        // The connection may have ended already.
        self.stream.write_all(&ping).await.is_ok() && self.frame().await.is_some()
    }

    /// A HELLO as an agent writes it.
    pub(super) fn hello(&self) -> Vec<u8> {
        self.envelope(0x70, |body| {
            body.map(1).text("versions").array(1).text("1.0");
        })
    }

    /// An envelope of type `typ` as an agent writes it.
    pub(super) fn envelope(&self, typ: u64, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let ts = super::super::driver::Clock::start().wall_ms();
        let mut id = [7; 16];
        id[..8].copy_from_slice(&ts.to_be_bytes());
        let mut out = Vec::new();
        let mut writer = Writer::new(&mut out);
        writer.map(9);
        writer.text("v").uint(1);
        writer.text("id").bytes(&id);
        writer.text("to").text(&self.did);
        writer.text("ts").uint(ts);
        writer.text("sig").bytes(&[]);
        writer.text("ttl").uint(60_000);
        writer.text("typ").uint(typ);
        writer.text("body");
        body(&mut writer);
        writer.text("from").text(&self.did);
        out
    }

    pub(super) async fn write(&mut self, frame_type: FrameType, payload: &[u8]) {
        let mut bytes = Vec::new();
        encode(frame_type, payload, &mut bytes).unwrap();
        self.write_raw(&bytes).await;
    }

    pub(super) async fn write_raw(&mut self, bytes: &[u8]) {
        timeout(PATIENCE, self.stream.write_all(bytes)).await.unwrap().unwrap();
    }

    /// The next frame, or `None` at the end.
    pub(super) async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = Decoder::new(1 << 24).decode(&mut self.buffer).unwrap() {
                return Some(frame);
            }
            if timeout(PATIENCE, self.stream.read_buf(&mut self.buffer)).await.unwrap().unwrap_or(0) == 0 {
                assert!(self.buffer.is_empty(), "bytes end inside a frame");
                return None;
            }
        }
    }

    /// The next frame, which must be an ERROR, and the end behind it.
    pub(super) async fn error_and_end(&mut self) -> (Code, String) {
        let frame = self.frame().await.expect("an ERROR frame before the end");
        assert_eq!(frame.frame_type, FrameType::Error, "{frame:?}");
        let error = ErrorFrame::decode(&frame.payload).unwrap();
        let told = (Code(u32::try_from(error.code).unwrap()), error.message.into_owned());
        assert_eq!(self.frame().await, None);
        told
    }
}

/// A sidecar that listens on a unix socket.
pub(super) struct Sidecar {
    pub(super) end: End,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

impl Sidecar {
    pub(super) async fn connect(&self) -> BytesPeer {
        let stream = UnixStream::connect(&self.path as &Path).await.unwrap();
        BytesPeer { stream, buffer: BytesMut::new(), did: self.end.did().to_string() }
    }
}

#[tokio::test]
async fn bytes_that_are_no_frame_are_1001_and_the_end() {
    let bad: [(&str, &[u8]); 5] = [
        ("length 0", &[0, 0, 0, 0]),
        ("too long", &[0xff, 0xff, 0xff, 0xff, 1]),
        ("unknown type", &[0, 0, 0, 1, 0x77]),
        ("long PING", &[0, 0, 0, 66, 3]),
        ("no CBOR", &[0, 0, 0, 2, 5, 0xff]),
    ];
    for (what, bytes) in bad {
        let (mut sidecar, mut peer, _link) = BytesPeer::open(settings()).await;
        peer.write_raw(bytes).await;
        // More bytes behind the bad ones must not keep the ERROR from arriving.
        peer.write_raw(&[0; 10_000]).await;
        let (code, message) = peer.error_and_end().await;
        assert_eq!(code, Code::INVALID_MESSAGE, "{what}: {message}");
        assert!(
            matches!(sidecar.end.closed().await, CloseReason::Fault(fault) if fault.code == code),
            "{what}"
        );
    }
}

#[tokio::test]
async fn bytes_that_end_inside_a_frame_are_1001() {
    let (mut sidecar, mut peer, _link) = BytesPeer::open(settings()).await;
    peer.write_raw(&[0, 0, 0, 9, 1, 2, 3]).await;
    peer.stream.shutdown().await.unwrap();
    assert_eq!(peer.error_and_end().await.0, Code::INVALID_MESSAGE);
    assert!(matches!(sidecar.end.closed().await, CloseReason::Fault(_)));
}

#[tokio::test]
async fn a_message_before_hello_is_1004_and_the_end() {
    let (mut sidecar, mut peer) = BytesPeer::connect(settings()).await;
    peer.handshake().await;
    let query = peer.envelope(0x20, |body| {
        body.map(1).text("filter").map(1).text("capability").text("a.b.c");
    });
    peer.write(FrameType::AmpMessage, &query).await;
    assert_eq!(peer.error_and_end().await.0, Code::UNSUPPORTED_VERSION);
    assert!(sidecar.end.events.try_recv().is_err(), "the link never opened");
}

#[tokio::test]
async fn a_bad_envelope_before_hello_is_told_its_code() {
    let (_sidecar, mut peer) = BytesPeer::connect(settings()).await;
    peer.handshake().await;
    peer.write(FrameType::AmpMessage, &[0xa0]).await;
    assert_eq!(peer.error_and_end().await.0, Code::INVALID_MESSAGE);

    let (_sidecar, mut peer) = BytesPeer::connect(settings()).await;
    peer.handshake().await;
    peer.did = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK".to_owned();
    peer.write(FrameType::AmpMessage, &peer.hello()).await;
    let (code, _) = peer.error_and_end().await;
    assert!([Code::UNAUTHORIZED, Code::RECIPIENT_NOT_FOUND].contains(&code), "{code}");
}

#[tokio::test]
async fn a_ping_is_answered_with_its_payload() {
    let (_sidecar, mut peer, _link) = BytesPeer::open(settings()).await;
    peer.write(FrameType::Ping, b"are you there").await;
    let frame = peer.frame().await.unwrap();
    assert_eq!((frame.frame_type, &frame.payload[..]), (FrameType::Pong, &b"are you there"[..]));
}

#[tokio::test]
async fn a_message_reaches_the_service_as_it_came() {
    let (mut sidecar, mut peer, link) = BytesPeer::open(settings()).await;
    peer.write(FrameType::AmpMessage, b"\xa1\x61\x78\x01").await;
    let (payload, route) = sidecar.end.message().await;
    assert_eq!(&payload[..], b"\xa1\x61\x78\x01");
    route.send(Bytes::from_static(b"back")).unwrap();
    assert_eq!(&peer.frame().await.unwrap().payload[..], b"back");
    assert!(!link.is_closed());
}

#[tokio::test]
async fn goaway_is_heard_and_said() {
    let (mut sidecar, mut peer, link) = BytesPeer::open(settings()).await;
    link.drain();
    let frame = peer.frame().await.unwrap();
    assert_eq!(frame.frame_type, FrameType::Goaway);
    Goaway::decode(&frame.payload).unwrap();
    assert_eq!(sidecar.end.closed().await, CloseReason::Drained);

    let (_sidecar, mut peer, link) = BytesPeer::open(settings()).await;
    let mut goaway = Vec::new();
    Goaway::default().encode(&mut goaway);
    peer.write(FrameType::Goaway, &goaway).await;
    while !link.is_draining() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn an_error_frame_is_why_the_link_ends_if_it_ends_next() {
    let (mut sidecar, mut peer, _link) = BytesPeer::open(settings()).await;
    let mut error = Vec::new();
    ErrorFrame { code: 1001, message: "your bytes are odd".into(), msg_id: None }.encode(&mut error);
    peer.write(FrameType::Error, &error).await;
    peer.write(FrameType::AmpMessage, b"still open").await;
    assert_eq!(&sidecar.end.message().await.0[..], b"still open");
    drop(peer);
    match sidecar.end.closed().await {
        CloseReason::PeerFault(fault) => {
            assert_eq!((fault.code, fault.message.as_str()), (Code::INVALID_MESSAGE, "your bytes are odd"));
        }
        other => panic!("expected the peer's fault, got {other:?}"),
    }
}
