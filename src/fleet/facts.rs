//! Collects what the daemon knows until the driver takes it in: names that calls want, links that open and close.
//!
//! Nobody who brings a fact ever waits. Facts about the same name or agent merge, so the collection is bounded by the
//! names and agents that there are.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Mutex, PoisonError};

use capd_proto::capability::CapabilityName;
use capd_proto::fleet::machine::{Input, Offer};
use capd_proto::fleet::{Agent, Fence};
use capd_proto::ledger::JournalId;
use tokio::sync::{Notify, oneshot};

use super::view::Inspection;

/// What calls need of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Need {
    pub(super) is_missed: bool,
    pub(super) is_busy: bool,
}

/// What happened to the links with one agent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Contact {
    Opened(Option<Fence>),
    Heard(Option<JournalId>),
    Closed,
    DialFailed,
}

/// Facts that the driver has not taken in yet.
#[derive(Debug, Default)]
pub(super) struct Facts {
    offer: Option<Offer>,
    names: BTreeMap<CapabilityName, Need>,
    contacts: BTreeMap<Agent, VecDeque<Contact>>,
    reached: BTreeSet<(CapabilityName, Agent)>,
    pub(super) is_leaving: bool,
    pub(super) inspections: Vec<oneshot::Sender<Inspection>>,
}

/// Where facts wait.
#[derive(Debug, Default)]
pub(super) struct Inbox {
    facts: Mutex<Facts>,
    wake: Notify,
}

impl Inbox {
    pub(super) fn offer(&self, offer: Offer) {
        self.add(|facts| facts.offer = Some(offer));
    }

    pub(super) fn need(&self, name: &CapabilityName, need: Need) {
        self.add(|facts| {
            // A call that wants yet another name asks again a moment later.
            if facts.names.len() >= NAMES_MAX && !facts.names.contains_key(name) {
                return;
            }
            let known = facts.names.entry(name.clone()).or_default();
            known.is_missed |= need.is_missed;
            known.is_busy |= need.is_busy;
        });
    }

    pub(super) fn reach(&self, name: &CapabilityName, agent: Agent) {
        self.add(|facts| {
            // A call that waits says so again.
            if facts.reached.len() < NAMES_MAX {
                facts.reached.insert((name.clone(), agent));
            }
        });
    }

    pub(super) fn contact(&self, agent: Agent, contact: Contact) {
        self.add(|facts| {
            let waiting = facts.contacts.entry(agent).or_default();
            let mut lately = waiting.iter().rev().take_while(|last| matches!(last, Contact::Heard(_)));
            if lately.any(|last| *last == contact) {
                return;
            }
            // Of links that come and go faster than they are looked at, the last ones count.
            if waiting.len() >= CONTACTS_MAX {
                waiting.pop_front();
            }
            waiting.push_back(contact);
        });
    }

    pub(super) fn leave(&self) {
        self.add(|facts| facts.is_leaving = true);
    }

    /// Asks for an inspection; a refused one is answered by its sender being dropped.
    pub(super) fn inspect(&self) -> oneshot::Receiver<Inspection> {
        let (sender, receiver) = oneshot::channel();
        self.add(|facts| {
            if facts.inspections.len() < INSPECTIONS_MAX {
                facts.inspections.push(sender);
            }
        });
        receiver
    }

    /// Waits until there is something to take.
    pub(super) async fn filled(&self) {
        self.wake.notified().await;
    }

    pub(super) fn take(&self) -> Facts {
        std::mem::take(&mut *self.facts.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn add(&self, change: impl FnOnce(&mut Facts)) {
        change(&mut self.facts.lock().unwrap_or_else(PoisonError::into_inner));
        self.wake.notify_one();
    }
}

impl Facts {
    /// The same in the machine's words: what we offer, then links, then names, so that nobody is dialled who is linked.
    pub(super) fn inputs(&mut self) -> Vec<Input> {
        let mut inputs: Vec<_> = self.offer.take().map(Input::Offered).into_iter().collect();
        for (agent, contacts) in std::mem::take(&mut self.contacts) {
            inputs.extend(contacts.into_iter().map(|contact| match contact {
                Contact::Opened(fence) => Input::LinkOpened { agent, fence },
                Contact::Heard(journal) => Input::LinkHeard { agent, journal },
                Contact::Closed => Input::LinkClosed(agent),
                Contact::DialFailed => Input::DialFailed(agent),
            }));
        }
        for (name, need) in std::mem::take(&mut self.names) {
            if need.is_busy {
                inputs.push(Input::Busy(name.clone()));
            }
            inputs.push(if need.is_missed { Input::Missed(name) } else { Input::Want(name) });
        }
        let reached = std::mem::take(&mut self.reached).into_iter();
        inputs.extend(reached.map(|(name, agent)| Input::Reach { name, agent }));
        inputs
    }
}

/// Most names that wait to be wanted; ours: four times what is watched at most.
const NAMES_MAX: usize = 4_096;
/// Most facts that wait of one agent.
const CONTACTS_MAX: usize = 4;
/// Most people who wait for an inspection.
const INSPECTIONS_MAX: usize = 16;

#[cfg(test)]
mod tests {
    use capd_proto::identity::Identity;

    use super::*;

    fn agent(number: u8) -> Agent {
        Identity::from_seed([number; 32]).public_key().into()
    }

    #[test]
    fn facts_about_one_name_merge_and_none_gets_lost() {
        let inbox = Inbox::default();
        let name: CapabilityName = "org.example.a".parse().unwrap();
        inbox.need(&name, Need { is_missed: true, is_busy: false });
        inbox.need(&name, Need::default());
        inbox.need(&name, Need { is_missed: false, is_busy: true });
        let inputs = inbox.take().inputs();
        assert!(matches!(&inputs[..], [Input::Busy(_), Input::Missed(_)]), "{inputs:?}");
        assert!(inbox.take().inputs().is_empty());
    }

    #[test]
    fn of_a_link_that_flaps_the_last_facts_stay() {
        let inbox = Inbox::default();
        for _ in 0..100 {
            inbox.contact(agent(1), Contact::Opened(None));
            inbox.contact(agent(1), Contact::Heard(None));
            inbox.contact(agent(1), Contact::Heard(None));
            inbox.contact(agent(1), Contact::Closed);
        }
        inbox.contact(agent(2), Contact::DialFailed);
        let inputs = inbox.take().inputs();
        assert_eq!(inputs.len(), CONTACTS_MAX + 1);
        let of_first: Vec<_> =
            inputs.iter().filter(|input| matches!(input, Input::LinkClosed(of) if *of == agent(1))).collect();
        assert_eq!(of_first.len(), 2, "{inputs:?}");
        let last = inputs.iter().rfind(|input| {
            matches!(input, Input::LinkOpened { agent: of, .. } | Input::LinkHeard { agent: of, .. } | Input::LinkClosed(of) if *of == agent(1))
        });
        assert!(matches!(last, Some(Input::LinkClosed(_))), "{last:?}");
    }

    #[test]
    fn names_have_a_bound() {
        let inbox = Inbox::default();
        for number in 0..2 * NAMES_MAX {
            inbox.need(&format!("org.example.n{number}").parse().unwrap(), Need::default());
        }
        assert_eq!(inbox.take().inputs().len(), NAMES_MAX);
    }
}
