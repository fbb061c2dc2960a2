//! Models on servers that implement one of the wire formats over HTTP (M1). The servers can be remote or on this machine.

mod connection;
mod embeddings;
mod error_response;
mod exchange;
mod model_list;
mod redaction;
mod round_trip;
mod transport_error;

use crate::cassette::{self, Header, Recorder};
use crate::configuration::ModelConfig;
use crate::decode::DecodedReply;
use crate::encode::{self, Encoded, Format};
use crate::error::{Cause, ErrorOrigin, ModelError};
use crate::estimate;
use crate::known_models;
use crate::provider::{ModelInfo, Provider, RawReply, ReplyContext, ToolNameRules};
use crate::request_check;
use crate::sent_body::SentBody;
use agent_core::model::{Delta, Model, ModelRequest, Usage};
use agent_core::redaction::Redaction;
use async_trait::async_trait;
use exchange::Exchange;
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::mpsc::Sender;

pub use embeddings::Embedder;

pub(crate) use connection::{Connection, build_client, join_path};
pub(crate) use model_list::fetch as fetch_model_list;

/// A model of one provider, to which requests are sent over HTTP. If the provider reports no token usage, the decoded
/// reply contains the host's estimate of the usage, and the raw data of the reply contains no usage.
pub(crate) struct HttpModel {
    info: ModelInfo,
    format: Format,
    connection: Arc<Connection>,
    /// The cassette to which each exchange is appended.
    recorder: Option<Recorder>,
}

impl HttpModel {
    /// Creates the model without contacting the provider.
    pub(crate) fn new(connection: Arc<Connection>, name: &str) -> Self {
        let provider = connection.provider();
        let known = known_models::find(provider, name).unwrap_or_default();
        let ModelConfig { window, price, effort } = connection.model(name);
        let window = window.or(known.window).unwrap_or(known_models::DEFAULT_WINDOW);
        let model = Model { provider: provider.to_owned(), name: name.to_owned(), window };
        let known_price = known.price.filter(|_| connection.is_official_address());
        let info = ModelInfo { model, tool_names: ToolNameRules::COMMON, price: price.or(known_price) };
        let format = Format {
            protocol: connection.config.protocol,
            dialect: connection.dialect,
            effort,
            thinking: known.thinking,
            images: known.images.unwrap_or(true),
            without_replay: false,
        };
        Self { info, format, connection, recorder: None }
    }

    /// Appends each request and its response to the cassette at `path`.
    pub(crate) fn recording_to(self, path: PathBuf) -> Result<Self, ModelError> {
        let Model { provider, name, window } = self.info.model.clone();
        let header = Header {
            cassette: cassette::FORMAT,
            provider,
            base_url: connection::display_url(&self.connection.base_url),
            protocol: self.format.protocol.to_string(),
            model: name,
            window,
            price: self.info.price,
            effort: self.format.effort.map(|effort| effort.to_string()),
        };
        Ok(Self { recorder: Some(Recorder::open(path, &header)?), ..self })
    }
}

impl fmt::Debug for HttpModel {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("HttpModel").field("info", &self.info).finish_non_exhaustive()
    }
}

#[async_trait]
impl Provider for HttpModel {
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
        let encoded = encode::encode(request, self.format, context.media).await?;
        let has_replay = encoded.has_replay;
        let mut sent = SentBody::new(&encoded.body, self.format);
        let (decoded, notes) = match self.send(encoded, context, deltas).await {
            Err(error) if has_replay && rejects_replay(&error) => {
                let format = Format { without_replay: true, ..self.format };
                let encoded = encode::encode(request, format, context.media).await?;
                sent = SentBody::new(&encoded.body, format);
                self.send(encoded, context, deltas).await?
            }
            result => result?,
        };
        let RawReply { mut reply, mut raw } = decoded.into();
        sent.add_to(&mut raw);
        if let (false, Some(raw)) = (notes.is_empty(), raw.as_object_mut()) {
            raw.insert("request_notes".into(), notes.into());
        }
        if reply.usage == Usage::default() {
            // Estimate the token usage that some servers do not report, because the host needs the usage to
            // enforce budgets.
            reply.usage = estimate::usage(request, &reply.text, &reply.calls);
        }
        reply.usage.cost = self.info.price.map(|price| price.cost(reply.usage));
        let redaction = &self.connection.redaction;
        Ok(RawReply { reply: redaction::redact_reply(redaction, reply), raw: redaction.value(raw) })
    }
}

impl HttpModel {
    /// Sends a request. Returns the reply and the notes about the request.
    async fn send(
        &self,
        Encoded { body, notes, .. }: Encoded,
        context: ReplyContext<'_>,
        deltas: &Sender<Delta>,
    ) -> Result<(DecodedReply, Vec<String>), ModelError> {
        let (connection, model) = (&*self.connection, self.info.model.name.as_str());
        let endpoint = connection.endpoint(model);
        tracing::debug!(%endpoint, bytes = body.len(), attempt = context.attempt, "sending a request to a model");
        let exchange = Exchange { connection, model, endpoint };
        let Some(recorder) = &self.recorder else {
            return Ok((exchange.reply(body, (deltas, context.progress), None).await?, notes));
        };
        let mut response = Vec::new();
        let decoded = exchange.reply(body.clone(), (deltas, context.progress), Some(&mut response)).await?;
        // A secret can be split over several events, where the redaction of the body does not find it.
        let (reply, raw) = (decoded.reply.clone(), decoded.raw.clone());
        let redaction = &connection.redaction;
        if redaction::redact_reply(redaction, reply.clone()) != reply || redaction.value(raw.clone()) != raw {
            let path = recorder.path().display();
            tracing::warn!(cassette = %path, "an exchange is not recorded, because the reply contains a secret");
        } else {
            recorder.record(&body, &response, redaction)?;
        }
        Ok((decoded, notes))
    }
}

/// Returns whether the provider rejected the thinking that it attached to an earlier reply. Signed and encrypted
/// thinking belongs to an organization and to the conversation before it, so it becomes invalid if a key of another
/// organization is configured or if earlier messages are no longer sent.
fn rejects_replay(error: &ModelError) -> bool {
    let ModelError::Provider(error) = error else { return false };
    let message = error.message.to_ascii_lowercase();
    let names_thinking = ["thinking", "signature", "encrypted_content", "encrypted content", "reasoning"];
    error.origin == ErrorOrigin::Status(400)
        && error.cause == Cause::Request
        && names_thinking.iter().any(|word| message.contains(word))
        && ["invalid", "verif", "modified", "decrypt", "not found", "match"].iter().any(|word| message.contains(word))
}
