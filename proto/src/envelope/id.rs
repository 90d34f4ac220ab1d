//! Makes message ids: time and randomness in, sixteen bytes out.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::limits::MESSAGE_ID_BYTES;

/// The id of one message, unique per sender.
///
/// **Shape:** eight bytes of `ts` in milliseconds, big-endian, then eight random bytes; so ids sort by time.
/// **Source:** PROTOCOL 5.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MessageId(pub [u8; MESSAGE_ID_BYTES]);

impl MessageId {
    /// The id of a message made at `ts_ms`; `random` comes from a CSPRNG.
    pub const fn new(ts_ms: u64, random: [u8; 8]) -> Self {
        let [a, b, c, d, e, f, g, h] = ts_ms.to_be_bytes();
        let [i, j, k, l, m, n, o, p] = random;
        Self([a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p])
    }

    /// The time in the id.
    ///
    /// **Units:** milliseconds since the Unix epoch.
    pub const fn ts_ms(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// The id's bytes.
    pub const fn as_bytes(&self) -> &[u8; MESSAGE_ID_BYTES] {
        &self.0
    }

    /// The id in `bytes`, or `None` when they are not sixteen.
    pub fn from_slice(bytes: &[u8]) -> Option<Self> {
        bytes.try_into().ok().map(Self)
    }
}

impl fmt::Display for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for MessageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Text that is not the hex form of a message id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("a message id is {} hex digits", 2 * MESSAGE_ID_BYTES)]
pub struct InvalidMessageId;

impl FromStr for MessageId {
    type Err = InvalidMessageId;

    fn from_str(text: &str) -> Result<Self, InvalidMessageId> {
        let digits = text.as_bytes();
        if digits.len() != 2 * MESSAGE_ID_BYTES {
            return Err(InvalidMessageId);
        }
        let mut id = [0; MESSAGE_ID_BYTES];
        for (byte, pair) in id.iter_mut().zip(digits.chunks_exact(2)) {
            let digit = |digit: u8| char::from(digit).to_digit(16).ok_or(InvalidMessageId);
            *byte = (digit(pair[0])? << 4 | digit(pair[1])?) as u8;
        }
        Ok(Self(id))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn id_holds_time_then_randomness_and_survives_text() {
        let id = MessageId::new(1_707_055_200_000, [0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(id.to_string(), "0000018d746b37000000000000000001");
        assert_eq!(id.to_string().parse(), Ok(id));
        assert_eq!(id.to_string().to_uppercase().parse(), Ok(id));
        assert_eq!(id.ts_ms(), 1_707_055_200_000);
        assert_eq!(MessageId::from_slice(id.as_bytes()), Some(id));
        assert_eq!(MessageId::from_slice(&id.0[1..]), None);
    }

    #[test]
    fn text_that_is_no_id_is_refused() {
        for text in ["", "00", "0000018d746b370000000000000000+1", "0000018d746b370000000000000000001", "é"]
        {
            assert_eq!(text.parse::<MessageId>(), Err(InvalidMessageId), "{text}");
        }
    }

    #[test]
    fn ids_sort_by_time() {
        assert!(MessageId::new(1, [0xff; 8]) < MessageId::new(256, [0; 8]));
    }
}
