//! Implements `check`: old and new declarations in; broken callers, as a report and an exit code, out.

use std::fmt::Write as _;

use capd::schema::compat::{Compatibility, Verdict};
use serde_json::{Value, json};

use super::annotate;
use super::needed::{self, Met};
use super::operand::{Found, Held, Operands};
use super::{Step, report};
use crate::args::{CheckArgs, CheckFormat, CheckMode};
use crate::failure::{Exit, Failure};
use crate::{Sidecar, output};

/// Checks new declarations against earlier ones; what breaks ends with [`Exit::SchemaViolation`].
pub(crate) async fn check(sidecar: &Sidecar, args: CheckArgs, json: bool) -> Result<(), Failure> {
    let mut operands = Operands::new(sidecar);
    let (old, new) = match args.declarations.split_last() {
        Some((new, old)) => (old, new),
        None => return Err(Failure::usage("nothing to check")),
    };
    let new = operands.all(new).await?;
    let mut earlier = Found::default();
    for text in old {
        let Found { held, needed, .. } = operands.all(text).await?;
        earlier.held.extend(held);
        earlier.needed.extend(needed);
    }
    let findings = Findings {
        checks: pairs(&earlier.held, &new.held, args.transitive)
            .into_iter()
            .map(|(old, new)| Check::run(old, new, args.mode))
            .collect(),
        met: needed::met(&earlier, &new),
        gone: if new.is_whole { gone(&earlier.held, &new) } else { Vec::new() },
        new: &new.held,
    };
    findings.print(&args, json)?;
    findings.ended()
}

/// All that one run has found.
struct Findings<'a> {
    checks: Vec<Check<'a>>,
    met: Vec<Met<'a>>,
    gone: Vec<&'a Held>,
    new: &'a [Held],
}

impl Findings<'_> {
    fn all(&self) -> usize {
        self.checks.len() + self.gone.len() + self.met.iter().filter(|met| met.is_decided()).count()
    }

    fn broken(&self) -> usize {
        let checks = self.checks.iter().filter(|check| !check.is_kept()).count();
        checks + self.gone.len() + self.met.iter().filter(|met| !met.is_kept()).count()
    }

    fn print(&self, args: &CheckArgs, json: bool) -> Result<(), Failure> {
        if json {
            let checks: Vec<_> = self.checks.iter().map(Check::json).collect();
            let met: Vec<_> = self.met.iter().map(Met::json).collect();
            let gone: Vec<_> = self.gone.iter().map(|held| held.id.name.as_str()).collect();
            let (is_ok, mode) = (self.broken() == 0, args.mode.as_str());
            let document =
                json!({"ok": is_ok, "mode": mode, "checks": checks, "requires": met, "gone": gone});
            return output::print_json(&document);
        }
        let mut text = String::new();
        self.checks.iter().for_each(|check| check.text(&mut text));
        self.met.iter().for_each(|met| met.text(&mut text));
        for held in &self.gone {
            let _ = writeln!(text, "{}\n  ❌ gone: the new declaration does not have it", held.id.name);
        }
        if args.format == CheckFormat::Github {
            self.checks.iter().filter(|check| !check.is_kept()).for_each(|check| {
                annotate::check(&mut text, check.new, &check.findings());
            });
            self.met.iter().filter(|met| !met.is_kept()).for_each(|met| annotate::met(&mut text, met));
            self.gone.iter().for_each(|held| annotate::gone(&mut text, held, self.new));
        }
        output::print(&text)
    }

    fn ended(&self) -> Result<(), Failure> {
        let (all, broken) = (self.all(), self.broken());
        if all == 0 {
            return Err(Failure::usage("nothing to check: the new declaration has no earlier version")
                .hint("name the earlier declarations, or those that require it, first, then the new one: capctl check OLD... NEW"));
        }
        if broken == 0 {
            return Ok(());
        }
        Err(Failure::usage(format!("{broken} of {all} checks broken")).exit(Exit::SchemaViolation))
    }
}

/// What is held against what: an id that stands on both sides against itself, one that is new against the version
/// before it, or against all before it, wherever they stand.
fn pairs<'a>(old: &'a [Held], new: &'a [Held], transitive: bool) -> Vec<(&'a Held, &'a Held)> {
    let mut pairs = Vec::new();
    for held in new {
        let same: Vec<_> = old.iter().filter(|old| old.id == held.id).collect();
        if !same.is_empty() {
            pairs.extend(same.into_iter().map(|old| (old, held)));
            continue;
        }
        let of_name = |other: &&Held| other.id.name == held.id.name;
        let mut earlier: Vec<_> = old
            .iter()
            .chain(new)
            .filter(of_name)
            .filter(|other| other.id.version < held.id.version)
            .collect();
        earlier.sort_by(|one, other| one.id.version.total_cmp(&other.id.version));
        // The same version from both sides is held against itself already.
        earlier.dedup_by(|one, other| one.id == other.id);
        if transitive {
            pairs.extend(earlier.into_iter().map(|earlier| (earlier, held)));
        } else if let Some(last) = earlier.pop() {
            pairs.push((last, held));
        } else if !new.iter().filter(of_name).any(|other| other.id.version > held.id.version) {
            // All there was of it is newer: the version goes back.
            let later = old.iter().filter(of_name);
            let newest = later.max_by(|one, other| one.id.version.total_cmp(&other.id.version));
            pairs.extend(newest.map(|newest| (newest, held)));
        }
    }
    pairs
}

/// What was declared, and is not under any version: the newest each.
fn gone<'a>(old: &'a [Held], new: &Found) -> Vec<&'a Held> {
    let is_there = |old: &Held| new.held.iter().any(|held| held.id.name == old.id.name);
    let mut gone: Vec<_> = old.iter().filter(|old| !is_there(old)).collect();
    gone.sort_by(|one, other| {
        one.id.name.cmp(&other.id.name).then_with(|| other.id.version.total_cmp(&one.id.version))
    });
    gone.dedup_by(|one, other| one.id.name == other.id.name);
    gone
}

/// One declaration held against an earlier one.
struct Check<'a> {
    old: &'a Held,
    new: &'a Held,
    /// Callers of the old one with the new one.
    backward: Option<Compatibility>,
    /// Callers of the new one with the old one.
    forward: Option<Compatibility>,
    step: Step,
}

impl<'a> Check<'a> {
    fn run(old: &'a Held, new: &'a Held, mode: CheckMode) -> Self {
        let forward = || super::compared(&new.contract, &old.contract);
        let backward = super::compared(&old.contract, &new.contract);
        let asked = (mode != CheckMode::Backward).then(forward);
        let verdict = || asked.as_ref().map_or_else(|| forward().verdict(), Compatibility::verdict);
        let step = Step::between(old, new, backward.verdict(), verdict);
        let backward = (mode != CheckMode::Forward).then_some(backward);
        Self { old, new, backward, forward: asked, step }
    }

    fn is_kept(&self) -> bool {
        // What is not proven is not kept.
        let is_full =
            |found: &Option<Compatibility>| found.as_ref().is_none_or(|f| f.verdict() == Verdict::Full);
        is_full(&self.backward)
            && is_full(&self.forward)
            && self.withdrawn().is_none()
            && self.step.is_enough != Some(false)
    }

    /// What callers of the old one rely on besides its schemas, and the new one does not say.
    fn withdrawn(&self) -> Option<&'static str> {
        let is_withdrawn = self.old.by_id && !self.new.by_id && !self.new.idempotent;
        // FLEET X9: a sidecar moves calls of the old one, and at the new one they would take effect again.
        (self.backward.is_some() && is_withdrawn).then_some(BY_ID_WITHDRAWN)
    }

    /// What is broken, a sentence each.
    fn findings(&self) -> Vec<String> {
        let mut findings = Vec::new();
        if let Some(found) = &self.backward {
            report::broken(&mut findings, &format!("a caller of {}", self.old.shown()), found);
        }
        if let Some(found) = &self.forward {
            report::broken(&mut findings, &format!("a caller of {}", self.new.shown()), found);
        }
        findings.extend(self.withdrawn().map(str::to_owned));
        if self.step.is_enough == Some(false) {
            findings.push(self.step.sentence());
        }
        findings
    }

    fn text(&self, out: &mut String) {
        let (old, new) = (self.old, self.new);
        let _ = writeln!(out, "{}", report::pair(old, new));
        if let Some(found) = &self.backward {
            report::direction(out, &format!("a caller of {}", old.shown()), &new.shown(), found);
        }
        if let Some(found) = &self.forward {
            report::direction(out, &format!("a caller of {}", new.shown()), &old.shown(), found);
        }
        if let Some(withdrawn) = self.withdrawn() {
            let _ = writeln!(out, "  ❌ {withdrawn}");
        }
        let sign = if self.step.is_enough == Some(false) { "❌ version: " } else { "" };
        let _ = writeln!(out, "  {sign}{}", self.step.sentence());
    }

    fn json(&self) -> Value {
        let mut document = json!({
            "ok": self.is_kept(),
            "old": report::held_json(self.old),
            "new": report::held_json(self.new),
        });
        for (key, found) in [("backward", &self.backward), ("forward", &self.forward)] {
            if let Some(found) = found {
                document[key] = found.json();
            }
        }
        if let Some(withdrawn) = self.withdrawn() {
            document["withdrawn"] = json!([withdrawn]);
        }
        self.step.add_to(&mut document);
        document
    }
}

const BY_ID_WITHDRAWN: &str = "idempotency: by-id is withdrawn: a call that a sidecar moves to another provider would take effect again";

#[cfg(test)]
mod tests {
    use capd::schema::compat::{Contract, Terms, version};
    use capd_proto::capability::CapabilityId;
    use capd_proto::negotiate::Served;

    use super::*;

    fn held(id: &str) -> Held {
        let contract = Contract { input: Terms::Undeclared, output: Terms::Undeclared };
        let id: CapabilityId = id.parse().unwrap();
        let (served, source) = (Served::only(id.version.clone()), String::new());
        Held { served, id, source, place: None, contract, idempotent: false, by_id: false }
    }

    fn all(ids: &[&str]) -> Vec<Held> {
        ids.iter().map(|id| held(id)).collect()
    }

    fn found(old: &[&str], new: &[&str], transitive: bool) -> Vec<String> {
        let (old, new) = (all(old), all(new));
        let pairs = pairs(&old, &new, transitive);
        pairs.iter().map(|(old, new)| format!("{} {}", old.id.version, new.id.version)).collect()
    }

    #[test]
    fn a_new_version_is_checked_against_the_one_before_or_all() {
        let old = ["a.b.c:1.0.0", "a.b.c:1.5.0", "a.b.d:7.0.0"];
        assert_eq!(found(&old, &["a.b.c:2.0.0"], false), ["1.5.0 2.0.0"]);
        assert_eq!(found(&old, &["a.b.c:2.0.0"], true), ["1.0.0 2.0.0", "1.5.0 2.0.0"]);
        assert_eq!(found(&old, &["a.b.c:1.2.0"], true), ["1.0.0 1.2.0"]);
        assert_eq!(found(&old, &["a.b.e:1.0.0"], true), [""; 0]);
    }

    #[test]
    fn what_was_declared_before_is_checked_only_for_having_changed() {
        let both = ["a.b.c:1.0.0", "a.b.c:2.0.0"];
        assert_eq!(found(&both, &both, true), ["1.0.0 1.0.0", "2.0.0 2.0.0"]);
        assert_eq!(found(&both[..1], &both, true), ["1.0.0 1.0.0", "1.0.0 2.0.0"]);
    }

    #[test]
    fn a_declaration_with_several_versions_is_its_own_history() {
        let three = ["a.b.c:1.0.0", "a.b.c:2.0.0", "a.b.c:1.5.0"];
        assert_eq!(found(&[], &three, false), ["1.5.0 2.0.0", "1.0.0 1.5.0"]);
        assert_eq!(found(&[], &three, true), ["1.0.0 2.0.0", "1.5.0 2.0.0", "1.0.0 1.5.0"]);
    }

    #[test]
    fn a_version_that_goes_back_is_held_against_the_newest() {
        assert_eq!(found(&["a.b.c:2.0.0", "a.b.c:2.1.0"], &["a.b.c:1.9.0"], false), ["2.1.0 1.9.0"]);
    }

    #[test]
    fn what_a_whole_declaration_leaves_out_is_gone() {
        let new = Found { held: all(&["a.b.c:2.0.0"]), is_whole: true, ..Found::default() };
        let old = all(&["a.b.c:1.0.0", "a.b.d:1.0.0", "a.b.d:1.1.0"]);
        let gone: Vec<_> = gone(&old, &new).iter().map(|held| held.id.to_string()).collect();
        assert_eq!(gone, ["a.b.d:1.1.0"]);
    }

    #[test]
    fn withdrawing_that_ids_are_remembered_breaks_callers() {
        let (plain, by_id) = (held("a.b.c:1.0.0"), Held { by_id: true, ..held("a.b.c:1.0.0") });
        let later = Held { idempotent: true, ..held("a.b.c:1.0.0") };
        let check = Check::run(&by_id, &plain, CheckMode::Backward);
        assert!(!check.is_kept());
        assert_eq!(check.findings(), [BY_ID_WITHDRAWN]);
        assert!(Check::run(&plain, &by_id, CheckMode::Full).is_kept(), "it may be promised later");
        assert!(Check::run(&by_id, &by_id, CheckMode::Full).is_kept());
        assert!(Check::run(&by_id, &later, CheckMode::Full).is_kept(), "it promises more");
    }

    #[test]
    fn the_same_under_the_same_id_is_kept() {
        let (one, two) = (held("a.b.c:1.0.0"), held("a.b.c:1.0.0"));
        assert!(Check::run(&one, &two, CheckMode::Full).is_kept());
        let mut changed = held("a.b.c:1.0.0");
        changed.contract.output = Terms::read(br#"{"type": "string"}"#).unwrap();
        let check = Check::run(&one, &changed, CheckMode::Backward);
        assert_eq!(check.step.needed, Some(version::Bump::Minor));
        assert!(!check.is_kept(), "the version stays");
    }
}
