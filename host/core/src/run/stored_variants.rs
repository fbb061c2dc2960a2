//! Checks that the states in `tests/states/v2` cover every variant that a stored state can contain (L1, D3). A new
//! variant must be listed here, because otherwise the `match` expressions below do not compile. The test fails until a
//! stored state contains the new variant.

use super::batch::{Batch, BatchCall, CallProgress};
use super::config::AtLimit;
use super::eviction::AfterEviction;
use super::input::Retryability;
use super::planning::ModelRole;
use super::repetition::CallEnd;
use super::state::Run;
use super::turn::{Phase, Turn};
use super::{TurnEnd, TurnError};
use crate::approval::Authorization;
use crate::event::{EndReason, WaitCause};
use crate::loop_break::{Finish, LoopBreak};
use crate::message::{Role, TurnInput};
use crate::plugin::{History, Lifecycle, OutputData, Stability};
use std::collections::BTreeSet;
use std::path::PathBuf;

type Labels = BTreeSet<&'static str>;

/// For each listed type, defines a function that returns the label of a value of the type. Also defines a function that
/// returns the labels of all types.
macro_rules! variants {
    ($($name:ident: $type:ty { $($pattern:pat => $label:literal,)* })*) => {
        $(fn $name(value: &$type) -> &'static str {
            match value { $($pattern => $label,)* }
        })*

        fn all_labels() -> Labels {
            BTreeSet::from([$($($label,)*)*])
        }
    };
}

variants! {
    phase: Phase {
        Phase::Building => "phase: building",
        Phase::Summarising { then: AfterEviction::NextStep, .. } => "phase: summarising before a step",
        Phase::Summarising { then: AfterEviction::SameStep { .. }, .. } => "phase: summarising in a step",
        Phase::Calling { last: false } => "phase: calling",
        Phase::Calling { last: true } => "phase: calling for the last time",
        Phase::Working(_) => "phase: working",
        Phase::Validating { last: false, .. } => "phase: validating",
        Phase::Validating { last: true, .. } => "phase: validating the last answer",
        Phase::Ended(_) => "phase: ended",
    }
    progress: CallProgress {
        CallProgress::Waiting => "call: waiting",
        CallProgress::AwaitingApproval { .. } => "call: asking",
        CallProgress::Running => "call: running",
        CallProgress::Outstanding { .. } => "call: outstanding",
        CallProgress::OutcomeUnknown => "call: outcome unknown",
        CallProgress::Checking => "call: its result is checked",
        CallProgress::Finished { .. } => "call: done",
    }
    call_end: CallEnd {
        CallEnd::Succeeded => "call: succeeded",
        CallEnd::Failed(_) => "call: failed",
    }
    breaks: LoopBreak {
        LoopBreak::Complete => "call: completes",
        LoopBreak::Ask => "call: asks a question",
        LoopBreak::Converse => "call: converses",
    }
    authorization: Authorization {
        Authorization::Remembered(_) => "call: authorization remembered",
        Authorization::Answered(_) => "call: authorization answered",
    }
    cause: WaitCause {
        WaitCause::OutcomeUnknown => "waits: outcome unknown",
        WaitCause::Approval { .. } => "waits: approval",
        WaitCause::Service { expires_at: None, .. } => "waits: service",
        WaitCause::Service { expires_at: Some(_), .. } => "waits: service until",
        WaitCause::Agent { .. } => "waits: agent",
        WaitCause::Answer { .. } => "waits: answer",
        WaitCause::Client => "waits: client",
    }
    model_role: ModelRole {
        ModelRole::Agent => "asked: model",
        ModelRole::Planner => "asked: planner",
        ModelRole::Executor { .. } => "asked: executor",
        ModelRole::Synthesizer => "asked: synthesis",
    }
    reason: EndReason {
        EndReason::Answered => "end: answered",
        EndReason::Completed => "end: completed",
        EndReason::Converse => "end: converse",
        EndReason::QuestionExpired => "end: asked",
        EndReason::Limit => "end: limit",
        EndReason::Cancelled => "end: cancelled",
        EndReason::Error => "end: error",
    }
    error: TurnError {
        TurnError::InteractionsExhausted { .. } => "error: interactions exhausted",
        TurnError::OutputRejected { .. } => "error: output rejected",
        TurnError::NoToolCall { .. } => "error: no tool call",
        TurnError::SameError { .. } => "error: same error",
        TurnError::EmptyReplies { .. } => "error: empty replies",
        TurnError::PromptTooLarge { .. } => "error: prompt too large",
        TurnError::OutstandingMismatch { .. } => "error: outstanding mismatch",
        TurnError::BudgetExceeded(_) => "error: budget exceeded",
        TurnError::ModelFailed { retryability: Retryability::Retryable, .. } => "error: model failed",
        TurnError::ModelFailed { retryability: Retryability::Permanent, .. } => "error: model failed for good",
        TurnError::PluginFailed { .. } => "error: plugin failed",
        TurnError::PluginChanged { .. } => "error: plugin changed",
        TurnError::HostFailed { .. } => "error: host failed",
    }
    lifecycle: Lifecycle {
        Lifecycle::Init => "lifecycle: init",
        Lifecycle::ToolResult => "lifecycle: tool result",
        Lifecycle::OutputErrorFeedback => "lifecycle: output error feedback",
    }
    input: TurnInput {
        TurnInput::Text(_) => "input: text",
        TurnInput::Json(_) => "input: json",
        TurnInput::Message(_) => "input: message",
        TurnInput::Call { .. } => "input: call",
    }
    history: History {
        History::Keep => "history: keep",
        History::LeaveOut => "history: leave out",
    }
    at_limit: AtLimit {
        AtLimit::Finish => "at_limit: finish",
        AtLimit::Error => "at_limit: error",
    }
    finish: Finish {
        Finish::Text => "finish: text",
        Finish::Tool => "finish: tool",
    }
    fallback: OutputData {
        OutputData::Text(_) => "fallback: text",
        OutputData::Json(_) => "fallback: json",
    }
    stability: Stability {
        Stability::Fixed => "section: fixed",
        Stability::Dynamic => "section: dynamic",
    }
    role: Role {
        Role::System => "view: system",
        Role::User => "view: user",
        Role::Assistant => "view: assistant",
        Role::Tool => "view: tool",
    }
}

fn of_run(run: &Run, labels: &mut Labels) {
    labels.extend(run.view.iter().filter_map(|entry| entry.role.as_ref()).map(role));
    if let Some(turn) = &run.turn {
        of_turn(turn, labels);
    }
}

fn of_turn(turn: &Turn, labels: &mut Labels) {
    labels.extend([phase(&turn.phase), lifecycle(&turn.lifecycle), input(&turn.input), history(&turn.history)]);
    labels.extend([at_limit(&turn.config.at_limit), finish(&turn.config.finish), model_role(&turn.model_role())]);
    labels.extend(turn.config.fallback.as_ref().map(fallback));
    labels.extend(turn.sections.iter().map(|section| stability(&section.stability)));
    match &turn.phase {
        Phase::Working(batch) => of_batch(batch, labels),
        Phase::Ended(TurnEnd::Finished(output)) => drop(labels.insert(reason(&output.finish))),
        Phase::Ended(TurnEnd::Failed(failure)) => labels.extend([reason(&EndReason::Error), error(failure)]),
        Phase::Ended(TurnEnd::Cancelled) => drop(labels.insert(reason(&EndReason::Cancelled))),
        Phase::Building | Phase::Summarising { .. } | Phase::Calling { .. } | Phase::Validating { .. } => {}
    }
}

fn of_batch(batch: &Batch, labels: &mut Labels) {
    labels.extend(batch.suspension().waits.iter().map(|wait| cause(&wait.cause)));
    for BatchCall { state, loop_break, authorization: allowed, .. } in &batch.calls {
        labels.insert(progress(state));
        labels.extend(state.end().as_ref().map(call_end));
        labels.extend(loop_break.as_ref().map(breaks));
        labels.extend(allowed.as_ref().map(authorization));
    }
}

#[test]
fn l1_stored_states_cover_every_variant() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/states/v2/snapshots"));
    let mut stored = Labels::new();
    let (mut summaries, mut grants, mut masks, mut delegators) = (0, 0, 0, 0);
    for file in std::fs::read_dir(folder).expect("the folder exists") {
        let path = file.expect("the entry is readable").path();
        let run = Run::restore(Some(&std::fs::read(&path).expect("the file is readable"))).expect("the state is valid");
        summaries += usize::from(run.summary.is_some());
        delegators += run.delegation.len();
        (grants, masks) = (grants + run.grants.len(), masks + run.masks.len());
        of_run(&run, &mut stored);
    }
    let missing: Vec<_> = all_labels().difference(&stored).copied().collect();
    assert_eq!(missing, Vec::<&str>::new(), "no state in tests/states/v2 contains these variants");
    let counts = [summaries, grants, masks, delegators];
    assert!(counts.iter().all(|count| *count > 0), "no summary, grant, mask or delegator: {counts:?}");
}
