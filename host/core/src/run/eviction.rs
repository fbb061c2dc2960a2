//! Eviction: when the history passes its threshold, the oldest whole groups leave the view and a summary takes their
//! place (L26, L27).

use super::budget::PromptBudget;
use super::input::Summarised;
use super::state::Run;
use super::turn::{Phase, Turn, answered};
use crate::change::{Change, Departure};
use crate::event::EventKind;
use crate::message::{MessageId, Role};
use crate::plugin::{History, Section, Stability};
use crate::prompt;
use crate::summary::{Draft, HistorySummary, Leaving};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Messages that are to leave, with what a summary of them needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryPlan {
    /// Oldest first: whole groups.
    pub messages: Vec<MessageId>,
    /// Of what has left before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<HistorySummary>,
    /// Tokens that the whole section may have; what is longer is cut.
    pub limit: u32,
}

/// Where the turn goes on once the messages have left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AfterEviction {
    /// With the next step.
    NextStep,
    /// With the step that has begun, whose model is another one now.
    SameStep { last: bool },
}

/// What the messages of the view take, and how much they may.
struct Load {
    /// Tokens of messages beside the rest of the prompt.
    capacity: u64,
    /// The same once a new summary is as long as it may be.
    capacity_after: u64,
    /// Of the whole view.
    view: u64,
    /// What eviction begins at.
    high: u64,
    /// Fewer than the minimum of a step remain.
    is_tight: bool,
}

impl PromptBudget {
    /// Most tokens of the session summary: an eighth of what messages may have, at least 64 and at most 1,000.
    fn summary_limit(&self) -> u32 {
        (self.remaining(0) / 8).clamp(64, 1_000)
    }
}

impl Run {
    /// The system sections of the next prompt: the turn's, and the session summary behind those that are fixed (L22).
    pub fn system_sections(&self) -> Vec<Section> {
        let mut sections = self.turn.as_ref().map(|turn| turn.sections.clone()).unwrap_or_default();
        if let Some(summary) = self.shown_summary() {
            let fixed = sections.iter().take_while(|section| section.stability == Stability::Fixed);
            sections.insert(fixed.count(), summary.section());
        }
        sections
    }

    /// The window of the open turn, the session summary counted as system text.
    pub fn prompt_budget(&self) -> PromptBudget {
        let budget = self.turn.as_ref().map(|turn| turn.budget).unwrap_or_default();
        let summary = self.shown_summary().map_or(0, |summary| summary.tokens);
        PromptBudget { system: budget.system.saturating_add(summary), ..budget }
    }

    /// The session summary where the prompt has it. A builder that leaves the history out leaves out what is said of it,
    /// too, and one with a section of that name has its own.
    fn shown_summary(&self) -> Option<&HistorySummary> {
        let turn = self.turn.as_ref()?;
        let summary = self.summary.as_ref()?;
        let left_out = turn.history == History::LeaveOut && summary.through_turn < turn.number;
        let replaced = turn.sections.iter().any(|section| section.name == prompt::section::SESSION_SUMMARY);
        (!left_out && !replaced).then_some(summary)
    }

    /// Has the oldest messages summarised, where it is time and there are some that may leave; says whether.
    pub(super) fn evict(&mut self, then: AfterEviction) -> bool {
        let Some(messages) = self.leaving() else { return false };
        let Some(turn) = &mut self.turn else { return false };
        turn.phase = Phase::Summarising { messages, then };
        true
    }

    /// What is to be summarised.
    pub(super) fn summary_plan(&self, messages: &[MessageId]) -> SummaryPlan {
        let limit = self.turn.as_ref().map_or(0, |turn| turn.budget.summary_limit());
        SummaryPlan { messages: messages.to_vec(), earlier: self.summary.clone(), limit }
    }

    /// The messages leave, their summary enters, and the turn goes on: one change (L27).
    pub(super) fn summarised(&mut self, summarised: Summarised, change: &mut Change) {
        let Some(turn) = &mut self.turn else { return };
        let Phase::Summarising { messages, then } = &turn.phase else { return };
        let (messages, then) = (messages.clone(), *then);
        let limit = turn.budget.summary_limit();
        turn.spend(summarised.usage, answered(summarised.usage));
        let leaving = self.view.iter().filter(|entry| messages.binary_search(&entry.id).is_ok());
        let (tokens, through_turn) = leaving
            .fold((0_u32, 0), |(tokens, turn), entry| (tokens.saturating_add(entry.tokens), entry.turn.max(turn)));
        let through_message = messages.last().copied().unwrap_or_default();
        let leaving = Leaving { messages: messages.len() as u64, through_turn, through_message };
        for id in &messages {
            self.hide_because(*id, Departure::Evicted, change);
        }
        let draft = Draft { text: summarised.text, files: summarised.files };
        let summary = HistorySummary::next(self.summary.as_ref(), draft, leaving, limit);
        let messages = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        let kind = EventKind::Evicted { messages, tokens, summary_tokens: summary.tokens, by: summarised.by };
        self.summary = Some(summary);
        self.emit(change, kind);
        match then {
            AfterEviction::NextStep => self.begin_step(change),
            AfterEviction::SameStep { last } => self.go_on_with_step(last, change),
        }
    }

    /// What is to leave the view: nothing below the threshold. From there on the oldest groups leave until the lower mark
    /// is reached, so that not every step evicts and prompts keep their beginning for a while.
    fn leaving(&self) -> Option<Vec<MessageId>> {
        let turn = self.turn.as_ref()?;
        let load = self.load(turn)?;
        if load.view <= load.high && !load.is_tight {
            return None;
        }
        let groups: Vec<Range<usize>> = self.groups();
        let tokens_of = |group: &Range<usize>| -> u64 {
            self.view[group.clone()].iter().map(|entry| u64::from(entry.tokens)).sum()
        };
        let staying = groups.iter().filter(|group| !self.may_leave(group, turn)).map(tokens_of).sum::<u64>();
        let target = target(&load, staying, turn);
        let mut left = load.view;
        let mut leaving = Vec::new();
        for group in groups {
            let first = &self.view[group.start];
            // An answer is not kept where its question has gone.
            let is_orphan = first.role == Some(Role::Assistant) && first.turn < turn.number && left > target / 2;
            if left <= target && !is_orphan {
                break;
            }
            if self.may_leave(&group, turn) {
                left -= tokens_of(&group);
                leaving.extend(self.view[group].iter().map(|entry| entry.id));
            }
        }
        // What would leave too little room to be worth a new prompt stays until it must leave.
        let in_vain = left > load.high && (load.view - left) * 10 < load.capacity;
        (!leaving.is_empty() && (load.is_tight || !in_vain)).then_some(leaving)
    }

    fn load(&self, turn: &Turn) -> Option<Load> {
        let budget = self.prompt_budget();
        if budget.window == 0 {
            return None;
        }
        let capacity = u64::from(budget.remaining(0));
        Some(Load {
            capacity,
            capacity_after: turn.budget.remaining(turn.budget.summary_limit()).into(),
            view: self.view.iter().map(|entry| u64::from(entry.tokens)).sum(),
            high: percent(capacity, turn.config.evict_at),
            is_tight: budget.remaining(self.sent_tokens()) < turn.config.minimum_remaining,
        })
    }

    /// The view in groups that leave together: a request with its results, each other message alone. Messages that were
    /// stored before their roles were kept leave with their whole turn.
    fn groups(&self) -> Vec<Range<usize>> {
        let mut groups: Vec<Range<usize>> = Vec::new();
        for (place, entry) in self.view.iter().enumerate() {
            let joins = place.checked_sub(1).map(|before| &self.view[before]).is_some_and(|before| match entry.role {
                Some(Role::Tool) => before.turn == entry.turn,
                None => before.turn == entry.turn && before.role.is_none(),
                _ => false,
            });
            match groups.last_mut().filter(|_| joins) {
                Some(group) => group.end = place + 1,
                None => groups.push(place..place + 1),
            }
        }
        groups
    }

    /// System messages never leave; of the open turn neither what it began with nor what the model has not seen.
    fn may_leave(&self, group: &Range<usize>, turn: &Turn) -> bool {
        self.view[group.clone()].iter().all(|entry| {
            let is_earlier = entry.turn < turn.number;
            let is_seen = entry.role.is_some() && entry.id >= turn.begun_until && entry.id < turn.latest_from;
            entry.role != Some(Role::System) && (is_earlier || is_seen)
        })
    }
}

/// The lower mark; where what must stay takes nearly as much or more, a quarter of the way from there to the threshold.
/// Never so much that a step has too little room.
fn target(load: &Load, staying: u64, turn: &Turn) -> u64 {
    let config = &turn.config;
    let high = percent(load.capacity_after, config.evict_at);
    let low = percent(load.capacity_after, config.evict_to.min(config.evict_at));
    let above_staying = staying + high.saturating_sub(staying) / 4;
    low.max(above_staying).min(load.capacity_after.saturating_sub(config.minimum_remaining.into()))
}

fn percent(of: u64, percent: u32) -> u64 {
    of.saturating_mul(percent.into()) / 100
}
