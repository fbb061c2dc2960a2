//! What guests print and log goes to `tracing`, target `plugin`, line by line: bounded, with control characters escaped
//! (row 8 of the threats).

use crate::bindings::wasi::logging::logging::Level;
use crate::record::{CallRecord, lock};
use crate::text::{clean_line, cut};
use bytes::Bytes;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamResult};

/// Bytes that a guest may print at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// Last lines of standard error that are shown with a trap: a panic's message is there.
const LAST_LINES: usize = 3;

/// Where a line comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Stdout,
    Stderr,
    Logging(Level),
}

/// What a call has logged so far.
#[derive(Debug, Default)]
pub(crate) struct GuestLog {
    stdout: Line,
    stderr: Line,
    last: VecDeque<String>,
    lines: u32,
    bytes: usize,
    lost: LostLog,
}

/// What was cut from a call's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostLog {
    /// Lines that were left out.
    pub lines: u64,
    /// Bytes that were left out, those of whole lines included.
    pub bytes: u64,
}

/// An unfinished line.
#[derive(Debug, Default)]
struct Line {
    bytes: Vec<u8>,
    lost: u64,
}

impl CallRecord {
    /// Takes printed bytes; whole lines are logged.
    pub(crate) fn print(&self, source: Source, bytes: &[u8]) {
        let mut log = lock(&self.log);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            let (text, ends) = match piece.strip_suffix(b"\n") {
                Some(text) => (text, true),
                None => (piece, false),
            };
            log.line(source).push(text, self.limits.log_line);
            if ends {
                let line = std::mem::take(log.line(source));
                log.finish(self, source, line);
            }
        }
    }

    /// One message of `wasi:logging`.
    pub(crate) fn log_message(&self, level: Level, context: &str, message: &str) {
        let mut line = Line::default();
        if !context.is_empty() {
            line.push(context.as_bytes(), self.limits.log_line);
            line.push(b": ", self.limits.log_line);
        }
        line.push(message.as_bytes(), self.limits.log_line);
        lock(&self.log).finish(self, Source::Logging(level), line);
    }

    /// Logs lines without an end, and says what was cut.
    pub(crate) fn finish_log(&self) -> LostLog {
        let mut log = lock(&self.log);
        for source in [Source::Stdout, Source::Stderr] {
            let line = std::mem::take(log.line(source));
            if !line.bytes.is_empty() {
                log.finish(self, source, line);
            }
        }
        let lost = log.lost;
        if lost != LostLog::default() {
            tracing::warn!(target: "plugin", plugin = %self.plugin, call = %self.call,
                lines = lost.lines, bytes = lost.bytes, "the log was cut");
        }
        lost
    }

    /// The last lines of standard error.
    pub(crate) fn last_words(&self) -> String {
        Vec::from(lock(&self.log).last.clone()).join(" | ")
    }
}

impl GuestLog {
    fn line(&mut self, source: Source) -> &mut Line {
        if source == Source::Stderr { &mut self.stderr } else { &mut self.stdout }
    }

    fn finish(&mut self, record: &CallRecord, source: Source, line: Line) {
        self.lost.bytes += line.lost;
        if self.lines >= record.limits.log_lines || self.bytes + line.bytes.len() > record.limits.log {
            self.lost.lines += 1;
            self.lost.bytes += line.bytes.len() as u64;
            return;
        }
        self.lines += 1;
        self.bytes += line.bytes.len();
        let text = record.secrets.redaction().text(String::from_utf8_lossy(&line.bytes).into_owned());
        let text = clean_line(&text);
        emit(record, source, &text);
        if source == Source::Stderr && !text.trim().is_empty() {
            if self.last.len() == LAST_LINES {
                self.last.pop_front();
            }
            self.last.push_back(cut(text.trim(), 512).to_owned());
        }
    }
}

impl Line {
    fn push(&mut self, bytes: &[u8], most: usize) {
        let room = most - self.bytes.len();
        let (kept, lost) = bytes.split_at(room.min(bytes.len()));
        self.bytes.extend_from_slice(kept);
        self.lost += lost.len() as u64;
    }
}

fn emit(record: &CallRecord, source: Source, text: &str) {
    macro_rules! at {
        ($level:ident, $stream:literal) => {
            tracing::$level!(target: "plugin", plugin = %record.plugin, call = %record.call, stream = $stream, "{text}")
        };
    }
    match source {
        Source::Stdout => at!(info, "stdout"),
        Source::Stderr => at!(info, "stderr"),
        Source::Logging(Level::Trace) => at!(trace, "log"),
        Source::Logging(Level::Debug) => at!(debug, "log"),
        Source::Logging(Level::Info) => at!(info, "log"),
        Source::Logging(Level::Warn) => at!(warn, "log"),
        Source::Logging(Level::Error | Level::Critical) => at!(error, "log"),
    }
}

/// A guest's standard output or error.
#[derive(Clone)]
pub(crate) struct GuestStream {
    pub(crate) record: Arc<CallRecord>,
    pub(crate) source: Source,
}

impl IsTerminal for GuestStream {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for GuestStream {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait::async_trait]
impl Pollable for GuestStream {
    async fn ready(&mut self) {}
}

impl OutputStream for GuestStream {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        self.record.print(self.source, &bytes);
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(CHUNK_BYTES)
    }
}

impl AsyncWrite for GuestStream {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.record.print(self.source, bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::identity::PluginIdentity;
    use crate::limits::CallLimits;
    use crate::store::digest_of;
    use std::time::Duration;

    const LIMITS: [usize; 3] = [100, 64, 1_000];

    fn record() -> CallRecord {
        let plugin = PluginIdentity { name: "noisy".to_owned(), digest: digest_of(b"noisy") };
        let [lines, log_line, log] = LIMITS;
        let limits = CallLimits { log_lines: lines as u32, log_line, log, ..CallLimits::default() };
        CallRecord::new(
            Arc::new(plugin),
            "1.1.1".to_owned(),
            (Duration::from_secs(1), Duration::from_millis(5)),
            limits,
        )
    }

    // Row 8: a log flood is truncated and counted, by lines, by line length and in all.
    #[test]
    fn a_flood_is_cut_and_counted() {
        let [lines, log_line, log] = LIMITS;
        let many = record();
        many.print(Source::Stdout, &b"x\n".repeat(lines + 5));
        assert_eq!(many.finish_log(), LostLog { lines: 5, bytes: 5 });

        let long = record();
        long.print(Source::Stdout, &vec![b'x'; log_line + 7]);
        long.print(Source::Stdout, b"\n");
        assert_eq!(long.finish_log(), LostLog { lines: 0, bytes: 7 });

        let large = record();
        for _ in 0..log / log_line + 1 {
            large.print(Source::Stderr, &vec![b'x'; log_line]);
            large.print(Source::Stderr, b"\n");
        }
        assert_eq!(large.finish_log(), LostLog { lines: 1, bytes: log_line as u64 });
    }

    #[test]
    fn the_last_words_are_those_of_standard_error() {
        let record = record();
        record.print(Source::Stdout, b"working\n");
        record.print(Source::Stderr, b"one\ntwo\nthree\n\x1b[31mfour");
        record.finish_log();
        assert_eq!(record.last_words(), "two | three | \\u{1b}[31mfour");
    }
}
