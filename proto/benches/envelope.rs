//! Stage by stage over one CAP_INVOKE of about 431 bytes: each beside its baseline in the same run.
//!
//! The bar: decoding the envelope to the borrowed struct takes at most a quarter of ciborium into an owned one.

mod sample;

use std::hint::black_box;

use bytes::{Bytes, BytesMut};
use capd_proto::cbor;
use capd_proto::envelope::Envelope;
use capd_proto::frame::{self, Decoder, FrameType};
use capd_proto::identity::{Authcrypt, Claim, Keyring};
use capd_proto::limits::MSG_SIZE_BYTES_DEFAULT;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use ed25519_dalek::{Signer, SigningKey, Verifier};
use sample::Sample;
use serde::de::{DeserializeOwned, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The envelope as a program without this crate would declare it.
#[derive(Serialize, Deserialize)]
struct Owned<P> {
    v: u8,
    id: ByteString,
    to: String,
    ts: u64,
    sig: ByteString,
    ttl: u64,
    typ: u64,
    body: Body<P>,
    from: String,
}

#[derive(Serialize, Deserialize)]
struct Body<P> {
    id: String,
    params: P,
    timeout_ms: u64,
}

#[derive(Serialize, Deserialize)]
struct Params {
    city: String,
    days: u32,
    units: String,
    stations: Vec<Station>,
}

#[derive(Serialize, Deserialize)]
struct Station {
    w: u32,
    id: String,
}

/// A CBOR byte string, which serde's `Vec<u8>` is not.
struct ByteString(Vec<u8>);

impl Serialize for ByteString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_bytes(&self.0)
    }
}

impl<'de> Deserialize<'de> for ByteString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct ByteVisitor;
        impl Visitor<'_> for ByteVisitor {
            type Value = ByteString;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a byte string")
            }

            fn visit_bytes<E>(self, bytes: &[u8]) -> Result<ByteString, E> {
                Ok(ByteString(bytes.to_vec()))
            }

            fn visit_byte_buf<E>(self, bytes: Vec<u8>) -> Result<ByteString, E> {
                Ok(ByteString(bytes))
            }
        }
        deserializer.deserialize_byte_buf(ByteVisitor)
    }
}

fn sample() -> Sample {
    let stations = [("NL-0001-A", 1), ("NL-0002-B", 25), ("NL-0003-C", 300)];
    let body = Body {
        id: "weather.forecast@1".into(),
        params: Params {
            city: "Amsterdam Noord, Buikslotermeerplein 12".into(),
            days: 5,
            units: "metric".into(),
            stations: stations.map(|(id, w)| Station { w, id: id.into() }).into(),
        },
        timeout_ms: 5_000,
    };
    let mut encoded = Vec::new();
    ciborium::into_writer(&body, &mut encoded).expect("a Vec takes every byte");
    Sample::of(encoded)
}

fn ciborium_read<T: DeserializeOwned>(bytes: &[u8]) -> T {
    ciborium::from_reader(bytes).expect("the sample is what the struct declares")
}

fn decode(c: &mut Criterion) {
    let bytes = sample().sealed(true);
    let mut group = c.benchmark_group(format!("envelope decode, {} bytes", bytes.len()));
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("borrowed struct, strict", |b| {
        b.iter(|| Envelope::decode(black_box(&bytes)).expect("the sample is an envelope"));
    });
    group.bench_function("walk alone (cbor::check)", |b| b.iter(|| cbor::check(black_box(&bytes))));
    group.bench_function("baseline: ciborium, owned struct, typed params", |b| {
        b.iter(|| ciborium_read::<Owned<Params>>(black_box(&bytes)));
    });
    group.bench_function("baseline: ciborium, owned struct, params as Value", |b| {
        b.iter(|| ciborium_read::<Owned<ciborium::Value>>(black_box(&bytes)));
    });
    group.bench_function("baseline: ciborium, Value", |b| {
        b.iter(|| ciborium_read::<ciborium::Value>(black_box(&bytes)));
    });
    group.finish();
}

fn encode(c: &mut Criterion) {
    let sample = sample();
    let bytes = sample.sealed(true);
    let owned: Owned<Params> = ciborium_read(&bytes);
    let mut out = Vec::with_capacity(1_024);
    ciborium::into_writer(&owned, &mut out).expect("a vector takes all");
    assert_eq!(out.len(), bytes.len());
    let mut group = c.benchmark_group("envelope encode");
    group.throughput(Throughput::Bytes(bytes.len() as u64));
    group.bench_function("draft, unsigned", |b| {
        b.iter(|| {
            out.clear();
            black_box(&sample).draft().seal(&sample.alice, false, &mut out);
        });
    });
    group.bench_function("draft, signed", |b| {
        b.iter(|| {
            out.clear();
            black_box(&sample).draft().seal(&sample.alice, true, &mut out);
        });
    });
    group.bench_function("baseline: ciborium, owned struct", |b| {
        b.iter(|| {
            out.clear();
            ciborium::into_writer(black_box(&owned), &mut out)
        });
    });
    group.finish();
}

fn frames(c: &mut Criterion) {
    let payload = sample().sealed(true);
    let mut framed = Vec::new();
    frame::encode(FrameType::AmpMessage, &payload, &mut framed).expect("the sample fits a frame");
    let received = Bytes::from(framed.repeat(64));
    let mut group = c.benchmark_group("64 frames");
    group.throughput(Throughput::Elements(64));
    group.bench_function("decode", |b| {
        b.iter_batched_ref(
            || BytesMut::from(&received[..]),
            |buffer| {
                let mut decoder = Decoder::new(MSG_SIZE_BYTES_DEFAULT);
                while let Ok(Some(frame)) = decoder.decode(buffer) {
                    black_box(frame);
                }
            },
            criterion::BatchSize::SmallInput,
        );
    });
    group.bench_function("baseline: copy each payload", |b| {
        b.iter(|| {
            for frame in black_box(&received).chunks_exact(framed.len()) {
                black_box(frame[5..].to_vec());
            }
        });
    });
    let mut out = Vec::with_capacity(received.len());
    group.bench_function("encode", |b| {
        b.iter(|| {
            out.clear();
            for _ in 0..64 {
                let _ = frame::encode(FrameType::AmpMessage, black_box(&payload), &mut out);
            }
        });
    });
    group.bench_function("baseline: copy all bytes", |b| {
        b.iter(|| {
            out.clear();
            out.extend_from_slice(black_box(&received));
        });
    });
    group.finish();
}

fn signatures(c: &mut Criterion) {
    let sample = sample();
    let bytes = sample.sealed(true);
    let envelope = Envelope::decode(&bytes).expect("the sample is an envelope");
    let key = sample.alice.public_key();
    let mut scratch = Vec::new();
    envelope.signed_bytes(&mut scratch).expect("the sample's body is in the clear");
    let signed = scratch.clone();
    let signing = SigningKey::from_bytes(&[1; 32]);
    let signature = signing.sign(&signed);
    let mut group = c.benchmark_group("signature");
    group.bench_function("sign", |b| b.iter(|| sample.alice.sign(black_box(&signed))));
    group.bench_function("baseline: dalek sign", |b| b.iter(|| signing.sign(black_box(&signed))));
    group.bench_function("verify envelope", |b| {
        b.iter(|| envelope.verify(black_box(&key), &mut scratch).expect("the signature fits"));
    });
    let mut keyring = Keyring::new(64);
    group.bench_function("verify envelope, key by DID", |b| {
        b.iter(|| envelope.verify_from(&mut keyring, &mut scratch).expect("the signature fits"));
    });
    for count in [2, 4, 8, 16] {
        group.bench_function(format!("verify {count} envelopes together"), |b| {
            b.iter(|| {
                let claims: Vec<Claim> = (0..count)
                    .map(|_| envelope.claim(black_box(&key), &mut scratch).expect("it is signed"))
                    .collect();
                assert!(Claim::check_all(&claims).iter().all(Result::is_ok));
            });
        });
    }
    let verifying = signing.verifying_key();
    group.bench_function("baseline: dalek verify_strict", |b| {
        b.iter(|| verifying.verify_strict(black_box(&signed), &signature).expect("the signature fits"));
    });
    group.bench_function("baseline: dalek verify", |b| {
        b.iter(|| verifying.verify(black_box(&signed), &signature).expect("the signature fits"));
    });
    group.bench_function("signed bytes alone", |b| b.iter(|| envelope.signed_bytes(&mut scratch)));
    group.finish();

    let shared = Authcrypt::new(&sample.alice.agreement_secret(), &sample.bob.public_key().agreement_key());
    let mut group = c.benchmark_group("authcrypt");
    let (mut sealed, mut opened) = (Vec::new(), Vec::new());
    group.bench_function("seal", |b| {
        b.iter(|| {
            sealed.clear();
            shared.seal(&[7; 24], black_box(&sample.body), &mut sealed);
        });
    });
    group.bench_function("open", |b| {
        b.iter(|| {
            opened.clear();
            shared.open(&[7; 24], black_box(&sealed), &mut opened)
        });
    });
    group.finish();
}

criterion_group!(benches, decode, encode, frames, signatures);
criterion_main!(benches);
