//! Compares requests: proves that the provider's input schema accepts everything that the caller sends.

use super::contract::Terms;
use super::give_up::GivenUp;
use super::lost::{Feature, Lost};
use super::narrow::Narrowed;
use super::work::Work;
use super::{LOST_MAX, Outcome, Refutation, give_up, place, unused};
use crate::subtype::Verdict as Proof;

/// Holds what a caller may send against what a provider takes.
pub(super) fn compare(caller: &Terms, provider: &Terms, work: &mut Work) -> Outcome {
    let (caller, provider) = match (caller, provider) {
        (_, Terms::Undeclared) => return Outcome::Full,
        (Terms::Undeclared, Terms::Declared(provider)) if provider.takes_anything() => return Outcome::Full,
        (Terms::Unknown { reason }, _) => return Outcome::unknown_schema(format!("the caller's: {reason}")),
        (_, Terms::Unknown { reason }) => {
            return Outcome::unknown_schema(format!("the provider's: {reason}"));
        }
        (Terms::Undeclared, Terms::Declared(_)) => {
            return Outcome::unknown_schema("the caller declares no input schema".to_owned());
        }
        (Terms::Declared(caller), Terms::Declared(provider)) => (caller, provider),
    };
    let mut lost: Vec<Lost> = Vec::new();
    let mut narrowed: Option<Narrowed<'_>> = None;
    let mut rounds = 0..ROUNDS_MAX;
    loop {
        let sender = narrowed.as_ref().map_or(&caller.compiled, |narrowed| &narrowed.compiled);
        let refutation = match work.prove(sender, &provider.compiled) {
            Proof::Proven => break,
            Proof::Unknown { path, construct } => return Outcome::unproven(path, construct, lost, work),
            Proof::Refuted { witness, path, rule } => Refutation { witness, path, rule },
        };
        let given_up = match narrowed.take() {
            Some(narrowed) => Some(narrowed),
            None => Narrowed::new(&caller.value, Vec::new(), work),
        };
        let given_up = given_up
            .filter(|_| rounds.next().is_some() && lost.len() < LOST_MAX)
            .and_then(|narrowed| give_up::least(&caller.value, &narrowed, &refutation, work));
        let Some(given_up) = given_up else { return Outcome::Incompatible(refutation) };
        forget_inside(&given_up, &mut lost);
        lost.push(Lost { path: given_up.path, feature: given_up.feature, refutation: Some(refutation) });
        narrowed = Some(given_up.narrowed);
    }
    let mut ignored = unused::ways(&caller.value, &provider.value, work);
    if !ignored.is_empty()
        && let Some(left) = narrowed.or_else(|| Narrowed::new(&caller.value, Vec::new(), work))
    {
        // What is not sent any more is not ignored.
        ignored.retain(|way| left.reaches(way, work) != Some(false));
    }
    lost.extend(ignored.iter().map(|way| Lost {
        path: place::pointer(way),
        feature: Feature::Ignored,
        refutation: None,
    }));
    Outcome::partial(lost)
}

/// Most times that something is given up; values count again when they go with their property.
const ROUNDS_MAX: usize = 2 * LOST_MAX;

/// What was given up before inside what is given up as a whole went with it.
fn forget_inside(given_up: &GivenUp<'_>, lost: &mut Vec<Lost>) {
    let whole = given_up.path.trim_end_matches('/');
    match given_up.feature {
        Feature::Property => {
            let inside = format!("{whole}/");
            lost.retain(|lost| lost.path != whole && !lost.path.starts_with(&inside));
        }
        Feature::Undeclared => {
            let inside = format!("{whole}/*/");
            lost.retain(|lost| !lost.path.starts_with(&inside));
        }
        Feature::Ignored
        | Feature::Value(_)
        | Feature::Type(_)
        | Feature::Alternative(_)
        | Feature::Absent => {}
    }
}
