//! The Agent User Interaction Protocol (AG-UI) 1.0, with which front ends use an agent (I8).
//!
//! Each module imports only modules that come before it in this list: `input`, `messages`, `events`, `threads`.

mod events;
mod input;
mod messages;
mod threads;

use crate::access::Caller;
use crate::body::JsonBody;
use crate::problem::{ApiProblems, Problem};
use crate::state::ApiState;
use crate::tokens::Right;
use axum::Extension;
use axum::extract::{Path, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use events::RunEvents;
use futures::Stream;
use input::RunInput;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

/// Maximum size of a request, in bytes. A request can contain images.
const REQUEST_BYTES: usize = 32 << 20;
/// Time between two comments that keep an idle connection open.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Runs an agent for a front end, and streams the events of the run.
///
/// `threadId` names a session of the HTTP API, or any other conversation of this token. A new `threadId` begins a session.
/// The prompt consists of the user messages after the last message of the agent. `resume` answers the interrupts of the run
/// before; approvals need the right `approve`. Without a new message, the stream shows the open run of the thread. A session that
/// the token has not begun as a thread needs the right `read`, because the stream begins with its messages.
#[utoipa::path(
    post, path = "/agents/{agent}/ag-ui", tag = "front ends", security(("token" = [])),
    params(("agent" = String, Path, description = "The name of the agent.")),
    request_body(content = Object, description = "RunAgentInput of AG-UI 1.0."),
    responses((status = 200, content_type = "text/event-stream", body = String), ApiProblems)
)]
pub(crate) async fn run_agent(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(agent): Path<String>,
    JsonBody(input): JsonBody<RunInput, REQUEST_BYTES>,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    caller.require(Right::Talk)?;
    state.check_agent(&caller, &agent)?;
    let open = state.replies.open(&caller)?;
    let run = threads::begin(&state, &caller, &agent, &input).await?;
    let events = RunEvents::new(state, caller, (input, run), open);
    let stream = futures::stream::unfold(events, |mut events| async move {
        let event = events.next().await?;
        Some((Ok(Event::default().data(event.to_string())), events))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(HEARTBEAT).text("idle")))
}
