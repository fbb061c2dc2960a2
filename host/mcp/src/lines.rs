//! A child's output, read only while its lines stay short and shallow: both caps hold before anything is buffered or
//! parsed (row 21).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Levels of objects and lists in a message: the reader of JSON takes no more, and would drop the message in silence.
pub(crate) const MAX_DEPTH: usize = 127;

/// Why a child is heard no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Breach {
    TooLong = 1,
    TooDeep = 2,
}

/// Whether a child's output was broken off, and why; shared by its reader and its connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Breaches(Arc<AtomicU8>);

impl Breaches {
    pub(crate) fn found(&self) -> Option<Breach> {
        let found = self.0.load(Ordering::Relaxed);
        [Breach::TooLong, Breach::TooDeep].into_iter().find(|breach| *breach as u8 == found)
    }

    fn set(&self, breach: Breach) {
        self.0.store(breach as u8, Ordering::Relaxed);
    }
}

/// Reads from another reader until a line of it is too long or too deep; then it fails for ever.
pub(crate) struct BoundedLines<R> {
    inner: R,
    limit: usize,
    line: Line,
    breaches: Breaches,
}

/// What is known of the line that is being read.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    bytes: usize,
    kind: Kind,
    depth: usize,
    in_text: bool,
    escaped: bool,
}

/// What a line is, as its first character shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Kind {
    #[default]
    Blank,
    Message,
    /// Somebody's words: they are skipped.
    Words,
}

impl Line {
    fn take(&mut self, byte: u8) {
        match byte {
            b'{' | b'[' if self.kind == Kind::Blank => (self.kind, self.depth) = (Kind::Message, 1),
            _ if self.kind == Kind::Blank && !byte.is_ascii_whitespace() => self.kind = Kind::Words,
            _ if self.kind != Kind::Message => {}
            _ if self.escaped => self.escaped = false,
            b'\\' if self.in_text => self.escaped = true,
            b'"' => self.in_text = !self.in_text,
            _ if self.in_text => {}
            b'{' | b'[' => self.depth += 1,
            b'}' | b']' => self.depth = self.depth.saturating_sub(1),
            _ => {}
        }
    }
}

/// Whether a message has more levels than the reader of JSON takes.
pub(crate) fn is_too_deep(message: &[u8]) -> bool {
    let mut line = Line::default();
    message.iter().any(|byte| {
        line.take(*byte);
        line.depth > MAX_DEPTH
    })
}

impl<R> BoundedLines<R> {
    /// A line of more than so many bytes is a breach.
    pub(crate) fn new(inner: R, limit: usize, breaches: Breaches) -> Self {
        Self { inner, limit, line: Line::default(), breaches }
    }

    /// What is wrong with a line, the one that these bytes end in included.
    fn take(&mut self, bytes: &[u8]) -> Option<Breach> {
        for byte in bytes {
            if *byte == b'\n' {
                self.line = Line::default();
                continue;
            }
            self.line.bytes += 1;
            self.line.take(*byte);
            if self.line.bytes > self.limit {
                return Some(Breach::TooLong);
            }
            if self.line.depth > MAX_DEPTH {
                return Some(Breach::TooDeep);
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
        let broken = || Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long or too deep")));
        if self.breaches.found().is_some() {
            return broken();
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        match self.take(&buffer.filled()[before..]) {
            None => Poll::Ready(Ok(())),
            Some(breach) => {
                self.breaches.set(breach);
                buffer.set_filled(before);
                broken()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    /// The text in pieces of every size, and what is found.
    async fn check(text: &str, limit: usize, expected: Option<Breach>) {
        for piece in [1, 2, 3, 5, text.len()] {
            let mut mock = tokio_util::io::StreamReader::new(futures::stream::iter(
                text.as_bytes().chunks(piece).map(Ok::<_, io::Error>).collect::<Vec<_>>(),
            ));
            let breaches = Breaches::default();
            let mut read = Vec::new();
            let result = BoundedLines::new(&mut mock, limit, breaches.clone()).read_to_end(&mut read).await;
            assert_eq!((result.is_ok(), breaches.found()), (expected.is_none(), expected), "pieces of {piece}");
            assert!(text.as_bytes().starts_with(&read));
        }
    }

    #[tokio::test]
    async fn i5_a_line_is_measured_however_it_comes() {
        check("abcd\nab\n\nabcd", 4, None).await;
        check("ab\nabcde\n", 4, Some(Breach::TooLong)).await;
        check("abcde", 4, Some(Breach::TooLong)).await;
    }

    /// Only what nests counts: not what stands in texts, nor in lines that are no messages.
    #[tokio::test]
    async fn i5_a_message_is_no_deeper_than_it_can_be_read() {
        let nested = |levels: usize| format!("{{\"a\":{}{}}}\n", "[".repeat(levels), "]".repeat(levels));
        check(&nested(MAX_DEPTH - 1), 1 << 20, None).await;
        check(&nested(MAX_DEPTH), 1 << 20, Some(Breach::TooDeep)).await;
        check(&format!("{}\n{}", nested(100), nested(100)), 1 << 20, None).await;
        check(&format!("{{\"a\":\"\\\"{}\"}}\n", "[".repeat(200)), 1 << 20, None).await;
        check(&format!("words {}\n", "{".repeat(200)), 1 << 20, None).await;
        check("[info] it begins\n[1, 2]\n", 1 << 20, None).await;
        check(&"[".repeat(200_000), 1 << 20, Some(Breach::TooDeep)).await;
        // What the reader of JSON takes is what is let through.
        let reads = |levels| serde_json::from_str::<serde_json::Value>(&nested(levels)).is_ok();
        assert!(reads(MAX_DEPTH - 1) && !reads(MAX_DEPTH));
    }
}
