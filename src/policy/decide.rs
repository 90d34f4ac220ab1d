//! Decides one case: a caller, an action and a capability in; whether the rules permit it, and which rules decided,
//! out.

use std::collections::{HashMap, HashSet};

use capd_proto::capability::{CapabilityId, Version};
use capd_proto::identity::Did;
use capd_proto::message::Descriptor;
use cedar_policy::{
    AuthorizationError, Authorizer, Context, Decision, Effect, Entities, Entity, PolicyId, Request,
    RestrictedExpression,
};

use super::Action;
use super::model::{MODEL, number, text};
use super::rules::Rules;

/// A caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller<'a> {
    /// The DID of its key, proven by its link.
    pub did: &'a Did,
    /// Another DID that it uses, whose document has that key.
    pub alias: Option<&'a Did>,
}

/// The subject of a request: a version, or a bare name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subject<'a> {
    /// The capability's name.
    pub name: &'a str,
    /// Its version; none for a bare name.
    pub version: Option<&'a Version>,
    /// Its category; empty if it has none.
    pub category: &'a str,
    /// The permissions that it declares.
    pub permissions: &'a [String],
    /// The DID of the agent that serves it; empty if no provider is chosen.
    pub provider: &'a str,
}

impl<'a> Subject<'a> {
    /// A bare name, whether or not anybody serves it.
    pub const fn named(name: &'a str) -> Self {
        Self { name, version: None, category: "", permissions: &[], provider: "" }
    }

    /// A version that is no longer served.
    pub fn gone(id: &'a CapabilityId) -> Self {
        Self { version: Some(&id.version), ..Self::named(id.name.as_str()) }
    }

    /// The subject of a descriptor.
    pub fn of(descriptor: &'a Descriptor) -> Self {
        Self {
            name: descriptor.id.name.as_str(),
            version: Some(&descriptor.id.version),
            category: descriptor.category.as_deref().unwrap_or_default(),
            permissions: &descriptor.permissions,
            provider: "",
        }
    }
}

/// The decision, and the rules that made it, by ascending name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// These permit it.
    Permitted {
        /// The rules.
        by: Vec<String>,
    },
    /// These forbid it, whatever permits it.
    Forbidden {
        /// The rules.
        by: Vec<String>,
    },
    /// No rule permits it.
    Ungranted,
    /// These permit it, but the capability declares permissions that none of them grants.
    Unpermitted {
        /// The rules.
        by: Vec<String>,
        /// The permissions that are missing, as the capability declares them.
        missing: Vec<String>,
    },
    /// These may forbid it, but fail with an error; so it is not permitted.
    Failed {
        /// The rules.
        by: Vec<String>,
    },
}

impl Verdict {
    /// Whether it is permitted.
    pub const fn is_permitted(&self) -> bool {
        matches!(self, Self::Permitted { .. })
    }

    /// The permissions that are declared but not granted.
    pub fn missing(&self) -> &[String] {
        match self {
            Self::Unpermitted { missing, .. } => missing,
            Self::Permitted { .. } | Self::Forbidden { .. } | Self::Ungranted | Self::Failed { .. } => &[],
        }
    }

    /// The rules that decided.
    pub fn rules(&self) -> &[String] {
        match self {
            Self::Permitted { by }
            | Self::Forbidden { by }
            | Self::Unpermitted { by, .. }
            | Self::Failed { by } => by,
            Self::Ungranted => &[],
        }
    }
}

impl std::fmt::Display for Verdict {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Permitted { by } => write!(f, "allowed by {}", by.join(", ")),
            Self::Forbidden { by } => write!(f, "denied: forbidden by {}", by.join(", ")),
            Self::Ungranted => f.write_str("denied: no rule grants it"),
            Self::Unpermitted { by, missing } => {
                let (missing, by) = (missing.join(", "), by.join(", "));
                write!(f, "denied: it declares {missing}, which {by} does not grant")
            }
            Self::Failed { by } => write!(f, "denied: {} ends in an error", by.join(", ")),
        }
    }
}

impl Rules {
    /// Decides one case by the rules.
    pub fn decide(&self, caller: Caller<'_>, action: Action, subject: &Subject<'_>) -> Verdict {
        let model = &*MODEL;
        let (principal, resource) = (model.caller(caller.did.as_str()), model.capability(subject.name));
        let entities = [
            Entity::new_no_attrs(principal.clone(), self.parents(caller)),
            Entity::new(resource.clone(), attributes(subject), model.namespaces(subject.name))
                .expect("texts, numbers and sets of texts need no evaluation"),
        ];
        let entities = Entities::from_entities(entities, None)
            .expect("the two are of different types, and no cycle leads through what has no parents");
        let request = Request::new(principal, model.action(action), resource, Context::empty(), None)
            .expect("a request without a schema is not checked");
        let response = Authorizer::new().is_authorized(&request, self.policies(), &entities);
        let diagnostics = response.diagnostics();
        let failed =
            diagnostics.errors().map(|AuthorizationError::PolicyEvaluationError(error)| error.policy_id());
        let failed = names(failed.filter(|id| self.effect(id) == Effect::Forbid));
        let by = names(diagnostics.reason());
        if response.decision() == Decision::Deny {
            return if by.is_empty() { Verdict::Ungranted } else { Verdict::Forbidden { by } };
        }
        if !failed.is_empty() {
            return Verdict::Failed { by: failed };
        }
        // Seed 002: who calls must have been granted what the capability declares. Seeing it listed takes none of it.
        if action == Action::Invoke {
            let missing = self.missing(&by, subject.permissions);
            if !missing.is_empty() {
                return Verdict::Unpermitted { by, missing };
            }
        }
        Verdict::Permitted { by }
    }

    fn parents(&self, caller: Caller<'_>) -> HashSet<cedar_policy::EntityUid> {
        let model = &*MODEL;
        let dids = [Some(caller.did), caller.alias];
        let groups = dids.into_iter().flatten().flat_map(|did| self.groups_of(did));
        let mut parents: HashSet<_> = groups.map(|name| model.group(name)).collect();
        parents.extend(
            caller.alias.filter(|alias| *alias != caller.did).map(|alias| model.caller(alias.as_str())),
        );
        parents
    }
}

fn attributes(subject: &Subject<'_>) -> HashMap<String, RestrictedExpression> {
    let namespace = subject.name.rsplit_once('.').map_or("", |(namespace, _)| namespace);
    let version = |part: fn(&Version) -> u64| number(subject.version.map_or(0, part));
    let permissions = subject.permissions.iter().map(|permission| text(permission));
    let pairs = [
        ("name", text(subject.name)),
        ("namespace", text(namespace)),
        ("version", text(&subject.version.map(ToString::to_string).unwrap_or_default())),
        ("major", version(Version::major)),
        ("minor", version(Version::minor)),
        ("patch", version(Version::patch)),
        ("category", text(subject.category)),
        ("permissions", RestrictedExpression::new_set(permissions)),
        ("provider", text(subject.provider)),
    ];
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

fn names<'a>(ids: impl Iterator<Item = &'a PolicyId>) -> Vec<String> {
    let mut names: Vec<_> = ids.map(|id| AsRef::<str>::as_ref(id).to_owned()).collect();
    names.sort_unstable();
    names
}
