//! All numbers that the policy uses, with their sources. README.md states which of these numbers are confirmed.
//!
//! *Vision guide*: OpenAI, "Images and vision", `developers.openai.com/api/docs/guides/images-vision`, the version
//! that names GPT-5.6 (2026). *File guide*: OpenAI, "File inputs",
//! `developers.openai.com/api/docs/guides/file-inputs` (2026).

/// Maximum number of images in a request. Source: vision guide, "Image input requirements". The maximum in the guide of
/// 2025 is 500.
pub const MAX_IMAGES: usize = 1_500;

/// Maximum payload of a request, in bytes. Source: vision guide, "Image input requirements", which allows 512 MB in one
/// request (50 MB in 2025). The megabytes are treated as decimal, and 12 MB are reserved for text and tools. Media are
/// sent as base64, so three bytes count as four.
pub const MAX_PAYLOAD: u64 = 500_000_000;

/// Accepted image types. Source: vision guide, "Image input requirements". OpenAI rejects animated GIFs, but the
/// description of a media item does not contain whether a GIF is animated.
pub const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "image/gif"];

/// Maximum size of files, in bytes. Source: file guide, "Usage considerations". Each file, and all files of a request
/// together, must be under 50 MB.
pub const MAX_FILES: u64 = 50_000_000;

/// Accepted file type. Source: file guide. The text and the page images of a PDF are added to the context. This policy
/// sends no other documents.
pub const FILE_TYPE: &str = "application/pdf";

/// Side of a tile, in pixels. Source: vision guide, "Tile-based image tokenization".
pub const TILE: u32 = 512;
/// Side of the square that an image is scaled down to fit into, in pixels. The source is the same as for [`TILE`].
pub const TILED_SQUARE: u32 = 2_048;
/// Length of the shortest side after scaling, in pixels. The source is the same as for [`TILE`].
pub const TILED_SHORTEST: u32 = 768;

/// Side of a patch, in pixels. Source: vision guide, "Patch-based image tokenization".
pub const PATCH: u32 = 32;

/// Maximum number of patches. GPT-5.6 rejects larger images in `original` or `auto` instead of resizing them. Known
/// only from citations of the guide of autumn 2026.
pub const MAX_PATCHES: u32 = 30_000;

/// Maximum side that GPT-5.6 accepts in `original`, in pixels. Known only from citations of the guide of autumn 2026.
pub const MAX_SIDE: u32 = 65_535;

/// Maximum cost of media that stay in the prompt after the model has seen them, in tokens. The number is chosen by this
/// plugin: it is about four times the cost of the text that replaces a media item.
pub const SEEN_COST: u64 = 100;

/// Divisor for the context window: images may use at most the tokens of the context window divided by this number. The
/// number is chosen by this plugin.
pub const WINDOW_SHARE: u64 = 4;

/// An image of unknown size is treated as a square with this side, in pixels. The number is chosen by this plugin.
pub const ASSUMED_SIDE: u32 = 2_048;
