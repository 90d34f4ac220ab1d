//! Encodes CAP_QUERY: a search for capabilities.

use std::borrow::Cow;

use super::{
    Descriptor, Type,
    body::{self, BodyError, Contradiction, MapWriter, read_map, required, wrong_value},
};
use crate::{
    capability::{CapabilityPattern, Range},
    cbor::Reader,
    limits::{QUERY_LIMIT_DEFAULT, QUERY_LIMIT_MAX},
};

/// The body of CAP_QUERY.
///
/// **Shape:** `{"filter": {? "capability": name, ? "type": tstr, ? "version": range, ? "words": tstr},
/// ? "limit": uint, ? "cursor": tstr, ? "order": "newest-first" / "oldest-first"}`. **Source:** PROTOCOL 7.1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Query<'a> {
    /// The requested name or pattern.
    pub capability: Option<Cow<'a, str>>,
    /// Its old alias.
    pub alias: Option<Cow<'a, str>>,
    /// The requested range.
    pub version: Option<Cow<'a, str>>,
    /// The part of an id or a description that is looked for. Ours.
    pub words: Option<Cow<'a, str>>,
    /// How many descriptors a page may have.
    pub limit: Option<u64>,
    /// Where to continue.
    pub cursor: Option<Cow<'a, str>>,
    /// The order of versions.
    pub order: Option<Order>,
}

/// The order of versions in an answer; names ascend in both. **Source:** PROTOCOL 7.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Order {
    /// Descending versions.
    #[default]
    NewestFirst,
    /// Ascending versions.
    OldestFirst,
}

impl Order {
    /// The order as written in a query.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NewestFirst => "newest-first",
            Self::OldestFirst => "oldest-first",
        }
    }
}

/// A query with all defaults filled in. **Source:** PROTOCOL 7.1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Question {
    /// Which names.
    pub pattern: CapabilityPattern,
    /// Which versions of them; by default all.
    pub range: Option<Range>,
    /// Which ids and descriptions: those with this part, in lower case. Empty for all.
    pub words: String,
    /// How many descriptors at most, from 1 to 1000.
    pub limit: usize,
    /// In which order.
    pub order: Order,
}

impl<'a> Query<'a> {
    /// Checks and reads the body. **Errors:** 1001.
    pub fn decode(body: &'a [u8]) -> Result<Self, BodyError> {
        body::check(Type::CapQuery, body)?;
        Self::read(body)
    }

    pub(super) fn read(body: &'a [u8]) -> Result<Self, BodyError> {
        let mut query = Self::default();
        let mut filter = None;
        read_map(&mut Reader::new(body), |key, reader| {
            match key {
                b"filter" => filter = Some(query.read_filter(reader)?),
                b"limit" => query.limit = Some(reader.uint()?),
                b"cursor" => query.cursor = Some(reader.text()?),
                b"order" => {
                    query.order = Some(match &*reader.text()? {
                        "newest-first" => Order::NewestFirst,
                        "oldest-first" => Order::OldestFirst,
                        _ => return Err(wrong_value(reader, "order", "newest-first or oldest-first")),
                    });
                }
                _ => drop(reader.skip()?),
            }
            Ok(())
        })?;
        required(filter, "filter")?;
        Ok(query)
    }

    fn read_filter(&mut self, reader: &mut Reader<'a>) -> Result<(), BodyError> {
        read_map(reader, |key, reader| {
            match key {
                b"capability" => self.capability = Some(reader.text()?),
                b"type" => self.alias = Some(reader.text()?),
                b"version" => self.version = Some(reader.text()?),
                b"words" => self.words = Some(reader.text()?),
                _ => drop(reader.skip()?),
            }
            Ok(())
        })
    }

    /// The query with all defaults filled in.
    ///
    /// **Errors:** 4001 without a name, with an invalid name or range, or with a `limit` of 0.
    pub fn question(&self) -> Result<Question, BodyError> {
        // PROTOCOL 7.1: the filter needs `capability` or its old alias; `capability` wins when both stand.
        let (field, name) = match (&self.capability, &self.alias) {
            (Some(name), _) => ("capability", name),
            (None, Some(name)) => ("type", name),
            (None, None) => return Err(Contradiction::NoFilter.into()),
        };
        let pattern = name.parse().map_err(Contradiction::in_field(field))?;
        let range = match &self.version {
            Some(text) => Some(text.parse().map_err(Contradiction::in_field("version"))?),
            None => None,
        };
        // PROTOCOL 7.1: `limit` default 100, capped at 1000. No answer is empty, so 0 asks for nothing there is.
        let limit = match self.limit.unwrap_or(QUERY_LIMIT_DEFAULT).min(QUERY_LIMIT_MAX) {
            0 => return Err(Contradiction::ZeroLimit.into()),
            limit => limit as usize,
        };
        let words = self.words.as_deref().unwrap_or_default().to_lowercase();
        Ok(Question { pattern, range, words, limit, order: self.order.unwrap_or_default() })
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut map = MapWriter::new(out);
        map.uint_if("limit", self.limit);
        map.text_if("order", self.order.map(Order::as_str));
        map.text_if("cursor", self.cursor.as_deref());
        let mut filter = MapWriter::new(map.key_then("filter"));
        filter.text_if("type", self.alias.as_deref());
        filter.text_if("words", self.words.as_deref());
        filter.text_if("version", self.version.as_deref());
        filter.text_if("capability", self.capability.as_deref());
    }
}

impl Question {
    /// Whether a capability has the words that are looked for: in its id, or in its description. Case does not count.
    pub fn is_about(&self, descriptor: &Descriptor) -> bool {
        let has_words = |text: &str| text.to_lowercase().contains(&self.words);
        self.words.is_empty() || has_words(&descriptor.id.to_string()) || {
            let description =
                descriptor.field("description").and_then(|field| Reader::new(field).text().ok());
            description.is_some_and(|text| has_words(&text))
        }
    }
}
