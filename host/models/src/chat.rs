//! Models on servers that implement the OpenAI Chat Completions API over HTTP (M1). The servers can be remote or on
//! this machine.

mod connection;
mod dialect;
mod embeddings;
mod error_response;
mod exchange;
mod media;
mod messages;
mod model_list;
mod redaction;
mod replay;
mod request;
mod request_body;
mod round_trip;
mod transport_error;

use crate::configuration::ModelConfig;
use crate::error::ModelError;
use crate::estimate;
use crate::known_models;
use crate::provider::{ModelInfo, Provider, RawReply, ReplyContext, ToolNameRules};
use crate::request_check;
use agent_core::model::{Delta, Model, ModelRequest, Usage};
use agent_core::redaction::Redaction;
use async_trait::async_trait;
use exchange::Exchange;
use std::fmt;
use std::sync::Arc;
use tokio::sync::mpsc::Sender;

pub use embeddings::Embedder;

pub(crate) use connection::{Connection, build_client, join_path};
pub(crate) use model_list::fetch as fetch_model_list;

/// A model of one provider, to which requests are sent over the Chat Completions API. If the provider does not report
/// the token usage, the decoded reply contains the host's estimate of it, and the raw data contains no usage.
pub struct ChatModel {
    info: ModelInfo,
    connection: Arc<Connection>,
}

impl ChatModel {
    /// Creates the model without contacting the provider.
    pub(crate) fn new(connection: Arc<Connection>, name: &str) -> Self {
        let provider = connection.provider();
        let known = known_models::find(provider, name).unwrap_or_default();
        let ModelConfig { window, price } = connection.model(name);
        let window = window.or(known.window).unwrap_or(known_models::DEFAULT_WINDOW);
        let model = Model { provider: provider.to_owned(), name: name.to_owned(), window };
        let known_price = known.price.filter(|_| connection.is_official_address());
        let info = ModelInfo { model, tool_names: ToolNameRules::COMMON, price: price.or(known_price) };
        Self { info, connection }
    }
}

impl fmt::Debug for ChatModel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("ChatModel").field("info", &self.info).finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for ChatModel {
    fn info(&self) -> &ModelInfo {
        &self.info
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
        let problems = request_check::find_problems(request, self.info.tool_names);
        if !problems.is_empty() {
            return Err(ModelError::InvalidRequest { model: self.info.model.to_string(), problems });
        }
        let (connection, model) = (&*self.connection, self.info.model.name.as_str());
        let body = request::encode(request, connection.dialect, context.media).await?;
        let endpoint = connection.endpoint(model);
        tracing::debug!(%endpoint, bytes = body.len(), attempt = context.attempt, "sending a request to a model");
        let decoded = Exchange { connection, model, endpoint }.reply(body, deltas).await?;
        let RawReply { mut reply, raw } = decoded.into();
        if reply.usage == Usage::default() {
            // Estimate the token usage that some servers do not report, because the host needs the usage to
            // enforce budgets.
            reply.usage = estimate::usage(request, &reply.text, &reply.calls);
        }
        let redaction = &connection.redaction;
        Ok(RawReply { reply: redaction::redact_reply(redaction, reply), raw: redaction.value(raw) })
    }
}

#[cfg(test)]
mod tests;
