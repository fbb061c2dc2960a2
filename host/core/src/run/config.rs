//! The limits of a turn, taken from its agent when the turn begins.

use crate::budget::Budgets;
use crate::loop_break::Finish;
use crate::model::Usage;
use crate::plugin::OutputData;
use serde::{Deserialize, Serialize};

/// The limits of a turn, taken from its agent when the turn begins.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LoopConfig {
    /// Maximum number of model calls of a turn (L4). The default is 10.
    pub max_interactions: u32,
    /// What the turn does when it reaches `max_interactions` (L4). By default, the turn makes one last model call
    /// without tools.
    pub at_limit: AtLimit,
    /// Number of rejected outputs that the model may correct (L12). The default is 2.
    pub max_corrections: u32,
    /// Maximum number of calls of a batch that run at the same time (L9). The default is 4.
    pub parallel_calls: u32,
    /// Maximum length of the part of a tool result that the model sees, in characters (L26). The default is 6,000.
    pub result_characters: u32,
    /// Minimum number of tokens that must remain in the context window before a step (L26). The default is 1,500.
    pub minimum_remaining: u32,
    /// The oldest messages are evicted if the messages use more than this percentage of the tokens that are available
    /// for messages (L27). The default is 80.
    pub evict_at: u32,
    /// After an eviction, the remaining messages use about this percentage of the tokens that are available for
    /// messages. The default is 50.
    pub evict_to: u32,
    /// Maximum number of successive delegations, starting at the agent with which the user works (L16). The default
    /// is 4.
    pub max_depth: u32,
    /// The kind of reply that ends the turn (L18). The default is a reply without a tool call.
    pub finish: Finish,
    /// Whether the host nudges the model if a reply ends the task too early (L23). The default is `false`.
    pub persistence: bool,
    /// Maximum time that a call to `ask_question` waits for the user's answer, in milliseconds. `None` means that the
    /// call waits indefinitely.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub answer_within_ms: Option<u64>,
    /// Maximum time that a call waits for a user's approval after the request, in milliseconds (L17). `None` means that the
    /// call waits indefinitely.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub approval_within_ms: Option<u64>,
    /// The user for whom the turn works: the user of the request or, if the request names no user, the agent's
    /// configured user (D4).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// The output if no model answers (M3). `None` means that the turn ends with the error `model_failed`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback: Option<OutputData>,
    /// The events that announce the turn's progress to services (I6). By default, there are no such events.
    #[serde(skip_serializing_if = "AnnouncedEvents::announces_nothing")]
    pub announced: AnnouncedEvents,
    /// How model calls are counted in execution units (L5). By default, each token of prompt and reply is one unit.
    #[serde(skip_serializing_if = "UnitWeights::is_default")]
    pub execution_units: UnitWeights,
    /// How much the turn, its session, its agent and its user may use (O4). By default, there is no limit.
    #[serde(skip_serializing_if = "Budgets::is_default")]
    pub budgets: Budgets,
}

/// How model calls are counted in execution units (L5). By default, each token of a prompt or a reply is one unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct UnitWeights {
    /// Execution units for one token of the prompt. The default is 1.
    pub prompt_token: Weight,
    /// Execution units for one token of the reply. The default is 1.
    pub completion_token: Weight,
    /// Execution units for one model call, in addition to the units for its tokens. The default is 0.
    pub model_call: Weight,
}

/// A number of execution units. The number is stored in millionths, so that sums are exact on every machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Weight(u32);

impl Weight {
    /// A weight of one execution unit.
    pub const ONE: Weight = Weight(MILLION);
    /// The maximum weight, in execution units.
    pub const MAX: u32 = 1_000;

    /// Creates a weight, rounded to the nearest millionth. `None` means that `units` is not between 0
    /// and [`Weight::MAX`].
    pub fn of(units: f64) -> Option<Self> {
        // If the value is between 0 and the maximum weight, the conversion changes it by less than a millionth.
        (0.0..=f64::from(Self::MAX)).contains(&units).then(|| Self((units * f64::from(MILLION)).round() as u32))
    }

    /// Returns the weight in execution units.
    pub fn units(self) -> f64 {
        f64::from(self.0) / f64::from(MILLION)
    }
}

const MILLION: u32 = 1_000_000;

impl Default for UnitWeights {
    fn default() -> Self {
        Self { prompt_token: Weight::ONE, completion_token: Weight::ONE, model_call: Weight::default() }
    }
}

impl UnitWeights {
    fn is_default(&self) -> bool {
        *self == Self::default()
    }
}

/// An amount of execution units (L5), as whole units and a fraction in millionths.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ExecutionUnits {
    pub(super) whole: u64,
    pub(super) millionths: u32,
}

impl ExecutionUnits {
    /// Returns the sum of `self`, the units for `calls` model calls, and the units for the tokens that the calls used.
    pub(super) fn plus(self, weights: &UnitWeights, usage: Usage, calls: u64) -> Self {
        let counted = [
            (weights.prompt_token, usage.prompt_tokens),
            (weights.completion_token, usage.completion_tokens),
            (weights.model_call, calls),
        ];
        let sum = |sum: u128, (weight, count): (Weight, u64)| sum + u128::from(weight.0) * u128::from(count);
        let sum = counted.into_iter().fold(u128::from(self.millionths), sum);
        let million = u128::from(MILLION);
        let whole = u64::try_from(sum / million).unwrap_or(u64::MAX);
        Self { whole: self.whole.saturating_add(whole), millionths: (sum % million) as u32 }
    }

    /// Rounds up to whole units.
    pub(super) fn rounded_up(self) -> u64 {
        self.whole.saturating_add(u64::from(self.millionths > 0))
    }
}

/// The events that announce a turn's progress to services (I6). The settings are stored with the turn, because a later
/// command that continues or cancels the turn may not have the agent's configuration.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct AnnouncedEvents {
    /// Whether the end of a turn is announced.
    pub completions: Emission,
    /// Whether calls that wait for approval are announced.
    pub approvals: Emission,
}

impl AnnouncedEvents {
    fn announces_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Whether something that happens in a session is sent as an event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Emission {
    /// No event is sent.
    #[default]
    Silent,
    /// An event is sent.
    Emitted,
}

impl Default for LoopConfig {
    fn default() -> Self {
        Self {
            max_interactions: 10,
            at_limit: AtLimit::Finish,
            max_corrections: 2,
            parallel_calls: 4,
            result_characters: 6_000,
            minimum_remaining: 1_500,
            evict_at: 80,
            evict_to: 50,
            max_depth: 4,
            finish: Finish::Text,
            persistence: false,
            answer_within_ms: None,
            approval_within_ms: None,
            user: None,
            fallback: None,
            announced: AnnouncedEvents::default(),
            execution_units: UnitWeights::default(),
            budgets: Budgets::default(),
        }
    }
}

/// What a turn does when it has reached its maximum number of interactions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtLimit {
    /// The turn makes one last model call without tools, whose reply is the answer.
    #[default]
    Finish,
    /// The turn ends with the error `interactions_exhausted`.
    Error,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(prompt_tokens: u64, completion_tokens: u64) -> Usage {
        Usage::new(prompt_tokens, completion_tokens)
    }

    /// L5: fractions of units are added exactly, one by one or all at the same time, and the total is rounded up.
    #[test]
    fn l5_fractions_of_units_are_not_lost() {
        let weight = |units| Weight::of(units).expect("in range");
        let weights =
            UnitWeights { prompt_token: weight(0.001), completion_token: weight(0.1), model_call: weight(2.5) };
        let (mut one_by_one, at_once) =
            (ExecutionUnits::default(), ExecutionUnits::default().plus(&weights, usage(3_000, 70), 10));
        for _ in 0..10 {
            one_by_one = one_by_one.plus(&weights, usage(300, 7), 1);
        }
        assert_eq!(one_by_one, at_once);
        assert_eq!(at_once.rounded_up(), 35);
        assert_eq!(at_once.plus(&weights, usage(1, 0), 0).rounded_up(), 36);
        assert_eq!(ExecutionUnits::default().rounded_up(), 0);
    }

    #[test]
    fn l5_a_weight_is_finite_and_not_negative() {
        for wrong in [-0.1, 1_000.1, f64::NAN, f64::INFINITY] {
            assert_eq!(Weight::of(wrong), None, "{wrong}");
        }
        assert_eq!(Weight::of(1.0), Some(Weight::ONE));
        assert_eq!(Weight::of(0.25).map(Weight::units), Some(0.25));
    }

    /// L5: if the total number of units is too large for its type, the result is the largest value of the type.
    #[test]
    fn l5_sums_saturate() {
        let max = Weight::of(f64::from(Weight::MAX)).expect("in range");
        let weights = UnitWeights { prompt_token: max, completion_token: max, model_call: max };
        let units = ExecutionUnits::default().plus(&weights, usage(u64::MAX, u64::MAX), u64::MAX);
        assert_eq!(units.plus(&weights, usage(1, 1), 1).rounded_up(), u64::MAX);
    }

    /// L5: a state from an older host contains no weights, so each token counts as one unit.
    #[test]
    fn l5_limits_of_an_older_host_count_tokens() {
        let limits: LoopConfig = serde_json::from_str("{\"max_interactions\": 3}").expect("older limits");
        assert_eq!(limits.execution_units, UnitWeights::default());
        assert_eq!(ExecutionUnits::default().plus(&limits.execution_units, usage(100, 10), 1).rounded_up(), 110);
        assert!(!serde_json::to_string(&LoopConfig::default()).expect("JSON").contains("execution_units"));
    }
}
