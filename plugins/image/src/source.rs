//! Loads a picture from a file of a granted tree, or from the media of the conversation.

use agent_host_sdk::prelude::*;
use agent_host_sdk::{media, trees};

/// Maximum size of a picture to process, in bytes. While a JPEG is read, its bytes are in memory twice, in addition
/// to the pixels.
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

/// The bytes of a picture, and its names.
pub(crate) struct LoadedPicture {
    /// The name in messages: the path, or the medium's name.
    pub(crate) title: String,
    /// The file name, which names of new pictures are derived from.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl Source {
    /// Reads all bytes.
    pub(crate) fn load(&self) -> Result<LoadedPicture, ToolError> {
        match self {
            Self::Path(path) => {
                let bytes = trees::read(path, MAX_BYTES)?;
                Ok(LoadedPicture { title: path.clone(), name: file_name(path).to_owned(), bytes })
            }
            Self::Digest(digest) => {
                let medium = media::open(digest).map_err(|error| match error {
                    media::Error::NotFound => ToolError::not_found(format!(
                        "no picture of this conversation has the digest `{digest}`; it is `sha256:` and 64 \
                         hexadecimal digits, as written before the picture"
                    )),
                    other => other.into(),
                })?;
                let name = medium.describe().name.unwrap_or_else(|| "picture".to_owned());
                let bytes = medium.read_all(MAX_BYTES)?;
                Ok(LoadedPicture { title: name.clone(), name, bytes })
            }
        }
    }
}

/// The part after the last slash.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("picture")
}
