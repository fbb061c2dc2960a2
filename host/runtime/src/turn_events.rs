//! The events of one turn, for a reader that shows or forwards the reply while the model writes it.

use crate::event_stream::{SessionEvent, SessionEvents};
use agent_core::event::{Event, EventKind};
use agent_store::StoreError;
use std::collections::VecDeque;

/// Follows one turn of a session until the turn ends or waits. See [`Supervisor::begin`](crate::Supervisor::begin).
pub struct TurnEvents {
    events: SessionEvents,
    turn: u32,
    /// The text and the thinking of the current reply that were returned so far.
    text: String,
    thinking: String,
    ready: VecDeque<TurnUpdate>,
    /// Whether the turn has ended or waits.
    has_stopped: bool,
}

/// What happened in a turn.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "each update is moved once, to the reader")]
pub enum TurnUpdate {
    /// The next piece of the current reply's text.
    Text(String),
    /// The next piece of the current reply's thinking.
    Thinking(String),
    /// The text and the thinking of the current reply must be discarded. The model writes another reply.
    Discard,
    /// Any other event of the turn, in order. All of these events are stored, and are never discarded.
    Event(Event),
}

impl TurnEvents {
    /// Follows the turn with this number. `events` must begin before the turn, or after an event of the turn.
    pub fn new(events: SessionEvents, turn: u32) -> Self {
        let (text, thinking, ready) = (String::new(), String::new(), VecDeque::new());
        Self { events, turn, text, thinking, ready, has_stopped: false }
    }

    /// Returns the number of the turn.
    pub fn turn(&self) -> u32 {
        self.turn
    }

    /// Waits for the next update. After the event [`EventKind::LoopEnd`] or [`EventKind::Suspended`] was returned, returns
    /// `None`. Dropping the future loses no update.
    ///
    /// The pieces of text that were returned since the last [`EventKind::StreamComplete`] or [`TurnUpdate::Discard`] are
    /// always exactly the text of the current reply. Before `StreamComplete` is returned, they are completed, if necessary,
    /// so that a reader that joined late or missed pieces has the whole text.
    pub async fn next(&mut self) -> Result<Option<TurnUpdate>, StoreError> {
        loop {
            if let Some(update) = self.ready.pop_front() {
                return Ok(Some(update));
            }
            if self.has_stopped {
                return Ok(None);
            }
            let event = self.events.next().await?;
            self.add(event);
        }
    }

    /// Continues to follow the turn after it has waited.
    pub fn resume(&mut self) {
        self.has_stopped = false;
    }

    fn add(&mut self, event: SessionEvent) {
        match event {
            SessionEvent::Reply(reply) if reply.turn == self.turn => {
                if !reply.text.starts_with(&self.text) || !reply.thinking.starts_with(&self.thinking) {
                    self.discard();
                }
                let thinking = reply.thinking[self.thinking.len()..].to_owned();
                let text = reply.text[self.text.len()..].to_owned();
                self.add_thinking(thinking);
                self.add_text(text);
            }
            SessionEvent::Event(event) if event.turn == self.turn => self.add_event(event),
            // Another turn, which ended before this turn began, or began after it.
            SessionEvent::Reply(_) | SessionEvent::Event(_) => {}
        }
    }

    fn add_event(&mut self, event: Event) {
        match &event.kind {
            EventKind::StreamToken { text } => self.add_text(text.clone()),
            EventKind::ThinkingContent { text } => self.add_thinking(text.clone()),
            EventKind::ThinkingStart if !self.thinking.is_empty() => self.add_thinking("\n\n".to_owned()),
            EventKind::ThinkingStart | EventKind::ThinkingEnd => {}
            EventKind::StreamClear => self.discard(),
            EventKind::StreamComplete { text, .. } => {
                let whole = text.clone();
                if !whole.starts_with(&self.text) {
                    self.discard();
                }
                let rest = whole[self.text.len()..].to_owned();
                self.add_text(rest);
                (self.text, self.thinking) = (String::new(), String::new());
                self.ready.push_back(TurnUpdate::Event(event));
            }
            kind => {
                self.has_stopped = matches!(kind, EventKind::LoopEnd { .. } | EventKind::Suspended { .. });
                self.ready.push_back(TurnUpdate::Event(event));
            }
        }
    }

    fn add_text(&mut self, text: String) {
        if !text.is_empty() {
            self.text.push_str(&text);
            self.ready.push_back(TurnUpdate::Text(text));
        }
    }

    fn add_thinking(&mut self, text: String) {
        if !text.is_empty() {
            self.thinking.push_str(&text);
            self.ready.push_back(TurnUpdate::Thinking(text));
        }
    }

    fn discard(&mut self) {
        if !(self.text.is_empty() && self.thinking.is_empty()) {
            (self.text, self.thinking) = (String::new(), String::new());
            self.ready.push_back(TurnUpdate::Discard);
        }
    }
}
