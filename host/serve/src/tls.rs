//! TLS with a certificate and a key from files, which are read again when they have changed.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Time between two checks whether the files have changed.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// The files of a server's certificate, both in PEM format.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by the certificates that lead to its authority.
    pub certificate: PathBuf,
    /// The private key of the certificate.
    pub key: PathBuf,
}

/// Why a certificate cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read, or contains no certificate or no key.
    #[error("`{path}` {problem}: {error}")]
    File {
        /// Path of the file.
        path: PathBuf,
        /// What is missing, as the end of a sentence.
        problem: &'static str,
        /// The error of the reader.
        error: String,
    },
    /// The certificate and the key do not belong together, or their type is not supported.
    #[error("the certificate in `{certificate}` cannot be used: {error}")]
    Certificate {
        /// Path of the file with the certificate.
        certificate: PathBuf,
        /// The error of the TLS library.
        error: String,
    },
}

impl TlsFiles {
    fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        let unreadable = |path: &Path, problem, error: &dyn std::fmt::Display| TlsError::File {
            path: path.to_owned(),
            problem,
            error: error.to_string(),
        };
        let no_certificate = |error: &dyn std::fmt::Display| {
            unreadable(&self.certificate, "is not a file with certificates in PEM format", error)
        };
        let certificates = CertificateDer::pem_file_iter(&self.certificate).map_err(|error| no_certificate(&error))?;
        let certificates: Vec<_> = certificates.collect::<Result<_, _>>().map_err(|error| no_certificate(&error))?;
        if certificates.is_empty() {
            return Err(no_certificate(&"it contains none"));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key)
            .map_err(|error| unreadable(&self.key, "is not a file with a private key in PEM format", &error))?;
        let unusable = |error: tokio_rustls::rustls::Error| TlsError::Certificate {
            certificate: self.certificate.clone(),
            error: error.to_string(),
        };
        let builder = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let builder = builder.with_safe_default_protocol_versions().map_err(unusable)?.with_no_client_auth();
        let mut config = builder.with_single_cert(certificates, key).map_err(unusable)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }

    /// Returns the times of the last changes of both files.
    fn stamps(&self) -> [Option<SystemTime>; 2] {
        let changed = |path: &Path| -> io::Result<SystemTime> { std::fs::metadata(path)?.modified() };
        [changed(&self.certificate).ok(), changed(&self.key).ok()]
    }
}

/// The current certificate of a server.
pub(crate) struct ReloadedCertificate {
    files: TlsFiles,
    current: Mutex<Current>,
}

struct Current {
    acceptor: TlsAcceptor,
    stamps: [Option<SystemTime>; 2],
    checked: Instant,
}

impl ReloadedCertificate {
    pub(crate) fn read(files: TlsFiles) -> Result<Self, TlsError> {
        let (stamps, acceptor) = (files.stamps(), files.acceptor()?);
        Ok(Self { files, current: Mutex::new(Current { acceptor, stamps, checked: Instant::now() }) })
    }

    /// Returns the current certificate. If changed files cannot be used, the certificate from before stays in use.
    pub(crate) fn acceptor(&self) -> TlsAcceptor {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if current.checked.elapsed() >= CHECK_INTERVAL {
            current.checked = Instant::now();
            let stamps = self.files.stamps();
            if stamps != current.stamps {
                current.stamps = stamps;
                match self.files.acceptor() {
                    Ok(acceptor) => current.acceptor = acceptor,
                    Err(error) => tracing::warn!(%error, "the changed certificate is not used"),
                }
            }
        }
        current.acceptor.clone()
    }
}
