//! All numbers of the Gemini API that the policy uses, each with its source. README.md states which of these numbers
//! are confirmed.
//!
//! *Image guide*: Google, "Image understanding", `ai.google.dev/gemini-api/docs/image-understanding` (2026).
//! *Resolution guide*: "Media resolution", `ai.google.dev/gemini-api/docs/media-resolution` (2026). *File guide*: "File
//! input methods", `ai.google.dev/gemini-api/docs/file-input-methods` (2026). *Video guide*: "Video understanding",
//! `ai.google.dev/gemini-api/docs/video-understanding` (2026). *Firebase page*: "Supported input files and
//! requirements", `firebase.google.com/docs/ai-logic/input-file-requirements` (2026).

/// Maximum number of images in a request. Source: Firebase page. The image guide allows 3,600.
pub const MAX_IMAGES: usize = 3_000;

/// Maximum number of videos in a request to a model since Gemini 2.5. Source: video guide.
pub const MAX_VIDEOS: usize = 10;

/// Maximum number of videos in a request to an older model. Source: video guide.
pub const MAX_VIDEOS_OLD: usize = 1;

/// The first version of Gemini that accepts [`MAX_VIDEOS`] videos. Source: video guide.
pub const MANY_VIDEOS_SINCE: (u32, u32) = (2, 5);

/// Maximum payload of a request, in bytes of base64 text. Source: file guide, which allows 100 MB (20 MB until January
/// 2026). The host allows less (`media_masking::HOST_PAYLOAD`).
pub const MAX_PAYLOAD: u64 = 100_000_000;

/// Maximum size of a PDF, in bytes. Source: file guide, which allows 50 MB. The plugin assumes that the limit applies
/// to the base64 text. Three bytes of the PDF use four bytes of base64 text.
pub const MAX_PDF: u64 = 37_500_000;

/// MIME types of the images that the Gemini API accepts. Source: image guide, "Supported image formats".
pub const IMAGE_TYPES: [&str; 5] = ["image/png", "image/jpeg", "image/webp", "image/heic", "image/heif"];

/// The only type of documents that the policy sends. Source: file guide.
pub const FILE_TYPE: &str = "application/pdf";

/// MIME types of sound recordings that the Gemini API accepts. Source: Google, "Audio understanding",
/// `ai.google.dev/gemini-api/docs/audio`, which does not list `audio/mpeg` and `audio/x-wav`. These two types are other
/// names of `audio/mp3` and `audio/wav`.
pub const AUDIO_TYPES: [&str; 8] =
    ["audio/wav", "audio/x-wav", "audio/mp3", "audio/mpeg", "audio/aiff", "audio/aac", "audio/ogg", "audio/flac"];

/// MIME types of videos that the Gemini API accepts and that the host sends. Source: file guide, "Video file types".
/// The guide also lists `video/avi` and `video/mpg`, which the host does not send.
pub const VIDEO_TYPES: [&str; 7] =
    ["video/mp4", "video/mpeg", "video/quicktime", "video/webm", "video/x-flv", "video/wmv", "video/3gpp"];

/// Maximum length of a side of an image, in pixels. Larger images are scaled down by the service. Source: Firebase
/// page.
pub const MAX_SIDE: u32 = 3_072;

/// Cost of each image at the default resolution, in tokens, for the models since Gemini 3. Source: resolution guide.
pub const IMAGE_COST: u64 = 1_120;

/// The first version of Gemini with a fixed cost for each image. Source: resolution guide.
pub const FIXED_COST_SINCE: (u32, u32) = (3, 0);

/// Cost of a tile, in tokens, for the models before Gemini 3. Source: image guide, "Token calculation".
pub const TILE_COST: u64 = 258;

/// An image whose sides have at most this length, in pixels, is a single tile. The source is the same as for
/// [`TILE_COST`].
pub const ONE_TILE_SIDE: u32 = 384;

/// Minimum and maximum length of the sides of a tile, in pixels. Source: Firebase page.
pub const TILE_SIDES: (u32, u32) = (256, 768);
