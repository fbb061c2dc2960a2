//! Routes that render texts for web pages.

use crate::access::Caller;
use crate::body::{JsonBody, PROMPT_BYTES};
use crate::problem::{ApiProblems, Problem};
use crate::rendering::{Block, DifferenceLine, Token, difference, highlight, markdown};
use crate::state::ApiState;
use crate::tokens::Right;
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::sync::Arc;
use utoipa::ToSchema;

/// Maximum number of lines of two texts that are compared.
const MAX_LINES: usize = 50_000;

/// A text to render.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct MarkdownText {
    /// The text, as CommonMark with tables, strikethrough and task lists.
    text: String,
}

/// A rendered text.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RenderedMarkdown {
    /// The blocks of the text. Each has the number of the `line`, starting at 0, in which it begins, and a `node`: a text, or an
    /// element with a `tag` and `children`. To render a text that grows, render it again from the last block's line.
    #[schema(value_type = Vec<Object>)]
    blocks: Vec<Block>,
}

/// Renders Markdown as a tree of elements, without markup.
#[utoipa::path(
    post, path = "/api/render/markdown", tag = "rendering", security(("token" = [])), request_body = MarkdownText,
    responses((status = 200, body = RenderedMarkdown), ApiProblems)
)]
pub(crate) async fn render_markdown(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    JsonBody(MarkdownText { text }): JsonBody<MarkdownText, PROMPT_BYTES>,
) -> Result<Json<RenderedMarkdown>, Problem> {
    caller.require(Right::Read)?;
    Ok(Json(RenderedMarkdown { blocks: apart(&state, move || markdown(&text)).await? }))
}

/// Code to highlight.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CodeText {
    /// The code.
    text: String,
    /// The language, such as `rust`, or the ending of its files.
    #[serde(default)]
    language: String,
}

/// Highlighted code.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HighlightedCode {
    /// The pieces of the code, each as a pair of its kind and its text. The kinds are `keyword`, `string`, `number`, `comment`,
    /// `function`, `type`, `name`, and an empty text.
    #[schema(value_type = Vec<Vec<String>>)]
    tokens: Vec<Token>,
}

/// Highlights code.
#[utoipa::path(
    post, path = "/api/render/code", tag = "rendering", security(("token" = [])), request_body = CodeText,
    responses((status = 200, body = HighlightedCode), ApiProblems)
)]
pub(crate) async fn render_code(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    JsonBody(CodeText { text, language }): JsonBody<CodeText, PROMPT_BYTES>,
) -> Result<Json<HighlightedCode>, Problem> {
    caller.require(Right::Read)?;
    Ok(Json(HighlightedCode { tokens: apart(&state, move || highlight(&text, &language)).await? }))
}

/// Two texts to compare.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ComparedTexts {
    /// The old text.
    #[serde(default)]
    old: String,
    /// The new text.
    #[serde(default)]
    new: String,
}

/// The difference between two texts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Difference {
    /// The changed lines, with three equal lines around each change.
    lines: Vec<DifferenceLine>,
}

/// Compares two texts line by line.
#[utoipa::path(
    post, path = "/api/render/difference", tag = "rendering", security(("token" = [])), request_body = ComparedTexts,
    responses((status = 200, body = Difference), ApiProblems)
)]
pub(crate) async fn render_difference(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    JsonBody(ComparedTexts { old, new }): JsonBody<ComparedTexts, PROMPT_BYTES>,
) -> Result<Json<Difference>, Problem> {
    caller.require(Right::Read)?;
    if old.lines().count() + new.lines().count() > MAX_LINES {
        return Err(Problem::invalid(format!("the texts have more than {MAX_LINES} lines together")));
    }
    Ok(Json(Difference { lines: apart(&state, move || difference(&old, &new)).await? }))
}

/// Renders on another thread, because other requests must not wait for a long text. Only a few texts are rendered at the same
/// time, because the results may be large.
pub(super) async fn apart<T: Send + 'static>(
    state: &ApiState,
    render: impl FnOnce() -> T + Send + 'static,
) -> Result<T, Problem> {
    let _place = state.renderings.acquire().await;
    tokio::task::spawn_blocking(render).await.map_err(|error| {
        tracing::error!(%error, "a text was not rendered");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "failed", "the host failed; its log contains the reason")
    })
}

/// Returns rendered blocks as JSON.
pub(super) fn as_json(blocks: &[Block]) -> Value {
    serde_json::to_value(blocks).unwrap_or_default()
}
