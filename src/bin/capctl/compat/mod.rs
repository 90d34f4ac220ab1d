//! Implements `diff`, `check` and `matrix`: declarations of a capability in; who can use whom, why not, and which
//! version a change needs, out.
//!
//! `operand` gets the declarations, `report` prints a comparison of two, and the other two files choose the pairs.

mod annotate;
mod check;
mod descriptor;
mod matrix;
mod needed;
mod operand;
mod report;

use capd::schema::compat::{self, Compatibility, Contract, Verdict, version};
use serde_json::json;

pub(crate) use check::check;
pub(crate) use matrix::matrix;
use needed::Needed;
use operand::{Held, Operands, Side};
pub(crate) use operand::{is_from, is_selected};

use crate::args::DiffArgs;
use crate::failure::Failure;
use crate::terminal::Progress;
use crate::{Sidecar, output};

/// How a caller of one contract fits a provider of another; who waits for the proof at a terminal is told that it runs.
fn compared(caller: &Contract, provider: &Contract) -> Compatibility {
    let _progress = Progress::begin(|seconds| format!("comparing schemas for {seconds} s"));
    compat::compare(caller, provider)
}

/// Shows what changes from one declaration to another, in both directions.
pub(crate) async fn diff(sidecar: &Sidecar, args: DiffArgs, json: bool) -> Result<(), Failure> {
    let mut operands = Operands::new(sidecar);
    let (old, new) = match (operands.one(&args.a).await?, operands.one(&args.b).await?) {
        (Side::Held(old), Side::Held(new)) => (old, new),
        (Side::Needed(needed), Side::Held(held)) | (Side::Held(held), Side::Needed(needed)) => {
            return requirement(&needed, &held, json);
        }
        (Side::Needed(_), Side::Needed(_)) => {
            return Err(Failure::usage("both are what an agent requires")
                .hint("name what a provider declares as one of them"));
        }
    };
    let backward = compared(&old.contract, &new.contract);
    let forward = compared(&new.contract, &old.contract);
    let step = Step::between(&old, &new, backward.verdict(), || forward.verdict());
    if json {
        let mut document = json!({
            "a": report::held_json(&old),
            "b": report::held_json(&new),
            "a_calls_b": backward.json(),
            "b_calls_a": forward.json(),
        });
        step.add_to(&mut document);
        return output::print_json(&document);
    }
    let mut text = format!("{}\n", report::pair(&old, &new));
    report::direction(&mut text, &format!("a caller of {}", old.shown()), &new.shown(), &backward);
    report::direction(&mut text, &format!("a caller of {}", new.shown()), &old.shown(), &forward);
    text += &format!("  {}\n", step.sentence());
    output::print(&text)
}

/// Shows how what an agent requires fits a provider.
fn requirement(needed: &Needed, held: &Held, json: bool) -> Result<(), Failure> {
    if needed.name != held.id.name {
        return Err(Failure::usage(format!("{} is required, and {} is declared", needed.name, held.id)));
    }
    let (found, is_covered) = (needed.compare(held), needed.covers(held));
    if json {
        return output::print_json(&json!({
            "required": needed.json(),
            "provider": report::held_json(held),
            "required_calls_provider": found.json(),
            "version_fits": is_covered,
        }));
    }
    let versions = needed.versions();
    let mut text = format!("{}: {versions} → {}\n", needed.name, held.shown());
    report::direction(&mut text, &format!("what requires {versions}"), &held.shown(), &found);
    if !is_covered {
        text += &format!("  ❌ version: {} does not serve {versions}\n", held.shown());
    }
    output::print(&text)
}

/// The step of versions from one declaration to another.
struct Step {
    needed: Option<version::Bump>,
    taken: Option<version::Bump>,
    /// Whether that is enough; `None` between different capabilities.
    is_enough: Option<bool>,
    goes_back: bool,
}

impl Step {
    /// The step between two declarations, by how callers of the old one fit the new one and the other way round.
    fn between(old: &Held, new: &Held, backward: Verdict, forward: impl FnOnce() -> Verdict) -> Self {
        let is_same = old.contract.is_same(&new.contract);
        // What breaks needs no second look.
        let forward = || if backward == Verdict::Full { forward() } else { backward };
        let needed = (!is_same).then(|| version::of_change(backward, forward()));
        let (from, to) = (&old.id.version, &new.id.version);
        let is_one = old.id.name == new.id.name;
        Self {
            needed,
            taken: version::taken(from, to).filter(|_| is_one),
            is_enough: is_one.then(|| version::suffices(needed, from, to)),
            goes_back: to < from,
        }
    }

    /// What the change needs, and what the versions say.
    fn sentence(&self) -> String {
        let needed = match self.needed {
            None => "the schemas are the same".to_owned(),
            Some(needed) => format!("the change needs a {needed} version"),
        };
        match (self.is_enough, self.taken) {
            (None, _) | (Some(true), None) => needed,
            (Some(_), Some(taken)) if self.needed == Some(taken) => format!("{needed}, and this is one"),
            (Some(_), Some(taken)) => format!("{needed}, and this is a {taken} one"),
            (Some(false), None) if self.goes_back => format!("{needed}, and the version goes back"),
            (Some(false), None) => format!("{needed}, and the version stays"),
        }
    }

    fn add_to(&self, document: &mut serde_json::Value) {
        document["bump"] = self.needed.map(version::Bump::as_str).into();
        if let Some(is_enough) = self.is_enough {
            document["declared_bump"] = self.taken.map(version::Bump::as_str).into();
            document["bump_suffices"] = is_enough.into();
        }
    }
}
