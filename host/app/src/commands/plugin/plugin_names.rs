//! Finds the component file of a plugin by the plugin's name.

use crate::terminal::text;
use agent_config::agent_file::nearest;
use agent_config::settings::AGENT_FILE;
use agent_plugins::{HostLimits, read_claims, read_component};
use std::path::{Path, PathBuf};

/// Folder of the plugins, if neither an option nor a configuration names one.
pub(super) const PLUGIN_FOLDER: &str = "plugins";

/// Returns whether this is the name of a plugin, and not the path of a file.
pub(super) fn is_name(named: &Path) -> bool {
    let has_form = named.components().count() == 1 && named.extension().is_none_or(|extension| extension != "wasm");
    has_form && !named.is_file()
}

/// Returns the file of the plugin with this name in the folder: the file `NAME.wasm`, or the file whose manifest contains the
/// name. If there is no such file, the error names the plugins in the folder.
pub(super) fn find(folder: &Path, name: &str) -> Result<PathBuf, String> {
    let file = folder.join(format!("{name}.wasm"));
    if file.is_file() {
        return Ok(file);
    }
    let entries = std::fs::read_dir(folder).map_err(|error| {
        let (name, folder) = (text::one_line(name, 200), folder.display());
        let advice = match Path::new(AGENT_FILE).is_file() {
            true => "pass --agent agent.toml to use the plugins of that file",
            false => "pass --agent FILE; `agent-host setup` chooses plugins for all folders",
        };
        format!("there is no file `{name}`, and the plugin folder `{folder}` cannot be read: {error}; name a component file, or {advice}")
    })?;
    let files = entries.flatten().map(|entry| entry.path());
    let mut files: Vec<_> =
        files.filter(|file| file.extension().is_some_and(|extension| extension == "wasm")).collect();
    files.sort();
    let mut names = Vec::new();
    for file in files {
        let stem = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        let claimed = read_component(&file, HostLimits::default().component).ok();
        let claimed = claimed.and_then(|bytes| read_claims(&stem, &bytes).ok());
        let plugin = claimed.map_or(stem, |claims| claims.identity.name);
        if plugin == name {
            return Ok(file);
        }
        names.push(plugin);
    }
    let near = nearest(name, names.iter().map(String::as_str));
    let hint = near.map(|near| format!("; did you mean `{near}`?")).unwrap_or_default();
    Err(format!(
        "there is no file `{}`, and the folder `{}` has no plugin with this name; its plugins are {}{hint}",
        text::one_line(name, 200),
        folder.display(),
        if names.is_empty() { "none".to_owned() } else { text::one_line(&names.join(", "), 1000) }
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn find_uses_file_names_and_says_what_the_folder_contains() {
        let folder = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(folder.path().join("words.wasm"), wat::parse_str("(component)").expect("a component"))
            .expect("written");
        assert_eq!(find(folder.path(), "words"), Ok(folder.path().join("words.wasm")));
        let error = find(folder.path(), "wods").expect_err("no such plugin");
        assert!(error.contains("its plugins are words; did you mean `words`?"), "{error}");
        let error = find(&folder.path().join("missing"), "words").expect_err("no such folder");
        assert!(error.contains("cannot be read") && error.contains("--agent FILE"), "{error}");
    }
}
