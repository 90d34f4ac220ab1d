//! What a store of registrations is asked, and what it answers: the words between a [`Machine`](super::machine::Machine) and etcd.
//!
//! A store keeps values under keys, counts its changes, and forgets what stands under a lease that nobody renews. It
//! answers each [`Ask`] once, with [`EngineError::Lost`] where it does not know what became of it.

use bytes::Bytes;
use thiserror::Error;

use super::fence::Fence;
use super::key::{Key, Prefix};

/// How many changes a store has seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Revision(pub u64);

/// Which store it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StoreId {
    /// A wiped one has another.
    pub id: u64,
    /// It changes whenever the store may have lost what it had acknowledged, so that revisions of two eras are not of one history.
    /// In etcd it is the raft term.
    pub era: u64,
}

/// A lease: what stands under it ends with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseId(pub i64);

/// What tells one value of a key from any other, also in a store that was restored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mark {
    /// When the key came to be.
    pub created: Revision,
    /// When its value was put.
    pub modified: Revision,
    /// The lease that it stands under.
    pub lease: Option<LeaseId>,
}

/// A key of the store, as it stands there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Item {
    /// The key's text, which may be no key of ours.
    pub path: String,
    /// Which value of it.
    pub mark: Mark,
    /// The value, where it was asked for.
    pub value: Option<Bytes>,
}

/// A part of what stands under a prefix, at one revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// Which store answers.
    pub store: StoreId,
    /// The revision that the page shows.
    pub revision: Revision,
    /// The keys, ascending by their text.
    pub items: Vec<Item>,
    /// How many keys stand under the prefix, on this page and all others.
    pub count: u64,
    /// Whether more follow.
    pub has_more: bool,
}

/// What a watch reports, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// The watch stands.
    Started {
        /// Which store it is of.
        store: StoreId,
        /// The store's revision.
        revision: Revision,
    },
    /// A value was put.
    Put {
        /// The store's revision by then.
        revision: Revision,
        /// The key and its value.
        item: Item,
    },
    /// A key was deleted, or its lease ended.
    Delete {
        /// The store's revision by then.
        revision: Revision,
        /// The key's text.
        path: String,
    },
    /// Nothing else happened up to here.
    Progress {
        /// The store's revision.
        revision: Revision,
    },
    /// The watch is over: the store no longer has the changes it was to begin with, or the connection is gone.
    Ended,
}

/// What is asked of a store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ask {
    /// The fence that stands for our agent: [`Told::Stands`].
    ReadFence,
    /// To put our fence, if what was read still stands: [`Told::Done`]; [`EngineError::Fenced`] if not.
    Claim {
        /// The fence to put.
        fence: Fence,
        /// When the fence that was read was put; none where there was none.
        read: Option<Revision>,
    },
    /// A fresh lease, and all of these values under it in one step, if our fence stands: [`Told::Held`].
    Register {
        /// Our fence.
        fence: Fence,
        /// How long the lease lives without renewal. **Units:** milliseconds.
        ttl_ms: u64,
        /// The values.
        puts: Vec<(Key, Bytes)>,
    },
    /// These values under our lease, if our fence stands: [`Told::Held`], with the revision of the values. [`EngineError::Gone`]
    /// where the lease, or what stood under it, is gone.
    Replace {
        /// Our lease.
        lease: LeaseId,
        /// Our fence.
        fence: Fence,
        /// A key of ours, and when it was put last; none where we have put none. A registry that lost what it had acknowledged
        /// would give the same marks to other values.
        stands: Option<(Key, Revision)>,
        /// The values.
        puts: Vec<(Key, Bytes)>,
        /// Keys to delete.
        gone: Vec<Key>,
    },
    /// To renew a lease: [`Told::Done`], or [`EngineError::Gone`].
    Renew(LeaseId),
    /// To end a lease and what stands under it: [`Told::Done`].
    Withdraw(LeaseId),
    /// One page of what stands under a prefix: [`Told::Page`].
    List {
        /// What to list.
        prefix: Prefix,
        /// The last key of the page before.
        after: Option<String>,
        /// The revision of the page before; none for the present one.
        at: Option<Revision>,
        /// Whether values are wanted.
        values: bool,
    },
}

/// What a store answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is done.
    Done,
    /// The fence's value and when it was put; none where there is none.
    Stands(Option<(Bytes, Revision)>),
    /// What was put stands under this lease.
    Held {
        /// The lease.
        lease: LeaseId,
        /// When it was put.
        revision: Revision,
    },
    /// One page.
    Page(Page),
}

/// Why a store has not done what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum EngineError {
    /// Another fence stands than was to; this is its value.
    #[error("another process registers for this agent")]
    Fenced(Option<Bytes>),
    /// The lease does not exist.
    #[error("the lease is gone")]
    Gone,
    /// The store no longer has the revision.
    #[error("the revision is compacted")]
    Compacted,
    /// The store does not allow it.
    #[error("permission denied")]
    Denied,
    /// The store has no space left.
    #[error("no space left")]
    Full,
    /// Nobody knows whether it was done.
    #[error("no answer")]
    Lost,
}
