//! Encodes the operation `fleet` of REQUEST and RESPONSE: where a sidecar stands in its fleet, and who serves a name.
//!
//! It is an extension of capd for local links only; a peer gets the error of an unknown operation.

use std::borrow::Cow;

use super::body::{BodyError, MapWriter, read_array, read_map, read_texts, required, wrong_value};
use crate::cbor::{Reader, Writer};

/// What is asked about the fleet.
///
/// **Shape:** `{"op": "fleet", "show": "status" / "names" / "why", ? "name": tstr}`; `name` goes with `why`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FleetRequest<'a> {
    /// Where the sidecar stands.
    Status,
    /// The same, and every name of the registry with the agents that registered it.
    Names,
    /// The same, and the candidates of one name, as a call of it finds them.
    Why {
        /// The name.
        name: Cow<'a, str>,
    },
}

/// Where a sidecar stands in its fleet.
///
/// **Shape:** `{"op": "fleet", "cell": tstr, "health": "ok" / "degraded" / "failed", "detail": tstr, "registry": tstr, ...}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetReport<'a> {
    /// The cell; empty for a sidecar outside of any fleet.
    pub cell: Cow<'a, str>,
    /// Whether all is well: `ok`, `degraded` or `failed`.
    pub health: Cow<'a, str>,
    /// Why, for a human.
    pub detail: Cow<'a, str>,
    /// Where the registry is.
    pub registry: Cow<'a, str>,
    /// The registry's version, if it has told.
    pub version: Option<Cow<'a, str>>,
    /// Why it was not reached when it was asked for this report.
    pub error: Option<Cow<'a, str>>,
    /// How many changes it has seen.
    pub revision: Option<u64>,
    /// How long it took to answer. **Units:** microseconds.
    pub took_us: Option<u64>,
    /// Counts the starts of this sidecar.
    pub incarnation: Option<u64>,
    /// Counts what this process has registered.
    pub generation: Option<u64>,
    /// How long what is known may be out of date. **Units:** milliseconds.
    pub stale_ms: Option<u64>,
    /// How old the known revocations are. **Units:** milliseconds.
    pub revocations_age_ms: Option<u64>,
    /// Whether so much vanished at once that nothing is dropped.
    pub is_frozen: bool,
    /// Why registrations and memberships did not count, and how often.
    pub refused: Vec<(Cow<'a, str>, u64)>,
    /// Members of which two processes live, each with what follows from that, for a human.
    pub split: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// Names, as they were asked for.
    pub names: Vec<FleetName<'a>>,
}

/// One name of the registry. **Shape:** `{"name": tstr, ? "note": tstr, "candidates": [* candidate]}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetName<'a> {
    /// The name.
    pub name: Cow<'a, str>,
    /// What a human should know of the list.
    pub note: Option<Cow<'a, str>>,
    /// Who registered it, most wanted first where that is known.
    pub candidates: Vec<FleetCandidate<'a>>,
}

/// An agent that registered a name.
///
/// **Shape:** `{"did": tstr, ? "state": tstr, ? "reason": tstr, ? "zone": tstr, ? "links": uint, ? "versions": [* tstr],
/// ? "addresses": [* tstr], ? "incarnation": uint}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FleetCandidate<'a> {
    /// Its DID.
    pub did: Cow<'a, str>,
    /// `linked`, `silent`, `split`, `spare`, `unlinked`, `draining`, `suspect` or `failed`.
    pub state: Option<Cow<'a, str>>,
    /// Why it is in this state.
    pub reason: Option<Cow<'a, str>>,
    /// The zone it runs in.
    pub zone: Option<Cow<'a, str>>,
    /// Open links to it.
    pub links: Option<u64>,
    /// The versions that it registered.
    pub versions: Vec<Cow<'a, str>>,
    /// Where it is reached.
    pub addresses: Vec<Cow<'a, str>>,
    /// Counts the starts of its sidecar.
    pub incarnation: Option<u64>,
}

impl<'a> FleetRequest<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let (mut show, mut name) = (None, None);
        let mut reader = Reader::new(body);
        read_map(&mut reader, |key, reader| {
            match key {
                b"show" => show = Some(reader.text()?),
                b"name" => name = Some(reader.text()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        match &*required(show, "show")? {
            "status" => Ok(Self::Status),
            "names" => Ok(Self::Names),
            "why" => Ok(Self::Why { name: required(name, "name")? }),
            _ => Err(wrong_value(&reader, "show", "\"status\", \"names\" or \"why\"")),
        }
    }

    pub(super) fn write(&self, map: &mut MapWriter<'_>) {
        map.text("op", OP);
        match self {
            Self::Status => map.text("show", "status"),
            Self::Names => map.text("show", "names"),
            Self::Why { name } => {
                map.text("name", name);
                map.text("show", "why");
            }
        }
    }
}

impl<'a> FleetReport<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut report = Self::default();
        let (mut cell, mut health, mut detail, mut registry, mut names) = (None, None, None, None, None);
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"cell" => cell = Some(reader.text()?),
                b"error" => report.error = Some(reader.text()?),
                b"split" => report.split = read_array(reader, read_split)?,
                b"names" => names = Some(read_array(reader, FleetName::read)?),
                b"detail" => detail = Some(reader.text()?),
                b"frozen" => report.is_frozen = reader.bool()?,
                b"health" => health = Some(reader.text()?),
                b"refused" => report.refused = read_array(reader, read_count)?,
                b"took_us" => report.took_us = Some(reader.uint()?),
                b"version" => report.version = Some(reader.text()?),
                b"registry" => registry = Some(reader.text()?),
                b"revision" => report.revision = Some(reader.uint()?),
                b"stale_ms" => report.stale_ms = Some(reader.uint()?),
                b"generation" => report.generation = Some(reader.uint()?),
                b"incarnation" => report.incarnation = Some(reader.uint()?),
                b"revocations_age_ms" => report.revocations_age_ms = Some(reader.uint()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        report.cell = required(cell, "cell")?;
        report.health = required(health, "health")?;
        report.detail = required(detail, "detail")?;
        report.registry = required(registry, "registry")?;
        report.names = required(names, "names")?;
        Ok(report)
    }

    pub(super) fn write(&self, map: &mut MapWriter<'_>) {
        map.text("op", OP);
        map.text("cell", &self.cell);
        map.text_if("error", self.error.as_deref());
        let out = map.key_then("names");
        Writer::new(out).array(self.names.len() as u64);
        for name in &self.names {
            name.write(out);
        }
        if !self.split.is_empty() {
            let out = map.key_then("split");
            Writer::new(out).array(self.split.len() as u64);
            for (did, text) in &self.split {
                let mut entry = MapWriter::new(out);
                entry.text("did", did);
                entry.text("text", text);
            }
        }
        map.text("detail", &self.detail);
        map.bool_if("frozen", self.is_frozen.then_some(true));
        map.text("health", &self.health);
        let out = map.key_then("refused");
        Writer::new(out).array(self.refused.len() as u64);
        for (why, count) in &self.refused {
            let mut entry = MapWriter::new(out);
            entry.text("why", why);
            entry.uint("count", *count);
        }
        map.uint_if("took_us", self.took_us);
        map.text_if("version", self.version.as_deref());
        map.text("registry", &self.registry);
        map.uint_if("revision", self.revision);
        map.uint_if("stale_ms", self.stale_ms);
        map.uint_if("generation", self.generation);
        map.uint_if("incarnation", self.incarnation);
        map.uint_if("revocations_age_ms", self.revocations_age_ms);
    }

    /// The same report, owned.
    pub fn into_owned(self) -> FleetReport<'static> {
        FleetReport {
            cell: owned(self.cell),
            health: owned(self.health),
            detail: owned(self.detail),
            registry: owned(self.registry),
            version: self.version.map(owned),
            error: self.error.map(owned),
            revision: self.revision,
            took_us: self.took_us,
            incarnation: self.incarnation,
            generation: self.generation,
            stale_ms: self.stale_ms,
            revocations_age_ms: self.revocations_age_ms,
            is_frozen: self.is_frozen,
            refused: self.refused.into_iter().map(|(why, count)| (owned(why), count)).collect(),
            split: self.split.into_iter().map(|(did, text)| (owned(did), owned(text))).collect(),
            names: self.names.into_iter().map(FleetName::into_owned).collect(),
        }
    }
}

impl<'a> FleetName<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, BodyError> {
        let (mut name, mut note, mut candidates) = (None, None, None);
        read_map(reader, |key, reader| {
            match key {
                b"name" => name = Some(reader.text()?),
                b"note" => note = Some(reader.text()?),
                b"candidates" => candidates = Some(read_array(reader, FleetCandidate::read)?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { name: required(name, "name")?, note, candidates: required(candidates, "candidates")? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.text("name", &self.name);
        map.text_if("note", self.note.as_deref());
        let out = map.key_then("candidates");
        Writer::new(out).array(self.candidates.len() as u64);
        for candidate in &self.candidates {
            candidate.write(out);
        }
    }

    fn into_owned(self) -> FleetName<'static> {
        FleetName {
            name: owned(self.name),
            note: self.note.map(owned),
            candidates: self.candidates.into_iter().map(FleetCandidate::into_owned).collect(),
        }
    }
}

impl<'a> FleetCandidate<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, BodyError> {
        let mut candidate = Self::default();
        let mut did = None;
        read_map(reader, |key, reader| {
            match key {
                b"did" => did = Some(reader.text()?),
                b"zone" => candidate.zone = Some(reader.text()?),
                b"links" => candidate.links = Some(reader.uint()?),
                b"state" => candidate.state = Some(reader.text()?),
                b"reason" => candidate.reason = Some(reader.text()?),
                b"versions" => candidate.versions = read_texts(reader)?,
                b"addresses" => candidate.addresses = read_texts(reader)?,
                b"incarnation" => candidate.incarnation = Some(reader.uint()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        candidate.did = required(did, "did")?;
        Ok(candidate)
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.text("did", &self.did);
        map.text_if("zone", self.zone.as_deref());
        map.uint_if("links", self.links);
        map.text_if("state", self.state.as_deref());
        map.text_if("reason", self.reason.as_deref());
        map.texts_if("versions", &self.versions);
        map.texts_if("addresses", &self.addresses);
        map.uint_if("incarnation", self.incarnation);
    }

    fn into_owned(self) -> FleetCandidate<'static> {
        FleetCandidate {
            did: owned(self.did),
            state: self.state.map(owned),
            reason: self.reason.map(owned),
            zone: self.zone.map(owned),
            links: self.links,
            versions: self.versions.into_iter().map(owned).collect(),
            addresses: self.addresses.into_iter().map(owned).collect(),
            incarnation: self.incarnation,
        }
    }
}

fn read_count<'a>(reader: &mut Reader<'a>) -> Result<(Cow<'a, str>, u64), BodyError> {
    let (mut why, mut count) = (None, None);
    read_map(reader, |key, reader| {
        match key {
            b"why" => why = Some(reader.text()?),
            b"count" => count = Some(reader.uint()?),
            _ => drop(reader.skip()?),
        }
        Ok(())
    })?;
    Ok((required(why, "why")?, required(count, "count")?))
}

fn read_split<'a>(reader: &mut Reader<'a>) -> Result<(Cow<'a, str>, Cow<'a, str>), BodyError> {
    let (mut did, mut text) = (None, None);
    read_map(reader, |key, reader| {
        match key {
            b"did" => did = Some(reader.text()?),
            b"text" => text = Some(reader.text()?),
            _ => drop(reader.skip()?),
        }
        Ok(())
    })?;
    Ok((required(did, "did")?, required(text, "text")?))
}

fn owned(text: Cow<'_, str>) -> Cow<'static, str> {
    Cow::Owned(text.into_owned())
}

/// The operation's name.
pub(super) const OP: &str = "fleet";

#[cfg(test)]
mod tests {
    use super::super::{Request, Response};
    use super::*;

    #[test]
    fn questions_are_read_as_they_were_written() {
        for asked in
            [FleetRequest::Status, FleetRequest::Names, FleetRequest::Why { name: "org.example.ask".into() }]
        {
            let mut body = Vec::new();
            Request::Fleet(asked.clone()).encode(&mut body);
            assert_eq!(Request::decode(&body).unwrap(), Request::Fleet(asked));
        }
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let candidate = FleetCandidate {
            did: "did:key:z6Mk1".into(),
            state: Some("spare".into()),
            reason: Some("not needed".into()),
            zone: Some("a".into()),
            links: Some(1),
            versions: vec!["1.0.0".into()],
            addresses: vec!["quic://192.0.2.1:7001".into()],
            incarnation: Some(7),
        };
        let names = vec![
            FleetName { name: "org.a.b".into(), note: Some("note".into()), candidates: vec![candidate] },
            FleetName { name: "org.a.c".into(), ..FleetName::default() },
        ];
        let full = FleetReport {
            cell: "prod".into(),
            health: "ok".into(),
            detail: "registered".into(),
            registry: "/var/lib/fleet.db".into(),
            version: Some("3.6.16".into()),
            error: Some("lost".into()),
            revision: Some(1),
            took_us: Some(2),
            incarnation: Some(3),
            generation: Some(4),
            stale_ms: Some(5),
            revocations_age_ms: Some(6),
            is_frozen: true,
            refused: vec![("signature".into(), 9)],
            split: vec![("did:key:z6Mk2".into(), "two processes have its identity".into())],
            names,
        };
        for report in [full, FleetReport::default()] {
            let mut body = Vec::new();
            Response::Fleet(Box::new(report.clone())).encode(&mut body);
            assert_eq!(Response::decode(&body).unwrap(), Response::Fleet(Box::new(report)));
        }
    }
}
