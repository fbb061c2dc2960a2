//! Where a picture comes from: a file of a granted tree, or a medium of the conversation.

use agent_host_sdk::prelude::*;
use agent_host_sdk::{media, trees};

/// Most bytes of a picture that is worked on. It is held twice while a JPEG is read, beside its pixels.
const MOST_BYTES: u64 = 16 * 1024 * 1024;

/// The picture to work on.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Source {
    /// A file of a granted tree, for example `pictures/plan.png`.
    Path(String),
    /// A picture of this conversation: `sha256:` and 64 hexadecimal digits, as they stand before the picture.
    Digest(String),
}

/// A picture's bytes, and what to call it.
pub(crate) struct Loaded {
    /// For messages: the path, or the name and the digest.
    pub(crate) title: String,
    /// The file's name, for new pictures that are made of it.
    pub(crate) name: String,
    pub(crate) bytes: Vec<u8>,
}

impl Source {
    /// All bytes.
    pub(crate) fn load(&self) -> Result<Loaded, ToolError> {
        match self {
            Self::Path(path) => {
                let bytes = trees::read(path, MOST_BYTES)?;
                Ok(Loaded { title: path.clone(), name: file_name(path).to_owned(), bytes })
            }
            Self::Digest(digest) => {
                let medium = media::open(digest).map_err(|error| match error {
                    media::Error::NotFound => ToolError::not_found(format!(
                        "no picture of this conversation has the digest `{digest}`; it is `sha256:` and 64 \
                         hexadecimal digits, as they stand before the picture"
                    )),
                    other => other.into(),
                })?;
                let name = medium.describe().name.unwrap_or_else(|| "picture".to_owned());
                let bytes = medium.read_all(MOST_BYTES)?;
                Ok(Loaded { title: name.clone(), name, bytes })
            }
        }
    }
}

/// What follows the last slash.
pub(crate) fn file_name(path: &str) -> &str {
    path.rsplit('/').find(|part| !part.is_empty()).unwrap_or("picture")
}
