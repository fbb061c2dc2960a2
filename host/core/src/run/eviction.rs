//! Eviction: when the history exceeds its threshold, the oldest groups of messages are removed from the view and a
//! summary replaces them (L26, L27).

use super::budget::PromptBudget;
use super::input::Summarised;
use super::state::{NO_TURN, Run};
use super::turn::{Phase, Turn, answered};
use crate::change::{Change, HideReason};
use crate::event::EventKind;
use crate::message::{MessageId, Role};
use crate::plugin::{History, Section, Stability};
use crate::prompt;
use crate::summary::{Draft, EvictedMessages, HistorySummary};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Messages that are about to be evicted, with everything that a summary of them needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryPlan {
    /// Ids of the messages, oldest first. They form whole groups.
    pub messages: Vec<MessageId>,
    /// Summary of the messages that were evicted before. None: there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<HistorySummary>,
    /// Maximum number of tokens of the whole summary section. A longer summary is cut.
    pub limit: u32,
}

/// Where the turn continues after the eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AfterEviction {
    /// With the next step.
    NextStep,
    /// With the current step, which has switched to another model.
    SameStep { last: bool },
}

/// How many tokens the messages of the view take and may take.
struct Load {
    /// Tokens available for messages.
    capacity: u64,
    /// The same once a new summary has its maximum length.
    capacity_after: u64,
    /// Tokens of the whole view.
    view: u64,
    /// The threshold at which eviction begins.
    high: u64,
    /// Whether fewer tokens are left than a step needs.
    is_tight: bool,
}

impl PromptBudget {
    /// Maximum number of tokens of the session summary: an eighth of the room for messages, at least 64 and at most
    /// 1,000.
    fn summary_limit(&self) -> u32 {
        (self.remaining(0) / 8).clamp(64, 1_000)
    }
}

impl Run {
    /// The system sections of the next prompt: those of the turn, with the session summary after the fixed ones
    /// (L22).
    pub fn system_sections(&self) -> Vec<Section> {
        let mut sections = self.turn.as_ref().map(|turn| turn.sections.clone()).unwrap_or_default();
        if let Some(summary) = self.shown_summary() {
            let fixed = sections.iter().take_while(|section| section.stability == Stability::Fixed);
            sections.insert(fixed.count(), summary.section());
        }
        sections
    }

    /// The token budget of the open turn, with the session summary counted as system text.
    pub fn prompt_budget(&self) -> PromptBudget {
        let budget = self.turn.as_ref().map(|turn| turn.budget).unwrap_or_default();
        let summary = self.shown_summary().map_or(0, |summary| summary.tokens);
        PromptBudget { system: budget.system.saturating_add(summary), ..budget }
    }

    /// The session summary if the prompt includes it. A builder that leaves out the history also leaves out its
    /// summary, and a builder's own section of that name replaces it.
    fn shown_summary(&self) -> Option<&HistorySummary> {
        let turn = self.turn.as_ref()?;
        let summary = self.summary.as_ref()?;
        let left_out = turn.history == History::LeaveOut && summary.through_turn < turn.number;
        let replaced = turn.sections.iter().any(|section| section.name == prompt::section::SESSION_SUMMARY);
        (!left_out && !replaced).then_some(summary)
    }

    /// Starts to evict the oldest messages if the threshold is exceeded and some may leave. Returns whether it did.
    pub(super) fn evict(&mut self, then: AfterEviction) -> bool {
        let Some(messages) = self.messages_to_evict() else { return false };
        let Some(turn) = &mut self.turn else { return false };
        turn.phase = Phase::Summarising { messages, then };
        true
    }

    /// What is to be summarised.
    pub(super) fn summary_plan(&self, messages: &[MessageId]) -> SummaryPlan {
        let limit = self.turn.as_ref().map_or(0, |turn| turn.budget.summary_limit());
        SummaryPlan { messages: messages.to_vec(), earlier: self.summary.clone(), limit }
    }

    /// Evicts the messages, adds their summary and continues the turn, in one change (L27).
    pub(super) fn summarised(&mut self, summarised: Summarised, change: &mut Change) {
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        let Phase::Summarising { messages, then } = &turn.phase else {
            return self.inconsistent("no eviction is open");
        };
        let (messages, then) = (messages.clone(), *then);
        let limit = turn.budget.summary_limit();
        turn.spend(summarised.usage, answered(summarised.usage));
        let leaving = self.view.iter().filter(|entry| messages.binary_search(&entry.id).is_ok());
        let (tokens, through_turn) = leaving
            .fold((0_u32, 0), |(tokens, turn), entry| (tokens.saturating_add(entry.tokens), entry.turn.max(turn)));
        let through_message = messages.last().copied().unwrap_or_default();
        let leaving = EvictedMessages { messages: messages.len() as u64, through_turn, through_message };
        for id in &messages {
            self.hide_because(*id, HideReason::Evicted, change);
        }
        let draft = Draft { text: summarised.text, files: summarised.files };
        let summary = HistorySummary::next(self.summary.as_ref(), draft, leaving, limit);
        let messages = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        let kind = EventKind::Evicted { messages, tokens, summary_tokens: summary.tokens, by: summarised.by };
        self.summary = Some(summary);
        self.emit(change, kind);
        match then {
            AfterEviction::NextStep => self.begin_step(change),
            AfterEviction::SameStep { last } => self.continue_step(last, change),
        }
    }

    /// Selects the messages to evict, if the threshold is exceeded. The oldest groups are evicted until the lower
    /// mark is reached, so that eviction is rare and prompts keep their beginning for a while.
    fn messages_to_evict(&self) -> Option<Vec<MessageId>> {
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
            // An answer is not kept without its question.
            let is_orphan = first.role == Some(Role::Assistant) && first.turn < turn.number && left > target / 2;
            if left <= target && !is_orphan {
                break;
            }
            if self.may_leave(&group, turn) {
                left -= tokens_of(&group);
                leaving.extend(self.view[group].iter().map(|entry| entry.id));
            }
        }
        // If eviction would free too little room to justify a changed prompt, messages stay until they must leave.
        let frees_too_little = left > load.high && (load.view - left) * 10 < load.capacity;
        (!leaving.is_empty() && (load.is_tight || !frees_too_little)).then_some(leaving)
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

    /// The view in groups that leave together: a request with its results, and each other message alone. Messages
    /// from states without roles leave with their whole turn.
    fn groups(&self) -> Vec<Range<usize>> {
        let mut groups: Vec<Range<usize>> = Vec::new();
        for (index, entry) in self.view.iter().enumerate() {
            let joins = index.checked_sub(1).map(|before| &self.view[before]).is_some_and(|before| match entry.role {
                Some(Role::Tool) => before.turn == entry.turn,
                None => before.turn == entry.turn && before.role.is_none(),
                _ => false,
            });
            match groups.last_mut().filter(|_| joins) {
                Some(group) => group.end = index + 1,
                None => groups.push(index..index + 1),
            }
        }
        groups
    }

    /// Whether a group may be evicted. System messages never are. In the open turn, the first messages and those that
    /// the model has not seen stay.
    fn may_leave(&self, group: &Range<usize>, turn: &Turn) -> bool {
        self.view[group.clone()].iter().all(|entry| {
            let is_earlier = entry.turn < turn.number;
            let is_seen = entry.role.is_some() && entry.id >= turn.begun_until && entry.id < turn.latest_from;
            entry.role != Some(Role::System) && (is_earlier || is_seen)
        })
    }
}

/// The lower mark. If the messages that must stay nearly reach or exceed it, it is a quarter of the way from them to
/// the threshold. It always leaves enough room for a step.
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
