//! Step records: the data that a session stores about each model call and each plugin call, for audit and replay (D1,
//! S6).
//!
//! [`StepRecordBody`] is the only place that knows the stored JSON. Kinds and field names never change. A record has no
//! version number. A field that an older host did not write is missing, and the types show this where it matters
//! ([`Question::NotRecorded`]).

mod bodies;
mod notes;
mod positions;

pub(crate) use bodies::{
    BuilderCallRecord, BuilderQuestion, BuilderSurroundings, ContextRecord, FORK_KIND, ForkOrigin, ForkRecord,
    HostAnswersRecord, MediaPolicyRecord, ModelQuestionRecord, PlanPromptRecord, PluginModelRecord, PluginModelReply,
    PolicyQuestion, PromptRecord, Question, ReplyRecord, ServiceAnswerRecord, ServiceRequestRecord, StepQuestion,
    StepRecordBody, SummaryRecord, UnreadableRecord, UnscaledMedium, ValidatorQuestion, VerdictRecord,
};
pub(crate) use notes::CommitNotes;
pub(crate) use positions::MessagePositions;
