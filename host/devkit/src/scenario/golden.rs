//! Golden transcripts: what a scenario's conversation was, beside the scenario, and whether it still is that.

use super::file::Scenario;
use super::report::Failure;
use crate::diff::diff;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Permissions of a transcript that is written for the first time, before the umask.
const NEW_FILE: u32 = 0o666;
/// Largest transcript that is read.
const MOST_BYTES: u64 = 64 << 20;

/// Whether transcripts are compared or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoldenMode {
    /// One that differs is a failure.
    Compare,
    /// One that differs is written anew.
    Update,
    /// One that differs is left as it is: what was played is not what it should be.
    Keep,
}

/// What became of a scenario's transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Golden {
    /// It has none.
    None,
    /// It is what stands in the file.
    Same,
    /// It is not, or there is no file yet.
    Differs,
    /// It is not, and was left as it was, since the scenario has failed.
    Kept {
        /// Which.
        path: PathBuf,
    },
    /// The file was written.
    Written {
        /// Which.
        path: PathBuf,
        /// What was changed in it.
        diff: String,
    },
}

impl Golden {
    /// As it stands in the JSON.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Golden::None => "none",
            Golden::Same => "same",
            Golden::Differs => "differs",
            Golden::Kept { .. } => "kept",
            Golden::Written { .. } => "written",
        }
    }
}

/// The file beside the scenario.
fn file(scenario: &Scenario) -> PathBuf {
    let name = scenario.path.file_name().unwrap_or_default().to_string_lossy();
    scenario.path.with_file_name(format!("{}.golden", name.strip_suffix(super::SUFFIX).unwrap_or(&name)))
}

/// Compares the transcript with the file, or writes it there.
pub(crate) fn settle(scenario: &Scenario, transcript: &str, mode: GoldenMode) -> (Golden, Option<Failure>) {
    let path = file(scenario);
    let read = agent_plugins::read_regular_file(&path, MOST_BYTES);
    let stored = match read.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other)) {
        Ok(stored) => Some(stored.replace("\r\n", "\n")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return failed(scenario, "a golden transcript that can be read", error.to_string()),
    };
    if stored.as_deref() == Some(transcript) {
        return (Golden::Same, None);
    }
    let changes = diff(stored.as_deref().unwrap_or_default(), transcript);
    match (mode, stored) {
        (GoldenMode::Keep, _) => (Golden::Kept { path }, None),
        (GoldenMode::Update, _) => match write(&path, transcript) {
            Ok(()) => (Golden::Written { path, diff: changes }, None),
            Err(error) => failed(scenario, "a golden transcript that can be written", error.to_string()),
        },
        (GoldenMode::Compare, None) => {
            let (golden, failure) =
                failed(scenario, &format!("the transcript in {}", path.display()), "there is no such file".to_owned());
            (golden, failure.map(|failure| failure.advising("`--update` writes it; read it before you commit it")))
        }
        (GoldenMode::Compare, Some(_)) => {
            let (golden, failure) =
                failed(scenario, &format!("the transcript in {}", path.display()), "another one".to_owned());
            let advice = "if that is what it should be now, `--update` writes it";
            (golden, failure.map(|failure| Failure { diff: Some(changes), ..failure.advising(advice) }))
        }
    }
}

/// Whole or not at all, with the permissions of the file that was there. A link is not followed: it may lead to a file
/// that is something else.
fn write(path: &Path, transcript: &str) -> io::Result<()> {
    let there = match std::fs::symlink_metadata(path) {
        Ok(there) if there.is_file() => Some(there.permissions()),
        Ok(_) => {
            let what = format!("{} is a link, or no file: remove it, and --update writes a file there", path.display());
            return Err(io::Error::other(what));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if there.as_ref().is_some_and(std::fs::Permissions::readonly) {
        return Err(io::Error::other(format!("{} may only be read", path.display())));
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(".golden.").permissions(std::fs::Permissions::from_mode(NEW_FILE));
    let mut beside = builder.tempfile_in(path.parent().unwrap_or(Path::new("")))?;
    beside.write_all(transcript.as_bytes())?;
    if let Some(permissions) = there {
        beside.as_file().set_permissions(permissions)?;
    }
    beside.persist(path)?;
    Ok(())
}

fn failed(scenario: &Scenario, expected: &str, found: String) -> (Golden, Option<Failure>) {
    let line =
        scenario.text.lines().position(|line| line.trim_start().starts_with("golden")).map_or(1, |index| index + 1);
    let place = super::Place { line, key: "golden".to_owned(), ..scenario.top() };
    (Golden::Differs, Some(Failure::at(place, expected, found)))
}
