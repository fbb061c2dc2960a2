//! The route that returns the media items of a session, such as images.

use crate::access::Caller;
use crate::problem::Problem;
use crate::state::ApiState;
use crate::tokens::Right;
use agent_core::message::{Digest, Media};
use agent_store::Store;
use axum::Extension;
use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::{HeaderValue, header};
use axum::response::{IntoResponse, Response};
use std::sync::Arc;

/// Number of bytes that are read from the store at once.
const PIECE_BYTES: u32 = 256 << 10;
/// Media types that browsers show without running any content of the file.
const SHOWN_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// Returns the bytes of a media item that belongs to a session.
///
/// Browsers show only PNG, JPEG, GIF and WebP. They save every other item as a file.
#[utoipa::path(
    get, path = "/api/sessions/{session}/media/{digest}", tag = "sessions", security(("token" = [])),
    params(
        ("session" = String, Path, description = "Id of the session, with `/` written as `%2F`."),
        ("digest" = String, Path, description = "Digest of the media item, as `sha256:` and 64 hexadecimal digits."),
    ),
    responses(
        (status = 200, body = Vec<u8>, content_type = "application/octet-stream", description = "The bytes, with the media type of the item."),
        (status = "4XX", body = Problem, content_type = "application/problem+json"),
        (status = "5XX", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(crate) async fn read_media(
    State(state): State<Arc<ApiState>>,
    Extension(caller): Extension<Caller>,
    Path((session, digest)): Path<(String, String)>,
) -> Result<Response, Problem> {
    caller.require(Right::Read)?;
    state.session(&caller, &session).await?;
    let digest = Digest::parse(&digest).map_err(Problem::invalid)?;
    let media = state.store().media(&session, &digest).await?;
    let media = media.ok_or_else(|| Problem::not_found(format!("the session has no media item `{digest}`")))?;
    let disposition = disposition_of(&media);
    let mime_type = HeaderValue::from_str(&media.mime_type)
        .unwrap_or_else(|_| HeaderValue::from_static("application/octet-stream"));
    let headers = [
        (header::CONTENT_TYPE, mime_type),
        (header::CONTENT_LENGTH, HeaderValue::from(media.size)),
        (header::CONTENT_DISPOSITION, disposition),
        (header::CONTENT_SECURITY_POLICY, HeaderValue::from_static("default-src 'none'; sandbox")),
    ];
    let store = state.supervisor.host().store.clone();
    Ok((headers, Body::from_stream(pieces(store, session, media))).into_response())
}

/// Returns how a browser treats the item. The name is encoded, so that it cannot add another header or parameter.
fn disposition_of(media: &Media) -> HeaderValue {
    let is_shown = SHOWN_TYPES.contains(&media.mime_type.as_str());
    let how = if is_shown { "inline" } else { "attachment" };
    let name = media.name.as_deref().map(|name| {
        let encoded: String = url::form_urlencoded::byte_serialize(name.as_bytes()).collect();
        format!("; filename*=UTF-8''{}", encoded.replace('+', "%20").replace('*', "%2A"))
    });
    let value = format!("{how}{}", name.unwrap_or_default());
    HeaderValue::from_str(&value).unwrap_or_else(|_| HeaderValue::from_static("attachment"))
}

/// Reads the item in pieces, so that a large item is never in memory as a whole.
fn pieces(
    store: Arc<dyn Store>,
    session: String,
    media: Media,
) -> impl futures::Stream<Item = Result<Vec<u8>, agent_store::StoreError>> {
    futures::stream::try_unfold((store, session, 0_u64), move |(store, session, offset)| {
        let media = media.clone();
        async move {
            if offset >= media.size {
                return Ok(None);
            }
            let piece = store.read(&session, &media.digest, offset, PIECE_BYTES).await?;
            let read = piece.len() as u64;
            Ok((read > 0).then(|| (piece, (store, session, offset + read))))
        }
    })
}
