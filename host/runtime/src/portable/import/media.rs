//! Media of a document. A medium that a message shows must be there, or the next step could not send it.

use super::text::harmless;
use super::{MAX_NAME, damaged, one};
use crate::media::describe;
use crate::portable::PortableError;
use crate::portable::document::{Batch, DocumentMedium};
use crate::portable::staging::Staging;
use agent_core::message::{Content, Digest, Media, Part};
use agent_store::digest_of;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Stores the media. The bytes decide what a medium is: its digest and type must be those that the document gives, and its size and
/// dimensions are read again.
pub(super) async fn store(batch: Batch, staging: &mut Staging<'_>) -> Result<(), PortableError> {
    for (place, item) in (batch.first..).zip(batch.items) {
        let place = format!("media[{place}]");
        let DocumentMedium { media: described, base64 } = one(&place, &item)?;
        let bytes = STANDARD.decode(base64.as_bytes()).map_err(|error| damaged(&place, error))?;
        drop(base64);
        drop(item);
        check_digest(&place, &described.digest, &bytes)?;
        let name = described.name.map(|name| harmless(&name, MAX_NAME));
        let description = describe(&bytes, &described.mime_type, name).map_err(|problem| damaged(&place, problem))?;
        staging.store.put(staging.session(), bytes, description).await?;
    }
    Ok(())
}

/// Describes the media of a message as their bytes are.
pub(super) async fn correct_parts(parts: &mut [Part], place: &str, staging: &Staging<'_>) -> Result<(), PortableError> {
    for part in parts {
        match part {
            Part::Media(media) => correct(media, place, staging).await?,
            Part::ToolResult(result) => correct_content(&mut result.content, place, staging).await?,
            _ => {}
        }
    }
    Ok(())
}

/// The same for a result.
pub(super) async fn correct_content(
    content: &mut [Content],
    place: &str,
    staging: &Staging<'_>,
) -> Result<(), PortableError> {
    for content in content {
        if let Content::Media(media) = content {
            correct(media, place, staging).await?;
        }
    }
    Ok(())
}

async fn correct(media: &mut Media, place: &str, staging: &Staging<'_>) -> Result<(), PortableError> {
    let known = staging.store.media(staging.session(), &media.digest).await?;
    let known = known.ok_or_else(|| damaged(place, format!("its medium {} is missing", media.digest)))?;
    let name = media.name.take().map(|name| harmless(&name, MAX_NAME));
    *media = Media { name, ..known };
    Ok(())
}

pub(super) fn check_digest(place: &str, expected: &Digest, bytes: &[u8]) -> Result<(), PortableError> {
    match digest_of(bytes) == *expected {
        true => Ok(()),
        false => Err(damaged(place, format!("its bytes are not those of {expected}"))),
    }
}
