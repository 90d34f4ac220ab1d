//! A body in, the CAP_INVOKE that one agent sends another with it out: what the benchmarks of this crate measure on.

use capd_proto::cbor;
use capd_proto::envelope::{Draft, Ext, MessageId, Recipients};
use capd_proto::identity::Identity;

pub(crate) struct Sample {
    pub(crate) alice: Identity,
    pub(crate) bob: Identity,
    pub(crate) body: Vec<u8>,
}

impl Sample {
    /// A CAP_INVOKE with this body, which is in deterministic encoding.
    pub(crate) fn of(body: Vec<u8>) -> Self {
        assert!(cbor::is_deterministic(&body));
        Self { alice: Identity::from_seed([1; 32]), bob: Identity::from_seed([2; 32]), body }
    }

    pub(crate) fn draft(&self) -> Draft<'_> {
        Draft {
            id: MessageId::new(NOW_MS, [0xab; 8]),
            typ: CAP_INVOKE,
            ts: NOW_MS,
            ttl: 30_000,
            from: self.alice.did(),
            to: Recipients::one(self.bob.did()),
            reply_to: None,
            thread_id: None,
            body: &self.body,
            ext: Ext::None,
        }
    }

    pub(crate) fn sealed(&self, is_signed: bool) -> Vec<u8> {
        let mut out = Vec::new();
        self.draft().seal(&self.alice, is_signed, &mut out);
        out
    }
}

pub(crate) const CAP_INVOKE: u64 = 0x22;
pub(crate) const NOW_MS: u64 = 1_790_000_000_123;
