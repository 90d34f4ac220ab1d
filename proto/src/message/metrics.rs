//! Encodes the operation `metrics` of REQUEST and RESPONSE: the counters of a sidecar and the use of its limits.
//!
//! It is an extension of capd for local links only; a peer gets the error of an unknown operation.

use std::borrow::Cow;
use std::fmt;

use super::body::{BodyError, MapWriter, read_array, read_map, required, wrong_value};
use crate::cbor::{Kind, Reader, Writer};

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
/// **Shape:** `{"name": tstr, "type": "counter" / "gauge" / "histogram", "help": tstr, "samples": [* metric-sample]}`.
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
    /// How often something took how long: buckets, each with all that took no longer than its label `le`, and their sum and
    /// count.
    Histogram,
}

/// What a sample of a histogram is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetricPart {
    /// How many were at most as much as the label `le` says.
    Bucket,
    /// All of them added up.
    Sum,
    /// How many there were.
    Count,
}

/// The value of a sample.
#[derive(Clone, Copy, Debug)]
pub enum MetricValue {
    /// A whole number.
    Uint(u64),
    /// A number with a fraction: the sum of a histogram.
    Float(f64),
}

/// One value.
///
/// **Shape:** `{? "labels": {* tstr => tstr}, ? "part": "bucket" / "sum" / "count", "value": uint / float}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MetricSample<'a> {
    /// The labels that distinguish it from the family's other values, each name once.
    pub labels: Vec<(Cow<'a, str>, Cow<'a, str>)>,
    /// What it is of a histogram; `None` in other families.
    pub part: Option<MetricPart>,
    /// The value, in the unit that the metric's name ends with.
    pub value: MetricValue,
}

impl MetricKind {
    /// The kind as written in a RESPONSE, and as Prometheus spells it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        match &*reader.text()? {
            "counter" => Ok(Self::Counter),
            "gauge" => Ok(Self::Gauge),
            "histogram" => Ok(Self::Histogram),
            _ => Err(wrong_value(reader, "type", "counter, gauge or histogram")),
        }
    }
}

impl MetricPart {
    /// The part as it stands in a RESPONSE, and as Prometheus ends the sample's name.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Bucket => "bucket",
            Self::Sum => "sum",
            Self::Count => "count",
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        match &*reader.text()? {
            "bucket" => Ok(Self::Bucket),
            "sum" => Ok(Self::Sum),
            "count" => Ok(Self::Count),
            _ => Err(wrong_value(reader, "part", "bucket, sum or count")),
        }
    }
}

impl PartialEq for MetricValue {
    /// Whether both are encoded alike, so that a value equals itself.
    fn eq(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Uint(a), Self::Uint(b)) => a == b,
            (Self::Float(a), Self::Float(b)) => a.to_bits() == b.to_bits(),
            (Self::Uint(_), Self::Float(_)) | (Self::Float(_), Self::Uint(_)) => false,
        }
    }
}

impl Eq for MetricValue {}

impl MetricValue {
    fn read(reader: &mut Reader<'_>) -> Result<Self, BodyError> {
        if reader.kind()? == Kind::Unsigned {
            return Ok(Self::Uint(reader.uint()?));
        }
        Ok(Self::Float(reader.float()?))
    }
}

impl fmt::Display for MetricValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Uint(value) => value.fmt(f),
            Self::Float(value) => value.fmt(f),
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
            part: sample.part,
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
        let (mut labels, mut part, mut value) = (Vec::new(), None, None);
        read_map(reader, |key, reader| {
            match key {
                b"part" => part = Some(MetricPart::read(reader)?),
                b"value" => value = Some(MetricValue::read(reader)?),
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
        Ok(Self { labels, part, value: required(value, "value")? })
    }

    fn write(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        if let Some(part) = self.part {
            map.text("part", part.as_str());
        }
        match self.value {
            MetricValue::Uint(value) => map.uint("value", value),
            MetricValue::Float(value) => drop(map.key("value").float(value)),
        }
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
