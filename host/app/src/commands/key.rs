//! `key new`: creates keys that sign plugins, and asks for the passwords that protect them.

use crate::arguments::sharing::KeyCommand;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{BOLD, DIM, Output, Terminal};
use agent_registry::{KeyFile, Protection, SigningKey, create_key, public_path};
use std::path::Path;

/// Environment variable that contains the password of the private key. If the variable is not set, the user types the
/// password at the terminal.
const PASSWORD: &str = "AGENT_HOST_KEY_PASSWORD";

/// Runs a subcommand of `key`.
pub(crate) async fn run(command: KeyCommand, terminal: &Terminal) -> Result<Exit, Failure> {
    let KeyCommand::New { file, no_password } = command;
    let protection = if no_password { Protection::None } else { Protection::Password(new_password(terminal)?) };
    let path = file.clone();
    let created = tokio::task::spawn_blocking(move || create_key(&path, protection)).await.map_err(Failure::failed)?;
    let public = created.map_err(Failure::refused)?;
    let shown = format!(
        "{BOLD}{}{BOLD:#} {DIM}the private key that signs; keep it secret{DIM:#}\n\
         {BOLD}{}{BOLD:#} {DIM}the public key; share it{DIM:#}\n\n\
         To trust this key, add it to agent.toml, with the repository that it signs for:\n\n\
         [sharing]\nsignatures = \"required\"\n\n[sharing.trusted_keys]\n\"registry.example/team\" = \"{public}\"",
        file.display(),
        public_path(&file).display(),
    );
    terminal.print(shown).map_err(Failure::output)?;
    Ok(Exit::Done)
}

/// Reads the private key from a file, and decrypts the key if it has a password. The password is read from the
/// environment, or the user is asked for it.
pub(crate) async fn open(path: &Path, terminal: &Terminal) -> Result<SigningKey, Failure> {
    let file = KeyFile::read(path).map_err(Failure::refused)?;
    let password = match (file.needs_password(), environment::variable(PASSWORD)) {
        (false, _) => None,
        (true, Some(password)) => Some(password),
        (true, None) => Some(ask_for_password(&format!("password of {}: ", path.display()), terminal)?),
    };
    let opened = tokio::task::spawn_blocking(move || file.open(password)).await.map_err(Failure::failed)?;
    opened.map_err(Failure::refused)
}

fn new_password(terminal: &Terminal) -> Result<String, Failure> {
    let password = match environment::variable(PASSWORD) {
        Some(password) => password,
        None => {
            let first = ask_for_password("password for the new key: ", terminal)?;
            if first != ask_for_password("repeat the password: ", terminal)? {
                return Err(Failure::refused("the two passwords differ, so no key was created"));
            }
            first
        }
    };
    match password.is_empty() {
        true => {
            Err(Failure::refused("the password is empty: choose one, or use --no-password to create a key without one"))
        }
        false => Ok(password),
    }
}

fn ask_for_password(prompt: &str, terminal: &Terminal) -> Result<String, Failure> {
    let no_terminal = || {
        Failure::refused(format!(
            "the host cannot ask for the key's password here, because stderr is not a terminal: set {PASSWORD}, or \
             create the key with --no-password"
        ))
    };
    if !terminal.is_terminal(Output::Stderr) {
        return Err(no_terminal());
    }
    terminal.idle();
    rpassword::prompt_password(prompt).map_err(|_| no_terminal())
}
