//! Finds the identity that commands take by the name of a user, and drops all capabilities.

use std::io;
use std::path::Path;

use rustix::process::{Gid, Uid};
use rustix::thread::{
    CapabilitySet, CapabilitySets, clear_ambient_capability_set, remove_capability_from_bounding_set,
    set_capabilities, set_thread_groups, set_thread_res_gid, set_thread_res_uid,
};
use serde::{Deserialize, Serialize};

/// The user of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct User {
    /// The user's number.
    pub uid: u32,
    /// The number of its only group.
    pub gid: u32,
}

impl User {
    /// The user of this name or number in `/etc/passwd`; an unlisted number gets the group of the same number.
    ///
    /// **Errors:** the file cannot be read, or has no such name.
    pub fn named(name: &str) -> io::Result<Self> {
        Self::of(&std::fs::read_to_string(Path::new(USERS))?, name)
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, format!("{USERS} has no user {name:?}")))
    }

    fn of(users: &str, name: &str) -> Option<Self> {
        let parse = |line: &str| {
            let mut fields = line.split(':');
            let (found, _password) = (fields.next()?, fields.next()?);
            let (uid, gid) = (fields.next()?.parse().ok()?, fields.next()?.parse().ok()?);
            (found == name || name.parse() == Ok(uid)).then_some(Self { uid, gid })
        };
        let fallback = || name.parse().ok().map(|uid| Self { uid, gid: uid });
        users.lines().find_map(parse).or_else(fallback)
    }

    /// Becomes this user, for good. The process has one thread only.
    pub(super) fn become_it(self) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        set_thread_groups(&[])?;
        set_thread_res_gid(gid, gid, gid)?;
        set_thread_res_uid(uid, uid, uid)?;
        Ok(())
    }
}

/// Gives up what capabilities this process might gain again; only a process that has some can, and only it needs to.
pub(super) fn drop_bounds() -> io::Result<()> {
    // Before Linux 4.3 there are none.
    let _missing = clear_ambient_capability_set();
    for number in 0..u64::BITS {
        // Numbers that the kernel does not know, and a process without the right to, are refused.
        let _refused = remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(1 << number));
    }
    Ok(())
}

/// Gives up the capabilities that this process has.
pub(super) fn drop_all() -> io::Result<()> {
    let none = CapabilitySet::empty();
    Ok(set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?)
}

/// Where the machine's users are listed.
const USERS: &str = "/etc/passwd";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_by_number() {
        let users = "root:x:0:0:root:/root:/bin/sh\nodd\nada:x:1000:100::/:/bin/sh\n";
        assert_eq!(User::of(users, "ada"), Some(User { uid: 1000, gid: 100 }));
        assert_eq!(User::of(users, "1000"), Some(User { uid: 1000, gid: 100 }));
        assert_eq!(User::of(users, "65534"), Some(User { uid: 65534, gid: 65534 }));
        assert_eq!(User::of(users, "nobody-here"), None);
        assert_eq!(User::of(users, "-1"), None);
    }
}
