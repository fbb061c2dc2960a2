//! Decides which file describes the agent if the command line names none: the `agent.toml` of the current folder if the user
//! trusts it, and otherwise the user-wide file.

use super::audited_refusal::audit_refusal;
use super::trust;
use super::user_presence::UserPresence;
use crate::arguments::AgentArguments;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{DIM, Terminal, TypedLine, YELLOW, text};
use agent_config::settings::AGENT_FILE;
use agent_config::trust::{AgentAuthority, TrustState, TrustStore, TrustedStart};
use agent_config::{AgentOptions, DataDirectory, DataLocation, HostEnvironment, UserFile};
use std::path::{Path, PathBuf};
use tokio_util::sync::CancellationToken;

/// The options and the environment with which an agent is started.
pub(crate) struct StartingAgent {
    /// The options of the command line, completed with the files that are used.
    pub(crate) options: AgentOptions,
    /// The environment, which knows whether the agent's file must be trusted.
    pub(crate) environment: HostEnvironment,
}

/// The user's answer to the question whether an agent's file is trusted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Answer {
    /// The user has trusted the file earlier, so there is no question.
    Trusted,
    /// The user trusts the file from now on.
    Trust,
    /// The agent starts without the file.
    WithoutFile,
    /// Nothing is started.
    Quit,
}

/// Returns whether an agent can start although the command line names neither an agent nor a plugin folder.
pub(crate) fn can_start_unnamed() -> bool {
    let environment = environment::host();
    Path::new(AGENT_FILE).is_file() || user_file(&environment).is_some() || environment.installed_plugins().is_some()
}

/// Returns the path of the user-wide file if the file exists.
pub(crate) fn user_file(environment: &HostEnvironment) -> Option<PathBuf> {
    environment.user_file.clone().filter(|path| path.is_file())
}

/// Returns the path of the `agent.toml` in the current folder, if there is one. The user-wide file does not count, because
/// it is used in all folders anyway.
pub(crate) fn file_of_folder(environment: &HostEnvironment) -> Option<PathBuf> {
    let path = PathBuf::from(AGENT_FILE);
    let is_user_file = || {
        let user_file = user_file(environment).and_then(|file| file.canonicalize().ok());
        user_file.is_some() && user_file == path.canonicalize().ok()
    };
    (path.is_file() && !is_user_file()).then_some(path)
}

/// Returns the stored decisions about agents' files, in the data folder that the command line names or in the default one.
pub(crate) fn trust_store(data: DataLocation<'_>, environment: &HostEnvironment) -> Option<TrustStore> {
    data.folder
        .map(Path::to_owned)
        .or_else(|| environment.data_directory.clone())
        .map(|root| TrustStore::in_data_folder(&root))
}

/// Completes the options of the command line. If the `agent.toml` in the current folder is used for the first time or has
/// changed, the user is asked. If no user can answer, the command fails.
pub(crate) async fn find(
    arguments: &AgentArguments,
    data: DataLocation<'_>,
    user: UserPresence,
    terminal: &Terminal,
) -> Result<StartingAgent, Failure> {
    find_with(arguments.options(), data, user, terminal).await
}

/// Does the same as [`find`], for options of a command that has other arguments.
pub(crate) async fn find_with(
    mut options: AgentOptions,
    data: DataLocation<'_>,
    user: UserPresence,
    terminal: &Terminal,
) -> Result<StartingAgent, Failure> {
    let mut environment = environment::host_in_project();
    let user_file = user_file(&environment);
    let is_named = options.agent.is_some() || options.plugins.is_some();
    if !is_named && let Some(path) = file_of_folder(&environment) {
        let authority = AgentAuthority::of(&path)?;
        let store = trust_store(data, &environment).ok_or_else(|| untrusted(&path))?;
        let has_other = user_file.is_some() || environment.installed_plugins().is_some();
        let answer = match store.state(&authority) {
            TrustState::Trusted => Answer::Trusted,
            _ if user == UserPresence::Absent => {
                let failure = untrusted(&path);
                audit_untrusted(&authority, &failure, data, &environment).await;
                return Err(failure);
            }
            state => ask(&authority, &state, has_other, terminal).await?,
        };
        if answer == Answer::Quit {
            return Err(Failure { exit: Exit::Cancelled, message: String::new() });
        }
        if answer == Answer::Trust {
            store
                .trust(&authority)
                .map_err(|error| Failure::refused(format!("the trust cannot be stored: {error}")))?;
        }
        if answer != Answer::WithoutFile {
            options.agent = Some(path.clone());
            environment.trusted = Some(TrustedStart { store, path });
        }
    }
    if is_named || options.agent.is_some() {
        options.user_file = user_file.map(UserFile::DefaultModel);
        return Ok(StartingAgent { options, environment });
    }
    match user_file {
        Some(path) => options.user_file = Some(UserFile::Agent(path)),
        None => options.plugins = environment.installed_plugins(),
    }
    Ok(StartingAgent { options, environment })
}

/// Completes the options with the files that [`find`] would use, for commands that only show something. Whether the user trusts
/// the file does not matter, so no question is asked.
pub(crate) fn with_files(mut options: AgentOptions) -> AgentOptions {
    let environment = environment::host();
    if options.agent.is_none() && options.plugins.is_none() {
        options.agent = file_of_folder(&environment);
    }
    let is_named = options.agent.is_some() || options.plugins.is_some();
    match (is_named, user_file(&environment)) {
        (true, user_file) => options.user_file = user_file.map(UserFile::DefaultModel),
        (false, Some(path)) => options.user_file = Some(UserFile::Agent(path)),
        (false, None) => options.plugins = environment.installed_plugins(),
    }
    options
}

fn untrusted(path: &Path) -> Failure {
    let file = text::shell_word(&path.display().to_string());
    Failure::refused(format!(
        "`{file}` in this folder is not used, because you have not trusted it yet, and nobody can be asked here: \
         `agent-host trust {file}` shows what it allows and trusts it, and --agent {file} uses it this time"
    ))
}

/// Records in the audit log that an agent's file was not used (O3).
async fn audit_untrusted(
    authority: &AgentAuthority,
    failure: &Failure,
    data: DataLocation<'_>,
    environment: &HostEnvironment,
) {
    let folder = authority.path.parent().unwrap_or(Path::new("."));
    match DataDirectory::open(data, environment) {
        Ok(data) => audit_refusal(&data, folder, (&authority.path.display().to_string(), &failure.message)).await,
        Err(error) => tracing::error!(%error, "a refusal could not be recorded in the audit log"),
    }
}

/// Shows what the file allows, and asks the user until the answer is clear. The end of the input means to quit.
async fn ask(
    authority: &AgentAuthority,
    state: &TrustState,
    has_other: bool,
    terminal: &Terminal,
) -> Result<Answer, Failure> {
    let shown = text::harmless(&authority.path.display().to_string()).into_owned();
    let begin = match state {
        TrustState::Changed(_) => format!("{shown} has changed since you trusted it"),
        _ => format!(
            "{shown} may come from somebody else: you have neither written it with `config init` nor trusted it"
        ),
    };
    terminal.note(format!("{YELLOW}!{YELLOW:#} {begin}"));
    trust::show(authority, state, terminal);
    let (without, hint) = match has_other {
        true => ("/w", ", w: start without it, with your user-wide configuration"),
        false => ("", ""),
    };
    let answers = format!("{DIM}t: trust it and start{hint}, q: quit{DIM:#}");
    terminal.note(&answers);
    loop {
        // If the command is cancelled while the question is open, the guard ends the thread that reads the answer.
        let stopped = CancellationToken::new();
        let _guard = stopped.clone().drop_guard();
        let line = terminal.question(&format!("Trust this file? [t{without}/q] "), &stopped).await;
        match line.map_err(Failure::refused)? {
            TypedLine::Text(line) => match line.trim().to_lowercase().as_str() {
                "t" | "trust" => return Ok(Answer::Trust),
                "w" | "without" if has_other => return Ok(Answer::WithoutFile),
                "q" | "quit" => return Ok(Answer::Quit),
                _ => terminal.note(&answers),
            },
            TypedLine::End | TypedLine::Stopped => return Ok(Answer::Quit),
        }
    }
}
