//! What was typed before, in this session and in earlier ones: a file for its owner only, of at most so many lines.

use reedline::{FileBackedHistory, History, HistoryItem, HistoryItemId, HistorySessionId, ReedlineError, SearchQuery};
use std::fs::OpenOptions;
use std::path::Path;

/// Inputs that are kept.
const MOST_INPUTS: usize = 1_000;
/// Bytes of the longest input that is kept: a pasted book is not typed again.
const LONGEST_INPUT: usize = 8 * 1024;

/// Opens the history, or begins it.
pub(super) fn open_history(file: &Path) -> Result<BoundedHistory, String> {
    let mut options = OpenOptions::new();
    options.create(true).append(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(file).map_err(|error| error.to_string())?;
    let kept = FileBackedHistory::with_file(MOST_INPUTS, file.to_owned()).map_err(|error| error.to_string())?;
    Ok(BoundedHistory { kept })
}

/// A history that leaves out what is too long.
#[derive(Debug)]
pub(super) struct BoundedHistory {
    kept: FileBackedHistory,
}

impl History for BoundedHistory {
    fn save(&mut self, item: HistoryItem) -> Result<HistoryItem, ReedlineError> {
        if item.command_line.len() > LONGEST_INPUT { Ok(item) } else { self.kept.save(item) }
    }

    fn load(&self, id: HistoryItemId) -> Result<HistoryItem, ReedlineError> {
        self.kept.load(id)
    }

    fn count(&self, query: SearchQuery) -> Result<i64, ReedlineError> {
        self.kept.count(query)
    }

    fn search(&self, query: SearchQuery) -> Result<Vec<HistoryItem>, ReedlineError> {
        self.kept.search(query)
    }

    fn update(&mut self, id: HistoryItemId, update: &dyn Fn(HistoryItem) -> HistoryItem) -> Result<(), ReedlineError> {
        self.kept.update(id, update)
    }

    fn clear(&mut self) -> Result<(), ReedlineError> {
        self.kept.clear()
    }

    fn delete(&mut self, id: HistoryItemId) -> Result<(), ReedlineError> {
        self.kept.delete(id)
    }

    fn sync(&mut self) -> std::io::Result<()> {
        self.kept.sync()
    }

    fn session(&self) -> Option<HistorySessionId> {
        self.kept.session()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use reedline::SearchDirection;

    fn inputs(history: &BoundedHistory) -> Vec<String> {
        let all = history.search(SearchQuery::everything(SearchDirection::Forward, None)).expect("searched");
        all.into_iter().map(|item| item.command_line).collect()
    }

    #[test]
    fn it_is_for_its_owner_only_and_bounded() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let file = folder.path().join("history");
        let mut history = open_history(&file).expect("opened");
        for text in ["one", "two\nlines", &"x".repeat(LONGEST_INPUT + 1)] {
            history.save(HistoryItem::from_command_line(text)).expect("saved");
        }
        history.sync().expect("written");
        assert_eq!(inputs(&open_history(&file).expect("opened again")), ["one", "two\nlines"]);
        #[cfg(unix)]
        {
            let mode = std::fs::metadata(&file).expect("there").permissions();
            assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
        }
        for number in 0..MOST_INPUTS + 10 {
            history.save(HistoryItem::from_command_line(number.to_string())).expect("saved");
        }
        history.sync().expect("written");
        assert_eq!(inputs(&open_history(&file).expect("opened again")).len(), MOST_INPUTS);
    }

    #[test]
    fn a_folder_in_its_place_is_an_error() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        assert!(open_history(folder.path()).is_err());
    }
}
