//! Seals the position of a query's next page, so that only its recipient can continue, and only from there.

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::query::{Order, Question};
use crate::capability::Range;

/// Seals and opens cursors.
///
/// **Shape:** base64url text without padding of: format 1 | snapshot u64 | position u64 | HMAC-SHA-256, big-endian. The
/// MAC covers those and the whole [`CursorContext`]. **Source:** PROTOCOL 7.1.
#[derive(Clone, Copy, Debug)]
pub struct Cursor;

/// The context that a cursor is bound to. It excludes a page's `limit`, which may change from page to page.
#[derive(Clone, Copy, Debug)]
pub struct CursorContext<'a> {
    /// The DID of the querying agent.
    pub holder: &'a str,
    /// Its query; the filter and the order count.
    pub question: &'a Question,
    /// The number of the registry snapshot that is paged.
    pub snapshot: u64,
}

/// Why a cursor is refused: a 4001.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CursorError {
    /// It was not given to this agent for this filter and order.
    #[error("the cursor is unknown for this query")]
    NotOurs,
    /// It was, but the registry has changed since.
    #[error("the cursor is stale; ask again from the start")]
    Stale,
}

impl Cursor {
    /// Seals a position: the number of descriptors on the pages so far.
    pub fn seal(key: &[u8; 32], context: &CursorContext<'_>, position: u64) -> String {
        let mut token = [0; TOKEN_BYTES];
        token[..OPEN_BYTES].copy_from_slice(&open_part(context.snapshot, position));
        let mac = mac(key, context, &token[..OPEN_BYTES]).finalize().into_bytes();
        token[OPEN_BYTES..].copy_from_slice(&mac);
        URL_SAFE_NO_PAD.encode(token)
    }

    /// The position that a cursor was sealed with.
    ///
    /// **Errors:** 4001 for a cursor that is malformed, of another agent, filter or order, or stale.
    pub fn open(key: &[u8; 32], context: &CursorContext<'_>, cursor: &str) -> Result<u64, CursorError> {
        // Checked before decoding, so that a long text costs nothing.
        if cursor.len() != CURSOR_CHARS {
            return Err(CursorError::NotOurs);
        }
        let token = URL_SAFE_NO_PAD.decode(cursor).map_err(|_| CursorError::NotOurs)?;
        let (open, sealed) = token.split_at_checked(OPEN_BYTES).ok_or(CursorError::NotOurs)?;
        mac(key, context, open).verify_slice(sealed).map_err(|_| CursorError::NotOurs)?;
        let number = |range: std::ops::Range<usize>| {
            open[range].iter().fold(0, |number, &byte| number << 8 | u64::from(byte))
        };
        if number(1..9) != context.snapshot {
            return Err(CursorError::Stale);
        }
        Ok(number(9..17))
    }
}

fn open_part(snapshot: u64, position: u64) -> [u8; OPEN_BYTES] {
    let mut open = [0; OPEN_BYTES];
    open[0] = FORMAT;
    open[1..9].copy_from_slice(&snapshot.to_be_bytes());
    open[9..].copy_from_slice(&position.to_be_bytes());
    open
}

fn mac(key: &[u8; 32], context: &CursorContext<'_>, open: &[u8]) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes a key of any length");
    let pattern = context.question.pattern.to_string();
    let range = context.question.range.as_ref().map(range_text).unwrap_or_default();
    let order = match context.question.order {
        Order::NewestFirst => "newest",
        Order::OldestFirst => "oldest",
    };
    // Each part with its length in front, so that no two contexts run together into the same bytes. An absent range
    // is the empty text, which no range is.
    for part in [DOMAIN, context.holder, &pattern, &range, &context.question.words, order] {
        mac.update(&(part.len() as u64).to_be_bytes());
        mac.update(part.as_bytes());
    }
    mac.update(open);
    mac
}

/// A range as it decides. Build metadata counts for nothing in it, so equal ranges have one text.
fn range_text(range: &Range) -> String {
    let mut text = String::new();
    for comparator in range.comparators() {
        let written = comparator.to_string();
        let (decides, _build) = written.split_once('+').unwrap_or((&written, ""));
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(decides);
    }
    text
}

/// Keeps these MACs apart from any other use of the same key.
const DOMAIN: &str = "capd cursor";
const FORMAT: u8 = 1;
const OPEN_BYTES: usize = 1 + 8 + 8;
const TOKEN_BYTES: usize = OPEN_BYTES + 32;
const CURSOR_CHARS: usize = (TOKEN_BYTES * 4).div_ceil(3);
