//! Encodes CAP_INVOKE: a call.

use std::borrow::Cow;

use super::{
    Type,
    body::{
        self, BodyError, Contradiction, MapWriter, read_bytes, read_map, read_texts, required, wrong_value,
    },
};
use crate::{
    capability::{CapabilityId, CapabilityName},
    cbor::{Checked, Reader},
    limits::{ACCEPTABLE_MAX, SESSION_ID_BYTES},
    negotiate::{Negotiate, SessionId, Want},
};

/// The body of CAP_INVOKE.
///
/// **Shape:** `{? "id", ? "capability", ? "type", ? "version", ? "negotiate", "params": any, ? "timeout_ms": uint,
/// ? "session", ? "delegation": any}`. **Source:** PROTOCOL 7.3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invoke<'a> {
    /// The capability's name and version in one.
    pub id: Option<Cow<'a, str>>,
    /// The capability's name.
    pub capability: Option<Cow<'a, str>>,
    /// The old alias of `capability`.
    pub alias: Option<Cow<'a, str>>,
    /// The requested version.
    pub version: Option<Cow<'a, str>>,
    /// The preferred versions.
    pub negotiate: Option<Preferences<'a>>,
    /// The call's input; one CBOR item.
    pub params: &'a [u8],
    /// How long the call may run. **Units:** milliseconds.
    pub timeout_ms: Option<u64>,
    /// The session that the call belongs to.
    pub session: Option<SessionRef>,
    /// Evidence of a permission by another party; one CBOR item.
    pub delegation: Option<&'a [u8]>,
}

/// The `negotiate` of a call, as received. **Source:** PROTOCOL 7.3.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Preferences<'a> {
    /// The preferred version.
    pub preferred: Option<Cow<'a, str>>,
    /// Acceptable versions, preferred first.
    pub acceptable: Vec<Cow<'a, str>>,
    /// Otherwise the highest of these.
    pub range: Option<Cow<'a, str>>,
}

/// The `session` of a call or result.
///
/// **Shape:** `{"session_id": bstr .size 16, ? "session_scope": true}`. **Source:** PROTOCOL 7.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionRef {
    /// The session's id.
    pub session_id: SessionId,
    /// Whether `session_scope` is present.
    pub session_scope: bool,
}

/// Which capability a call is for. **Source:** PROTOCOL 7.3.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    /// A checked capability name.
    pub name: Cow<'a, str>,
    /// The requested version; `None` if the call's session decides, see
    /// [`Sessions::want`](crate::negotiate::Sessions::want).
    pub want: Option<Want>,
}

impl<'a> Invoke<'a> {
    /// A call with `params` and nothing else yet.
    pub const fn new(params: &'a [u8]) -> Self {
        Self {
            id: None,
            capability: None,
            alias: None,
            version: None,
            negotiate: None,
            params,
            timeout_ms: None,
            session: None,
            delegation: None,
        }
    }

    /// Checks and reads the body. **Errors:** 1001.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        Self::decode_checked(body.into())
    }

    /// As [`decode`](Self::decode), for a body whose payload was already walked by the check. **Errors:** 1001.
    pub fn decode_checked(body: Checked<'a>) -> Result<Self, BodyError> {
        body::check(Type::CapInvoke, body)?;
        Self::read(body)
    }

    pub(super) fn read(body: Checked<'a>) -> Result<Self, BodyError> {
        let mut invoke = Self::new(&[]);
        let mut params = None;
        read_map(&mut Reader::over(body), |key, reader| {
            match key {
                b"id" => invoke.id = Some(reader.text()?),
                b"capability" => invoke.capability = Some(reader.text()?),
                b"type" => invoke.alias = Some(reader.text()?),
                b"version" => invoke.version = Some(reader.text()?),
                b"negotiate" => invoke.negotiate = Some(Preferences::read(reader)?),
                b"params" => params = Some(reader.skip()?),
                b"timeout_ms" => invoke.timeout_ms = Some(reader.uint()?),
                b"session" => invoke.session = Some(SessionRef::read(reader)?),
                b"delegation" => invoke.delegation = Some(reader.skip()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        invoke.params = required(params, "params")?;
        Ok(invoke)
    }

    /// Which capability the call is for.
    ///
    /// **Errors:** 4001 for no identity, `id` with `negotiate`, `version` with `negotiate`, `id` disagreeing with name
    /// or version, and text that is not a name, version or range. **Source:** PROTOCOL 7.3.
    pub fn identity(&self) -> Result<Identity<'_>, BodyError> {
        // PROTOCOL 7.3: `type` is the old alias of `capability`, which wins when both stand.
        let named = match (&self.capability, &self.alias) {
            (Some(name), _) => Some(("capability", name)),
            (None, Some(name)) => Some(("type", name)),
            (None, None) => None,
        };
        if let Some(id) = &self.id {
            return self.identity_by_id(id, named);
        }
        let Some((field, name)) = named else { return Err(Contradiction::NoIdentity.into()) };
        CapabilityName::check(name).map_err(Contradiction::in_field(field))?;
        let want = match (&self.version, &self.negotiate) {
            (Some(_), Some(_)) => return Err(Contradiction::VersionWithNegotiate.into()),
            (Some(version), None) => {
                Some(Want::Exact(version.parse().map_err(Contradiction::in_field("version"))?))
            }
            (None, Some(preferences)) => Some(Want::Negotiate(preferences.parse()?)),
            (None, None) if self.session.is_some() => None,
            (None, None) => return Err(Contradiction::NoIdentity.into()),
        };
        Ok(Identity { name: Cow::Borrowed(name), want })
    }

    fn identity_by_id<'s>(
        &'s self,
        id: &'s str,
        named: Option<(&'static str, &Cow<'a, str>)>,
    ) -> Result<Identity<'s>, BodyError> {
        if self.negotiate.is_some() {
            return Err(Contradiction::IdWithNegotiate.into());
        }
        let (name, version) = CapabilityId::split(id).map_err(Contradiction::in_field("id"))?;
        if let Some((field, other)) = named
            && other != name
        {
            return Err(Contradiction::IdDisagrees { field }.into());
        }
        if let Some(text) = &self.version {
            let other = text.parse().map_err(Contradiction::in_field("version"))?;
            if version != other {
                return Err(Contradiction::IdDisagrees { field: "version" }.into());
            }
        }
        Ok(Identity { name: Cow::Borrowed(name), want: Some(Want::Exact(version)) })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let _params = self.encode_around(out);
    }

    /// As [`encode`](Self::encode); returns where in `out` the params end.
    pub fn encode_around(&self, out: &mut Vec<u8>) -> usize {
        let mut map = MapWriter::new(out);
        map.text_if("id", self.id.as_deref());
        map.text_if("type", self.alias.as_deref());
        let params_end = map.raw("params", self.params);
        if let Some(session) = &self.session {
            session.encode(map.key_then("session"));
        }
        map.text_if("version", self.version.as_deref());
        if let Some(preferences) = &self.negotiate {
            preferences.encode(map.key_then("negotiate"));
        }
        map.text_if("capability", self.capability.as_deref());
        map.raw_if("delegation", self.delegation);
        map.uint_if("timeout_ms", self.timeout_ms);
        params_end
    }
}

impl<'a> Preferences<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, BodyError> {
        let mut preferences = Self::default();
        read_map(reader, |key, reader| {
            match key {
                b"preferred" => preferences.preferred = Some(reader.text()?),
                b"acceptable" => preferences.acceptable = read_texts(reader)?,
                b"range" => preferences.range = Some(reader.text()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(preferences)
    }

    fn parse(&self) -> Result<Negotiate, BodyError> {
        parse_preferences(
            ("preferred", self.preferred.as_deref()),
            ("acceptable", &self.acceptable),
            self.range.as_deref(),
        )
    }

    fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.text_if("range", self.range.as_deref());
        map.text_if("preferred", self.preferred.as_deref());
        map.texts_if("acceptable", &self.acceptable);
    }
}

impl<'a> From<&'a Negotiate> for Preferences<'a> {
    fn from(negotiate: &'a Negotiate) -> Self {
        Self {
            preferred: negotiate.preferred.as_ref().map(|version| version.to_string().into()),
            acceptable: negotiate.acceptable.iter().map(|version| version.to_string().into()).collect(),
            range: negotiate.range.as_ref().map(|range| range.to_string().into()),
        }
    }
}

/// Reads the three texts of a negotiation, whatever their fields are called.
pub(super) fn parse_preferences(
    (preferred_field, preferred): (&'static str, Option<&str>),
    (acceptable_field, acceptable): (&'static str, &[Cow<'_, str>]),
    range: Option<&str>,
) -> Result<Negotiate, BodyError> {
    if acceptable.len() > ACCEPTABLE_MAX {
        return Err(Contradiction::TooMany { field: acceptable_field, max: ACCEPTABLE_MAX }.into());
    }
    let mut negotiate = Negotiate::default();
    if let Some(text) = preferred {
        negotiate.preferred = Some(text.parse().map_err(Contradiction::in_field(preferred_field))?);
    }
    for text in acceptable {
        negotiate.acceptable.push(text.parse().map_err(Contradiction::in_field(acceptable_field))?);
    }
    if let Some(text) = range {
        negotiate.range = Some(text.parse().map_err(Contradiction::in_field("range"))?);
    }
    Ok(negotiate)
}

impl SessionRef {
    pub(super) fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        let (mut session_id, mut session_scope) = (None, false);
        read_map(reader, |key, reader| {
            match key {
                b"session_id" => {
                    let id = read_bytes::<SESSION_ID_BYTES>(reader, "session_id", "16 bytes")?;
                    session_id = Some(SessionId(id));
                }
                b"session_scope" => {
                    if !reader.bool()? {
                        return Err(wrong_value(reader, "session_scope", "true"));
                    }
                    session_scope = true;
                }
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { session_id: required(session_id, "session_id")?, session_scope })
    }

    pub(super) fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.bytes("session_id", &self.session_id.0);
        map.bool_if("session_scope", self.session_scope.then_some(true));
    }
}
