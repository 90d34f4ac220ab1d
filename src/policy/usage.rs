//! Finds rules that decide nothing, and permits that a forbidding rule overrules: capabilities in; such rules out.
//!
//! The only callers that rules tell apart are those that they name, and everybody else; each of them is decided on.

use std::collections::BTreeSet;

use capd_proto::capability::CapabilityId;
use capd_proto::identity::Did;
use cedar_policy::{Effect, PolicySet};

use super::cases::Declared;
use super::rules::Rules;
use super::{Action, Caller, Subject, Verdict};

/// What the rules come to for the capabilities that are served.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Rules that no decision names.
    pub unused: Vec<String>,
    /// Calls that some rules permit and others forbid, so that they are denied.
    pub overruled: Vec<Overruled>,
}

/// Rules that contradict each other about one caller and one capability.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overruled {
    /// The capability.
    pub capability: CapabilityId,
    /// A caller that the rules name, or one that stands for everybody else.
    pub caller: Did,
    /// Rules that permit the call.
    pub permits: Vec<String>,
    /// Rules that forbid it, and win.
    pub forbids: Vec<String>,
}

impl Rules {
    /// Decides on every caller that the rules tell apart, and each of these capabilities.
    pub fn usage(&self, declared: &[Declared]) -> Usage {
        let stranger = Did::parse(STRANGER).ok();
        let callers: Vec<Did> = self.named_callers().into_iter().chain(stranger).collect();
        let permitting = self.permitting();
        let mut decided = BTreeSet::new();
        let mut overruled = Vec::new();
        let pairs = declared.iter().flat_map(|declared| callers.iter().map(move |caller| (declared, caller)));
        let mut is_whole = true;
        for (index, (declared, did)) in pairs.enumerate() {
            if index == PAIRS_MAX {
                is_whole = false;
                break;
            }
            let subject = Subject {
                name: declared.id.name.as_str(),
                version: Some(&declared.id.version),
                category: &declared.category,
                permissions: &declared.permissions,
                provider: "",
            };
            let (caller, subject) = (Caller { did, alias: None }, self.here(subject));
            for action in [Action::Query, Action::Invoke] {
                let verdict = self.decide(caller, action, &subject);
                decided.extend(verdict.rules().iter().cloned());
                let (Verdict::Forbidden { by: forbids }, Action::Invoke) = (verdict, action) else {
                    continue;
                };
                let permits = permitting.decide(caller, action, &subject).rules().to_vec();
                decided.extend(permits.iter().cloned());
                if !permits.is_empty() && overruled.len() < OVERRULED_MAX {
                    let (capability, caller) = (declared.id.clone(), did.clone());
                    overruled.push(Overruled { capability, caller, permits, forbids });
                }
            }
        }
        // Where nothing is served, or not everything was looked at, nothing is known of use.
        let is_unused = |id: &&String| is_whole && !declared.is_empty() && !decided.contains(*id);
        let unused = self.shown().iter().map(|rule| &rule.id).filter(is_unused).cloned().collect();
        Usage { unused, overruled }
    }

    /// The rules without those that forbid.
    fn permitting(&self) -> Self {
        let permits = self.policies().policies().filter(|policy| policy.effect() == Effect::Permit).cloned();
        // They were together in a set before, so their names are different.
        self.with_policies(PolicySet::from_policies(permits).unwrap_or_default())
    }
}

/// A caller that no rule names.
const STRANGER: &str = "did:web:everybody-else.invalid";
/// Most capabilities and callers that are looked at; ours, some seconds' work.
const PAIRS_MAX: usize = 20_000;
/// Most contradictions that are told.
const OVERRULED_MAX: usize = 100;

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::super::Source;
    use super::*;

    fn rules(text: &str) -> Rules {
        Rules::new(&Source { files: vec![(PathBuf::from("p.cedar"), text.to_owned())], ..Source::default() })
            .unwrap()
    }

    fn declared(id: &str) -> Declared {
        Declared { id: id.parse().unwrap(), category: String::new(), permissions: Vec::new() }
    }

    const RULES: &str = r#"
@id("everybody") permit (principal, action, resource == Capability::"a.b.c");
@id("not-them") forbid (principal == Caller::"did:web:x.example", action, resource);
@id("nothing") permit (principal == Caller::"did:web:y.example", action, resource == Capability::"a.b.gone");
"#;

    #[test]
    fn a_rule_that_decides_nothing_is_named_and_so_is_one_that_is_overruled() {
        let usage = rules(RULES).usage(&[declared("a.b.c:1.0.0")]);
        assert_eq!(usage.unused, ["nothing"]);
        let [pair] = &usage.overruled[..] else { panic!("{usage:?}") };
        assert_eq!(
            (pair.caller.as_str(), pair.capability.to_string()),
            ("did:web:x.example", "a.b.c:1.0.0".into())
        );
        assert_eq!(
            (&pair.permits[..], &pair.forbids[..]),
            (&["everybody".to_owned()][..], &["not-them".to_owned()][..])
        );
    }

    #[test]
    fn without_anything_served_nothing_is_said_of_use() {
        assert_eq!(rules(RULES).usage(&[]), Usage::default());
    }
}
