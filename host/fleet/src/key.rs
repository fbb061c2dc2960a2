//! The key with which the processes of a fleet recognise each other's messages.

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use std::fmt;

/// Length of a signature, in bytes.
pub(crate) const SIGNATURE_BYTES: usize = 32;

/// A secret that only the processes of a fleet know, because it is in their database. They sign streamed text and repeated events
/// with it.
#[derive(Clone, PartialEq, Eq)]
pub struct FleetKey([u8; 32]);

impl FleetKey {
    /// Uses a key that consists of 32 bytes. Returns `None` for other lengths.
    pub fn new(key: &[u8]) -> Option<Self> {
        key.try_into().ok().map(Self)
    }

    /// Signs a text that is used for one purpose only.
    pub(crate) fn sign(&self, purpose: &str, text: &[u8]) -> [u8; SIGNATURE_BYTES] {
        self.mac(purpose, text).finalize().into_bytes().into()
    }

    pub(crate) fn has_signed(&self, purpose: &str, text: &[u8], signature: &[u8]) -> bool {
        self.mac(purpose, text).verify_slice(signature).is_ok()
    }

    fn mac(&self, purpose: &str, text: &[u8]) -> Hmac<Sha256> {
        let keyed = Hmac::<Sha256>::new_from_slice(&self.0);
        let mut mac = keyed.unwrap_or_else(|_| unreachable!("a key can have any length"));
        for part in [purpose.as_bytes(), &[0], text] {
            mac.update(part);
        }
        mac
    }
}

impl fmt::Debug for FleetKey {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("FleetKey")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_has_32_bytes_and_is_never_shown() {
        assert!(FleetKey::new(&[1; 31]).is_none() && FleetKey::new(&[1; 33]).is_none());
        let key = FleetKey::new(&[b'k'; 32]).expect("32 bytes");
        assert_eq!(format!("{key:?}"), "FleetKey");
        let signature = key.sign("a", b"text");
        assert!(key.has_signed("a", b"text", &signature));
        assert!(!key.has_signed("b", b"text", &signature) && !key.has_signed("a", b"text", &signature[1..]));
    }
}
