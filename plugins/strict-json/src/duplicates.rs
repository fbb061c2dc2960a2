//! Finds duplicate keys in objects. The value of a duplicate key is ambiguous: some parsers use the first value of the
//! key, and other parsers use the last value (RFC 8259, section 4).

use agent_host_sdk::json::pointer_token;
use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use std::collections::BTreeSet;
use std::fmt;

/// Parses a whole text as JSON and returns the JSON pointers of all duplicate keys in the order of the text. The result
/// is an error if the text is not valid JSON, or if it contains a number or an escape that cannot be represented.
pub fn duplicate_keys(json: &str) -> serde_json::Result<Vec<String>> {
    let mut found = Vec::new();
    let mut deserializer = serde_json::Deserializer::from_str(json);
    Walk { pointer: String::new(), found: &mut found }.deserialize(&mut deserializer)?;
    deserializer.end()?;
    Ok(found)
}

struct Walk<'a> {
    pointer: String,
    found: &'a mut Vec<String>,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("JSON")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut keys = BTreeSet::new();
        while let Some(key) = map.next_key::<String>()? {
            let pointer = format!("{}/{}", self.pointer, pointer_token(&key));
            if !keys.insert(key) && !self.found.contains(&pointer) {
                self.found.push(pointer.clone());
            }
            map.next_value_seed(Walk { pointer, found: self.found })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<(), A::Error> {
        let mut index = 0;
        while sequence
            .next_element_seed(Walk { pointer: format!("{}/{index}", self.pointer), found: self.found })?
            .is_some()
        {
            index += 1;
        }
        Ok(())
    }

    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }

    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }

    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }

    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }

    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }

    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}
