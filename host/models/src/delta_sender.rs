//! Splits a complete reply into small pieces and sends them as deltas, as a provider on the network does.

use crate::progress::CallProgress;
use agent_core::model::Delta;
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// Minimum size of a piece in bytes. When a piece has reached this size, it ends at the end of the current word.
const MIN_PIECE_BYTES: usize = 24;

/// Sends deltas with a configured delay before each of them.
pub(crate) struct DeltaSender<'a> {
    /// Channel to which the deltas are sent.
    pub(crate) deltas: &'a Sender<Delta>,
    /// Time to wait before each delta is sent.
    pub(crate) delay: Duration,
    /// Counts the deltas.
    pub(crate) progress: &'a CallProgress,
}

impl DeltaSender<'_> {
    /// Waits for the delay and sends one delta. If the receiver is closed, the delta is discarded without an error.
    pub(crate) async fn send(&self, delta: Delta) {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        self.progress.received_delta(&delta);
        let _ = self.deltas.send(delta).await;
    }

    /// Sends the thinking in one delta between [`Delta::ThinkingStart`] and [`Delta::ThinkingEnd`]. If `thinking` is
    /// empty, sends nothing.
    pub(crate) async fn thinking(&self, thinking: &str) {
        if thinking.is_empty() {
            return;
        }
        self.send(Delta::ThinkingStart).await;
        self.send(Delta::Thinking(thinking.to_owned())).await;
        self.send(Delta::ThinkingEnd).await;
    }

    /// Sends each piece as a text delta. Empty pieces are skipped.
    pub(crate) async fn text(&self, pieces: &[String]) {
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            self.send(Delta::Text(piece.clone())).await;
        }
    }
}

/// Splits text into pieces of at least [`MIN_PIECE_BYTES`] bytes that end after white space. The last piece is an
/// exception: it may be shorter, and need not end after white space.
pub(crate) fn split_at_words(text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut piece = String::new();
    for word in text.split_inclusive(char::is_whitespace) {
        piece.push_str(word);
        if piece.len() >= MIN_PIECE_BYTES {
            pieces.push(std::mem::take(&mut piece));
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// Splits text into at most `pieces` non-empty pieces of nearly equal length.
pub(crate) fn split_evenly(text: &str, pieces: usize) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let pieces = pieces.clamp(1, characters.len().max(1));
    let bounds = |piece: usize| piece * characters.len() / pieces;
    (0..pieces).map(|piece| characters[bounds(piece)..bounds(piece + 1)].iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_concatenate_to_the_whole_text() {
        for text in ["", "a", "one two", "Ein längerer Satz, der in mehrere Stücke zerfällt; 数える.", "x\n\n  y  "]
        {
            assert_eq!(split_at_words(text).concat(), text);
            for number in [1, 2, 3, 1000] {
                let pieces = split_evenly(text, number);
                assert_eq!(pieces.concat(), text);
                assert!(pieces.len() <= number && (text.is_empty() || pieces.iter().all(|piece| !piece.is_empty())));
            }
        }
        assert_eq!(split_evenly("abcdef", 3), ["ab", "cd", "ef"]);
        assert!(split_at_words(&"word ".repeat(20)).len() > 3);
    }
}
