//! What a registry says and links do in, registrations, watches, dials and a directory out (FLEET 5, 6).
//!
//! One [`Machine`] stands for one sidecar in one cell. It knows no etcd and no socket: the driver asks the registry what
//! [`Output::Ask`] says and reports the answer as [`Input::Told`], does what every other output says, and comes back with
//! [`Input::Timeout`] when [`Machine::poll_timeout`] says so. Nothing that a registry says ever closes a link or ends a call.
//!
//! Its two halves know nothing of each other: one writes what our agent offers, the other reads what others do.

mod calm;
mod contacts;
mod dial;
mod directory;
mod feed;
mod names;
mod own;
mod step;
mod upkeep;
mod values;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use thiserror::Error;

use super::engine::{Ask, Change, EngineError, Revision, Told};
use super::{Address, Agent, Cell, Fence, Membership, Prefix, RecordError, Refused, Served, State, Verifier};
use crate::capability::CapabilityName;
use crate::identity::{Identity, PublicKey};
use crate::ledger::JournalId;

use directory::Directory;
use own::Own;
use step::{Dice, Step};

pub use names::{Candidate, Standing};

/// What a sidecar brings to its fleet.
#[derive(Clone, Debug)]
pub struct Config {
    /// The cell.
    pub cell: Cell,
    /// The key of the cell's authority.
    pub authority: PublicKey,
    /// The key of our agent.
    pub identity: Arc<Identity>,
    /// Our agent's membership, as the authority signed it.
    pub membership: Bytes,
    /// The journal that our calls are remembered in.
    pub journal: JournalId,
    /// The last incarnation on disk; 0 where there is none.
    pub incarnation: u64,
    /// The zone that our agent runs in.
    pub zone: Option<String>,
    /// How long a lease lives without renewal. **Units:** milliseconds.
    pub ttl_ms: u64,
    /// How long a name is watched after its last call. **Units:** milliseconds.
    pub idle_ms: u64,
    /// How long an agent that vanished may be tried. **Units:** milliseconds.
    pub max_stale_ms: u64,
    /// How old what is known of revocations may be for a link to begin. **Units:** milliseconds.
    pub deny_max_age_ms: u64,
    /// Links to providers of one name.
    pub links_per_name: usize,
    /// What a test leaves out.
    #[cfg(feature = "test-hooks")]
    pub breaks: Breaks,
}

/// Parts of the rules that a test leaves out, to see that they are missed.
#[cfg(feature = "test-hooks")]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breaks {
    /// A watch that ended is taken up again behind the last revision that it reported.
    pub resumes_by_revision: bool,
    /// Records are believed although a later one of the same agent was seen.
    pub ignores_order: bool,
}

impl Config {
    /// The settings of the design for everything that is not our agent's own. **Source:** FLEET 5, 6.
    pub fn new(
        cell: Cell,
        authority: PublicKey,
        identity: Arc<Identity>,
        membership: Bytes,
        fence: Fence,
    ) -> Self {
        Self {
            cell,
            authority,
            identity,
            membership,
            journal: fence.journal,
            incarnation: fence.incarnation,
            zone: None,
            ttl_ms: 30_000,
            idle_ms: 600_000,
            max_stale_ms: 600_000,
            deny_max_age_ms: 3_600_000,
            links_per_name: 3,
            #[cfg(feature = "test-hooks")]
            breaks: Breaks::default(),
        }
    }

    fn agent(&self) -> Agent {
        self.identity.public_key().into()
    }
}

/// When something happens, by both clocks. **Units:** milliseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Time {
    /// On a clock that never goes back, from any beginning.
    pub now_ms: u64,
    /// Since 1970, as far as this machine knows.
    pub wall_ms: u64,
}

/// What our agent offers to its fleet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offer {
    /// Where our agent is reached; 1 to 4.
    pub addresses: Vec<Address>,
    /// The names it serves, each with 1 to 16 versions.
    pub names: BTreeMap<CapabilityName, Vec<Served>>,
    /// Whether it takes new calls.
    pub state: State,
}

impl Default for Offer {
    fn default() -> Self {
        Self { addresses: Vec::new(), names: BTreeMap::new(), state: State::Serving }
    }
}

/// One prefix that the machine reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FeedId(u64);

/// One watch; a later one of the same prefix is another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WatchId {
    feed: FeedId,
    number: u64,
}

#[cfg(feature = "test-hooks")]
impl WatchId {
    /// A watch of no machine, by which a test tells apart the reports of a registry.
    pub fn numbered(number: u64) -> Self {
        Self { feed: FeedId(0), number }
    }
}

/// Which question an answer is to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum AskId {
    /// One of the writing half.
    Own(u64),
    /// One of a feed.
    Feed(FeedId, u64),
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Input {
    /// This is what our agent offers from here on.
    Offered(Offer),
    /// The incarnation of [`Output::Keep`] is on disk.
    Kept,
    /// The registry answers.
    Told {
        /// Which question.
        id: AskId,
        /// What.
        told: Result<Told, EngineError>,
    },
    /// A watch reports.
    Change {
        /// Which one.
        watch: WatchId,
        /// What.
        change: Change,
    },
    /// A call of our agent wants a provider of this name.
    Want(CapabilityName),
    /// Calls of our agent wait, and no provider of this name is linked.
    Missed(CapabilityName),
    /// Every linked provider of this name has many calls in flight.
    Busy(CapabilityName),
    /// A call wants this candidate of a name, though enough others are linked.
    Reach {
        /// The name.
        name: CapabilityName,
        /// The candidate.
        agent: Agent,
    },
    /// A link opened, whoever dialled.
    LinkOpened {
        /// To whom.
        agent: Agent,
        /// The process that HELLO names.
        fence: Option<Fence>,
    },
    /// An agent gave a sign of life over a link.
    LinkHeard {
        /// Who.
        agent: Agent,
        /// What the process at the other end of that link remembers calls in.
        journal: Option<JournalId>,
    },
    /// The last link to an agent closed.
    LinkClosed(Agent),
    /// Nobody answered at the addresses of an agent, or not the agent.
    DialFailed(Agent),
    /// What a former process knew: what [`Machine::to_cache`] gave then.
    Cached {
        /// When it was saved. **Units:** milliseconds since 1970.
        saved_ms: u64,
        /// Keys and values.
        items: Vec<(String, Bytes)>,
    },
    /// Our agent leaves its fleet.
    Leave,
    /// The time that [`Machine::poll_timeout`] named may have come.
    Timeout,
}

/// What the driver is to do, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Output {
    /// Ask the registry, and report with [`Input::Told`].
    Ask {
        /// What to name in the answer.
        id: AskId,
        /// What.
        ask: Ask,
    },
    /// Watch what changes after a revision, and report with [`Input::Change`].
    Watch {
        /// What to name in each report.
        watch: WatchId,
        /// What to watch.
        prefix: Prefix,
        /// The last revision that is known.
        after: Revision,
    },
    /// End a watch.
    Unwatch(WatchId),
    /// Ask all watches to report [`Change::Progress`].
    Probe,
    /// Write the incarnation to disk, durably, and report with [`Input::Kept`].
    Keep {
        /// The incarnation.
        incarnation: u64,
    },
    /// Our fence stands: HELLO names it from here on.
    Claimed(Fence),
    /// What our agent offers stands in the registry.
    Registered {
        /// As which generation.
        generation: u64,
    },
    /// What stood there may have ended; it is registered again.
    Lapsed,
    /// Another process has this identity: our agent registers no more, and begins no journaled call.
    Fenced {
        /// The other one.
        by: Fence,
    },
    /// A name cannot be registered.
    Unregistrable {
        /// Which one.
        name: CapabilityName,
        /// Why.
        error: RecordError,
    },
    /// Open a link to an agent; report how that ended.
    Dial {
        /// To whom. The TLS key must be this one.
        agent: Agent,
        /// Where.
        addresses: Vec<Address>,
    },
    /// End the dial of an agent, and report [`Input::DialFailed`] unless its link has opened.
    GiveUp {
        /// Whose.
        agent: Agent,
    },
    /// Close the link to an agent as soon as no call needs it.
    LetGo {
        /// Whose.
        agent: Agent,
        /// Why.
        why: LetGoWhy,
    },
    /// The candidates of this name are others than before.
    Changed(CapabilityName),
    /// A value of the registry is not believed.
    Refused {
        /// Its key.
        path: String,
        /// The agent that the key names.
        agent: Option<Agent>,
        /// Why.
        why: Refused,
    },
    /// The authority has revoked memberships of an agent: links to it end unless it shows another one.
    Revoked(Agent),
    /// Two processes of one agent live at once: no journaled call goes to either for a while. Comes again as long as both live.
    Split {
        /// The agent.
        agent: Agent,
        /// What the two remember calls in.
        journals: [JournalId; 2],
        /// Until when: two lives of a lease after the last sign of life of one of them. **Units:** milliseconds.
        until_ms: u64,
        /// Whether calls could go to the agent until now.
        is_new: bool,
    },
    /// So much of the registry vanished at once that none of it is believed.
    Frozen,
    /// The registry is believed again.
    Thawed,
}

/// Whether the registry has told who serves a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Extent {
    /// It was asked, and may answer at any moment.
    Listing,
    /// It has not answered, and is asked again now and then.
    Unanswered,
    /// It has; what is known may be old by now.
    Listed,
}

/// Why a link is let go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetGoWhy {
    /// No name that is still wanted needs it.
    Idle,
    /// The registry knows of a later process of this agent: only links to those before it end.
    OldProcess {
        /// The incarnation of the later one.
        before: u64,
    },
}

/// Why an agent that shows its membership is not let in.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotAdmitted {
    /// Its membership does not count.
    #[error(transparent)]
    Membership(#[from] Refused),
    /// Nobody knows whether it is revoked.
    #[error("what is known of revocations is older than {0} ms")]
    RevocationsTooOld(u64),
}

/// One sidecar's machine in one cell.
#[derive(Debug)]
pub struct Machine {
    config: Config,
    own: Own,
    directory: Directory,
    /// Never runs backwards, whatever the driver's clock does.
    now_ms: u64,
    outputs: VecDeque<Output>,
}

impl Machine {
    /// A sidecar that starts; the first outputs read its fence and the revocations.
    pub fn new(config: Config, now: Time, jitter: u64) -> Self {
        let verifier = Verifier::new(config.cell.clone(), config.authority);
        #[cfg(feature = "test-hooks")]
        let verifier = if config.breaks.ignores_order { verifier.without_order() } else { verifier };
        let mut outputs = VecDeque::new();
        let mut step = Step { config: &config, now, dice: Dice(jitter), out: &mut outputs };
        let own = Own::begin(&mut step);
        let directory = Directory::begin(verifier, &mut step);
        Self { config, own, directory, now_ms: now.now_ms, outputs }
    }

    /// Takes in what happened. `jitter` is any random number, another one each time.
    pub fn handle(&mut self, input: Input, now: Time, jitter: u64) {
        self.now_ms = self.now_ms.max(now.now_ms);
        let now = Time { now_ms: self.now_ms, ..now };
        let Self { config, own, directory, outputs, .. } = self;
        let mut step = Step { config, now, dice: Dice(jitter), out: outputs };
        let step = &mut step;
        let mut of_own = Vec::new();
        match input {
            Input::Offered(offer) => {
                for name in offer.surplus() {
                    let (name, error) = (name.clone(), RecordError::Field("one name too many"));
                    step.out.push_back(Output::Unregistrable { name, error });
                }
                directory.watch_own(&offer, step);
                of_own.push(own::Input::Offered(offer));
            }
            Input::Kept => of_own.push(own::Input::Kept),
            Input::Told { id: AskId::Own(asked), told } if own.awaits(asked) => {
                of_own.push(own::Input::Told(told));
            }
            Input::Told { id: AskId::Own(_), .. } => {}
            Input::Told { id: AskId::Feed(feed, asked), told } => {
                of_own = directory.told((feed, asked), told, step);
            }
            Input::Change { watch, change } => of_own = directory.change(watch, change, step),
            Input::Want(name) => directory.want(&name, step),
            Input::Missed(name) => directory.missed(&name, step),
            Input::Busy(name) => directory.busy(&name, step),
            Input::Reach { name, agent } => directory.reach(&name, agent, step),
            Input::LinkOpened { agent, fence } => directory.opened(agent, fence, step),
            Input::LinkHeard { agent, journal } => directory.contacts.heard(agent, journal, step),
            Input::LinkClosed(agent) => directory.closed(agent, step),
            Input::DialFailed(agent) => directory.dial_failed(agent, step),
            Input::Cached { saved_ms, items } => directory.cached(saved_ms, items, step),
            Input::Leave => of_own.push(own::Input::Leave),
            Input::Timeout => {
                of_own.push(own::Input::Timeout);
                directory.timeout(own, step);
            }
        }
        for input in of_own {
            own.handle(input, step);
        }
        directory.settle(step);
    }

    /// What to do next, until `None`.
    pub fn poll_output(&mut self) -> Option<Output> {
        self.outputs.pop_front()
    }

    /// When to come back with [`Input::Timeout`]. **Units:** milliseconds, on the clock that never goes back.
    pub fn poll_timeout(&self) -> Option<u64> {
        let own_ms = self.own.deadline_ms(self.now_ms);
        own_ms.into_iter().chain(self.directory.deadline_ms(self.config.ttl_ms)).min()
    }

    /// Decides about an agent that opens a link and shows its membership; needs no registry.
    ///
    /// **Errors:** a membership that does not count, or revocations that are known too little of.
    pub fn admit(&mut self, membership: &[u8], agent: &Agent, now: Time) -> Result<Membership, NotAdmitted> {
        let most_ms = self.config.deny_max_age_ms;
        if !self.directory.may_link(most_ms, now.now_ms) {
            return Err(NotAdmitted::RevocationsTooOld(most_ms));
        }
        Ok(self.directory.verifier.membership(membership, agent, now.wall_ms)?)
    }

    /// Who may serve a name, in the order in which they are dialled; empty for a name that nobody wants.
    pub fn candidates(&self, name: &CapabilityName) -> Vec<&Candidate> {
        let Directory { wanted, contacts, .. } = &self.directory;
        wanted.get(name).map_or_else(Vec::new, |wanted| wanted.ranked(contacts, self.config.zone.as_deref()))
    }

    /// Whether the registry has told who serves a name; none for a name that nobody wants.
    pub fn listing(&self, name: &CapabilityName) -> Option<Extent> {
        self.directory.listing(name)
    }

    /// The names that are watched.
    pub fn wanted(&self) -> impl Iterator<Item = &CapabilityName> {
        self.directory.wanted.keys()
    }

    /// Whether a name is watched.
    pub fn is_wanted(&self, name: &CapabilityName) -> bool {
        self.directory.wanted.contains_key(name)
    }

    /// Whether two processes of an agent were seen of late, so that no journaled call may go there.
    pub fn is_split(&self, agent: &Agent) -> bool {
        self.directory.contacts.is_split(agent, self.now_ms)
    }

    /// Since when what is known may be behind the registry; none where it is not. **Units:** milliseconds.
    pub fn stale_since_ms(&self) -> Option<u64> {
        self.directory.stale_since_ms()
    }

    /// How old what is known of revocations is; none where nothing is. **Units:** milliseconds.
    pub fn revocations_age_ms(&self, now_ms: u64) -> Option<u64> {
        self.directory.denied_age_ms(now_ms)
    }

    /// The least serial that a membership of this agent must have to count; none where nothing of it is revoked.
    pub fn revoked_below(&self, agent: &Agent) -> Option<u64> {
        self.directory.verifier.revoked_below(agent)
    }

    /// Whether so much of the registry vanished at once that none of it is believed.
    pub fn is_frozen(&self) -> bool {
        self.directory.calm.is_frozen()
    }

    /// The process that we are, once the registry has it.
    pub fn fence(&self) -> Option<Fence> {
        self.own.fence()
    }

    /// Whether another process has our identity.
    pub fn is_fenced(&self) -> bool {
        self.own.is_fenced()
    }

    /// Where registering stands, for logs.
    pub fn state_name(&self) -> &'static str {
        self.own.state_name()
    }

    /// What is read, and where each stands, for logs.
    pub fn feeds(&self) -> impl Iterator<Item = (&Prefix, &'static str)> {
        self.directory.feed_states()
    }

    /// Lets the machines of one simulated world share what they found good.
    #[cfg(feature = "test-hooks")]
    pub fn swap_known(&mut self, known: &mut super::Known) {
        self.directory.verifier.swap_known(known);
    }

    /// What a later process may begin with: keys and values, to be given back as [`Input::Cached`].
    pub fn to_cache(&self) -> impl Iterator<Item = (String, &Bytes)> {
        self.directory.to_cache(&self.config.cell)
    }
}

#[cfg(test)]
mod tests;
