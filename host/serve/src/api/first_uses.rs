//! The route that answers questions about the missing grants of plugins (P6).

use super::configuration::check_rights;
use crate::access::Caller;
use crate::body::{JsonBody, SMALL_BYTES};
use crate::first_uses::{AnswerEffect, GrantAnswer, NotAnswered, OpenFirstUse};
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use agent_store::AuditAction;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::{Extension, Json};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::oneshot::Receiver;
use utoipa::ToSchema;

/// Maximum time until the effect of an answer is known. The file of an agent is written within this time.
const EFFECT_TIME: Duration = Duration::from_secs(20);

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
    /// `used` if the answer applies to the session, `kept` if it was also written into the agent's file, `not_kept` if it applies
    /// to the session and could not be written, and `dismissed` for an item of the kind `denied_grants`. The turn continues.
    #[schema(example = "kept")]
    status: &'static str,
    /// Why the answer was not written into the agent's file. `null` for the other results.
    #[schema(example = "the file `/srv/clerk.toml` was changed in the meantime")]
    reason: Option<String>,
}

/// Answers the question whether a plugin gets grants that it lacks.
///
/// The right `administer` is needed, because a grant widens what a plugin may do. The answers `always` and `never` change the
/// agent's file, so a token for single agents or for one user cannot give them. If two people answer, the first answer is
/// used, and the second gets the error `conflict`. The response is sent when the answer was applied, and the file was written.
///
/// An item of the kind `denied_grants` can only be dismissed, with the answer `no`.
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
    let GrantDecision { question, answer } = decision;
    match state.first_uses.answer(&session.subject, &question, answer) {
        Ok((question, effect)) => {
            let entry = audit_entry(question, &caller, answer);
            // A client that does not wait for the response must not prevent the entry.
            let recorded = tokio::spawn(async move {
                state.store().audit(vec![entry]).await?;
                Ok::<_, Problem>(())
            });
            recorded.await.map_err(|_| unknown_effect())??;
            effect_of(effect).await.map(Json)
        }
        Err(NotAnswered::AlreadyDenied) if answer == GrantAnswer::No => {
            state.first_uses.dismiss(&session.subject, &question).map_err(|_| not_waiting())?;
            Ok(Json(UsedGrantDecision { status: "dismissed", reason: None }))
        }
        Err(NotAnswered::AlreadyDenied) => {
            let detail =
                "the plugin has already run without the grants; to give them from now on, add them to the agent's file";
            Err(conflict(detail))
        }
        Err(NotAnswered::NotWaiting) => Err(not_waiting()),
        Err(NotAnswered::CannotBeKept) => {
            Err(Problem::invalid("the agent has no file of its own, so the answer can only be `this_session` or `no`"))
        }
    }
}

fn audit_entry(question: OpenFirstUse, caller: &Caller, answer: GrantAnswer) -> AuditAction {
    AuditAction::GrantsAnswered {
        session: question.session.session,
        agent: question.session.agent,
        plugin: question.plugin,
        digest: question.digest,
        token: caller.token.name.clone(),
        answer: answer.name().to_owned(),
        offered: question.offered.into_iter().map(|grant| grant.line).collect(),
    }
}

/// Waits until the effect of an answer is known.
async fn effect_of(effect: Receiver<AnswerEffect>) -> Result<UsedGrantDecision, Problem> {
    match tokio::time::timeout(EFFECT_TIME, effect).await {
        Ok(Ok(AnswerEffect::Used)) => Ok(UsedGrantDecision { status: "used", reason: None }),
        Ok(Ok(AnswerEffect::Kept)) => Ok(UsedGrantDecision { status: "kept", reason: None }),
        Ok(Ok(AnswerEffect::NotKept { reason })) => Ok(UsedGrantDecision { status: "not_kept", reason: Some(reason) }),
        Ok(Ok(AnswerEffect::NotUsed { reason })) => Err(conflict(reason)),
        // The turn ended in the same moment.
        Ok(Err(_)) => Err(not_waiting()),
        Err(_) => Err(unknown_effect()),
    }
}

fn conflict(detail: impl ToString) -> Problem {
    Problem::new(StatusCode::CONFLICT, "conflict", detail)
}

fn not_waiting() -> Problem {
    conflict("this question does not wait any more: it was answered, or the turn went on without the grants")
}

fn unknown_effect() -> Problem {
    let detail = "the answer was given, but the host could not tell what became of it; look at the agent's file";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, "unavailable", detail)
}
