//! Checks and saves a new text of a running agent's file, for editors (I2). The text is saved exactly as it is, so that
//! comments stay.

use crate::agent_file::{AgentFile, Draft, EditError, LocatedProblem, MAX_BYTES};
use crate::assembly;
use crate::error::ConfigError;
use crate::settings::Settings;
use crate::trust::permissions_of_file;
use crate::watch::agent_files::{RESTART_KEYS, changed};
use agent_runtime::Agent;
use std::path::Path;

/// What a new text of an agent's file would mean.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProposedFile {
    /// The problems that `config check` finds, in the order of the lines. If there is a problem, the text cannot be used. If
    /// the text names another plugin folder, the plugins in that folder are not checked.
    pub problems: Vec<LocatedProblem>,
    /// Names of the changed keys whose new values apply only after the host is restarted.
    pub later: Vec<&'static str>,
    /// What the new text allows and the current text does not.
    pub adds: Vec<String>,
    /// What the current text allows and the new text does not.
    pub removes: Vec<String>,
}

impl ProposedFile {
    /// Checks the text as a new text of the file of a running agent, without using it. `current` is the text of the file now.
    pub fn check(text: &str, (settings, agent): (&Settings, &Agent), current: &str) -> Self {
        let path = settings.path.as_deref().unwrap_or(Path::new(""));
        if text.len() as u64 > MAX_BYTES {
            return Self::with_problem(format!("the file has more than {} KiB", MAX_BYTES >> 10));
        }
        let file = match AgentFile::parse(text, path) {
            Ok(file) => file,
            Err(error) => return Self { problems: error.located(), ..Self::default() },
        };
        let (adds, removes) = changed_permissions(permissions_of_file(&file, text), path, current);
        let later = changed(Some(current), Some(text), &RESTART_KEYS);
        let (proposed, mut problems) = match settings.with_file(file) {
            Ok(found) => found,
            Err(error) => return Self { later, adds, removes, ..Self::with_problem(error.to_string()) },
        };
        if proposed.plugins == settings.plugins {
            let delegates = agent.config().delegates.clone();
            assembly::examine(&proposed, agent.generation().clone(), delegates, &mut problems);
        }
        let located = problems.in_order(Some(path)).into_iter().map(|(line, problem)| located(path, line, problem));
        Self { problems: located.collect(), later, adds, removes }
    }

    fn with_problem(message: String) -> Self {
        let problem = LocatedProblem { line: None, column: None, message, advice: String::new() };
        Self { problems: vec![problem], ..Self::default() }
    }
}

/// Saves a text as the new text of an agent's file. `before` is the result of [`Draft::read`] from which the text was made:
/// if the file has changed since then, nothing is saved. If the user has trusted the file, the new text is trusted as well.
pub fn save_agent_file(settings: &Settings, before: &Draft, text: &str) -> Result<(), EditError> {
    let trusted = settings.environment.trusted.as_ref();
    let authority = trusted.and_then(|trusted| trusted.store.trusted(&trusted.path));
    before.write(text)?;
    if let Some(trusted) = trusted {
        trusted.store.keep(authority, &|path| path == before.path());
    }
    Ok(())
}

/// Returns the digest of a text, by which an editor recognises that the file has changed in the meantime.
pub fn text_digest(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}

fn located(path: &Path, line: Option<usize>, problem: String) -> LocatedProblem {
    let lead = line.map(|line| format!("{}:{line}: ", path.display()));
    let message = lead.and_then(|lead| problem.strip_prefix(&lead).map(str::to_owned)).unwrap_or(problem);
    LocatedProblem { line, column: None, message, advice: String::new() }
}

/// Returns the permissions that are added and removed. If the current text is not valid, all permissions count as added.
fn changed_permissions(new: Vec<String>, path: &Path, current: &str) -> (Vec<String>, Vec<String>) {
    let old = AgentFile::parse(current, path).map(|file| permissions_of_file(&file, current)).unwrap_or_default();
    let missing = |from: &[String], other: &[String]| {
        from.iter().filter(|line| !other.contains(line)).cloned().collect::<Vec<_>>()
    };
    (missing(&new, &old), missing(&old, &new))
}

impl Settings {
    /// Returns the settings of the same agent with another content of its file.
    fn with_file(&self, file: AgentFile) -> Result<(Self, crate::settings::Problems), ConfigError> {
        let (mut settings, problems) = Self::of_file((self.path.clone(), file), &self.options, &self.environment)?;
        settings.use_default_model()?;
        Ok((settings, problems))
    }
}
