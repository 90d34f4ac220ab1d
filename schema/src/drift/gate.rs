//! Remembers for each capability of a provider what this agent was built against, and whether it is proven.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};

use capd_proto::capability::{CapabilityName, Range};
use capd_proto::message::ContentHash;
use capd_proto::negotiate::{self, Served, Want};

use super::{Artifact, Fault, Finding, Needed, Offered, Side, Standing, Told};

/// One capability that this agent calls.
#[derive(Clone, Debug)]
pub struct Requirement {
    /// Its name.
    pub name: CapabilityName,
    /// The versions that it covers; by default all.
    pub version: Option<Range>,
    /// The schemas that the agent was built against.
    pub needed: Needed,
}

impl Requirement {
    /// Whether a provider serves a version that it covers.
    pub fn is_about(&self, served: &Served) -> bool {
        self.version
            .as_ref()
            .is_none_or(|range| negotiate::choose(&Want::from(range.clone()), &[served]).is_ok())
    }

    /// Whether it requires the same as another.
    fn is_same(&self, other: &Self) -> bool {
        let hash = |side: &Option<Arc<Artifact>>| side.as_ref().map(|schema| *schema.hash());
        let hashes = |needed: &Needed| (hash(&needed.input), hash(&needed.output));
        (&self.name, &self.version) == (&other.name, &other.version)
            && hashes(&self.needed) == hashes(&other.needed)
    }

    /// Why no provider of these versions can satisfy it: it consists of a range only, and they are outside.
    pub fn outside(&self, served: &Served) -> Option<Finding> {
        let range = self.version.as_ref().filter(|_| self.needed.is_nothing() && !self.is_about(served))?;
        let fault = Fault::Version { served: served.version.to_string(), range: range.to_string() };
        Some(Finding { side: Side::Request, fault })
    }
}

impl std::fmt::Display for Requirement {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.version {
            Some(range) => write!(f, "{} {range}", self.name),
            None => self.name.fmt(f),
        }
    }
}

/// An agent's requirements, and the verdicts about the providers it has met.
///
/// A verdict belongs to a requirement and the hashes of the provider's two schemas: a provider with other schemas is
/// another case.
#[derive(Debug, Default)]
pub struct Gate {
    requirements: RwLock<Requirements>,
    verdicts: Mutex<Verdicts>,
}

#[derive(Debug, Default)]
struct Requirements {
    by_name: BTreeMap<CapabilityName, Vec<Numbered>>,
    /// The number of the next one: a number belongs to one requirement for good.
    next: usize,
}

#[derive(Clone, Debug)]
struct Numbered {
    number: usize,
    requirement: Arc<Requirement>,
}

#[derive(Debug, Default)]
struct Verdicts {
    by_case: HashMap<Case, Arc<Standing>>,
    /// Cases in the order of their decision; the oldest is dropped first.
    order: VecDeque<Case>,
}

/// A requirement, and the provider's schemas for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Case {
    requirement: usize,
    input: Key,
    output: Key,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Key {
    Schema(ContentHash),
    Anything,
    Unknown,
}

impl Key {
    fn of(told: &Told) -> Self {
        match told {
            Told::Schema(schema) => Self::Schema(*schema.hash()),
            Told::Anything => Self::Anything,
            Told::Unknown => Self::Unknown,
        }
    }
}

/// A case to decide before a call may pass.
#[derive(Clone, Debug)]
pub struct Question {
    /// The case; the same case is decided once.
    pub case: Case,
    /// The schemas that the agent was built against.
    pub requirement: Arc<Requirement>,
    /// What the provider offers.
    pub offered: Offered,
}

/// The gate's answer about a call.
#[derive(Clone, Debug)]
pub enum Passage {
    /// The agent requires nothing of this capability.
    Free,
    /// It may pass; its payloads must fit this.
    Open(Arc<Requirement>),
    /// It may pass, but nothing could be proven; its payloads must fit this.
    Unproven(Arc<Requirement>),
    /// It may not pass, for these reasons.
    Shut(Arc<Requirement>, Arc<Standing>),
    /// Undecided so far.
    Undecided(Question),
}

impl Gate {
    /// A gate with these requirements.
    pub fn new(requirements: Vec<Requirement>) -> Self {
        let gate = Self::default();
        gate.replace(requirements);
        gate
    }

    /// Replaces the requirements. What was decided about one that stays still holds.
    pub fn replace(&self, requirements: Vec<Requirement>) {
        let mut held = self.requirements.write().unwrap_or_else(PoisonError::into_inner);
        let mut by_name: BTreeMap<CapabilityName, Vec<Numbered>> = BTreeMap::new();
        for requirement in requirements {
            let mut former = held.by_name.get(&requirement.name).into_iter().flatten();
            let numbered = match former.find(|numbered| numbered.requirement.is_same(&requirement)) {
                Some(numbered) => numbered.clone(),
                None => {
                    held.next += 1;
                    Numbered { number: held.next, requirement: Arc::new(requirement) }
                }
            };
            by_name.entry(numbered.requirement.name.clone()).or_default().push(numbered);
        }
        held.by_name = by_name;
    }

    /// All requirements, by name.
    pub fn requirements(&self) -> Vec<Arc<Requirement>> {
        let held = self.held();
        held.by_name.values().flatten().map(|numbered| Arc::clone(&numbered.requirement)).collect()
    }

    /// Whether nothing is required.
    pub fn is_empty(&self) -> bool {
        self.held().by_name.is_empty()
    }

    /// Whether a requirement names this capability.
    pub fn is_before(&self, name: &str) -> bool {
        self.held().by_name.contains_key(name)
    }

    fn held(&self) -> RwLockReadGuard<'_, Requirements> {
        // They are replaced in one step, so a panic elsewhere leaves them whole.
        self.requirements.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// The gate's answer about a provider of `name`: one look-up once it is decided.
    ///
    /// Of several requirements of one name, those apply whose versions the provider serves. If it serves none of them,
    /// all apply, and one without a schema fails.
    pub fn passage(&self, name: &str, served: &Served, offered: &Offered) -> Passage {
        let held = self.held();
        let Some(all) = held.by_name.get(name) else { return Passage::Free };
        let is_about = |numbered: &&Numbered| numbered.requirement.is_about(served);
        let is_any = all.len() == 1 || !all.iter().any(|numbered| is_about(&numbered));
        let mut passage = Passage::Free;
        for Numbered { number, requirement } in all.iter().filter(|numbered| is_any || is_about(numbered)) {
            if let Some(finding) = requirement.outside(served) {
                let standing = Arc::new(Standing::Broken(vec![finding]));
                return Passage::Shut(Arc::clone(requirement), standing);
            }
            let case = Case {
                requirement: *number,
                input: Key::of(&offered.input),
                output: Key::of(&offered.output),
            };
            let Some(standing) = self.decided(&case) else {
                let (requirement, offered) = (Arc::clone(requirement), offered.clone());
                return Passage::Undecided(Question { case, requirement, offered });
            };
            let requirement = || Arc::clone(requirement);
            passage = match (&*standing, passage) {
                (Standing::Broken(_), _) => return Passage::Shut(requirement(), standing),
                // The first one's schemas are those that payloads are held against.
                (_, before @ Passage::Unproven(_)) | (Standing::Proven, before @ Passage::Open(_)) => before,
                (Standing::Proven, _) => Passage::Open(requirement()),
                (Standing::Untold, _) => Passage::Unproven(requirement()),
            };
        }
        passage
    }

    /// The verdict of a case, if decided.
    pub fn decided(&self, case: &Case) -> Option<Arc<Standing>> {
        self.verdicts().by_case.get(case).cloned()
    }

    /// Keeps a verdict; beyond [`CASES_MAX`] the oldest is dropped, and decided again on demand.
    pub fn decide(&self, case: Case, standing: Standing) -> Arc<Standing> {
        let standing = Arc::new(standing);
        let mut verdicts = self.verdicts();
        if verdicts.by_case.insert(case.clone(), Arc::clone(&standing)).is_none() {
            verdicts.order.push_back(case);
        }
        while verdicts.order.len() > CASES_MAX {
            if let Some(oldest) = verdicts.order.pop_front() {
                verdicts.by_case.remove(&oldest);
            }
        }
        standing
    }

    fn verdicts(&self) -> MutexGuard<'_, Verdicts> {
        // Both halves change in one step each, so a panic elsewhere leaves at most a case too many.
        self.verdicts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Verdicts kept.
pub const CASES_MAX: usize = 1_024;
