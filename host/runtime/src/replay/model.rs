//! What the agent's model once answered plugins, answered again.

use crate::host_model::record_of;
use agent_core::model::{StopReason, Usage};
use agent_plugins::{ModelAnswer, ModelAsker, ModelPort, ModelQuestion, ModelRefusal};
use async_trait::async_trait;
use serde::Deserialize;
use serde_json::Value;
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// What the agent's model once answered a plugin.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct RecordedAnswer {
    pub(super) call: String,
    question: Value,
    reply: RecordedReply,
}

#[derive(Clone, Debug, Deserialize)]
struct RecordedReply {
    text: String,
    stop: StopReason,
    usage: Usage,
    model: String,
}

impl RecordedAnswer {
    pub(super) fn of(body: &Value) -> Option<Self> {
        Self::deserialize(body).ok()
    }
}

/// Answers plugins with what they were answered then, by call and in order.
pub(super) struct RecordedModel {
    answers: Mutex<BTreeMap<String, VecDeque<RecordedAnswer>>>,
    /// Questions that nobody asked then.
    missed: AtomicUsize,
}

impl RecordedModel {
    pub(super) fn new(answers: BTreeMap<String, VecDeque<RecordedAnswer>>) -> Self {
        Self { answers: Mutex::new(answers), missed: AtomicUsize::new(0) }
    }

    pub(super) fn has(&self, call: &str) -> bool {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner).contains_key(call)
    }

    /// Questions that nobody asked then, since the last look.
    pub(super) fn missed(&self) -> usize {
        self.missed.swap(0, Ordering::Relaxed)
    }
}

#[async_trait]
impl ModelPort for RecordedModel {
    async fn ask(&self, asker: &ModelAsker, question: ModelQuestion) -> Result<ModelAnswer, ModelRefusal> {
        let mut recorded = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
        let answers = recorded.get_mut(&asker.call);
        let asked = record_of(&question);
        let first =
            answers.and_then(|answers| (answers.front()?.question == asked).then(|| answers.pop_front()).flatten());
        let Some(RecordedAnswer { reply, .. }) = first else {
            self.missed.fetch_add(1, Ordering::Relaxed);
            let text = "this question was not asked when the session was recorded, so no answer to it is recorded";
            return Err(ModelRefusal::Failed(text.to_owned()));
        };
        let RecordedReply { text, stop, usage, model } = reply;
        Ok(ModelAnswer { text, stop, usage, left: asker.budget, model })
    }
}
