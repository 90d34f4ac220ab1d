//! Reads the `to` of an envelope: one DID, or several.

use std::borrow::Cow;

use crate::cbor::Writer;

/// The recipients of a message.
///
/// **Shape:** a DID, or an array of 1 to [`RECIPIENTS_MAX`](crate::limits::RECIPIENTS_MAX). **Source:** PROTOCOL 5.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recipients<'a> {
    /// A DID by itself.
    One(Cow<'a, str>),
    /// An array of DIDs.
    Many(Vec<Cow<'a, str>>),
}

impl<'a> Recipients<'a> {
    /// A single recipient.
    pub const fn one(did: &'a str) -> Self {
        Self::One(Cow::Borrowed(did))
    }

    /// All of them, in their order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        match self {
            Self::One(did) => std::slice::from_ref(did),
            Self::Many(dids) => dids,
        }
        .iter()
        .map(AsRef::as_ref)
    }

    /// Whether `did` is among them, without fragments, which name keys and not parties.
    pub fn names(&self, did: &str) -> bool {
        self.iter().any(|recipient| recipient == did || is_same_party(recipient, did))
    }

    /// The same recipients, borrowed.
    pub(super) fn borrowed(&self) -> Recipients<'_> {
        match self {
            Self::One(did) => Recipients::One(Cow::Borrowed(did)),
            Self::Many(dids) => Recipients::Many(dids.iter().map(|did| Cow::Borrowed(&**did)).collect()),
        }
    }

    pub(super) fn write(&self, writer: &mut Writer<'_>) {
        match self {
            Self::One(did) => {
                writer.text(did);
            }
            Self::Many(dids) => {
                writer.array(dids.len() as u64);
                for did in dids {
                    writer.text(did);
                }
            }
        }
    }
}

/// Whether both are one DID but for their fragments. Two that differ mostly do so early, and looking for fragments would take
/// longer.
fn is_same_party(one: &str, other: &str) -> bool {
    let (one, other) = (one.as_bytes(), other.as_bytes());
    for (a, b) in one.iter().zip(other) {
        match (a, b) {
            (b'#', b'#') => return true,
            _ if a != b => return false,
            _ => {}
        }
    }
    let common = one.len().min(other.len());
    [one, other].iter().all(|did| matches!(did.get(common), None | Some(b'#')))
}
