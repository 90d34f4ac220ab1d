//! Decides a table of cases in TOML, and compares each decision with the expected one.
//!
//! ```toml
//! [[case]]
//! caller = "did:key:z6Mk…"
//! capability = "org.example.report:1.0.0"  # a name alone is decided as a name
//! action = "invoke"                        # unless it is query or declare
//! permissions = ["database:read"]          # what the capability declares, where capabilities.yaml does not say
//! category = "reports"
//! provider = "did:key:z6Mk…"               # the agent that serves it
//! expect = "allow"                         # or "deny"
//! ```

use capd_proto::capability::{CapabilityId, CapabilityName, Version};
use capd_proto::identity::Did;
use serde::Deserialize;
use toml::Spanned;

use super::{Action, Caller, Rules, Subject, Verdict};

/// Declared properties of a capability, which a case may omit.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// Its id.
    pub id: CapabilityId,
    /// Its category; empty if it has none.
    pub category: String,
    /// The permissions that it declares.
    pub permissions: Vec<String>,
}

/// One case.
#[derive(Clone, Debug, PartialEq)]
pub struct Case {
    /// Its line in the table.
    pub line: usize,
    /// The caller.
    pub caller: Did,
    /// The action.
    pub action: Action,
    /// The capability's name.
    pub name: CapabilityName,
    /// Its version; none for a bare name.
    pub version: Option<Version>,
    /// Its category.
    pub category: String,
    /// The permissions that it declares.
    pub permissions: Vec<String>,
    /// The DID of the agent that serves it; none if no provider is chosen.
    pub provider: Option<Did>,
    /// Whether the case expects a permission.
    pub is_expected: bool,
}

impl Case {
    /// The decision of the rules.
    pub fn decide(&self, rules: &Rules) -> Verdict {
        let caller = Caller { did: &self.caller, alias: None };
        let subject = Subject {
            name: self.name.as_str(),
            version: self.version.as_ref(),
            category: &self.category,
            permissions: &self.permissions,
            provider: self.provider.as_ref().map_or("", Did::as_str),
        };
        rules.decide(caller, self.action, &subject)
    }
}

/// One mistake in a table: its line, counted from 1, and what is wrong.
pub type Mistake = (usize, String);

/// Reads a table of cases.
///
/// **Errors:** every mistake; an empty table is a mistake.
pub fn read(text: &str, declared: &[Declared]) -> Result<Vec<Case>, Vec<Mistake>> {
    let line_of =
        |offset: usize| 1 + text.as_bytes()[..offset.min(text.len())].iter().filter(|b| **b == b'\n').count();
    let table: Table = toml::from_str(text).map_err(|error| {
        vec![(error.span().map_or(1, |span| line_of(span.start)), error.message().to_owned())]
    })?;
    if table.case.is_empty() {
        return Err(vec![(1, "no [[case]]".to_owned())]);
    }
    let (mut cases, mut mistakes) = (Vec::new(), Vec::new());
    for row in table.case {
        let line = line_of(row.span().start);
        match row.into_inner().case(line, declared) {
            Ok(case) => cases.push(case),
            Err(problem) => mistakes.push((line, problem)),
        }
    }
    if mistakes.is_empty() { Ok(cases) } else { Err(mistakes) }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    #[serde(default)]
    case: Vec<Spanned<Row>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    caller: String,
    capability: String,
    action: Option<String>,
    permissions: Option<Vec<String>>,
    category: Option<String>,
    provider: Option<String>,
    expect: Expect,
}

#[derive(Clone, Copy, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
enum Expect {
    Allow,
    Deny,
}

impl Row {
    fn case(self, line: usize, declared: &[Declared]) -> Result<Case, String> {
        let caller =
            Did::parse(&self.caller).map_err(|error| format!("caller {:?}: {error}", self.caller))?;
        let provider = self.provider.as_deref();
        let provider =
            provider.map(|did| Did::parse(did).map_err(|error| format!("provider {did:?}: {error}")));
        let provider = provider.transpose()?;
        let action = self.action.as_deref().map_or(Ok(Action::Invoke), str::parse)?;
        let wrong =
            |error: capd_proto::capability::Error| format!("capability {:?}: {error}", self.capability);
        let (name, version) = if self.capability.contains(':') {
            let id: CapabilityId = self.capability.parse().map_err(wrong)?;
            (id.name, Some(id.version))
        } else {
            (self.capability.parse().map_err(wrong)?, None)
        };
        let known = declared
            .iter()
            .find(|known| known.id.name == name && Some(&known.id.version) == version.as_ref());
        let category = self.category.or_else(|| known.map(|known| known.category.clone()));
        let permissions = self.permissions.or_else(|| known.map(|known| known.permissions.clone()));
        Ok(Case {
            line,
            caller,
            action,
            name,
            version,
            category: category.unwrap_or_default(),
            permissions: permissions.unwrap_or_default(),
            provider,
            is_expected: self.expect == Expect::Allow,
        })
    }
}
