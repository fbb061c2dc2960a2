//! Answers the questions that a plugin asks the agent's model during a replay, with the recorded answers.

use crate::host::question_record;
use crate::records::{ModelQuestionRecord, PluginModelRecord, PluginModelReply};
use agent_plugins::{ModelCaller, ModelPort, ModelPortRequest, ModelPortResponse, ModelRefusal};
use async_trait::async_trait;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// A recorded answer of the agent's model to a plugin.
#[derive(Clone, Debug)]
pub(super) struct RecordedAnswer {
    question: ModelQuestionRecord,
    reply: PluginModelReply,
}

impl RecordedAnswer {
    /// Returns the recorded answer, with the id of the call in which the plugin asked. Returns `None` if the record
    /// contains no reply.
    pub(super) fn of(record: PluginModelRecord) -> Option<(String, Self)> {
        let PluginModelRecord { call, question, reply, .. } = record;
        Some((call, Self { question, reply: reply? }))
    }
}

/// A model port that returns the recorded answers of each call in the order in which they were recorded.
pub(super) struct RecordedModel {
    answers: Mutex<BTreeMap<String, VecDeque<RecordedAnswer>>>,
    /// Number of questions for which no answer is recorded.
    missed: AtomicUsize,
}

impl RecordedModel {
    pub(super) fn new(answers: BTreeMap<String, VecDeque<RecordedAnswer>>) -> Self {
        Self { answers: Mutex::new(answers), missed: AtomicUsize::new(0) }
    }

    /// Returns whether the plugin asked the model during this call in the recorded session.
    pub(super) fn has(&self, call: &str) -> bool {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).contains_key(call)
    }

    /// Returns how many questions without a recorded answer were asked since this method was called last.
    pub(super) fn missed(&self) -> usize {
        self.missed.swap(0, Ordering::Relaxed)
    }
}

#[async_trait]
impl ModelPort for RecordedModel {
    async fn ask(&self, asker: &ModelCaller, question: ModelPortRequest) -> Result<ModelPortResponse, ModelRefusal> {
        let mut recorded = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = recorded.get_mut(&asker.call);
        let record = question_record(&question);
        let first =
            answers.and_then(|answers| (answers.front()?.question == record).then(|| answers.pop_front()).flatten());
        let Some(RecordedAnswer { reply, .. }) = first else {
            self.missed.fetch_add(1, Ordering::Relaxed);
            let text = "this question was not asked when the session was recorded, so there is no recorded answer";
            return Err(ModelRefusal::Failed(text.to_owned()));
        };
        let PluginModelReply { text, stop, usage, model } = reply;
        Ok(ModelPortResponse { text, stop, usage, left: asker.budget, model })
    }
}
