//! Sends a reply that is whole already in pieces, as a provider on the network would.

use agent_core::model::Delta;
use std::time::Duration;
use tokio::sync::mpsc::Sender;

/// Characters after which a piece ends at the next white space.
const PIECE: usize = 24;

/// Where the pieces of a reply go, and how fast.
pub(crate) struct Stream<'a> {
    /// To whom.
    pub(crate) deltas: &'a Sender<Delta>,
    /// Waited before each piece.
    pub(crate) delay: Duration,
}

impl Stream<'_> {
    /// Sends one piece. That nobody listens is no error.
    pub(crate) async fn send(&self, delta: Delta) {
        if !self.delay.is_zero() {
            tokio::time::sleep(self.delay).await;
        }
        let _ = self.deltas.send(delta).await;
    }

    /// Sends thinking between its marks; nothing where there is none.
    pub(crate) async fn thinking(&self, thinking: &str) {
        if thinking.is_empty() {
            return;
        }
        self.send(Delta::ThinkingStart).await;
        self.send(Delta::Thinking(thinking.to_owned())).await;
        self.send(Delta::ThinkingEnd).await;
    }

    /// Sends text in these pieces, leaving out empty ones.
    pub(crate) async fn text(&self, pieces: &[String]) {
        for piece in pieces.iter().filter(|piece| !piece.is_empty()) {
            self.send(Delta::Text(piece.clone())).await;
        }
    }
}

/// Pieces that end after white space.
pub(crate) fn by_words(text: &str) -> Vec<String> {
    let mut pieces = Vec::new();
    let mut piece = String::new();
    for word in text.split_inclusive(char::is_whitespace) {
        piece.push_str(word);
        if piece.len() >= PIECE {
            pieces.push(std::mem::take(&mut piece));
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}

/// At most so many pieces of nearly equal length, none of them empty.
pub(crate) fn by_number(text: &str, pieces: usize) -> Vec<String> {
    let characters: Vec<char> = text.chars().collect();
    let pieces = pieces.clamp(1, characters.len().max(1));
    let bounds = |piece: usize| piece * characters.len() / pieces;
    (0..pieces).map(|piece| characters[bounds(piece)..bounds(piece + 1)].iter().collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_make_the_whole() {
        for text in ["", "a", "one two", "Ein längerer Satz, der in mehrere Stücke zerfällt; 数える.", "x\n\n  y  "]
        {
            assert_eq!(by_words(text).concat(), text);
            for number in [1, 2, 3, 1000] {
                let pieces = by_number(text, number);
                assert_eq!(pieces.concat(), text);
                assert!(pieces.len() <= number && (text.is_empty() || pieces.iter().all(|piece| !piece.is_empty())));
            }
        }
        assert_eq!(by_number("abcdef", 3), ["ab", "cd", "ef"]);
        assert!(by_words(&"word ".repeat(20)).len() > 3);
    }
}
