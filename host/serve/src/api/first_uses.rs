//! The route that answers questions about the missing grants of plugins (P6).

use super::configuration::check_rights;
use crate::access::Caller;
use crate::body::{JsonBody, SMALL_BYTES};
use crate::first_uses::{GrantAnswer, NotAnswered};
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use agent_store::AuditAction;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// The answer to a question about the grants of a plugin.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GrantDecision {
    /// Id of the question: `first_use.question` of the item in the inbox. Each question has an id of its own, so that an answer
    /// never applies to another question, even after a restart.
    question: String,
    /// The answer.
    answer: GrantAnswer,
}

/// What became of an answer.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsedGrantDecision {
    /// Always `used`. The turn continues.
    status: &'static str,
}

/// Answers the question whether a plugin gets grants that it lacks.
///
/// The right `administer` is needed, because a grant widens what a plugin may do. The answers `always` and `never` change the
/// agent's file, so a token for single agents or for one user cannot give them. If two people answer, the first answer is
/// used, and the second gets the error `conflict`.
#[utoipa::path(
    post, path = "/api/sessions/{session}/first-uses", tag = "answers", security(("token" = [])),
    params(("session" = String, Path, description = "Id of the session, with `/` written as `%2F`.")),
    request_body = GrantDecision,
    responses((status = 200, body = UsedGrantDecision), ApiProblems)
)]
pub(crate) async fn answer_first_use(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
    JsonBody(decision): JsonBody<GrantDecision, SMALL_BYTES>,
) -> Result<Json<UsedGrantDecision>, Problem> {
    caller.require(Right::Administer)?;
    // These answers change the agent's file, which applies to all its sessions.
    if matches!(decision.answer, GrantAnswer::Always | GrantAnswer::Never) {
        check_rights(&caller)?;
    }
    let session = state.session(&caller, &session).await?;
    match state.first_uses.answer(&session.subject, &decision.question, decision.answer) {
        Ok(question) => {
            let entry = AuditAction::GrantsAnswered {
                session: session.subject,
                agent: question.session.agent,
                plugin: question.plugin,
                digest: question.digest,
                token: caller.token.name.clone(),
                answer: decision.answer.name().to_owned(),
                offered: question.offered.into_iter().map(|grant| grant.line).collect(),
            };
            state.store().audit(vec![entry]).await?;
            Ok(Json(UsedGrantDecision { status: "used" }))
        }
        Err(NotAnswered::NotWaiting) => {
            let detail =
                "this question does not wait any more: it was answered, or the turn went on without the grants";
            Err(Problem::new(StatusCode::CONFLICT, "conflict", detail))
        }
        Err(NotAnswered::CannotBeKept) => {
            Err(Problem::invalid("the agent has no file, so the answer can only be `this_session` or `no`"))
        }
    }
}
