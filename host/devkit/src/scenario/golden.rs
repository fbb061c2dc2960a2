//! Golden transcripts. A golden transcript is a file next to a scenario, and contains the conversation that the
//! scenario is expected to produce.

use super::file::Scenario;
use super::report::Failure;
use crate::diff::diff;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

/// Permissions of a new transcript file, before the umask is applied.
const NEW_FILE_MODE: u32 = 0o666;
/// Maximum size of a transcript, in bytes.
const MAX_BYTES: u64 = 64 << 20;

/// The action for a golden transcript that differs from the new transcript.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GoldenMode {
    /// The difference is reported as a failure.
    Compare,
    /// The new transcript is written to the golden transcript's file.
    Update,
    /// The golden transcript's file is not changed, because the scenario failed.
    Keep,
}

/// The result of comparing or updating a scenario's golden transcript.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GoldenResult {
    /// The scenario has no golden transcript.
    None,
    /// The new transcript is equal to the golden transcript.
    Same,
    /// The new transcript differs from the golden transcript, or the scenario's golden transcript does not exist yet.
    Differs,
    /// The new transcript differs from the golden transcript, but the golden transcript was not changed because
    /// the scenario failed.
    Kept {
        /// Path of the golden transcript.
        path: PathBuf,
    },
    /// The new transcript was written to the file of the golden transcript.
    Written {
        /// Path of the golden transcript.
        path: PathBuf,
        /// A unified diff from the file's previous content to the new transcript.
        diff: String,
    },
}

impl GoldenResult {
    /// Returns the name of the result in the JSON report.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            GoldenResult::None => "none",
            GoldenResult::Same => "same",
            GoldenResult::Differs => "differs",
            GoldenResult::Kept { .. } => "kept",
            GoldenResult::Written { .. } => "written",
        }
    }
}

/// Returns the path of the scenario's golden transcript, which is next to the scenario file.
fn golden_path(scenario: &Scenario) -> PathBuf {
    let name = scenario.path.file_name().unwrap_or_default().to_string_lossy();
    scenario.path.with_file_name(format!("{}.golden", name.strip_suffix(super::SUFFIX).unwrap_or(&name)))
}

/// Compares the new transcript with the golden transcript, or updates the golden transcript, depending on `mode`.
pub(crate) fn compare_or_update(
    scenario: &Scenario,
    transcript: &str,
    mode: GoldenMode,
) -> (GoldenResult, Option<Failure>) {
    let path = golden_path(scenario);
    let read = agent_plugins::read_regular_file(&path, MAX_BYTES);
    let stored = match read.and_then(|bytes| String::from_utf8(bytes).map_err(io::Error::other)) {
        Ok(stored) => Some(stored.replace("\r\n", "\n")),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return failed(scenario, "a golden transcript that can be read", error.to_string()),
    };
    if stored.as_deref() == Some(transcript) {
        return (GoldenResult::Same, None);
    }
    let changes = diff(stored.as_deref().unwrap_or_default(), transcript);
    match (mode, stored) {
        (GoldenMode::Keep, _) => (GoldenResult::Kept { path }, None),
        (GoldenMode::Update, _) => match write(&path, transcript) {
            Ok(()) => (GoldenResult::Written { path, diff: changes }, None),
            Err(error) => failed(scenario, "a golden transcript that can be written", error.to_string()),
        },
        (GoldenMode::Compare, None) => {
            let (golden, failure) =
                failed(scenario, &format!("the transcript in {}", path.display()), "there is no such file".to_owned());
            (
                golden,
                failure.map(|failure| failure.advising("`--update` writes the file; review it before you commit it")),
            )
        }
        (GoldenMode::Compare, Some(_)) => {
            let (golden, failure) =
                failed(scenario, &format!("the transcript in {}", path.display()), "a different transcript".to_owned());
            let advice = "if the new transcript is correct, write it to the file with `--update`";
            (golden, failure.map(|failure| Failure { diff: Some(changes), ..failure.advising(advice) }))
        }
    }
}

/// Writes the file completely or not at all. Keeps the permissions of an existing file. Fails if the path is a link,
/// because the target of the link may be an unrelated file.
fn write(path: &Path, transcript: &str) -> io::Result<()> {
    let existing = match std::fs::symlink_metadata(path) {
        Ok(existing) if existing.is_file() => Some(existing.permissions()),
        Ok(_) => {
            let problem =
                format!("{} is a link or not a regular file: remove it, then --update writes the file", path.display());
            return Err(io::Error::other(problem));
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    if existing.as_ref().is_some_and(std::fs::Permissions::readonly) {
        return Err(io::Error::other(format!("{} is read-only", path.display())));
    }
    let mut builder = tempfile::Builder::new();
    builder.prefix(".golden.").permissions(std::fs::Permissions::from_mode(NEW_FILE_MODE));
    let mut temporary = builder.tempfile_in(path.parent().unwrap_or(Path::new("")))?;
    temporary.write_all(transcript.as_bytes())?;
    if let Some(permissions) = existing {
        temporary.as_file().set_permissions(permissions)?;
    }
    temporary.persist(path)?;
    Ok(())
}

fn failed(scenario: &Scenario, expected: &str, found: String) -> (GoldenResult, Option<Failure>) {
    let line =
        scenario.text.lines().position(|line| line.trim_start().starts_with("golden")).map_or(1, |index| index + 1);
    let place = super::Place { line, key: "golden".to_owned(), ..scenario.top() };
    (GoldenResult::Differs, Some(Failure::at(place, expected, found)))
}
