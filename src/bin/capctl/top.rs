//! Implements `top`: a sidecar in; its rates, latencies, limits and peers, anew in each interval, out.

use std::fmt::Write as _;
use std::io::IsTerminal as _;

use capd::admin::{Limit, Load, Reading};
use capd::client::peer_json;
use capd_proto::message::{ListedPeer, PeerState};
use tokio::time::{Instant, sleep_until};

use crate::args::TopArgs;
use crate::failure::Failure;
use crate::{Sidecar, audit, output, terminal};

/// Shows what the sidecar does until Ctrl-C, or so many times.
pub(crate) async fn run(sidecar: &Sidecar, args: TopArgs, json: bool) -> Result<(), Failure> {
    let client = sidecar.connect_for_people().await?;
    let began = Instant::now();
    let is_terminal = std::io::stdout().is_terminal();
    let mut before = Reading { at_ms: 0, families: client.metrics().await? };
    let mut left = args.count;
    while left != Some(0) {
        // After a slow answer the next reading is a whole interval away, so that rates are of what they say.
        sleep_until(Instant::now() + args.interval).await;
        let families = client.metrics().await?;
        let at_ms = u64::try_from(began.elapsed().as_millis()).unwrap_or(u64::MAX);
        let reading = Reading { at_ms, families };
        let load = Load::between(Some(&before), &reading);
        let peers = client.peers().await?;
        if json {
            let mut document = load.json();
            document["did"] = client.did().as_str().into();
            document["peers"] = peers.iter().map(peer_json).collect();
            output::print_json(&document)?;
        } else {
            if is_terminal {
                output::clear()?;
            }
            output::print(&text(client.did().as_str(), &load, &peers, audit::now_ms() / 1_000))?;
        }
        before = reading;
        left = left.map(|left| left - 1);
    }
    Ok(())
}

/// One screen. **Units:** `now`: seconds since 1970.
fn text(did: &str, load: &Load, peers: &[ListedPeer<'_>], now: u64) -> String {
    let connected = peers.iter().filter(|peer| peer.state == PeerState::Connected).count();
    let links: Vec<_> = load.links.iter().map(|(kind, count)| format!("{count} {kind}")).collect();
    let links = if links.is_empty() { "none".to_owned() } else { links.join(", ") };
    let mut text = format!("{did}  up {}\n", span(now.saturating_sub(load.started_at)));
    let (received, sent, queued) = (
        terminal::bytes(load.received_rate),
        terminal::bytes(load.sent_rate),
        terminal::bytes(load.queue_bytes as f64),
    );
    let _ = writeln!(text, "peers {connected} of {} connected  links {links}", peers.len());
    let _ = writeln!(text, "in {received}/s  out {sent}/s  queued {queued}\n");
    text += &calls(load);
    let codes: Vec<_> = ROLES
        .iter()
        .filter_map(|(role, name)| Some((name, load.roles.get(*role)?)))
        .flat_map(|(name, calls)| {
            let codes = calls.codes.iter();
            codes.map(move |((outcome, code), rate)| {
                vec![(*name).to_owned(), outcome.clone(), code.clone(), terminal::rate(*rate)]
            })
        })
        .collect();
    if !codes.is_empty() {
        text += &format!("\n{}", output::table(&["ROLE", "OUTCOME", "CODE", "CALLS/S"], &codes));
    }
    let limits: Vec<_> =
        load.limits.iter().filter(|limit| is_in_use(limit)).take(LIMITS_SHOWN).map(limit).collect();
    if !limits.is_empty() {
        text += &format!("\n{}", output::table(&["LIMIT", "USED", "OF", "%", "REFUSED"], &limits));
    }
    let away = peers.iter().filter(|peer| peer.state != PeerState::Connected);
    let away: Vec<_> = away
        .take(PEERS_SHOWN)
        .map(|peer| {
            let reason = peer.reason.as_deref().unwrap_or_default().to_owned();
            vec![peer.did.to_string(), peer.state.as_str().to_owned(), reason]
        })
        .collect();
    if !away.is_empty() {
        text += &format!("\n{}", output::table(&["PEER WITHOUT A LINK", "STATE", "REASON"], &away));
    }
    text
}

fn calls(load: &Load) -> String {
    let rows = ROLES.map(|(role, name)| {
        let calls = load.roles.get(role).cloned().unwrap_or_default();
        let rate = |outcome: &str| terminal::rate(calls.rates.get(outcome).copied().unwrap_or(0.0));
        let took = |ms: Option<f64>| ms.map_or_else(|| "-".to_owned(), |ms| format!("{ms:.1} ms"));
        vec![
            name.to_owned(),
            terminal::rate(calls.rate()),
            rate("success"),
            rate("error"),
            rate("refused"),
            terminal::grouped(calls.in_flight),
            took(calls.p50_ms),
            took(calls.p99_ms),
        ]
    });
    output::table(&["ROLE", "CALLS/S", "SUCCESS", "ERROR", "REFUSED", "IN FLIGHT", "P50", "P99"], &rows)
}

fn is_in_use(limit: &Limit) -> bool {
    limit.refused > 0 || limit.share().is_some_and(|share| share > 0.0)
}

fn limit(limit: &Limit) -> Vec<String> {
    let count = |count: Option<u64>| count.map_or_else(|| "-".to_owned(), terminal::grouped);
    let share = limit.share().map_or_else(|| "-".to_owned(), |share| format!("{:.0}", share * 100.0));
    vec![limit.key.clone(), count(limit.level), count(limit.max), share, terminal::grouped(limit.refused)]
}

/// A time span in its two largest units.
fn span(seconds: u64) -> String {
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, _) => format!("{minutes}m{}s", seconds % 60),
        (0, _, _) => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// The roles of calls, and what people call them.
const ROLES: [(&str, &str); 2] = [("caller", "made"), ("executor", "served")];
/// Limits that are shown, the fullest.
const LIMITS_SHOWN: usize = 8;
/// Peers without a link that are shown.
const PEERS_SHOWN: usize = 8;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use capd::admin::Calls;

    use super::*;

    #[test]
    fn a_screen_shows_calls_codes_limits_and_who_is_away() {
        let calls = Calls {
            rates: BTreeMap::from([("success".to_owned(), 1_234.4), ("error".to_owned(), 1.5)]),
            codes: BTreeMap::from([(("error".to_owned(), "5003".to_owned()), 1.5)]),
            in_flight: 7,
            p50_ms: Some(0.42),
            p99_ms: Some(12.0),
        };
        let limit = |key: &str, level, max, refused| Limit {
            key: key.to_owned(),
            level,
            max,
            refused,
            refused_now: 0,
        };
        let load = Load {
            roles: BTreeMap::from([("executor".to_owned(), calls)]),
            links: BTreeMap::from([("quic".to_owned(), 2), ("unix".to_owned(), 1)]),
            received_rate: 2_560.0,
            sent_rate: 12.0,
            queue_bytes: 3 * 1_024 * 1_024,
            limits: vec![
                limit("limits.full", Some(9), Some(10), 0),
                limit("limits.refused", None, Some(5), 3),
                limit("limits.idle", Some(0), Some(10), 0),
            ],
            started_at: 1_000,
        };
        let peers = [
            ListedPeer {
                did: "did:key:a".into(),
                name: None,
                state: PeerState::Connected,
                links: 2,
                reason: None,
            },
            ListedPeer {
                did: "did:key:b".into(),
                name: None,
                state: PeerState::Unreachable,
                links: 0,
                reason: Some("timed out\u{1b}[2J".into()),
            },
        ];
        insta::assert_snapshot!(text("did:key:own", &load, &peers, 1_000 + 93_784));
    }
}
