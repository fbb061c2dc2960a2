//! The tokens with which clients use the server. The file contains only digests of tokens.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use uuid::Uuid;

/// Beginning of each token, by which tools that search for leaked secrets recognise it.
const PREFIX: &str = "aht_";
/// Name of the token that is created when the server starts for the first time.
const FIRST_TOKEN: &str = "first";

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Right {
    /// Read agents, sessions, messages and events.
    Read,
    /// Begin sessions and turns, answer questions and requests to services, and cancel turns.
    Talk,
    /// Decide about calls that wait for an approval, and about calls whose outcome is unknown.
    Approve,
    /// Delete sessions.
    Administer,
    /// Read the metrics of the process.
    Observe,
}

impl Right {
    /// All rights.
    pub const ALL: [Self; 5] = [Self::Read, Self::Talk, Self::Approve, Self::Administer, Self::Observe];
}

/// A set of rights.
pub type Rights = BTreeSet<Right>;

/// A stored token. The token itself is not stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Token {
    /// Name of the token, for messages and lists.
    pub name: String,
    /// BLAKE3 digest of the token, in hexadecimal.
    pub digest: String,
    /// Names of the agents that the token may use. An empty list means all agents.
    #[serde(default)]
    pub agents: Vec<String>,
    /// What the token allows.
    pub rights: Rights,
    /// The user for whom the token works: it sees only sessions of this user, and its prompts work for this user. `None`
    /// means that the token sees the sessions of all users.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user: Option<String>,
    /// Time at which the token was created, as RFC 3339 in UTC.
    pub created: String,
}

/// The description of a token that is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewToken {
    /// Name of the token.
    pub name: String,
    /// Names of the agents that the token may use. An empty list means all agents.
    pub agents: Vec<String>,
    /// What the token allows.
    pub rights: Rights,
    /// The user for whom the token works.
    pub user: Option<String>,
}

/// The file that stores the tokens of a server. Only its owner can read it, unless it is shared.
#[derive(Clone, Debug)]
pub struct TokenFile {
    path: PathBuf,
    is_shared: bool,
}

/// Why the tokens cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("the file `{path}` with the server's tokens cannot be used: {error}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// The error of the file system.
        error: io::Error,
    },
    /// The file has the wrong format.
    #[error(
        "the file `{path}` with the server's tokens cannot be read: {problem}; correct it, or delete it and create new tokens"
    )]
    Format {
        /// Path of the file.
        path: PathBuf,
        /// Description of the problem.
        problem: String,
    },
    /// Other users can read the file.
    #[error(
        "other users can access the file `{path}` with the server's tokens; make it private with: chmod 600 {path}"
    )]
    NotPrivate {
        /// Path of the file.
        path: PathBuf,
    },
    /// Other users can change a shared file.
    #[error(
        "other users can change the file `{path}` with the server's tokens, and so give themselves every right; protect it with: \
         chmod go-w {path}"
    )]
    NotProtected {
        /// Path of the file.
        path: PathBuf,
    },
    /// A token with this name exists.
    #[error("a token named `{0}` exists; choose another name, or revoke it first")]
    Exists(String),
    /// No token has this name.
    #[error("there is no token named `{0}`")]
    Unknown(String),
    /// The name is not valid.
    #[error("`{0}` is not a valid name: use 1 to 64 letters, digits, `-`, `_` and `.`")]
    Name(String),
}

#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    tokens: Vec<Token>,
}

impl Token {
    /// Returns whether the token may use this agent.
    pub fn allows_agent(&self, agent: &str) -> bool {
        self.agents.is_empty() || self.agents.iter().any(|allowed| allowed == agent)
    }
}

impl TokenFile {
    /// Uses the file at this path, which need not exist.
    pub fn new(path: PathBuf) -> Self {
        Self { path, is_shared: false }
    }

    /// Uses a file that the operator gives to several machines, such as a mounted secret. It must exist before a server uses
    /// it. Other users may read it, because it contains only digests of tokens, but they must not be able to change it.
    pub fn shared(path: PathBuf) -> Self {
        Self { path, is_shared: true }
    }

    /// Returns the path of the file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns a value that changes whenever the file changes.
    pub(crate) fn version(&self) -> Option<(SystemTime, u64)> {
        let metadata = fs::metadata(&self.path).ok()?;
        Some((metadata.modified().ok()?, metadata.len()))
    }

    /// Returns the stored tokens. If the file does not exist, there are none, but a shared file must exist.
    pub fn tokens(&self) -> Result<Vec<Token>, TokenError> {
        match self.stored()? {
            None if self.is_shared => {
                let problem = "it does not exist; `agent-host token create NAME --right read --tokens FILE` creates it";
                Err(self.unusable(io::Error::new(io::ErrorKind::NotFound, problem)))
            }
            tokens => Ok(tokens.unwrap_or_default()),
        }
    }

    /// Returns the stored tokens, or `None` if the file does not exist.
    fn stored(&self) -> Result<Option<Vec<Token>>, TokenError> {
        let text = match fs::read_to_string(&self.path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            text => text.map_err(|error| self.unusable(error))?,
        };
        self.check_privacy()?;
        let format =
            |error: serde_json::Error| TokenError::Format { path: self.path.clone(), problem: error.to_string() };
        Ok(Some(serde_json::from_str::<Contents>(&text).map_err(format)?.tokens))
    }

    /// Creates the first token with all rights, if there is no token. Returns the token, which is shown only once.
    pub fn create_first(&self) -> Result<Option<String>, TokenError> {
        if !self.tokens()?.is_empty() {
            return Ok(None);
        }
        let rights = Right::ALL.into();
        self.create(NewToken { name: FIRST_TOKEN.to_owned(), agents: Vec::new(), rights, user: None }).map(Some)
    }

    /// Creates a token. Returns the token, which is shown only once.
    pub fn create(&self, new: NewToken) -> Result<String, TokenError> {
        let NewToken { name, agents, rights, user } = new;
        let is_allowed = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        if name.is_empty() || name.len() > 64 || !name.chars().all(is_allowed) {
            return Err(TokenError::Name(name));
        }
        let _lock = self.lock()?;
        let mut tokens = self.stored()?.unwrap_or_default();
        if tokens.iter().any(|token| token.name == name) {
            return Err(TokenError::Exists(name));
        }
        // Two random UUIDs contain 244 random bits.
        let token = format!("{PREFIX}{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
        let created = jiff::Timestamp::now().to_string();
        tokens.push(Token { name, digest: digest(&token), agents, rights, user, created });
        self.write(tokens)?;
        Ok(token)
    }

    /// Revokes the token with this name.
    pub fn revoke(&self, name: &str) -> Result<(), TokenError> {
        let _lock = self.lock()?;
        let mut tokens = self.tokens()?;
        let count = tokens.len();
        tokens.retain(|token| token.name != name);
        if tokens.len() == count {
            return Err(TokenError::Unknown(name.to_owned()));
        }
        self.write(tokens)
    }

    /// Waits until no other process changes the file. The lock ends when the result is dropped.
    fn lock(&self) -> Result<File, TokenError> {
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let file = options.open(self.path.with_extension("lock")).map_err(|error| self.unusable(error))?;
        file.lock().map_err(|error| self.unusable(error))?;
        Ok(file)
    }

    /// Writes a token to a file that only its owner can read, for programs on this machine.
    pub fn write_private(path: &Path, token: &str) -> Result<(), TokenError> {
        replace(path, &format!("{token}\n")).map_err(|error| TokenError::File { path: path.to_owned(), error })
    }

    fn write(&self, tokens: Vec<Token>) -> Result<(), TokenError> {
        let text = serde_json::to_string_pretty(&Contents { tokens }).unwrap_or_default() + "\n";
        replace(&self.path, &text).map_err(|error| self.unusable(error))
    }

    #[cfg(unix)]
    fn check_privacy(&self) -> Result<(), TokenError> {
        use std::os::unix::fs::PermissionsExt;
        let metadata = fs::metadata(&self.path).map_err(|error| self.unusable(error))?;
        let mode = metadata.permissions().mode();
        match self.is_shared {
            true if mode & 0o022 != 0 => Err(TokenError::NotProtected { path: self.path.clone() }),
            false if mode & 0o077 != 0 => Err(TokenError::NotPrivate { path: self.path.clone() }),
            _ => Ok(()),
        }
    }

    #[cfg(not(unix))]
    fn check_privacy(&self) -> Result<(), TokenError> {
        Ok(())
    }

    fn unusable(&self, error: io::Error) -> TokenError {
        TokenError::File { path: self.path.clone(), error }
    }
}

/// Replaces a file atomically by a file that only its owner can read.
fn replace(path: &Path, text: &str) -> io::Result<()> {
    let temporary = path.with_extension(format!("{}.tmp", Uuid::new_v4().simple()));
    let written = create_private(&temporary)
        .and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()))
        .and_then(|()| fs::rename(&temporary, path));
    if written.is_err() {
        // No process reads the temporary file, so a failure to remove it does not matter.
        let _ = fs::remove_file(&temporary);
    }
    written
}

fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    options.open(path)
}

/// Returns the digest under which a token is stored. Because digests are compared instead of tokens, the time of a
/// comparison tells nothing about a token.
pub(crate) fn digest(token: &str) -> String {
    blake3::hash(token.as_bytes()).to_hex().to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_token(name: &str) -> NewToken {
        NewToken { name: name.to_owned(), agents: vec!["clerk".to_owned()], rights: [Right::Read].into(), user: None }
    }

    /// I3, F2: a shared file must exist and be protected from changes, and its reader need not be its owner.
    #[cfg(unix)]
    #[test]
    fn f2_a_shared_file_of_tokens_may_be_readable() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::shared(folder.path().join("tokens.json"));
        assert!(matches!(file.tokens(), Err(TokenError::File { .. })), "a missing file is an error");
        let token = file.create(new_token("reader")).unwrap();
        let mode = |mode| fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        mode(0o444);
        assert_eq!(file.tokens().unwrap()[0].digest, digest(&token));
        for open in [0o460, 0o406] {
            mode(open);
            assert!(matches!(file.tokens(), Err(TokenError::NotProtected { .. })), "{open:o}");
        }
    }

    /// I3: the first token is created once. The file contains no token, and only its owner can read it.
    #[test]
    fn i3_tokens_are_stored_as_digests_in_a_private_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::new(folder.path().join("tokens.json"));
        let first = file.create_first().unwrap().expect("the first start creates a token");
        assert_eq!(file.create_first().unwrap(), None);
        let reader = file.create(new_token("reader")).unwrap();
        assert!(reader.starts_with(PREFIX) && reader.len() == 68 && reader != first, "{reader}");
        let text = fs::read_to_string(file.path()).unwrap();
        assert!(!text.contains(&first) && !text.contains(&reader), "{text}");
        let tokens = file.tokens().unwrap();
        assert_eq!((tokens[1].digest.as_str(), tokens[1].rights.len()), (digest(&reader).as_str(), 1));
        assert!(tokens[1].allows_agent("clerk") && !tokens[1].allows_agent("other") && tokens[0].allows_agent("other"));
        assert!(matches!(file.create(new_token("reader")), Err(TokenError::Exists(_))));
        for name in ["", "a/b", "ü", &"a".repeat(65)] {
            assert!(matches!(file.create(new_token(name)), Err(TokenError::Name(_))), "{name}");
        }
        file.revoke("reader").unwrap();
        assert!(matches!(file.revoke("reader"), Err(TokenError::Unknown(_))));
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 2, "only the file and its lock remain");
    }

    /// I3: a file that other users can read is refused, and so is a damaged file.
    #[cfg(unix)]
    #[test]
    fn i3_a_token_file_that_others_can_read_is_refused() {
        use std::os::unix::fs::PermissionsExt;
        let folder = tempfile::tempdir().unwrap();
        let file = TokenFile::new(folder.path().join("tokens.json"));
        file.create(new_token("reader")).unwrap();
        let mode = |mode| fs::set_permissions(file.path(), fs::Permissions::from_mode(mode)).unwrap();
        assert_eq!(fs::metadata(file.path()).unwrap().permissions().mode() & 0o777, 0o600);
        mode(0o640);
        assert!(matches!(file.tokens(), Err(TokenError::NotPrivate { .. })));
        mode(0o600);
        fs::write(file.path(), "{").unwrap();
        assert!(matches!(file.tokens(), Err(TokenError::Format { .. })));
    }
}
