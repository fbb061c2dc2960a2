//! Step records: the data that a session stores about each model call and each plugin call, for audit and replay
//! (D1, S6).
//!
//! [`StepRecordBody`] is the only type that defines the stored JSON. The kinds of records and the names of
//! their fields never change, and a record has no version number. Records from older hosts may lack
//! fields. If readers must know whether a field was absent, the type of the field has a value for its absence,
//! for example [`Question::NotRecorded`].

mod bodies;
mod notes;
mod positions;

pub(crate) use bodies::{
    BuilderCallRecord, BuilderQuestion, BuilderSurroundings, ContextRecord, EmbeddingRecord, FORK_KIND, ForkOrigin,
    ForkRecord, HostAnswersRecord, MediaPolicyRecord, ModelQuestionRecord, PlanPromptRecord, PluginModelRecord,
    PluginModelReply, PolicyQuestion, PromptRecord, Question, ReplyRecord, ServiceAnswerRecord, ServiceRequestRecord,
    StepQuestion, StepRecordBody, SummaryRecord, TraceRecord, UnreadableRecord, UnscaledPicture, ValidatorQuestion,
    VerdictRecord,
};
pub(crate) use notes::CommitNotes;
pub(crate) use positions::MessagePositions;
