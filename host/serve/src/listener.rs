//! Where the server accepts connections: an address, with or without TLS, or a Unix socket.

use crate::tls::{ReloadedCertificate, TlsError, TlsFiles};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};

/// Where a server accepts connections.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    /// An address without TLS.
    Tcp(SocketAddr),
    /// An address with TLS.
    Tls(SocketAddr, TlsFiles),
    /// A socket in the file system, which only the user of the server can use.
    Unix(PathBuf),
}

/// Why the server cannot accept connections.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The address cannot be used.
    #[error("cannot listen on {address}: {error}; choose another address with --listen ADDRESS")]
    Address {
        /// The address.
        address: SocketAddr,
        /// The error of the system.
        error: io::Error,
    },
    /// The socket cannot be created.
    #[error("cannot listen on the socket `{path}`: {error}")]
    Socket {
        /// Path of the socket.
        path: PathBuf,
        /// The error of the system, or the reason why the path is not used.
        error: io::Error,
    },
    /// The certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A connection of any kind.
pub(crate) type Connection = Pin<Box<dyn Stream>>;

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send {}

impl<S: AsyncRead + AsyncWrite + Send> Stream for S {}

/// A connection that was accepted. A TLS connection must still be agreed on.
pub(crate) enum Accepted {
    Plain(Connection),
    Tls(Box<tokio_rustls::Accept<tokio::net::TcpStream>>),
}

impl Accepted {
    /// Agrees on the encryption with the client, if the connection uses TLS.
    pub(crate) async fn establish(self) -> io::Result<Connection> {
        match self {
            Self::Plain(connection) => Ok(connection),
            Self::Tls(accept) => Ok(Box::pin((*accept).await?)),
        }
    }
}

/// Accepts connections. The file of a socket is removed when this value is dropped.
pub(crate) enum Listener {
    Tcp(TcpListener, Option<Arc<ReloadedCertificate>>),
    Unix(UnixListener, PathBuf),
}

impl Listener {
    /// Begins to listen, and returns where: the address with the port, or the path of the socket.
    pub(crate) async fn bind(endpoint: Endpoint) -> Result<(Self, Endpoint), ListenError> {
        let tcp = async |address: SocketAddr| {
            let failed = |error| ListenError::Address { address, error };
            let listener = TcpListener::bind(address).await.map_err(failed)?;
            let address = listener.local_addr().map_err(failed)?;
            Ok::<_, ListenError>((listener, address))
        };
        match endpoint {
            Endpoint::Tcp(address) => {
                let (listener, address) = tcp(address).await?;
                Ok((Self::Tcp(listener, None), Endpoint::Tcp(address)))
            }
            Endpoint::Tls(address, files) => {
                let certificate = Arc::new(ReloadedCertificate::read(files.clone())?);
                let (listener, address) = tcp(address).await?;
                Ok((Self::Tcp(listener, Some(certificate)), Endpoint::Tls(address, files)))
            }
            Endpoint::Unix(path) => {
                let listener = bind_socket(&path).await;
                let listener = listener.map_err(|error| ListenError::Socket { path: path.clone(), error })?;
                Ok((Self::Unix(listener, path.clone()), Endpoint::Unix(path)))
            }
        }
    }

    /// Waits for a connection, and returns it with the address of the client. A client of a socket in the file system has no
    /// address.
    pub(crate) async fn accept(&self) -> io::Result<(Accepted, Option<IpAddr>)> {
        match self {
            Self::Tcp(listener, certificate) => {
                let (stream, peer) = listener.accept().await?;
                // Small events must not wait for more data. A failure only makes them slower.
                let _ = stream.set_nodelay(true);
                let accepted = match certificate {
                    None => Accepted::Plain(Box::pin(stream)),
                    Some(certificate) => Accepted::Tls(Box::new(certificate.acceptor().accept(stream))),
                };
                Ok((accepted, Some(peer.ip().to_canonical())))
            }
            Self::Unix(listener, _) => Ok((Accepted::Plain(Box::pin(listener.accept().await?.0)), None)),
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // Somebody may have removed the file.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Creates a socket that only this user can use. A socket of a server that does not run any more is replaced.
async fn bind_socket(path: &Path) -> io::Result<UnixListener> {
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(io::Error::other("there is already a file with this name, which is not a socket"));
        }
        if UnixStream::connect(path).await.is_ok() {
            return Err(io::Error::other("another server uses it"));
        }
        std::fs::remove_file(path)?;
    }
    // The socket gets its permissions in a private folder, so that nobody can connect before.
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let private = parent.join(format!(".{}", uuid::Uuid::new_v4().simple()));
    std::fs::DirBuilder::new().mode(0o700).create(&private)?;
    let temporary = private.join("s");
    let bound = UnixListener::bind(&temporary).and_then(|listener| {
        std::fs::set_permissions(&temporary, std::fs::Permissions::from_mode(0o600))?;
        std::fs::rename(&temporary, path)?;
        Ok(listener)
    });
    let _ = std::fs::remove_dir_all(&private);
    bound
}
