//! Finds rules that permit calls but grant too few permissions: capabilities with their declared permissions in, such
//! rules out.
//!
//! A caller under such a rule is refused without a reason, so only the provider's owner can see why.

use std::collections::BTreeSet;
use std::path::PathBuf;

use capd_proto::identity::Did;

use super::cases::Declared;
use super::rules::{Mistake, Rules};
use super::{Action, Caller, Subject, Verdict};

impl Rules {
    /// Rules that permit a call but not its permissions, each once, in the order of the capabilities: for every caller
    /// that the rules name, and for one that they do not.
    pub fn ungranted(&self, declared: &[Declared]) -> Vec<Mistake> {
        let stranger = Did::parse(STRANGER).ok();
        let callers: Vec<Did> = self.named_callers().into_iter().chain(stranger).collect();
        let declaring = declared.iter().filter(|declared| !declared.permissions.is_empty());
        let pairs = declaring.flat_map(|declared| callers.iter().map(move |caller| (declared, caller)));
        let mut seen = BTreeSet::new();
        let mut found = Vec::new();
        for (declared, caller) in pairs.take(PAIRS_MAX) {
            let subject = Subject {
                name: declared.id.name.as_str(),
                version: Some(&declared.id.version),
                category: &declared.category,
                permissions: &declared.permissions,
                provider: "",
            };
            let verdict =
                self.decide(Caller { did: caller, alias: None }, Action::Invoke, &self.here(subject));
            let Verdict::Unpermitted { by, missing } = verdict else { continue };
            if seen.insert((declared.id.to_string(), by.clone(), missing.clone())) {
                let problem = format!(
                    "permits calls of {} but does not grant {}, which it declares: such calls are refused",
                    declared.id,
                    missing.join(", ")
                );
                found.push(Mistake { file: self.origins(&by), line: 0, problem });
            }
        }
        found
    }

    /// Where these rules stand.
    fn origins(&self, ids: &[String]) -> PathBuf {
        let rules = self.shown().iter().filter(|rule| ids.contains(&rule.id));
        PathBuf::from(rules.map(|rule| rule.origin.as_str()).collect::<Vec<_>>().join(", "))
    }
}

/// A caller that no rule names: who may call by a rule for everybody.
const STRANGER: &str = "did:web:stranger.invalid";
/// Most capabilities and callers that are looked at; ours, some seconds' work.
const PAIRS_MAX: usize = 50_000;
