//! Separates a model's thinking from its answer while the reply is streamed (L21). Thinking arrives in the provider's
//! reasoning fields, or between `<think>` and `</think>` in the text.

use crate::model::Delta;

const OPENING: &str = "<think>";
const CLOSING: &str = "</think>";

/// Splits the pieces of a reply into deltas. Thinking is always between [`Delta::ThinkingStart`]
/// and [`Delta::ThinkingEnd`].
///
/// `<think>` is only recognized at the beginning of a reply, where models write it. Only white space and other thinking
/// may precede this tag. A later `<think>` is part of the answer, for example in code. If the provider sends thinking
/// in reasoning fields, thinking tags are ordinary text. White space around tags is removed. If the closing tag is
/// missing, everything up to the end of the reply is thinking.
#[derive(Debug, Default)]
pub struct ThinkingSplitter {
    position: Position,
    /// Text that was held back because it may be the beginning of an opening tag, with the white space before it.
    pending: String,
    /// Number of bytes of a tag that have matched.
    matched: usize,
    /// Whether the next white space is dropped, because the text before it was a closing tag.
    drops_blank: bool,
    /// Whether `ThinkingStart` was emitted and the matching `ThinkingEnd` was not emitted yet.
    is_thinking: bool,
    /// Whether the provider sends thinking in reasoning fields.
    has_reasoning_fields: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    /// The answer has not begun: the text so far consists of white space, thinking, or a part of an opening tag.
    #[default]
    Beginning,
    /// The current position is inside thinking, between `<think>` and `</think>`.
    Tagged,
    /// The answer has begun. From now on, tags are ordinary text.
    Answer,
}

impl ThinkingSplitter {
    /// Reads the next piece of the reply's text. A piece may end at any character.
    pub fn text(&mut self, piece: &str, deltas: &mut Vec<Delta>) {
        let mut unread = piece;
        while !unread.is_empty() {
            unread = match self.position {
                Position::Beginning => self.read_beginning(unread, deltas),
                Position::Tagged => self.read_tagged(unread, deltas),
                Position::Answer => {
                    self.emit_text(unread, deltas);
                    ""
                }
            };
        }
    }

    /// Reads the next piece of a reasoning field.
    pub fn thinking(&mut self, piece: &str, deltas: &mut Vec<Delta>) {
        self.has_reasoning_fields |= !piece.is_empty();
        self.emit_thinking(piece, deltas);
    }

    /// Ends the thinking. The caller must call this function before it emits any other part of the reply, such as a
    /// tool call.
    pub fn end_thinking(&mut self, deltas: &mut Vec<Delta>) {
        if std::mem::take(&mut self.is_thinking) {
            deltas.push(Delta::ThinkingEnd);
        }
    }

    /// Ends the reply. Text that was held back is emitted, because it did not become a tag.
    pub fn finish(mut self, deltas: &mut Vec<Delta>) {
        match self.position {
            Position::Tagged => self.emit_thinking(&CLOSING[..self.matched], deltas),
            Position::Beginning | Position::Answer => self.release(deltas),
        }
        self.end_thinking(deltas);
    }

    /// Searches a piece for the opening tag. Returns the unread part of the piece.
    fn read_beginning<'p>(&mut self, piece: &'p str, deltas: &mut Vec<Delta>) -> &'p str {
        if self.has_reasoning_fields {
            self.release(deltas);
            return piece;
        }
        if self.matched == 0 {
            let trimmed = piece.trim_ascii_start();
            if trimmed.len() < piece.len() {
                if !self.drops_blank {
                    self.pending.push_str(&piece[..piece.len() - trimmed.len()]);
                }
                return trimmed;
            }
        }
        let common = common_prefix(piece, &OPENING[self.matched..]);
        if common == 0 {
            self.release(deltas);
            return piece;
        }
        self.matched += common;
        self.pending.push_str(&piece[..common]);
        if self.matched == OPENING.len() {
            self.pending.clear();
            self.matched = 0;
            self.position = Position::Tagged;
        }
        &piece[common..]
    }

    /// Searches a piece for the closing tag. Returns the unread part of the piece.
    fn read_tagged<'p>(&mut self, piece: &'p str, deltas: &mut Vec<Delta>) -> &'p str {
        if self.matched > 0 {
            return self.read_closing_tag(piece, deltas);
        }
        if let Some(start) = piece.find(CLOSING) {
            self.emit_thinking(&piece[..start], deltas);
            self.close(deltas);
            return &piece[start + CLOSING.len()..];
        }
        self.matched = (1..CLOSING.len()).rev().find(|length| piece.ends_with(&CLOSING[..*length])).unwrap_or(0);
        self.emit_thinking(&piece[..piece.len() - self.matched], deltas);
        ""
    }

    /// Continues to read a closing tag that began in an earlier piece. Returns the unread part of the piece.
    fn read_closing_tag<'p>(&mut self, piece: &'p str, deltas: &mut Vec<Delta>) -> &'p str {
        let common = common_prefix(piece, &CLOSING[self.matched..]);
        self.matched += common;
        if self.matched == CLOSING.len() {
            self.close(deltas);
        } else if common < piece.len() {
            let matched = std::mem::take(&mut self.matched);
            self.emit_thinking(&CLOSING[..matched], deltas);
        }
        &piece[common..]
    }

    /// Handles a complete closing tag. An opening tag may follow the closing tag, because some models write several
    /// sections of thinking before the answer.
    fn close(&mut self, deltas: &mut Vec<Delta>) {
        self.matched = 0;
        self.drops_blank = true;
        self.position = Position::Beginning;
        self.end_thinking(deltas);
    }

    /// Emits the text that was held back. This function is called when that text turns out not to be an opening tag.
    fn release(&mut self, deltas: &mut Vec<Delta>) {
        self.position = Position::Answer;
        let pending = std::mem::take(&mut self.pending);
        self.emit_text(&pending, deltas);
    }

    fn emit_text(&mut self, text: &str, deltas: &mut Vec<Delta>) {
        if !text.is_empty() {
            self.end_thinking(deltas);
            deltas.push(Delta::Text(text.to_owned()));
        }
    }

    /// Emits thinking without the white space before its first word. Nothing is emitted if there is only white space
    /// between the tags. A model that was told not to think may write such tags.
    fn emit_thinking(&mut self, thinking: &str, deltas: &mut Vec<Delta>) {
        let thinking = if self.is_thinking { thinking } else { thinking.trim_ascii_start() };
        if thinking.is_empty() {
            return;
        }
        if !std::mem::replace(&mut self.is_thinking, true) {
            deltas.push(Delta::ThinkingStart);
        }
        deltas.push(Delta::Thinking(thinking.to_owned()));
    }
}

fn common_prefix(left: &str, right: &str) -> usize {
    left.bytes().zip(right.bytes()).take_while(|(left, right)| left == right).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Splits a text that arrives in these pieces, and returns the deltas. Adjacent deltas of the same kind are joined.
    fn split<'p>(pieces: impl IntoIterator<Item = &'p str>) -> Vec<Delta> {
        let (mut splitter, mut deltas) = (ThinkingSplitter::default(), Vec::new());
        for piece in pieces {
            splitter.text(piece, &mut deltas);
        }
        splitter.finish(&mut deltas);
        joined(deltas)
    }

    fn joined(deltas: Vec<Delta>) -> Vec<Delta> {
        let mut joined: Vec<Delta> = Vec::new();
        for delta in deltas {
            match (joined.last_mut(), delta) {
                (Some(Delta::Text(text)), Delta::Text(more)) => text.push_str(&more),
                (Some(Delta::Thinking(thinking)), Delta::Thinking(more)) => thinking.push_str(&more),
                (_, delta) => joined.push(delta),
            }
        }
        joined
    }

    fn thought(thinking: &str) -> Vec<Delta> {
        vec![Delta::ThinkingStart, Delta::Thinking(thinking.into()), Delta::ThinkingEnd]
    }

    fn text(text: &str) -> Delta {
        Delta::Text(text.into())
    }

    /// L21: only tags at the beginning of a reply enclose thinking.
    #[test]
    fn l21_tags_are_recognized_only_at_the_beginning() {
        let with = |mut deltas: Vec<Delta>, next: Delta| {
            deltas.push(next);
            deltas
        };
        let cases = [
            ("", vec![]),
            ("\n\npong", vec![text("\n\npong")]),
            (" \n", vec![text(" \n")]),
            ("<think>a\nb</think>\n\nanswer\n", with(thought("a\nb"), text("answer\n"))),
            ("\n<think>\nok\n</think>", thought("ok\n")),
            ("<think>\n\n</think>\n\nno thinking", vec![text("no thinking")]),
            ("<think>a</think> <think>b</think>c", [thought("a"), thought("b"), vec![text("c")]].concat()),
            ("Write `<think>` so: <think>x</think>", vec![text("Write `<think>` so: <think>x</think>")]),
            ("<think>a</think>```\n<think>x</think>\n```", with(thought("a"), text("```\n<think>x</think>\n```"))),
            ("<thin", vec![text("<thin")]),
            (" <thing>", vec![text(" <thing>")]),
            ("<think>never closed </thi", thought("never closed </thi")),
            ("<think>a </ b </</think>c", with(thought("a </ b </"), text("c"))),
            ("a</think>b", vec![text("a</think>b")]),
        ];
        for (reply, expected) in cases {
            assert_eq!(split([reply]), expected, "{reply:?}");
        }
    }

    /// L21: if a provider sends thinking in reasoning fields, a `<think>` tag in the text of a reply is ordinary text.
    #[test]
    fn l21_tags_stay_text_if_the_provider_has_reasoning_fields() {
        let (mut splitter, mut deltas) = (ThinkingSplitter::default(), Vec::new());
        splitter.thinking("", &mut deltas);
        splitter.thinking("\nhm", &mut deltas);
        splitter.thinking(" so", &mut deltas);
        splitter.text("<think> is a tag", &mut deltas);
        splitter.thinking("again", &mut deltas);
        splitter.end_thinking(&mut deltas);
        splitter.finish(&mut deltas);
        let expected = [thought("hm so"), vec![text("<think> is a tag")], thought("again")].concat();
        assert_eq!(joined(deltas), expected);
    }

    proptest! {
        /// L21: the deltas do not depend on how the text of a reply is cut into pieces.
        #[test]
        fn l21_a_reply_in_pieces_is_split_like_the_whole_reply(
            words in prop::collection::vec(
                prop::sample::select(vec!["<think>", "</think>", "<", "</", "think>", " ", "\n", "a", "ä", "<thi", "nk>"]), 0..12),
            cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        ) {
            let whole = words.concat();
            let mut positions: Vec<usize> = cuts.iter().map(|cut| cut.index(whole.len() + 1)).collect();
            positions.retain(|position| whole.is_char_boundary(*position));
            positions.extend([0, whole.len()]);
            positions.sort_unstable();
            let pieces = positions.windows(2).map(|ends| &whole[ends[0]..ends[1]]);
            prop_assert_eq!(split(pieces), split([whole.as_str()]));
        }
    }
}
