//! Reads and writes CBOR: the strict bounded check, a pull reader, a deterministic writer, and the JSON view.
//!
//! [`check`] decides once whether bytes are CBOR that PROTOCOL 5 accepts. All later stages walk the same bytes with a
//! [`Reader`] and copy nothing. A [`Writer`] always writes the shortest heads, so its output is deterministic (RFC 8949
//! 4.2.1) if its caller writes map keys in order.

mod check;
mod checked;
mod deterministic;
mod ends;
mod error;
mod item;
pub mod json;
mod keys;
mod order;
mod reader;
mod short;
mod writer;

pub use check::{Checker, TagPolicy, check, check_within};
pub use checked::Checked;
pub(crate) use checked::Span;
pub use deterministic::{deterministic, deterministic_len, deterministic_pieces, is_deterministic};
pub use error::{Error, ErrorKind};
pub(crate) use item::short_end;
pub use item::{Head, Kind, short_bytes};
pub use reader::Reader;
pub use writer::Writer;

#[cfg(test)]
mod tests;
