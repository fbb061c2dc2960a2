//! Tools for notes that last from one session to the next: add, list, find, remove. They stand in the host's store, each
//! agent's for itself.

mod book;

use agent_host_sdk::prelude::*;
use book::{Book, Note};

/// The plugin.
pub struct Notes;

impl ToolPlugin for Notes {
    fn tools() -> Tools {
        Tools::new()
            .tool(
                Tool::new(
                    "notes.add",
                    "Keeps a note that later sessions can find: a fact, a decision, a preference. Returns its number.",
                )
                .title("Add a note")
                .output::<Note>()
                .run(|add: Add, _: &Call| Done::json(&Book::open()?.add(add.text, add.tags)?)),
            )
            .tool(
                Tool::new("notes.list", "Lists the latest notes, newest first; with `tag`, those that have it.")
                    .title("List notes")
                    .read_only()
                    .output::<Listing>()
                    .run(|list: List, _: &Call| {
                        let mut notes = Book::open()?.all()?;
                        if let Some(tag) = &list.tag {
                            notes.retain(|note| note.tags.iter().any(|one| one.eq_ignore_ascii_case(tag)));
                        }
                        Done::json(&Listing::new(notes, list.limit))
                    }),
            )
            .tool(
                Tool::new(
                    "notes.find",
                    "Finds notes that hold every one of some words, in their text or tags, newest first.",
                )
                .title("Find notes")
                .read_only()
                .output::<Listing>()
                .run(|find: Find, _: &Call| {
                    let words: Vec<_> = find.words.split_whitespace().map(str::to_lowercase).collect();
                    if words.is_empty() {
                        return Err(ToolError::invalid("/words", "has no words in it"));
                    }
                    let mut notes = Book::open()?.all()?;
                    notes.retain(|note| note.holds(&words));
                    Done::json(&Listing::new(notes, find.limit))
                }),
            )
            .tool(
                Tool::new("notes.remove", "Removes the note of this number for good.")
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
    /// What to keep; at most 16 KiB.
    text: String,
    /// Words to find it by.
    #[serde(default)]
    tags: Vec<String>,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// Only notes with this tag.
    #[serde(default)]
    tag: Option<String>,
    /// At most so many.
    #[serde(default = "twenty")]
    limit: usize,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Find {
    /// With spaces between; each must be there.
    words: String,
    /// At most so many.
    #[serde(default = "twenty")]
    limit: usize,
}

#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Remove {
    /// As `notes.add`, `notes.list` and `notes.find` give it.
    number: u64,
}

#[derive(Serialize, JsonSchema)]
struct Listing {
    /// Newest first.
    notes: Vec<Note>,
    /// How many more there are.
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

fn twenty() -> usize {
    20
}
