//! One line that a person is asked for while a turn waits. Nothing that was typed before counts as the answer.

use super::Terminal;
use super::keyboard::{Silenced, forget_typed, wait_for_line};
use std::io::{self, BufRead, Read};
use tokio_util::sync::CancellationToken;

/// Most bytes of a line.
const LONGEST: u64 = 1 << 20;

/// What came of the question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Line {
    /// A line, without its end.
    Text(String),
    /// Ctrl-D: there will be none.
    End,
    /// The turn was cancelled meanwhile.
    Stopped,
}

impl Terminal {
    /// Asks for a line that the terminal itself lets somebody type and end. Ctrl-C cancels the token, which ends this.
    pub(crate) async fn question(&self, prompt: &str, cancel: &CancellationToken) -> io::Result<Line> {
        self.idle();
        let silenced = self.restore_keyboard();
        forget_typed();
        self.ask(prompt)?;
        let stopped = cancel.clone();
        let line = tokio::task::spawn_blocking(move || read(&stopped)).await.map_err(io::Error::other)?;
        if !matches!(line, Ok(Line::Text(_))) {
            // The cursor still stands behind the prompt.
            self.note("");
        }
        if silenced == Silenced::Was {
            self.silence_keyboard();
        }
        line
    }
}

/// Does not begin to read before a line is there: nobody could take it from a thread that reads for ever.
fn read(stopped: &CancellationToken) -> io::Result<Line> {
    while !stopped.is_cancelled() {
        if !wait_for_line() {
            continue;
        }
        let mut line = Vec::new();
        let read = io::stdin().lock().take(LONGEST).read_until(b'\n', &mut line)?;
        let line = String::from_utf8_lossy(&line);
        return Ok(if read == 0 { Line::End } else { Line::Text(line.trim_end_matches(['\n', '\r']).to_owned()) });
    }
    Ok(Line::Stopped)
}
