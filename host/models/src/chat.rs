//! Models that speak OpenAI Chat Completions over HTTP, hosted or on this machine (M1).

mod body;
mod connection;
mod dialect;
mod embeddings;
mod exchange;
mod failure;
mod media;
mod messages;
mod model_list;
mod redaction;
mod refused;
mod replay;
mod request;

use crate::configuration::ModelConfig;
use crate::conversation;
use crate::error::ModelError;
use crate::estimate;
use crate::known_models;
use crate::provider::{Facts, Provider, RawReply, ReplyContext, ToolNames};
use agent_core::model::{Delta, Model, ModelRequest, Usage};
use agent_core::redaction::Redaction;
use async_trait::async_trait;
use exchange::Exchange;
use std::fmt;
use std::sync::Arc;
use tokio::sync::mpsc::Sender;

pub use embeddings::Embedder;

pub(crate) use connection::{Connection, below, client};
pub(crate) use model_list::ask as ask_for_models;

/// One model of one provider. Where the provider counts no tokens, usage is the host's own estimate, and the raw reply has
/// none.
pub struct Chat {
    facts: Facts,
    connection: Arc<Connection>,
}

impl Chat {
    /// The model of that name; nobody is asked whether it is there.
    pub(crate) fn new(connection: Arc<Connection>, name: &str) -> Self {
        let provider = connection.provider();
        let known = known_models::find(provider, name).unwrap_or_default();
        let ModelConfig { window, price } = connection.model(name);
        let window = window.or(known.window).unwrap_or(known_models::WINDOW);
        let model = Model { provider: provider.to_owned(), name: name.to_owned(), window };
        let known_price = known.price.filter(|_| connection.is_at_home());
        let facts = Facts { model, tool_names: ToolNames::COMMON, price: price.or(known_price) };
        Self { facts, connection }
    }
}

impl fmt::Debug for Chat {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Chat").field("facts", &self.facts).finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for Chat {
    fn facts(&self) -> &Facts {
        &self.facts
    }

    fn secrets(&self) -> Redaction {
        self.connection.redaction.clone()
    }

    fn host(&self) -> Option<String> {
        self.connection.base_url.host_str().map(str::to_owned)
    }

    async fn reply(
        &self,
        request: &ModelRequest,
        context: ReplyContext<'_>,
        deltas: &Sender<Delta>,
    ) -> Result<RawReply, ModelError> {
        let problems = conversation::problems(request, self.facts.tool_names);
        if !problems.is_empty() {
            return Err(ModelError::BrokenRequest { model: self.facts.model.to_string(), problems });
        }
        let (connection, model) = (&*self.connection, self.facts.model.name.as_str());
        let body = request::bytes(request, connection.dialect, context.media).await?;
        let endpoint = connection.endpoint(model);
        tracing::debug!(%endpoint, bytes = body.len(), attempt = context.attempt, "asking a model");
        let decoded = Exchange { connection, model, endpoint }.reply(body, deltas).await?;
        let RawReply { mut reply, raw } = decoded.into();
        if reply.usage == Usage::default() {
            // Some servers count nothing; budgets need a number.
            reply.usage = estimate::usage(request, &reply.text, &reply.calls);
        }
        let redaction = &connection.redaction;
        Ok(RawReply { reply: redaction::reply(redaction, reply), raw: redaction.value(raw) })
    }
}

#[cfg(test)]
mod tests;
