//! Limits that hold for every byte of a document, before anything knows what the byte means: an item that does not end and a value
//! that is nested too deep are given up early.

use agent_store::{MAX_BLOB_BYTES, MAX_JSON_DEPTH};

/// Most bytes of one item of a document, which `session export` writes as one line: a message, a call, an event, the state. What
/// makes them is bounded far below.
const LONGEST_ITEM: u64 = 64 << 20;
/// The same of a medium, whose bytes stand in it as base64.
const LONGEST_MEDIUM: u64 = MAX_BLOB_BYTES.div_ceil(3) * 4 + (1 << 20);
/// Most levels: those of the deepest value that is stored, and what stands around it.
const MOST_LEVELS: usize = MAX_JSON_DEPTH + 16;
/// The name of the member that holds a medium's bytes.
const MEDIUM: &[u8] = b"base64";

/// Why a text cannot be a document that is imported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unbounded {
    /// It is nested too deep.
    TooDeep,
    /// One of its items is too long.
    TooLong,
}

impl std::fmt::Display for Unbounded {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooDeep => write!(formatter, "it is nested more than {MOST_LEVELS} levels deep"),
            Self::TooLong => {
                let (item, medium) = (LONGEST_ITEM >> 20, LONGEST_MEDIUM >> 20);
                write!(
                    formatter,
                    "one of its items (a line, as it was written) is longer than {item} MiB, of a medium {medium} MiB"
                )
            }
        }
    }
}

/// What is known of a document that is being read.
#[derive(Debug, Default)]
pub(super) struct Bounds {
    depth: usize,
    in_text: bool,
    escaped: bool,
    /// Bytes since the last item ended.
    item: u64,
    /// The beginning of the text that was read last: before a value that is the member's name.
    last: Vec<u8>,
    is_medium: bool,
}

impl Bounds {
    /// For a text that stands inside of so many arrays and objects.
    pub(super) fn at_depth(depth: usize) -> Self {
        Self { depth, ..Self::default() }
    }

    /// Looks at the bytes that come next.
    pub(super) fn take(&mut self, bytes: &[u8]) -> Result<(), Unbounded> {
        bytes.iter().try_for_each(|byte| self.step(*byte))
    }

    fn step(&mut self, byte: u8) -> Result<(), Unbounded> {
        self.item += 1;
        if self.in_text {
            self.step_in_text(byte);
        } else {
            match byte {
                b'"' => {
                    (self.in_text, self.is_medium) = (true, self.last == MEDIUM);
                    self.last.clear();
                }
                b'{' | b'[' => self.depth += 1,
                b'}' | b']' => self.depth = self.depth.saturating_sub(1),
                b',' if self.depth <= 2 => self.item = 0,
                b'\n' => self.item = 0,
                _ => {}
            }
        }
        let longest = if self.in_text && self.is_medium { LONGEST_MEDIUM } else { LONGEST_ITEM };
        match () {
            () if self.depth > MOST_LEVELS => Err(Unbounded::TooDeep),
            () if self.item > longest => Err(Unbounded::TooLong),
            () => Ok(()),
        }
    }

    fn step_in_text(&mut self, byte: u8) {
        match byte {
            _ if self.escaped => self.escaped = false,
            b'\\' => self.escaped = true,
            b'"' => {
                self.in_text = false;
                // Only what it ends within can be long.
                self.item = if self.is_medium { 0 } else { self.item };
            }
            _ if self.last.len() <= MEDIUM.len() => self.last.push(byte),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The text, and then so many bytes of the same.
    fn check(begin: &str, piece: &[u8], bytes: u64) -> Result<(), Unbounded> {
        let mut bounds = Bounds::default();
        bounds.take(begin.as_bytes())?;
        let pieces = bytes / piece.len() as u64;
        (0..pieces).try_for_each(|_| bounds.take(piece))
    }

    /// D5: what has no end is given up, wherever in a document it stands; what is large for a reason is not.
    #[test]
    fn d5_a_document_without_end_is_given_up() {
        assert_eq!(check("", b"{\"a\":", 10_000), Err(Unbounded::TooDeep));
        assert_eq!(check("{\"texts\":[\"[[", &[b'['; 1000], 10_000), Ok(()), "nothing nests in texts");
        assert_eq!(check("{", b"\"a\": 1,\n", 10_000), Ok(()));
        let (more, long) = (LONGEST_ITEM + 1024, vec![b'a'; 1024]);
        assert_eq!(check("{\"texts\":[\"", &long, more), Err(Unbounded::TooLong));
        assert_eq!(check("{\"texts\":[\"\\\"base64\\\":", &long, more), Err(Unbounded::TooLong));
        assert_eq!(check("{\"media\":[{\"base64\":\"", &long, more), Ok(()));
        assert_eq!(check("{\"media\":[{\"base64x\":\"", &long, more), Err(Unbounded::TooLong));
        // An item ends with its comma, also where the document is one line.
        let item = [b"{\"text\": \"".as_slice(), &long, b"\"},"].concat();
        assert_eq!(check("{\"messages\":[", &item, more), Ok(()));
        assert_eq!(check("{\"messages\":[{\"parts\":[", &item, more), Err(Unbounded::TooLong));
    }

    #[test]
    fn d5_the_bounds_are_told() {
        assert_eq!(Unbounded::TooDeep.to_string(), "it is nested more than 143 levels deep");
        let long = Unbounded::TooLong.to_string();
        assert!(long.contains("longer than 64 MiB") && long.contains("of a medium 683 MiB"), "{long}");
    }
}
