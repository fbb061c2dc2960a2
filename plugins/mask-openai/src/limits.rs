//! All numbers of the policy with their sources. README.md says which ones are confirmed, and when.
//!
//! *Vision guide*: OpenAI, "Images and vision", `developers.openai.com/api/docs/guides/images-vision`, the version
//! that names GPT-5.6 (2026). *File guide*: OpenAI, "File inputs",
//! `developers.openai.com/api/docs/guides/file-inputs` (2026).

/// Maximum number of images. Vision guide, "Image input requirements". The guide of 2025 said 500.
pub const MAX_IMAGES: usize = 1_500;

/// Maximum payload in bytes. Vision guide, "Image input requirements": 512 MB in one request (50 MB in 2025), read as
/// decimal megabytes, of which 12 MB are reserved for text and tools. Media are sent as base64, so three bytes count
/// as four.
pub const MAX_PAYLOAD: u64 = 500_000_000;

/// Accepted image types. Vision guide, "Image input requirements". A GIF must not be animated, but the description
/// does not say so.
pub const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "image/gif"];

/// Maximum size of files in bytes. File guide, "Usage considerations": each file, and all files of a request
/// together, must be under 50 MB.
pub const MAX_FILES: u64 = 50_000_000;

/// Accepted file type. File guide: text and page images of a PDF are added to the context. This policy sends no other
/// documents.
pub const FILE_TYPE: &str = "application/pdf";

/// Side of a tile in pixels. Vision guide, "Tile-based image tokenization".
pub const TILE: u32 = 512;
/// Side of the square that an image must fit into. See [`TILE`].
pub const TILED_SQUARE: u32 = 2_048;
/// Length of the shortest side after scaling. See [`TILE`].
pub const TILED_SHORTEST: u32 = 768;

/// Side of a patch in pixels. Vision guide, "Patch-based image tokenization".
pub const PATCH: u32 = 32;

/// Maximum number of patches. GPT-5.6 rejects larger images in `original` or `auto` instead of resizing them. Known
/// only from citations of the guide of autumn 2026.
pub const MAX_PATCHES: u32 = 30_000;

/// Longest side that GPT-5.6 accepts in `original`. Known only from citations of the guide of autumn 2026.
pub const MAX_SIDE: u32 = 65_535;

/// Chosen by this plugin: media that the model has seen stay in the prompt only up to this cost in tokens, about four
/// times the cost of the text that replaces them.
pub const SEEN_COST: u64 = 100;

/// Chosen by this plugin: images may use the window's tokens divided by this number.
pub const WINDOW_SHARE: u64 = 4;

/// Chosen by this plugin: an image of unknown size counts as a square with this side.
pub const ASSUMED_SIDE: u32 = 2_048;
