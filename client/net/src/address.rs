//! Decides for each connecting address which bucket it counts to, and whether it connects too often.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};

use capd_proto::rate::Rate;

use super::pace::Pace;

/// Whom an address counts as: an IPv4 address, or the 64 bits of an IPv6 address that one subscriber is given.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum Origin {
    /// An IPv4 address, written as IPv6 or not.
    V4([u8; 4]),
    /// The upper half of an IPv6 address.
    V6([u8; 8]),
}

impl Origin {
    pub(super) fn of(address: SocketAddr) -> Self {
        match address.ip().to_canonical() {
            IpAddr::V4(address) => Self::V4(address.octets()),
            IpAddr::V6(address) => {
                let [a, b, c, d, e, f, g, h, ..] = address.octets();
                Self::V6([a, b, c, d, e, f, g, h])
            }
        }
    }
}

/// How often each origin begins a handshake.
///
/// Every origin falls into one of a fixed number of buckets, so that no number of them takes more memory. Which one is
/// a secret: nobody can choose an address to share another's bucket.
pub(super) struct Handshakes {
    pace: Pace,
    key: [u8; 16],
    /// When each bucket is full again, in parts of equal size; a part that is empty was never used.
    buckets: Mutex<Vec<Vec<u64>>>,
}

impl Handshakes {
    /// Buckets of this rate, chosen by `key`.
    pub(super) fn new(rate: Rate, key: [u8; 16]) -> Self {
        Self { pace: Pace::new(rate, 0), key, buckets: Mutex::new(vec![Vec::new(); BUCKETS / PART]) }
    }

    /// Counts a handshake; `false` when its origin has begun too many.
    pub(super) fn take(&self, origin: Origin, now_ms: u64) -> bool {
        let mut hasher = DefaultHasher::new();
        (self.key, origin).hash(&mut hasher);
        let index = usize::try_from(hasher.finish() % BUCKETS as u64).unwrap_or(0);
        // A bucket is written in one step, so a panic leaves none half written.
        let mut buckets = self.buckets.lock().unwrap_or_else(PoisonError::into_inner);
        let part = &mut buckets[index / PART];
        part.resize(PART, 0);
        let bucket = &mut part[index % PART];
        match self.pace.take(*bucket, now_ms) {
            Some(full_ns) => {
                *bucket = full_ns;
                true
            }
            None => false,
        }
    }
}

/// Buckets of all origins together: 128 KiB, and two origins share one by chance only.
const BUCKETS: usize = 16_384;
/// Buckets that are allocated at once: most sidecars meet few origins.
const PART: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> Origin {
        Origin::of(text.parse().unwrap())
    }

    #[test]
    fn an_ipv6_subscriber_is_one_origin_and_a_mapped_address_is_what_it_maps() {
        assert_eq!(origin("[2001:db8:1:2::1]:1"), origin("[2001:db8:1:2:ffff::2]:9"));
        assert_ne!(origin("[2001:db8:1:2::1]:1"), origin("[2001:db8:1:3::1]:1"));
        assert_eq!(origin("[::ffff:192.0.2.7]:1"), origin("192.0.2.7:2"));
        assert_ne!(origin("192.0.2.7:1"), origin("192.0.2.8:1"));
    }

    #[test]
    fn an_origin_that_connects_too_often_is_held_back_and_others_are_not() {
        let handshakes = Handshakes::new("10/1s burst 3".parse().unwrap(), [7; 16]);
        let (busy, quiet) = (origin("192.0.2.7:1"), origin("192.0.2.8:1"));
        let took = (0..5).filter(|_| handshakes.take(busy, 1_000)).count();
        assert_eq!(took, 3);
        assert!(handshakes.take(quiet, 1_000));
        assert!(handshakes.take(busy, 1_100) && !handshakes.take(busy, 1_100));
    }

    #[test]
    fn origins_without_number_share_the_buckets_there_are() {
        let handshakes = Handshakes::new("1/1h".parse().unwrap(), [7; 16]);
        let many = (0..200_000_u32).map(|number| Origin::V4(number.to_be_bytes()));
        let took = many.filter(|origin| handshakes.take(*origin, 0)).count();
        assert_eq!(took, BUCKETS);
        assert_eq!(handshakes.buckets.lock().unwrap().iter().map(Vec::len).sum::<usize>(), BUCKETS);
    }
}
