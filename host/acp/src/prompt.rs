//! Converts the prompts of an editor, with their images and files, to prompts of the host.

use crate::text::code;
use agent_client_protocol::v1::schema::{
    BlobResourceContents, ContentBlock, EmbeddedResourceResource, ResourceLink, TextResourceContents,
};
use agent_core::message::TurnInput;
use agent_runtime::{NewMediaItem, Prompt, TreeGrant};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use std::path::PathBuf;
use url::Url;

/// Maximum number of images and files of a prompt.
const MAX_ATTACHMENTS: usize = 20;
/// Maximum total size of the images and files of a prompt, in bytes. More does not fit into a line when it is encoded.
const MAX_ATTACHED_BYTES: usize = 24 << 20;
/// Maximum size of the text of a prompt, with the text of embedded files, in bytes.
const MAX_TEXT_BYTES: usize = 1 << 20;
/// Maximum length of a name that is derived from an address, in bytes.
const MAX_NAME_BYTES: usize = 200;

/// A prompt of an editor that cannot be used. The message is for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct PromptError(String);

/// A prompt of an editor.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct EditorPrompt {
    /// The text, with links to files and embedded files.
    pub(crate) text: String,
    /// Images and other files that are not text.
    pub(crate) attachments: Vec<NewMediaItem>,
}

impl EditorPrompt {
    /// Reads the parts of a prompt. `trees` are the directories that the agent may access: files in them are named as the
    /// agent's tools name them.
    pub(crate) fn read(blocks: Vec<ContentBlock>, trees: &[TreeGrant]) -> Result<Self, PromptError> {
        let mut reader = Reader { trees, text: String::new(), files: String::new(), attachments: Vec::new(), bytes: 0 };
        for block in blocks {
            reader.add(block)?;
        }
        let Reader { mut text, files, attachments, .. } = reader;
        text.push_str(&files);
        if text.len() > MAX_TEXT_BYTES {
            return Err(PromptError(format!(
                "the prompt has {} bytes of text, with its files; the limit is {MAX_TEXT_BYTES}. Refer to large files \
                 instead of embedding them",
                text.len()
            )));
        }
        if text.trim().is_empty() && attachments.is_empty() {
            return Err(PromptError("the prompt is empty".to_owned()));
        }
        Ok(Self { text, attachments })
    }

    /// Returns the prompt as the host stores it.
    pub(crate) fn into_prompt(self) -> Prompt {
        Prompt { attachments: self.attachments, ..Prompt::new(TurnInput::Text(self.text)) }
    }
}

struct Reader<'t> {
    trees: &'t [TreeGrant],
    text: String,
    /// Embedded text files, which come after the text.
    files: String,
    attachments: Vec<NewMediaItem>,
    bytes: usize,
}

impl Reader<'_> {
    fn add(&mut self, content: ContentBlock) -> Result<(), PromptError> {
        match content {
            ContentBlock::Text(text) => self.text.push_str(&text.text),
            ContentBlock::Image(image) => self.attach(&image.data, image.mime_type, image.uri.as_deref())?,
            ContentBlock::ResourceLink(ResourceLink { uri, .. }) => {
                let shown = self.shown(&uri);
                self.text.push_str(&shown);
            }
            ContentBlock::Resource(embedded) => match embedded.resource {
                EmbeddedResourceResource::TextResourceContents(TextResourceContents { uri, text, .. }) => {
                    let shown = self.shown(&uri);
                    self.text.push_str(&shown);
                    self.files.push_str(&format!("\n\nContent of {shown}:\n{}", fenced(&text)));
                }
                EmbeddedResourceResource::BlobResourceContents(BlobResourceContents {
                    blob, mime_type, uri, ..
                }) => {
                    let shown = self.shown(&uri);
                    self.text.push_str(&shown);
                    let mime_type = mime_type.unwrap_or_else(|| "application/octet-stream".to_owned());
                    self.attach(&blob, mime_type, Some(&uri))?;
                }
                _ => return Err(unsupported("this kind of resource")),
            },
            ContentBlock::Audio(_) => return Err(unsupported("audio")),
            _ => return Err(unsupported("this kind of content")),
        }
        Ok(())
    }

    fn attach(&mut self, data: &str, mime_type: String, uri: Option<&str>) -> Result<(), PromptError> {
        if self.attachments.len() == MAX_ATTACHMENTS {
            return Err(PromptError(format!("a prompt may have at most {MAX_ATTACHMENTS} images and files")));
        }
        // The size is checked before the data is decoded.
        if self.bytes + data.len() / 4 * 3 > MAX_ATTACHED_BYTES + 3 {
            return Err(PromptError("the images and files of the prompt have more than 24 MiB in total".to_owned()));
        }
        let bytes = STANDARD
            .decode(data)
            .map_err(|_| PromptError("an image or a file of the prompt is not valid Base64".to_owned()))?;
        self.bytes += bytes.len();
        self.attachments.push(NewMediaItem { bytes, mime_type, name: uri.and_then(last_segment) });
        Ok(())
    }

    /// Returns the address of a file as Markdown. A file in a granted directory has the path that the agent's tools use.
    fn shown(&self, uri: &str) -> String {
        let guest = file_path(uri).and_then(|path| {
            let paths = self.trees.iter().filter_map(|tree| tree.path_in_guest(&path));
            paths.min_by_key(|path| path.as_os_str().len())
        });
        match guest {
            Some(path) if !path.as_os_str().is_empty() => code(&path.to_string_lossy()),
            Some(_) => code("."),
            None => code(uri),
        }
    }
}

fn unsupported(what: &str) -> PromptError {
    PromptError(format!("prompts with {what} are not supported"))
}

/// Returns the path of an address of a local file, without the lines that it may name.
fn file_path(uri: &str) -> Option<PathBuf> {
    let url = Url::parse(uri).ok().filter(|url| url.scheme() == "file")?;
    url.to_file_path().ok()
}

/// Returns the name at the end of an address.
fn last_segment(uri: &str) -> Option<String> {
    let path = file_path(uri)?;
    let name = path.file_name()?.to_string_lossy().into_owned();
    (name.len() <= MAX_NAME_BYTES && !name.contains(char::is_control)).then_some(name)
}

/// Returns the content of a file as a block of code, unchanged. The fence is longer than every fence in the text.
fn fenced(text: &str) -> String {
    let longest = text.split(|character| character != '`').map(str::len).max().unwrap_or_default();
    let fence = "`".repeat((longest + 1).max(3));
    let end = if text.ends_with('\n') { "" } else { "\n" };
    format!("{fence}\n{text}{end}{fence}\n")
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_client_protocol::v1::schema::{AudioContent, EmbeddedResource, ImageContent, TextContent};
    use agent_runtime::Access;

    fn text(text: &str) -> ContentBlock {
        ContentBlock::Text(TextContent::new(text))
    }

    /// I7: links and embedded files become text, and images become attachments.
    #[test]
    fn i7_prompts_keep_their_links_files_and_images() {
        let tree = TreeGrant { host: "/project".into(), guest: ".".into(), access: Access::Read };
        let resource = |resource| ContentBlock::Resource(EmbeddedResource::new(resource));
        let prompt = EditorPrompt::read(
            vec![
                text("Compare "),
                ContentBlock::ResourceLink(ResourceLink::new("a.rs", "file:///project/src/a%20b.rs")),
                text(" with "),
                resource(EmbeddedResourceResource::TextResourceContents(TextResourceContents::new(
                    "```x",
                    "file:///other/c.rs",
                ))),
                ContentBlock::Image(ImageContent::new("AAEC", "image/png").uri("file:///project/dot.png".to_owned())),
            ],
            &[tree],
        );
        let prompt = prompt.expect("the prompt is valid");
        assert_eq!(
            prompt.text,
            "Compare `src/a b.rs` with `file:///other/c.rs`\n\nContent of `file:///other/c.rs`:\n````\n```x\n````\n"
        );
        let image = NewMediaItem { bytes: vec![0, 1, 2], mime_type: "image/png".into(), name: Some("dot.png".into()) };
        assert_eq!(prompt.attachments, [image]);
    }

    /// I7: prompts have limits, and errors say which one was exceeded.
    #[test]
    fn i7_prompts_are_bounded() {
        let image = || ContentBlock::Image(ImageContent::new("AAEC", "image/png"));
        let large = || ContentBlock::Image(ImageContent::new("A".repeat(20 << 20), "image/png"));
        let cases = [
            (vec![], "empty"),
            (vec![text(" \n")], "empty"),
            (vec![ContentBlock::Image(ImageContent::new("%", "image/png"))], "Base64"),
            (vec![ContentBlock::Audio(AudioContent::new("AAEC", "audio/wav"))], "audio"),
            (vec![text(&"x".repeat(MAX_TEXT_BYTES + 1))], "limit is 1048576"),
            ((0..=MAX_ATTACHMENTS).map(|_| image()).collect(), "at most 20"),
            (vec![large(), large()], "24 MiB"),
        ];
        for (blocks, expected) in cases {
            let error = EditorPrompt::read(blocks, &[]).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }
}
