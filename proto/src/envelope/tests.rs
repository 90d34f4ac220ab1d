use super::*;
use crate::cbor::Writer;
use crate::identity::{Identity, PublicKey};

mod hostile;
mod random;
mod rules;
mod usual;
mod vectors;

const NOW_MS: u64 = 1_790_000_000_123;

pub(super) fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap()).collect()
}

fn alice() -> Identity {
    Identity::from_seed([1; 32])
}

fn bob() -> Identity {
    Identity::from_seed([2; 32])
}

fn id() -> MessageId {
    MessageId::new(NOW_MS, *b"randomly")
}

/// A CAP_INVOKE from Alice to Bob.
fn draft<'a>(alice: &'a Identity, bob: &'a Identity, body: &'a [u8]) -> Draft<'a> {
    Draft {
        id: id(),
        typ: 0x22,
        ts: NOW_MS,
        ttl: 30_000,
        from: alice.did(),
        to: Recipients::one(bob.did()),
        reply_to: None,
        thread_id: None,
        body,
        ext: Ext::None,
    }
}

fn sealed(body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    draft(&alice(), &bob(), body).seal(&alice(), true, &mut out);
    out
}

/// The fields of a good envelope, each encoded by itself, to be left out, replaced and put in another order.
#[derive(Clone)]
struct Loose(Vec<(Vec<u8>, Vec<u8>)>);

impl Loose {
    fn new() -> Self {
        let bytes = sealed(&[0xf6]);
        let mut reader = Reader::new(&bytes);
        let mut left = reader.map().unwrap();
        let mut fields = Vec::new();
        while reader.has_next(&mut left) {
            fields.push((reader.skip().unwrap().to_vec(), reader.skip().unwrap().to_vec()));
        }
        Self(fields)
    }

    fn without(mut self, name: &str) -> Self {
        self.0.retain(|(key, _)| *key != text(name));
        self
    }

    fn with(self, name: &str, value: &[u8]) -> Self {
        self.without(name).and(&text(name), value)
    }

    /// Appends a pair, whatever its key.
    fn and(mut self, key: &[u8], value: &[u8]) -> Self {
        self.0.push((key.to_vec(), value.to_vec()));
        self
    }

    /// Puts a pair before all others.
    fn first(mut self, key: &[u8], value: &[u8]) -> Self {
        self.0.insert(0, (key.to_vec(), value.to_vec()));
        self
    }

    fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        Writer::new(&mut out).map(self.0.len() as u64);
        for (key, value) in &self.0 {
            out.extend_from_slice(key);
            out.extend_from_slice(value);
        }
        out
    }

    /// Where the value of the pair with this key starts.
    fn offset(&self, name: &str) -> usize {
        let at = self.0.iter().position(|(key, _)| *key == text(name)).unwrap();
        1 + self.0[..at].iter().map(|(key, value)| key.len() + value.len()).sum::<usize>()
            + self.0[at].0.len()
    }
}

fn text(value: &str) -> Vec<u8> {
    let mut out = Vec::new();
    Writer::new(&mut out).text(value);
    out
}

fn bytes(value: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Writer::new(&mut out).bytes(value);
    out
}

fn uint(value: u64) -> Vec<u8> {
    let mut out = Vec::new();
    Writer::new(&mut out).uint(value);
    out
}

fn key_of(identity: &Identity) -> PublicKey {
    identity.public_key()
}
