//! A child's output, read only while its lines stay short: the cap holds before anything is buffered (row 21).

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// Reads from another reader until a line of it is too long; then it fails for ever.
pub(crate) struct ShortLines<R> {
    inner: R,
    limit: usize,
    line: usize,
    broken: Arc<AtomicBool>,
}

impl<R> ShortLines<R> {
    /// `broken` is set when a line is longer than so many bytes.
    pub(crate) fn new(inner: R, limit: usize, broken: Arc<AtomicBool>) -> Self {
        Self { inner, limit, line: 0, broken }
    }

    /// Whether all lines are short enough, the one that these bytes end in included.
    fn take(&mut self, bytes: &[u8]) -> bool {
        let mut from = 0;
        for end in memchr::memchr_iter(b'\n', bytes) {
            if self.line + (end - from) > self.limit {
                return false;
            }
            (self.line, from) = (0, end + 1);
        }
        self.line += bytes.len() - from;
        self.line <= self.limit
    }
}

impl<R: AsyncRead + Unpin> AsyncRead for ShortLines<R> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let too_long = || Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "a line is too long")));
        if self.broken.load(Ordering::Relaxed) {
            return too_long();
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.inner).poll_read(context, buffer))?;
        if self.take(&buffer.filled()[before..]) {
            return Poll::Ready(Ok(()));
        }
        self.broken.store(true, Ordering::Relaxed);
        buffer.set_filled(before);
        too_long()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncReadExt;

    /// The text in pieces of every size, against a limit of four bytes.
    #[tokio::test]
    async fn i5_a_line_is_measured_however_it_comes() {
        for (text, whole) in [("abcd\nab\n\nabcd", true), ("ab\nabcde\n", false), ("abcde", false)] {
            for piece in 1..=text.len() {
                let mut mock = tokio_util::io::StreamReader::new(futures::stream::iter(
                    text.as_bytes().chunks(piece).map(Ok::<_, io::Error>).collect::<Vec<_>>(),
                ));
                let broken = Arc::new(AtomicBool::new(false));
                let mut read = Vec::new();
                let result = ShortLines::new(&mut mock, 4, broken.clone()).read_to_end(&mut read).await;
                assert_eq!(result.is_ok(), whole, "{text:?} in pieces of {piece}");
                assert_eq!(broken.load(Ordering::Relaxed), !whole);
                assert!(text.as_bytes().starts_with(&read));
            }
        }
    }
}
