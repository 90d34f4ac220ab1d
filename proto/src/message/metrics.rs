//! Encodes the operation `metrics` of REQUEST and RESPONSE: the counters of a sidecar and the use of its limits.
//!
//! It is an extension of capd for local links only; a peer gets the error of an unknown operation.

use std::borrow::Cow;

use super::body::{BodyError, MapWriter, read_array, read_map, required, wrong_value};
use crate::cbor::{Reader, Writer};

/// All metrics of a sidecar at one moment.
///
/// **Shape:** `{"op": "metrics", "families": [* metric-family]}`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Metrics<'a> {
    /// The families, each name once.
    pub families: Vec<MetricFamily<'a>>,
}

/// One metric with its samples.
///
/// **Shape:** `{"name": tstr, "type": "counter" / "gauge", "help": tstr, "samples": [* metric-sample]}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricFamily<'a> {
    /// Its name, as Prometheus spells names.
    pub name: Cow<'a, str>,
    /// What its values mean.
    pub kind: MetricKind,
    /// Its meaning in one sentence.
    pub help: Cow<'a, str>,
    /// Its values, each with its own labels.
    pub samples: Vec<MetricSample<'a>>,
}

/// What a metric's values mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricKind {
    /// A count since the sidecar started; it never decreases.
    Counter,
    /// A current value.
    Gauge,
}

/// One value.
///
/// **Shape:** `{? "labels": {* tstr => tstr}, "value": uint}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricSample<'a> {
    /// The labels that distinguish it from the family's other values, each name once.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// The value, in the unit that the metric's name ends with.
    pub value: u64,
}

impl MetricKind {
    /// The kind as written in a RESPONSE, and as Prometheus spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        match &*reader.text()? {
            "counter" => Ok(Self::Counter),
            "gauge" => Ok(Self::Gauge),
            _ => Err(wrong_value(reader, "type", "counter or gauge")),
        }
    }
}

impl<'a> Metrics<'a> {
    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut families = None;
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"families" => families = Some(read_array(reader, MetricFamily::read)?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { families: required(families, "families")? })
    }

    pub(super) fn write(&self, map: &mut MapWriter<'_>) {
        map.text("op", OP);
        let out = map.key_then("families");
        Writer::new(out).array(self.families.len() as u64);
        for family in &self.families {
            family.write(out);
        }
    }
}

impl<'a> MetricFamily<'a> {
    /// The same family, owned.
    pub fn into_owned(self) -> MetricFamily<'static> {
        let owned = |text: Cow<'_, str>| Cow::Owned(text.into_owned());
        let samples = self.samples.into_iter().map(|sample| MetricSample {
            labels: sample.labels.into_iter().map(|(name, value)| (owned(name), owned(value))).collect(),
            value: sample.value,
        });
        MetricFamily {
            name: owned(self.name),
            kind: self.kind,
            help: owned(self.help),
            samples: samples.collect(),
        }
    }

    fn read(reader: &mut Reader<'a>) -> Result<Self, BodyError> {
        let (mut name, mut kind, mut help, mut samples) = (None, None, None, None);
        read_map(reader, |key, reader| {
            match key {
                b"help" => help = Some(reader.text()?),
                b"name" => name = Some(reader.text()?),
                b"type" => kind = Some(MetricKind::read(reader)?),
                b"samples" => samples = Some(read_array(reader, MetricSample::read)?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self {
            name: required(name, "name")?,
            kind: required(kind, "type")?,
            help: required(help, "help")?,
            samples: required(samples, "samples")?,
        })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.text("help", &self.help);
        map.text("name", &self.name);
        map.text("type", self.kind.as_str());
        let out = map.key_then("samples");
        Writer::new(out).array(self.samples.len() as u64);
        for sample in &self.samples {
            sample.write(out);
        }
    }
}

impl<'a> MetricSample<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, BodyError> {
        let (mut labels, mut value) = (Vec::new(), None);
        read_map(reader, |key, reader| {
            match key {
                b"value" => value = Some(reader.uint()?),
                b"labels" => {
                    let mut left = reader.map()?;
                    while reader.has_next(&mut left) {
                        labels.push((reader.text()?, reader.text()?));
                    }
                }
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        Ok(Self { labels, value: required(value, "value")? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.uint("value", self.value);
        if self.labels.is_empty() {
            return;
        }
        // The bytewise order of the names' encodings: shorter ones first.
        let mut labels: Vec<_> = self.labels.iter().collect();
        labels.sort_by_key(|(name, _)| (name.len(), name.as_ref()));
        let mut writer = map.key("labels");
        writer.map(labels.len() as u64);
        for (name, value) in labels {
            writer.text(name).text(value);
        }
    }
}

/// The operation's name.
pub(super) const OP: &str = "metrics";
