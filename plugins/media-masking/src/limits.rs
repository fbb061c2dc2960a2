//! Describes which media a provider accepts and how many tokens they cost. Each policy describes its provider
//! with these types.

use agent_host_sdk::types::Dimensions;

/// The limits and costs of a provider for one model.
pub trait Provider {
    /// Returns the kind of media of this MIME type, or `None` if the provider does not accept the type.
    fn kind(&self, mime_type: &str) -> Option<Kind>;

    /// Returns the limits of the provider.
    fn limits(&self) -> Limits;

    /// Returns the cost of an image of this size, in tokens.
    fn tokens(&self, size: Dimensions) -> u64;

    /// Returns the size at which the model sees an image of this size. The result is smaller if the service reduces or
    /// rejects images of this size, and otherwise equal to `size`.
    fn seen_size(&self, size: Dimensions) -> Dimensions;
}

/// A kind of media. Each kind has its own limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// An image.
    Image,
    /// A document, such as a PDF.
    Document,
    /// A sound recording.
    Audio,
    /// A video.
    Video,
}

/// The limits of a provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Maximum number of bytes of all media of a request together, as base64 text.
    pub payload: u64,
    /// Limits on images.
    pub images: KindLimits,
    /// Limits on documents.
    pub documents: KindLimits,
    /// Limits on sound recordings.
    pub audio: KindLimits,
    /// Limits on videos.
    pub videos: KindLimits,
    /// How an image of unknown size is sent.
    pub unknown_size: UnknownSize,
}

/// The limits on media of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KindLimits {
    /// Maximum number of media items in a request.
    pub count: usize,
    /// Maximum size of one media item, in bytes.
    pub item_bytes: u64,
    /// Maximum size of all media items of this kind in a request together, in bytes.
    pub total_bytes: u64,
}

impl KindLimits {
    /// Limits that are never reached, so that media of this kind are limited only by [`Limits::payload`].
    pub const NONE: Self = Self { count: usize::MAX, item_bytes: u64::MAX, total_bytes: u64::MAX };
}

/// How an image of unknown size is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownSize {
    /// The image is sent unchanged, because the service reduces images of every size.
    Keep,
    /// The host scales the image down if it is larger than a square with sides of this length, in pixels. The host
    /// replaces the image with a text if the image cannot be decoded.
    ScaleTo(u32),
}
