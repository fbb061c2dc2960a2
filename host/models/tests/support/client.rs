//! Helpers that send requests to a model in the same way as the runtime, and collect all deltas.

use crate::server::Server;
use agent_core::message::{CallId, Content, Digest, Dimensions, Media, Message, Part, Role, ToolCall, ToolResult};
use agent_core::model::{Delta, Model, ModelRequest};
use agent_core::plugin::Lifecycle;
use agent_models::{
    MediaBytes, MediaSource, ModelError, NoMedia, Provider, ProviderConfig, Providers, Purpose, RawReply, ReplyContext,
    Secret, Timeouts,
};
use async_trait::async_trait;
use serde_json::Value;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;

/// A key that must not appear in any error, delta or record.
pub(crate) const CANARY: &str = "sk-canary-0123456789";

/// Returns the configuration of a provider `test` at the given URL, with a key.
pub(crate) fn config(base_url: &str) -> ProviderConfig {
    ProviderConfig {
        name: "test".into(),
        base_url: base_url.into(),
        key: Some(Secret::new(CANARY)),
        key_advice: "set `TEST_KEY`".into(),
        headers: vec![],
        protocol: Default::default(),
        timeouts: Timeouts::default(),
        models: Default::default(),
    }
}

/// Creates the model `test/some/model` of the provider with this configuration.
pub(crate) fn model_of(config: ProviderConfig) -> Arc<dyn Provider> {
    Providers::new(vec![config]).model("test/some/model", Path::new("/nowhere")).unwrap()
}

/// Creates the model `test/some/model` of a provider at the given server.
pub(crate) fn model(server: &Server) -> Arc<dyn Provider> {
    model_of(config(&server.base_url()))
}

/// Creates the model `test/some/model` with the given connect, stall and total timeouts, in milliseconds.
pub(crate) fn model_with_timeouts(server: &Server, (connect, stall, total): (u64, u64, u64)) -> Arc<dyn Provider> {
    let time = Duration::from_millis;
    let timeouts = Timeouts { connect: time(connect), stall: time(stall), total: time(total) };
    model_of(ProviderConfig { timeouts, ..config(&server.base_url()) })
}

/// Builds a request with the given messages.
pub(crate) fn request(messages: Vec<Message>) -> ModelRequest {
    let model = Model { provider: "test".into(), name: "some/model".into(), window: 32_768 };
    let system = vec!["You help.".to_owned(), "Be brief.".to_owned()];
    ModelRequest {
        model,
        lifecycle: Lifecycle::Init,
        system,
        messages,
        downscaled: vec![],
        tools: vec![],
        output_schema: None,
        max_tokens: 1000,
    }
}

/// Builds a request with the user message "go".
pub(crate) fn simple_request() -> ModelRequest {
    request(vec![Message::text(Role::User, "go")])
}

/// Sends a request to the model and returns the result and all deltas.
pub(crate) async fn ask(
    model: &Arc<dyn Provider>,
    request: &ModelRequest,
) -> (Result<RawReply, ModelError>, Vec<Delta>) {
    ask_with(model, request, &NoMedia).await
}

/// Sends a request to the model and returns the result and all deltas. The media of the request are read from `media`.
pub(crate) async fn ask_with(
    model: &Arc<dyn Provider>,
    request: &ModelRequest,
    media: &dyn MediaSource,
) -> (Result<RawReply, ModelError>, Vec<Delta>) {
    let (sender, mut receiver) = mpsc::channel(4);
    let context = ReplyContext {
        session: "s1",
        purpose: Purpose::Turn,
        call: 0,
        attempt: 1,
        media,
        progress: &agent_models::CallProgress::default(),
    };
    let reply = async {
        let reply = model.reply(request, context, &sender).await;
        drop(sender);
        reply
    };
    let deltas = async {
        let mut deltas = Vec::new();
        while let Some(delta) = receiver.recv().await {
            deltas.push(delta);
        }
        deltas
    };
    tokio::join!(reply, deltas)
}

/// Sends a request that must fail. Returns the error and checks that it does not contain the key.
pub(crate) async fn failure(model: &Arc<dyn Provider>, request: &ModelRequest) -> ModelError {
    let error = ask(model, request).await.0.expect_err("the request must fail");
    assert!(!format!("{error} {error:?}").contains(CANARY), "{error:?}");
    error
}

/// Returns the error message with the server's port replaced by `PORT`, because the port changes in every run.
pub(crate) fn message(error: &ModelError, server: &Server) -> String {
    error.to_string().replace(&server.address.port().to_string(), "PORT")
}

/// A media source that counts how often a media item is read from it.
#[derive(Default)]
pub(crate) struct CountingMedia {
    pub(crate) read_count: AtomicUsize,
}

#[async_trait]
impl MediaSource for CountingMedia {
    async fn read(&self, media: &Media) -> Result<MediaBytes, String> {
        self.read_count.fetch_add(1, Ordering::SeqCst);
        if media.name.as_deref() == Some("gone.png") {
            return Err("it is missing from the blob store".into());
        }
        let bytes = vec![b'x'; usize::try_from(media.size).unwrap()];
        Ok(MediaBytes { mime_type: media.mime_type.clone(), bytes: bytes.into() })
    }
}

/// Builds a media item whose content has the given number of bytes.
pub(crate) fn media_item(name: &str, mime_type: &str, size: u64) -> Media {
    let digest = Digest::from_sha256([u8::try_from(name.len()).unwrap(); 32]);
    let dimensions = mime_type.starts_with("image/").then_some(Dimensions { width: 640, height: 480 });
    Media { digest, mime_type: mime_type.into(), size, dimensions, name: Some(name.into()) }
}

/// Builds the part of a message that contains a tool call.
pub(crate) fn call(id: &str, name: &str, arguments: Value) -> Part {
    Part::ToolCall(ToolCall { id: CallId(id.into()), name: name.into(), arguments })
}

/// Builds a tool message with one result.
pub(crate) fn result(id: &str, name: &str, content: Vec<Content>, is_error: bool) -> Message {
    let result = ToolResult { call_id: CallId(id.into()), name: name.into(), content, is_error };
    Message { role: Role::Tool, parts: vec![Part::ToolResult(result)], seen_count: 0 }
}
