//! Renders Markdown, code and differences for web pages, as trees of a few known elements. The trees contain no markup: a page
//! creates each element itself, so that a text can never become a script (row 24).

mod code;
mod difference;
mod markdown;

pub(crate) use code::{Token, highlight};
pub(crate) use difference::{DifferenceLine, difference};
pub(crate) use markdown::{Block, markdown, markdown_within};
