//! Makes the card of this side, and a peer from the card of the other.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use capd::client::{Client, Endpoint, Options, Query};
use capd::config::edit::NewPeer;
use capd::config::{Config, Peer};
use capd::declaration::Declaration;
use capd::pair::{Card, Met};
use capd_proto::capability::CapabilityPattern;
use tokio::net::TcpStream;

use super::{Failure, bracketed};

/// What the other side is told of this one.
pub(super) async fn of(
    config: &Config,
    offers: &[CapabilityPattern],
    addresses: &[String],
) -> Result<Card, Failure> {
    let serves = match offers {
        [] => provided(config).await?,
        offers => offers.iter().map(ToString::to_string).collect(),
    };
    // A listener on one address is reached there; one on all of them where the other side sees this machine.
    let fixed = |scheme: &str, at: Option<SocketAddr>| {
        at.filter(|at| !at.ip().is_unspecified() && at.port() != 0).map(|at| format!("{scheme}://{at}"))
    };
    let anywhere = |at: Option<SocketAddr>| {
        at.filter(|at| at.ip().is_unspecified() && at.port() != 0).map(|at| at.port())
    };
    let own = [fixed("quic", config.listen.quic), fixed("tcp", config.listen.tcp)];
    let is_told = !addresses.is_empty();
    Ok(Card {
        name: config.agent.name.clone(),
        serves,
        addresses: if is_told { addresses.to_vec() } else { own.into_iter().flatten().collect() },
        quic_port: anywhere(config.listen.quic).filter(|_| !is_told),
        tcp_port: anywhere(config.listen.tcp).filter(|_| !is_told),
    })
}

/// What the agent provides: by its declaration, and on its links to the running sidecar.
async fn provided(config: &Config) -> Result<Vec<String>, Failure> {
    let mut names = BTreeSet::new();
    if let Some(file) = &config.agent.capabilities {
        let declaration = Declaration::load(file).map_err(Failure::mistake)?;
        names.extend(declaration.capabilities.into_iter().map(|declared| declared.id.name.to_string()));
    }
    if let Some(socket) = &config.listen.unix
        && let Ok(client) = Client::connect(Endpoint::Unix(socket.clone()), Options::default()).await
    {
        // A sidecar that provides nothing answers with an error.
        let offers = client.query_all(&Query::new(CapabilityPattern::Any)).await.unwrap_or_default();
        let local = offers.into_iter().filter(|offer| offer.is_local);
        names.extend(local.map(|offer| offer.id().name.to_string()));
        client.close().await;
    }
    // The namespace, so that a capability that comes later needs no other line.
    let namespaces: BTreeSet<_> = names.iter().filter_map(|name| name.rsplit_once('.')).collect();
    let namespaces: BTreeSet<_> = namespaces.into_iter().map(|(namespace, _)| namespace.to_owned()).collect();
    Ok(namespaces.into_iter().map(|namespace| format!("{namespace}.*")).take(OFFERS_MAX).collect())
}

/// The other side as it is written to the file.
///
/// **Errors:** the name that the owner gives it is taken.
pub(super) fn peer(
    met: &Met<TcpStream>,
    host: &str,
    config: &Config,
    name: Option<&str>,
    serves: &[CapabilityPattern],
) -> Result<NewPeer, Failure> {
    let (did, card) = (met.did().to_string(), met.card());
    let others: Vec<_> = config.peers.iter().filter(|peer| peer.did != did).collect();
    let is_taken = |name: &str| {
        let names = others.iter().filter_map(|peer| peer.name.as_deref());
        names.chain([config.agent.name.as_str()]).any(|taken| taken.eq_ignore_ascii_case(name))
    };
    let name = match name {
        Some(name) if is_taken(name) => {
            return Err(Failure::mistake(format!(
                "--name {name}: another peer or this sidecar has that name"
            )));
        }
        Some(name) => name.to_owned(),
        // Whatever it calls itself, it never passes for another.
        None => unique(&card.name, is_taken),
    };
    let serves = match serves {
        [] => offered(&card.serves, &others),
        serves => serves.iter().map(ToString::to_string).collect(),
    };
    Ok(NewPeer { name, did, addresses: addresses(card, host), serves })
}

fn unique(name: &str, is_taken: impl Fn(&str) -> bool) -> String {
    if !is_taken(name) {
        return name.to_owned();
    }
    let stem: String = name.chars().take(NAME_CHARS_MAX).collect();
    let numbered = (2..).map(|number: u32| format!("{stem}-{number}"));
    numbered.into_iter().find(|name| !is_taken(name)).unwrap_or(stem)
}

/// Where the other side is reached.
fn addresses(card: &Card, host: &str) -> Vec<String> {
    let host = bracketed(host);
    let port = |scheme: &str, port: Option<u16>| port.map(|port| format!("{scheme}://{host}:{port}"));
    let seen = [port("quic", card.quic_port), port("tcp", card.tcp_port)].into_iter().flatten();
    card.addresses.iter().cloned().chain(seen).collect()
}

/// What the other side offers, without what another peer serves: its word alone must not bring it another's calls.
fn offered(serves: &[String], others: &[&Peer]) -> Vec<String> {
    let taken = |text: &String| {
        let known =
            others.iter().find(|peer| peer.serves.iter().any(|own| overlap(&own.to_string(), text)))?;
        let name = known.name.as_deref().unwrap_or(&known.did);
        Some(format!("{text} is offered, but {name} serves it; allow both with --serves"))
    };
    let mut kept = Vec::new();
    for text in serves {
        match taken(text) {
            Some(note) => eprintln!("capd: {note}"),
            None => kept.push(text.clone()),
        }
    }
    kept
}

/// Whether some name matches both patterns. An owner's `*` is meant for everybody, and keeps nobody out.
fn overlap(one: &str, other: &str) -> bool {
    let is_in = |name: &str, pattern: &str| {
        pattern.strip_suffix(".*").is_some_and(|labels| {
            name.strip_prefix(labels).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
        })
    };
    let (bare_one, bare_other) = (one.trim_end_matches(".*"), other.trim_end_matches(".*"));
    one != "*" && (one == other || is_in(bare_one, other) || is_in(bare_other, one))
}

/// Namespaces in one card.
const OFFERS_MAX: usize = 32;
/// Characters of a name that leave room for a number.
const NAME_CHARS_MAX: usize = 56;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_overlap_where_one_name_fits_both() {
        for (one, other, expected) in [
            ("com.bank.*", "com.bank.pay", true),
            ("com.bank.pay", "com.bank.*", true),
            ("com.bank.*", "com.*", true),
            ("com.bank.*", "com.banker.*", false),
            ("com.bank.pay", "com.bank.pay", true),
            ("com.bank.pay", "com.bank.payback", false),
            ("com.a.*", "com.b.*", false),
            ("*", "com.b.*", false),
        ] {
            assert_eq!(overlap(one, other), expected, "{one} {other}");
        }
    }

    #[test]
    fn a_name_that_is_taken_gets_a_number() {
        let taken = ["ann", "ANN-2"];
        let name = unique("Ann", |name| taken.iter().any(|taken| taken.eq_ignore_ascii_case(name)));
        assert_eq!(name, "Ann-3");
        assert_eq!(unique("bob", |_| false), "bob");
    }

    #[test]
    fn a_peer_is_reached_where_its_card_says_or_where_it_was_seen() {
        let card = Card {
            name: "a".to_owned(),
            serves: Vec::new(),
            addresses: vec!["quic://192.0.2.1:7001".to_owned()],
            quic_port: None,
            tcp_port: Some(7002),
        };
        assert_eq!(addresses(&card, "2001:db8::7"), ["quic://192.0.2.1:7001", "tcp://[2001:db8::7]:7002"]);
    }
}
