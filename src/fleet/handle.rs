//! Gives the daemon its grip on the fleet: facts in, candidates, status and admission out; none of it waits.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use capd_proto::capability::CapabilityName;
use capd_proto::fleet::engine::{Ask, EngineError, Told};
use capd_proto::fleet::machine::{Extent, NotAdmitted, Offer};
use capd_proto::fleet::{Agent, Cell, Fence, Key, Membership, Prefix};
use capd_proto::ledger::JournalId;
use tokio_util::sync::CancellationToken;

use super::engine::Engine;
use super::facts::{Contact, Inbox, Need};
use super::view::{Candidates, Inspection, Split, Status, View};
use crate::changes::Watch;
use crate::net::Clock;

/// The daemon's grip on its fleet. Clones are the same fleet.
#[derive(Clone)]
pub struct Fleet {
    pub(super) inbox: Arc<Inbox>,
    pub(super) view: Arc<View>,
    pub(super) clock: Clock,
    pub(super) engine: Arc<dyn Engine>,
    pub(super) cell: Cell,
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

    /// A call wants this candidate of a name, though enough others are linked.
    pub fn reach(&self, name: &CapabilityName, agent: Agent) {
        self.inbox.reach(name, agent);
    }

    /// A link to an agent opened, whoever dialled; `fence` is what its HELLO names.
    pub fn link_opened(&self, agent: Agent, fence: Option<Fence>) {
        self.inbox.contact(agent, Contact::Opened(fence));
    }

    /// An agent gave a sign of life over a link whose HELLO named this journal.
    pub fn link_heard(&self, agent: Agent, journal: Option<JournalId>) {
        self.inbox.contact(agent, Contact::Heard(journal));
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

    /// Whether the registry has told who serves a name; none for a name that nobody wants.
    pub fn listing(&self, name: &CapabilityName) -> Option<Extent> {
        self.view.listing(name)
    }

    /// Every name that is wanted, with its candidates.
    pub fn directory(&self) -> Vec<(CapabilityName, Candidates)> {
        self.view.names()
    }

    /// Whether two processes of any agent were seen at all.
    pub fn has_splits(&self) -> bool {
        self.view.has_splits()
    }

    /// Whether two processes of an agent were seen of late, so that no journaled call may go there.
    pub fn is_split(&self, agent: &Agent) -> bool {
        self.view.is_split(agent, self.clock.monotonic_ms())
    }

    /// Every agent of which two processes were seen of late.
    pub fn splits(&self) -> Vec<(Agent, Split)> {
        self.view.splits(self.clock.monotonic_ms())
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

    /// The least serial that a membership of this agent must have to count; none where nothing of it is revoked.
    pub fn revoked_below(&self, agent: &Agent) -> Option<u64> {
        self.view.revoked_below(agent)
    }

    /// Every name that the registry has now, and the agents that registered it, by their keys alone: nothing of it is
    /// verified. One that has more than `KEYS_MAX` keys is cut short.
    ///
    /// **Errors:** the registry does not answer.
    pub async fn names(&self) -> Result<Names, EngineError> {
        let mut names = Names::default();
        let (mut after, mut at) = (None, None);
        let mut keys = 0;
        loop {
            let ask = Ask::List { prefix: Prefix::Names, after: after.take(), at, values: false };
            let page = match self.engine.ask(ask).await? {
                Told::Page(page) => page,
                Told::Done | Told::Stands(_) | Told::Held { .. } => return Err(EngineError::Lost),
            };
            names.revision = page.revision.0;
            at = Some(page.revision);
            after = page.items.last().map(|item| item.path.clone());
            keys += page.items.len();
            for item in page.items {
                if let Ok(Key::Registration { name, agent, .. }) = Key::parse(&self.cell, &item.path) {
                    names.agents.entry(name).or_default().insert(agent);
                }
            }
            if !page.has_more || after.is_none() || keys >= KEYS_MAX {
                names.is_cut = page.has_more;
                return Ok(names);
            }
        }
    }

    /// Asks the registry for a sign of life: how many changes it has seen.
    ///
    /// **Errors:** the registry does not answer.
    pub async fn ping(&self) -> Result<u64, EngineError> {
        let ask = Ask::List { prefix: Prefix::Revocations, after: None, at: None, values: false };
        match self.engine.ask(ask).await? {
            Told::Page(page) => Ok(page.revision.0),
            Told::Done | Told::Stands(_) | Told::Held { .. } => Err(EngineError::Lost),
        }
    }

    /// Wakes at each later change of candidates or status.
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

/// What a registry has at one revision.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The revision.
    pub revision: u64,
    /// Of each name the agents that registered it, as their keys say.
    pub agents: BTreeMap<CapabilityName, BTreeSet<Agent>>,
    /// Whether there are more than are listed.
    pub is_cut: bool,
}

/// Most keys of one list of all names; ours: twice the agents of the largest cell.
const KEYS_MAX: usize = 20_000;

impl fmt::Debug for Fleet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fleet").field("status", &self.status()).finish_non_exhaustive()
    }
}
