//! Follows the turn of a response: as server-sent events, or until the response is complete.

use super::builder::ResponseBuilder;
use crate::openai::error::OpenAiError;
use crate::openai::turn::{FollowedTurn, Step};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse, Response};
use serde_json::Value;
use std::convert::Infallible;
use std::time::Duration;

/// Time between two comments that keep an idle connection open.
const HEARTBEAT: Duration = Duration::from_secs(15);

/// Streams the events of a response.
pub(super) fn response(followed: FollowedTurn, builder: ResponseBuilder) -> Response {
    let stream = EventStream { followed, builder, is_over: false };
    let events = futures::stream::unfold(stream, |mut stream| async move {
        let event = stream.next().await?;
        let name = event["type"].as_str().unwrap_or_default();
        Some((Ok::<_, Infallible>(Event::default().event(name).data(event.to_string())), stream))
    });
    Sse::new(events).keep_alive(KeepAlive::new().interval(HEARTBEAT).text("idle")).into_response()
}

struct EventStream {
    followed: FollowedTurn,
    builder: ResponseBuilder,
    is_over: bool,
}

impl EventStream {
    async fn next(&mut self) -> Option<Value> {
        loop {
            if let Some(event) = self.builder.next_event() {
                return Some(event);
            }
            if self.is_over {
                return None;
            }
            match advance(&mut self.followed, &mut self.builder).await {
                Ok(is_over) => self.is_over = is_over,
                Err(error) => {
                    self.builder.fail(&error);
                    self.is_over = true;
                }
            }
        }
    }
}

/// Waits until the response is complete, and returns it.
pub(super) async fn whole_response(
    mut followed: FollowedTurn,
    mut builder: ResponseBuilder,
) -> Result<Value, OpenAiError> {
    while !advance(&mut followed, &mut builder).await? {
        builder.discard_events();
    }
    match builder.ending().failure() {
        Some(failure) => Err(failure),
        None => Ok(builder.response()),
    }
}

/// Adds the next step of the turn to the response. Returns whether the response is over.
async fn advance(followed: &mut FollowedTurn, builder: &mut ResponseBuilder) -> Result<bool, OpenAiError> {
    match followed.next().await? {
        Some(Step::Update(update)) => {
            builder.update(update);
            Ok(false)
        }
        Some(Step::Waits(waits)) => {
            builder.wait(&waits);
            Ok(true)
        }
        None => {
            match builder.ending().failure() {
                Some(failure) => builder.fail(&failure),
                None => builder.complete(&followed.output().await?.unwrap_or_default()),
            }
            Ok(true)
        }
    }
}
