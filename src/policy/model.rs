//! Defines the entities, attributes and actions that policies may use, and their names in Cedar.

use std::collections::HashSet;
use std::str::FromStr;
use std::sync::LazyLock;

use cedar_policy::{EntityId, EntityTypeName, EntityUid, RestrictedExpression, Schema};

/// An action of a caller on a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// See it listed, with its promise.
    Query,
    /// Call it, or agree on a version of it.
    Invoke,
    /// Serve it; only the sidecar's own agent declares.
    Declare,
}

impl Action {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Query, Self::Invoke, Self::Declare];

    /// The action's name in policies.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Invoke => "invoke",
            Self::Declare => "declare",
        }
    }
}

impl FromStr for Action {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        let known = || Self::ALL.map(Self::as_str).join(", ");
        all.find(|action| action.as_str() == text)
            .ok_or_else(|| format!("{text:?} is no action; there are {}", known()))
    }
}

/// The model as a Cedar schema; docs/concepts.md explains it.
pub const SCHEMA: &str = include_str!("schema.cedarschema");

/// The annotation that names the permissions which a policy grants, separated by spaces.
pub const PERMISSIONS: &str = "permissions";
/// The annotation that names a policy.
pub const ID: &str = "id";

pub(super) struct Model {
    pub(super) schema: Schema,
    caller: EntityTypeName,
    group: EntityTypeName,
    namespace: EntityTypeName,
    capability: EntityTypeName,
    actions: [EntityUid; 3],
}

pub(super) static MODEL: LazyLock<Model> = LazyLock::new(|| {
    let name = |text| EntityTypeName::from_str(text).expect("it is a name");
    let action = |action: Action| uid(&name("Action"), action.as_str());
    let (schema, _) = Schema::from_cedarschema_str(SCHEMA).expect("the model is a schema; a test reads it");
    Model {
        schema,
        caller: name("Caller"),
        group: name("Group"),
        namespace: name("Namespace"),
        capability: name("Capability"),
        actions: Action::ALL.map(action),
    }
});

/// An entity that a policy names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Named<'a> {
    Caller(&'a str),
    Group(&'a str),
    Namespace(&'a str),
    Capability(&'a str),
    Action(&'a str),
    /// Of a type that the model does not have.
    Other,
}

impl Model {
    pub(super) fn caller(&self, did: &str) -> EntityUid {
        uid(&self.caller, did)
    }

    pub(super) fn group(&self, name: &str) -> EntityUid {
        uid(&self.group, name)
    }

    pub(super) fn capability(&self, name: &str) -> EntityUid {
        uid(&self.capability, name)
    }

    pub(super) fn action(&self, action: Action) -> EntityUid {
        self.actions[action as usize].clone()
    }

    /// Every namespace that a capability stands in: of `a.b.c` they are `a` and `a.b`.
    pub(super) fn namespaces(&self, name: &str) -> HashSet<EntityUid> {
        let dots = name.match_indices('.').map(|(at, _)| at);
        dots.map(|at| uid(&self.namespace, &name[..at])).collect()
    }

    pub(super) fn named<'a>(&self, literal: &'a EntityUid) -> Named<'a> {
        let id = AsRef::<str>::as_ref(literal.id());
        match literal.type_name() {
            name if *name == self.caller => Named::Caller(id),
            name if *name == self.group => Named::Group(id),
            name if *name == self.namespace => Named::Namespace(id),
            name if *name == self.capability => Named::Capability(id),
            name if name == self.actions[0].type_name() => Named::Action(id),
            _ => Named::Other,
        }
    }
}

pub(super) fn text(value: &str) -> RestrictedExpression {
    RestrictedExpression::new_string(value.to_owned())
}

pub(super) fn number(value: u64) -> RestrictedExpression {
    RestrictedExpression::new_long(i64::try_from(value).unwrap_or(i64::MAX))
}

fn uid(name: &EntityTypeName, id: &str) -> EntityUid {
    EntityUid::from_type_name_and_id(name.clone(), EntityId::new(id))
}
