//! All numbers that the policy uses, each with its source. README.md states which of these numbers are confirmed.
//!
//! *Vision guide*: OpenAI, "Images and vision", `developers.openai.com/api/docs/guides/images-vision`, the version
//! that names GPT-5.6 (2026). *File guide*: OpenAI, "File inputs",
//! `developers.openai.com/api/docs/guides/file-inputs` (2026).

/// Maximum number of images in a request. Source: vision guide, "Image input requirements". In the guide of 2025, the
/// maximum was 500.
pub const MAX_IMAGES: usize = 1_500;

/// Maximum payload of a request, in bytes. Source: vision guide, "Image input requirements", which allows 512 MB in one
/// request (50 MB in 2025). A megabyte is counted as 1,000,000 bytes, and 12 MB are reserved for text and tools. Media
/// are sent as base64, so three bytes of media use four bytes of the payload. The host allows less
/// (`media_masking::HOST_PAYLOAD`).
pub const MAX_PAYLOAD: u64 = 500_000_000;

/// MIME types of the images that OpenAI accepts. Source: vision guide, "Image input requirements". OpenAI rejects
/// animated GIFs, but the description of a media item does not state whether a GIF is animated.
pub const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "image/gif"];

/// Maximum size of each file, and of all files of a request together, in bytes. Source: file guide, "Usage
/// considerations", which requires sizes under 50 MB.
pub const MAX_FILES: u64 = 49_999_999;

/// The only type of documents that the policy sends. Source: file guide. OpenAI adds the text of a PDF and an image of
/// each page to the context.
pub const FILE_TYPE: &str = "application/pdf";

/// Length of the sides of a tile, in pixels. Source: vision guide, "Tile-based image tokenization".
pub const TILE: u32 = 512;
/// An image is first scaled down until it fits into a square with sides of this length, in pixels. The source is the
/// same as for [`TILE`].
pub const TILED_SQUARE: u32 = 2_048;
/// After an image has been scaled down to [`TILED_SQUARE`], it is scaled down until its shorter side has at most this
/// length, in pixels. The source is the same as for [`TILE`].
pub const TILED_SHORTEST: u32 = 768;

/// Length of the sides of a patch, in pixels. Source: vision guide, "Patch-based image tokenization".
pub const PATCH: u32 = 32;

/// Maximum number of patches of an image. At the levels of detail `original` and `auto`, GPT-5.6 rejects larger images
/// instead of resizing them. We have not read this number in OpenAI's vision guide of autumn 2026 itself; it comes from
/// texts that quote the guide.
pub const MAX_PATCHES: u32 = 30_000;

/// Maximum length of a side of an image that GPT-5.6 accepts at the level of detail `original`, in pixels. We have
/// not read this number in OpenAI's vision guide of autumn 2026 itself; it comes from texts that quote the guide.
pub const MAX_SIDE: u32 = 65_535;
