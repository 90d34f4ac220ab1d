//! Takes no new calls from here on, and says which are still in flight, so that an operator can see them end.
//!
//! A sidecar that is to go for good is needed until the callers of calls that may run only once have their results, or may ask
//! for them no longer. It asks them (FLEET X11).

use std::sync::Arc;

use capd_proto::envelope::MessageId;
use capd_proto::identity::Did;
use capd_proto::message::{Draining, Request, Response, Type};
use futures_util::future::join_all;

use crate::api::operator::{Act, Operator as _};
use crate::daemon::sidecar::Sidecar;

/// Drains the sidecar. Only the first time changes anything: its process takes no new calls until it ends.
pub(super) fn drain(sidecar: &Arc<Sidecar>) -> Draining {
    if sidecar.begin_drain() {
        leave(sidecar);
        // PROTOCOL 4: peers are told, so that their next calls go elsewhere. Agents here may still be needed.
        sidecar.directory.peers.drain();
        begun(sidecar, "drain");
    }
    in_flight(sidecar)
}

/// Drains the sidecar, and says how much callers may still ask for.
///
/// It stays in its fleet's registry, as one that drains, while they do. A peer that may ask keeps its link: new calls of it are
/// refused there, and its members prefer others by then. Every other peer is told to go.
pub(super) async fn retire(sidecar: &Arc<Sidecar>) -> Draining {
    if sidecar.begin_drain() {
        begun(sidecar, "retire");
    }
    let asked = sidecar.executor.owed();
    let mut asks = Vec::new();
    for (peer, owed) in &asked {
        asks.push(ask(sidecar, peer, &owed.finished));
    }
    join_all(asks).await;
    let owed = sidecar.executor.owed();
    for peer in sidecar.directory.peers.connected() {
        if !owed.contains_key(&peer) {
            sidecar.directory.peers.links_of(&peer).iter().for_each(|link| link.drain());
        }
    }
    let remembered: usize = owed.values().map(|owed| owed.calls).sum();
    let draining = Draining {
        remembered: remembered as u64,
        until_ms: owed.values().map(|owed| owed.until_ms).max(),
        ..in_flight(sidecar)
    };
    if draining.remembered + draining.made + draining.executing == 0 {
        leave(sidecar);
    }
    draining
}

/// Asks a caller which of its calls need this sidecar no longer. One that cannot be asked may need all of them.
async fn ask(sidecar: &Sidecar, peer: &Did, finished: &[MessageId]) {
    for targets in finished.chunks(TARGETS_MAX) {
        let Some(link) = sidecar.directory.peers.link(peer) else { return };
        let mut body = Vec::new();
        Request::Fetched { targets: targets.to_vec() }.encode(&mut body);
        let Ok(asked) = sidecar.asks.ask(&link, Type::Request, &body, ANSWER_MS) else { return };
        let answer = match asked.answer().await {
            Ok(answer) => answer,
            Err(refusal) => {
                tracing::debug!(%peer, reason = refusal.message, "a caller does not say whether it has its results");
                return;
            }
        };
        if let (Type::Response, Ok(Response::Fetched { targets })) =
            (answer.typ, Response::decode(&answer.body))
        {
            sidecar.executor.fetched(peer, &targets);
        }
    }
}

fn in_flight(sidecar: &Sidecar) -> Draining {
    Draining {
        made: sidecar.caller.calls_in_flight() as u64,
        executing: sidecar.executor.table.in_flight().all as u64,
        ..Draining::default()
    }
}

/// Others learn from the registry, too, that calls which have not begun go elsewhere.
fn leave(sidecar: &Arc<Sidecar>) {
    let leaving = Arc::clone(sidecar);
    sidecar.ctx.spawn(async move {
        if let Some(registry) = leaving.fleet.registry() {
            registry.leave().await;
        }
    });
}

fn begun(sidecar: &Sidecar, action: &'static str) {
    tracing::info!("draining: no new calls are taken until capd is started again");
    sidecar.desk.acted(&Act { with: "local link", action, capability: None, call: None });
}

/// Calls in one question.
const TARGETS_MAX: usize = 1_000;
/// How long a caller may take to answer one, in milliseconds.
const ANSWER_MS: u64 = 2_000;
