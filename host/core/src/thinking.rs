//! Separates a model's thinking from its answer while both are streamed (L21): by the provider's reasoning fields, or
//! by `<think>` … `</think>` in the text.

use crate::model::Delta;

const OPENING: &str = "<think>";
const CLOSING: &str = "</think>";

/// Splits the pieces of a reply into deltas. Thinking is always between a start and an end delta.
///
/// Tags count only at the beginning of a reply, after nothing but white space, where models write them. A later
/// `<think>` is part of the answer, such as code, and stays text. Tags also do not count if the provider separates
/// thinking itself. White space around tags is removed. Thinking without a closing tag lasts until the reply ends.
#[derive(Debug, Default)]
pub struct ThinkingSplitter {
    position: Position,
    /// Text that may still become a tag, with the white space before it.
    pending: String,
    /// Number of bytes of a tag that have matched.
    matched: usize,
    /// Whether white space that follows belongs to a tag.
    drops_blank: bool,
    /// Whether `ThinkingStart` was emitted without `ThinkingEnd`.
    is_thinking: bool,
    has_own_fields: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Position {
    /// Only white space so far, and perhaps a part of a tag.
    #[default]
    Beginning,
    /// Between the tags.
    Tagged,
    Answer,
}

impl ThinkingSplitter {
    /// Takes the next piece of the text. It may be cut anywhere.
    pub fn text(&mut self, piece: &str, deltas: &mut Vec<Delta>) {
        let mut rest = piece;
        while !rest.is_empty() {
            rest = match self.position {
                Position::Beginning => self.beginning(rest, deltas),
                Position::Tagged => self.tagged(rest, deltas),
                Position::Answer => {
                    self.emit_text(rest, deltas);
                    ""
                }
            };
        }
    }

    /// Takes the next piece of a reasoning field.
    pub fn thinking(&mut self, piece: &str, deltas: &mut Vec<Delta>) {
        self.has_own_fields |= !piece.is_empty();
        self.emit_thinking(piece, deltas);
    }

    /// Ends the thinking, because something else follows, such as a tool call.
    pub fn end_thinking(&mut self, deltas: &mut Vec<Delta>) {
        if std::mem::take(&mut self.is_thinking) {
            deltas.push(Delta::ThinkingEnd);
        }
    }

    /// Ends the reply. Text that was held back is not a tag.
    pub fn finish(mut self, deltas: &mut Vec<Delta>) {
        match self.position {
            Position::Tagged => self.emit_thinking(&CLOSING[..self.matched], deltas),
            Position::Beginning | Position::Answer => self.release(deltas),
        }
        self.end_thinking(deltas);
    }

    /// Looks for the opening tag and returns the rest of the piece.
    fn beginning<'p>(&mut self, piece: &'p str, deltas: &mut Vec<Delta>) -> &'p str {
        if self.has_own_fields {
            self.release(deltas);
            return piece;
        }
        if self.matched == 0 {
            let rest = piece.trim_ascii_start();
            if rest.len() < piece.len() {
                if !self.drops_blank {
                    self.pending.push_str(&piece[..piece.len() - rest.len()]);
                }
                return rest;
            }
        }
        let same = common_prefix(piece, &OPENING[self.matched..]);
        if same == 0 {
            self.release(deltas);
            return piece;
        }
        self.matched += same;
        self.pending.push_str(&piece[..same]);
        if self.matched == OPENING.len() {
            self.pending.clear();
            self.matched = 0;
            self.position = Position::Tagged;
        }
        &piece[same..]
    }

    /// Looks for the closing tag and returns the rest of the piece.
    fn tagged<'p>(&mut self, piece: &'p str, deltas: &mut Vec<Delta>) -> &'p str {
        if self.matched > 0 {
            return self.closing(piece, deltas);
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

    /// Continues a closing tag that began in an earlier piece.
    fn closing<'p>(&mut self, piece: &'p str, deltas: &mut Vec<Delta>) -> &'p str {
        let same = common_prefix(piece, &CLOSING[self.matched..]);
        self.matched += same;
        if self.matched == CLOSING.len() {
            self.close(deltas);
        } else if same < piece.len() {
            let no_tag = std::mem::take(&mut self.matched);
            self.emit_thinking(&CLOSING[..no_tag], deltas);
        }
        &piece[same..]
    }

    /// Text after the tag is treated as a new beginning, because some models think twice before they answer.
    fn close(&mut self, deltas: &mut Vec<Delta>) {
        self.matched = 0;
        self.drops_blank = true;
        self.position = Position::Beginning;
        self.end_thinking(deltas);
    }

    /// Emits held-back text, because there is no opening tag.
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

    /// Emits thinking. It begins with its first word, because models that were told not to think write empty tags.
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

    /// The deltas of these pieces of text, with adjacent deltas of the same kind joined.
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

    /// L21: what counts as thinking, and what stays text.
    #[test]
    fn l21_tags_count_at_the_beginning() {
        let with = |mut deltas: Vec<Delta>, more: Delta| {
            deltas.push(more);
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
        for (given, expected) in cases {
            assert_eq!(split([given]), expected, "{given:?}");
        }
    }

    /// L21: a provider's own fields, followed by a literal tag.
    #[test]
    fn l21_a_providers_own_fields() {
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
        /// L21: the result does not depend on how the text is cut into pieces.
        #[test]
        fn l21_pieces_give_the_same_result_as_the_whole(
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
