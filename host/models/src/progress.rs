//! How far a model call has come. Providers charge for what a model has written, even if the reply never becomes complete, for
//! example because the user cancels the turn. Budgets count such calls with an estimate (O4).

use crate::configuration::Price;
use crate::estimate;
use agent_core::model::{Delta, ModelRequest, Usage};
use agent_core::tokens;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// How far a model call has come. The provider updates the progress, and the caller can read it at any time.
#[derive(Debug, Default)]
pub struct CallProgress {
    has_begun: AtomicBool,
    /// Estimated tokens of the reply so far.
    tokens: AtomicU64,
}

impl CallProgress {
    /// Notes that the provider has accepted the request, so that it charges for the prompt.
    pub fn begin(&self) {
        self.has_begun.store(true, Ordering::Relaxed);
    }

    /// Notes how many tokens the reply has at least. A smaller number than before changes nothing.
    pub fn received(&self, tokens: u64) {
        self.begin();
        self.tokens.fetch_max(tokens, Ordering::Relaxed);
    }

    /// Adds the tokens of pieces of a reply.
    pub(crate) fn received_delta(&self, delta: &Delta) {
        if let Delta::Text(text) | Delta::Thinking(text) = delta {
            self.begin();
            self.tokens.fetch_add(tokens::of_text(text).into(), Ordering::Relaxed);
        }
    }

    /// Estimates what the call has used if it ends now without a reply. The usage is zero if the provider has not accepted the
    /// request. A cost is marked as incomplete, because it is not exact.
    pub fn usage(&self, request: &ModelRequest, price: Option<Price>) -> Usage {
        if !self.has_begun.load(Ordering::Relaxed) {
            return Usage::default();
        }
        let mut usage = estimate::usage(request, "", &[]);
        usage.completion_tokens = self.tokens.load(Ordering::Relaxed).min(request.max_tokens.into());
        usage.cost = price.map(|price| price.cost(usage)).map(|cost| agent_core::cost::Cost { partial: true, ..cost });
        usage
    }
}
