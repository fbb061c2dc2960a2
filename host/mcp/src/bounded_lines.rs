//! Reads the output of a child process and stops at a line that is too long or nested too deeply. The length and the
//! nesting depth of a line are checked before the line is buffered or parsed (row 21).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Maximum nesting depth of a message. The JSON parser rejects messages that are nested more deeply than this, and the
/// SDK would drop such messages silently.
pub(crate) const MAX_DEPTH: usize = 127;

/// A limit that the output of a child process exceeded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum ExceededLimit {
    LineTooLong = 1,
    TooDeeplyNested = 2,
}

/// Records the limit that the output of a child process exceeded, if any. The reader and the connection share
/// this flag.
#[derive(Clone, Debug, Default)]
pub(crate) struct LimitFlag(Arc<AtomicU8>);

impl LimitFlag {
    pub(crate) fn get(&self) -> Option<ExceededLimit> {
        let code = self.0.load(Ordering::Relaxed);
        [ExceededLimit::LineTooLong, ExceededLimit::TooDeeplyNested].into_iter().find(|limit| *limit as u8 == code)
    }

    fn set(&self, limit: ExceededLimit) {
        self.0.store(limit as u8, Ordering::Relaxed);
    }
}

/// Wraps a reader and checks each line. When a line is too long or nested too deeply, the current read and all later
/// reads fail.
pub(crate) struct BoundedLines<R> {
    inner: R,
    limit: usize,
    line: Line,
    exceeded: LimitFlag,
}

/// What is known about the part of the current line that was read so far.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    bytes: usize,
    kind: LineKind,
    depth: usize,
    in_string: bool,
    escaped: bool,
}

/// Kind of a line, which is determined by the first character of the line that is not white space.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum LineKind {
    #[default]
    Blank,
    Message,
    /// The line is not a message. The client skips such lines, so their nesting depth is not limited.
    Text,
}

impl Line {
    /// Updates the state of this line with the next byte that was read.
    fn update(&mut self, byte: u8) {
        match byte {
            b'{' | b'[' if self.kind == LineKind::Blank => (self.kind, self.depth) = (LineKind::Message, 1),
            _ if self.kind == LineKind::Blank && !byte.is_ascii_whitespace() => self.kind = LineKind::Text,
            _ if self.kind != LineKind::Message => {}
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_string => self.escaped = true,
            b'"' => self.in_string = !self.in_string,
            _ if self.in_string => {}
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

/// Returns whether a message is nested more deeply than the JSON parser accepts.
pub(crate) fn is_too_deep(message: &[u8]) -> bool {
    let mut line = Line::default();
    message.iter().any(|byte| {
        line.update(*byte);
        line.depth > MAX_DEPTH
    })
}

impl<R> BoundedLines<R> {
    /// Creates a reader that fails at a line of more than `limit` bytes. If the output exceeds a limit, the reader
    /// stores this limit in `exceeded`.
    pub(crate) fn new(inner: R, limit: usize, exceeded: LimitFlag) -> Self {
        Self { inner, limit, line: Line::default(), exceeded }
    }

    /// Checks the next bytes of the output. If a line exceeds a limit, returns this limit. The first of these bytes may
    /// continue a line that began in an earlier call.
    fn check(&mut self, bytes: &[u8]) -> Option<ExceededLimit> {
        for byte in bytes {
            if *byte == b'\n' {
                self.line = Line::default();
                continue;
            }
            self.line.bytes += 1;
            self.line.update(*byte);
            if self.line.bytes > self.limit {
                return Some(ExceededLimit::LineTooLong);
            }
            if self.line.depth > MAX_DEPTH {
                return Some(ExceededLimit::TooDeeplyNested);
            }
        }
        None
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for BoundedLines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read_error =
            || Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long or nested too deeply")));
        if self.exceeded.get().is_some() {
            return read_error();
        }
        let previous_length = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        match self.check(&buffer.filled()[previous_length..]) {
            None => Poll::Ready(Ok(())),
            Some(limit) => {
                self.exceeded.set(limit);
                buffer.set_filled(previous_length);
                read_error()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    /// Reads the text repeatedly, each time in chunks of a different size, and checks which limit the reader reports
    /// as exceeded.
    async fn check(text: &str, limit: usize, expected: Option<ExceededLimit>) {
        for chunk_size in [1, 2, 3, 5, text.len()] {
            let mut mock = tokio_util::io::StreamReader::new(futures::stream::iter(
                text.as_bytes().chunks(chunk_size).map(Ok::<_, io::Error>).collect::<Vec<_>>(),
            ));
            let exceeded = LimitFlag::default();
            let mut read = Vec::new();
            let result = BoundedLines::new(&mut mock, limit, exceeded.clone()).read_to_end(&mut read).await;
            assert_eq!(
                (result.is_ok(), exceeded.get()),
                (expected.is_none(), expected),
                "chunks of {chunk_size} bytes"
            );
            assert!(text.as_bytes().starts_with(&read));
        }
    }

    #[tokio::test]
    async fn i5_line_length_is_limited_for_any_chunk_size() {
        check("abcd\nab\n\nabcd", 4, None).await;
        check("ab\nabcde\n", 4, Some(ExceededLimit::LineTooLong)).await;
        check("abcde", 4, Some(ExceededLimit::LineTooLong)).await;
    }

    /// The nesting depth is limited only for messages. Brackets in strings and brackets in lines that are not messages
    /// do not count as nesting.
    #[tokio::test]
    async fn i5_nesting_depth_is_limited_to_what_the_parser_accepts() {
        let nested = |levels: usize| format!("{{\"a\":{}{}}}\n", "[".repeat(levels), "]".repeat(levels));
        check(&nested(MAX_DEPTH - 1), 1 << 20, None).await;
        check(&nested(MAX_DEPTH), 1 << 20, Some(ExceededLimit::TooDeeplyNested)).await;
        check(&format!("{}\n{}", nested(100), nested(100)), 1 << 20, None).await;
        check(&format!("{{\"a\":\"\\\"{}\"}}\n", "[".repeat(200)), 1 << 20, None).await;
        check(&format!("words {}\n", "{".repeat(200)), 1 << 20, None).await;
        check("[info] it begins\n[1, 2]\n", 1 << 20, None).await;
        check(&"[".repeat(200_000), 1 << 20, Some(ExceededLimit::TooDeeplyNested)).await;
        // `MAX_DEPTH` equals the nesting depth that the JSON parser accepts.
        let reads = |levels| serde_json::from_str::<serde_json::Value>(&nested(levels)).is_ok();
        assert!(reads(MAX_DEPTH - 1) && !reads(MAX_DEPTH));
    }
}
