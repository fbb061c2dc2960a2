//! Files and folders that a prompt names with `@path`. The host reads them with the rights of the user, so only text that
//! the user typed at the terminal or on the command line is searched for such paths.

mod content;
mod location;
mod mention;

pub(crate) use mention::{open_mention, written};

use crate::environment;
use crate::exit::Failure;
use crate::terminal::{DIM, Terminal, YELLOW, text};
use agent_config::DataDirectory;
use agent_config::protection::SecretFiles;
use agent_core::message::{Part, TurnInput};
use agent_runtime::{NewMediaItem, Session};
use content::{Content, MAX_TEXT_BYTES};
use mention::mentions;
use std::path::PathBuf;

/// Maximum size, in bytes, of the texts that are attached to one prompt.
const MAX_TOTAL_BYTES: usize = 4 * MAX_TEXT_BYTES;

/// The files, folders and images that are attached to a prompt, and what the user is told about them.
#[derive(Debug, Default)]
pub(crate) struct Attachments {
    items: Vec<Item>,
    /// One line for each attachment, for display.
    attached: Vec<String>,
    /// One line for each path that was not attached, with the reason, for display.
    problems: Vec<String>,
}

#[derive(Debug)]
enum Item {
    /// The marked text of a file or of a listing.
    Text(String),
    Image(NewMediaItem),
}

impl Attachments {
    /// Reads the files and folders that a typed text names. A path that cannot be attached stays plain text, and the
    /// user is told why.
    pub(crate) fn of(typed: &str, data: &DataDirectory) -> Self {
        let mut found = Self::default();
        let mentions = mentions(typed);
        if mentions.is_empty() {
            return found;
        }
        let places = location::Places {
            folder: std::env::current_dir().unwrap_or_else(|_| PathBuf::from(".")),
            home: environment::home(),
            secrets: SecretFiles::new(data, &environment::host()),
        };
        let (mut missing, mut left) = (Vec::new(), MAX_TOTAL_BYTES);
        let mut seen = Vec::new();
        for mention in mentions {
            match places.locate(&mention) {
                Ok(None) => missing.push(format!("@{}", text::one_line(&mention.path, 60))),
                Ok(Some(located)) if seen.contains(&located.path) => {}
                Ok(Some(located)) => {
                    seen.push(located.path.clone());
                    found.add(content::read(&located), &located.shown, &mut left);
                }
                Err(problem) => found.problems.push(problem),
            }
        }
        if !missing.is_empty() {
            found.problems.push(missing_paths(&missing));
        }
        found
    }

    fn add(&mut self, content: Result<Content, String>, shown: &str, left: &mut usize) {
        match content {
            Err(problem) => self.problems.push(format!("@{shown} was not attached: {problem}")),
            Ok(Content::Text { text, .. }) if text.len() > *left => {
                let limit = text::size(MAX_TOTAL_BYTES as u64);
                self.problems.push(format!("@{shown} was not attached: the attached texts have more than {limit}"));
            }
            Ok(Content::Text { text, summary }) => {
                *left -= text.len();
                self.attached.push(format!("attached {shown}: {summary}"));
                self.items.push(Item::Text(text));
            }
            Ok(Content::Image(image)) => self.add_image(image, shown),
        }
    }

    fn add_image(&mut self, image: NewMediaItem, shown: &str) {
        let size = text::size(image.bytes.len() as u64);
        self.attached.push(format!("attached {shown}: {}, {size}", image.mime_type));
        self.items.push(Item::Image(image));
    }

    /// Adds pictures that the user pasted into the prompt.
    pub(crate) fn with_pasted(mut self, pictures: Vec<NewMediaItem>) -> Self {
        for picture in pictures {
            let name = picture.name.clone().unwrap_or_default();
            self.add_image(picture, &name);
        }
        self
    }

    /// Shows one line for each attachment and each problem.
    pub(crate) fn show(&self, terminal: &Terminal) {
        let width = terminal.width();
        for line in &self.attached {
            terminal.note(text::wrapped(&format!("{DIM}{}{DIM:#}", text::harmless(line)), width));
        }
        for line in &self.problems {
            terminal.note(text::wrapped(&format!("{YELLOW}!{YELLOW:#} {}", text::harmless(line)), width));
        }
    }

    /// Returns whether an image is attached.
    pub(crate) fn has_image(&self) -> bool {
        self.items.iter().any(|item| matches!(item, Item::Image(_)))
    }

    /// Removes the images, because the input can only be a text.
    pub(crate) fn without_images(mut self) -> Self {
        self.items.retain(|item| matches!(item, Item::Text(_)));
        self
    }

    /// Adds images that were read in another way, in front of the other attachments.
    pub(crate) fn with_images(mut self, images: Vec<NewMediaItem>) -> Self {
        self.items.splice(0..0, images.into_iter().map(Item::Image));
        self
    }

    /// Stores the images in the session, and adds all attachments to the input.
    pub(crate) async fn attach(self, session: &Session, input: TurnInput) -> Result<TurnInput, Failure> {
        if self.items.is_empty() {
            return Ok(input);
        }
        let mut parts = input.message().parts;
        for item in self.items {
            parts.push(match item {
                Item::Text(text) => Part::Text(text),
                Item::Image(image) => Part::Media(session.attach(image).await.map_err(Failure::refused)?),
            });
        }
        Ok(TurnInput::Message(parts))
    }
}

/// Says which of the paths in a prompt do not exist.
fn missing_paths(paths: &[String]) -> String {
    match paths {
        [path] => format!("there is no file or folder {path}: sent as plain text"),
        paths => format!("these files or folders do not exist: {}; sent as plain text", paths.join(", ")),
    }
}
