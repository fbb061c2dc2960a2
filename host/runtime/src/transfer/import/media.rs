//! Imports media items. If a message refers to a media item, the document must contain the item, because the next model
//! call sends it.

use super::text::one_line;
use super::{MAX_NAME_LENGTH, damaged, parse_item};
use crate::media::describe;
use crate::transfer::TransferError;
use crate::transfer::document::{Batch, DocumentMedia};
use crate::transfer::staging::Staging;
use agent_core::message::{Content, Digest, Media, Part};
use agent_store::digest_of;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Stores media items. The digest and type of an item in the document must match the item's bytes. The size and
/// dimensions are determined from the bytes.
pub(super) async fn store(batch: Batch, staging: &mut Staging<'_>) -> Result<(), TransferError> {
    for (index, item) in (batch.first..).zip(batch.items) {
        let location = format!("media[{index}]");
        let DocumentMedia { media: described, base64 } = parse_item(&location, &item)?;
        let bytes = STANDARD.decode(base64.as_bytes()).map_err(|error| damaged(&location, error))?;
        drop(base64);
        drop(item);
        check_digest(&location, &described.digest, &bytes)?;
        let name = described.name.map(|name| one_line(&name, MAX_NAME_LENGTH));
        let description =
            describe(&bytes, &described.mime_type, name).map_err(|problem| damaged(&location, problem))?;
        staging.store.put(staging.session(), bytes, description).await?;
    }
    Ok(())
}

/// Replaces the descriptions of media in message parts with the descriptions of the stored bytes.
pub(super) async fn replace_descriptions_in_parts(
    parts: &mut [Part],
    location: &str,
    staging: &Staging<'_>,
) -> Result<(), TransferError> {
    for part in parts {
        match part {
            Part::Media(media) => replace_description(media, location, staging).await?,
            Part::ToolResult(result) => replace_descriptions_in_result(&mut result.content, location, staging).await?,
            _ => {}
        }
    }
    Ok(())
}

/// Replaces the descriptions of media in a tool result with the descriptions of the stored bytes.
pub(super) async fn replace_descriptions_in_result(
    content: &mut [Content],
    location: &str,
    staging: &Staging<'_>,
) -> Result<(), TransferError> {
    for content in content {
        if let Content::Media(media) = content {
            replace_description(media, location, staging).await?;
        }
    }
    Ok(())
}

/// Replaces the description of a media item with the description of the stored bytes.
async fn replace_description(media: &mut Media, location: &str, staging: &Staging<'_>) -> Result<(), TransferError> {
    let stored = staging.store.media(staging.session(), &media.digest).await?;
    let stored =
        stored.ok_or_else(|| damaged(location, format!("the media {} that it shows are missing", media.digest)))?;
    let name = media.name.take().map(|name| one_line(&name, MAX_NAME_LENGTH));
    *media = Media { name, ..stored };
    Ok(())
}

pub(super) fn check_digest(location: &str, expected: &Digest, bytes: &[u8]) -> Result<(), TransferError> {
    match digest_of(bytes) == *expected {
        true => Ok(()),
        false => Err(damaged(location, format!("its bytes do not match the digest {expected}"))),
    }
}
