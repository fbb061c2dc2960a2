//! The notes in the host's key-value store: each under its number, which is counted there, too.

use agent_host_sdk::key_value::Bucket;
use agent_host_sdk::prelude::*;

/// Bytes of a note's text.
const LONGEST: usize = 16 * 1024;
/// Tags of a note, and bytes of each.
const TAGS: usize = 16;
const TAG: usize = 64;
/// Under which the last number stands.
const COUNTER: &str = "last";

/// A note.
#[derive(Serialize, Deserialize, JsonSchema)]
pub(crate) struct Note {
    /// From 1; never given twice.
    pub(crate) number: u64,
    /// What was kept.
    pub(crate) text: String,
    /// Words to find it by.
    #[serde(default)]
    pub(crate) tags: Vec<String>,
}

impl Note {
    /// Whether every one of these words, in small letters, is in the text or the tags.
    pub(crate) fn holds(&self, words: &[String]) -> bool {
        let (text, tags) = (self.text.to_lowercase(), self.tags.join(" ").to_lowercase());
        words.iter().all(|word| text.contains(word) || tags.contains(word))
    }
}

/// All notes of this agent.
pub(crate) struct Book {
    notes: Bucket,
    counter: Bucket,
}

impl Book {
    pub(crate) fn open() -> Result<Self, ToolError> {
        Ok(Self { notes: Bucket::open("notes")?, counter: Bucket::open("counter")? })
    }

    pub(crate) fn add(&self, text: String, tags: Vec<String>) -> Result<Note, ToolError> {
        if text.trim().is_empty() || text.len() > LONGEST {
            return Err(ToolError::invalid("/text", format!("has {} bytes; a note has 1 to {LONGEST}", text.len())));
        }
        if tags.len() > TAGS || tags.iter().any(|tag| tag.trim().is_empty() || tag.len() > TAG) {
            return Err(ToolError::invalid("/tags", format!("at most {TAGS} tags of 1 to {TAG} bytes")));
        }
        let number = self.counter.increment(COUNTER, 1)?;
        let number = u64::try_from(number).map_err(|_| ToolError::failed("the notes' counter is damaged"))?;
        let note = Note { number, text, tags };
        let json = serde_json::to_vec(&note).map_err(|error| ToolError::failed(error.to_string()))?;
        self.notes.set(&key(number), &json)?;
        Ok(note)
    }

    /// Oldest first. What cannot be read is left out, and said in the log.
    pub(crate) fn all(&self) -> Result<Vec<Note>, ToolError> {
        let mut notes = Vec::new();
        for key in self.notes.keys()? {
            // A note may be removed by another session meanwhile.
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

/// So that keys are in the order of their numbers.
fn key(number: u64) -> String {
    format!("{number:020}")
}
