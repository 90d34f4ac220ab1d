//! Compares two configurations: what the later one changes, key by key and entry by entry, and when each takes effect.

use std::fmt::Display;

use super::{Config, Effective};

/// One key, or one entry of a list, that two configurations have differently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The dotted key.
    pub key: &'static str,
    /// The earlier value; none for an entry that is added.
    pub from: Option<String>,
    /// The later value; none for an entry that is removed.
    pub to: Option<String>,
}

/// When a changed key takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// With the reload.
    Now,
    /// With the reload, for links that open from then on.
    NewLinks,
    /// At the next start; a reload refuses it.
    Restart,
}

impl Effect {
    /// The effect of a key.
    pub fn of(key: &str) -> Self {
        if RESTART.iter().any(|prefix| is_in(key, prefix)) {
            Self::Restart
        } else if NEW_LINKS.iter().any(|prefix| is_in(key, prefix)) {
            Self::NewLinks
        } else {
            Self::Now
        }
    }

    /// The effect as the reference says it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Now => "now",
            Self::NewLinks => "new links",
            Self::Restart => "restart",
        }
    }
}

impl Change {
    /// When it takes effect.
    pub fn effect(&self) -> Effect {
        Effect::of(self.key)
    }
}

/// What `to` changes of `from`, in the order of the reference.
///
/// Values count as they are written, so a file that writes out a default changes nothing.
pub fn difference(from: &Config, to: &Config) -> Vec<Change> {
    let mut changes = Vec::new();
    for (earlier, later) in from.effective().iter().zip(to.effective()) {
        if earlier.value == later.value {
            continue;
        }
        match earlier.key {
            "peers" => entries("peers", (&from.peers, &to.peers), |peer| peer.did.clone(), &mut changes),
            "groups" => {
                entries("groups", (&from.groups, &to.groups), |group| group.name.clone(), &mut changes);
            }
            "allow" => entries("allow", (&from.allow, &to.allow), ToString::to_string, &mut changes),
            key => changes.push(Change { key, from: Some(value(earlier)), to: Some(value(later)) }),
        }
    }
    changes
}

fn value(effective: &Effective) -> String {
    effective.value.clone()
}

/// The entries of a list that are changed, added and removed; entries of one name are the same entry.
fn entries<T: PartialEq + Display>(
    key: &'static str,
    (from, to): (&[T], &[T]),
    name: impl Fn(&T) -> String,
    changes: &mut Vec<Change>,
) {
    for earlier in from {
        let later = to.iter().find(|later| name(later) == name(earlier));
        if later != Some(earlier) {
            let (from, to) = (Some(earlier.to_string()), later.map(ToString::to_string));
            changes.push(Change { key, from, to });
        }
    }
    for later in to {
        if !from.iter().any(|earlier| name(earlier) == name(later)) {
            changes.push(Change { key, from: None, to: Some(later.to_string()) });
        }
    }
}

fn is_in(key: &str, prefix: &str) -> bool {
    key == prefix || prefix.strip_suffix(".*").is_some_and(|section| key.split('.').next() == Some(section))
}

/// What a process is from its start to its end: who it is, where its state and its sockets are, what its commands may use.
const RESTART: [&str; 16] = [
    "agent.dir",
    "agent.key_file",
    "listen.quic",
    "listen.tcp",
    "listen.unix",
    "listen.local_tcp",
    "listen.token_file",
    "listen.health",
    "fleet.*",
    "runtime.*",
    "process.*",
    "audit.file",
    "audit.tenant",
    "audit.file_bytes_max",
    "audit.reserved_percent",
    "log.format",
];

/// What a link agrees on or is given when it opens.
const NEW_LINKS: [&str; 22] = [
    "agent.name",
    "listen.token_plain",
    "peer.signatures",
    "limits.msg_size_bytes_max",
    "limits.links_max",
    "limits.links_per_peer_max",
    "limits.links_opening_max",
    "limits.links_opening_per_address_max",
    "limits.links_unvalidated_max",
    "limits.handshake_rate_per_address",
    "limits.streams_per_link_max",
    "limits.stream_reset_rate_per_link",
    "limits.queue_bytes_max",
    "limits.queue_frames_max",
    "limits.receive_bytes_max",
    "timeouts.handshake_ms",
    "timeouts.frame_ms",
    "timeouts.idle_ms",
    "timeouts.keep_alive_ms",
    "timeouts.reconnect_initial_ms",
    "timeouts.reconnect_max_ms",
    "quic.*",
];

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::keys::KEYS;
    use super::*;

    fn config(text: &str) -> Config {
        let environment = [("HOME".to_owned(), "/home/agent".to_owned())];
        Config::layer(Some((Path::new("capd.toml"), text)), &environment, &[]).unwrap()
    }

    fn shown(from: &str, to: &str) -> Vec<String> {
        let changes = difference(&config(from), &config(to));
        let side = |side: &Option<String>| side.clone().unwrap_or_default();
        let line =
            |change: &Change| format!("{}: {} -> {}", change.key, side(&change.from), side(&change.to));
        changes.iter().map(line).collect()
    }

    #[test]
    fn keys_differ_by_value_and_a_written_default_is_no_change() {
        assert_eq!(shown("", "[timeouts]\ncall_ms = 60000\n"), Vec::<String>::new());
        assert_eq!(
            shown("[limits]\nlinks_max = 8\n", "[timeouts]\ncall_ms = 7\n"),
            ["limits.links_max: 8 -> 1024", "timeouts.call_ms: 60000 -> 7"]
        );
    }

    #[test]
    fn lists_differ_entry_by_entry() {
        let peer = |seed: u8, serves: &str| {
            let did = capd_proto::identity::Identity::from_seed([seed; 32]).did().clone();
            (did.to_string(), format!("[[peers]]\ndid = \"{did}\"\nserves = [{serves}]\n"))
        };
        let ((one, first), (two, second)) = (peer(1, ""), peer(2, ""));
        let (_, wider) = peer(1, "\"org.example.*\"");
        assert_eq!(
            shown(&first, &(wider + &second)),
            [
                format!(
                    "peers: {{ did = \"{one}\", addresses = [], serves = [] }} -> {{ did = \"{one}\", addresses = [], serves = \
                     [\"org.example.*\"] }}"
                ),
                format!("peers:  -> {{ did = \"{two}\", addresses = [], serves = [] }}"),
            ]
        );
        let allow = |name: &str| format!("[[allow]]\ncallers = [\"*\"]\ncapabilities = [\"{name}\"]\n");
        let changes = shown(&allow("org.a.one"), &allow("org.a.two"));
        assert!(changes[0].ends_with(" -> ") && changes[1].starts_with("allow:  -> "), "{changes:?}");
        // The order of entries is no change.
        assert_eq!(shown(&(first.clone() + &second), &(second + &first)), Vec::<String>::new());
    }

    #[test]
    fn every_named_key_exists() {
        for name in RESTART.iter().chain(&NEW_LINKS) {
            assert!(KEYS.iter().any(|key| is_in(key.path, name)), "{name}");
        }
        assert_eq!(Effect::of("process.user"), Effect::Restart);
        assert_eq!(Effect::of("quic.shared_streams"), Effect::NewLinks);
        assert_eq!(Effect::of("peers"), Effect::Now);
    }
}
