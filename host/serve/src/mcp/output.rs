//! Reads the complete result of a call from the store, and converts it for the client.

use super::calls::store_failed;
use agent_core::change::CallResult;
use agent_core::message::{Content, Media};
use agent_core::run::{Output, Run, TurnEnd};
use agent_core::tool::errors_as_sentences;
use agent_mcp::offered::{CallOutput, OfferError, OutputContent};
use agent_store::{CallFilter, Store};
use serde_json::{Value, json};

/// Maximum size of the media of one result, in bytes.
const MAX_MEDIA_BYTES: u64 = 16 << 20;
/// Maximum number of bytes that are read from the store at once.
const READ_BYTES: u32 = 1 << 20;

/// Returns the result of the only call of a turn. If the call has no result, returns the error of the turn.
pub(super) async fn of_tool_call(store: &dyn Store, session: &str, turn: u32) -> Result<CallOutput, OfferError> {
    let calls = store.calls(session, CallFilter::Turn(turn)).await.map_err(store_failed)?;
    match calls.into_iter().find_map(|call| call.result) {
        Some(result) => of_result(store, session, result).await,
        None => Ok(CallOutput::error(error_of(store, session, turn).await?)),
    }
}

async fn of_result(store: &dyn Store, session: &str, result: CallResult) -> Result<CallOutput, OfferError> {
    let (mut content, mut media_bytes) = (Vec::new(), 0);
    for item in result.content {
        content.push(match item {
            Content::Text(text) if result.is_error => OutputContent::Text(errors_as_sentences(&text)),
            Content::Text(text) => OutputContent::Text(text),
            Content::Json(json) => OutputContent::Text(json.to_string()),
            Content::Media(media) => {
                media_bytes += media.size;
                match media_bytes <= MAX_MEDIA_BYTES {
                    true => read_media(store, session, &media).await?,
                    false => OutputContent::Text(format!(
                        "[a media item of type {} with {} bytes is left out: a result may contain {} MiB of media]",
                        media.mime_type,
                        media.size,
                        MAX_MEDIA_BYTES >> 20
                    )),
                }
            }
        });
    }
    let structured = result.structured.filter(|_| !result.is_error);
    Ok(CallOutput { content, structured, is_error: result.is_error })
}

async fn read_media(store: &dyn Store, session: &str, media: &Media) -> Result<OutputContent, OfferError> {
    let mut bytes = Vec::new();
    while (bytes.len() as u64) < media.size {
        let read = store.read(session, &media.digest, bytes.len() as u64, READ_BYTES).await.map_err(store_failed)?;
        if read.is_empty() {
            break;
        }
        bytes.extend(read);
    }
    let uri = format!("agent-host:media/{}", media.digest.hex());
    Ok(OutputContent::Media { bytes, mime_type: media.mime_type.clone(), uri })
}

/// Returns the answer of an agent in a turn, with the session in which the client can continue the conversation.
pub(super) async fn of_prompt(store: &dyn Store, session: &str, turn: u32) -> Result<CallOutput, OfferError> {
    let answer = match end_of(store, session, turn).await? {
        Some(TurnEnd::Finished(Output { data, .. })) => data,
        _ => return Ok(CallOutput::error(error_of(store, session, turn).await?)),
    };
    let text = match &answer {
        Value::String(text) => text.clone(),
        json => json.to_string(),
    };
    let structured = Some(json!({"answer": answer, "session": session}));
    Ok(CallOutput { content: vec![OutputContent::Text(text)], structured, is_error: false })
}

async fn error_of(store: &dyn Store, session: &str, turn: u32) -> Result<String, OfferError> {
    Ok(match end_of(store, session, turn).await? {
        Some(TurnEnd::Failed(error)) => format!("the call failed: {error}"),
        Some(TurnEnd::Cancelled) => "the call was cancelled".to_owned(),
        Some(TurnEnd::Finished(_)) | None => {
            format!("the call has no result; session {session} contains what happened")
        }
    })
}

/// Returns how a turn ended, if it is the last turn of its session.
async fn end_of(store: &dyn Store, session: &str, turn: u32) -> Result<Option<TurnEnd>, OfferError> {
    let snapshot = store.snapshot(session).await.map_err(store_failed)?;
    let run = snapshot.and_then(|snapshot| Run::restore(Some(&snapshot)).ok());
    Ok(run.filter(|run| run.turns == turn).and_then(|run| run.turn.as_ref().and_then(|turn| turn.end()).cloned()))
}
