//! Short sign-ins of the web console. A page exchanges a token, or a code that is used once, for a secret that replaces the
//! token for some hours. The page stores only this secret, so that nobody can take a token that lasts from a browser.

use crate::tokens::digest;
use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use uuid::Uuid;

/// Beginning of each secret of a sign-in.
pub(crate) const PREFIX: &str = "ahs_";
/// Beginning of each code.
const CODE_PREFIX: &str = "ahc_";
/// Time after which a sign-in ends.
pub(crate) const LIFETIME: Duration = Duration::from_secs(12 * 60 * 60);
/// Time after which a code can no longer be used.
pub(crate) const CODE_LIFETIME: Duration = Duration::from_secs(10 * 60);
/// Maximum number of sign-ins of one token. A further sign-in ends the oldest one.
const PER_TOKEN: usize = 32;
/// Maximum number of sign-ins in total.
const IN_TOTAL: usize = 1_024;
/// Maximum number of codes that were not used yet.
const CODES: usize = 8;

/// The sign-ins and codes of a server. They are kept in memory only and end with the server.
#[derive(Default)]
pub(crate) struct SignIns {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// By the digest of the secret.
    sign_ins: HashMap<String, Credential>,
    /// By the digest of the code.
    codes: HashMap<String, Credential>,
}

/// A token for which a secret or a code stands.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Credential {
    token_digest: String,
    begun: Instant,
}

impl SignIns {
    /// Begins a sign-in for the token with this digest. Returns its secret.
    pub(crate) fn begin(&self, token_digest: &str) -> String {
        let mut state = self.state();
        state.sign_ins.retain(|_, sign_in| sign_in.begun.elapsed() < LIFETIME);
        let own = state.sign_ins.values().filter(|sign_in| sign_in.token_digest == token_digest).count();
        if own >= PER_TOKEN {
            remove_oldest(&mut state.sign_ins, |sign_in| sign_in.token_digest == token_digest);
        } else if state.sign_ins.len() >= IN_TOTAL {
            remove_oldest(&mut state.sign_ins, |_| true);
        }
        insert(&mut state.sign_ins, PREFIX, token_digest)
    }

    /// Creates a code with which a page can begin one sign-in for the token with this digest.
    pub(crate) fn create_code(&self, token_digest: &str) -> String {
        let mut state = self.state();
        state.codes.retain(|_, code| code.begun.elapsed() < CODE_LIFETIME);
        if state.codes.len() >= CODES {
            remove_oldest(&mut state.codes, |_| true);
        }
        insert(&mut state.codes, CODE_PREFIX, token_digest)
    }

    /// Uses a code up. Returns the digest of its token, or `None` if the code was used already, is too old or never existed.
    pub(crate) fn redeem(&self, code: &str) -> Option<String> {
        let code = self.state().codes.remove(&digest(code))?;
        (code.begun.elapsed() < CODE_LIFETIME).then_some(code.token_digest)
    }

    /// Returns the digest of the token for which a sign-in stands. `sign_in` is the digest of its secret.
    pub(crate) fn token_of(&self, sign_in: &str) -> Option<String> {
        let state = self.state();
        let found = state.sign_ins.get(sign_in)?;
        (found.begun.elapsed() < LIFETIME).then(|| found.token_digest.clone())
    }

    /// Ends a sign-in. `sign_in` is the digest of its secret.
    pub(crate) fn end(&self, sign_in: &str) {
        self.state().sign_ins.remove(sign_in);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn insert(credentials: &mut HashMap<String, Credential>, prefix: &str, token_digest: &str) -> String {
    // Two random UUIDs contain 244 random bits.
    let secret = format!("{prefix}{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple());
    credentials.insert(digest(&secret), Credential { token_digest: token_digest.to_owned(), begun: Instant::now() });
    secret
}

fn remove_oldest(credentials: &mut HashMap<String, Credential>, is_counted: impl Fn(&Credential) -> bool) {
    let counted = credentials.iter().filter(|(_, credential)| is_counted(credential));
    let oldest = counted.min_by_key(|(_, credential)| credential.begun).map(|(digest, _)| digest.clone());
    if let Some(oldest) = oldest {
        credentials.remove(&oldest);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 24: a code begins one sign-in, and a sign-in that has ended is refused.
    #[test]
    fn row_24_codes_are_used_once_and_sign_ins_end() {
        let sign_ins = SignIns::default();
        let code = sign_ins.create_code("token");
        assert_eq!(sign_ins.redeem("ahc_guess"), None);
        assert_eq!(sign_ins.redeem(&code), Some("token".to_owned()));
        assert_eq!(sign_ins.redeem(&code), None, "a code is used once");
        let secret = sign_ins.begin("token");
        assert_eq!(sign_ins.token_of(&digest(&secret)), Some("token".to_owned()));
        assert_eq!(sign_ins.token_of(&digest(&code)), None, "a code is not a sign-in");
        sign_ins.end(&digest(&secret));
        assert_eq!(sign_ins.token_of(&digest(&secret)), None);
    }

    /// Row 25: the number of sign-ins and codes is limited, and the newest ones are kept.
    #[test]
    fn row_25_sign_ins_and_codes_are_limited() {
        let sign_ins = SignIns::default();
        let other = sign_ins.begin("other");
        let secrets: Vec<String> = (0..=PER_TOKEN).map(|_| sign_ins.begin("token")).collect();
        assert_eq!(sign_ins.token_of(&digest(&secrets[0])), None, "the oldest sign-in of the token has ended");
        assert!(secrets[1..].iter().all(|secret| sign_ins.token_of(&digest(secret)).is_some()));
        assert!(sign_ins.token_of(&digest(&other)).is_some(), "the sign-ins of other tokens are kept");
        let codes: Vec<String> = (0..=CODES).map(|_| sign_ins.create_code("token")).collect();
        assert_eq!(sign_ins.redeem(&codes[0]), None);
        assert!(codes[1..].iter().all(|code| sign_ins.redeem(code).is_some()));
    }
}
