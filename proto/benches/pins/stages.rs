//! A number of messages in; each taken through one stage of its way, and the same bytes every time.

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use capd_proto::cbor::{self, Writer};
use capd_proto::cddl::bodies::bodies;
use capd_proto::envelope::{Envelope, MessageId};
use capd_proto::frame::{self, Decoder, FrameType};
use capd_proto::identity::{Claim, Keyring};
use capd_proto::ledger::{
    Admission, Answerer, BodyDigest, Finish, Invoke as Call, Kept, Key, Ledger, Limits,
};
use capd_proto::limits::MSG_SIZE_BYTES_DEFAULT;
use capd_proto::message::{CapResult, Invoke};
use capd_proto::negotiate::{Served, Want, choose};
use sha2::{Digest, Sha256};

use crate::sample::{CAP_INVOKE, NOW_MS, Sample};

/// A stage's name, and what takes so many messages through it.
pub(crate) type Stage = (&'static str, fn(u32));

/// In the order in which a call meets them.
pub(crate) const STAGES: &[Stage] = &[
    ("frame, read", read_frames),
    ("envelope, decode", decode_envelopes),
    ("CBOR, check of the body", check_cbor),
    ("CDDL, CAP_INVOKE", match_cddl),
    ("CAP_INVOKE, decode", decode_invokes),
    ("signature, verify with the key at hand", verify),
    ("signature, verify among eight", verify_together),
    ("negotiation among three versions", negotiate),
    ("digest of the body", digest),
    ("ledger, from admission to oblivion", remember),
    ("CAP_RESULT, encode", encode_results),
    ("envelope, encode without signature", encode_envelopes),
    ("envelope, encode with signature", sign_envelopes),
    ("frame, write", write_frames),
];

fn read_frames(times: u32) {
    let mut framed = Vec::new();
    frame::encode(FrameType::AmpMessage, &sample().sealed(true), &mut framed).unwrap();
    let mut buffer = BytesMut::with_capacity(framed.len() * times as usize);
    (0..times).for_each(|_| buffer.extend_from_slice(&framed));
    let mut decoder = Decoder::new(MSG_SIZE_BYTES_DEFAULT);
    counted(|| {
        for _ in 0..times {
            black_box(decoder.decode(black_box(&mut buffer)).unwrap().unwrap());
        }
    });
}

fn decode_envelopes(times: u32) {
    let bytes = sample().sealed(true);
    counted(|| {
        for _ in 0..times {
            black_box(Envelope::decode(black_box(&bytes)).unwrap());
        }
    });
}

fn check_cbor(times: u32) {
    let sample = sample();
    counted(|| {
        for _ in 0..times {
            cbor::check(black_box(&sample.body)).unwrap();
        }
    });
}

fn match_cddl(times: u32) {
    let (sample, bodies) = (sample(), bodies());
    counted(|| {
        for _ in 0..times {
            bodies.check(CAP_INVOKE, black_box(&sample.body)).unwrap();
        }
    });
}

fn decode_invokes(times: u32) {
    let bytes = sample().sealed(true);
    let body = Envelope::decode(&bytes).unwrap().checked_body().unwrap();
    // The first one compiles the rules.
    Invoke::decode_checked(body).unwrap();
    counted(|| {
        for _ in 0..times {
            black_box(Invoke::decode_checked(black_box(body)).unwrap());
        }
    });
}

fn verify(times: u32) {
    let bytes = sample().sealed(true);
    let envelope = Envelope::decode(&bytes).unwrap();
    let (mut keyring, mut scratch) = (Keyring::new(64), Vec::new());
    counted(|| {
        for _ in 0..times {
            black_box(&envelope).verify_from(&mut keyring, &mut scratch).unwrap();
        }
    });
}

fn verify_together(times: u32) {
    let sample = sample();
    let bytes = sample.sealed(true);
    let envelope = Envelope::decode(&bytes).unwrap();
    let (key, mut scratch) = (sample.alice.public_key(), Vec::new());
    let numbers: Vec<u32> = (0..times).collect();
    counted(|| {
        for numbers in numbers.chunks(8) {
            let claims: Vec<Claim> =
                numbers.iter().map(|_| black_box(&envelope).claim(&key, &mut scratch).unwrap()).collect();
            assert!(Claim::check_all(&claims).iter().all(Result::is_ok));
        }
    });
}

fn negotiate(times: u32) {
    let served = ["1.4.2", "2.0.0", "2.1.0"].map(|version| Served::only(version.parse().unwrap()));
    let want = Want::Exact("2.0.0".parse().unwrap());
    counted(|| {
        for _ in 0..times {
            black_box(choose(black_box(&want), &served).unwrap());
        }
    });
}

fn digest(times: u32) {
    let sample = sample();
    counted(|| {
        for _ in 0..times {
            black_box(Sha256::digest(black_box(&sample.body)));
        }
    });
}

/// Each call is admitted, answered and, once its time is over, forgotten; some hundred are remembered at a time.
fn remember(times: u32) {
    let from = sample().alice.did().clone();
    let mut ledger: Ledger<u32> = Ledger::new(Limits::default());
    let result = Bytes::from(vec![7; 300]);
    let mut rows = Vec::new();
    counted(|| {
        for at in 0..times {
            let now_ms = NOW_MS + u64::from(at);
            let key = Key { from: from.clone(), id: MessageId::new(now_ms, u64::from(at).to_be_bytes()) };
            let call = Call {
                key: key.clone(),
                body: BodyDigest([7; 32]),
                expires_at_ms: now_ms + REMEMBERED_MS,
                idempotent: true,
            };
            assert!(matches!(ledger.admit(call, at), Admission::New));
            let finish = ledger.finish(&key, Kept::Held(result.clone().into()), Answerer::Provider);
            assert!(matches!(finish, Finish::Recorded(_)));
            ledger.sweep(now_ms, &mut rows);
        }
    });
}

fn encode_results(times: u32) {
    let result = sample().body;
    let mut out = Vec::with_capacity(1_024);
    counted(|| {
        for _ in 0..times {
            out.clear();
            let mut message = CapResult::success(black_box(&result));
            message.execution_time_ms = Some(7);
            message.encode(&mut out);
        }
    });
}

fn encode_envelopes(times: u32) {
    seal(times, false);
}

fn sign_envelopes(times: u32) {
    seal(times, true);
}

fn seal(times: u32, is_signed: bool) {
    let sample = sample();
    let mut out = Vec::with_capacity(1_024);
    counted(|| {
        for _ in 0..times {
            out.clear();
            black_box(&sample).draft().seal(&sample.alice, is_signed, &mut out);
        }
    });
}

fn write_frames(times: u32) {
    let payload = sample().sealed(true);
    let mut out = Vec::with_capacity(1_024);
    counted(|| {
        for _ in 0..times {
            out.clear();
            frame::encode(FrameType::AmpMessage, black_box(&payload), &mut out).unwrap();
        }
    });
}

/// Runs `work`, whose instructions alone are counted. What comes before it, above all compiling the rules, takes some 100,000
/// more or fewer in each process, by where the allocator finds room.
#[inline(never)]
fn counted(work: impl FnOnce()) {
    work();
}

/// A CAP_INVOKE with some 300 bytes of params, from one agent to another.
fn sample() -> Sample {
    let mut body = Vec::new();
    let mut writer = Writer::new(&mut body);
    writer.map(3).text("id").text("org.example.weather.forecast:2.0.0").text("params").map(4);
    writer.text("city").text("Amsterdam Noord, Buikslotermeerplein 12").text("days").uint(5);
    writer.text("units").text("metric").text("stations").array(10);
    for number in 0..10 {
        writer.map(2).text("w").uint(number * 30).text("id").text(&format!("NL-{number:04}-A"));
    }
    writer.text("timeout_ms").uint(5_000);
    Sample::of(body)
}

/// A message a millisecond: so many are remembered.
const REMEMBERED_MS: u64 = 50;
