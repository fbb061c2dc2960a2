//! The usage of model calls that end without a reply: the user cancels the turn, the stream breaks, or the reply cannot be
//! used. Providers charge for such calls, so budgets must count them (O4).

use agent_core::model::{ModelRequest, Usage};
use agent_models::{CallProgress, Price, Provider};
use std::sync::{Arc, Mutex, PoisonError};

/// The usage of calls that ended without a reply and that is not committed yet. All clones share the same usage.
#[derive(Clone, Default)]
pub(crate) struct AbandonedCalls(Arc<Mutex<Usage>>);

impl AbandonedCalls {
    /// Returns the usage since the last time, or `None` if there is none.
    pub(crate) fn take(&self) -> Option<Usage> {
        let usage = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        (usage.total() > 0).then_some(usage)
    }

    fn add(&self, usage: Usage) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += usage;
    }
}

/// A model call whose usage counts even if the call is dropped. [`MeteredCall::committed`] ends the metering when the usage of the
/// reply is passed on.
pub(crate) struct MeteredCall<'a> {
    request: &'a ModelRequest,
    price: Option<Price>,
    progress: CallProgress,
    /// The usage of a reply that has arrived.
    replied: Option<Usage>,
    abandoned: Option<&'a AbandonedCalls>,
}

impl<'a> MeteredCall<'a> {
    /// Begins a call to a model.
    pub(crate) fn begin(model: &Arc<dyn Provider>, request: &'a ModelRequest, abandoned: &'a AbandonedCalls) -> Self {
        let (price, progress) = (model.info().price, CallProgress::default());
        Self { request, price, progress, replied: None, abandoned: Some(abandoned) }
    }

    /// The progress that the provider updates.
    pub(crate) fn progress(&self) -> &CallProgress {
        &self.progress
    }

    /// Notes that the reply has arrived.
    pub(crate) fn replied(&mut self, usage: Usage) {
        self.replied = Some(usage);
    }

    /// Ends the metering, because the caller commits the usage of the reply.
    pub(crate) fn committed(mut self) {
        self.abandoned = None;
    }
}

impl Drop for MeteredCall<'_> {
    fn drop(&mut self) {
        if let Some(abandoned) = self.abandoned {
            abandoned.add(self.replied.unwrap_or_else(|| self.progress.usage(self.request, self.price)));
        }
    }
}
