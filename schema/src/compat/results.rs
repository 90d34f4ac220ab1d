//! Compares results: proves that the caller's output schema accepts everything that the provider sends.
//!
//! A caller cannot choose its results. It can only ignore what a provider leaves open without declaring it: a property
//! that only the caller's schema describes may have any form, and most likely never occurs.

use super::contract::Terms;
use super::lost::{Feature, Lost};
use super::narrow::Narrowed;
use super::place;
use super::work::Work;
use super::{LOST_MAX, Outcome, Refutation, give_up, unused};
use crate::subtype::Verdict as Proof;

/// Holds what a provider may send against what a caller takes.
pub(super) fn compare(provider: &Terms, caller: &Terms, work: &mut Work) -> Outcome {
    let (provider, caller) = match (provider, caller) {
        (_, Terms::Undeclared) => return Outcome::Full,
        (Terms::Undeclared, Terms::Declared(caller)) if caller.takes_anything() => return Outcome::Full,
        (Terms::Unknown { reason }, _) => {
            return Outcome::unknown_schema(format!("the provider's: {reason}"));
        }
        (_, Terms::Unknown { reason }) => return Outcome::unknown_schema(format!("the caller's: {reason}")),
        (Terms::Undeclared, Terms::Declared(_)) => {
            return Outcome::unknown_schema("the provider declares no output schema".to_owned());
        }
        (Terms::Declared(provider), Terms::Declared(caller)) => (provider, caller),
    };
    let mut lost: Vec<Lost> = Vec::new();
    let mut narrowed: Option<Narrowed<'_>> = None;
    loop {
        let sender = narrowed.as_ref().map_or(&provider.compiled, |narrowed| &narrowed.compiled);
        let refutation = match work.prove(sender, &caller.compiled) {
            Proof::Proven => break,
            Proof::Unknown { path, construct } => return Outcome::unproven(path, construct, lost, work),
            Proof::Refuted { witness, path, rule } => Refutation { witness, path, rule },
        };
        let given_up = match narrowed.take() {
            Some(narrowed) => Some(narrowed),
            None => Narrowed::new(&provider.value, Vec::new(), work),
        };
        let given_up = given_up
            .filter(|_| lost.len() < LOST_MAX)
            .and_then(|narrowed| give_up::openness(&provider.value, &narrowed, &refutation, work));
        let way = place::way(&caller.value, &refutation.witness, &refutation.path, work);
        let (Some((given_up, name)), Some((steps, _))) = (given_up, way) else {
            return Outcome::Incompatible(refutation);
        };
        let is_known =
            steps.iter().any(|step| matches!(step, place::Step::Declared(known) if *known == name));
        let (path, feature) = if is_known {
            (member(&given_up.path, &name), Feature::Absent)
        } else {
            (given_up.path, Feature::Undeclared)
        };
        lost.push(Lost { path, feature, refutation: Some(refutation) });
        narrowed = Some(given_up.narrowed);
    }
    let absent = unused::ways(&caller.value, &provider.value, work);
    let mut absent: Vec<_> = absent.iter().map(|way| place::pointer(way)).collect();
    absent.retain(|path| lost.iter().all(|lost| lost.path != *path));
    lost.extend(absent.into_iter().map(|path| Lost { path, feature: Feature::Absent, refutation: None }));
    Outcome::partial(lost)
}

fn member(at: &str, name: &str) -> String {
    let mut path = if at == "/" { String::new() } else { at.to_owned() };
    capd_proto::cbor::json::push_token(&mut path, name);
    path
}
