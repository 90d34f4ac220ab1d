//! Envelopes that lie about who, when or what they answer in; the code of each lie, and one result for each call
//! however often it is asked for, out.

use capd_proto::identity::Identity;
use ciborium::{Value, cbor};

use crate::field::{CAP_DECLARE, CAP_INVOKE, CAP_RESULT, ECHO, ERROR, Field};
use crate::peer::{Letter, RawLink, Transport, frame, fresh_seed, id_at, now_ms};
use crate::support::{AMP_MESSAGE, map};

const PING: u64 = 0x01;
const PONG: u64 = 0x02;
const PROGRESS: u64 = 0x0a;
const RESPONSE: u64 = 0x12;
const DOC_SEND: u64 = 0x30;
/// Messages sent before the answers are read: their answers fit the buffers in between.
const BATCH: usize = 50;
/// Messages of each kind on each link.
const OF_EACH: usize = 400;

fn links(field: &Field) -> [RawLink; 2] {
    Transport::PEER.map(|transport| RawLink::open(&field.sidecar, transport))
}

/// Sends `count` messages that `make` seals, and asserts that each is refused with `code`.
#[track_caller]
fn all_refused(link: &mut RawLink, count: usize, code: u64, make: impl Fn(&RawLink) -> (Letter, Vec<u8>)) {
    for _ in 0..count / BATCH {
        let made: Vec<_> = (0..BATCH).map(|_| make(link)).collect();
        let frames: Vec<u8> = made.iter().flat_map(|(_, payload)| frame(AMP_MESSAGE, payload)).collect();
        link.send_raw(&frames);
        for (letter, _) in &made {
            let refusal = link.reply(&letter.id);
            assert_eq!((refusal.typ(), refusal.code()), (ERROR, Some(code)), "{link:?}: {refusal:?}");
        }
    }
}

fn ping(link: &RawLink) -> Letter {
    link.letter(PING, &map([]))
}

fn sealed(link: &RawLink, letter: Letter) -> (Letter, Vec<u8>) {
    let payload = link.seal(&letter);
    (letter, payload)
}

#[test]
fn messages_from_others_are_3001_each_time() {
    let mut field = Field::start();
    // Somebody else's whole envelope, signed by that somebody: it is not that somebody's link.
    let other = Identity::from_seed(fresh_seed());
    field.withstands("wrong principals", |field| {
        let mut links = links(field);
        for link in &mut links {
            all_refused(link, OF_EACH, 3001, |link| {
                let letter = Letter { from: other.did().as_str().to_owned(), ..ping(link) };
                let payload = letter.seal(&other, true);
                (letter, payload)
            });
            link.ping();
        }
        links
    });
    let records = field.sidecar.audited("binding_mismatch", 1);
    assert_eq!(records[0]["from"], other.did().as_str());
}

#[test]
fn bad_signatures_are_1002_each_time() {
    let mut field = Field::start();
    let other = Identity::from_seed(fresh_seed());
    field.withstands("bad signatures", |field| {
        let mut links = links(field);
        for link in &mut links {
            // Signed by another key, and not signed at all.
            all_refused(link, OF_EACH, 1002, |link| {
                let letter = ping(link);
                let payload = letter.seal(&other, true);
                (letter, payload)
            });
            all_refused(link, OF_EACH, 1002, |link| {
                let letter = ping(link);
                let payload = letter.seal(&link.identity, false);
                (letter, payload)
            });
            link.ping();
        }
        links
    });
}

/// Those that arrive together are checked together.
#[test]
fn bad_signatures_among_good_ones_are_1002_and_the_others_are_answered() {
    let mut field = Field::start();
    let other = Identity::from_seed(fresh_seed());
    field.withstands("bad signatures among good ones", |field| {
        let mut links = links(field);
        for link in &mut links {
            for _ in 0..OF_EACH / BATCH {
                let made: Vec<_> = (0..BATCH)
                    .map(|number| {
                        let (letter, is_bad) = (ping(link), number % 10 == 3);
                        let payload = if is_bad { letter.seal(&other, true) } else { link.seal(&letter) };
                        (letter, payload, is_bad)
                    })
                    .collect();
                let frames: Vec<u8> =
                    made.iter().flat_map(|(_, payload, _)| frame(AMP_MESSAGE, payload)).collect();
                link.send_raw(&frames);
                for (letter, _, is_bad) in &made {
                    let answer = link.reply(&letter.id);
                    let expected = if *is_bad { (ERROR, Some(1002)) } else { (PONG, None) };
                    assert_eq!((answer.typ(), answer.code()), expected, "{link:?}: {answer:?}");
                }
            }
        }
        links
    });
}

#[test]
fn expired_and_future_envelopes_are_1003_each_time() {
    let mut field = Field::start();
    field.withstands("expired and future envelopes", |field| {
        let mut links = links(field);
        for link in &mut links {
            for (ts, ttl) in [(now_ms() - 60_000, 59_000), (now_ms() + 60_000, 60_000), (0, 0)] {
                all_refused(link, OF_EACH / 2, 1003, |link| {
                    sealed(link, Letter { id: id_at(ts), ts, ttl, ..ping(link) })
                });
            }
            link.ping();
        }
        links
    });
}

#[test]
fn results_that_answer_nothing_are_4001_each_time() {
    let mut field = Field::start();
    let body = cbor!({ "status" => "success", "result" => 1 }).unwrap();
    field.withstands("results that answer nothing", |field| {
        let mut links = links(field);
        for link in &mut links {
            all_refused(link, OF_EACH, 4001, |link| {
                let reply_to = Some(id_at(now_ms()).to_vec());
                sealed(link, Letter { reply_to, ..link.letter(CAP_RESULT, &body) })
            });
            link.ping();
        }
        links
    });
}

#[test]
fn other_answers_to_nothing_are_dropped_without_a_word() {
    let mut field = Field::start();
    let hash = Value::Bytes(vec![7; 32]);
    let bodies = [
        (PONG, map([])),
        (ERROR, cbor!({ "code" => 5001, "category" => "server", "message" => "x" }).unwrap()),
        (PROGRESS, cbor!({ "progress_pct" => 50 }).unwrap()),
        (RESPONSE, cbor!({ "op" => "x" }).unwrap()),
        (CAP_DECLARE, cbor!({ "capabilities" => [{ "id" => "org.example.forged:1.0.0" }] }).unwrap()),
        (
            DOC_SEND,
            map([
                ("content_type", "application/json".into()),
                ("filename", "x.json".into()),
                ("size", 2.into()),
                ("hash", hash),
                ("data", Value::Bytes(b"{}".to_vec())),
            ]),
        ),
    ];
    field.withstands("other answers to nothing", |field| {
        let mut links = links(field);
        for link in &mut links {
            for _ in 0..OF_EACH / BATCH {
                let letters = bodies.iter().flat_map(|(typ, body)| {
                    let reply_to = || Some(id_at(now_ms()).to_vec());
                    std::iter::repeat_with(move || (*typ, body, reply_to())).take(BATCH)
                });
                let frames: Vec<u8> = letters
                    .flat_map(|(typ, body, reply_to)| {
                        let letter = Letter { reply_to, ..link.letter(typ, body) };
                        frame(AMP_MESSAGE, &link.seal(&letter))
                    })
                    .collect();
                link.send_raw(&frames);
                // Messages of a stream are taken in order: whatever they were answered with comes before this.
                let id = link.send(PING, map([]));
                let next = link.message_where(|message| message.typ() != crate::field::CAP_QUERY);
                assert_eq!(next.reply_to().as_ref(), Some(&id), "{link:?}: {next:?}");
            }
        }
        links
    });
}

#[test]
fn a_replayed_call_has_one_result_and_anothers_replay_has_none() {
    let mut field = Field::start();
    let body = map([("id", ECHO.into()), ("params", cbor!({ "n" => 1 }).unwrap())]);
    field.withstands("replays", |field| {
        let mut links = links(field);
        for link in &mut links {
            let letter = link.letter(CAP_INVOKE, &body);
            let payload = link.seal(&letter);
            link.send_frame(AMP_MESSAGE, &payload);
            let result = link.reply(&letter.id);
            assert_eq!(result.typ(), CAP_RESULT, "{result:?}");
            for _ in 0..OF_EACH / BATCH {
                link.send_raw(&frame(AMP_MESSAGE, &payload).repeat(BATCH));
                for _ in 0..BATCH {
                    // PROTOCOL 8: the recorded envelope, byte for byte; a second execution would have another id.
                    assert!(link.reply(&letter.id).bytes == result.bytes, "{link:?}: another result");
                }
            }
            // PROTOCOL 8: the same id with a different body.
            let other = map([("id", ECHO.into()), ("params", cbor!({ "n" => 2 }).unwrap())]);
            let mut changed = link.letter(CAP_INVOKE, &other);
            changed.id = letter.id;
            changed.ts = letter.ts;
            link.send_letter(&changed);
            let refusal = link.reply(&letter.id);
            assert_eq!((refusal.typ(), refusal.code()), (ERROR, Some(4001)), "{link:?}: {refusal:?}");
            // Another peer got hold of the bytes.
            let mut thief = RawLink::open(&field.sidecar, link.transport);
            for _ in 0..OF_EACH / BATCH {
                thief.send_raw(&frame(AMP_MESSAGE, &payload).repeat(BATCH));
                for _ in 0..BATCH {
                    let refusal = thief.reply(&letter.id);
                    assert_eq!((refusal.typ(), refusal.code()), (ERROR, Some(3001)), "{refusal:?}");
                }
            }
        }
        links
    });
}
