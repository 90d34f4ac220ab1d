//! Puts a registration into the strings of a TXT record, and takes it out again.
//!
//! **Shape:** `txtvers=1`, `cell=<cell>`, then the key's path within the cell as `k0=`, `k1=`, and the registration's bytes
//! as `0=`, `1=` and so on, in order. A string has at most 255 bytes, its key included.

use bytes::Bytes;
use capd_proto::fleet::{Cell, Key};
use capd_proto::limits::REGISTRATION_BYTES_MAX;

/// The strings of a registration under its key.
pub(super) fn strings(cell: &Cell, path: &str, value: &[u8]) -> Vec<Vec<u8>> {
    let mut strings = vec![VERSION.to_vec(), [CELL, cell.as_str().as_bytes()].concat()];
    let within = path.strip_prefix(&root(cell)).unwrap_or(path);
    strings.extend(parts(within.as_bytes(), "k"));
    strings.extend(parts(value, ""));
    strings
}

/// The path and the value that a record has; none where it is of another cell, or no registration of ours. What it says
/// is for the machine to verify.
pub(super) fn read(cell: &Cell, strings: &[Vec<u8>]) -> Option<(String, Bytes)> {
    let mut strings = strings.iter().map(Vec::as_slice);
    let is_ours = strings.next() == Some(VERSION)
        && strings.next().and_then(|string| string.strip_prefix(CELL)) == Some(cell.as_str().as_bytes());
    if !is_ours {
        return None;
    }
    let (mut within, mut value) = (Vec::new(), Vec::new());
    for string in strings {
        let at = string.iter().position(|byte| *byte == b'=')?;
        let (key, part) = (&string[..at], &string[at + 1..]);
        match key {
            [b'k', _] => within.extend_from_slice(part),
            [digit] if digit.is_ascii_digit() => value.extend_from_slice(part),
            // One of a later capd.
            _ => {}
        }
    }
    if value.is_empty() || value.len() > REGISTRATION_BYTES_MAX {
        return None;
    }
    let path = format!("{}{}", root(cell), str::from_utf8(&within).ok()?);
    // Only registrations are announced, and each has one key.
    match Key::parse(cell, &path) {
        Ok(Key::Registration { .. }) => Some((path, value.into())),
        Ok(Key::Fence(_) | Key::Revocation(_)) | Err(_) => None,
    }
}

fn parts<'a>(bytes: &'a [u8], prefix: &'a str) -> impl Iterator<Item = Vec<u8>> + 'a {
    let most = STRING_BYTES_MAX - prefix.len() - 2;
    bytes.chunks(most).enumerate().map(move |(number, part)| {
        let mut string = format!("{prefix}{number}=").into_bytes();
        string.extend_from_slice(part);
        string
    })
}

fn root(cell: &Cell) -> String {
    format!("/capd/1/{cell}/")
}

const VERSION: &[u8] = b"txtvers=1";
const CELL: &[u8] = b"cell=";
/// The longest string of a TXT record. **Source:** RFC 1035 section 3.3.
const STRING_BYTES_MAX: usize = 255;
// One digit names each part of the longest registration.
const _: () = assert!(REGISTRATION_BYTES_MAX <= 10 * (STRING_BYTES_MAX - 2));

#[cfg(test)]
mod tests {
    use capd_proto::fleet::Agent;
    use capd_proto::identity::Identity;

    use super::*;

    fn cell() -> Cell {
        "home".parse().unwrap()
    }

    fn path(name: &str) -> String {
        let agent = Agent::from(Identity::from_seed([1; 32]).public_key());
        Key::registration(name.parse().unwrap(), agent).path(&cell())
    }

    #[test]
    fn registrations_of_every_length_read_back() {
        let long = format!("com.example.{}", "a".repeat(60));
        for name in ["com.example.hello", &long] {
            for length in [1, 252, 253, 254, 800, REGISTRATION_BYTES_MAX] {
                let value: Vec<u8> = (0..length).map(|at| at as u8).collect();
                let strings = strings(&cell(), &path(name), &value);
                assert!(strings.iter().all(|string| string.len() <= STRING_BYTES_MAX));
                assert_eq!(read(&cell(), &strings), Some((path(name), value.into())), "{name} {length}");
            }
        }
    }

    #[test]
    fn what_is_no_registration_of_the_cell_is_left_out() {
        let good = strings(&cell(), &path("com.example.hello"), b"value");
        assert!(read(&cell(), &good).is_some());
        assert_eq!(read(&"other".parse().unwrap(), &good), None);
        assert_eq!(read(&cell(), &good[1..]), None, "without a version");
        assert_eq!(read(&cell(), &good[..3]), None, "without a value");
        assert_eq!(read(&cell(), &[]), None);
        let put = |at: usize, string: &[u8]| {
            let mut strings = good.clone();
            strings[at] = string.to_vec();
            read(&cell(), &strings)
        };
        assert_eq!(put(0, b"txtvers=2"), None);
        assert_eq!(put(2, b"k0=i/z6Mk"), None);
        assert_eq!(put(2, b"k0=n/com.example.hello/x/y"), None);
        assert_eq!(put(2, b"k0=\xff"), None);
        assert_eq!(put(2, b"none"), None);
        let mut long = good.clone();
        long.extend(std::iter::repeat_n([b"0=".to_vec(), vec![0; 253]].concat(), 9));
        assert_eq!(read(&cell(), &long), None, "too long");
        let mut later = good.clone();
        later.push(b"later=1".to_vec());
        assert_eq!(read(&cell(), &later), read(&cell(), &good));
    }
}
