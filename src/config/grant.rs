//! Reads `[[groups]]` and `[[allow]]`, as tables or as texts, into groups of callers and grants.

use std::fmt;
use std::ops::Range;

use capd_proto::capability::CapabilityPattern;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::value::{Problem, mistyped, peer_did, quoted};

/// One of `[[groups]]`: callers under one name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// The DIDs of its members.
    pub members: Vec<String>,
}

/// One of `[[allow]]`: each of its callers may do each of its actions with each of its capabilities.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The callers.
    pub callers: Vec<Caller>,
    /// The capabilities that they may call.
    pub capabilities: Vec<CapabilityPattern>,
    /// What they may do; both by default.
    pub actions: Vec<Action>,
    /// The declared permissions that it grants. **Shape:** `scope:verb`, `scope:*`, or `*`.
    pub permissions: Vec<String>,
}

/// The callers of a grant. **Shape:** a DID, `group:NAME`, or `*`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Caller {
    /// Every admitted peer.
    Anyone,
    /// The peer of this DID.
    Did(String),
    /// The members of a group.
    Group(String),
}

/// What a peer may do with a capability.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// See it listed.
    Query,
    /// Call it.
    Invoke,
}

impl Action {
    /// The action as written in the file.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Query => "query",
            Self::Invoke => "invoke",
        }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Anyone => f.write_str("*"),
            Self::Did(did) => f.write_str(did),
            Self::Group(name) => write!(f, "group:{name}"),
        }
    }
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{ name = {:?}, members = {:?} }}", self.name, self.members)
    }
}

impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let callers: Vec<_> = self.callers.iter().map(ToString::to_string).collect();
        let capabilities: Vec<_> = self.capabilities.iter().map(ToString::to_string).collect();
        let actions: Vec<_> = self.actions.iter().map(|action| action.as_str()).collect();
        write!(f, "{{ callers = {callers:?}, capabilities = {capabilities:?}, actions = {actions:?}, ")?;
        write!(f, "permissions = {:?} }}", self.permissions)
    }
}

/// One table of `[[groups]]`.
pub(super) fn group(table: &DeTable<'_>, span: Range<usize>) -> Result<Group, Problem> {
    let (mut name, mut members) = (None, None);
    for (key, value) in table {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("name", DeValue::String(text)) => name = Some(read(value, text, group_name)?),
            ("members", DeValue::Array(items)) => members = Some(texts(items, peer_did)?),
            (key_name, other) => return Err(misplaced(key, key_name, &["name", "members"], value, other)),
        }
    }
    let missing = |what: &str| Problem { problem: format!("a group without {what}"), span: span.clone() };
    let name = name.ok_or_else(|| missing("name"))?;
    Ok(Group { name, members: members.ok_or_else(|| missing("members"))? })
}

/// One table of `[[allow]]`.
pub(super) fn grant(table: &DeTable<'_>, span: Range<usize>) -> Result<Grant, Problem> {
    let (mut callers, mut capabilities) = (None, None);
    let (mut actions, mut permissions) = (BOTH.to_vec(), Vec::new());
    for (key, value) in table {
        match (key.get_ref().as_ref(), value.get_ref()) {
            ("callers", DeValue::Array(items)) => callers = Some(texts(items, caller)?),
            ("capabilities", DeValue::Array(items)) => capabilities = Some(texts(items, pattern)?),
            ("actions", DeValue::Array(items)) => actions = texts(items, action)?,
            ("permissions", DeValue::Array(items)) => permissions = texts(items, permission)?,
            (name, other) => {
                let known = ["callers", "capabilities", "actions", "permissions"];
                return Err(misplaced(key, name, &known, value, other));
            }
        }
    }
    let missing = |what: &str| Problem { problem: format!("a grant without {what}"), span: span.clone() };
    // An empty list grants nothing, and whoever wrote it meant something.
    let callers = callers.filter(|list| !list.is_empty()).ok_or_else(|| missing("callers"))?;
    let capabilities = capabilities.filter(|list| !list.is_empty()).ok_or_else(|| missing("capabilities"))?;
    if actions.is_empty() {
        return Err(missing("actions"));
    }
    Ok(Grant { callers, capabilities, actions, permissions })
}

/// `NAME=DID`; a name that stands again has another member.
pub(super) fn groups_of_text<'a>(items: impl Iterator<Item = &'a str>) -> Result<Vec<Group>, String> {
    let mut groups: Vec<Group> = Vec::new();
    for item in items {
        let (name, did) = item.split_once('=').ok_or_else(|| format!("{} is not NAME=DID", quoted(item)))?;
        let (name, did) = (group_name(name)?, peer_did(did)?);
        match groups.iter_mut().find(|group| group.name == name) {
            Some(group) => group.members.push(did),
            None => groups.push(Group { name, members: vec![did] }),
        }
    }
    Ok(groups)
}

/// `CALLER=CAPABILITY`: both actions, and no permission.
pub(super) fn grants_of_text<'a>(items: impl Iterator<Item = &'a str>) -> Result<Vec<Grant>, String> {
    let grant = |item: &str| {
        let (who, what) =
            item.split_once('=').ok_or_else(|| format!("{} is not CALLER=CAPABILITY", quoted(item)))?;
        let (callers, capabilities) = (vec![caller(who)?], vec![pattern(what)?]);
        Ok(Grant { callers, capabilities, actions: BOTH.to_vec(), permissions: Vec::new() })
    };
    items.map(grant).collect()
}

pub(super) fn texts<T>(
    items: &[Spanned<DeValue<'_>>],
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<Vec<T>, Problem> {
    let one = |item: &Spanned<DeValue<'_>>| match item.get_ref() {
        DeValue::String(text) => read(item, text, &parse),
        other => Err(Problem { problem: mistyped(other), span: item.span() }),
    };
    items.iter().map(one).collect()
}

fn read<T>(
    value: &Spanned<DeValue<'_>>,
    text: &str,
    parse: impl Fn(&str) -> Result<T, String>,
) -> Result<T, Problem> {
    parse(text).map_err(|problem| Problem { problem, span: value.span() })
}

/// A key that is not known, or whose value is of another type.
fn misplaced(
    key: &Spanned<std::borrow::Cow<'_, str>>,
    name: &str,
    known: &[&str],
    value: &Spanned<DeValue<'_>>,
    found: &DeValue<'_>,
) -> Problem {
    if known.contains(&name) {
        return Problem { problem: format!("{name}: {}", mistyped(found)), span: value.span() };
    }
    let mut problem = format!("unknown key {}", quoted(name));
    if let Some(meant) = crate::text::nearest(name, known.iter().copied()) {
        problem += &format!("; did you mean {meant:?}?");
    }
    Problem { problem, span: key.span() }
}

fn group_name(text: &str) -> Result<String, String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    let is_name = (1..=NAME_BYTES_MAX).contains(&text.len()) && text.chars().all(fits);
    if is_name { Ok(text.to_owned()) } else { Err(format!("{} is not a name", quoted(text))) }
}

fn caller(text: &str) -> Result<Caller, String> {
    match text.strip_prefix("group:") {
        Some(name) => group_name(name).map(Caller::Group),
        None if text == "*" => Ok(Caller::Anyone),
        None => peer_did(text).map(Caller::Did),
    }
}

pub(super) fn pattern(text: &str) -> Result<CapabilityPattern, String> {
    text.parse().map_err(|error| format!("{} is no capability: {error}", quoted(text)))
}

fn action(text: &str) -> Result<Action, String> {
    let mut known = BOTH.into_iter();
    known.find(|action| action.as_str() == text).ok_or_else(|| format!("{} is no action", quoted(text)))
}

fn permission(text: &str) -> Result<String, String> {
    let fits = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-' | b'/');
    let is_word = |word: &str| !word.is_empty() && word.bytes().all(fits);
    let is_permission = text == "*"
        || text.split_once(':').is_some_and(|(scope, verb)| is_word(scope) && (verb == "*" || is_word(verb)));
    if is_permission && text.len() <= PERMISSION_BYTES_MAX {
        Ok(text.to_owned())
    } else {
        Err(format!("{} is no permission", quoted(text)))
    }
}

const BOTH: [Action; 2] = [Action::Query, Action::Invoke];
/// Longest name of a group, in bytes; ours.
const NAME_BYTES_MAX: usize = 64;
/// Longest permission, in bytes; ours.
const PERMISSION_BYTES_MAX: usize = 128;
