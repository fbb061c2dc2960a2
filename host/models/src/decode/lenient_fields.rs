//! Field types that accept any JSON value. A value of an unexpected type is ignored, so that a reply does not fail
//! because of a field that the host does not need.

use serde::de::{Deserialize, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

/// A string, which is empty if the field is missing or has a value of another type. Numbers are converted to strings,
/// because some servers use numbers as the ids of calls.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Text<'a>(pub(super) Cow<'a, str>);

impl std::ops::Deref for Text<'_> {
    type Target = str;
    fn deref(&self) -> &str {
        &self.0
    }
}

/// A whole number that is not negative. A server may write this number as an integer, a string, or a number with a zero
/// fraction, such as `3.0`. For any other value, this is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Count(pub(super) Option<u64>);

/// Value of a field such as `content`, which is a string or a list of parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Content<'a> {
    /// The field is missing or null, or the part has no text.
    #[default]
    Nothing,
    Text(Cow<'a, str>),
    /// A list of parts in the order in which the server sent them.
    Several(Vec<Content<'a>>),
    /// A part that contains the model's thinking.
    Thinking(Box<Content<'a>>),
    /// A part that contains the text of a refusal.
    Refusal(Cow<'a, str>),
}

/// The first items of a list. Further items are skipped, so that a list of many small items cannot use much memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Bounded<T, const MAX: usize>(pub(super) Vec<T>);

impl<T, const MAX: usize> std::ops::Deref for Bounded<T, MAX> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        &self.0
    }
}

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for Bounded<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_seq(BoundedVisitor::<T, MAX>(PhantomData))
    }
}

struct BoundedVisitor<T, const MAX: usize>(PhantomData<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for BoundedVisitor<T, MAX> {
    type Value = Bounded<T, MAX>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a list")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut read = Vec::new();
        while read.len() < MAX {
            match items.next_element()? {
                Some(item) => read.push(item),
                None => return Ok(Bounded(read)),
            }
        }
        while items.next_element::<IgnoredAny>()?.is_some() {}
        Ok(Bounded(read))
    }
}

struct TextVisitor;
struct CountVisitor;
struct ContentVisitor;

impl<'de: 'a, 'a> Deserialize<'de> for Text<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(TextVisitor)
    }
}

impl<'de> Deserialize<'de> for Count {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(CountVisitor)
    }
}

impl<'de: 'a, 'a> Deserialize<'de> for Content<'a> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(ContentVisitor)
    }
}

/// Implements visitor methods that ignore values of unexpected types.
macro_rules! ignore_unexpected {
    (scalars) => {
        fn visit_bool<E>(self, _: bool) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(Self::Value::default())
        }
    };
    (containers) => {
        fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
            while items.next_element::<IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
            Ok(Self::Value::default())
        }
    };
}

impl<'de> Visitor<'de> for TextVisitor {
    type Value = Text<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(number.to_string())))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(number.to_string())))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        Ok(Text(Cow::Owned(number.to_string())))
    }

    ignore_unexpected!(scalars);
    ignore_unexpected!(containers);
}

impl<'de> Visitor<'de> for CountVisitor {
    type Value = Count;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a whole number")
    }

    fn visit_u64<E>(self, number: u64) -> Result<Self::Value, E> {
        Ok(Count(Some(number)))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Self::Value, E> {
        Ok(Count(u64::try_from(number).ok()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Self::Value, E> {
        let is_whole = number.fract() == 0.0 && (0.0..=u32::MAX.into()).contains(&number);
        Ok(Count(is_whole.then_some(number as u64)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Count(text.parse().ok()))
    }

    ignore_unexpected!(scalars);
    ignore_unexpected!(containers);
}

impl<'de> Visitor<'de> for ContentVisitor {
    type Value = Content<'de>;

    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string or a list of parts")
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Self::Value, E> {
        Ok(Content::Text(Cow::Borrowed(text)))
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        Ok(Content::Text(Cow::Owned(text.to_owned())))
    }

    fn visit_u64<E>(self, _: u64) -> Result<Self::Value, E> {
        Ok(Content::Nothing)
    }

    fn visit_i64<E>(self, _: i64) -> Result<Self::Value, E> {
        Ok(Content::Nothing)
    }

    fn visit_f64<E>(self, _: f64) -> Result<Self::Value, E> {
        Ok(Content::Nothing)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Self::Value, A::Error> {
        let mut parts = Vec::new();
        while let Some(part) = items.next_element()? {
            parts.push(part);
        }
        Ok(Content::Several(parts))
    }

    /// Parses one part: `{"type": "text", "text"}`, `{"type": "thinking", "thinking"}` or `{"type": "refusal",
    /// "refusal"}`.
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut kind, mut text, mut thinking) = (Text::default(), Content::Nothing, Content::Nothing);
        let mut refusal = Text::default();
        while let Some(key) = map.next_key::<Text<'de>>()? {
            match &*key {
                "type" => kind = map.next_value()?,
                "text" | "summary" => text = map.next_value()?,
                "thinking" => thinking = map.next_value()?,
                "refusal" => refusal = map.next_value()?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(match (&*kind, thinking) {
            ("refusal", _) => Content::Refusal(refusal.0),
            ("thinking" | "reasoning", Content::Nothing) => Content::Thinking(Box::new(text)),
            (_, Content::Nothing) => text,
            (_, thinking) => Content::Thinking(Box::new(thinking)),
        })
    }

    ignore_unexpected!(scalars);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unexpected_types_of_strings_and_numbers_are_ignored() {
        let texts =
            [("\"a\"", "a"), ("\"\\u00e4\"", "ä"), ("7", "7"), ("-1", "-1"), ("null", ""), ("true", ""), ("[1]", "")];
        for (json, expected) in texts {
            assert_eq!(&*serde_json::from_str::<Text<'_>>(json).unwrap(), expected, "{json}");
        }
        let counts = [
            ("7", Some(7)),
            ("7.0", Some(7)),
            ("7.5", None),
            ("-7", None),
            ("\"7\"", Some(7)),
            ("1e300", None),
            ("null", None),
            ("{\"a\": 1}", None),
        ];
        for (json, expected) in counts {
            assert_eq!(serde_json::from_str::<Count>(json).unwrap(), Count(expected), "{json}");
        }
    }

    #[test]
    fn strings_without_escapes_are_borrowed() {
        let Text(text) = serde_json::from_str("\"plain\"").unwrap();
        assert!(matches!(text, Cow::Borrowed("plain")));
    }

    #[test]
    fn content_is_a_string_or_a_list_of_parts() {
        let text = |text: &'static str| Content::Text(text.into());
        let cases = [
            ("\"a\"", text("a")),
            ("null", Content::Nothing),
            ("3", Content::Nothing),
            (r#"["a", {"type": "text", "text": "b"}]"#, Content::Several(vec![text("a"), text("b")])),
            (r#"{"type": "output_text", "text": "b", "annotations": [1]}"#, text("b")),
            (r#"{"type": "refusal", "refusal": "no"}"#, Content::Refusal("no".into())),
            (
                r#"{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]}"#,
                Content::Thinking(Box::new(Content::Several(vec![text("hm")]))),
            ),
            (r#"{"type": "reasoning", "text": "hm"}"#, Content::Thinking(Box::new(text("hm")))),
            (r#"{"type": "reference", "reference_ids": [1]}"#, Content::Nothing),
        ];
        for (json, expected) in cases {
            assert_eq!(serde_json::from_str::<Content<'_>>(json).unwrap(), expected, "{json}");
        }
    }
}
