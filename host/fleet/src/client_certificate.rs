//! The certificate with which a process identifies itself to NATS servers that ask for one. Its files are read again for each
//! connection, so that they can be replaced while the process runs. No message contains a part of the key.

use crate::credentials::ReadFile;
use rustls::SignatureScheme;
use rustls::client::ResolvesClientCert;
use rustls::crypto::ring::default_provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

/// Maximum size of a file, in bytes.
const MAX_FILE: u64 = 256 << 10;

/// The files of a client's certificate, both in PEM format.
#[derive(Clone)]
pub(crate) struct ClientCertificate {
    /// The certificate, followed by the certificates that lead to its authority.
    certificate: PathBuf,
    /// The private key of the certificate.
    key: PathBuf,
    read: ReadFile,
    /// Why the last connection was made without the certificate. Clones share this value.
    problem: Arc<Mutex<Option<String>>>,
}

impl ClientCertificate {
    pub(crate) fn new(certificate: PathBuf, key: PathBuf, read: ReadFile) -> Self {
        Self { certificate, key, read, problem: Arc::default() }
    }

    /// Returns why the last connection was made without the certificate. `None` if it was made with the certificate, or if a
    /// server has accepted it nevertheless.
    pub(crate) fn problem(&self) -> Option<String> {
        self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Forgets the problem of a connection that the server has accepted nevertheless.
    pub(crate) fn forget_problem(&self) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Remembers a problem, and writes it to the log, unless the connection before had the same problem.
    fn note(&self, problem: Option<&String>) {
        let mut known = self.problem.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(problem) = problem.filter(|problem| known.as_ref() != Some(problem)) {
            tracing::warn!(problem, "a connection to NATS is made without the certificate");
        }
        *known = problem.cloned();
    }

    /// Reads the files. The error is a sentence that names the file.
    pub(crate) fn load(&self) -> Result<CertifiedKey, String> {
        let read = |path: &Path| {
            (self.read)(path, MAX_FILE)
                .map_err(|error| format!("the file `{}` for TLS with NATS cannot be read: {error}", path.display()))
        };
        let (certificate, key) = (self.certificate.display(), self.key.display());
        let pem = read(&self.certificate)?;
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let chain = chain.map_err(|_| {
            format!("the file `{certificate}` for TLS with NATS contains a certificate that is damaged")
        })?;
        if chain.is_empty() {
            return Err(format!("the file `{certificate}` for TLS with NATS contains no certificate in PEM format"));
        }
        let private_key = PrivateKeyDer::from_pem_slice(&read(&self.key)?)
            .map_err(|_| format!("the file `{key}` for TLS with NATS contains no private key in PEM format"))?;
        CertifiedKey::from_der(chain, private_key, &default_provider()).map_err(|error| {
            format!(
                "the certificate in `{certificate}` and the key in `{key}` cannot be used for TLS with NATS: {error}"
            )
        })
    }
}

impl ResolvesClientCert for ClientCertificate {
    fn resolve(&self, _: &[&[u8]], _: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        let loaded = self.load();
        self.note(loaded.as_ref().err());
        loaded.ok().map(Arc::new)
    }

    fn has_certs(&self) -> bool {
        true
    }
}

impl fmt::Debug for ClientCertificate {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("ClientCertificate").field(&self.certificate).field(&self.key).finish()
    }
}
