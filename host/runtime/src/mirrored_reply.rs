//! The streamed text of a session that another process has open (F2). It comes in messages that may be lost, doubled or reordered,
//! so pieces are shown only in their order, and a missing piece is asked for.

use crate::events::{EventPosition, MissedReply, PartialReply, SessionWatch, Watchers};
use agent_core::event::{Event, EventKind};
use serde::{Deserialize, Serialize};
use std::sync::Arc;

/// Maximum number of events in a message.
const MAX_EVENTS: usize = 2_048;
/// Maximum number of bytes of a reply that are shown.
const MAX_REPLY: usize = 8 << 20;
/// Number of bytes of text after which a message is sent.
pub(crate) const MESSAGE_TEXT: usize = 64 << 10;
/// Maximum number of bytes of text of a message with a whole reply. JSON may need up to six bytes for a character.
const WHOLE_TEXT: usize = 80 << 10;

/// A message with pieces of a reply.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct TextMessage {
    /// Whether the message contains the whole reply so far.
    #[serde(default)]
    pub(crate) is_whole: bool,
    /// The pieces, in order.
    pub(crate) events: Vec<Event>,
}

impl TextMessage {
    /// Returns the reply that a session is writing, or `None` if there is none, or if it is too long for a message.
    pub(crate) fn whole(watch: &SessionWatch) -> Option<Self> {
        let place = match watch.subscribe().missed {
            MissedReply::Reply(reply) => reply.place,
            MissedReply::Since(_, events) => EventPosition::of(events.last()?),
            MissedReply::Nothing | MissedReply::Events(_) => return None,
        };
        let begin = EventPosition { provisional: 0, ..place };
        let events = match watch.subscribe_after(begin).missed {
            MissedReply::Events(events) => events,
            MissedReply::Since(_, events) => {
                let is_piece = |event: &Event| event.provisional.is_some() && event.sequence == place.sequence;
                events.into_iter().filter(is_piece).collect()
            }
            MissedReply::Reply(reply) => whole_reply(reply)?,
            MissedReply::Nothing => return None,
        };
        let text: usize = events.iter().map(text_of).sum();
        (!events.is_empty() && text <= WHOLE_TEXT).then_some(Self { is_whole: true, events })
    }

    /// Parses a message. Returns `None` for anything that is not a piece of a reply of this session.
    pub(crate) fn parse(json: &[u8], session: &str) -> Option<Self> {
        let message: Self = serde_json::from_slice(json).ok()?;
        let is_piece = |event: &Event| {
            let is_text = matches!(
                event.kind,
                EventKind::StreamToken { .. }
                    | EventKind::StreamClear
                    | EventKind::ThinkingStart
                    | EventKind::ThinkingContent { .. }
                    | EventKind::ThinkingEnd
            );
            is_text && event.provisional.is_some_and(|number| number > 0) && event.session == session
        };
        (message.events.len() <= MAX_EVENTS && message.events.iter().all(is_piece)).then_some(message)
    }
}

/// Returns the number of bytes of text of a piece.
pub(crate) fn text_of(event: &Event) -> usize {
    match &event.kind {
        EventKind::StreamToken { text } | EventKind::ThinkingContent { text } => text.len(),
        _ => 0,
    }
}

/// Returns pieces that make the reply from nothing, and that end at its place. Only long replies need this, so there are enough
/// numbers for the pieces.
fn whole_reply(reply: PartialReply) -> Option<Vec<Event>> {
    let PartialReply { session, turn, place, text, thinking } = reply;
    let mut kinds = vec![EventKind::StreamClear];
    if !thinking.is_empty() {
        let content = EventKind::ThinkingContent { text: thinking };
        kinds.extend([EventKind::ThinkingStart, content, EventKind::ThinkingEnd]);
    }
    kinds.push(EventKind::StreamToken { text });
    let first = place.provisional.checked_sub(u32::try_from(kinds.len()).ok()?)? + 1;
    let event = |(number, kind)| Event {
        session: session.clone(),
        turn,
        sequence: place.sequence,
        provisional: Some(number),
        kind,
    };
    Some((first..).zip(kinds).map(event).collect())
}

/// Shows the pieces of a session's replies to the readers of this process.
pub(crate) struct MirroredReply {
    watchers: Arc<Watchers>,
    /// Position of the last piece that was shown.
    last: EventPosition,
    /// Number of bytes of the current reply.
    shown: usize,
}

/// Whether the pieces of a message could be shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mirrored {
    /// All pieces were shown now or before.
    Shown,
    /// A piece before these pieces is missing.
    Missing,
}

impl MirroredReply {
    pub(crate) fn new() -> Self {
        Self { watchers: Arc::new(Watchers::new()), last: EventPosition::default(), shown: 0 }
    }

    pub(crate) fn watch(&self) -> SessionWatch {
        self.watchers.handle()
    }

    /// Shows the pieces of a message that were not shown before.
    pub(crate) fn show(&mut self, message: TextMessage) -> Mirrored {
        for (index, event) in message.events.into_iter().enumerate() {
            let place = EventPosition::of(&event);
            if place <= self.last {
                continue;
            }
            let is_next = place.sequence == self.last.sequence && place.provisional == self.last.provisional + 1;
            let is_beginning = place.provisional == 1 || (message.is_whole && index == 0);
            if !is_next && !is_beginning {
                return Mirrored::Missing;
            }
            if place.sequence > self.last.sequence {
                self.watchers.forget_reply();
                self.shown = 0;
            }
            self.last = place;
            self.shown = self.shown.saturating_add(text_of(&event));
            if self.shown <= MAX_REPLY {
                self.watchers.publish([event]);
            }
        }
        Mirrored::Shown
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(sequence: u64, number: u32, text: &str) -> Event {
        let kind = EventKind::StreamToken { text: text.to_owned() };
        Event { session: "a/1".to_owned(), turn: 1, sequence, provisional: Some(number), kind }
    }

    fn message(events: &[Event]) -> TextMessage {
        TextMessage { is_whole: false, events: events.to_vec() }
    }

    fn shown(mirror: &MirroredReply) -> String {
        match mirror.watch().subscribe().missed {
            MissedReply::Reply(reply) => reply.text,
            MissedReply::Nothing => String::new(),
            other => panic!("{other:?}"),
        }
    }

    /// F2: doubled and reordered messages show each piece once and in order, and a lost message is noticed.
    #[test]
    fn f2_pieces_are_shown_once_and_in_order() {
        let mut mirror = MirroredReply::new();
        let pieces: Vec<_> = (1..=5).map(|number| piece(7, number, &number.to_string())).collect();
        assert_eq!(mirror.show(message(&pieces[2..3])), Mirrored::Missing, "the reader came late");
        assert_eq!(mirror.show(message(&pieces[..2])), Mirrored::Shown);
        assert_eq!(mirror.show(message(&pieces[..2])), Mirrored::Shown);
        assert_eq!(mirror.show(message(&pieces[3..])), Mirrored::Missing);
        assert_eq!(shown(&mirror), "12");
        assert_eq!(mirror.show(TextMessage { is_whole: true, events: pieces.clone() }), Mirrored::Shown);
        assert_eq!(shown(&mirror), "12345");
        assert_eq!(mirror.show(message(&[piece(9, 1, "next")])), Mirrored::Shown);
        assert_eq!(mirror.show(message(&pieces)), Mirrored::Shown, "the earlier reply has ended");
        assert_eq!(shown(&mirror), "next");
    }

    /// F2: a reader that comes late receives the whole reply, short or long.
    #[test]
    fn f2_a_late_reader_receives_the_whole_reply() {
        for count in [3, 1_500] {
            let watchers = Arc::new(Watchers::new());
            assert_eq!(TextMessage::whole(&watchers.handle()), None);
            let pieces: Vec<_> = (1..=count).map(|number| piece(7, number, "ab ")).collect();
            watchers.publish(pieces);
            let whole = TextMessage::whole(&watchers.handle()).expect("a reply");
            let sent = serde_json::to_vec(&whole).expect("JSON");
            let mut mirror = MirroredReply::new();
            assert_eq!(mirror.show(TextMessage::parse(&sent, "a/1").expect("valid")), Mirrored::Shown);
            assert_eq!(shown(&mirror), "ab ".repeat(count as usize));
            assert_eq!(mirror.show(message(&[piece(7, count + 1, "end")])), Mirrored::Shown);
            assert!(shown(&mirror).ends_with("ab end"));
        }
    }

    /// F2: a message can only contain pieces of a reply of its session.
    #[test]
    fn f2_other_events_are_not_accepted_as_text() {
        let durable = EventKind::LoopIteration { step: 1, last: false };
        let bad = [
            Event { provisional: None, ..piece(7, 1, "a") },
            Event { provisional: Some(0), ..piece(7, 1, "a") },
            Event { session: "a/2".to_owned(), ..piece(7, 1, "a") },
            Event { kind: durable, ..piece(7, 1, "a") },
        ];
        for event in bad {
            let json = serde_json::to_vec(&message(&[piece(7, 1, "a"), event])).expect("JSON");
            assert_eq!(TextMessage::parse(&json, "a/1"), None);
        }
        for json in ["", "[]", "{}", "{\"events\": [1]}"] {
            assert_eq!(TextMessage::parse(json.as_bytes(), "a/1"), None, "{json}");
        }
        let many = vec![piece(7, 1, ""); MAX_EVENTS + 1];
        assert_eq!(TextMessage::parse(&serde_json::to_vec(&message(&many)).expect("JSON"), "a/1"), None);
    }

    /// F2: a reply without end does not use memory without end.
    #[test]
    fn f2_the_size_of_a_shown_reply_is_bounded() {
        let mut mirror = MirroredReply::new();
        for number in 1..=100 {
            mirror.show(message(&[piece(7, number, &"x".repeat(MAX_REPLY / 10))]));
        }
        assert!(shown(&mirror).len() <= MAX_REPLY);
    }
}
