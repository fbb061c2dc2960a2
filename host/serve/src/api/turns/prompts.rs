//! Routes about what a model was sent: the prompt in blocks with its differences to the previous prompt, and the whole request
//! (D1).

use crate::access::Caller;
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use agent_runtime::inspection::{
    BlockChange, BlockKind, BlockPage, PromptBlock, PromptView, RemovedBlock, Reuse, Size, prompt_view,
};
use agent_runtime::replay::{SentRequestError, sent_request};
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::sync::Arc;
use utoipa::{IntoParams, ToSchema};

use super::shortened::beginning;

/// Number of blocks of one answer if the request does not say how many.
const DEFAULT_LIMIT: usize = 100;
/// Maximum number of blocks of one answer.
const MAX_LIMIT: usize = 200;
/// Maximum length of the text of a block, and of a difference, in characters. The whole request has the complete texts.
const MAX_CHARACTERS: usize = 20_000;
/// Maximum number of media masks of a block that are shown.
const MAX_MASKS: usize = 20;

/// The prompt of a model call in blocks, in the order in which providers cache prompts: tools, output schema, system sections,
/// messages.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StepPrompt {
    /// The model to which the prompt was sent, as `provider/model`.
    model: String,
    /// Size of the model's context window, in tokens.
    window: u32,
    /// Maximum number of tokens of the reply.
    max_tokens: u32,
    /// Why the prompt was built: `init`, `tool_result` or `output_error_feedback`.
    #[schema(value_type = String, example = "tool_result")]
    lifecycle: Value,
    /// The model call before this one, with whose prompt this prompt is compared. `null` if there is none.
    previous: Option<StepPlace>,
    /// Size of the whole prompt.
    size: TextSize,
    /// Size of the beginning that is equal to the beginning of the previous prompt, so that a cache of the provider can reuse
    /// it. How much the provider has reused is in the `usage` of the step.
    reused: TextSize,
    /// The body of the request in the provider's wire format. `null` if the model was not called over HTTP.
    body: Option<RequestBody>,
    /// The selected blocks.
    blocks: Vec<BlockItem>,
    /// Number of all blocks.
    block_count: usize,
    /// The value of `after` with which the next page begins. `null` if there are no more blocks.
    next: Option<usize>,
    /// Blocks of the previous prompt that are missing in this prompt, at most 100.
    removed: Vec<RemovedItem>,
    /// Number of all blocks of the previous prompt that are missing in this prompt.
    removed_count: usize,
}

/// A model call of a session.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct StepPlace {
    /// Number of the turn.
    turn: u32,
    /// Number of the step in the turn.
    step: u32,
}

/// An amount of text.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TextSize {
    /// Number of characters.
    characters: u64,
    /// Estimated number of tokens.
    tokens: u64,
}

impl From<Size> for TextSize {
    fn from(Size { characters, tokens }: Size) -> Self {
        Self { characters, tokens }
    }
}

/// The body of a request in the provider's wire format.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RequestBody {
    /// Number of bytes.
    bytes: u64,
    /// Whether the rebuilt body is byte for byte the body that was sent.
    exact: bool,
    /// Number of bytes at the beginning that are equal to the previous body. `null` if that body is not known.
    reused_bytes: Option<u64>,
}

/// A block of a prompt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct BlockItem {
    /// Index of the block in the prompt, from 0.
    index: usize,
    /// `tool`, `output_schema`, `system` or `message`.
    #[schema(example = "message")]
    kind: &'static str,
    /// The name of the tool, the heading of the section, or the role and the id of the message.
    title: String,
    /// The block as text, at most 20,000 characters. Media items are described.
    text: String,
    /// Whether the rest of the text was left out.
    cut: bool,
    /// Number of characters of the whole text.
    characters: u64,
    /// Estimated number of tokens.
    tokens: u32,
    /// `same`, `added` or `changed`, compared with the previous prompt.
    #[schema(example = "same")]
    change: &'static str,
    /// A unified diff from the previous prompt, at most 20,000 characters. `null` if the block has not changed.
    diff: Option<String>,
    /// Number of characters at the beginning of the block that a cache of the provider can reuse.
    reused_characters: u64,
    /// Role of the message's author. `null` if the block is not a message.
    role: Option<&'static str>,
    /// Id of the stored message. `null` if the block is not a stored message.
    message: Option<u64>,
    /// In how many model calls before this one the message had been sent. `null` if the block is not a stored message.
    seen_count: Option<u32>,
    /// The texts that replace media items of the message, because a media policy masked them.
    masks: Vec<String>,
}

fn kind_name(kind: BlockKind) -> &'static str {
    match kind {
        BlockKind::Tool => "tool",
        BlockKind::OutputSchema => "output_schema",
        BlockKind::System => "system",
        BlockKind::Message => "message",
    }
}

impl BlockItem {
    fn new(index: usize, PromptBlock { block, change, reuse }: PromptBlock) -> Self {
        let characters = block.text.chars().count() as u64;
        let (text, cut) = beginning(&block.text, MAX_CHARACTERS);
        let (change, diff) = match change {
            BlockChange::Same => ("same", None),
            BlockChange::Added => ("added", None),
            BlockChange::Changed(diff) => ("changed", Some(beginning(&diff, MAX_CHARACTERS).0)),
        };
        Self {
            index,
            kind: kind_name(block.kind),
            title: block.title,
            text,
            cut,
            characters,
            tokens: block.tokens,
            change,
            diff,
            reused_characters: match reuse {
                Reuse::Whole => characters,
                Reuse::Beginning(beginning) => beginning,
                Reuse::None => 0,
            },
            role: block.role.map(agent_core::message::Role::as_str),
            message: block.message,
            seen_count: block.message.map(|_| block.seen_count),
            masks: block.masks.into_iter().take(MAX_MASKS).map(|mask| beginning(&mask, MAX_CHARACTERS).0).collect(),
        }
    }
}

/// A block of the previous prompt that is missing in this prompt.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RemovedItem {
    /// `tool`, `output_schema`, `system` or `message`.
    kind: &'static str,
    /// The name of the tool, the heading of the section, or the role and the id of the message.
    title: String,
    /// Estimated number of tokens.
    tokens: u32,
    /// Id of the stored message. `null` if the block is not a stored message.
    message: Option<u64>,
    /// Why the message left the prompt: `superseded`, `taken_back` or `evicted`. `null` if it is not known.
    why: Option<&'static str>,
}

impl From<RemovedBlock> for RemovedItem {
    fn from(RemovedBlock { kind, title, tokens, message, why }: RemovedBlock) -> Self {
        let why = why.map(agent_core::change::HideReason::as_str);
        Self { kind: kind_name(kind), title, tokens, message, why }
    }
}

/// Selects blocks of a prompt.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct BlockQuery {
    /// Number of blocks that are skipped. Default: 0.
    after: Option<usize>,
    /// Maximum number of blocks, 1 to 200. Default: 100.
    #[param(minimum = 1, maximum = 200)]
    limit: Option<usize>,
}

/// Shows the prompt of a step, compared with the prompt of the model call before it.
///
/// A prompt contains the instructions of the agent, so the right `administer` is needed.
#[utoipa::path(
    get, path = "/api/sessions/{session}/turns/{turn}/steps/{step}/prompt", tag = "turns", security(("token" = [])),
    params(
        ("session" = String, Path, description = "Id of the session, with `/` written as `%2F`."),
        ("turn" = u32, Path, description = "Number of the turn, from 1."),
        ("step" = u32, Path, description = "Number of the step in the turn, from 1."),
        BlockQuery,
    ),
    responses((status = 200, body = StepPrompt), ApiProblems)
)]
pub(crate) async fn show_prompt(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<(String, u32, u32)>, PathRejection>,
    query: Result<Query<BlockQuery>, QueryRejection>,
) -> Result<Json<StepPrompt>, Problem> {
    caller.require(Right::Administer)?;
    let Path((session, turn, step)) = path.map_err(|error| Problem::invalid(error.body_text()))?;
    let Query(query) = query.map_err(|error| Problem::invalid(error.body_text()))?;
    let limit = match query.limit.unwrap_or(DEFAULT_LIMIT) {
        limit @ 1..=MAX_LIMIT => limit,
        limit => return Err(Problem::invalid(format!("`limit` is {limit}, but must be 1 to {MAX_LIMIT}"))),
    };
    state.session(&caller, &session).await?;
    let _place = state.rebuilt_prompts.open(&caller)?;
    let page = BlockPage { first: query.after.unwrap_or_default(), limit };
    let view = prompt_view(state.store(), &session, (turn, step), page).await.map_err(problem_of)?;
    Ok(Json(step_prompt(view, page)))
}

fn step_prompt(view: PromptView, page: BlockPage) -> StepPrompt {
    let end = page.first.saturating_add(view.blocks.len());
    StepPrompt {
        model: view.model.to_string(),
        window: view.model.window,
        max_tokens: view.max_tokens,
        lifecycle: json!(view.lifecycle),
        previous: view.previous.map(|(turn, step)| StepPlace { turn, step }),
        size: view.size.into(),
        reused: view.reused.into(),
        body: view.body.map(|body| RequestBody {
            bytes: body.bytes,
            exact: body.is_exact,
            reused_bytes: body.reused_bytes,
        }),
        blocks: (page.first..).zip(view.blocks).map(|(index, block)| BlockItem::new(index, block)).collect(),
        block_count: view.block_count,
        next: (end < view.block_count).then_some(end),
        removed: view.removed.into_iter().map(Into::into).collect(),
        removed_count: view.removed_count,
    }
}

/// Returns the whole request of a step: the JSON body that was sent to the provider or, if the model was not called over HTTP,
/// the request in the host's own format.
///
/// A prompt contains the instructions of the agent, so the right `administer` is needed.
#[utoipa::path(
    get, path = "/api/sessions/{session}/turns/{turn}/steps/{step}/request", tag = "turns", security(("token" = [])),
    params(
        ("session" = String, Path, description = "Id of the session, with `/` written as `%2F`."),
        ("turn" = u32, Path, description = "Number of the turn, from 1."),
        ("step" = u32, Path, description = "Number of the step in the turn, from 1."),
    ),
    responses((status = 200, body = Object, description = "The request as JSON."), ApiProblems)
)]
pub(crate) async fn read_request(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    path: Result<Path<(String, u32, u32)>, PathRejection>,
) -> Result<Response, Problem> {
    caller.require(Right::Administer)?;
    let Path((session, turn, step)) = path.map_err(|error| Problem::invalid(error.body_text()))?;
    state.session(&caller, &session).await?;
    let _place = state.rebuilt_prompts.open(&caller)?;
    let sent = sent_request(state.store(), &session, turn, Some(step)).await.map_err(problem_of)?;
    let bytes = match sent.body {
        Some(body) => body.bytes,
        None => serde_json::to_vec(&sent.request).map_err(|error| Problem::invalid(error.to_string()))?,
    };
    let disposition = format!("attachment; filename=\"request-{turn}-{step}.json\"");
    let headers = [(header::CONTENT_TYPE, "application/json".to_owned()), (header::CONTENT_DISPOSITION, disposition)];
    Ok((headers, Body::from(bytes)).into_response())
}

fn problem_of(error: SentRequestError) -> Problem {
    match error {
        SentRequestError::Store(error) => error.into(),
        error @ (SentRequestError::NoRecord { .. } | SentRequestError::Incomplete { .. }) => Problem::not_found(error),
        SentRequestError::Model(error) => {
            tracing::warn!(%error, "a recorded request cannot be encoded again");
            Problem::not_found("the recorded request cannot be rebuilt; the host's log contains the reason")
        }
    }
}
