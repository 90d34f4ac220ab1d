//! Holds what an agent requires against what is declared: requirements and declarations in; how each fits out.
//!
//! It asks what a sidecar asks before each call: the version is in the range, everything that the agent may send is
//! accepted, and everything that may come back is what the agent accepts. A side that the agent gives no schema for is
//! not compared.

use std::fmt::Write as _;

use capd::schema::compat::{Compatibility, Contract, Outcome, Terms, Verdict};
use capd_proto::capability::{CapabilityName, Range};
use capd_proto::negotiate::{self, Want};
use serde_json::{Value, json};

use super::operand::{Found, Held, Place};
use super::report;

/// What an agent requires of a capability of others.
#[derive(Debug)]
pub(super) struct Needed {
    pub(super) name: CapabilityName,
    /// The versions that it covers; all without one.
    pub(super) range: Option<Range>,
    pub(super) place: Place,
    pub(super) contract: Contract,
}

impl Needed {
    /// Whether a name, or its last labels, means this one.
    pub(super) fn is_selected(&self, selector: &str) -> bool {
        let full = self.name.as_str();
        full == selector || full.strip_suffix(selector).is_some_and(|before| before.ends_with('.'))
    }

    /// Its versions, for people.
    pub(super) fn versions(&self) -> String {
        self.range.as_ref().map_or_else(|| "any version".to_owned(), Range::to_string)
    }

    pub(super) fn covers(&self, held: &Held) -> bool {
        let is_served =
            |range: &Range| negotiate::choose(&Want::from(range.clone()), &[&held.served]).is_ok();
        self.name == held.id.name && self.range.as_ref().is_none_or(is_served)
    }

    /// How the agent's calls fit a provider.
    pub(super) fn compare(&self, held: &Held) -> Compatibility {
        let mut found = super::compared(&self.contract, &held.contract);
        let is_silent = |terms: &Terms| matches!(terms, Terms::Undeclared);
        if is_silent(&self.contract.input) {
            found.requests = Outcome::Full;
        }
        if is_silent(&self.contract.output) {
            found.results = Outcome::Full;
        }
        found
    }

    pub(super) fn json(&self) -> Value {
        let range = self.range.as_ref().map(Range::to_string);
        json!({"name": self.name.as_str(), "range": range, "source": self.place.file})
    }
}

/// A requirement held against what is declared under its name.
pub(super) struct Met<'a> {
    pub(super) needed: &'a Needed,
    pub(super) state: State<'a>,
}

pub(super) enum State<'a> {
    /// A version in the range, and how it fits.
    Compared(&'a Held, Box<Compatibility>),
    /// These versions are declared, and none is in the range.
    NoVersion(Vec<&'a Held>),
    /// The name is in a namespace that is declared, and is not.
    Gone,
    /// The name is in no namespace that is declared.
    Elsewhere,
}

impl<'a> Met<'a> {
    /// Every requirement against everything that is found: a verdict for each version in its range, or why there is none.
    pub(super) fn all(needed: &'a [Needed], held: &'a [Held], is_whole: bool) -> Vec<Self> {
        needed.iter().flat_map(|needed| Self::one(needed, held, is_whole)).collect()
    }

    fn one(needed: &'a Needed, held: &'a [Held], is_whole: bool) -> Vec<Self> {
        let named: Vec<_> = held.iter().filter(|held| held.id.name == needed.name).collect();
        let state = if named.iter().any(|held| needed.covers(held)) {
            let covered = named.into_iter().filter(|held| needed.covers(held));
            let compared = |held: &'a Held| Self {
                needed,
                state: State::Compared(held, Box::new(needed.compare(held))),
            };
            return covered.map(compared).collect();
        } else if !named.is_empty() {
            State::NoVersion(named)
        } else if is_whole && held.iter().any(|held| namespace(&held.id.name) == namespace(&needed.name)) {
            State::Gone
        } else {
            State::Elsewhere
        };
        vec![Self { needed, state }]
    }

    pub(super) fn is_kept(&self) -> bool {
        match &self.state {
            State::Compared(_, found) => found.verdict() == Verdict::Full,
            State::NoVersion(_) | State::Gone => false,
            State::Elsewhere => true,
        }
    }

    /// What is broken, a sentence each.
    pub(super) fn findings(&self) -> Vec<String> {
        let versions = self.needed.versions();
        let mut findings = Vec::new();
        match &self.state {
            State::Compared(_, found) => {
                report::broken(&mut findings, &format!("what requires {versions}"), found)
            }
            State::NoVersion(named) => {
                findings.push(format!("{versions} is required, and {} is declared", shown(named)))
            }
            State::Gone => {
                findings.push(format!("{versions} is required, and the declaration does not have it"))
            }
            State::Elsewhere => {}
        }
        findings
    }

    /// Whether anything was compared.
    pub(super) const fn is_decided(&self) -> bool {
        !matches!(self.state, State::Elsewhere)
    }

    pub(super) fn text(&self, out: &mut String) {
        let Needed { name, place, .. } = self.needed;
        let versions = self.needed.versions();
        let _ = writeln!(out, "{name}: required by {}", place.file.display());
        let _ = match &self.state {
            State::Compared(held, found) => {
                report::direction(out, &format!("what requires {versions}"), &held.shown(), found);
                Ok(())
            }
            State::NoVersion(named) => {
                writeln!(out, "  ❌ version: {versions} is required, and {} is declared", shown(named))
            }
            State::Gone => {
                writeln!(out, "  ❌ gone: {versions} is required, and the declaration does not have it")
            }
            State::Elsewhere => writeln!(out, "  –  not compared: no namespace of the declaration has it"),
        };
    }

    pub(super) fn json(&self) -> Value {
        let mut document = json!({"ok": self.is_kept(), "required": self.needed.json()});
        match &self.state {
            State::Compared(held, found) => {
                document["state"] = "compared".into();
                document["provider"] = report::held_json(held);
                document["backward"] = found.json();
            }
            State::NoVersion(named) => {
                document["state"] = "no version".into();
                document["declared"] = named.iter().map(|held| held.id.to_string()).collect();
            }
            State::Gone => document["state"] = "gone".into(),
            State::Elsewhere => document["state"] = "elsewhere".into(),
        }
        document
    }
}

fn shown(named: &[&Held]) -> String {
    named.iter().map(|held| held.shown()).collect::<Vec<_>>().join(", ")
}

fn namespace(name: &CapabilityName) -> &str {
    let name = name.as_str();
    name.rsplit_once('.').map_or(name, |(namespace, _)| namespace)
}

/// Requirements on both sides, each against the other side's declarations.
pub(super) fn met<'a>(old: &'a Found, new: &'a Found) -> Vec<Met<'a>> {
    let mut met = Met::all(&old.needed, &new.held, new.is_whole);
    met.extend(Met::all(&new.needed, &old.held, false));
    met
}
