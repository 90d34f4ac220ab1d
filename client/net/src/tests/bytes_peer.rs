//! Provides a peer that writes valid or invalid bytes by hand over a unix socket.

use std::path::{Path, PathBuf};
use std::pin::Pin;

use bytes::BytesMut;
use capd_proto::cbor::Writer;
use capd_proto::code::Code;
use capd_proto::envelope::{Draft, Envelope, Ext, MessageId, Recipients};
use capd_proto::frame::{
    Decoder, ErrorFrame, Frame, FrameType, Goaway, HandshakeRequest, HandshakeResponse, encode,
};
use capd_proto::identity::Identity;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use super::super::wire::{BoxRead, BoxWrite};
use super::super::{Clock, local};
use super::*;

/// The other end of a link, byte by byte.
pub(super) struct BytesPeer {
    receive: BoxRead,
    send: BoxWrite,
    buffer: BytesMut,
    /// Who it says it is, and for whom its messages are.
    pub(super) from: String,
    pub(super) to: String,
    /// What it signs with; nothing on a local link.
    pub(super) identity: Option<Identity>,
}

impl BytesPeer {
    /// A peer on halves of any transport that says and signs as the identity of `seed`.
    pub(super) fn peer(receive: BoxRead, send: BoxWrite, seed: [u8; 32], to: String) -> Self {
        let identity = Identity::from_seed(seed);
        let from = identity.did().to_string();
        Self { receive, send, buffer: BytesMut::new(), from, to, identity: Some(identity) }
    }

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
        self.handshake_with(None).await;
    }

    /// A HANDSHAKE that names `extension`; gives the extensions that the answer names.
    pub(super) async fn handshake_with(&mut self, extension: Option<&str>) -> Vec<String> {
        let mut request = Vec::new();
        let extensions = extension.map(|name| vec![name.into()]);
        HandshakeRequest { version: 1, max_msg_size: 1 << 24, extensions, ..HandshakeRequest::default() }
            .encode(&mut request);
        self.write(FrameType::Handshake, &request).await;
        let frame = self.frame().await.unwrap();
        assert_eq!(frame.frame_type, FrameType::Handshake);
        let response = HandshakeResponse::decode(&frame.payload).unwrap();
        assert!(response.accepted);
        response.extensions.into_iter().flatten().map(|name| name.into_owned()).collect()
    }

    /// Whether a HANDSHAKE is accepted.
    pub(super) async fn is_admitted(&mut self) -> bool {
        let mut request = Vec::new();
        HandshakeRequest { version: 1, max_msg_size: 1 << 24, ..HandshakeRequest::default() }
            .encode(&mut request);
        self.write(FrameType::Handshake, &request).await;
        let frame = self.frame().await.unwrap();
        HandshakeResponse::decode(&frame.payload).unwrap().accepted
    }

    /// Whether the other side answers, rather than end the connection.
    pub(super) async fn answers(mut self) -> bool {
        let mut ping = Vec::new();
        encode(FrameType::Ping, b"", &mut ping).unwrap();
        // The connection may have ended already.
        self.send.write_all(&ping).await.is_ok()
            && self.frame().await.is_some_and(|frame| frame.frame_type == FrameType::Pong)
    }

    /// A HELLO as an agent writes it.
    pub(super) fn hello(&self) -> Vec<u8> {
        self.envelope(0x70, |body| {
            body.map(1).text("versions").array(1).text("1.0");
        })
    }

    /// An envelope of type `typ`, signed if there is something to sign with.
    pub(super) fn envelope(&self, typ: u64, body: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let ts = Clock::start().wall_ms();
        let mut encoded = Vec::new();
        body(&mut Writer::new(&mut encoded));
        let draft = Draft {
            id: MessageId::new(ts, [7; 8]),
            typ,
            ts,
            ttl: 60_000,
            from: &self.from,
            to: Recipients::one(&self.to),
            reply_to: None,
            thread_id: None,
            body: &encoded,
            ext: Ext::None,
        };
        let mut out = Vec::new();
        match &self.identity {
            Some(identity) => draft.seal(identity, true, &mut out),
            None => draft.write_unsigned(&mut out),
        }
        out
    }

    pub(super) async fn write(&mut self, frame_type: FrameType, payload: &[u8]) {
        let mut bytes = Vec::new();
        encode(frame_type, payload, &mut bytes).unwrap();
        self.write_raw(&bytes).await;
    }

    pub(super) async fn write_raw(&mut self, bytes: &[u8]) {
        timeout(PATIENCE, self.send.write_all(bytes)).await.unwrap().unwrap();
    }

    /// Writes `beginning` byte by byte with pauses, then zeros without end.
    pub(super) fn drip(&mut self, beginning: &[u8], pause: Duration) -> Pin<Box<impl Future<Output = ()>>> {
        let bytes: Vec<u8> = beginning.to_vec();
        Box::pin(async move {
            for byte in bytes.into_iter().chain(std::iter::repeat(0)) {
                // The connection may have ended already.
                let _gone = self.send.write_all(&[byte]).await;
                tokio::time::sleep(pause).await;
            }
        })
    }

    /// The next frame, or `None` at the end.
    pub(super) async fn frame(&mut self) -> Option<Frame> {
        loop {
            if let Some(frame) = Decoder::new(1 << 24).decode(&mut self.buffer).unwrap() {
                return Some(frame);
            }
            if timeout(PATIENCE, self.receive.read_buf(&mut self.buffer)).await.unwrap().unwrap_or(0) == 0 {
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
        let (receive, send) = stream.into_split();
        let did = self.end.did().to_string();
        BytesPeer {
            receive: Box::new(receive),
            send: Box::new(send),
            buffer: BytesMut::new(),
            from: did.clone(),
            to: did,
            identity: None,
        }
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
    peer.send.shutdown().await.unwrap();
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

    let stranger = "did:key:z6MkhaXgBZDvotDkL5257faiztiGiC2QtKLGpbnnEGta2doK";
    let (_sidecar, mut peer) = BytesPeer::connect(settings()).await;
    peer.handshake().await;
    peer.from = stranger.to_owned();
    peer.write(FrameType::AmpMessage, &peer.hello()).await;
    assert_eq!(peer.error_and_end().await.0, Code::UNAUTHORIZED);

    let (_sidecar, mut peer) = BytesPeer::connect(settings()).await;
    peer.handshake().await;
    peer.to = stranger.to_owned();
    peer.write(FrameType::AmpMessage, &peer.hello()).await;
    assert_eq!(peer.error_and_end().await.0, Code::RECIPIENT_NOT_FOUND);
}

#[tokio::test]
async fn a_hello_of_the_wrong_shape_is_1001_and_one_of_unknown_versions_is_rejected() {
    let (_sidecar, mut peer) = BytesPeer::connect(settings()).await;
    peer.handshake().await;
    let hello = peer.envelope(0x70, |body| {
        body.map(1).text("versions").array(0);
    });
    peer.write(FrameType::AmpMessage, &hello).await;
    assert_eq!(peer.error_and_end().await.0, Code::INVALID_MESSAGE);

    let (_sidecar, mut peer) = BytesPeer::connect(settings()).await;
    peer.handshake().await;
    let hello = peer.envelope(0x70, |body| {
        body.map(1).text("versions").array(2).text("9.0").text("8.0");
    });
    peer.write(FrameType::AmpMessage, &hello).await;
    let frame = peer.frame().await.unwrap();
    assert_eq!(frame.frame_type, FrameType::AmpMessage);
    let answer = Envelope::decode(&frame.payload).unwrap();
    assert_eq!(answer.typ, 0x72);
    assert_eq!(answer.reply_id(), Some(Envelope::decode(&hello).unwrap().id));
    assert_eq!(peer.frame().await, None);
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
