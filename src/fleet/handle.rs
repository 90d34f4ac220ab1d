//! Gives the daemon its grip on the fleet: facts in, candidates, status and admission out; none of it waits.

use std::fmt;
use std::sync::Arc;

use capd_proto::capability::CapabilityName;
use capd_proto::fleet::machine::{NotAdmitted, Offer};
use capd_proto::fleet::{Agent, Fence, Membership};
use tokio_util::sync::CancellationToken;

use super::facts::{Contact, Inbox, Need};
use super::view::{Candidates, Inspection, Status, View};
use crate::changes::Watch;
use crate::net::Clock;

/// The daemon's grip on its fleet. Clones are the same fleet.
#[derive(Clone)]
pub struct Fleet {
    pub(super) inbox: Arc<Inbox>,
    pub(super) view: Arc<View>,
    pub(super) clock: Clock,
    /// Set when the driver has ended.
    pub(super) ended: CancellationToken,
}

impl Fleet {
    /// A call wants this name: who may serve it, as far as is known. The first call begins to watch the name, and each
    /// later one keeps it watched; many at once cost nothing.
    pub fn want(&self, name: &CapabilityName) -> Option<Candidates> {
        let (candidates, is_news) = self.view.want(name, self.clock.monotonic_ms());
        if is_news {
            self.inbox.need(name, Need::default());
        }
        candidates
    }

    /// A call waits, and no provider of this name is linked.
    pub fn missed(&self, name: &CapabilityName) {
        self.inbox.need(name, Need { is_missed: true, is_busy: false });
    }

    /// Every linked provider of this name has many calls in flight.
    pub fn busy(&self, name: &CapabilityName) {
        self.inbox.need(name, Need { is_missed: false, is_busy: true });
    }

    /// A link to an agent opened, whoever dialled; `fence` is what its HELLO names.
    pub fn link_opened(&self, agent: Agent, fence: Option<Fence>) {
        self.inbox.contact(agent, Contact::Opened(fence));
    }

    /// An agent gave a sign of life over a link.
    pub fn link_heard(&self, agent: Agent) {
        self.inbox.contact(agent, Contact::Heard);
    }

    /// The last link to an agent closed.
    pub fn link_closed(&self, agent: Agent) {
        self.inbox.contact(agent, Contact::Closed);
    }

    /// A dial that [`Event::Dial`](super::Event::Dial) asked for found nobody, or not the agent.
    pub fn dial_failed(&self, agent: Agent) {
        self.inbox.contact(agent, Contact::DialFailed);
    }

    /// What our agent offers from here on, draining included.
    pub fn offer(&self, offer: Offer) {
        self.inbox.offer(offer);
    }

    /// Decides about an agent that opens a link and shows its membership.
    ///
    /// **Errors:** a membership that does not count, or revocations that are known too little of.
    pub fn admit(&self, membership: &[u8], agent: &Agent) -> Result<Membership, NotAdmitted> {
        let now = self.clock.now();
        self.view.admit(membership, agent, now.monotonic_ms, now.wall_ms)
    }

    /// Who may serve a name, in the order in which they are dialled; none for a name that nobody wants.
    pub fn candidates(&self, name: &CapabilityName) -> Option<Candidates> {
        self.view.candidates(name)
    }

    /// Every name that is wanted, with its candidates.
    pub fn directory(&self) -> Vec<(CapabilityName, Candidates)> {
        self.view.names()
    }

    /// Whether two processes of an agent were seen of late, so that no journaled call may go there.
    pub fn is_split(&self, agent: &Agent) -> bool {
        self.view.is_split(agent, self.clock.monotonic_ms())
    }

    /// Where the sidecar stands in its fleet.
    pub fn status(&self) -> Arc<Status> {
        self.view.status()
    }

    /// Status and feeds, as the driver has them; none once it has ended.
    pub async fn inspect(&self) -> Option<Inspection> {
        let inspection = self.inbox.inspect();
        tokio::select! {
            inspection = inspection => inspection.ok(),
            () = self.ended.cancelled() => None,
        }
    }

    /// Wakes at each later change of candidates or status.
    #[allow(dead_code, reason = "the daemon is wired to it next")]
    pub(crate) fn watch(&self) -> Watch {
        self.view.watch()
    }

    /// Leaves the fleet: what we registered is withdrawn, and the driver ends. Returns when it has, after two seconds at
    /// the latest where the registry does not answer.
    pub async fn leave(&self) {
        self.inbox.leave();
        self.ended.cancelled().await;
    }
}

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("status", &self.status()).finish_non_exhaustive()
    }
}
