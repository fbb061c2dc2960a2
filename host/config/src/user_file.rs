//! The user-wide configuration file, which applies in all folders that have no agent's file of their own. It has the keys
//! of an `agent.toml`. Its relative grants refer to the current folder at the start, and all other relative paths to the
//! folder of the file.

mod choices;

pub use choices::{UserChoices, UserFileError, is_variable_name};

use crate::agent_file::AgentFile;
use crate::error::ConfigError;
use crate::grants::{Grant, Kind};
use std::path::{Path, PathBuf};

/// What the user-wide file is used for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum UserFile {
    /// The file is the agent's file.
    Agent(PathBuf),
    /// Another file, or the options, describe the agent. If they name no model, the models of the user-wide file are used.
    DefaultModel(PathBuf),
}

/// Reads the user-wide file. Fails if users other than its owner and root can change the file, because they could grant
/// rights on behalf of the user.
pub(crate) fn read(path: &Path) -> Result<(String, AgentFile), ConfigError> {
    check_owner(path)?;
    let text = AgentFile::text(path)?;
    let file = AgentFile::parse(&text, path)?;
    Ok((text, file))
}

/// Fails if users other than the current user and root own the file or can change it.
#[cfg(unix)]
pub fn check_owner(path: &Path) -> Result<(), ConfigError> {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    // A missing file is reported by the function that reads it.
    let Ok(metadata) = std::fs::metadata(path) else { return Ok(()) };
    let (owner, current_user) = (metadata.uid(), rustix::process::geteuid().as_raw());
    let shown = path.display();
    if owner != current_user && owner != 0 {
        return Err(ConfigError::settings(format!(
            "the user-wide configuration `{shown}` belongs to the user with the id {owner}, and your id is {current_user}; \
             delete the file, or take over its ownership"
        )));
    }
    let mode = metadata.permissions().mode() & 0o777;
    if mode & 0o022 != 0 {
        let word = crate::text::shell_word(&shown.to_string());
        return Err(ConfigError::settings(format!(
            "other users can change the user-wide configuration `{shown}` (mode {mode:o}); check its contents, then \
             `chmod 600 {word}` makes it private"
        )));
    }
    Ok(())
}

#[cfg(not(unix))]
/// Does nothing, because this platform has no file modes.
pub fn check_owner(_path: &Path) -> Result<(), ConfigError> {
    Ok(())
}

/// Makes the relative grants of the user-wide file refer to `current`, and removes those grants that must not apply there.
/// Returns a sentence for each removed grant.
///
/// A relative grant never covers the root of the file system or the user's whole home folder, because the user did not
/// write such a grant, and starting the host in the wrong folder must not have this effect. A grant for a folder that
/// does not exist in `current` does not apply either.
pub(crate) fn apply_grants(file: &mut AgentFile, current: &Path, home: Option<&Path>) -> Vec<String> {
    let home = home.and_then(|home| home.canonicalize().ok());
    let mut notes = Vec::new();
    for grant in &mut file.grants {
        grant.base = if current == Path::new(".") { PathBuf::new() } else { current.to_owned() };
    }
    file.grants.retain(|grant| match problem(grant, home.as_deref()) {
        None => true,
        Some(problem) => {
            let receiver = grant.plugin().unwrap_or("the host's own tools");
            notes.push(format!(
                "{}: `{}` is not granted to {receiver} here, because {problem}",
                grant.origin, grant.value
            ));
            false
        }
    });
    notes
}

fn problem(grant: &Grant, home: Option<&Path>) -> Option<String> {
    if !matches!(grant.kind, Kind::Read | Kind::Write) || Path::new(&grant.value).is_absolute() {
        return None;
    }
    let joined = grant.base.join(&grant.value);
    let joined = if joined.as_os_str().is_empty() { PathBuf::from(".") } else { joined };
    let Ok(folder) = joined.canonicalize() else {
        return Some("this folder does not exist".to_owned());
    };
    let shown = folder.display();
    if folder.parent().is_none() {
        return Some(format!("it would be the whole file system (`{shown}`); start agent-host in another folder"));
    }
    let home = home.filter(|home| home.starts_with(&folder))?;
    let which = if home == folder { "your home folder" } else { "a folder that contains your home folder" };
    Some(format!("it would be {which} (`{shown}`); start agent-host in another folder"))
}

#[cfg(test)]
mod tests;
