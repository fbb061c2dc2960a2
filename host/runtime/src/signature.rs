//! Signatures of HTTP messages with a shared key, as the Standard Webhooks specification 1.0 describes them. The host
//! signs the events that it sends, and checks the signatures of the webhooks that it receives.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// Maximum difference between the time in a signed message and the clock of the host, in seconds.
const MAX_AGE_SECONDS: u64 = 300;
/// Prefix of a key that is written in Base64.
const KEY_PREFIX: &str = "whsec_";
/// Minimum length of a key in bytes.
const MIN_KEY_BYTES: usize = 24;
/// Maximum number of signatures in a header that are checked.
const MAX_SIGNATURES: usize = 8;

/// A key that the sender and the receiver of messages share. Its text does not appear in debug output.
#[derive(Clone, PartialEq, Eq)]
pub struct SigningKey(Vec<u8>);

/// A signed message.
#[derive(Clone, Copy, Debug)]
pub struct SignedMessage<'m> {
    /// Id of the message, from the header `webhook-id`. It is the same in every repetition of the message.
    pub id: &'m str,
    /// Time of this attempt to send the message, in seconds since the Unix epoch, from the header `webhook-timestamp`.
    pub timestamp: u64,
    /// Body of the message.
    pub body: &'m [u8],
}

/// Why a signature is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SignatureError {
    /// No signature in the header was made with the key for this message.
    #[error("the signature does not match the message")]
    Mismatch,
    /// The message is too old or from the future, so it may be a repetition by somebody else.
    #[error("the time in `webhook-timestamp` differs from the host's clock by more than {MAX_AGE_SECONDS} s")]
    WrongTime,
}

/// Why a text is not a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a signing key is at least {MIN_KEY_BYTES} bytes long, as plain text or as `{KEY_PREFIX}` and Base64")]
pub struct InvalidKey;

impl SigningKey {
    /// Reads a key: `whsec_` and the key in Base64, or any other text of at least 24 bytes, which is the key itself.
    ///
    /// ```
    /// use agent_runtime::SigningKey;
    ///
    /// assert!(SigningKey::parse("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").is_ok());
    /// assert!(SigningKey::parse("too short").is_err());
    /// ```
    pub fn parse(text: &str) -> Result<Self, InvalidKey> {
        let bytes = match text.trim().strip_prefix(KEY_PREFIX) {
            Some(encoded) => STANDARD.decode(encoded).map_err(|_| InvalidKey)?,
            None => text.trim().as_bytes().to_vec(),
        };
        if bytes.len() < MIN_KEY_BYTES { Err(InvalidKey) } else { Ok(Self(bytes)) }
    }

    /// Returns the value of the header `webhook-signature` for a message.
    pub fn sign(&self, message: SignedMessage<'_>) -> String {
        format!("v1,{}", STANDARD.encode(self.digest_of(message).finalize().into_bytes()))
    }

    /// Checks the value of the header `webhook-signature` of a message that arrived at the time `now`, in seconds since
    /// the Unix epoch. The header may contain several signatures, separated by spaces, of which one must match.
    pub fn verify(&self, message: SignedMessage<'_>, header: &str, now: u64) -> Result<(), SignatureError> {
        if message.timestamp.abs_diff(now) > MAX_AGE_SECONDS {
            return Err(SignatureError::WrongTime);
        }
        let signatures = header.split(' ').filter_map(|signature| signature.strip_prefix("v1,")).take(MAX_SIGNATURES);
        let decoded = signatures.filter_map(|signature| STANDARD.decode(signature).ok());
        let mut matches = decoded.map(|signature| self.digest_of(message).verify_slice(&signature).is_ok());
        if matches.any(|matches| matches) { Ok(()) } else { Err(SignatureError::Mismatch) }
    }

    /// Checks the value of the header `X-Hub-Signature-256` for a body: `sha256=` and 64 hexadecimal digits.
    pub fn verify_hub(&self, body: &[u8], header: &str) -> Result<(), SignatureError> {
        let signature = header.strip_prefix("sha256=").and_then(bytes_of_hex).ok_or(SignatureError::Mismatch)?;
        let mut digest = self.keyed();
        digest.update(body);
        digest.verify_slice(&signature).map_err(|_| SignatureError::Mismatch)
    }

    fn keyed(&self) -> Hmac<Sha256> {
        Hmac::<Sha256>::new_from_slice(&self.0).unwrap_or_else(|_| unreachable!("a key can have any length"))
    }

    fn digest_of(&self, message: SignedMessage<'_>) -> Hmac<Sha256> {
        let mut digest = self.keyed();
        digest.update(format!("{}.{}.", message.id, message.timestamp).as_bytes());
        digest.update(message.body);
        digest
    }
}

/// Decodes hexadecimal digits. Returns `None` for other texts.
fn bytes_of_hex(text: &str) -> Option<Vec<u8>> {
    let digits: Vec<_> = text.chars().map(|character| character.to_digit(16)).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    rest.is_empty().then(|| pairs.iter().map(|[high, low]| (high * 16 + low) as u8).collect())
}

impl std::fmt::Debug for SigningKey {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("SigningKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of the Standard Webhooks specification.
    const KEY: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    const MESSAGE: SignedMessage<'_> = SignedMessage {
        id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp: 1_614_265_330,
        body: br#"{"test": 2432232314}"#,
    };
    const SIGNATURE: &str = "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";

    #[test]
    fn i9_signatures_match_the_example_of_the_specification() {
        let key = SigningKey::parse(KEY).expect("the key is valid");
        assert_eq!(key.sign(MESSAGE), SIGNATURE);
        assert_eq!(key.verify(MESSAGE, &format!("v1,bm9uc2Vuc2U= {SIGNATURE}"), MESSAGE.timestamp), Ok(()));
        assert_eq!(format!("{key:?}"), "SigningKey");
    }

    /// The example is from the documentation of a sender that signs in this form.
    #[test]
    fn i9_hub_signatures_match_the_body() {
        let key = SigningKey::parse("It's a Secret to Everybody").expect("the key is valid");
        let signature = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17";
        assert_eq!(key.verify_hub(b"Hello, World!", signature), Ok(()));
        assert_eq!(key.verify_hub(b"Hello, World!", &signature.to_uppercase().replace("SHA", "sha")), Ok(()));
        assert_eq!(key.verify_hub(b"Hello, World?", signature), Err(SignatureError::Mismatch));
        for header in ["", "sha256=", &signature[7..], &signature[..70], "sha1=757107", "sha256=ö7", "sha256=zz"] {
            assert_eq!(key.verify_hub(b"Hello, World!", header), Err(SignatureError::Mismatch), "{header}");
        }
    }

    #[test]
    fn i9_changed_old_and_unsigned_messages_are_refused() {
        let key = SigningKey::parse(KEY).expect("the key is valid");
        let verify = |message, header, now| key.verify(message, header, now);
        let now = MESSAGE.timestamp;
        assert_eq!(verify(MESSAGE, SIGNATURE, now + 301), Err(SignatureError::WrongTime));
        assert_eq!(verify(MESSAGE, SIGNATURE, now - 301), Err(SignatureError::WrongTime));
        let changes = [
            SignedMessage { id: "other", ..MESSAGE },
            SignedMessage { timestamp: now + 1, ..MESSAGE },
            SignedMessage { body: b"{}", ..MESSAGE },
        ];
        for changed in changes {
            assert_eq!(verify(changed, SIGNATURE, now), Err(SignatureError::Mismatch), "{changed:?}");
        }
        for header in ["", "v1,", "v1a,g0hM9SsE", SIGNATURE.trim_start_matches("v1,"), "v1,g0hM9SsE"] {
            assert_eq!(verify(MESSAGE, header, now), Err(SignatureError::Mismatch), "{header}");
        }
        let other = SigningKey::parse("another key of enough bytes").expect("the key is valid");
        assert_eq!(other.verify(MESSAGE, SIGNATURE, now), Err(SignatureError::Mismatch));
        for text in ["", "short", "whsec_", "whsec_%%%", "whsec_c2hvcnQ="] {
            assert_eq!(SigningKey::parse(text), Err(InvalidKey), "{text}");
        }
    }
}
