//! Limits that are checked for every byte of a document before it is parsed, so that reading stops early at an item that is too
//! long or a value that is nested too deeply.

use agent_store::{MAX_BLOB_BYTES, MAX_JSON_DEPTH};

/// Maximum bytes of one item: a message, a call, an event or the state. `session export` writes each item as one line. The limits
/// of the data in it are far lower.
const MAX_ITEM_BYTES: u64 = 64 << 20;
/// Maximum bytes of a media item, which contains the media as base64.
const MAX_MEDIA_ITEM_BYTES: u64 = MAX_BLOB_BYTES.div_ceil(3) * 4 + (1 << 20);
/// Maximum nesting depth: the deepest value that is stored, plus the levels around it.
const MAX_DEPTH: usize = MAX_JSON_DEPTH + 16;
/// Name of the member that contains the bytes of media.
const MEDIA_MEMBER: &[u8] = b"base64";

/// Why a document exceeds the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitExceeded {
    /// A value is nested too deeply.
    TooDeep,
    /// An item is too long.
    TooLong,
}

impl std::fmt::Display for LimitExceeded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooDeep => write!(formatter, "it is nested more than {MAX_DEPTH} levels deep"),
            Self::TooLong => {
                let (item, medium) = (MAX_ITEM_BYTES >> 20, MAX_MEDIA_ITEM_BYTES >> 20);
                write!(
                    formatter,
                    "one of its items (one line of the document) is longer than {item} MiB, or {medium} MiB for media"
                )
            }
        }
    }
}

/// State of the scan.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    depth: usize,
    in_text: bool,
    escaped: bool,
    /// Bytes since the last item ended.
    item: u64,
    /// Start of the last string. Before a value, this is the member's name.
    last: Vec<u8>,
    is_medium: bool,
}

impl Bounds {
    /// Creates a scan that starts inside this number of nested arrays and objects.
    pub(super) fn at_depth(depth: usize) -> Self {
        Self { depth, ..Self::default() }
    }

    /// Scans the next bytes.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> Result<(), LimitExceeded> {
        bytes.iter().try_for_each(|byte| self.step(*byte))
    }

    fn step(&mut self, byte: u8) -> Result<(), LimitExceeded> {
        self.item += 1;
        if self.in_text {
            self.step_in_text(byte);
        } else {
            match byte {
                b'"' => {
                    (self.in_text, self.is_medium) = (true, self.last == MEDIA_MEMBER);
                    self.last.clear();
                }
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                b',' if self.depth <= 2 => self.item = 0,
                b'\n' => self.item = 0,
                _ => {}
            }
        }
        let longest = if self.in_text && self.is_medium { MAX_MEDIA_ITEM_BYTES } else { MAX_ITEM_BYTES };
        match () {
            () if self.depth > MAX_DEPTH => Err(LimitExceeded::TooDeep),
            () if self.item > longest => Err(LimitExceeded::TooLong),
            () => Ok(()),
        }
    }

    fn step_in_text(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => {
                self.in_text = false;
                // The bytes of the media do not count for the rest of the item.
                self.item = if self.is_medium { 0 } else { self.item };
            }
            _ if self.last.len() <= MEDIA_MEMBER.len() => self.last.push(byte),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Scans `begin` and then repeats `piece` until `bytes` bytes are scanned.
    fn check(begin: &str, piece: &[u8], bytes: u64) -> Result<(), LimitExceeded> {
        let mut bounds = Bounds::default();
        bounds.scan(begin.as_bytes())?;
        let pieces = bytes / piece.len() as u64;
        (0..pieces).try_for_each(|_| bounds.scan(piece))
    }

    /// D5: overlong or deeply nested input is rejected anywhere in a document, while large media and long lists are accepted.
    #[test]
    fn d5_unbounded_documents_are_rejected() {
        assert_eq!(check("", b"{\"a\":", 10_000), Err(LimitExceeded::TooDeep));
        assert_eq!(check("{\"texts\":[\"[[", &[b'['; 1000], 10_000), Ok(()), "brackets in a string do not nest");
        assert_eq!(check("{", b"\"a\": 1,\n", 10_000), Ok(()));
        let (more, long) = (MAX_ITEM_BYTES + 1024, vec![b'a'; 1024]);
        assert_eq!(check("{\"texts\":[\"", &long, more), Err(LimitExceeded::TooLong));
        assert_eq!(check("{\"texts\":[\"\\\"base64\\\":", &long, more), Err(LimitExceeded::TooLong));
        assert_eq!(check("{\"media\":[{\"base64\":\"", &long, more), Ok(()));
        assert_eq!(check("{\"media\":[{\"base64x\":\"", &long, more), Err(LimitExceeded::TooLong));
        // A comma ends an item even if the whole document is one line.
        let item = [b"{\"text\": \"".as_slice(), &long, b"\"},"].concat();
        assert_eq!(check("{\"messages\":[", &item, more), Ok(()));
        assert_eq!(check("{\"messages\":[{\"parts\":[", &item, more), Err(LimitExceeded::TooLong));
    }

    #[test]
    fn d5_errors_state_the_limits() {
        assert_eq!(LimitExceeded::TooDeep.to_string(), "it is nested more than 143 levels deep");
        let long = LimitExceeded::TooLong.to_string();
        assert!(long.contains("longer than 64 MiB") && long.contains("or 683 MiB for media"), "{long}");
    }
}
