//! Loads a picture from a file in a granted tree, or from the media of the conversation.

use agent_host_sdk::prelude::*;
use agent_host_sdk::{media, trees};

/// Maximum number of bytes of a picture that is decoded. The limit is low because, while a JPEG is decoded, the memory
/// contains the pixels and two copies of the JPEG file.
const MAX_BYTES: u64 = 16 * 1024 * 1024;

/// The picture to process.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    /// A file of a granted tree, for example `pictures/plan.png`.
    Path(String),
    /// A picture of this conversation: `sha256:` and 64 hexadecimal digits, as written before the picture.
    Digest(String),
}

/// The bytes of a picture, with a name for messages and a name from which the names of new pictures are derived.
pub(crate) struct LoadedPicture {
    /// The name in messages: the path of the file, or the name of the media item.
    pub(crate) title: String,
    /// The name from which the names of new pictures are derived.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl Source {
    /// Reads all bytes of the picture.
    pub(crate) fn load(&self) -> Result<LoadedPicture, ToolError> {
        match self {
            Self::Path(path) => {
                let bytes = trees::read(path, MAX_BYTES)?;
                Ok(LoadedPicture { title: path.clone(), name: file_name(path).to_owned(), bytes })
            }
            Self::Digest(digest) => {
                let media_item = media::open(digest).map_err(|error| match error {
                    media::Error::NotFound => ToolError::not_found(format!(
                        "no picture of this conversation has the digest `{digest}`; it is `sha256:` and 64 \
                         hexadecimal digits, as written before the picture"
                    )),
                    other => other.into(),
                })?;
                let name = media_item.describe().name.unwrap_or_else(|| "picture".to_owned());
                let bytes = media_item.read_all(MAX_BYTES)?;
                Ok(LoadedPicture { title: name.clone(), name, bytes })
            }
        }
    }
}

/// Returns the part of a path after the last slash.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("picture")
}
