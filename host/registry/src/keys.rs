//! Ed25519 keys in minisign's files: made, kept for their owner only, and read.

use crate::error::ShareError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use minisign::{KeyPair, SecretKeyBox};
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Largest file of a key.
const KEY_BYTES: u64 = 4096;
/// Of a key that signs, with all that says how it is kept.
const SECRET_BYTES: usize = 158;
/// First bytes of keys whose secret half is kept without a password.
const UNENCRYPTED: [u8; 2] = [0, 0];

/// A key with which signatures are checked: the second line of minisign's `.pub` files.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    text: String,
    key: minisign_verify::PublicKey,
}

impl PublicKey {
    /// Reads the base64 text, which begins with `RW`.
    pub fn parse(text: &str) -> Result<Self, ShareError> {
        let text = text.trim();
        let refused = |reason: &str| ShareError::Key { place: shown_key(text), reason: reason.to_owned() };
        if text.contains(char::is_whitespace) || text.len() > 64 {
            return Err(refused(
                "it is no public key: write the second line of its `.pub` file, which begins with `RW`",
            ));
        }
        let key = minisign_verify::PublicKey::from_base64(text);
        let key =
            key.map_err(|_| refused("it is no public key of minisign: those have 56 characters and begin with `RW`"))?;
        Ok(Self { text: text.to_owned(), key })
    }

    /// Reads a `.pub` file, or the text itself.
    pub fn read(path: &Path) -> Result<Self, ShareError> {
        let text = read(path)?;
        Self::parse(text.lines().nth(1).unwrap_or_default()).map_err(|_| ShareError::Key {
            place: path.display().to_string(),
            reason: "it is no `.pub` file of minisign".to_owned(),
        })
    }

    /// The base64 text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn verifier(&self) -> &minisign_verify::PublicKey {
        &self.key
    }

    /// As minisign shows it.
    pub(crate) fn id(&self) -> Option<[u8; 8]> {
        let bytes = STANDARD.decode(&self.text).ok()?;
        bytes.get(2..10)?.try_into().ok()
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "PublicKey({})", self.text)
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.text)
    }
}

/// A key that signs. It is never shown.
pub struct SigningKey {
    pub(crate) pair: KeyPair,
    /// Its public half.
    pub public: PublicKey,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SigningKey({})", self.public)
    }
}

/// The file of a key that signs, before it is known whether it needs a password.
pub struct KeyFile {
    path: PathBuf,
    text: String,
    is_encrypted: bool,
}

impl KeyFile {
    /// Reads it.
    pub fn read(path: &Path) -> Result<Self, ShareError> {
        let text = read(path)?;
        let bytes = decoded(&text);
        if bytes.len() != SECRET_BYTES {
            let reason = "it is no key that signs, as `agent-host key new` and minisign make them; a `.pub` file is only its public half";
            return Err(ShareError::Key { place: path.display().to_string(), reason: reason.to_owned() });
        }
        Ok(Self { path: path.to_owned(), text, is_encrypted: bytes[2..4] != UNENCRYPTED })
    }

    /// Whether [`KeyFile::open`] needs a password.
    pub fn needs_password(&self) -> bool {
        self.is_encrypted
    }

    /// The key. Deriving it from a password takes a second and some memory: not for the threads of other work.
    pub fn open(&self, password: Option<String>) -> Result<SigningKey, ShareError> {
        let refused = |reason: String| ShareError::Key { place: self.path.display().to_string(), reason };
        let secret = match (self.is_encrypted, password) {
            // Read as it is: minisign itself writes no checksum where there is no password. A damaged one signs nothing that
            // its public half takes, and that is checked with every signature.
            (false, _) => minisign::SecretKey::from_bytes(&decoded(&self.text)),
            (true, Some(password)) => {
                SecretKeyBox::from_string(&self.text).and_then(|kept| kept.into_secret_key(Some(password)))
            }
            (true, None) => return Err(refused("it needs its password".to_owned())),
        };
        let secret = secret.map_err(|error| {
            let wrong = error.to_string();
            let is_password = wrong.contains("Wrong password");
            refused(if is_password {
                "that is not its password".to_owned()
            } else {
                format!("it is no key of minisign that signs ({wrong})")
            })
        })?;
        let public = minisign::PublicKey::from_secret_key(&secret).map_err(|error| refused(error.to_string()))?;
        let text = public.to_base64();
        Ok(SigningKey { pair: KeyPair { pk: public, sk: secret }, public: PublicKey::parse(&text)? })
    }
}

/// How the secret half is kept.
pub enum Protection {
    /// Readable by whoever can read the file.
    None,
    /// Only with this.
    Password(String),
}

/// Makes a key pair: `PATH` for its owner only, and `PATH` with the ending `.pub` for all. Nothing is replaced.
pub fn create(path: &Path, protection: Protection) -> Result<PublicKey, ShareError> {
    let refused = |reason: String| ShareError::Key { place: path.display().to_string(), reason };
    let beside = public_path(path);
    if beside == path {
        let reason = "`.pub` is what the public half is named by: name the key itself, and the other stands beside it";
        return Err(refused(reason.to_owned()));
    }
    let pair = match protection {
        Protection::None => KeyPair::generate_unencrypted_keypair(),
        Protection::Password(password) => KeyPair::generate_encrypted_keypair(Some(password)),
    };
    let pair = pair.map_err(|error| refused(error.to_string()))?;
    let kept = pair.sk.to_box(Some("agent-host: keep this secret, it signs plugins"));
    let kept = kept.map_err(|error| refused(error.to_string()))?.into_string();
    let public = PublicKey::parse(&pair.pk.to_base64())?;
    write_new(&beside, &format!("untrusted comment: agent-host public key\n{public}\n"), 0o644)?;
    if let Err(error) = write_new(path, &kept, 0o600) {
        // Half a pair would be in the way of the next one. It was made here, and has signed nothing.
        let _ = std::fs::remove_file(&beside);
        return Err(error);
    }
    Ok(public)
}

/// Where the public half of a key stands.
pub fn public_path(path: &Path) -> PathBuf {
    path.with_extension("pub")
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), ShareError> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    let written =
        options.open(path).and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => ShareError::Key {
            place: path.display().to_string(),
            reason: "there is a file of that name; a key is not replaced, since what it signed could not be checked any more"
                .to_owned(),
        },
        _ => ShareError::file(path, "written", error),
    })
}

/// The second line.
fn decoded(text: &str) -> Vec<u8> {
    STANDARD.decode(text.lines().nth(1).unwrap_or_default().trim()).unwrap_or_default()
}

fn read(path: &Path) -> Result<String, ShareError> {
    use std::io::Read;
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(KEY_BYTES).read_to_string(&mut text));
    read.map(|_| text).map_err(|source| ShareError::file(path, "read", source))
}

/// A text that should be a key may be a secret: only its beginning is shown.
fn shown_key(text: &str) -> String {
    let begin: String = text.chars().take(8).filter(|character| !character.is_control()).collect();
    format!("`{begin}…`")
}

#[cfg(test)]
mod tests {
    use super::*;

    // P11: a key pair in minisign's format, for its owner only, never replaced.
    #[test]
    fn keys_are_made_once_and_read_again() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("team.key");
        let public = create(&path, Protection::None).expect("made");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(path.metadata().expect("there").permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(PublicKey::read(&directory.path().join("team.pub")).expect("read"), public);
        let file = KeyFile::read(&path).expect("read");
        assert!(!file.needs_password());
        assert_eq!(file.open(None).expect("opened").public, public);
        let before = std::fs::read(&path).expect("there");
        assert!(create(&path, Protection::None).expect_err("refused").to_string().contains("not replaced"));
        std::fs::remove_file(directory.path().join("team.pub")).expect("removed");
        assert!(create(&path, Protection::None).expect_err("refused").to_string().contains("not replaced"));
        assert_eq!(std::fs::read(&path).expect("there"), before);
    }

    #[test]
    fn a_password_is_needed_where_one_was_given() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("team.key");
        let public = create(&path, Protection::Password("correct horse".to_owned())).expect("made");
        let file = KeyFile::read(&path).expect("read");
        assert!(file.needs_password());
        assert!(file.open(None).expect_err("refused").to_string().contains("needs its password"));
        assert!(file.open(Some("wrong".to_owned())).expect_err("refused").to_string().contains("not its password"));
        assert_eq!(file.open(Some("correct horse".to_owned())).expect("opened").public, public);
    }

    // P11: what is named like a public key never holds a secret one, and half a pair is not left behind.
    #[test]
    fn a_pair_is_whole_or_not_there() {
        let directory = tempfile::tempdir().expect("a directory");
        let error = create(&directory.path().join("team.pub"), Protection::None).expect_err("refused").to_string();
        assert!(error.contains("public half"), "{error}");
        std::fs::create_dir(directory.path().join("team.key")).expect("made");
        create(&directory.path().join("team.key"), Protection::None).expect_err("a folder is there");
        assert!(!directory.path().join("team.pub").exists());
        assert_eq!(std::fs::read_dir(directory.path()).expect("there").count(), 1);
    }

    // Row 16: what should be a public key may be a secret one.
    #[test]
    fn what_is_no_key_is_not_shown() {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("team.key");
        create(&path, Protection::None).expect("made");
        let secret = std::fs::read_to_string(&path).expect("there");
        let line = secret.lines().nth(1).expect("the key");
        let error = PublicKey::parse(line).expect_err("refused").to_string();
        assert!(!error.contains(&line[..12]), "{error}");
        let public = KeyFile::read(&directory.path().join("team.pub"));
        assert!(public.err().expect("refused").to_string().contains("only its public half"));
        let key = KeyFile::read(&path).expect("read").open(None).expect("opened");
        assert!(!format!("{key:?}").contains(&line[12..40]));
    }
}
