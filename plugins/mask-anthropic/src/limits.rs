//! The numbers from Anthropic's guides that the policy uses, each with its source. README.md states which of these
//! numbers are confirmed.
//!
//! *Vision guide*: Anthropic, "Vision", `platform.claude.com/docs/en/build-with-claude/vision` (2026). *Coordinates
//! guide*: "Coordinates and bounding boxes", `platform.claude.com/docs/en/build-with-claude/vision-coordinates` (2026).
//! *PDF guide*: "PDF support", `platform.claude.com/docs/en/build-with-claude/pdf-support` (2026).

/// Maximum number of images in a request to a model whose context window is smaller than [`LARGE_WINDOW`]. Source:
/// vision guide, "Request limits", which names this number for models with a context window of 200,000 tokens.
pub const MAX_IMAGES: usize = 100;

/// Maximum number of images in a request to a model with a large context window. The source is the same as for
/// [`MAX_IMAGES`].
pub const MAX_IMAGES_LARGE_WINDOW: usize = 600;

/// Smallest context window, in tokens, that counts as large. Source: PDF guide, "Check PDF requirements". The guide
/// limits the pages of PDFs to the same two numbers (100 and 600), and the larger number applies from this window size.
pub const LARGE_WINDOW: u32 = 1_000_000;

/// Maximum payload of a request, in bytes. Source: vision guide, "Request limits", which allows 32 MB in one request. A
/// megabyte is counted as 1,000,000 bytes, and 2 MB are reserved for text and tools. Media are sent as base64, so three
/// bytes of media use four bytes of the payload.
pub const MAX_PAYLOAD: u64 = 30_000_000;

/// Maximum size of an image, in bytes. Source: vision guide, "Request limits", which allows 10 MB as base64 text. Three
/// bytes of the image use four bytes of base64 text.
pub const MAX_IMAGE: u64 = 7_500_000;

/// MIME types of the images that Anthropic accepts. Source: vision guide, "Supported formats". A model sees only the
/// first frame of an animated image.
pub const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

/// The only type of documents that the policy sends. Source: PDF guide. Anthropic adds the text of a PDF and an image
/// of each page to the context.
pub const FILE_TYPE: &str = "application/pdf";

/// Maximum number of images and documents in a request with images larger than [`MANY_IMAGES_SIDE`]. Source: vision
/// guide, "Request limits". Only Amazon Bedrock and Google Cloud include documents in this limit.
pub const MAX_LARGE_IMAGES: usize = 20;

/// Maximum length of a side of each image, in pixels, in a request with more images and documents than
/// [`MAX_LARGE_IMAGES`]. The source is the same as for [`MAX_LARGE_IMAGES`].
pub const MANY_IMAGES_SIDE: u32 = 2_000;

/// Length of the sides of a patch, in pixels. A patch costs one token. Source: vision guide, "Resolution and token
/// cost".
pub const PATCH: u32 = 28;

/// Limits of an image that a model sees: the maximum length of a side in pixels, and the maximum number of patches.
/// Larger images are scaled down by the service. The source is the same as for [`PATCH`].
pub const STANDARD: (u32, u32) = (1_568, 1_568);

/// The same limits as [`STANDARD`], for the models since [`HIGH_RESOLUTION_SINCE`].
pub const HIGH_RESOLUTION: (u32, u32) = (2_576, 4_784);

/// The first version of Claude that sees images in high resolution. Source: vision guide, "Resolution and token cost".
pub const HIGH_RESOLUTION_SINCE: (u32, u32) = (4, 7);
