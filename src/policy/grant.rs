//! Writes a grant as the equivalent Cedar policy.

use std::fmt::Write;

use capd_proto::capability::CapabilityPattern;
use capd_proto::identity::Did;

use super::Action;

/// Each of its callers may do each of its actions with each of its capabilities, with its permissions.
#[derive(Clone, Debug, PartialEq)]
pub struct Grant {
    /// The callers; by default none.
    pub callers: Vec<Who>,
    /// The capabilities.
    pub capabilities: Vec<CapabilityPattern>,
    /// The actions.
    pub actions: Vec<Action>,
    /// The permissions that come with it. **Shape:** `scope:verb`, `scope:*`, or `*`.
    pub permissions: Vec<String>,
}

/// The callers of a grant.
#[derive(Clone, Debug, PartialEq)]
pub enum Who {
    /// Every caller.
    Anyone,
    /// The caller of this DID.
    Caller(Did),
    /// The members of a group.
    Group(String),
}

impl Grant {
    /// The grant as a policy called `id`.
    pub fn policy(&self, id: &str) -> String {
        let callers: Vec<_> = self.callers.iter().map(Who::condition).collect();
        let capabilities: Vec<_> = self.capabilities.iter().map(of_pattern).collect();
        let mut conditions = Vec::new();
        let principal = scope("principal", &callers, &mut conditions);
        let resource = scope("resource", &capabilities, &mut conditions);
        let actions: Vec<_> =
            self.actions.iter().map(|action| format!("Action::{}", quoted(action.as_str()))).collect();
        let mut out = format!("@id({})\n", quoted(id));
        if !self.permissions.is_empty() {
            writeln!(out, "@permissions({})", quoted(&self.permissions.join(" "))).expect(WRITES);
        }
        write!(out, "permit (\n  {principal},\n  action in [{}],\n  {resource}\n)", actions.join(", "))
            .expect(WRITES);
        if !conditions.is_empty() {
            write!(out, "\nwhen {{ {} }}", conditions.join(" && ")).expect(WRITES);
        }
        out + ";\n"
    }
}

/// The rule that permits the sidecar's own agent everything.
pub(super) fn own_agent(did: &Did) -> String {
    let did = quoted(did.as_str());
    format!(
        "@id(\"{OWN_AGENT}\")\n@permissions(\"*\")\npermit (principal == Caller::{did}, action, resource);\n"
    )
}

impl Who {
    /// `None` for everybody.
    fn condition(&self) -> Option<String> {
        match self {
            Self::Anyone => None,
            // A caller may call itself by another DID whose document has its key.
            Self::Caller(did) => Some(format!("in Caller::{}", quoted(did.as_str()))),
            Self::Group(name) => Some(format!("in Group::{}", quoted(name))),
        }
    }
}

fn of_pattern(pattern: &CapabilityPattern) -> Option<String> {
    match pattern {
        CapabilityPattern::Any => None,
        CapabilityPattern::Namespace(namespace) => {
            Some(format!("in Namespace::{}", quoted(namespace.as_str())))
        }
        CapabilityPattern::Name(name) => Some(format!("== Capability::{}", quoted(name.as_str()))),
    }
}

/// What stands in a policy's scope for any of `any`; several become a condition.
fn scope(variable: &str, any: &[Option<String>], conditions: &mut Vec<String>) -> String {
    match any {
        [Some(only)] => return format!("{variable} {only}"),
        // Without a caller, a grant is for nobody.
        [] => conditions.push("false".to_owned()),
        several if several.iter().any(Option::is_none) => {}
        several => {
            let each: Vec<_> = several.iter().flatten().map(|one| format!("{variable} {one}")).collect();
            conditions.push(format!("({})", each.join(" || ")));
        }
    }
    variable.to_owned()
}

/// A text as Cedar writes it.
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.escape_debug())
}

/// The name of the rule for the sidecar's own agent.
pub const OWN_AGENT: &str = "own-agent";
const WRITES: &str = "writing to a String does not fail";
