//! Takes no new calls from here on, and says which are still in flight, so that an operator can see them end.

use std::sync::Arc;

use capd_proto::message::Draining;

use crate::api::operator::{Act, Operator as _};
use crate::daemon::sidecar::Sidecar;

/// Drains the sidecar. Only the first time changes anything: its process takes no new calls until it ends.
pub(super) fn drain(sidecar: &Arc<Sidecar>) -> Draining {
    if sidecar.begin_drain() {
        let leaving = Arc::clone(sidecar);
        sidecar.ctx.spawn(async move {
            // Others learn from the registry, too, that calls which have not begun go elsewhere.
            if let Some(registry) = leaving.fleet.registry() {
                registry.leave().await;
            }
        });
        // PROTOCOL 4: peers are told, so that their next calls go elsewhere. Agents here may still be needed.
        sidecar.directory.peers.drain();
        tracing::info!("draining: no new calls are taken until capd is started again");
        sidecar.desk.acted(&Act { with: "local link", action: "drain", capability: None, call: None });
    }
    Draining {
        made: sidecar.caller.calls_in_flight() as u64,
        executing: sidecar.executor.table.in_flight().all as u64,
    }
}
