//! The text of a turn's replies, as one text that a client shows while it is written.

use crate::openai::turn::{OpenWait, describe};
use agent_core::event::EventKind;
use agent_runtime::TurnUpdate;

/// Separates the replies of a turn, for example the text before a tool call from the text after it.
const NEXT_REPLY: &str = "\n\n";
/// Follows text that was sent and then discarded, because a stream cannot take text back.
pub(super) const DISCARDED: &str = "\n\n[The text above was discarded. The answer begins again.]\n\n";

/// A piece of the reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Piece {
    Text(String),
    Thinking(String),
}

/// The text and the thinking of the replies of one turn.
#[derive(Debug, Default)]
pub(super) struct ReplyText {
    /// Text that must be sent before the next piece of text.
    separator: &'static str,
    /// The text of the current reply.
    current: String,
    /// The text of the last complete reply, unless it was not accepted.
    accepted: Option<String>,
    thinking: String,
    /// Length of the thinking before the current reply.
    earlier_thinking: usize,
}

impl ReplyText {
    /// Adds an update. Returns the piece that a stream sends for it.
    pub(super) fn update(&mut self, update: TurnUpdate) -> Option<Piece> {
        match update {
            TurnUpdate::Text(text) => {
                self.current.push_str(&text);
                Some(Piece::Text(self.separated(&text)))
            }
            TurnUpdate::Thinking(text) => {
                let separator = if self.thinking.len() == self.earlier_thinking && !self.thinking.is_empty() {
                    NEXT_REPLY
                } else {
                    ""
                };
                let piece = format!("{separator}{text}");
                self.thinking.push_str(&piece);
                Some(Piece::Thinking(piece))
            }
            TurnUpdate::Discard => {
                if !std::mem::take(&mut self.current).is_empty() {
                    self.separator = DISCARDED;
                }
                self.thinking.truncate(self.earlier_thinking);
                None
            }
            TurnUpdate::Event(event) => {
                self.event(event.kind);
                None
            }
        }
    }

    fn event(&mut self, kind: EventKind) {
        match kind {
            EventKind::StreamComplete { text, .. } => {
                self.current.clear();
                self.earlier_thinking = self.thinking.len();
                if !text.is_empty() {
                    (self.accepted, self.separator) = (Some(text), NEXT_REPLY);
                }
            }
            // The complete reply was not accepted, and the model writes another one.
            EventKind::OutputRejected { .. } | EventKind::Nudge { .. } | EventKind::NoToolCall { .. } => {
                let is_sent = self.accepted.take().is_some();
                self.separator = if is_sent { DISCARDED } else { self.separator };
            }
            _ => {}
        }
    }

    /// Returns the text that a stream must still send, so that its text ends with the output of the turn.
    pub(super) fn rest(&mut self, output: &str) -> Option<String> {
        let is_sent = self.accepted.as_deref() == Some(output);
        (!is_sent && !output.is_empty()).then(|| self.separated(output))
    }

    /// Returns the notice that a stream sends when the turn waits.
    pub(super) fn notice(&mut self, waits: &[OpenWait]) -> String {
        self.separated(&describe(waits))
    }

    /// Returns the text of the last reply and the notice about what the turn waits for.
    pub(super) fn with_notice(&self, waits: &[OpenWait]) -> String {
        let notice = describe(waits);
        match &self.accepted {
            Some(text) => format!("{text}{NEXT_REPLY}{notice}"),
            None => notice,
        }
    }

    /// Returns the text of the last complete reply.
    pub(super) fn accepted(&self) -> Option<&str> {
        self.accepted.as_deref()
    }

    /// Returns the thinking of all replies.
    pub(super) fn thinking(&self) -> &str {
        &self.thinking
    }

    fn separated(&mut self, text: &str) -> String {
        format!("{}{text}", std::mem::take(&mut self.separator))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::cost::Usage;
    use agent_core::event::Event;

    fn event(kind: EventKind) -> TurnUpdate {
        TurnUpdate::Event(Event { session: "s".to_owned(), turn: 1, sequence: 1, provisional: None, kind })
    }

    fn complete(text: &str) -> TurnUpdate {
        let text = text.to_owned();
        event(EventKind::StreamComplete { text, model: "m".to_owned(), usage: Usage::default(), saved_tokens: 0 })
    }

    fn rejected() -> TurnUpdate {
        event(EventKind::OutputRejected { by: "v".to_owned(), attempt: 1, problems: Vec::new() })
    }

    fn streamed(updates: Vec<TurnUpdate>, output: &str) -> (String, String) {
        let (mut text, mut sent) = (ReplyText::default(), String::new());
        for update in updates {
            if let Some(Piece::Text(piece)) = text.update(update) {
                sent.push_str(&piece);
            }
        }
        sent.push_str(&text.rest(output).unwrap_or_default());
        (sent, text.thinking)
    }

    fn text(text: &str) -> TurnUpdate {
        TurnUpdate::Text(text.to_owned())
    }

    /// I3, L23: a stream separates replies, and says when text that was sent was discarded.
    #[test]
    fn i3_a_stream_says_that_text_was_discarded() {
        let one = vec![text("A"), text("B"), complete("AB")];
        assert_eq!(streamed(one, "AB").0, "AB");
        let two = vec![text("Let me see."), complete("Let me see."), text("42"), complete("42")];
        assert_eq!(streamed(two, "42").0, "Let me see.\n\n42");
        let broken = vec![text("A"), TurnUpdate::Discard, text("B"), complete("B")];
        assert_eq!(streamed(broken, "B").0, format!("A{DISCARDED}B"));
        let refused = vec![text("A"), complete("A"), rejected(), text("B"), complete("B")];
        assert_eq!(streamed(refused, "B").0, format!("A{DISCARDED}B"));
        // A turn that ends with a tool, or whose output a validator replaces, sends the output at its end.
        assert_eq!(streamed(vec![complete("")], "Done.").0, "Done.");
        assert_eq!(streamed(vec![text("A"), complete("A")], "B").0, "A\n\nB");
    }

    /// L21: discarded thinking is not part of the answer.
    #[test]
    fn l21_only_thinking_of_accepted_streams_is_kept() {
        let think = |text: &str| TurnUpdate::Thinking(text.to_owned());
        let updates = vec![
            think("Hm"),
            complete("A"),
            think("void"),
            TurnUpdate::Discard,
            think("so"),
            think("!"),
            complete("B"),
        ];
        assert_eq!(streamed(updates, "B").1, "Hm\n\nso!");
    }
}
