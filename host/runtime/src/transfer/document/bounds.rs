//! Limits that are checked for every byte of a document before the byte is parsed. If an item is too long or a value is
//! nested too deeply, reading stops early.

use agent_store::{MAX_BLOB_BYTES, MAX_JSON_DEPTH};

/// Maximum size of one item, in bytes. An item is a message, a call, an event or the state. `session export` writes
/// each item as one line. The host's limits for the data in an item are far lower than `MAX_ITEM_BYTES`.
const MAX_ITEM_BYTES: u64 = 64 << 20;
/// Maximum size of an item that contains media as base64, in bytes.
const MAX_MEDIA_ITEM_BYTES: u64 = MAX_BLOB_BYTES.div_ceil(3) * 4 + (1 << 20);
/// Maximum nesting depth of a document: the maximum depth of a stored value, plus the levels of the document around
/// such a value.
const MAX_DEPTH: usize = MAX_JSON_DEPTH + 16;
/// Name of the member that contains the bytes of media.
const MEDIA_MEMBER: &[u8] = b"base64";

/// The limit that a document exceeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LimitExceeded {
    /// A value in the document is nested too deeply.
    TooDeep,
    /// An item of the document is too long.
    TooLong,
}

impl std::fmt::Display for LimitExceeded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooDeep => write!(formatter, "it is nested more than {MAX_DEPTH} levels deep"),
            Self::TooLong => {
                let (item, media) = (MAX_ITEM_BYTES >> 20, MAX_MEDIA_ITEM_BYTES >> 20);
                write!(
                    formatter,
                    "one of its items (one line of the document) is longer than {item} MiB, or {media} MiB for media"
                )
            }
        }
    }
}

/// The state of a scan that checks the limits.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    /// Number of nested arrays and objects at the current byte.
    depth: usize,
    in_string: bool,
    escaped: bool,
    /// Number of bytes that were scanned since the last item ended.
    item_bytes: u64,
    /// The first bytes of the last string that was scanned. When the value of an object's member begins,
    /// the last string is the name of this member.
    last_string: Vec<u8>,
    /// Whether the current string contains the bytes of media.
    is_media: bool,
}

impl Bounds {
    /// Creates a scan that starts inside this number of nested arrays and objects.
    pub(super) fn at_depth(depth: usize) -> Self {
        Self { depth, ..Self::default() }
    }

    /// Scans the next bytes of the document, and returns an error if a limit is exceeded.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> Result<(), LimitExceeded> {
        bytes.iter().try_for_each(|byte| self.step(*byte))
    }

    fn step(&mut self, byte: u8) -> Result<(), LimitExceeded> {
        self.item_bytes += 1;
        if self.in_string {
            self.step_in_string(byte);
        } else {
            match byte {
                b'"' => {
                    (self.in_string, self.is_media) = (true, self.last_string == MEDIA_MEMBER);
                    self.last_string.clear();
                }
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                b',' if self.depth <= 2 => self.item_bytes = 0,
                b'\n' => self.item_bytes = 0,
                _ => {}
            }
        }
        let max_bytes = if self.in_string && self.is_media { MAX_MEDIA_ITEM_BYTES } else { MAX_ITEM_BYTES };
        match () {
            () if self.depth > MAX_DEPTH => Err(LimitExceeded::TooDeep),
            () if self.item_bytes > max_bytes => Err(LimitExceeded::TooLong),
            () => Ok(()),
        }
    }

    fn step_in_string(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => {
                self.in_string = false;
                // The bytes of media are not included in the size of the item, because they have a separate limit.
                self.item_bytes = if self.is_media { 0 } else { self.item_bytes };
            }
            _ if self.last_string.len() <= MEDIA_MEMBER.len() => self.last_string.push(byte),
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

    /// D5: overlong or deeply nested input is rejected anywhere in a document, while large media and long lists
    /// are accepted.
    #[test]
    fn d5_documents_that_exceed_a_limit_are_rejected() {
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
    fn d5_an_error_about_an_exceeded_limit_states_the_limit() {
        assert_eq!(LimitExceeded::TooDeep.to_string(), "it is nested more than 143 levels deep");
        let long = LimitExceeded::TooLong.to_string();
        assert!(long.contains("longer than 64 MiB") && long.contains("or 683 MiB for media"), "{long}");
    }
}
