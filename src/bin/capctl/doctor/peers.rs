//! Checks the peers of the running sidecar: each answers, or why not and what to do.

use std::collections::BTreeSet;
use std::time::Duration;

use capd::client::{Client, ClientError, Query};
use capd_proto::capability::CapabilityPattern;
use capd_proto::code::Code;
use capd_proto::identity::Did;
use capd_proto::message::{DoctorPeer, ListedPeer, PeerState};

use super::report::{Check, Report};
use crate::failure::Exit;

/// Checks every peer that the sidecar lists.
pub(super) async fn all(client: &Client, configured: &[DoctorPeer<'_>], report: &mut Report) {
    let peers = match client.peers().await {
        Ok(peers) => peers,
        Err(error) => return report.add(Check::of("peer", String::new(), &error.into())),
    };
    for peer in &peers {
        let known = configured.iter().find(|known| known.did == peer.did);
        let Ok(did) = peer.did.parse() else { continue };
        let Some(known) = known else {
            stranger(peer, report);
            continue;
        };
        let is_awaited = !known.is_dialled && peer.state != PeerState::Connected;
        let found = match is_awaited {
            true => Err(reason(peer)),
            false => crate::peers::ping(client, &did, PING_WAIT).await.map_err(|error| error.cause()),
        };
        match found {
            Ok(time) => {
                let text = format!("{:.3} ms", time.as_secs_f64() * 1_000.0);
                report.add(Check::ok("peer", peer.did.to_string(), text));
                withheld(client, known, &did, report).await;
            }
            Err(_) if is_awaited => {
                let text = format!("not connected: {}", reason(peer));
                report.add(
                    Check::warning("peer", peer.did.to_string(), text).remedy(remedy(client, &reason(peer))),
                );
            }
            Err(cause) => {
                // No try has ended yet, or it is told that it waits, which only peers without an address do.
                let is_tried = cause.ends_with(crate::peers::WAITING);
                let remedy = if is_tried { SILENT.to_owned() } else { remedy(client, &cause) };
                let cause = if is_tried { cause.replace(crate::peers::WAITING, DIALLED) } else { cause };
                let check = Check::failed("peer", peer.did.to_string(), Exit::Unavailable, cause);
                report.add(check.remedy(remedy));
            }
        }
    }
}

/// A peer that asked for a link not long ago and is not configured.
fn stranger(peer: &ListedPeer<'_>, report: &mut Report) {
    if peer.state == PeerState::Refused {
        let check = Check::warning("peer", peer.did.to_string(), reason(peer));
        report
            .add(check.remedy("to admit it, run `capd pair` on both sides; otherwise nothing is to be done"));
    }
}

fn reason(peer: &ListedPeer<'_>) -> String {
    crate::peers::reason(peer.clone()).unwrap_or_default()
}

/// What to do about a peer that is not reached, by the reason that the sidecar knows.
fn remedy(client: &Client, reason: &str) -> String {
    let ours = client.did();
    for (part, remedy) in REMEDIES {
        if reason.contains(part) {
            return remedy.replace("{ours}", ours.as_str());
        }
    }
    "check that capd runs there, and that its address in [[peers]] is right".to_owned()
}

/// What keeps calls from a peer that answers: it declares what its `serves` does not allow, or nothing at all.
async fn withheld(client: &Client, peer: &DoctorPeer<'_>, did: &Did, report: &mut Report) {
    // A name is enough of a peer that declares many; a refusal says that it serves nothing to this agent.
    let query =
        Query { to: Some(did.clone()), limit: Some(DECLARED_MAX), ..Query::new(CapabilityPattern::Any) };
    let page = match client.query(&query).await {
        Ok(page) => page,
        Err(ClientError::Refused(error)) if error.code == Code::CAPABILITY_NOT_FOUND => {
            return shows_nothing(peer, report);
        }
        // Others say why it cannot be asked.
        Err(_) => return,
    };
    let patterns: Vec<CapabilityPattern> =
        peer.serves.iter().filter_map(|pattern| pattern.parse().ok()).collect();
    let is_allowed = |name: &str| patterns.iter().any(|pattern| pattern.matches(name));
    let names = page.offers.iter().map(|offer| offer.id().name.as_str());
    let names: BTreeSet<_> = names.filter(|name| !is_allowed(name)).collect();
    let Some(first) = names.first() else { return };
    let shown: Vec<_> = names.iter().copied().take(SHOWN_MAX).collect();
    let more = names.len() - shown.len();
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    let shown = shown.join(", ");
    let text =
        format!("declares {shown}{more}: never called, since its serves in [[peers]] does not allow it");
    let remedy = format!("if it may serve {first}, add the name to its serves, then run: capctl reload");
    report.add(Check::warning("peer", peer.did.to_string(), text).remedy(remedy));
}

/// A peer that is there for certain capabilities and declares none: calls of them find nobody.
fn shows_nothing(peer: &DoctorPeer<'_>, report: &mut Report) {
    // A wildcard expects nothing in particular.
    let expected: Vec<_> =
        peer.serves.iter().filter(|pattern| *pattern != "*").take(SHOWN_MAX).map(AsRef::as_ref).collect();
    if expected.is_empty() {
        return;
    }
    let text = format!(
        "it shows this agent nothing of {}: it grants this agent nothing there, or provides nothing",
        expected.join(", ")
    );
    let remedy = "run there: capctl doctor, which names the missing grant";
    report.add(Check::warning("peer", peer.did.to_string(), text).remedy(remedy));
}

/// What is said of a peer that is tried, as long as no try has ended.
const DIALLED: &str = "its addresses in [[peers]] have not answered";
/// What to do about an address that nobody answers at.
const SILENT: &str =
    "check that capd runs there, that the address is right, and that no firewall drops its packets";
/// What a reason says, and what to do about it.
const REMEDIES: [(&str, &str); 10] = [
    (
        "does not list",
        "run `capd pair` on both sides, or add {ours} to [[peers]] there and run there: capctl reload",
    ),
    (
        "not listed in [[peers]] here",
        "run `capd pair` on both sides, or add it to [[peers]] here and run: capctl reload",
    ),
    (
        "is did:",
        "if this is the right machine, replace its did in [[peers]], otherwise its addresses; then run: capctl reload",
    ),
    (
        "clock",
        "compare `date -u` on both machines, and turn time synchronization on: timedatectl set-ntp true",
    ),
    ("refused (os error", "start capd there, or correct the port in its addresses"),
    (
        "cannot be resolved",
        "correct the host in its addresses, or check that this machine can resolve it: getent hosts HOST",
    ),
    ("TLS", "another program listens at this address: correct the port in its addresses"),
    ("timed out", SILENT),
    ("did not finish in time", SILENT),
    (
        "has not connected",
        "it must connect by itself: check there that capd runs and what capctl doctor says, or give it addresses here",
    ),
];
/// Capabilities of one peer that are looked at.
const DECLARED_MAX: u64 = 1_000;
/// Names of one peer that are shown.
const SHOWN_MAX: usize = 3;
/// How long each peer is waited for.
const PING_WAIT: Duration = Duration::from_secs(5);
