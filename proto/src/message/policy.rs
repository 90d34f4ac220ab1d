//! Encodes the operations `policy-why` and `policy-reload` of REQUEST and RESPONSE: explain a decision, reload the
//! rules.
//!
//! They are extensions of capd for local links only; a peer gets the error of an unknown operation.

use std::borrow::Cow;

use super::body::{BodyError, MapWriter, read_array, read_map, read_texts, required};
use crate::cbor::{Reader, Writer};

/// Asks what a caller may do with a capability, and which rules decide.
///
/// **Shape:** `{"op": "policy-why", "caller": did, "capability": name, ? "provider": did}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyWhyRequest<'a> {
    /// The caller's DID.
    pub caller: Cow<'a, str>,
    /// The capability's name.
    pub capability: Cow<'a, str>,
    /// The DID of the agent that would serve it; by default the sidecar's own.
    pub provider: Option<Cow<'a, str>>,
}

/// The decisions about each served version, and about the name alone.
///
/// **Shape:** `{"op": "policy-why", "decisions": [+ policy-decision]}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyWhy<'a> {
    /// The decisions: about the name, then about served versions.
    pub decisions: Vec<PolicyDecision<'a>>,
}

/// One decision.
///
/// **Shape:** `{"capability": tstr, "action": tstr, "allowed": bool, ? "rules": [* tstr], ? "missing": [* tstr], "reason":
/// tstr}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyDecision<'a> {
    /// A name, or the id of a served version.
    pub capability: Cow<'a, str>,
    /// The action of the caller.
    pub action: Cow<'a, str>,
    /// Whether it may.
    pub allowed: bool,
    /// The rules that decided, by their names.
    pub rules: Vec<Cow<'a, str>>,
    /// Permissions that are declared but not granted.
    pub missing: Vec<Cow<'a, str>>,
    /// The same in words.
    pub reason: Cow<'a, str>,
}

/// The policy was reloaded. **Shape:** `{"op": "policy-reload", "rules": uint}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PolicyReloaded {
    /// The number of rules in force.
    pub rules: u64,
}

impl<'a> PolicyWhyRequest<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let (mut caller, mut capability, mut provider) = (None, None, None);
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"caller" => caller = Some(reader.text()?),
                b"provider" => provider = Some(reader.text()?),
                b"capability" => capability = Some(reader.text()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self {
            caller: required(caller, "caller")?,
            capability: required(capability, "capability")?,
            provider,
        })
    }

    pub(super) fn write(&self, map: &mut MapWriter<'_>) {
        map.text("op", OP_WHY);
        map.text("caller", &self.caller);
        map.text_if("provider", self.provider.as_deref());
        map.text("capability", &self.capability);
    }
}

impl<'a> PolicyWhy<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut decisions = None;
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"decisions" => decisions = Some(read_array(reader, PolicyDecision::read)?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { decisions: required(decisions, "decisions")? })
    }

    /// The same answer, owned.
    pub fn into_owned(self) -> PolicyWhy<'static> {
        let texts =
            |texts: Vec<Cow<'_, str>>| texts.into_iter().map(|text| Cow::Owned(text.into_owned())).collect();
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        let decisions = self.decisions.into_iter().map(|decision| PolicyDecision {
            capability: owned(decision.capability),
            action: owned(decision.action),
            allowed: decision.allowed,
            rules: texts(decision.rules),
            missing: texts(decision.missing),
            reason: owned(decision.reason),
        });
        PolicyWhy { decisions: decisions.collect() }
    }

    pub(super) fn write(&self, map: &mut MapWriter<'_>) {
        map.text("op", OP_WHY);
        let out = map.key_then("decisions");
        Writer::new(out).array(self.decisions.len() as u64);
        for decision in &self.decisions {
            decision.write(out);
        }
    }
}

impl<'a> PolicyDecision<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, BodyError> {
        let (mut capability, mut action, mut allowed, mut reason) = (None, None, None, None);
        let (mut rules, mut missing) = (Vec::new(), Vec::new());
        read_map(reader, |key, reader| {
            match key {
                b"capability" => capability = Some(reader.text()?),
                b"action" => action = Some(reader.text()?),
                b"allowed" => allowed = Some(reader.bool()?),
                b"rules" => rules = read_texts(reader)?,
                b"missing" => missing = read_texts(reader)?,
                b"reason" => reason = Some(reader.text()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self {
            capability: required(capability, "capability")?,
            action: required(action, "action")?,
            allowed: required(allowed, "allowed")?,
            rules,
            missing,
            reason: required(reason, "reason")?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.texts_if("rules", &self.rules);
        map.text("action", &self.action);
        map.text("reason", &self.reason);
        map.bool_if("allowed", Some(self.allowed));
        map.texts_if("missing", &self.missing);
        map.text("capability", &self.capability);
    }
}

impl PolicyReloaded {
    pub(super) fn read(body: &[u8]) -> Result<Self, BodyError> {
        let mut rules = None;
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"rules" => rules = Some(reader.uint()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { rules: required(rules, "rules")? })
    }

    pub(super) fn write(self, map: &mut MapWriter<'_>) {
        map.text("op", OP_RELOAD);
        map.uint("rules", self.rules);
    }
}

/// The operation that asks for decisions.
pub(super) const OP_WHY: &str = "policy-why";
/// The operation that has the policy read anew.
pub(super) const OP_RELOAD: &str = "policy-reload";
