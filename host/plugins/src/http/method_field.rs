//! A method that is named in a request's body (row 43): frameworks read the field `_method` of a POST's form or JSON and then
//! answer a DELETE, say. A grant that is limited to methods does not cover such a request.

use regex::bytes::Regex;
use std::sync::LazyLock;

/// Longest text that the search matches. A match that lies across two pieces of a body is found if it is no longer.
const LONGEST: usize = 128;

/// Finds the field in a body that arrives in pieces.
#[derive(Debug)]
pub(super) struct MethodFieldSearch {
    /// The end of what was searched.
    end: Vec<u8>,
}

impl MethodFieldSearch {
    pub(super) fn new() -> Self {
        // A form's first field follows no `&`.
        Self { end: b"&".to_vec() }
    }

    /// Whether the next piece of the body completes such a field.
    pub(super) fn finds(&mut self, piece: &[u8]) -> bool {
        self.end.extend_from_slice(&piece[..piece.len().min(LONGEST)]);
        if FIELD.is_match(&self.end) || FIELD.is_match(piece) {
            return true;
        }
        if piece.len() > LONGEST {
            self.end.clear();
            self.end.extend_from_slice(&piece[piece.len() - LONGEST..]);
        }
        self.end.drain(..self.end.len().saturating_sub(LONGEST));
        false
    }
}

/// The field as the body formats write it: `&_method=` in a form, `name="_method"` in a multipart form, and `"_method":` in
/// JSON, each with the escapes of its format.
static FIELD: LazyLock<Regex> = LazyLock::new(|| {
    // PHP takes `.`, `[` and a space in the name of a field for `_`.
    let mut name = r"(?:_|\.|\[|%5f|%2e|%5b|\\u005f)".to_owned();
    for letter in "method".chars() {
        let upper = letter.to_ascii_uppercase();
        name += &format!(
            r"(?:{letter}|%{:02x}|%{:02x}|\\u00{:02x}|\\u00{:02x})",
            u32::from(letter),
            u32::from(upper),
            u32::from(letter),
            u32::from(upper)
        );
    }
    let space = r"(?:\s|\+|%20){0,8}";
    let form = format!(r"[&;?]{space}{name}{space}=");
    let multipart = format!(r#"\bname\s{{0,8}}=\s{{0,8}}["']?\s{{0,8}}{name}["';\s]"#);
    let json = format!(r#"[^\\]"{name}"\s{{0,8}}:"#);
    Regex::new(&format!("(?i-u:{form}|{multipart}|{json})")).expect("a valid expression")
});

#[cfg(test)]
mod tests {
    use super::*;

    fn is_found(body: &str, piece: usize) -> bool {
        let mut search = MethodFieldSearch::new();
        body.as_bytes().chunks(piece).any(|piece| search.finds(piece))
    }

    /// Row 43: the field in each format, with escapes, whole and byte by byte.
    #[test]
    fn row_43_a_method_in_a_body_is_found() {
        let padding = "a=b&".repeat(100);
        let late = format!("{padding}_method=DELETE");
        let bodies = [
            "_method=DELETE",
            "a=b&_method=PUT&c=d",
            "a=b;_method=PUT",
            "%5Fmethod=PUT",
            "a=b&%5f%6d%65%74%68%6F%64=PUT",
            "a=b&+_method=PUT",
            ".method=PUT",
            "a=b&[method=PUT",
            &late,
            "--x\r\nContent-Disposition: form-data; name=\"_method\"\r\n\r\nDELETE\r\n--x--",
            "--x\r\nContent-Disposition: form-data; name=_method\r\n\r\nDELETE\r\n--x--",
            "--x\r\nContent-Disposition: form-data; filename=a; NAME='_method'; b=c\r\n\r\nDELETE",
            r#"{"_method": "DELETE"}"#,
            r#"{"a":1,"_method":"DELETE"}"#,
            r#"{"a":1,"\u005fmeth\u006fd" : "DELETE"}"#,
        ];
        for body in bodies {
            for piece in [1, 2, 3, 7, 64, 10_000] {
                assert!(is_found(body, piece), "{body} in pieces of {piece}");
            }
        }
    }

    /// Other fields, and text about the field, are sent.
    #[test]
    fn row_43_other_bodies_are_sent() {
        let bodies = [
            "",
            "method=DELETE",
            "payment_method=card&shipping_method=air",
            "text=the+field+_method+is+special",
            "a=_method",
            r#"{"method":"tools/call","params":{"payment_method":"card"}}"#,
            r#"{"text":"write \"_method\": \"DELETE\" into the form"}"#,
            r#"{"code":"def _method(self): return self._method"}"#,
            "--x\r\nContent-Disposition: form-data; name=\"file\"\r\n\r\n_method\r\n--x--",
        ];
        for body in bodies {
            for piece in [1, 3, 10_000] {
                assert!(!is_found(body, piece), "{body} in pieces of {piece}");
            }
        }
    }
}
