//! Eviction: if the messages exceed a threshold, the oldest groups of messages are removed from the view, and a summary
//! replaces them (L26, L27).

use super::budget::PromptBudget;
use super::input::Summarised;
use super::state::{NO_TURN, Run};
use super::turn::{Phase, Turn, counted_calls};
use crate::change::{Change, HideReason};
use crate::event::EventKind;
use crate::message::{MessageId, Role};
use crate::plugin::{History, Section, Stability};
use crate::prompt;
use crate::summary::{Draft, EvictedMessages, HistorySummary};
use serde::{Deserialize, Serialize};
use std::ops::Range;

/// Messages that are about to be evicted, with the earlier summary and the limit for the new summary.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SummaryPlan {
    /// Ids of the messages, oldest first. The messages form whole groups.
    pub messages: Vec<MessageId>,
    /// Summary of the messages that were evicted before. `None` means that no messages were evicted before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub earlier: Option<HistorySummary>,
    /// Maximum number of tokens of the whole summary section. A longer summary is cut.
    pub limit: u32,
}

/// The point at which the turn continues after an eviction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum AfterEviction {
    /// The turn continues with the next step.
    NextStep,
    /// The turn continues with the current step, which has switched to another model.
    SameStep { last: bool },
}

/// How many tokens the messages in the view have, and how many tokens are available for messages.
struct Load {
    /// Number of tokens that are available for messages.
    capacity: u64,
    /// Number of tokens that are available for messages after an eviction whose summary has the maximum length.
    capacity_after: u64,
    /// Number of tokens of all messages in the view.
    view: u64,
    /// Number of tokens above which messages are evicted.
    high: u64,
    /// Whether fewer tokens are left than a step needs.
    is_tight: bool,
}

impl PromptBudget {
    /// Maximum number of tokens of the session summary: an eighth of the tokens that are available for messages, at
    /// least 64 and at most 1,000.
    fn summary_limit(&self) -> u32 {
        (self.remaining(0) / 8).clamp(64, 1_000)
    }
}

impl Run {
    /// Returns the system sections of the next prompt: the sections of the turn, and the session summary after the
    /// fixed sections (L22).
    pub fn system_sections(&self) -> Vec<Section> {
        let mut sections = self.turn.as_ref().map(|turn| turn.sections.clone()).unwrap_or_default();
        if let Some(summary) = self.shown_summary() {
            let fixed = sections.iter().take_while(|section| section.stability == Stability::Fixed);
            sections.insert(fixed.count(), summary.section());
        }
        sections
    }

    /// Returns the token budget of the open turn. The session summary is counted as system text.
    pub fn prompt_budget(&self) -> PromptBudget {
        let budget = self.turn.as_ref().map(|turn| turn.budget).unwrap_or_default();
        let summary = self.shown_summary().map_or(0, |summary| summary.tokens);
        PromptBudget { system: budget.system.saturating_add(summary), ..budget }
    }

    /// Returns the session summary if the prompt contains it. The prompt does not contain the summary if the context
    /// builder left out the history, or if the builder returned a section with the name of the summary's section.
    fn shown_summary(&self) -> Option<&HistorySummary> {
        let turn = self.turn.as_ref()?;
        let summary = self.summary.as_ref()?;
        let left_out = turn.history == History::LeaveOut && summary.through_turn < turn.number;
        let replaced = turn.sections.iter().any(|section| section.name == prompt::section::SESSION_SUMMARY);
        (!left_out && !replaced).then_some(summary)
    }

    /// Starts to evict the oldest messages if the threshold is exceeded and some of them may be evicted. Returns
    /// whether an eviction was started.
    pub(super) fn evict(&mut self, then: AfterEviction) -> bool {
        let Some(messages) = self.messages_to_evict() else { return false };
        let Some(turn) = &mut self.turn else { return false };
        turn.phase = Phase::Summarising { messages, then };
        true
    }

    /// Returns the plan for the summary of these messages.
    pub(super) fn summary_plan(&self, messages: &[MessageId]) -> SummaryPlan {
        let limit = self.turn.as_ref().map_or(0, |turn| turn.budget.summary_limit());
        SummaryPlan { messages: messages.to_vec(), earlier: self.summary.clone(), limit }
    }

    /// Evicts the messages, stores their summary and continues the turn, all in the same change (L27).
    pub(super) fn summarised(&mut self, summarised: Summarised, change: &mut Change) {
        let Some(turn) = &mut self.turn else { return self.inconsistent(NO_TURN) };
        let Phase::Summarising { messages, then } = &turn.phase else {
            return self.inconsistent("no eviction is open");
        };
        let (messages, then) = (messages.clone(), *then);
        let limit = turn.budget.summary_limit();
        turn.spend(summarised.usage, counted_calls(summarised.usage));
        let evicted = self.view.iter().filter(|entry| messages.binary_search(&entry.id).is_ok());
        let (tokens, through_turn) = evicted
            .fold((0_u32, 0), |(tokens, turn), entry| (tokens.saturating_add(entry.tokens), entry.turn.max(turn)));
        let through_message = messages.last().copied().unwrap_or_default();
        let evicted = EvictedMessages { messages: messages.len() as u64, through_turn, through_message };
        for id in &messages {
            self.hide_because(*id, HideReason::Evicted, change);
        }
        let draft = Draft { text: summarised.text, files: summarised.files };
        let summary = HistorySummary::next(self.summary.as_ref(), draft, evicted, limit);
        let messages = u32::try_from(messages.len()).unwrap_or(u32::MAX);
        let kind = EventKind::Evicted { messages, tokens, summary_tokens: summary.tokens, by: summarised.by };
        self.summary = Some(summary);
        self.emit(change, kind);
        match then {
            AfterEviction::NextStep => self.begin_step(change),
            AfterEviction::SameStep { last } => self.continue_step(last, change),
        }
    }

    /// Selects the messages to evict. `None` means that the threshold is not exceeded, or an eviction would not help.
    ///
    /// The oldest groups are evicted until a target below the threshold is reached, so that evictions are rare and the
    /// beginning of the prompt stays the same between two evictions.
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
        let staying = groups.iter().filter(|group| !self.may_be_evicted(group, turn)).map(tokens_of).sum::<u64>();
        let target = target(&load, staying, turn);
        let mut remaining = load.view;
        let mut evicted = Vec::new();
        for group in groups {
            let first = &self.view[group.start];
            // An answer of an earlier turn is evicted together with its question.
            let is_orphan = first.role == Some(Role::Assistant) && first.turn < turn.number && remaining > target / 2;
            if remaining <= target && !is_orphan {
                break;
            }
            if self.may_be_evicted(&group, turn) {
                remaining -= tokens_of(&group);
                evicted.extend(self.view[group].iter().map(|entry| entry.id));
            }
        }
        // An eviction changes the prompt. An eviction that would free only a few tokens is postponed until the tokens
        // are needed.
        let frees_too_little = remaining > load.high && (load.view - remaining) * 10 < load.capacity;
        (!evicted.is_empty() && (load.is_tight || !frees_too_little)).then_some(evicted)
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

    /// Returns the groups of messages that are evicted together, as ranges of indices in the view. A message with calls
    /// forms one group together with the results of the calls. Each of the remaining messages forms its own group.
    /// If the roles are unknown, a whole turn is a group.
    fn groups(&self) -> Vec<Range<usize>> {
        let mut groups: Vec<Range<usize>> = Vec::new();
        for (index, entry) in self.view.iter().enumerate() {
            let previous = index.checked_sub(1).map(|previous| &self.view[previous]);
            let belongs_to_previous = previous.is_some_and(|previous| match entry.role {
                Some(Role::Tool) => previous.turn == entry.turn,
                None => previous.turn == entry.turn && previous.role.is_none(),
                _ => false,
            });
            match groups.last_mut().filter(|_| belongs_to_previous) {
                Some(group) => group.end = index + 1,
                None => groups.push(index..index + 1),
            }
        }
        groups
    }

    /// Whether a group may be evicted. Three kinds of messages are never evicted: system messages, the messages with
    /// which the open turn began, and messages that the model has not seen yet.
    fn may_be_evicted(&self, group: &Range<usize>, turn: &Turn) -> bool {
        self.view[group.clone()].iter().all(|entry| {
            let is_earlier = entry.turn < turn.number;
            let is_seen = entry.role.is_some() && entry.id >= turn.begun_until && entry.id < turn.latest_from;
            entry.role != Some(Role::System) && (is_earlier || is_seen)
        })
    }
}

/// Returns the maximum number of tokens that the messages may have after an eviction.
///
/// Normally, this target is the configured percentage of the tokens that are available for messages. The target is
/// higher if the messages that must stay use many tokens: it is at least the number of these tokens, plus a quarter of
/// the difference between this number and the threshold. The target always leaves enough tokens for a step.
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
