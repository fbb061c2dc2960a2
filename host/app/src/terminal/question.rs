//! Asks the user for one line while a turn waits. Discards text that was typed before the question appeared.

use super::Terminal;
use super::keyboard::{KeyboardMode, discard_typed, wait_for_line};
use std::io::{self, BufRead, Read};
use tokio_util::sync::CancellationToken;

/// Maximum length of a typed line, in bytes.
const MAX_LINE_BYTES: u64 = 1 << 20;

/// The user's reaction to a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// The typed line, without its line break.
    Text(String),
    /// The user has ended the input with Ctrl-D, without typing a line.
    End,
    /// The turn was cancelled while the question was open.
    Stopped,
}

impl Terminal {
    /// Asks for a line, which the user edits with the terminal's own line editing. Cancelling the token (Ctrl-C) ends
    /// the question.
    pub(crate) async fn question(&self, prompt: &str, cancel: &CancellationToken) -> io::Result<Line> {
        self.idle();
        let mode_before = self.restore_keyboard();
        discard_typed();
        self.ask(prompt)?;
        let stopped = cancel.clone();
        let line = tokio::task::spawn_blocking(move || read(&stopped)).await.map_err(io::Error::other)?;
        if !matches!(line, Ok(Line::Text(_))) {
            // The cursor is still in the line with the question, so print a line break.
            self.note("");
        }
        if mode_before == KeyboardMode::NoEcho {
            self.turn_off_echo();
        }
        line
    }
}

/// Waits until a line is available, and then reads it. A blocking read could not be cancelled, and would consume the
/// next line that the user types.
fn read(stopped: &CancellationToken) -> io::Result<Line> {
    while !stopped.is_cancelled() {
        if !wait_for_line() {
            continue;
        }
        let mut line = Vec::new();
        let read = io::stdin().lock().take(MAX_LINE_BYTES).read_until(b'\n', &mut line)?;
        let line = String::from_utf8_lossy(&line);
        return Ok(if read == 0 { Line::End } else { Line::Text(line.trim_end_matches(['\n', '\r']).to_owned()) });
    }
    Ok(Line::Stopped)
}
