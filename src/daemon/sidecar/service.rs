//! Tells the rooms about links that open, bring messages, and close.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use capd_proto::fleet::Membership;
use capd_proto::identity::Did;
use capd_proto::ledger::JournalId;
use capd_proto::message::Member;

use super::Sidecar;
use crate::net::dial::{Address, ConnectError};
use crate::net::{Admit, CloseReason, Link, Newcomer, Refused, Route, Service};

/// A sidecar, as its links meet it.
pub(in crate::daemon) struct Links(pub(in crate::daemon) Arc<Sidecar>);

impl Service for Links {
    fn admit(&self, newcomer: &Newcomer<'_>) -> Admit {
        if newcomer.kind.is_local() || self.0.door.admission.admits(newcomer.principal) {
            Admit::Yes
        } else if self.0.fleet.is_any() {
            Admit::IfMember
        } else {
            Admit::No
        }
    }

    fn part(&self) -> Member<'static> {
        self.0.fleet.shown()
    }

    fn member(
        &self,
        newcomer: &Newcomer<'_>,
        shown: &Member<'_>,
    ) -> Result<Option<Arc<Membership>>, &'static str> {
        let needs_none = self.0.door.admission.admits(newcomer.principal);
        self.0.fleet.meet(newcomer.principal, needs_none, shown)
    }

    fn journal(&self) -> Option<JournalId> {
        Some(self.0.journal.id())
    }

    fn wants_link(&self, peer: &Did) -> bool {
        self.0.needs_link(peer)
    }

    fn on_open(&self, link: &Arc<Link>) {
        if link.kind().is_local() {
            tracing::debug!(link = %link.id(), kind = %link.kind(), "an agent connected");
            return;
        }
        tracing::info!(peer = %link.principal(), remote = link.remote(), kind = %link.kind(), "peer connected");
        self.0.door.on_open(link);
        self.0.fleet.on_open(link);
        self.0.directory.on_open(link);
        self.0.drain_newcomer(link);
    }

    fn on_message(&self, link: &Arc<Link>, route: &Route, payload: Bytes) {
        self.on_messages(link, route, &[payload]);
    }

    fn on_messages(&self, link: &Arc<Link>, route: &Route, payloads: &[Bytes]) {
        let messages = payloads.iter().map(|payload| (route, payload));
        self.0.door.take_all(link, messages, &self.0.meeting());
    }

    fn on_gathered(&self, link: &Arc<Link>, messages: &[(Route, Bytes)]) {
        let messages = messages.iter().map(|(route, payload)| (route, payload));
        self.0.door.take_all(link, messages, &self.0.meeting());
    }

    fn on_reset(&self, _link: &Arc<Link>, route: &Route) {
        self.0.on_reset(route);
    }

    fn on_refused(&self, refused: &Refused<'_>) {
        self.0.directory.on_peer_refused(refused);
    }

    fn on_unreachable(&self, peer: &Did, failures: &[(&Address, ConnectError)], again: Option<Duration>) {
        self.0.directory.on_peer_unreachable(peer, failures, again);
        self.0.fleet.on_unreachable(peer);
    }

    fn on_pong(&self, _link: &Arc<Link>) {
        self.0.directory.peers.answered();
    }

    fn on_close(&self, link: &Arc<Link>, reason: &CloseReason) {
        tracing::debug!(link = %link.id(), peer = %link.principal(), %reason, "link closed");
        if link.kind().is_local() {
            self.0.executor.withdraw(link);
        } else {
            if self.0.directory.on_close(link) {
                self.0.fleet.on_gone(link.principal());
            }
            self.0.on_link_lost(link);
        }
    }
}
