//! Reads groups, grants and policy files into [`Rules`], or every mistake with file and line.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::fmt;
use std::path::{Path, PathBuf};

use capd_proto::capability::{CapabilityName, CapabilityPattern};
use capd_proto::identity::Did;
use cedar_policy::{Effect, EntityUid, Policy, PolicyId, PolicySet, ValidationMode, Validator};
use miette::Diagnostic;

use super::decide::{Caller, Subject};
use super::grant::{self, Grant, OWN_AGENT};
use super::model::{ID, MODEL, Named, PERMISSIONS};

/// The sources of rules.
#[derive(Clone, Debug, Default)]
pub struct Source {
    /// The sidecar's own agent, which a built-in rule permits everything; none without an identity.
    pub own: Option<Did>,
    /// Groups by name, with the DIDs of their members.
    pub groups: Vec<(String, Vec<Did>)>,
    /// Grants, in their order.
    pub grants: Vec<Grant>,
    /// Policy files and their texts.
    pub files: Vec<(PathBuf, String)>,
}

/// The rules; rebuilt for each change, never modified.
#[derive(Clone, Debug)]
pub struct Rules {
    policies: PolicySet,
    /// Names of the policies in the order in which they are shown, each with what it was written in.
    order: Vec<Shown>,
    groups: HashMap<Did, Vec<String>>,
    /// Callers that a rule names.
    callers: HashSet<String>,
    own: Option<Did>,
    /// The permissions that a policy grants.
    granted: HashMap<String, Vec<String>>,
    has_forbids: bool,
    warnings: Vec<Mistake>,
    named: Vec<Mention>,
}

/// Callers that no rule tells apart: whatever is decided of one of them holds for all.
///
/// A caller has no attributes, so all that a rule can see of it is whether it is one that the rule names, and its groups.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Class {
    named: [Option<Did>; 2],
    groups: BTreeSet<String>,
}

/// A name, or a namespace, that a rule which permits something speaks of.
#[derive(Clone, Debug)]
struct Mention {
    file: PathBuf,
    line: usize,
    pattern: CapabilityPattern,
}

/// One rule as it is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Shown {
    /// Its name.
    pub id: String,
    /// Its place: a file and line, or its source.
    pub origin: String,
    /// The policy in Cedar.
    pub text: String,
}

/// One mistake, or likely mistake, in a policy file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistake {
    /// The file.
    pub file: PathBuf,
    /// The line, counted from 1; 0 is the file as a whole.
    pub line: usize,
    /// What is wrong, and what is accepted if that helps.
    pub problem: String,
}

impl fmt::Display for Mistake {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.file.display())?;
        if self.line > 0 {
            write!(f, "{}:", self.line)?;
        }
        write!(f, " {}", self.problem)
    }
}

/// Every mistake of the policy files, one per line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mistakes(pub Vec<Mistake>);

impl fmt::Display for Mistakes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines: Vec<_> = self.0.iter().map(ToString::to_string).collect();
        f.write_str(&lines.join("\n"))
    }
}

impl std::error::Error for Mistakes {}

impl Rules {
    /// Reads policies and grants into rules.
    ///
    /// **Errors:** every mistake: invalid Cedar, terms outside the model, invalid or unknown names, two rules of one
    /// name, more than [`POLICIES_MAX`] rules.
    pub fn new(source: &Source) -> Result<Self, Mistakes> {
        let mut reading = Reading {
            names: source.groups.iter().map(|(name, _)| name.as_str()).collect(),
            ..Reading::default()
        };
        if let Some(own) = &source.own {
            reading.made("the sidecar's own agent", &grant::own_agent(own));
        }
        for (number, grant) in source.grants.iter().enumerate() {
            let origin = format!("[[allow]] {}", number + 1);
            reading.made(&origin, &grant.policy(&format!("allow-{}", number + 1)));
        }
        for (file, text) in &source.files {
            reading.file(file, text);
        }
        let Reading { policies, order, granted, callers, mistakes, warnings, named, .. } = reading;
        if !mistakes.is_empty() {
            return Err(Mistakes(mistakes));
        }
        let mut groups: HashMap<Did, Vec<String>> = HashMap::new();
        for (name, members) in &source.groups {
            for member in members {
                groups.entry(member.clone()).or_default().push(name.clone());
            }
        }
        let has_forbids = policies.policies().any(|policy| policy.effect() == Effect::Forbid);
        let own = source.own.clone();
        Ok(Self { policies, order, groups, callers, own, granted, has_forbids, warnings, named })
    }

    /// The rules in the order in which they were read.
    pub fn shown(&self) -> &[Shown] {
        &self.order
    }

    /// Likely mistakes that are valid.
    pub fn warnings(&self) -> &[Mistake] {
        &self.warnings
    }

    /// Rules that permit a name or a namespace that none of these capabilities has. Forbidding rules are ignored: they
    /// may refer to what others serve.
    pub fn undeclared(&self, declared: &[&CapabilityName]) -> Vec<Mistake> {
        let is_declared =
            |pattern: &CapabilityPattern| declared.iter().any(|name| pattern.matches(name.as_str()));
        let undeclared = self.named.iter().filter(|mention| !is_declared(&mention.pattern));
        undeclared
            .map(|Mention { file, line, pattern }| {
                let problem = format!("no declared capability matches {pattern}");
                Mistake { file: file.clone(), line: *line, problem }
            })
            .collect()
    }

    /// Whether any rule forbids anything; otherwise the own agent may do everything.
    pub const fn has_forbids(&self) -> bool {
        self.has_forbids
    }

    /// The same subject, served by the sidecar's own agent.
    pub fn here<'a>(&'a self, subject: Subject<'a>) -> Subject<'a> {
        Subject { provider: self.own.as_ref().map_or("", Did::as_str), ..subject }
    }

    /// The callers that are decided on alike.
    pub(super) fn class(&self, caller: Caller<'_>) -> Class {
        let dids = [Some(caller.did), caller.alias];
        let is_named = |did: &&Did| self.callers.contains(did.as_str());
        let groups = dids.into_iter().flatten().flat_map(|did| self.groups_of(did)).cloned().collect();
        Class { named: dids.map(|did| did.filter(is_named).cloned()), groups }
    }

    /// The callers that rules or groups name, in order.
    pub(super) fn named_callers(&self) -> BTreeSet<Did> {
        let named = self.callers.iter().filter_map(|did| Did::parse(did).ok());
        named.chain(self.groups.keys().cloned()).collect()
    }

    /// The same groups and grants with other policies.
    pub(super) fn with_policies(&self, policies: PolicySet) -> Self {
        Self { policies, ..self.clone() }
    }

    pub(super) const fn policies(&self) -> &PolicySet {
        &self.policies
    }

    pub(super) fn effect(&self, id: &PolicyId) -> Effect {
        self.policies.policy(id).map_or(Effect::Forbid, Policy::effect)
    }

    pub(super) fn groups_of(&self, did: &Did) -> &[String] {
        self.groups.get(did).map_or(&[], Vec::as_slice)
    }

    /// Of the permissions declared, those that none of these rules grants.
    pub(super) fn missing(&self, by: &[String], declared: &[String]) -> Vec<String> {
        let granted = || by.iter().filter_map(|id| self.granted.get(id)).flatten();
        let is_missing = |permission: &&String| !granted().any(|grant| covers(grant, permission));
        declared.iter().filter(is_missing).cloned().collect()
    }
}

/// Whether a granted permission covers a declared one.
fn covers(granted: &str, declared: &str) -> bool {
    match granted.strip_suffix('*') {
        Some("") => true,
        Some(scope) if scope.ends_with(':') => declared.starts_with(scope),
        Some(_) | None => granted == declared,
    }
}

#[derive(Default)]
struct Reading<'a> {
    /// Names of groups.
    names: BTreeSet<&'a str>,
    policies: PolicySet,
    order: Vec<Shown>,
    granted: HashMap<String, Vec<String>>,
    callers: HashSet<String>,
    mistakes: Vec<Mistake>,
    warnings: Vec<Mistake>,
    named: Vec<Mention>,
}

impl Reading<'_> {
    /// Takes a policy that was made here.
    fn made(&mut self, origin: &str, text: &str) {
        match text.parse::<PolicySet>() {
            Ok(set) => {
                for policy in set.policies() {
                    self.take(policy, Path::new(origin), 0, text);
                }
            }
            // Whatever a grant may hold is written so that Cedar reads it; a test holds that.
            Err(error) => self.wrong(Path::new(origin), 0, error.to_string()),
        }
    }

    fn file(&mut self, file: &Path, text: &str) {
        let set: PolicySet = match text.parse() {
            Ok(set) => set,
            Err(error) => {
                for (line, problem) in told(&error, text) {
                    self.wrong(file, line, problem);
                }
                return;
            }
        };
        for template in set.templates() {
            let line = line_of(text.split(template.to_cedar().trim()).next().unwrap_or_default());
            let problem = "a template with slots; accepted: policies that name their principal and resource";
            self.wrong(file, line, problem.to_owned());
        }
        let validated = Validator::new(MODEL.schema.clone()).validate(&set, ValidationMode::Strict);
        for error in validated.validation_errors() {
            for (line, problem) in told(error, text) {
                self.wrong(file, line, problem);
            }
        }
        for warning in validated.validation_warnings() {
            let (line, problem) = (label_line(warning, text), warning.to_string());
            self.warnings.push(Mistake { file: file.to_owned(), line, problem });
        }
        let mut policies: Vec<_> = set.policies().collect();
        // Cedar counts them as they stand: policy0, policy1, …
        policies.sort_by_key(|policy| {
            let id: &str = policy.id().as_ref();
            id.trim_start_matches(|c: char| !c.is_ascii_digit()).parse().unwrap_or(usize::MAX)
        });
        let mut from = 0;
        for policy in policies {
            let written = policy.to_cedar().unwrap_or_default();
            let at = text[from..].find(written.trim()).map_or(from, |at| from + at);
            from = at + written.trim().len();
            let line = line_of(&text[..at]);
            self.literals(file, line, policy);
            self.take(policy, file, line, written.trim());
        }
    }

    /// Takes a policy under the name that it gives itself, or one after its file and place.
    fn take(&mut self, policy: &Policy, file: &Path, line: usize, text: &str) {
        let stem = file.file_stem().map_or("policy".into(), std::ffi::OsStr::to_string_lossy);
        let id = policy.annotation(ID).map_or_else(|| format!("{stem}:{line}"), str::to_owned);
        if self.order.iter().any(|shown| shown.id == id) {
            return self.wrong(
                file,
                line,
                format!("a second rule has the @id {id:?}; accepted: each @id once"),
            );
        }
        if line > 0 && id == OWN_AGENT {
            return self.wrong(file, line, format!("{OWN_AGENT:?} is the name of a built-in rule"));
        }
        if self.order.len() >= POLICIES_MAX {
            return self.wrong(file, line, format!("more than {POLICIES_MAX} rules"));
        }
        let granted: Vec<_> = policy
            .annotation(PERMISSIONS)
            .unwrap_or_default()
            .split_ascii_whitespace()
            .map(str::to_owned)
            .collect();
        if let Some(wrong) = granted.iter().find(|permission| !is_permission(permission)) {
            let problem = format!(
                "@permissions: {wrong:?} is none; accepted: scope:verb, scope:* or *, separated by spaces"
            );
            return self.wrong(file, line, problem);
        }
        if !granted.is_empty() && policy.effect() == Effect::Forbid {
            return self.wrong(file, line, "a rule that forbids grants no permissions".to_owned());
        }
        if self.policies.add(policy.new_id(PolicyId::new(&id))).is_err() {
            return self.wrong(
                file,
                line,
                format!("a second rule has the @id {id:?}; accepted: each @id once"),
            );
        }
        for literal in policy.entity_literals() {
            if let Named::Caller(did) = MODEL.named(&literal) {
                self.callers.insert(did.to_owned());
            }
        }
        if policy.effect() == Effect::Permit {
            let patterns = policy.entity_literals().into_iter().filter_map(|literal| pattern(&literal));
            self.named.extend(patterns.map(|pattern| Mention { file: file.to_owned(), line, pattern }));
        }
        let origin = if line > 0 { format!("{}:{line}", file.display()) } else { file.display().to_string() };
        self.granted.insert(id.clone(), granted);
        self.order.push(Shown { id, origin, text: text.trim_end().to_owned() });
    }

    /// Names in a policy that can never be anybody's.
    fn literals(&mut self, file: &Path, line: usize, policy: &Policy) {
        for literal in policy.entity_literals() {
            let problem = match MODEL.named(&literal) {
                Named::Caller(did) => {
                    Did::parse(did).err().map(|error| format!("{did:?} is no DID: {error}"))
                }
                Named::Group(name) => {
                    (!self.names.contains(name)).then(|| format!("there is no group {name:?} in [[groups]]"))
                }
                Named::Namespace(labels) => {
                    let pattern = format!("{labels}.*").parse::<CapabilityPattern>();
                    pattern.err().map(|error| format!("{labels:?} is no namespace: {error}"))
                }
                Named::Capability(name) => {
                    let is_name = CapabilityName::check(name);
                    is_name.err().map(|error| format!("{name:?} is no capability's name: {error}"))
                }
                // The model knows them, so validating has said what is wrong with others.
                Named::Action(_) | Named::Other => None,
            };
            if let Some(problem) = problem {
                self.wrong(file, line, problem);
            }
        }
    }

    fn wrong(&mut self, file: &Path, line: usize, problem: String) {
        self.mistakes.push(Mistake { file: file.to_owned(), line, problem });
    }
}

/// The capabilities that an entity of a policy stands for; none for other entities, and for such as are no name.
fn pattern(literal: &EntityUid) -> Option<CapabilityPattern> {
    match MODEL.named(literal) {
        Named::Capability(name) => name.parse().ok().map(CapabilityPattern::Name),
        Named::Namespace(labels) => format!("{labels}.*").parse().ok(),
        Named::Caller(_) | Named::Group(_) | Named::Action(_) | Named::Other => None,
    }
}

fn is_permission(text: &str) -> bool {
    text == "*" || text.split_once(':').is_some_and(|(scope, verb)| !scope.is_empty() && !verb.is_empty())
}

/// The lines and words of an error and of those beside it.
fn told(error: &dyn Diagnostic, text: &str) -> Vec<(usize, String)> {
    let mut told = vec![(label_line(error, text), words(error))];
    for other in error.related().into_iter().flatten() {
        told.push((label_line(other, text), words(other)));
    }
    told.dedup();
    told
}

fn words(error: &dyn Diagnostic) -> String {
    match error.help() {
        Some(help) => format!("{error}; {help}"),
        None => error.to_string(),
    }
}

fn label_line(error: &dyn Diagnostic, text: &str) -> usize {
    let label = error.labels().and_then(|mut labels| labels.next());
    label.map_or(0, |label| line_of(&text.as_bytes()[..label.offset().min(text.len())]))
}

/// The line that begins behind `before`, counted from 1.
fn line_of(before: impl AsRef<[u8]>) -> usize {
    1 + before.as_ref().iter().filter(|byte| **byte == b'\n').count()
}

/// Most rules; ours.
pub const POLICIES_MAX: usize = 4_096;
/// Largest policy file, in bytes; ours.
pub const FILE_BYTES_MAX: u64 = 1024 * 1024;
