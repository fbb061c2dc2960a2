//! The input history of all sessions: a file of limited size that only its owner can read.

use reedline::{FileBackedHistory, History, HistoryItem, HistoryItemId, HistorySessionId, ReedlineError, SearchQuery};
use std::fs::OpenOptions;
use std::path::Path;

/// Maximum number of inputs in the history.
const MAX_INPUTS: usize = 1_000;
/// Maximum size in bytes of an input in the history. Longer inputs, such as pasted documents, are not saved.
const MAX_INPUT_BYTES: usize = 8 * 1024;

/// Opens the history file, and creates it if it does not exist.
pub(super) fn open_history(file: &Path) -> Result<BoundedHistory, String> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file).map_err(|error| error.to_string())?;
    let inner = FileBackedHistory::with_file(MAX_INPUTS, file.to_owned()).map_err(|error| error.to_string())?;
    Ok(BoundedHistory { inner })
}

/// A history that does not save inputs longer than [`MAX_INPUT_BYTES`].
#[derive(Debug)]
pub(super) struct BoundedHistory {
    inner: FileBackedHistory,
}

impl History for BoundedHistory {
    fn save(&mut self, item: HistoryItem) -> Result<HistoryItem, ReedlineError> {
        if item.command_line.len() > MAX_INPUT_BYTES { Ok(item) } else { self.inner.save(item) }
    }

    fn load(&self, id: HistoryItemId) -> Result<HistoryItem, ReedlineError> {
        self.inner.load(id)
    }

    fn count(&self, query: SearchQuery) -> Result<i64, ReedlineError> {
        self.inner.count(query)
    }

    fn search(&self, query: SearchQuery) -> Result<Vec<HistoryItem>, ReedlineError> {
        self.inner.search(query)
    }

    fn update(&mut self, id: HistoryItemId, update: &dyn Fn(HistoryItem) -> HistoryItem) -> Result<(), ReedlineError> {
        self.inner.update(id, update)
    }

    fn clear(&mut self) -> Result<(), ReedlineError> {
        self.inner.clear()
    }

    fn delete(&mut self, id: HistoryItemId) -> Result<(), ReedlineError> {
        self.inner.delete(id)
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.inner.sync()
    }

    fn session(&self) -> Option<HistorySessionId> {
        self.inner.session()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reedline::SearchDirection;

    fn inputs(history: &BoundedHistory) -> Vec<String> {
        let items = history.search(SearchQuery::everything(SearchDirection::Forward, None)).expect("searched");
        items.into_iter().map(|item| item.command_line).collect()
    }

    #[test]
    fn history_is_private_and_bounded() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("history");
        let mut history = open_history(&file).expect("opened");
        for text in ["one", "two\nlines", &"x".repeat(MAX_INPUT_BYTES + 1)] {
            history.save(HistoryItem::from_command_line(text)).expect("saved");
        }
        history.sync().expect("written");
        assert_eq!(inputs(&open_history(&file).expect("opened again")), ["one", "two\nlines"]);
        #[cfg(unix)]
        {
            let mode = std::fs::metadata(&file).expect("there").permissions();
            assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
        }
        for number in 0..MAX_INPUTS + 10 {
            history.save(HistoryItem::from_command_line(number.to_string())).expect("saved");
        }
        history.sync().expect("written");
        assert_eq!(inputs(&open_history(&file).expect("opened again")).len(), MAX_INPUTS);
    }

    #[test]
    fn open_history_fails_if_the_path_is_a_folder() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(open_history(folder.path()).is_err());
    }
}
