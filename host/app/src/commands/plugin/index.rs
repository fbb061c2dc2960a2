//! `plugin index` writes the index of a folder of plugins, and `plugin search` shows the index of the installed plugins.

use super::describe;
use crate::arguments::sharing::{IndexArguments, SearchArguments};
use crate::environment;
use crate::exit::Failure;
use crate::terminal::{BOLD, DIM, Terminal, text};
use agent_plugins::write_file_atomically;
use agent_registry::{FolderEntry, FolderIndex, INDEX_FILE};
use serde_json::json;
use std::path::{Path, PathBuf};

/// Maximum displayed length of a version or description, in characters.
const MAX_CHARACTERS: usize = 200;

/// Writes the index of a folder.
pub(super) fn write_index(arguments: &IndexArguments, terminal: &Terminal) -> Result<(), Failure> {
    let index = FolderIndex::of_folder(&arguments.directory).map_err(Failure::refused)?;
    if index.plugins.is_empty() {
        return Err(Failure::refused(format!("there is no plugin (*.wasm) in `{}`", arguments.directory.display())));
    }
    let path = arguments.output.clone().unwrap_or_else(|| arguments.directory.join(INDEX_FILE));
    if path == Path::new("-") {
        return super::print(terminal, index.to_text().trim_end().to_owned());
    }
    write_file_atomically(&path, index.to_text().as_bytes())
        .map_err(|error| Failure::failed(format!("`{}` cannot be written: {error}", path.display())))?;
    super::print(terminal, format!("{BOLD}{}{BOLD:#}  {}", path.display(), text::count(index.plugins.len(), "plugin")))
}

/// Prints the installed plugins that match the words best.
pub(super) fn search_installed(words: &str, arguments: &SearchArguments, terminal: &Terminal) -> Result<(), Failure> {
    let (folder, index) = installed()?.ok_or_else(|| {
        Failure::refused(
            "no standard plugins with an index were installed together with this program; name an index with --index HOST/PATH",
        )
    })?;
    let found = index.search(words, arguments.limit as usize);
    if found.is_empty() && !arguments.json {
        terminal.note("no standard plugin matches any of these words");
    }
    for entry in found {
        let reference = folder.join(&entry.file).display().to_string();
        let shown = match arguments.json {
            true => {
                let mut newest = serde_json::to_value(entry).map_err(Failure::failed)?;
                newest["reference"] = json!(reference);
                json!({"newest": newest, "versions": [entry.version]}).to_string()
            }
            false => text::wrapped_entry(
                &format!("{}\n  {DIM}{}{DIM:#}", lines(entry), text::one_line(&reference, 300)),
                terminal.width(),
            ),
        };
        super::print(terminal, shown)?;
    }
    Ok(())
}

/// Returns the folder of the installed plugins and its index, if there are plugins with an index.
pub(in crate::commands) fn installed() -> Result<Option<(PathBuf, FolderIndex)>, Failure> {
    let Some(folder) = environment::host().installed_plugins() else { return Ok(None) };
    let index = FolderIndex::read(&folder).map_err(Failure::refused)?;
    Ok(index.map(|index| (folder, index)))
}

/// Formats a plugin of an index: its name, version and kinds, its description, and what it asks for.
pub(in crate::commands) fn lines(entry: &FolderEntry) -> String {
    let requests = match entry.asks.as_ref().map(describe::requests_in) {
        None => "everything that it is granted".to_owned(),
        Some(requests) if requests.is_empty() => "nothing".to_owned(),
        Some(requests) => requests.join(", "),
    };
    format!(
        "{BOLD}{}{BOLD:#} {}  {DIM}{}{DIM:#}\n  {}\n  {DIM}asks for {requests}{DIM:#}",
        entry.name,
        text::one_line(&entry.version, 40),
        text::one_line(&entry.kinds.join(", "), MAX_CHARACTERS),
        text::one_line(&entry.description, MAX_CHARACTERS),
    )
}
