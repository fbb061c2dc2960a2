//! Tools that add, list, find and remove notes. The notes are kept from one session to the next in the host's store.
//! Agents do not share notes.

mod book;

use agent_host_sdk::prelude::*;
use book::{Book, Note};

/// The plugin, which has four tools: `notes.add`, `notes.list`, `notes.find` and `notes.remove`.
pub struct Notes;

impl ToolPlugin for Notes {
    fn tools() -> Tools {
        Tools::new()
            .tool(
                Tool::new(
                    "notes.add",
                    "Adds a note that later sessions can find: a fact, a decision, a preference. Returns its number.",
                )
                .title("Add a note")
                .output::<Note>()
                .run(|add: Add, _: &Call| Done::json(&Book::open()?.add(add.text, add.tags)?)),
            )
            .tool(
                Tool::new("notes.list", "Lists the latest notes, newest first; with `tag`, only notes with that tag.")
                    .title("List notes")
                    .read_only()
                    .output::<Listing>()
                    .run(|list: List, _: &Call| {
                        let mut notes = Book::open()?.all()?;
                        if let Some(tag) = &list.tag {
                            notes.retain(|note| note.tags.iter().any(|other| other.eq_ignore_ascii_case(tag)));
                        }
                        Done::json(&Listing::new(notes, list.limit))
                    }),
            )
            .tool(
                Tool::new(
                    "notes.find",
                    "Finds notes that contain all of the given words in their text or tags, newest first.",
                )
                .title("Find notes")
                .read_only()
                .output::<Listing>()
                .run(|find: Find, _: &Call| {
                    let words: Vec<_> = find.words.split_whitespace().map(str::to_lowercase).collect();
                    if words.is_empty() {
                        return Err(ToolError::invalid("/words", "contains no words"));
                    }
                    let mut notes = Book::open()?.all()?;
                    notes.retain(|note| note.contains_all(&words));
                    Done::json(&Listing::new(notes, find.limit))
                }),
            )
            .tool(
                Tool::new("notes.remove", "Removes the note with this number permanently.")
                    .title("Remove a note")
                    .destructive()
                    .idempotent()
                    .run(|remove: Remove, _: &Call| {
                        let note = Book::open()?.remove(remove.number)?;
                        Ok(Done::text(format!("Note {} is removed: {}", note.number, note.text)))
                    }),
            )
    }
}

agent_host_sdk::export_tools!(Notes);

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Add {
    /// The text of the note, at most 16 KiB.
    text: String,
    /// Words for finding the note.
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// Only notes with this tag.
    #[serde(default)]
    tag: Option<String>,
    /// Maximum number of notes to return.
    #[serde(default = "default_limit")]
    limit: usize,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Find {
    /// The words to find, separated by spaces. A note must contain all of them.
    words: String,
    /// Maximum number of notes to return.
    #[serde(default = "default_limit")]
    limit: usize,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Remove {
    /// The number of the note, as returned by `notes.add`, `notes.list` and `notes.find`.
    number: u64,
}

#[derive(Serialize, JsonSchema)]
struct Listing {
    /// The notes, newest first.
    notes: Vec<Note>,
    /// The number of further notes.
    more: usize,
}

impl Listing {
    fn new(mut notes: Vec<Note>, limit: usize) -> Self {
        notes.sort_by_key(|note| std::cmp::Reverse(note.number));
        let more = notes.len().saturating_sub(limit);
        notes.truncate(limit);
        Self { notes, more }
    }
}

fn default_limit() -> usize {
    20
}
