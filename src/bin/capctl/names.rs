//! Shows and finds peers by the names that the sidecar's owner gave them.
//!
//! People read and type names; `--json` and `--wide` show DIDs. A name that two peers have names neither of them.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::OnceLock;

use capd::client::Client;
use capd_proto::identity::Did;
use capd_proto::message::ListedPeer;

use crate::failure::{Exit, Failure};

/// The names of a sidecar's peers.
#[derive(Debug, Default)]
struct Names {
    by_did: BTreeMap<String, String>,
}

/// Those that this run shows; none until they are learned.
static SHOWN: OnceLock<Names> = OnceLock::new();

/// Shows DIDs throughout this run.
pub(crate) fn hide() {
    // Nothing was learned before the command line was read.
    let _first = SHOWN.set(Names::default());
}

/// Asks the sidecar for the names of its peers, so that this run shows them.
pub(crate) async fn learn(client: &Client) {
    if SHOWN.get().is_none() {
        // Without an answer, DIDs are shown.
        let names = client.peers().await.map(|peers| Names::of(&peers)).unwrap_or_default();
        let _first = SHOWN.set(names);
    }
}

/// A text in which each peer with a name is called by it.
pub(crate) fn shown(text: &str) -> Cow<'_, str> {
    SHOWN.get().map_or(Cow::Borrowed(text), |names| names.shown(text))
}

/// The peer that the command line means: a DID, or a name of the sidecar's peers.
///
/// **Errors:** not found; usage, if more than one has this name.
pub(crate) async fn find(client: &Client, text: &str) -> Result<Did, Failure> {
    if text.starts_with("did:") {
        return did(text);
    }
    let peers = client.peers().await?;
    let is_it =
        |peer: &&ListedPeer<'_>| peer.name.as_ref().is_some_and(|name| name.eq_ignore_ascii_case(text));
    let found: Vec<_> = peers.iter().filter(is_it).collect();
    match found[..] {
        [peer] => did(&peer.did),
        [] => Err(unknown(text, peers.iter().filter_map(|peer| peer.name.as_deref()))),
        _ => {
            let dids: Vec<_> = found.iter().map(|peer| crate::output::one_line(&peer.did)).collect();
            let failure = Failure::usage(format!("{text:?} is the name of {} peers", found.len()));
            Err(failure.hint(format!("use a DID: {}", dids.join(", "))))
        }
    }
}

/// The DID of the one peer with this name, or the text as it is where that may mean something else.
pub(crate) async fn resolved(client: &Client, text: &str) -> String {
    find(client, text).await.map_or_else(|_| text.to_owned(), |did| did.to_string())
}

/// The nearest name of a peer to a text that no peer has as its name, as a hint.
pub(crate) async fn guess(client: &Client, text: &str) -> Option<String> {
    let peers = client.peers().await.ok()?;
    let names: Vec<_> = peers.iter().filter_map(|peer| peer.name.as_deref()).collect();
    if names.iter().any(|name| name.eq_ignore_ascii_case(text)) {
        return None;
    }
    let meant = capd::text::nearest(text, names.iter().copied())?;
    Some(format!("did you mean {:?}?", crate::output::one_line(meant)))
}

/// Says that nobody has a name, and which names there are.
pub(crate) fn unknown<'a>(text: &str, names: impl Iterator<Item = &'a str>) -> Failure {
    let names: Vec<_> = names.map(crate::output::one_line).collect();
    let failure = Failure::usage(format!("{text:?} is neither a DID nor the name of a peer"));
    let failure = failure.exit(Exit::Refused);
    if let Some(meant) = capd::text::nearest(text, names.iter().map(String::as_str)) {
        return failure.hint(format!("did you mean {meant:?}?"));
    }
    if names.is_empty() {
        return failure
            .hint("no peer has a name; `capd pair` adds a peer, and name = in [[peers]] names one");
    }
    let more = names.len().saturating_sub(LISTED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let listed = names.iter().take(LISTED_MAX).map(String::as_str).collect::<Vec<_>>().join(", ");
    failure.hint(format!("peers: {listed}{more}"))
}

fn did(text: &str) -> Result<Did, Failure> {
    text.parse().map_err(|error| Failure::usage(format!("{text:?}: {error}")))
}

impl Names {
    fn of(peers: &[ListedPeer<'_>]) -> Self {
        let name = |peer: &ListedPeer<'_>| peer.name.as_deref().map(str::to_ascii_lowercase);
        let is_unique =
            |peer: &&ListedPeer<'_>| peers.iter().filter(|other| name(other) == name(peer)).count() == 1;
        let named = peers.iter().filter(is_unique).filter_map(|peer| {
            // A name is one word of a table, and never passes for a DID or for this agent.
            let name = peer.name.as_deref().filter(|name| is_name(name))?;
            Some((peer.did.to_string(), name.to_owned()))
        });
        Self { by_did: named.collect() }
    }

    fn shown<'a>(&self, text: &'a str) -> Cow<'a, str> {
        if self.by_did.is_empty() || !text.contains(SCHEME) {
            return Cow::Borrowed(text);
        }
        let (mut shown, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(at) = rest.find(SCHEME) {
            let (before, from) = rest.split_at(at);
            let end = from.find(|c: char| !is_of_did(c)).unwrap_or(from.len());
            // A full stop or a colon behind a DID belongs to the sentence.
            let word = from[..end].trim_end_matches(['.', ':']);
            shown += before;
            shown += self.by_did.get(word).map_or(word, String::as_str);
            rest = &from[word.len()..];
        }
        Cow::Owned(shown + rest)
    }
}

fn is_name(text: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    !text.is_empty() && text != "local" && text.chars().all(fits)
}

fn is_of_did(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | ':' | '%')
}

const SCHEME: &str = "did:";
/// Names that an error lists.
const LISTED_MAX: usize = 10;

#[cfg(test)]
mod tests {
    use capd_proto::message::PeerState;

    use super::*;

    fn names(peers: &[(&'static str, Option<&'static str>)]) -> Names {
        let peer = |(did, name): &(&'static str, Option<&'static str>)| ListedPeer {
            did: (*did).into(),
            name: name.map(Into::into),
            state: PeerState::Connected,
            links: 1,
            reason: None,
        };
        Names::of(&peers.iter().map(peer).collect::<Vec<_>>())
    }

    #[test]
    fn a_did_is_shown_by_its_name_wherever_it_stands() {
        let names = names(&[("did:web:a.example", Some("ann")), ("did:web:b.example", None)]);
        for (text, shown) in [
            ("did:web:a.example", "ann"),
            ("no answer from did:web:a.example: closed", "no answer from ann: closed"),
            ("(did:web:a.example).", "(ann)."),
            ("did:web:a.example.", "ann."),
            ("did:web:a.example:x did:web:a.example", "did:web:a.example:x ann"),
            ("did:web:b.example", "did:web:b.example"),
            ("did:", "did:"),
            ("nothing", "nothing"),
        ] {
            assert_eq!(names.shown(text), shown);
        }
    }

    #[test]
    fn peers_whose_names_collide_are_shown_by_their_dids() {
        let names = names(&[
            ("did:web:a.example", Some("ann")),
            ("did:web:b.example", Some("Ann")),
            ("did:web:c.example", Some("local")),
            ("did:web:d.example", Some("did:web:a.example")),
            ("did:web:e.example", Some("eve")),
        ]);
        assert_eq!(names.by_did.into_values().collect::<Vec<_>>(), ["eve"]);
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_names_that_there_are() {
        let failure = unknown("eve", ["ann", "bob"].into_iter()).to_string();
        assert!(failure.contains("\"eve\" is neither") && failure.contains("peers: ann, bob"), "{failure}");
        let swapped = unknown("bbo", ["ann", "bob"].into_iter()).to_string();
        assert!(swapped.contains("did you mean \"bob\"?"), "{swapped}");
        assert!(unknown("b", std::iter::repeat_n("a", 12)).to_string().contains(" and 2 more"));
        assert!(unknown("b", std::iter::empty()).to_string().contains("capd pair"));
    }
}
