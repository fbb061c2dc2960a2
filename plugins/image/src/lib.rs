//! Tools for pictures: open a file so that the model sees it, and describe, crop and scale pictures. The package is not
//! called `image`, because the package uses a crate with this name.

mod budget;
mod deliver;
mod header;
mod open;
mod picture;
mod region;
mod source;
mod work;

use agent_host_sdk::prelude::*;

/// The plugin, which has four tools for pictures.
pub struct ImagePlugin;

impl ToolPlugin for ImagePlugin {
    fn tools() -> Tools {
        Tools::new()
            .tool(
                Tool::new("image.open", OPEN)
                    .title("Open a picture")
                    .read_only()
                    .run(|arguments, _: &Call| open::open(arguments)),
            )
            .tool(
                Tool::new("image.describe", DESCRIBE)
                    .title("Describe a picture")
                    .read_only()
                    .output::<header::Description>()
                    .run(|arguments, _: &Call| Done::json(&header::describe(arguments)?)),
            )
            .tool(
                Tool::new("image.crop", CROP)
                    .title("Crop a picture")
                    .read_only()
                    .run(|arguments, _: &Call| work::crop(arguments)),
            )
            .tool(
                Tool::new("image.scale", SCALE)
                    .title("Scale a picture")
                    .read_only()
                    .run(|arguments, _: &Call| work::scale(arguments)),
            )
    }
}

const OPEN: &str = "Opens a picture file (PNG, JPEG, GIF, WebP) and shows it to you. Use it whenever you need to see \
                    what a file shows. To look closer at a part, use image.crop.";

const DESCRIBE: &str = "Returns a picture's format, width and height in pixels, colour type, bytes and orientation from \
                        its header, without showing it. `from` is a file or a picture of this conversation by its \
                        digest.";

const CROP: &str = "Cuts a rectangle out of a picture and shows it to you in full detail. `from` is a file or a picture \
                    of this conversation by its digest. Positions start at the upper left corner of the upright \
                    original, which may be larger than what you saw: with `\"unit\": \"percent\"` you need not know its \
                    size.";

const SCALE: &str = "Makes a picture smaller or larger, with the same proportions, so that it fits into `width` and \
                     `height` (at least one of them), and shows it to you. `from` is a file or a picture of this \
                     conversation by its digest. Enlarge a small crop to read tiny print.";

agent_host_sdk::export_tools!(ImagePlugin);
