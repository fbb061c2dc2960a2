//! Routes with which a web page exchanges a token for a short sign-in, and learns what its token allows.

use crate::access::Caller;
use crate::body::{JsonBody, SMALL_BYTES};
use crate::problem::{ApiProblems, Problem};
use crate::sign_ins::LIFETIME;
use crate::state::ApiState;
use crate::tokens::{Right, Token};
use axum::extract::State;
use axum::http::StatusCode;
use axum::{Extension, Json};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use utoipa::ToSchema;

/// Path of the route that needs a code instead of a token.
pub(crate) const CODE_PATH: &str = "/api/sign-ins/code";

/// What a token allows.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TokenDetails {
    /// Name of the token.
    #[schema(example = "dashboard")]
    name: String,
    /// The rights of the token: `read`, `talk`, `approve` and `administer`.
    #[schema(value_type = Vec<String>, example = json!(["read", "talk"]))]
    rights: Vec<Right>,
    /// The agents that the token may use. An empty list means all agents.
    agents: Vec<String>,
    /// The user for whom the token works. `null` means that it sees the sessions of all users.
    user: Option<String>,
}

impl From<&Token> for TokenDetails {
    fn from(token: &Token) -> Self {
        let rights = token.rights.iter().copied().collect();
        Self { name: token.name.clone(), rights, agents: token.agents.clone(), user: token.user.clone() }
    }
}

/// A sign-in that replaces a token.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct NewSignIn {
    /// The secret, which requests send in `Authorization: Bearer` instead of the token.
    secret: String,
    /// Time at which the sign-in ends, as RFC 3339. It also ends when its token is revoked or the server stops.
    expires: String,
    /// What the token allows.
    token: TokenDetails,
}

/// Shows what the token of the request allows.
#[utoipa::path(
    get, path = "/api/token", tag = "sign-in", security(("token" = [])),
    responses((status = 200, body = TokenDetails), ApiProblems)
)]
pub(crate) async fn show_token(Extension(caller): Extension<Caller>) -> Json<TokenDetails> {
    Json(TokenDetails::from(&caller.token))
}

/// Begins a sign-in, which replaces the token of the request for 12 hours.
///
/// A web page stores the secret of the sign-in instead of the token. A sign-in cannot begin another sign-in.
#[utoipa::path(
    post, path = "/api/sign-ins", tag = "sign-in", security(("token" = [])),
    responses((status = 201, body = NewSignIn), ApiProblems)
)]
pub(crate) async fn sign_in(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
) -> Result<(StatusCode, Json<NewSignIn>), Problem> {
    if caller.sign_in.is_some() {
        let detail = "a sign-in cannot begin another sign-in; send the token itself";
        return Err(Problem::new(StatusCode::FORBIDDEN, "forbidden", detail));
    }
    Ok((StatusCode::CREATED, Json(begin(&state, &caller.token))))
}

/// Ends the sign-in of the request. With a token instead of a sign-in, nothing changes.
#[utoipa::path(
    delete, path = "/api/sign-ins", tag = "sign-in", security(("token" = [])),
    responses((status = 204, description = "The sign-in has ended."), ApiProblems)
)]
pub(crate) async fn sign_out(State(state): State<Arc<ApiState>>, Extension(caller): Extension<Caller>) -> StatusCode {
    if let Some(sign_in) = &caller.sign_in {
        state.sign_ins.end(sign_in);
    }
    StatusCode::NO_CONTENT
}

/// A code with which a page begins a sign-in.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SignInCode {
    /// The code, from the address that `agent-host serve` shows in a terminal.
    code: String,
}

/// Begins a sign-in with a code instead of a token.
///
/// `agent-host serve` shows a code in a terminal when it starts. A code can be used once, within 10 minutes.
#[utoipa::path(
    post, path = "/api/sign-ins/code", tag = "sign-in", request_body = SignInCode,
    responses((status = 201, body = NewSignIn), ApiProblems)
)]
pub(crate) async fn sign_in_with_code(
    State(state): State<Arc<ApiState>>,
    JsonBody(SignInCode { code }): JsonBody<SignInCode, SMALL_BYTES>,
) -> Result<(StatusCode, Json<NewSignIn>), Problem> {
    let token = match state.sign_ins.redeem(&code) {
        Some(digest) => state.token(&digest)?,
        None => None,
    };
    let token = token.ok_or_else(|| {
        let detail = "this code was used already, or it is older than 10 minutes; enter a token instead";
        Problem::new(StatusCode::FORBIDDEN, "wrong_code", detail)
    })?;
    Ok((StatusCode::CREATED, Json(begin(&state, &token))))
}

fn begin(state: &ApiState, token: &Token) -> NewSignIn {
    let expires = Timestamp::now().checked_add(LIFETIME).unwrap_or(Timestamp::MAX).to_string();
    NewSignIn { secret: state.sign_ins.begin(&token.digest), expires, token: token.into() }
}
