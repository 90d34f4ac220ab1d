//! Parses a JSON text into a tree, and refuses duplicate keys.
//!
//! Readers disagree about which of two equal keys counts, so a document with a duplicate would be two contracts.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

/// Reads one JSON value.
///
/// **Errors:** the text is not JSON, is nested deeper than 127 levels, or has a key twice in one object.
pub(super) fn read(text: &[u8]) -> serde_json::Result<Value> {
    let mut deserializer = serde_json::Deserializer::from_slice(text);
    let mut value = Once.deserialize(&mut deserializer)?;
    deserializer.end()?;
    // Whatever is told of a document is told in one order, however its keys stand.
    value.sort_all_objects();
    Ok(value)
}

/// Any value, each key once.
#[derive(Clone, Copy)]
struct Once;

impl<'de> DeserializeSeed<'de> for Once {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Once {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(truth.into())
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(number.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(item) = items.next_element_seed(self)? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut members: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(key) = members.next_key::<String>()? {
            if object.contains_key(&key) {
                let shown: String = key.chars().take(80).collect();
                return Err(A::Error::custom(format_args!("the key {shown:?} is a duplicate")));
            }
            object.insert(key, members.next_value_seed(self)?);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_json_has_is_read_as_serde_reads_it() {
        let text =
            br#" {"a": [null, true, 1, -1, 18446744073709551615, 1.5, 1e3, "x\u00e9\n"], "": {"b": {}}} "#;
        assert_eq!(read(text).unwrap(), serde_json::from_slice::<Value>(text).unwrap());
    }

    #[test]
    fn a_key_that_stands_twice_is_refused_with_its_line() {
        for text in ["{\"a\": 1,\n\"a\": 1}", "[{\"b\": {\"a\": 1,\n \"\\u0061\": 2}}]"] {
            let error = read(text.as_bytes()).unwrap_err();
            assert!(error.to_string().starts_with("the key \"a\" is a duplicate at line 2"), "{error}");
        }
        assert!(read(br#"{"a": {"a": 1}, "b": {"a": 1}}"#).is_ok());
    }

    #[test]
    fn what_is_not_one_value_is_refused() {
        for text in ["", "1 2", "{", "[1,]", "\"\\ud800\"", "1e400", "nul", "{1: 2}"] {
            assert!(read(text.as_bytes()).is_err(), "{text}");
        }
        assert!(read("[".repeat(1_000_000).as_bytes()).is_err());
    }
}
