//! Every word that a stored state can hold stands in one of `tests/states/v2`: a new one does not compile here until it is
//! named, and the test fails until a state with it is stored (L1, D3).

use super::batch::{Batch, BatchCall, Progress};
use super::config::AtLimit;
use super::eviction::AfterEviction;
use super::input::Prospect;
use super::planning::Asked;
use super::repetition::CallEnd;
use super::state::Run;
use super::turn::{Phase, Turn};
use super::{TurnEnd, TurnError};
use crate::approval::Leave;
use crate::event::{EndReason, WaitCause};
use crate::loop_break::{Finish, LoopBreak};
use crate::message::{Role, TurnInput};
use crate::plugin::{History, Lifecycle, OutputData, Stability};
use std::collections::BTreeSet;
use std::path::PathBuf;

type Words = BTreeSet<&'static str>;

/// For each type a function from its values to words, and all of them together.
macro_rules! words {
    ($($name:ident: $type:ty { $($pattern:pat => $word:literal,)* })*) => {
        $(fn $name(value: &$type) -> &'static str {
            match value { $($pattern => $word,)* }
        })*

        fn all() -> Words {
            BTreeSet::from([$($($word,)*)*])
        }
    };
}

words! {
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
    progress: Progress {
        Progress::Waiting => "call: waiting",
        Progress::Asking => "call: asking",
        Progress::Running => "call: running",
        Progress::Outstanding => "call: outstanding",
        Progress::Unknown => "call: outcome unknown",
        Progress::Checking => "call: its result is checked",
        Progress::Done { .. } => "call: done",
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
    leave: Leave {
        Leave::Remembered(_) => "call: leave remembered",
        Leave::Answered(_) => "call: leave answered",
    }
    cause: WaitCause {
        WaitCause::OutcomeUnknown => "waits: outcome unknown",
        WaitCause::Approval => "waits: approval",
        WaitCause::Service { expires_at: None, .. } => "waits: service",
        WaitCause::Service { expires_at: Some(_), .. } => "waits: service until",
        WaitCause::Agent { .. } => "waits: agent",
        WaitCause::Answer { .. } => "waits: answer",
    }
    asked: Asked {
        Asked::Model => "asked: model",
        Asked::Planner => "asked: planner",
        Asked::Executor { .. } => "asked: executor",
        Asked::Synthesis => "asked: synthesis",
    }
    reason: EndReason {
        EndReason::Answered => "end: answered",
        EndReason::Completed => "end: completed",
        EndReason::Converse => "end: converse",
        EndReason::Asked => "end: asked",
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
        TurnError::ModelFailed { prospect: Prospect::Later, .. } => "error: model failed",
        TurnError::ModelFailed { prospect: Prospect::Never, .. } => "error: model failed for good",
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

fn of_run(run: &Run, words: &mut Words) {
    words.extend(run.view.iter().filter_map(|entry| entry.role.as_ref()).map(role));
    if let Some(turn) = &run.turn {
        of_turn(turn, words);
    }
}

fn of_turn(turn: &Turn, words: &mut Words) {
    words.extend([phase(&turn.phase), lifecycle(&turn.lifecycle), input(&turn.input), history(&turn.history)]);
    words.extend([at_limit(&turn.config.at_limit), finish(&turn.config.finish), asked(&turn.asked())]);
    words.extend(turn.config.fallback.as_ref().map(fallback));
    words.extend(turn.sections.iter().map(|section| stability(&section.stability)));
    match &turn.phase {
        Phase::Working(batch) => of_batch(batch, words),
        Phase::Ended(TurnEnd::Finished(output)) => drop(words.insert(reason(&output.finish))),
        Phase::Ended(TurnEnd::Failed(failure)) => words.extend([reason(&EndReason::Error), error(failure)]),
        Phase::Ended(TurnEnd::Cancelled) => drop(words.insert(reason(&EndReason::Cancelled))),
        Phase::Building | Phase::Summarising { .. } | Phase::Calling { .. } | Phase::Validating { .. } => {}
    }
}

fn of_batch(batch: &Batch, words: &mut Words) {
    words.extend(batch.suspension().waits.iter().map(|wait| cause(&wait.cause)));
    for BatchCall { state, end, breaks: its, granted, .. } in &batch.calls {
        words.insert(progress(state));
        words.extend(end.as_ref().map(call_end));
        words.extend(its.as_ref().map(breaks));
        words.extend(granted.as_ref().map(leave));
    }
}

#[test]
fn l1_every_word_of_a_state_is_stored() {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/states/v2/snapshots"));
    let mut stored = Words::new();
    let (mut summaries, mut grants, mut masks, mut above) = (0, 0, 0, 0);
    for file in std::fs::read_dir(folder).expect("the folder is there") {
        let path = file.expect("a file").path();
        let run = Run::restore(Some(&std::fs::read(&path).expect("readable"))).expect("a state");
        summaries += usize::from(run.summary.is_some());
        above += run.delegation.len();
        (grants, masks) = (grants + run.grants.len(), masks + run.masks.len());
        of_run(&run, &mut stored);
    }
    let missing: Vec<_> = all().difference(&stored).copied().collect();
    assert_eq!(missing, Vec::<&str>::new(), "no state of tests/states/v2 has it");
    assert!([summaries, grants, masks, above].iter().all(|count| *count > 0), "{summaries} {grants} {masks} {above}");
}
