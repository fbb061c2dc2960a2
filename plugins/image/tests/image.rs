//! Tests of the picture tools (P2, S7) with real pictures and decompression bombs, and tests of error messages.

use agent_host_sdk::prelude::*;
use agent_host_sdk::testing::Host;
use image::metadata::Orientation;
use image::{DynamicImage, GenericImageView, ImageEncoder, ImageFormat, Rgb, RgbImage, Rgba, RgbaImage};
use image_plugin::ImagePlugin;
use std::io::Cursor;
use tempfile::TempDir;

/// A directory with pictures, and a test host that grants the directory to the plugin.
struct Pictures {
    directory: TempDir,
    host: Host,
}

impl Pictures {
    fn new() -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let host = Host::new().tree(directory.path().display().to_string());
        Self { directory, host }
    }

    fn path(&self, name: &str) -> String {
        self.directory.path().join(name).display().to_string()
    }

    fn file(&self, name: &str, bytes: &[u8]) -> Value {
        std::fs::write(self.path(name), bytes).expect("written");
        json!({ "path": self.path(name) })
    }

    fn call(&mut self, name: &str, arguments: Value) -> Result<Done, ToolError> {
        let outcome = self.host.run(|| ImagePlugin::tools().call(name, arguments));
        outcome.map(|outcome| outcome.done().expect("done"))
    }

    fn error(&mut self, name: &str, arguments: Value) -> String {
        self.call(name, arguments).expect_err("refused").message()
    }

    /// Returns the bytes and the name of the picture in a result.
    fn picture(&self, done: &Done) -> (Vec<u8>, String) {
        let found = done.content.iter().find_map(|content| match content {
            Content::NewMedia(new) => Some((new.data.clone(), new.name.clone().expect("a name"))),
            Content::StoredMedia(digest) => {
                let media = self.host.media().into_iter().find(|media| media.digest == *digest).expect("stored");
                Some((self.host.bytes(digest).expect("stored").to_vec(), media.name.expect("a name")))
            }
            _ => None,
        });
        found.unwrap_or_else(|| panic!("no picture in {done:?}"))
    }
}

/// Returns a picture whose four quarters are red, green, blue and white.
fn quarters(width: u32, height: u32) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| match (x < width / 2, y < height / 2) {
        (true, true) => Rgb([255, 0, 0]),
        (false, true) => Rgb([0, 255, 0]),
        (true, false) => Rgb([0, 0, 255]),
        (false, false) => Rgb([255, 255, 255]),
    })
}

fn encoded(picture: impl Into<DynamicImage>, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    picture.into().write_to(&mut bytes, format).expect("encoded");
    bytes.into_inner()
}

/// Returns a JPEG whose stored pixels must be turned by 90 degrees.
fn sideways_jpeg(picture: &RgbImage) -> Vec<u8> {
    let mut exif = b"II\x2a\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0".to_vec();
    exif.extend([Orientation::Rotate90.to_exif(), 0, 0, 0, 0, 0, 0, 0]);
    let mut bytes = Vec::new();
    let mut encoder = image::codecs::jpeg::JpegEncoder::new_with_quality(&mut bytes, 95);
    encoder.set_exif_metadata(exif).expect("EXIF");
    encoder.encode_image(picture).expect("encoded");
    bytes
}

/// Returns a PNG whose header claims the given size, but which contains only a few bytes of pixels.
fn bomb(width: u32, height: u32) -> Vec<u8> {
    let mut bytes = encoded(DynamicImage::new_luma8(1, 1), ImageFormat::Png);
    bytes[16..20].copy_from_slice(&width.to_be_bytes());
    bytes[20..24].copy_from_slice(&height.to_be_bytes());
    let sum = crc(&bytes[12..29]);
    bytes[29..33].copy_from_slice(&sum.to_be_bytes());
    bytes
}

/// Returns the checksum of a PNG chunk.
fn crc(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(u32::MAX, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| if sum & 1 == 1 { 0xedb8_8320 ^ (sum >> 1) } else { sum >> 1 })
    })
}

#[test]
fn open_returns_the_unchanged_file() {
    let mut pictures = Pictures::new();
    let png = encoded(quarters(40, 20), ImageFormat::Png);
    let file = pictures.file("a.png", &png);
    let done = pictures.call("image.open", file).expect("opened");
    assert_eq!(done.texts(), format!("a.png: image/png, 40 × 20 pixels, {} bytes", png.len()));
    assert!(matches!(done.content[1], Content::NewMedia(_)), "the picture is in the result itself");
    assert_eq!(pictures.picture(&done), (png.clone(), "a.png".to_owned()));
    // If a file contains bytes after the end of the PNG data, the returned picture contains these bytes.
    let mut large = png;
    large.resize(5_000_000, 7);
    let file = pictures.file("large.png", &large);
    let done = pictures.call("image.open", file).expect("opened");
    assert!(matches!(done.content[1], Content::StoredMedia(_)), "the picture is in the media store");
    assert_eq!(pictures.picture(&done), (large, "large.png".to_owned()));
}

#[test]
fn describe_reads_the_header_of_every_format() {
    let mut pictures = Pictures::new();
    let transparent = RgbaImage::from_pixel(30, 10, Rgba([1, 2, 3, 4]));
    let cases = [
        ("a.png", encoded(transparent.clone(), ImageFormat::Png), "PNG", "rgb+alpha, 8 bits", 1),
        ("a.jpg", encoded(quarters(30, 10), ImageFormat::Jpeg), "JPEG", "rgb, 8 bits", 1),
        ("a.gif", encoded(transparent.clone(), ImageFormat::Gif), "GIF", "rgb+alpha, 8 bits", 1),
        ("a.webp", encoded(transparent, ImageFormat::WebP), "WebP", "rgb+alpha, 8 bits", 1),
        ("sideways.jpg", sideways_jpeg(&quarters(10, 30)), "JPEG", "rgb, 8 bits", 6),
    ];
    for (name, bytes, format, colour, orientation) in cases {
        let from = pictures.file(name, &bytes);
        let about = pictures.call("image.describe", json!({ "from": from })).expect(name).value().expect("JSON");
        let expected = json!({
            "format": format, "mime_type": format!("image/{}", format.to_lowercase()), "width": 30, "height": 10,
            "colour": colour, "bytes": bytes.len(), "exif_orientation": orientation,
        });
        assert_eq!(about, expected, "{name}");
    }
}

#[test]
fn crop_accepts_pixels_and_percentages_of_the_upright_picture() {
    let mut pictures = Pictures::new();
    let from = pictures.file("four.png", &encoded(quarters(100, 60), ImageFormat::Png));
    let arguments = json!({ "from": from, "x": 50, "y": 0, "width": 10, "height": 10 });
    let done = pictures.call("image.crop", arguments).expect("cropped");
    let (bytes, name) = pictures.picture(&done);
    let crop = image::load_from_memory(&bytes).expect("a picture");
    assert_eq!((crop.dimensions(), name.as_str()), ((10, 10), "four-crop.png"));
    assert!(crop.to_rgb8().pixels().all(|pixel| *pixel == Rgb([0, 255, 0])), "the green quarter");
    assert!(done.texts().starts_with("The rectangle of 10 × 10 pixels at 50, 0 of "), "{}", done.texts());
    let arguments =
        json!({ "from": from, "x": 50, "y": 50, "width": 80, "height": 80, "unit": "percent", "format": "jpeg" });
    let done = pictures.call("image.crop", arguments).expect("cropped");
    let (bytes, name) = pictures.picture(&done);
    assert_eq!((image::guess_format(&bytes).expect("known"), name.as_str()), (ImageFormat::Jpeg, "four-crop.jpg"));
    let crop = image::load_from_memory(&bytes).expect("a picture");
    assert_eq!(crop.dimensions(), (50, 30), "the part outside is left out");
    assert!(crop.to_rgb8().pixels().all(|pixel| pixel.0.iter().all(|channel| *channel > 250)), "the white quarter");
    // The upper left quarter of the upright picture is the lower left quarter of the stored picture.
    let from = pictures.file("sideways.jpg", &sideways_jpeg(&quarters(160, 80)));
    let arguments = json!({ "from": from, "x": 4, "y": 4, "width": 30, "height": 60 });
    let done = pictures.call("image.crop", arguments).expect("cropped");
    let crop = image::load_from_memory(&pictures.picture(&done).0).expect("a picture").to_rgb8();
    assert_eq!(crop.dimensions(), (30, 60));
    let Rgb([red, _, blue]) = *crop.get_pixel(10, 10);
    assert!(blue > 200 && red < 60, "{red} {blue}");
}

#[test]
fn scale_fits_reduces_enlarges_and_keeps_transparency() {
    let mut pictures = Pictures::new();
    let from = pictures.file("four.png", &encoded(quarters(400, 200), ImageFormat::Png));
    for (arguments, size) in [
        (json!({ "width": 100 }), (100, 50)),
        (json!({ "width": 100, "height": 10 }), (20, 10)),
        (json!({ "height": 400 }), (800, 400)),
        (json!({ "width": 400 }), (400, 200)),
    ] {
        let mut arguments = arguments;
        arguments["from"] = from.clone();
        let done = pictures.call("image.scale", arguments).expect("scaled");
        let picture = image::load_from_memory(&pictures.picture(&done).0).expect("a picture").to_rgb8();
        assert_eq!(picture.dimensions(), size);
        assert_eq!(*picture.get_pixel(1, 1), Rgb([255, 0, 0]), "{size:?}");
        assert_eq!(*picture.get_pixel(size.0 - 2, 1), Rgb([0, 255, 0]), "{size:?}");
    }
    let veil = RgbaImage::from_pixel(64, 64, Rgba([9, 8, 7, 100]));
    let from = pictures.file("veil.webp", &encoded(veil, ImageFormat::WebP));
    let done = pictures.call("image.scale", json!({ "from": from, "width": 8 })).expect("scaled");
    let (bytes, name) = pictures.picture(&done);
    assert_eq!(name, "veil-8x8.png");
    assert_eq!(*image::load_from_memory(&bytes).expect("a picture").to_rgba8().get_pixel(3, 3), Rgba([9, 8, 7, 100]));
    let done = pictures.call("image.scale", json!({ "from": from, "width": 8, "format": "jpeg" })).expect("scaled");
    let opaque = image::load_from_memory(&pictures.picture(&done).0).expect("a picture").to_rgb8();
    assert!(opaque.get_pixel(3, 3).0.iter().all(|channel| (150..170).contains(channel)), "on white");
}

#[test]
fn loads_a_picture_of_the_conversation_by_digest() {
    let mut pictures = Pictures::new();
    let digest = pictures.host.medium(encoded(quarters(40, 20), ImageFormat::Png), "image/png", Some("shown.png"));
    let from = json!({ "digest": digest });
    let done = pictures.call("image.scale", json!({ "from": from, "width": 10 })).expect("scaled");
    assert_eq!(pictures.picture(&done).1, "shown-10x5.png");
    let missing = json!({ "from": { "digest": format!("sha256:{}", "0".repeat(64)) } });
    let error = pictures.call("image.describe", missing).expect_err("the picture does not exist");
    assert!(
        matches!(&error, ToolError::NotFound(text) if text.contains("no picture of this conversation")),
        "{error:?}"
    );
}

/// Row 34: before a tool decodes a picture, the tool checks the size that the header claims.
#[test]
fn row_34_rejects_bombs_by_their_headers() {
    let mut pictures = Pictures::new();
    let bytes = bomb(60_000, 60_000);
    assert!(bytes.len() < 100);
    let file = pictures.file("bomb.png", &bytes);
    let crop = json!({ "from": file, "x": 0, "y": 0, "width": 1, "height": 1 });
    for (tool, arguments) in [
        ("image.open", file.clone()),
        ("image.describe", json!({ "from": file })),
        ("image.crop", crop),
        ("image.scale", json!({ "from": file, "width": 9 })),
    ] {
        let error = pictures.error(tool, arguments);
        assert!(error.contains("claims 3600.0 megapixels; the limit is 64.0"), "{tool}: {error}");
    }
    let from = pictures.file("wide.png", &bomb(30_000, 2_000));
    let error = pictures.error("image.scale", json!({ "from": from, "width": 9 }));
    assert!(
        error.contains("cannot be decoded"),
        "60 megapixels of grey are within the limit, but the pixels are missing: {error}"
    );
}

#[test]
fn p2_errors_name_the_problem_and_the_argument() {
    let mut pictures = Pictures::new();
    let from = pictures.file("a.png", &encoded(quarters(10, 10), ImageFormat::Png));
    let text = pictures.file("note.txt", b"no picture at all");
    let mut cut = encoded(quarters(64, 64), ImageFormat::Png);
    cut.truncate(120);
    let cut = pictures.file("cut.png", &cut);
    let empty = pictures.file("empty.gif", b"GIF89a\0\0\x10\x27\0\0\0,\0\0\0\0\x01\0\x01\0\0\x02\x02\x44\x01\0;");
    let absent = json!({ "path": pictures.path("absent.png") });
    let cases = [
        ("image.open", text.clone(), "is not a PNG, JPEG, GIF or WebP picture"),
        ("image.open", empty.clone(), "has no pixels"),
        ("image.scale", json!({ "from": empty, "width": 5 }), "has no pixels"),
        ("image.open", absent, "there is no `"),
        ("image.open", json!({ "path": "/etc/hostname" }), "outside of the granted trees"),
        ("image.describe", json!({ "from": text }), "is not a PNG, JPEG, GIF or WebP picture"),
        ("image.scale", json!({ "from": cut, "width": 5 }), "cannot be decoded"),
        ("image.scale", json!({ "from": from }), "needs `width` or `height`"),
        ("image.scale", json!({ "from": from, "width": 0 }), "/width: must be 1 to 16384"),
        ("image.scale", json!({ "from": from, "width": 9_000 }), "an enlarged picture has at most 4000000"),
        ("image.crop", json!({ "from": from, "x": 10, "y": 0, "width": 1, "height": 1 }), "/x: is outside"),
        ("image.crop", json!({ "from": from, "x": 0, "y": 0, "width": 1, "height": 0 }), "/height: must be more"),
    ];
    for (tool, arguments, expected) in cases {
        let error = pictures.error(tool, arguments.clone());
        assert!(error.contains(expected), "{tool} {arguments}: {error}");
    }
}

#[test]
fn tools_are_marked_as_read_only_and_have_descriptions() {
    for definition in ImagePlugin::tools().definitions() {
        assert!(definition.traits.contains(agent_host_sdk::tool::Traits::READ_ONLY), "{}", definition.name);
        assert!((80..2_048).contains(&definition.description.len()), "{}", definition.name);
        assert!(definition.input_schema.contains("\"additionalProperties\":false"), "{}", definition.input_schema);
    }
}
