//! Text columns. PostgreSQL cannot store the character U+0000, so it is escaped. The escaped texts have the same order as
//! the original texts: U+0000 is stored as U+0001 U+0001, and U+0001 is stored as U+0001 U+0002.

use super::failure::Failure;
use std::borrow::Cow;
use std::error::Error;
use tokio_postgres::Row;
use tokio_postgres::types::private::BytesMut;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

/// A text parameter of a statement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Text<'t>(pub(super) &'t str);

impl ToSql for Text<'_> {
    fn to_sql(&self, _: &Type, buffer: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        buffer.extend_from_slice(escaped(self.0).as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(kind: &Type) -> bool {
        <&str as ToSql>::accepts(kind)
    }

    to_sql_checked!();
}

/// Returns an optional text parameter.
pub(super) fn optional(text: Option<&str>) -> Option<Text<'_>> {
    text.map(Text)
}

/// Returns a list of texts as one parameter.
pub(super) fn list<'t, T: AsRef<str> + 't>(texts: impl IntoIterator<Item = &'t T>) -> Vec<Text<'t>> {
    texts.into_iter().map(|text| Text(text.as_ref())).collect()
}

/// Reads a text column.
pub(super) fn text(row: &Row, column: usize) -> Result<String, Failure> {
    Ok(unescaped(row.try_get::<_, &str>(column)?))
}

/// Reads a text column that may be null.
pub(super) fn optional_text(row: &Row, column: usize) -> Result<Option<String>, Failure> {
    Ok(row.try_get::<_, Option<&str>>(column)?.map(unescaped))
}

pub(super) fn escaped(text: &str) -> Cow<'_, str> {
    if text.bytes().all(|byte| byte > 1) {
        return Cow::Borrowed(text);
    }
    let mut escaped = String::with_capacity(text.len() + 8);
    for character in text.chars() {
        match character {
            '\0' => escaped.push_str("\u{1}\u{1}"),
            '\u{1}' => escaped.push_str("\u{1}\u{2}"),
            other => escaped.push(other),
        }
    }
    Cow::Owned(escaped)
}

pub(super) fn unescaped(text: &str) -> String {
    if text.bytes().all(|byte| byte > 1) {
        return text.to_owned();
    }
    let mut plain = String::with_capacity(text.len());
    let mut characters = text.chars();
    while let Some(character) = characters.next() {
        match character {
            '\u{1}' => plain.push(if characters.next() == Some('\u{1}') { '\0' } else { '\u{1}' }),
            other => plain.push(other),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        /// Limit 26: every text is read back unchanged, and texts keep their order.
        #[test]
        fn texts_keep_their_value_and_order(left in "[\0\u{1}\u{2}aé]{0,6}", right in "[\0\u{1}\u{2}aé]{0,6}") {
            let stored = escaped(&left);
            prop_assert!(!stored.contains('\0'));
            prop_assert_eq!(unescaped(&stored), left.clone());
            prop_assert_eq!(stored.as_bytes().cmp(escaped(&right).as_bytes()), left.as_bytes().cmp(right.as_bytes()));
        }
    }
}
