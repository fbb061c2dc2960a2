//! Every number of the policy, with its source. README.md says which ones could be confirmed, and when.
//!
//! *Vision guide*: OpenAI, "Images and vision", `developers.openai.com/api/docs/guides/images-vision`, the version
//! that names GPT-5.6 (2026). *File guide*: OpenAI, "File inputs",
//! `developers.openai.com/api/docs/guides/file-inputs` (2026).

/// Vision guide, "Image input requirements". The guide of 2025 said 500.
pub const MAX_IMAGES: usize = 1_500;

/// Vision guide, "Image input requirements": 512 MB of payload in one request (50 MB in 2025), read as decimal
/// megabytes of which 12 MB are left to text and tools. Media travel in base64, so four bytes for three count.
pub const MAX_PAYLOAD: u64 = 500_000_000;

/// Vision guide, "Image input requirements". A GIF must not be animated, which a description does not tell.
pub const IMAGE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/webp", "image/gif"];

/// File guide, "Usage considerations": each file must be under 50 MB, and all files of a request together as well.
pub const MAX_FILES: u64 = 50_000_000;

/// File guide: text and page images of a PDF are put into the context. Other documents are not sent by this policy.
pub const FILE_TYPE: &str = "application/pdf";

/// Side of a tile, of the square that an image must fit into, and of its shortest side: vision guide, "Tile-based image
/// tokenization".
pub const TILE: u32 = 512;
/// See [`TILE`].
pub const TILED_SQUARE: u32 = 2_048;
/// See [`TILE`].
pub const TILED_SHORTEST: u32 = 768;

/// Vision guide, "Patch-based image tokenization".
pub const PATCH: u32 = 32;

/// An image of GPT-5.6 in `original` or `auto` that needs more patches is rejected, not resized. Known from citations
/// of the guide of autumn 2026 only.
pub const MAX_PATCHES: u32 = 30_000;

/// Longest side that GPT-5.6 takes in `original`. Known from citations of the guide of autumn 2026 only.
pub const MAX_SIDE: u32 = 65_535;

/// Our own: media that the model has seen stay in the prompt only if they cost no more tokens, about four times what
/// the text costs that stands for them.
pub const SEEN_COST: u64 = 100;

/// Our own: images may take the window's tokens divided by this.
pub const WINDOW_SHARE: u64 = 4;

/// Our own: an image whose size is unknown counts as a square of this side.
pub const ASSUMED_SIDE: u32 = 2_048;
