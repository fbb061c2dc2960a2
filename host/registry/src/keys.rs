//! Creates and reads Ed25519 keys in minisign's file format. The file of a secret key can be read only by its owner.

use crate::error::RegistryError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use minisign::{KeyPair, SecretKeyBox};
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};

/// Maximum size of a key file, in bytes.
const MAX_KEY_FILE_BYTES: u64 = 4096;
/// Size of a secret key with its parameters, in bytes.
const SECRET_KEY_BYTES: usize = 158;
/// Value of the field that names the password algorithm, in a secret key that is not encrypted with a password.
const UNENCRYPTED: [u8; 2] = [0, 0];

/// A public key, which verifies signatures. The text of the key is the second line of a minisign `.pub` file.
#[derive(Clone, PartialEq, Eq)]
pub struct PublicKey {
    text: String,
    key: minisign_verify::PublicKey,
}

impl PublicKey {
    /// Parses the base64 text of a public key, which starts with `RW`.
    pub fn parse(text: &str) -> Result<Self, RegistryError> {
        let text = text.trim();
        let refused = |reason: &str| RegistryError::Key { place: shortened_key(text), reason: reason.to_owned() };
        if text.contains(char::is_whitespace) || text.len() > 64 {
            return Err(refused(
                "it is not a public key: use the second line of its `.pub` file, which starts with `RW`",
            ));
        }
        let key = minisign_verify::PublicKey::from_base64(text);
        let key =
            key.map_err(|_| refused("it is not a minisign public key, which has 56 characters and starts with `RW`"))?;
        Ok(Self { text: text.to_owned(), key })
    }

    /// Reads a public key from a `.pub` file.
    pub fn read(path: &Path) -> Result<Self, RegistryError> {
        let text = read(path)?;
        Self::parse(text.lines().nth(1).unwrap_or_default()).map_err(|_| RegistryError::Key {
            place: path.display().to_string(),
            reason: "it is not a minisign `.pub` file".to_owned(),
        })
    }

    /// Returns the public key as base64 text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(crate) fn verifier(&self) -> &minisign_verify::PublicKey {
        &self.key
    }

    /// Returns the key id that minisign stores in the key and in its signatures.
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

/// A key pair that creates signatures. The secret key is never displayed.
pub struct SigningKey {
    pub(crate) pair: KeyPair,
    /// The public key, which verifies the signatures of this key pair.
    pub public: PublicKey,
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "SigningKey({})", self.public)
    }
}

/// The content of a signing key's file. If the key is encrypted, [`KeyFile::open`] needs the password to decrypt it.
pub struct KeyFile {
    path: PathBuf,
    text: String,
    is_encrypted: bool,
}

impl KeyFile {
    /// Reads the file of a signing key.
    pub fn read(path: &Path) -> Result<Self, RegistryError> {
        let text = read(path)?;
        let bytes = decode_key(&text);
        if bytes.len() != SECRET_KEY_BYTES {
            let reason =
                "it is not a signing key from `agent-host key new` or minisign; a `.pub` file is only the public half";
            return Err(RegistryError::Key { place: path.display().to_string(), reason: reason.to_owned() });
        }
        Ok(Self { path: path.to_owned(), text, is_encrypted: bytes[2..4] != UNENCRYPTED })
    }

    /// Returns whether [`KeyFile::open`] needs a password.
    pub fn needs_password(&self) -> bool {
        self.is_encrypted
    }

    /// Returns the signing key. If the key is encrypted, it is decrypted with `password`, which takes about a second
    /// and a lot of memory. Therefore this function must not be called on an async thread.
    pub fn open(&self, password: Option<String>) -> Result<SigningKey, RegistryError> {
        let refused = |reason: String| RegistryError::Key { place: self.path.display().to_string(), reason };
        let secret = match (self.is_encrypted, password) {
            // An unencrypted key cannot be checked for damage, because minisign writes no checksum for it. This is
            // safe: a signature by a damaged key does not match the public key, and every signature is verified
            // before use.
            (false, _) => minisign::SecretKey::from_bytes(&decode_key(&self.text)),
            (true, Some(password)) => {
                SecretKeyBox::from_string(&self.text).and_then(|secret_box| secret_box.into_secret_key(Some(password)))
            }
            (true, None) => return Err(refused("the key needs its password".to_owned())),
        };
        let secret = secret.map_err(|error| {
            let problem = error.to_string();
            let is_wrong_password = problem.contains("Wrong password");
            refused(if is_wrong_password {
                "the password is wrong".to_owned()
            } else {
                format!("it is not a minisign signing key ({problem})")
            })
        })?;
        let public = minisign::PublicKey::from_secret_key(&secret).map_err(|error| refused(error.to_string()))?;
        let text = public.to_base64();
        Ok(SigningKey { pair: KeyPair { pk: public, sk: secret }, public: PublicKey::parse(&text)? })
    }
}

/// How a secret key is protected in its file.
pub enum Protection {
    /// The key is not encrypted. Anybody who can read the file can use the key.
    None,
    /// The key is encrypted with this password.
    Password(String),
}

/// Creates a key pair. The secret key is written to the file `path`, which only its owner can read. The public key is
/// written to the same path with the extension `.pub`. If one of the two files exists already, it is not replaced, and
/// an error is returned.
pub fn create(path: &Path, protection: Protection) -> Result<PublicKey, RegistryError> {
    let refused = |reason: String| RegistryError::Key { place: path.display().to_string(), reason };
    let public_file = public_path(path);
    if public_file == path {
        let reason =
            "`.pub` is the extension of the public half, which is created too: choose another name for the key";
        return Err(refused(reason.to_owned()));
    }
    let pair = match protection {
        Protection::None => KeyPair::generate_unencrypted_keypair(),
        Protection::Password(password) => KeyPair::generate_encrypted_keypair(Some(password)),
    };
    let pair = pair.map_err(|error| refused(error.to_string()))?;
    let secret = pair.sk.to_box(Some("agent-host: keep this secret, it signs plugins"));
    let secret = secret.map_err(|error| refused(error.to_string()))?.into_string();
    let public = PublicKey::parse(&pair.pk.to_base64())?;
    write_new(&public_file, &format!("untrusted comment: agent-host public key\n{public}\n"), 0o644)?;
    if let Err(error) = write_new(path, &secret, 0o600) {
        // Remove the file of the public key, because it would make the next attempt fail: existing files are not
        // replaced. No signature depends on this public key, because it was just created.
        let _ = std::fs::remove_file(&public_file);
        return Err(error);
    }
    Ok(public)
}

/// Returns the path of the public key that belongs to the secret key at `path`.
pub fn public_path(path: &Path) -> PathBuf {
    path.with_extension("pub")
}

fn write_new(path: &Path, text: &str, mode: u32) -> Result<(), RegistryError> {
    let mut options = std::fs::OpenOptions::new();
    options.write(true).create_new(true);
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, mode);
    let written =
        options.open(path).and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.map_err(|error| match error.kind() {
        std::io::ErrorKind::AlreadyExists => RegistryError::Key {
            place: path.display().to_string(),
            reason: "a file with this name already exists; keys are not replaced, because their signatures could no longer be verified"
                .to_owned(),
        },
        _ => RegistryError::file(path, "written", error),
    })
}

/// Decodes a secret key from the text of its file, in which the key is the second line. Returns an empty
/// vector if the line is not valid base64.
fn decode_key(text: &str) -> Vec<u8> {
    STANDARD.decode(text.lines().nth(1).unwrap_or_default().trim()).unwrap_or_default()
}

fn read(path: &Path) -> Result<String, RegistryError> {
    use std::io::Read;
    let mut text = String::new();
    let read = std::fs::File::open(path).and_then(|file| file.take(MAX_KEY_FILE_BYTES).read_to_string(&mut text));
    read.map(|_| text).map_err(|source| RegistryError::file(path, "read", source))
}

/// Shortens a text that should be a public key, so that an error message can show it. Only the first characters are
/// shown, because a user may have given a secret key by mistake.
fn shortened_key(text: &str) -> String {
    let start: String = text.chars().take(8).filter(|character| !character.is_control()).collect();
    format!("`{start}…`")
}

#[cfg(test)]
mod tests {
    use super::*;

    // P11: a key pair is written in minisign's format, only the owner can read the secret key, and existing keys are
    // never replaced.
    #[test]
    fn keys_are_created_once_and_read_back() {
        let directory = tempfile::tempdir().expect("the directory is created");
        let path = directory.path().join("team.key");
        let public = create(&path, Protection::None).expect("it is created");
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(path.metadata().expect("it exists").permissions().mode() & 0o777, 0o600);
        }
        assert_eq!(PublicKey::read(&directory.path().join("team.pub")).expect("the file is read"), public);
        let file = KeyFile::read(&path).expect("the file is read");
        assert!(!file.needs_password());
        assert_eq!(file.open(None).expect("the key is opened").public, public);
        let before = std::fs::read(&path).expect("it exists");
        assert!(create(&path, Protection::None).expect_err("it is refused").to_string().contains("not replaced"));
        std::fs::remove_file(directory.path().join("team.pub")).expect("the file is removed");
        assert!(create(&path, Protection::None).expect_err("it is refused").to_string().contains("not replaced"));
        assert_eq!(std::fs::read(&path).expect("it exists"), before);
    }

    #[test]
    fn encrypted_key_needs_its_password() {
        let directory = tempfile::tempdir().expect("the directory is created");
        let path = directory.path().join("team.key");
        let public = create(&path, Protection::Password("correct horse".to_owned())).expect("it is created");
        let file = KeyFile::read(&path).expect("the file is read");
        assert!(file.needs_password());
        assert!(file.open(None).expect_err("it is refused").to_string().contains("needs its password"));
        assert!(
            file.open(Some("wrong".to_owned())).expect_err("it is refused").to_string().contains("password is wrong")
        );
        assert_eq!(file.open(Some("correct horse".to_owned())).expect("the key is opened").public, public);
    }

    // P11: a file with the extension `.pub` never contains a secret key, and if creating a key pair fails, neither of
    // its two files remains.
    #[test]
    fn failed_key_creation_leaves_neither_file() {
        let directory = tempfile::tempdir().expect("the directory is created");
        let error =
            create(&directory.path().join("team.pub"), Protection::None).expect_err("it is refused").to_string();
        assert!(error.contains("public half"), "{error}");
        std::fs::create_dir(directory.path().join("team.key")).expect("it is created");
        create(&directory.path().join("team.key"), Protection::None).expect_err("a folder with this name exists");
        assert!(!directory.path().join("team.pub").exists());
        assert_eq!(std::fs::read_dir(directory.path()).expect("it exists").count(), 1);
    }

    // Row 16: if a secret key is used where a public key is expected, the error message does not contain the
    // secret key.
    #[test]
    fn errors_do_not_show_secret_keys() {
        let directory = tempfile::tempdir().expect("the directory is created");
        let path = directory.path().join("team.key");
        create(&path, Protection::None).expect("it is created");
        let secret = std::fs::read_to_string(&path).expect("it exists");
        let line = secret.lines().nth(1).expect("the file contains a key");
        let error = PublicKey::parse(line).expect_err("it is refused").to_string();
        assert!(!error.contains(&line[..12]), "{error}");
        let public = KeyFile::read(&directory.path().join("team.pub"));
        assert!(public.err().expect("it is refused").to_string().contains("only the public half"));
        let key = KeyFile::read(&path).expect("the file is read").open(None).expect("the key is opened");
        assert!(!format!("{key:?}").contains(&line[12..40]));
    }
}
