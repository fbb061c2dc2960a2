//! Files with which a process signs in at NATS: credentials files, and files with the seed of an NKey. A file is read again for each
//! connection, so that it can be replaced while the process runs. No message contains a part of a file.

use async_nats::Auth;
use nkeys::{KeyPair, KeyPairType};
use std::fmt;
use std::path::{Path, PathBuf};

/// Maximum size of a file, in bytes.
const MAX_FILE: u64 = 64 << 10;

/// Reads a file that has at most the given number of bytes.
pub type ReadFile = fn(&Path, u64) -> std::io::Result<Vec<u8>>;

/// A file with which a process signs in: a credentials file (user JWT and seed of an NKey), or a file with the seed of a user's NKey.
/// See <https://docs.nats.io/using-nats/developer/connecting/creds>.
#[derive(Clone)]
pub(crate) struct CredentialsFile {
    path: PathBuf,
    read: ReadFile,
}

impl CredentialsFile {
    pub(crate) fn new(path: PathBuf, read: ReadFile) -> Self {
        Self { path, read }
    }

    /// Reads the file. The error is a sentence that names the file.
    pub(crate) fn user_key(&self) -> Result<UserKey, String> {
        let shown = self.path.display();
        let bytes = (self.read)(&self.path, MAX_FILE)
            .map_err(|error| format!("the file `{shown}` with the credentials for NATS cannot be read: {error}"))?;
        UserKey::parse(&bytes).ok_or_else(|| {
            format!(
                "the file `{shown}` has no credentials for NATS: it must be a credentials file with the JWT and the seed of a user, \
                 as `nsc` writes it, or contain only the seed of a user's NKey, which begins with `SU`"
            )
        })
    }
}

impl fmt::Debug for CredentialsFile {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("CredentialsFile").field(&self.path).finish()
    }
}

/// The NKey of a user. If an account has issued the user, the key has a JWT.
pub(crate) struct UserKey {
    jwt: Option<String>,
    key: KeyPair,
}

impl UserKey {
    fn parse(file: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(file).ok()?;
        let jwt = section(text, "NATS USER JWT");
        if jwt.is_some_and(|jwt| !jwt.chars().all(|c| c.is_ascii_alphanumeric() || "-_.=".contains(c))) {
            return None;
        }
        let alone = || Some(text.trim()).filter(|_| jwt.is_none());
        let key = KeyPair::from_seed(section(text, "USER NKEY SEED").or_else(alone)?).ok()?;
        matches!(key.key_pair_type(), KeyPairType::User).then(|| Self { jwt: jwt.map(str::to_owned), key })
    }

    /// Signs the server's nonce.
    pub(crate) fn sign(&self, nonce: &[u8]) -> Option<Auth> {
        let mut auth = Auth::new();
        auth.signature = Some(self.key.sign(nonce).ok()?);
        match &self.jwt {
            Some(jwt) => auth.jwt = Some(jwt.clone()),
            None => auth.nkey = Some(self.key.public_key()),
        }
        Some(auth)
    }
}

/// Returns the line after `-----BEGIN NAME-----`.
fn section<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let is_begin = |line: &str| line.trim_matches(['-', ' ', '\r']).strip_prefix("BEGIN ") == Some(name);
    text.lines().skip_while(|line| !is_begin(line)).skip(1).map(str::trim).find(|line| !line.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// F1: credentials files and seeds are read, other files are refused, and no message contains a seed.
    #[test]
    fn f1_only_credentials_of_users_are_read() {
        let user = KeyPair::new_user();
        let (seed, public) = (user.seed().expect("a seed"), user.public_key());
        let credentials = |seed: &str, jwt: &str| {
            format!(
                "-----BEGIN NATS USER JWT-----\r\n{jwt}\r\n------END NATS USER JWT------\r\n\n*** IMPORTANT ***\n\n\
                 -----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n"
            )
        };
        let complete = UserKey::parse(credentials(&seed, "e30.e30.x-_").as_bytes()).expect("valid");
        let signed = complete.sign(b"nonce").expect("signed");
        assert_eq!((signed.jwt.as_deref(), signed.nkey), (Some("e30.e30.x-_"), None));
        assert!(user.verify(b"nonce", &signed.signature.expect("a signature")).is_ok());
        for text in [seed.clone(), format!("\n{seed}\r\n")] {
            let signed = UserKey::parse(text.as_bytes()).expect("valid").sign(b"nonce").expect("signed");
            assert_eq!((signed.jwt, signed.nkey), (None, Some(public.clone())));
        }
        let armoured = format!("-----BEGIN USER NKEY SEED-----\n{seed}\n------END USER NKEY SEED------\n");
        assert_eq!(UserKey::parse(armoured.as_bytes()).expect("valid").key.public_key(), public);

        let account = KeyPair::new_account().seed().expect("a seed");
        let jwt_alone = "-----BEGIN NATS USER JWT-----\ne30.e30.x\n------END NATS USER JWT------\n".to_owned();
        let wrong = [
            String::new(),
            account.clone(),
            credentials(&account, "e30"),
            credentials("", "e30"),
            credentials(&seed, "e30\"\n"),
            credentials(&seed, "e30 e30"),
            jwt_alone,
            public,
            seed[1..].to_owned(),
            format!("{seed} {seed}"),
        ];
        for text in &wrong {
            assert!(UserKey::parse(text.as_bytes()).is_none(), "{text}");
        }
        assert!(UserKey::parse(&[0xff, 0xfe]).is_none());
        let file = CredentialsFile::new("user.creds".into(), |_, _| Ok(b"SUsecret".to_vec()));
        let problem = file.user_key().err().expect("refused");
        assert!(problem.contains("user.creds") && !problem.contains("SUsecret"), "{problem}");
    }
}
