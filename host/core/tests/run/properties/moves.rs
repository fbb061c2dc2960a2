//! The random inputs that the property tests apply to a run.

use agent_core::change::Denial;
use agent_core::loop_break::{Finish, LoopBreak};
use agent_core::message::CallId;
use agent_core::plugin::OutputData;
use agent_core::run::{AtLimit, Disposition, LoopConfig, UnitWeights, Weight};
use agent_core::tool::ToolError;
use proptest::prelude::*;

/// The kind of a random input, and the random choices that determine the contents of the input.
#[derive(Clone, Debug)]
pub(super) struct Move {
    pub(super) kind: MoveKind,
    pub(super) config: LoopConfig,
    pub(super) calls: Vec<Disposition>,
    pub(super) text: &'static str,
    pub(super) pick: Pick,
    pub(super) coin: bool,
    /// Each bit determines whether one call of a reply needs approval or, in an answer to an approval request, whether
    /// one call is denied.
    pub(super) approval_bits: u8,
    /// Each bit determines whether one dispatched call is sent to a service. The highest bit also determines whether a
    /// running call requests a service.
    pub(super) service_bits: u8,
}

/// A random number that later selects one element of a list. When the number is generated, the length of the list is
/// not known yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pick(pub(super) usize);

impl Pick {
    pub(super) fn index(self, length: usize) -> usize {
        self.0 % length
    }

    pub(super) fn get(self, calls: &[CallId]) -> &CallId {
        &calls[self.index(calls.len())]
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) enum MoveKind {
    /// The input that the run's action requires.
    Proceed,
    Cancel,
    Fail,
    /// The host stops, and another host restores the state.
    Crash,
    /// An input that may be invalid: a duplicate, a late input or a wrong input.
    Stray(Stray),
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Stray {
    Start,
    Context,
    Reply,
    Dispatched,
    Outcome,
    Verdict,
    Summarised,
    Resolve,
    ModelFailed,
    Undo,
    QueuePrompt,
    Pending,
    Respond,
    Expire,
    Approval,
    RequestReapproval,
    Forbidden,
    PluginUsedModel,
    ModelSpent,
}

pub(super) fn dispositions() -> impl Strategy<Value = Disposition> {
    prop_oneof![
        8 => (-1..=1_i32, prop::bool::weighted(0.2), any::<bool>())
            .prop_map(|(priority, sequential, repeatable)| Disposition::Ready { priority, sequential, repeatable }),
        8 => (any::<bool>(), any::<bool>())
            .prop_map(|(sequential, repeatable)| Disposition::Ready { priority: 0, sequential, repeatable }),
        2 => prop::sample::select(vec![LoopBreak::Complete, LoopBreak::Ask, LoopBreak::Converse])
            .prop_map(Disposition::Breaks),
        1 => Just(Disposition::NotFound { message: "there is no such tool".into() }),
        1 => Just(Disposition::Refused(ToolError::Denied { message: "not granted".into() })),
        1 => Just(Disposition::Withheld {
            message: "not granted".into(),
            denial: Denial { plugin: "host".into(), thing: "`tool`".into(), grant: "grant it".into() },
        }),
    ]
}

pub(super) fn configs() -> impl Strategy<Value = LoopConfig> {
    let eviction = (any::<bool>(), 0..=100_u32, 0..=100_u32);
    (0..8_u32, any::<bool>(), 0..3_u32, 0..5_u32, any::<bool>(), any::<bool>(), eviction).prop_map(
        |(
            max_interactions,
            error,
            max_corrections,
            parallel_calls,
            by_tool,
            persistence,
            (tight, evict_at, evict_to),
        )| {
            let at_limit = if error { AtLimit::Error } else { AtLimit::Finish };
            LoopConfig {
                max_interactions,
                finish: if by_tool { Finish::Tool } else { Finish::Text },
                persistence,
                at_limit,
                max_corrections,
                parallel_calls,
                result_characters: 3,
                minimum_remaining: if tight { 1_500 } else { 0 },
                evict_at,
                evict_to,
                execution_units: weights(max_interactions),
                fallback: (max_interactions % 2 == 0).then(|| OutputData::Text("later".into())),
                ..Default::default()
            }
        },
    )
}

/// Returns the weights of tokens and model calls: the default weights, or weights with fractions (L5).
fn weights(number: u32) -> UnitWeights {
    let weight = |units| Weight::of(units).expect("in range");
    match number % 3 {
        0 => UnitWeights::default(),
        1 => UnitWeights { completion_token: weight(2.5), ..UnitWeights::default() },
        _ => UnitWeights { prompt_token: weight(0.001), completion_token: weight(0.0), model_call: weight(0.7) },
    }
}

pub(super) fn kinds() -> impl Strategy<Value = MoveKind> {
    let strays = [
        Stray::Start,
        Stray::Context,
        Stray::Reply,
        Stray::Dispatched,
        Stray::Outcome,
        Stray::Verdict,
        Stray::Summarised,
        Stray::Resolve,
        Stray::ModelFailed,
        Stray::Undo,
        Stray::QueuePrompt,
        Stray::Pending,
        Stray::Respond,
        Stray::Expire,
        Stray::Approval,
        Stray::RequestReapproval,
        Stray::Forbidden,
        Stray::PluginUsedModel,
        Stray::ModelSpent,
    ];
    prop_oneof![
        24 => Just(MoveKind::Proceed),
        1 => Just(MoveKind::Cancel),
        1 => Just(MoveKind::Fail),
        4 => Just(MoveKind::Crash),
        8 => prop::sample::select(strays.to_vec()).prop_map(MoveKind::Stray),
    ]
}

pub(super) fn moves() -> impl Strategy<Value = Vec<Move>> {
    let texts = prop::sample::select(vec!["", " \n", "answer", "äöü", "I can't do that.", "4 remaining"]);
    let calls = prop::collection::vec(dispositions(), 0..=6);
    let pick = any::<u16>().prop_map(|number| Pick(number as usize));
    // In half of the cases, no call needs approval. In half of the cases, no call is sent to a service.
    let bits = || prop_oneof![Just(0_u8), any::<u8>()];
    let choices = (kinds(), configs(), calls, texts, pick, any::<bool>(), bits(), bits());
    let single_move = choices.prop_map(|(kind, config, calls, text, pick, coin, approval_bits, service_bits)| Move {
        kind,
        config,
        calls,
        text,
        pick,
        coin,
        approval_bits,
        service_bits,
    });
    prop::collection::vec(single_move, 1..80)
}
