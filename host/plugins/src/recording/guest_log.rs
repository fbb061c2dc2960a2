//! Forwards the output and log messages of guests line by line to `tracing`, with the target `plugin`. The size of the
//! log is limited, and control characters are escaped (row 8).

use super::CallRecord;
use crate::sync::lock;
use crate::text::{clean_line, cut};
use std::collections::VecDeque;

/// Number of lines at the end of standard error that are quoted in the error message for a trap. If the guest panicked,
/// the last lines contain the message of the panic.
const LAST_LINES: usize = 3;

/// The source of a log line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Stdout,
    Stderr,
    Logging(LogLevel),
}

/// The level of a log message, as in `wasi:logging`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LogLevel {
    Trace,
    Debug,
    Info,
    Warn,
    /// The guest reported an error or a critical error.
    Error,
}

/// The log of a running call.
#[derive(Debug, Default)]
pub(crate) struct GuestLog {
    stdout: Line,
    stderr: Line,
    last_stderr: VecDeque<String>,
    lines: u32,
    bytes: usize,
    lost: LostLog,
}

/// How many lines and bytes were dropped from a call's log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LostLog {
    /// Number of log lines that were dropped completely.
    pub lines: u64,
    /// Number of dropped bytes, including the bytes of dropped lines.
    pub bytes: u64,
}

/// A line of output whose end has not been printed yet.
#[derive(Debug, Default)]
struct Line {
    bytes: Vec<u8>,
    lost: u64,
}

impl CallRecord {
    /// Adds to the log the bytes that the guest has printed. Each line is logged when it is complete.
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

    /// Logs one message of `wasi:logging`.
    pub(crate) fn log_message(&self, level: LogLevel, context: &str, message: &str) {
        let mut line = Line::default();
        if !context.is_empty() {
            line.push(context.as_bytes(), self.limits.log_line);
            line.push(b": ", self.limits.log_line);
        }
        line.push(message.as_bytes(), self.limits.log_line);
        lock(&self.log).finish(self, Source::Logging(level), line);
    }

    /// Logs the lines whose end the guest has not printed. Returns how much was dropped from the log.
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
                lines = lost.lines, bytes = lost.bytes, "parts of the plugin's log were dropped");
        }
        lost
    }

    /// The last lines that the guest has printed to standard error.
    pub(crate) fn last_stderr_lines(&self) -> String {
        Vec::from(lock(&self.log).last_stderr.clone()).join(" | ")
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
        log_line(record, source, &text);
        if source == Source::Stderr && !text.trim().is_empty() {
            if self.last_stderr.len() == LAST_LINES {
                self.last_stderr.pop_front();
            }
            self.last_stderr.push_back(cut(text.trim(), 512).to_owned());
        }
    }
}

impl Line {
    fn push(&mut self, bytes: &[u8], limit: usize) {
        let room = limit - self.bytes.len();
        let (kept, lost) = bytes.split_at(room.min(bytes.len()));
        self.bytes.extend_from_slice(kept);
        self.lost += lost.len() as u64;
    }
}

fn log_line(record: &CallRecord, source: Source, text: &str) {
    macro_rules! log_at {
        ($level:ident, $stream:literal) => {
            tracing::$level!(target: "plugin", plugin = %record.plugin, call = %record.call, stream = $stream, "{text}")
        };
    }
    match source {
        Source::Stdout => log_at!(info, "stdout"),
        Source::Stderr => log_at!(info, "stderr"),
        Source::Logging(LogLevel::Trace) => log_at!(trace, "log"),
        Source::Logging(LogLevel::Debug) => log_at!(debug, "log"),
        Source::Logging(LogLevel::Info) => log_at!(info, "log"),
        Source::Logging(LogLevel::Warn) => log_at!(warn, "log"),
        Source::Logging(LogLevel::Error) => log_at!(error, "log"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::component::plugin_store::digest_of;
    use crate::identity::PluginIdentity;
    use crate::limits::CallLimits;
    use std::sync::Arc;
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

    // Row 8: the number of lines, the line length and the total size are limited.
    #[test]
    fn row_8_excessive_log_is_cut_and_counted() {
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
    fn last_lines_of_standard_error_are_available() {
        let record = record();
        record.print(Source::Stdout, b"working\n");
        record.print(Source::Stderr, b"one\ntwo\nthree\n\x1b[31mfour");
        record.finish_log();
        assert_eq!(record.last_stderr_lines(), "two | three | \\u{1b}[31mfour");
    }
}
