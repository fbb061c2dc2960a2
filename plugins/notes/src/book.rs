//! Stores the notes in the host's key-value store. The key of a note is its number, and a counter stores the number of
//! the last note.

use agent_host_sdk::key_value::Bucket;
use agent_host_sdk::prelude::*;

/// Maximum size of a note's text, in bytes.
const MAX_TEXT: usize = 16 * 1024;
/// Maximum number of tags of a note.
const MAX_TAGS: usize = 16;
/// Maximum size of a tag, in bytes.
const MAX_TAG: usize = 64;
/// The key under which the counter is stored. The counter contains the number of the last note.
const COUNTER: &str = "last";

/// A note.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Note {
    /// The number of the note, from 1. A number is never used twice.
    pub(crate) number: u64,
    /// The text of the note.
    pub(crate) text: String,
    /// Words for finding the note.
    #[serde(default)]
    pub(crate) tags: Vec<String>,
}

impl Note {
    /// Whether each of the words occurs in the text or in the tags of the note. The words must be in lower case.
    pub(crate) fn contains_all(&self, words: &[String]) -> bool {
        let (text, tags) = (self.text.to_lowercase(), self.tags.join(" ").to_lowercase());
        words.iter().all(|word| text.contains(word) || tags.contains(word))
    }
}

/// All notes of the agent.
pub(crate) struct Book {
    notes: Bucket,
    counter: Bucket,
}

impl Book {
    pub(crate) fn open() -> Result<Self, ToolError> {
        Ok(Self { notes: Bucket::open("notes")?, counter: Bucket::open("counter")? })
    }

    pub(crate) fn add(&self, text: String, tags: Vec<String>) -> Result<Note, ToolError> {
        if text.trim().is_empty() || text.len() > MAX_TEXT {
            return Err(ToolError::invalid("/text", format!("has {} bytes; a note has 1 to {MAX_TEXT}", text.len())));
        }
        if tags.len() > MAX_TAGS || tags.iter().any(|tag| tag.trim().is_empty() || tag.len() > MAX_TAG) {
            return Err(ToolError::invalid("/tags", format!("at most {MAX_TAGS} tags of 1 to {MAX_TAG} bytes")));
        }
        let number = self.counter.increment(COUNTER, 1)?;
        let number = u64::try_from(number).map_err(|_| ToolError::failed("the notes' counter is damaged"))?;
        let note = Note { number, text, tags };
        let json = serde_json::to_vec(&note).map_err(|error| ToolError::failed(error.to_string()))?;
        self.notes.set(&key(number), &json)?;
        Ok(note)
    }

    /// Returns all notes, oldest first. A note that cannot be read is left out, and a warning is logged.
    pub(crate) fn all(&self) -> Result<Vec<Note>, ToolError> {
        let mut notes = Vec::new();
        for key in self.notes.keys()? {
            // Another session may have removed the note after the keys were read.
            let Some(json) = self.notes.get(&key)? else { continue };
            match serde_json::from_slice(&json) {
                Ok(note) => notes.push(note),
                Err(error) => agent_host_sdk::log::warn(format!("the note {key} cannot be read: {error}")),
            }
        }
        Ok(notes)
    }

    pub(crate) fn remove(&self, number: u64) -> Result<Note, ToolError> {
        let json = self.notes.get(&key(number))?;
        let json = json.ok_or_else(|| ToolError::not_found(format!("there is no note {number}")))?;
        let note = serde_json::from_slice(&json).unwrap_or(Note { number, text: String::new(), tags: Vec::new() });
        self.notes.delete(&key(number))?;
        Ok(note)
    }
}

/// Returns the key of a note. The key is padded with zeros, so that keys are sorted by number.
fn key(number: u64) -> String {
    format!("{number:020}")
}
