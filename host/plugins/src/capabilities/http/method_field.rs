//! Finds a field in a request's body that overrides the request's method (row 43). For example, some frameworks handle
//! a POST request as a DELETE request if its field `_method` contains `DELETE`. The host stops a request with an
//! overriding field if the plugin's grant is limited to certain methods.

use crate::grants::request_rules::is_method_field;

/// The search stores at most this number of bytes of a field name or of a line. A longer name cannot be the name of a
/// method field.
const MAX_NAME_BYTES: usize = 1024;

/// Searches a request body, which arrives in pieces, for a method field. The body may be a form, JSON or
/// multipart data.
#[derive(Debug, Default)]
pub(super) struct MethodFieldSearch {
    form: FormNames,
    json: JsonNames,
    multipart: PartNames,
}

impl MethodFieldSearch {
    /// Whether the next piece of the body completes the name of a method field.
    pub(super) fn finds(&mut self, piece: &[u8]) -> bool {
        piece.iter().any(|byte| self.form.take(*byte) || self.json.take(*byte) || self.multipart.take(*byte))
    }
}

/// A buffer with a maximum size, which drops further bytes and remembers that it was full.
#[derive(Debug, Default)]
struct BoundedBuffer {
    bytes: Vec<u8>,
    is_too_long: bool,
}

impl BoundedBuffer {
    fn push(&mut self, byte: u8) {
        if self.bytes.len() < MAX_NAME_BYTES {
            self.bytes.push(byte);
        } else {
            self.is_too_long = true;
        }
    }

    fn clear(&mut self) {
        self.bytes.clear();
        self.is_too_long = false;
    }

    /// The stored text, or an empty text if bytes were dropped because the buffer was full.
    fn text(&self) -> String {
        if self.is_too_long { String::new() } else { String::from_utf8_lossy(&self.bytes).into_owned() }
    }
}

/// Finds the field names in a percent-encoded form, `name=value&name=value`.
#[derive(Debug, Default)]
struct FormNames {
    name: BoundedBuffer,
    in_value: bool,
}

impl FormNames {
    fn take(&mut self, byte: u8) -> bool {
        match byte {
            b'&' | b';' => {
                self.name.clear();
                self.in_value = false;
            }
            _ if self.in_value => {}
            b'=' => {
                self.in_value = true;
                let name = self.name.text() + "=";
                return url::form_urlencoded::parse(name.as_bytes()).any(|(name, _)| is_method_field(&name));
            }
            _ => self.name.push(byte),
        }
        false
    }
}

/// Finds the field names in JSON objects, `"name":`, at any depth.
#[derive(Debug, Default)]
struct JsonNames {
    text: BoundedBuffer,
    position: JsonPosition,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum JsonPosition {
    #[default]
    Between,
    InText,
    Escaped,
    /// The search has read a whole string. The string is a field name if a colon follows.
    AfterText,
}

impl JsonNames {
    fn take(&mut self, byte: u8) -> bool {
        self.position = match (self.position, byte) {
            (JsonPosition::Between | JsonPosition::AfterText, b'"') => {
                self.text.clear();
                JsonPosition::InText
            }
            (JsonPosition::InText, b'"') => JsonPosition::AfterText,
            (JsonPosition::InText | JsonPosition::Escaped, _) => {
                self.text.push(byte);
                if self.position == JsonPosition::InText && byte == b'\\' {
                    JsonPosition::Escaped
                } else {
                    JsonPosition::InText
                }
            }
            (JsonPosition::AfterText, b':') => {
                self.position = JsonPosition::Between;
                let raw = self.text.text();
                let name = serde_json::from_str(&format!("\"{raw}\"")).unwrap_or(raw);
                return is_method_field(&name);
            }
            (JsonPosition::AfterText, _) if byte.is_ascii_whitespace() => JsonPosition::AfterText,
            (JsonPosition::Between | JsonPosition::AfterText, _) => JsonPosition::Between,
        };
        false
    }
}

/// Finds the field names in multipart data. A name is in `Content-Disposition: form-data; name="…"`, which may have
/// several lines, or in `Content-ID: …`, which Rack uses as a name.
#[derive(Debug, Default)]
struct PartNames {
    line: BoundedBuffer,
}

impl PartNames {
    fn take(&mut self, byte: u8) -> bool {
        if byte != b'\n' {
            self.line.push(byte);
            return false;
        }
        let line: String = self.line.text().to_ascii_lowercase();
        self.line.clear();
        // Frameworks interpret quotes, escapes and spaces differently, so the search ignores these characters.
        let plain: String =
            line.chars().filter(|character| !matches!(character, '"' | '\'' | '\\' | '\r' | '\t' | ' ')).collect();
        let value = |before: &str| {
            let mut found = plain.match_indices(before).map(|(index, _)| &plain[index + before.len()..]);
            found.any(|value| is_method_field(value.split(';').next().unwrap_or_default()))
        };
        value("name=")
            || value("name*=")
            || value("name*=utf-8")
            || plain.starts_with("content-id:") && value("content-id:")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_found(body: &str, piece: usize) -> bool {
        let mut search = MethodFieldSearch::default();
        body.as_bytes().chunks(piece).any(|piece| search.finds(piece))
    }

    /// Row 43: a method field is found in each format, with escapes, under each name that a framework accepts, and in
    /// pieces of any size.
    #[test]
    fn row_43_method_in_body_is_found() {
        let late = format!("{}_method=DELETE", "a=b&".repeat(100));
        let part = |name: &str| format!("--x\r\nContent-Disposition: form-data; {name}\r\n\r\nDELETE\r\n--x--");
        let bodies = [
            "_method=DELETE",
            "a=b&_method=PUT&c=d",
            "a=b;_method=PUT",
            "%5Fmethod=PUT",
            "a=b&%5f%6d%65%74%68%6F%64=PUT",
            "a=b&+++++++++_method=PUT",
            "_method%00x=PUT",
            "[_method]=PUT",
            "_method]=PUT",
            ".method=PUT",
            "a=b&[method=PUT",
            "X-HTTP-Method-Override=PUT",
            "_HttpMethod=PATCH",
            &late,
            &part("name=\"_method\""),
            &part("name=_method"),
            &part("filename=a; NAME='_method'; b=c"),
            &part("name=         \"_method\""),
            &part("name=\"_\\method\""),
            &part("name*=utf-8''_method"),
            &part("\r\n name=\"_method\""),
            "--x\r\nContent-ID: _method\r\n\r\nDELETE\r\n--x--",
            r#"{"_method": "DELETE"}"#,
            r#"{"a":1,"_method":"DELETE"}"#,
            "{\"a\":1,\"_method\"\n\t          : \"DELETE\"}",
            r#"{"a":"\"","\u005fmeth\u006fd" : "DELETE"}"#,
        ];
        for body in bodies {
            for piece in [1, 2, 3, 7, 64, 10_000] {
                assert!(is_found(body, piece), "{body} in pieces of {piece}");
            }
        }
    }

    /// Row 43: other fields, and values that contain the name of a method field, are not treated as method fields.
    #[test]
    fn row_43_other_bodies_are_not_refused() {
        let long = format!("{}=x", "_method".repeat(1_000));
        let bodies = [
            "",
            &long,
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
