//! Records why links to peers fail, for waiting calls, the log and `capctl`.
//!
//! A lasting cause is one that only an owner can remove; calls do not wait for that. Other causes may pass, such as a
//! peer that is not up yet. Peers choose part of what is recorded here, so all of it is bounded.

use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::Mutex;
use std::time::Duration;

use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::link::NotAdmitted;

use super::Directory;
use crate::daemon::context::{Refusal, lock};
use crate::net::dial::{Address, ConnectError};
use crate::net::{CloseReason, Fault, Refused};

/// Why peers have no link.
#[derive(Default)]
pub(in crate::daemon) struct Unlinked {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Peers that we dial: those that are configured, and of a fleet the last ones.
    dialled: BTreeMap<Did, Cause>,
    /// Who asked for a link here.
    refused: BTreeMap<Asker, Cause>,
}

/// Who asked for a link: whose key it showed, or where it came from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Asker {
    Peer(Did),
    Address(IpAddr),
}

/// Why there is no link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::daemon) struct Cause {
    pub(in crate::daemon) text: String,
    /// Whether it stays until an owner changes something.
    pub(in crate::daemon) is_lasting: bool,
    /// When it was last found. **Units:** monotonic milliseconds.
    found_ms: u64,
    /// When the log was last told. **Units:** monotonic milliseconds.
    warned_ms: Option<u64>,
}

impl Cause {
    /// A cause found at `now_ms`, where `former` was; `true` when the log is to be told.
    fn follow(former: Option<Self>, found: Found, now_ms: u64) -> (Self, bool) {
        let Found { text, is_lasting, is_told } = found;
        let warned_ms = former.and_then(|former| former.warned_ms);
        let is_due = warned_ms.is_none_or(|warned_ms| now_ms.saturating_sub(warned_ms) >= WARN_EVERY_MS);
        let warns = is_told && is_due;
        (
            Self {
                text,
                is_lasting,
                found_ms: now_ms,
                warned_ms: if warns { Some(now_ms) } else { warned_ms },
            },
            warns,
        )
    }
}

/// What became of an attempt to get a link.
struct Found {
    text: String,
    /// Whether that stays until an owner changes something.
    is_lasting: bool,
    /// Whether the log is told.
    is_told: bool,
}

impl Found {
    /// What only an owner can change.
    const fn lasting(text: String) -> Self {
        Self { text, is_lasting: true, is_told: true }
    }

    /// What may pass by itself.
    const fn passing(text: String) -> Self {
        Self { text, is_lasting: false, is_told: false }
    }

    fn of(text: String, is_lasting: bool) -> Self {
        if is_lasting { Self::lasting(text) } else { Self::passing(text) }
    }
}

impl Unlinked {
    /// Why a peer that is dialled has no link; `true` when the log is to be told.
    fn dialled(&self, peer: &Did, found: Found, now_ms: u64) -> bool {
        let mut state = lock(&self.state);
        let (cause, warns) = Cause::follow(state.dialled.remove(peer), found, now_ms);
        if state.dialled.len() >= DIALLED_MAX {
            let oldest = state.dialled.iter().min_by_key(|(_, cause)| cause.found_ms);
            if let Some(oldest) = oldest.map(|(peer, _)| peer.clone()) {
                state.dialled.remove(&oldest);
            }
        }
        state.dialled.insert(peer.clone(), cause);
        warns
    }

    /// Why somebody who asked got no link; `true` when the log is to be told.
    fn refused(&self, asker: Asker, text: String, now_ms: u64) -> bool {
        let mut state = lock(&self.state);
        let former = state.refused.remove(&asker);
        if former.is_none() && state.refused.len() >= REFUSED_MAX {
            let oldest = state.refused.iter().min_by_key(|(_, cause)| cause.found_ms);
            let Some((oldest, found_ms)) = oldest.map(|(asker, cause)| (asker.clone(), cause.found_ms))
            else {
                return false;
            };
            // Whoever makes up identities can fill neither the memory nor the log.
            if now_ms.saturating_sub(found_ms) < WARN_EVERY_MS {
                return false;
            }
            state.refused.remove(&oldest);
        }
        let (cause, warns) = Cause::follow(former, Found::lasting(text), now_ms);
        state.refused.insert(asker, cause);
        warns
    }

    /// The peer has a link.
    pub(in crate::daemon) fn linked(&self, peer: &Did) {
        let mut state = lock(&self.state);
        state.dialled.remove(peer);
        state.refused.remove(&Asker::Peer(peer.clone()));
    }

    /// Why a peer that is dialled has no link.
    pub(in crate::daemon) fn cause(&self, peer: &Did) -> Option<Cause> {
        lock(&self.state).dialled.get(peer).cloned()
    }

    /// The same if calls need not wait for it to pass.
    pub(in crate::daemon) fn lasting(&self, peer: &Did) -> Option<String> {
        lock(&self.state).dialled.get(peer).filter(|cause| cause.is_lasting).map(|cause| cause.text.clone())
    }

    /// Peers that asked for a link not long ago and got none.
    pub(in crate::daemon) fn refused_peers(&self, now_ms: u64) -> Vec<(Did, String)> {
        let state = lock(&self.state);
        let recent =
            state.refused.iter().filter(|(_, cause)| now_ms.saturating_sub(cause.found_ms) < REFUSED_MS);
        recent
            .filter_map(|(asker, cause)| match asker {
                Asker::Peer(did) => Some((did.clone(), cause.text.clone())),
                Asker::Address(_) => None,
            })
            .collect()
    }
}

impl Directory {
    /// A round of dialling gave no link.
    pub(in crate::daemon) fn on_peer_unreachable(
        &self,
        peer: &Did,
        failures: &[(&Address, ConnectError)],
        again: Option<Duration>,
    ) {
        let causes = failures.iter().map(|(address, error)| cause_of(self.ctx.did(), address, error, again));
        let causes: Vec<_> = causes.collect();
        let is_lasting = causes.iter().all(|found| found.is_lasting);
        let is_told = is_lasting || causes.iter().any(|found| found.is_told && !found.is_lasting);
        let mut texts: Vec<_> = causes.into_iter().map(|found| found.text).collect();
        texts.dedup();
        let text = texts.join("; ");
        let found = Found { text: text.clone(), is_lasting, is_told };
        if self.unlinked.dialled(peer, found, self.ctx.clock.monotonic_ms()) {
            tracing::warn!(%peer, cause = text, "cannot connect to a peer");
        }
        // Calls that wait for it may have nothing to wait for.
        self.peers.changed();
    }

    /// Somebody asked for a link and got none.
    pub(in crate::daemon) fn on_peer_refused(&self, refused: &Refused<'_>) {
        let ours = self.ctx.did();
        let Some(text) = (match refused.reason {
            CloseReason::Refused(why) if why == NotAdmitted::NotListed.as_str() => {
                Some("it is not listed in [[peers]] here; add it there to admit it".to_owned())
            }
            CloseReason::Refused(why) if why.starts_with(MEMBERSHIP) || why == REVOCATIONS_OLD => {
                Some(format!("refused: {why}"))
            }
            CloseReason::Refused(why) => Some(format!("its HANDSHAKE was refused: {why}")),
            CloseReason::RefusedByPeer(why) => Some(format!("{why}, and not {ours}")),
            CloseReason::Fault(fault) => Some(fault_here(fault)),
            CloseReason::PeerFault(fault) => {
                Some(format!("it ended the handshake: {}", printable(&fault.message)))
            }
            CloseReason::Drained
            | CloseReason::DrainTimedOut
            | CloseReason::Local(_)
            | CloseReason::OpenTimedOut
            | CloseReason::Silent
            | CloseReason::Dead
            | CloseReason::PeerClosed
            | CloseReason::Broken(_) => None,
        }) else {
            return;
        };
        let asker = match refused.peer {
            Some(peer) => Asker::Peer(peer.clone()),
            None => Asker::Address(refused.address.ip()),
        };
        if self.unlinked.refused(asker, text.clone(), self.ctx.clock.monotonic_ms()) {
            let peer = refused.peer.map(tracing::field::display);
            tracing::warn!(peer, remote = %refused.address, cause = text, "a peer cannot connect");
        }
    }

    /// The 2002 for a peer to which there is no link, with the cause where one is known.
    pub(in crate::daemon) fn unreachable(&self, peer: &Did) -> Refusal {
        let why = match self.unlinked.cause(peer) {
            Some(cause) => format!("no link to {peer}: {}", cause.text),
            None => format!("no link to {peer} in time"),
        };
        Refusal::new(Code::ENDPOINT_UNREACHABLE, why)
    }

    /// The 2002 for these peers; none for none.
    pub(in crate::daemon) fn unreachable_all(&self, peers: &[Did]) -> Option<Refusal> {
        let causes = peers.iter().take(NAMED_MAX).map(|did| self.unreachable(did).message);
        let text = causes.collect::<Vec<_>>().join("; ");
        (!text.is_empty()).then(|| Refusal::new(Code::ENDPOINT_UNREACHABLE, text))
    }
}

/// What became of one address that is dialled again within `again`.
fn cause_of(ours: &Did, address: &Address, error: &ConnectError, again: Option<Duration>) -> Found {
    let (text, is_lasting) = match error {
        // The log is told, though the name may stand for something later: a pod may be about to start.
        ConnectError::Unresolved { source, .. } => {
            let again =
                again.map_or_else(String::new, |again| format!("; tried again within {}", shown(again)));
            let text = format!("{address}: the host name cannot be resolved: {source}{again}");
            return Found { is_told: true, ..Found::passing(text) };
        }
        // The name stands for others as well, and this peer may be among them later.
        ConnectError::WrongPeer { found, .. } if address.is_shared => {
            (format!("{address}: {found} answered, and nobody else yet"), false)
        }
        ConnectError::WrongPeer { found, .. } => (
            format!("the sidecar at {address} is {found}; correct this peer's did or addresses in [[peers]]"),
            true,
        ),
        ConnectError::Closed(CloseReason::RefusedByPeer(why)) if why == NotAdmitted::NotListed.as_str() => {
            (format!("that sidecar does not list {ours} in [[peers]]"), true)
        }
        ConnectError::Closed(CloseReason::RefusedByPeer(why)) => {
            let is_lasting = why != NotAdmitted::TooManyLinks.as_str() && why != REVOCATIONS_OLD;
            (format!("that sidecar refuses the link: {}", printable(why)), is_lasting)
        }
        ConnectError::Closed(CloseReason::PeerFault(fault)) => {
            let why = printable(&fault.message);
            if fault.code == Code::INVALID_TIMESTAMP {
                return Found::lasting(format!(
                    "that sidecar refuses the time: {why}; synchronize both clocks"
                ));
            }
            (
                format!("that sidecar ended the handshake: {}: {why}", fault.code),
                fault.code != Code::OVERLOADED,
            )
        }
        ConnectError::Closed(CloseReason::Fault(fault)) => {
            (format!("{address}: {}", fault_here(fault)), true)
        }
        ConnectError::Closed(CloseReason::Refused(why)) if why != REVOCATIONS_OLD => {
            (format!("the sidecar at {address} is refused here: {}", printable(why)), true)
        }
        ConnectError::Closed(reason) => (format!("{address}: {reason}"), false),
        // A peer is no local socket, so this does not occur.
        ConnectError::Owner { .. } => (format!("{address}: {error}"), true),
        ConnectError::Io(error) if error.kind() == ErrorKind::InvalidData => {
            (format!("{address}: another program answers there, without the TLS of capd: {error}"), false)
        }
        ConnectError::Io(error) => (format!("{address}: {error}"), false),
    };
    Found::of(text, is_lasting)
}

/// A pause, as a person says it.
fn shown(pause: Duration) -> String {
    match pause.as_millis() {
        millis @ 0..1_000 => format!("{millis} ms"),
        millis => format!("{} s", millis.div_ceil(1_000)),
    }
}

/// What a peer did in its handshake that this side does not take.
fn fault_here(fault: &Fault) -> String {
    if fault.code == Code::INVALID_TIMESTAMP {
        return format!("its time is refused: {}; synchronize both clocks", printable(&fault.message));
    }
    format!("it broke the handshake: {}: {}", fault.code, printable(&fault.message))
}

/// The beginning of a text that a peer chose, without what could steer a terminal.
fn printable(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(TEXT_CHARS_MAX).collect()
}

/// How every text begins that says why a membership does not count.
pub(in crate::daemon) const MEMBERSHIP: &str = "the membership ";
/// Why no member gets a link for a while.
pub(in crate::daemon) const REVOCATIONS_OLD: &str =
    "revocations are unknown: the registry was not read for long";
/// Peers that are dialled and have no link, as many as are remembered; more than owners configure.
const DIALLED_MAX: usize = 4_096;
/// How often the log is told of one peer, in milliseconds.
const WARN_EVERY_MS: u64 = 60_000;
/// Peers that asked for a link and got none, as many as are remembered.
const REFUSED_MAX: usize = 256;
/// How long they are listed, in milliseconds.
const REFUSED_MS: u64 = 600_000;
/// Peers that one refusal names.
const NAMED_MAX: usize = 8;
/// Characters kept of a text that a peer chose.
const TEXT_CHARS_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use capd_proto::identity::Identity;

    use super::*;

    fn did(number: u64) -> Did {
        let mut seed = [0; 32];
        seed[..8].copy_from_slice(&number.to_be_bytes());
        Identity::from_seed(seed).did().clone()
    }

    #[test]
    fn the_log_is_told_of_a_peer_once_a_minute() {
        let (unlinked, peer) = (Unlinked::default(), did(1));
        let told = |now_ms| unlinked.dialled(&peer, Found::lasting("why".to_owned()), now_ms);
        assert_eq!(
            [0, 1, 59_999, 60_000, 60_001, 120_000].map(told),
            [true, false, false, true, false, true]
        );
        assert!(!unlinked.dialled(&did(2), Found::passing("not up".to_owned()), 0), "it may pass");
        assert!(unlinked.lasting(&did(2)).is_none() && unlinked.cause(&did(2)).is_some());
        unlinked.linked(&peer);
        assert_eq!(unlinked.cause(&peer), None);
    }

    #[test]
    fn made_up_identities_fill_neither_memory_nor_log() {
        let unlinked = Unlinked::default();
        let told = |number, now_ms| unlinked.refused(Asker::Peer(did(number)), "why".to_owned(), now_ms);
        let all = REFUSED_MAX as u64 + 100;
        assert_eq!((0..all).filter(|number| told(*number, 5)).count(), REFUSED_MAX);
        assert_eq!(unlinked.refused_peers(5).len(), REFUSED_MAX);
        assert!(told(all, 5 + WARN_EVERY_MS), "the oldest goes in time");
        assert_eq!(unlinked.refused_peers(5 + WARN_EVERY_MS).len(), REFUSED_MAX);
        assert_eq!(unlinked.refused_peers(5 + WARN_EVERY_MS + REFUSED_MS).len(), 0);
    }

    #[test]
    fn a_peers_text_is_cut_and_steers_no_terminal() {
        assert_eq!(printable("a\u{1b}[2J\nb"), "a[2Jb");
        assert_eq!(printable(&"é".repeat(10_000)).chars().count(), TEXT_CHARS_MAX);
    }

    #[test]
    fn only_what_may_pass_is_waited_for() {
        let ours = did(1);
        let transport = crate::net::dial::Transport::Tcp;
        let address = Address { transport, host: "h".to_owned(), port: 1, is_shared: false };
        let lasting = |error: ConnectError| cause_of(&ours, &address, &error, None).is_lasting;
        let closed = |reason: CloseReason| lasting(ConnectError::Closed(reason));
        let fault = |code| Fault { code, message: "why".to_owned() };
        assert!(lasting(ConnectError::WrongPeer { expected: did(2), found: did(3) }));
        assert!(closed(CloseReason::RefusedByPeer("not listed".to_owned())));
        assert!(closed(CloseReason::RefusedByPeer("max_msg_size is under 1048576".to_owned())));
        assert!(!closed(CloseReason::RefusedByPeer("too many links".to_owned())));
        assert!(closed(CloseReason::PeerFault(fault(Code::INVALID_TIMESTAMP))));
        assert!(!closed(CloseReason::PeerFault(fault(Code::OVERLOADED))));
        assert!(!closed(CloseReason::OpenTimedOut) && !closed(CloseReason::PeerClosed));
        assert!(!lasting(std::io::Error::from(std::io::ErrorKind::ConnectionRefused).into()));
    }

    #[test]
    fn a_name_that_does_not_resolve_is_told_with_the_time_of_the_next_try_and_may_pass() {
        let transport = crate::net::dial::Transport::Quic;
        let address = Address { transport, host: "capd-headless".to_owned(), port: 7_001, is_shared: true };
        let found = |again| {
            let source = std::io::Error::other("Name or service not known");
            let error = ConnectError::Unresolved { host: address.host.clone(), source };
            cause_of(&did(1), &address, &error, again)
        };
        let said =
            "quic+dns://capd-headless:7001: the host name cannot be resolved: Name or service not known";
        let (early, later) = (found(Some(Duration::from_millis(250))), found(Some(Duration::from_secs(4))));
        assert!(!early.is_lasting && early.is_told);
        assert_eq!(early.text, format!("{said}; tried again within 250 ms"));
        assert_eq!(later.text, format!("{said}; tried again within 4 s"));
        assert_eq!(found(None).text, said);
    }
}
