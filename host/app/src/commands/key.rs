//! `key new`: keys that sign plugins, and the passwords that keep them.

use crate::arguments::sharing::KeyCommand;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{BOLD, DIM, Output, Terminal};
use agent_registry::{KeyFile, Protection, SigningKey, create_key, public_path};
use std::path::Path;

/// The variable that has the password where nobody can be asked.
const PASSWORD: &str = "AGENT_HOST_KEY_PASSWORD";

/// Runs one of the commands.
pub(crate) async fn run(command: KeyCommand, terminal: &Terminal) -> Result<Exit, Failure> {
    let KeyCommand::New { file, no_password } = command;
    let protection = if no_password { Protection::None } else { Protection::Password(new_password(terminal)?) };
    let path = file.clone();
    let made = tokio::task::spawn_blocking(move || create_key(&path, protection)).await.map_err(Failure::failed)?;
    let public = made.map_err(Failure::refused)?;
    let shown = format!(
        "{BOLD}{}{BOLD:#} {DIM}signs; keep it secret{DIM:#}\n{BOLD}{}{BOLD:#} {DIM}for everybody{DIM:#}\n\n\
         Who shall trust it writes into their agent.toml, with the place that it signs for:\n\n\
         [sharing]\nsignatures = \"required\"\n\n[sharing.trusted_keys]\n\"registry.example/team\" = \"{public}\"",
        file.display(),
        public_path(&file).display(),
    );
    terminal.print(shown).map_err(Failure::output)?;
    Ok(Exit::Done)
}

/// The key in a file, with its password where it has one.
pub(crate) async fn open(path: &Path, terminal: &Terminal) -> Result<SigningKey, Failure> {
    let file = KeyFile::read(path).map_err(Failure::refused)?;
    let password = match (file.needs_password(), environment::variable(PASSWORD)) {
        (false, _) => None,
        (true, Some(password)) => Some(password),
        (true, None) => Some(typed(&format!("password of {}: ", path.display()), terminal)?),
    };
    let opened = tokio::task::spawn_blocking(move || file.open(password)).await.map_err(Failure::failed)?;
    opened.map_err(Failure::refused)
}

fn new_password(terminal: &Terminal) -> Result<String, Failure> {
    let password = match environment::variable(PASSWORD) {
        Some(password) => password,
        None => {
            let first = typed("a password that keeps the key: ", terminal)?;
            if first != typed("the same once more: ", terminal)? {
                return Err(Failure::refused("these are two passwords; nothing was made"));
            }
            first
        }
    };
    match password.is_empty() {
        true => Err(Failure::refused("the password is empty; --no-password makes a key without one")),
        false => Ok(password),
    }
}

fn typed(prompt: &str, terminal: &Terminal) -> Result<String, Failure> {
    let nobody = || {
        Failure::refused(format!(
            "nobody can be asked for the key's password here: set {PASSWORD}, or make the key with --no-password"
        ))
    };
    if !terminal.is_terminal(Output::Stderr) {
        return Err(nobody());
    }
    terminal.idle();
    rpassword::prompt_password(prompt).map_err(|_| nobody())
}
