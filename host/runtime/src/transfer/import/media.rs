//! Imports media. Media that a message shows must be in the document, because the next model call sends them.

use super::text::one_line;
use super::{MAX_NAME, damaged, parse_item};
use crate::media::describe;
use crate::transfer::TransferError;
use crate::transfer::document::{Batch, DocumentMedium};
use crate::transfer::staging::Staging;
use agent_core::message::{Content, Digest, Media, Part};
use agent_store::digest_of;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Stores the media. The digest and type in the document must match the bytes. The size and dimensions are read from the bytes.
pub(super) async fn store(batch: Batch, staging: &mut Staging<'_>) -> Result<(), TransferError> {
    for (place, item) in (batch.first..).zip(batch.items) {
        let place = format!("media[{place}]");
        let DocumentMedium { media: described, base64 } = parse_item(&place, &item)?;
        let bytes = STANDARD.decode(base64.as_bytes()).map_err(|error| damaged(&place, error))?;
        drop(base64);
        drop(item);
        check_digest(&place, &described.digest, &bytes)?;
        let name = described.name.map(|name| one_line(&name, MAX_NAME));
        let description = describe(&bytes, &described.mime_type, name).map_err(|problem| damaged(&place, problem))?;
        staging.store.put(staging.session(), bytes, description).await?;
    }
    Ok(())
}

/// Replaces the descriptions of media in message parts by those of the stored bytes.
pub(super) async fn correct_parts(parts: &mut [Part], place: &str, staging: &Staging<'_>) -> Result<(), TransferError> {
    for part in parts {
        match part {
            Part::Media(media) => correct(media, place, staging).await?,
            Part::ToolResult(result) => correct_content(&mut result.content, place, staging).await?,
            _ => {}
        }
    }
    Ok(())
}

/// Replaces the descriptions of media in a tool result by those of the stored bytes.
pub(super) async fn correct_content(
    content: &mut [Content],
    place: &str,
    staging: &Staging<'_>,
) -> Result<(), TransferError> {
    for content in content {
        if let Content::Media(media) = content {
            correct(media, place, staging).await?;
        }
    }
    Ok(())
}

async fn correct(media: &mut Media, place: &str, staging: &Staging<'_>) -> Result<(), TransferError> {
    let known = staging.store.media(staging.session(), &media.digest).await?;
    let known = known.ok_or_else(|| damaged(place, format!("the media {} that it shows are missing", media.digest)))?;
    let name = media.name.take().map(|name| one_line(&name, MAX_NAME));
    *media = Media { name, ..known };
    Ok(())
}

pub(super) fn check_digest(place: &str, expected: &Digest, bytes: &[u8]) -> Result<(), TransferError> {
    match digest_of(bytes) == *expected {
        true => Ok(()),
        false => Err(damaged(place, format!("its bytes do not match the digest {expected}"))),
    }
}
