//! The stream of a session's events, as server-sent events.

use crate::access::Caller;
use crate::problem::{ApiProblems, Problem};
use crate::state::{ApiState, OpenStream};
use crate::tokens::Right;
use agent_runtime::{EventPosition, SessionEvent, SessionEvents};
use axum::Extension;
use axum::extract::{Path, Query, State};
use axum::http::HeaderMap;
use axum::response::sse::{Event, KeepAlive, Sse};
use futures::Stream;
use serde::Deserialize;
use serde_json::json;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Interval;
use utoipa::IntoParams;

/// Time between two comments that keep an idle connection open.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Time between two checks whether the token and the session of a stream still exist.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// Selects where a stream begins.
#[derive(Debug, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
#[serde(deny_unknown_fields)]
pub(crate) struct EventQuery {
    /// Id of the last event that the reader has received, for readers that cannot set the header `Last-Event-ID`.
    /// Default: `0`, which means that the stream begins with the first event.
    #[param(example = "12")]
    after: Option<String>,
}

/// Streams the events of a session as server-sent events, from its first event or after the event in `Last-Event-ID`.
///
/// The id of a stored event is its number. Pieces of a reply that is being written have ids such as `12.3`; a reader that
/// missed some of them first receives the event `reply`, which contains the reply so far. Other events have the names and
/// the data that the guide lists. An idle stream contains a comment every 15 s.
#[utoipa::path(
    get, path = "/api/sessions/{session}/events", tag = "sessions", security(("token" = [])),
    params(
        ("session" = String, Path, description = "Id of the session, with `/` written as `%2F`."),
        ("Last-Event-ID" = Option<String>, Header, description = "Id of the last event that the reader has received."),
        EventQuery,
    ),
    responses(
        (status = 200, content_type = "text/event-stream", body = String),
        ApiProblems,
    )
)]
pub(crate) async fn stream_events(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path(session): Path<String>,
    query: Result<Query<EventQuery>, axum::extract::rejection::QueryRejection>,
    headers: HeaderMap,
) -> Result<Sse<impl Stream<Item = Result<Event, Infallible>>>, Problem> {
    caller.require(Right::Read)?;
    let Query(query) = query.map_err(|error| Problem::invalid(error.body_text()))?;
    state.session(&caller, &session).await?;
    let header = headers.get("last-event-id").map(|id| id.to_str().unwrap_or("?").to_owned());
    let after = header.or(query.after).map_or(Ok(EventPosition::default()), |id| position_of(&id))?;
    let stream = EventStream {
        events: state.supervisor.events(&session, after),
        _open: state.streams.open(&caller)?,
        next_check: tokio::time::interval(CHECK_INTERVAL),
        state,
        caller,
        session,
    };
    let events = futures::stream::unfold(stream, |mut stream| async move { Some((Ok(stream.next().await?), stream)) });
    Ok(Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT).text("idle")))
}

/// An open stream, which counts towards the limits until it is dropped.
struct EventStream {
    events: SessionEvents,
    _open: OpenStream,
    next_check: Interval,
    state: Arc<ApiState>,
    caller: Caller,
    session: String,
}

impl EventStream {
    /// Waits for the next event. Returns `None` when the server shuts down, the token is revoked, the session is deleted or
    /// the store fails.
    async fn next(&mut self) -> Option<Event> {
        let next = loop {
            tokio::select! {
                biased;
                () = self.state.draining.cancelled() => return None,
                _ = self.next_check.tick() => {
                    let is_valid = self.state.is_still_valid(&self.caller);
                    if !is_valid || self.state.session(&self.caller, &self.session).await.is_err() {
                        return None;
                    }
                }
                next = self.events.next() => break next,
            }
        };
        match next {
            Ok(event) => Some(server_sent_event(&event)),
            Err(error) => {
                tracing::warn!(%error, "an event stream ends, because the events cannot be read");
                None
            }
        }
    }
}

fn server_sent_event(event: &SessionEvent) -> Event {
    let EventPosition { sequence, provisional } = event.position();
    let id = if provisional == 0 { sequence.to_string() } else { format!("{sequence}.{provisional}") };
    let (name, data) = match event {
        SessionEvent::Event(event) => {
            let data = serde_json::to_value(event).unwrap_or_default();
            (data["type"].as_str().unwrap_or("event").to_owned(), data)
        }
        SessionEvent::Reply(reply) => {
            let data = json!({
                "session": reply.session, "turn": reply.turn, "type": "reply", "text": reply.text, "thinking": reply.thinking,
            });
            ("reply".to_owned(), data)
        }
    };
    Event::default().id(id).event(name).data(data.to_string())
}

/// Reads the id of an event, such as `12` or `12.3`.
fn position_of(id: &str) -> Result<EventPosition, Problem> {
    let (sequence, provisional) = id.split_once('.').unwrap_or((id, "0"));
    let sequence = sequence.parse().ok().filter(|sequence| i64::try_from(*sequence).is_ok());
    match (sequence, provisional.parse()) {
        (Some(sequence), Ok(provisional)) => Ok(EventPosition { sequence, provisional }),
        _ => Err(Problem::invalid(format!("`{id}` is not the id of an event, such as `12` or `12.3`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// L30: ids of events are read back. Other texts are refused.
    #[test]
    fn l30_event_ids_are_positions() {
        let position = |id| {
            position_of(id).map(|position| (position.sequence, position.provisional)).map_err(|problem| problem.status)
        };
        assert_eq!((position("0"), position("12"), position("12.3")), (Ok((0, 0)), Ok((12, 0)), Ok((12, 3))));
        for id in ["", ".", "-1", "1.2.3", "1.", "18446744073709551615", "x", "1.99999999999"] {
            assert_eq!(position(id), Err(422), "{id}");
        }
    }
}
