//! Opens connections to servers: resolves the server's name, checks every address and connects to one of the
//! checked addresses.

use super::pool::Pool;
use super::rate::Rates;
use crate::grants::http_pattern::HttpPattern;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use rustls_platform_verifier::BuilderVerifierExt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::OnceCell;
use tokio_rustls::TlsConnector;
use url::{Host, Url};
use wasmtime_wasi_http::Error;

/// Resolves the name of a server to addresses. The default implementation is [`SystemResolver`].
#[async_trait::async_trait]
pub trait NameResolver: Send + Sync + std::fmt::Debug {
    /// Returns all addresses of the name, each with this port.
    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The operating system's resolver, which uses `/etc/hosts`, DNS and other configured sources.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

#[async_trait::async_trait]
impl NameResolver for SystemResolver {
    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((name, port)).await?.collect())
    }
}

/// The network access that all plugins of a sandbox share.
pub(crate) struct Network {
    resolver: Arc<dyn NameResolver>,
    /// The TLS configuration, which is created at the first HTTPS request, because reading the system's certificates
    /// takes some time.
    tls: OnceCell<Arc<ClientConfig>>,
    pub(crate) rates: Rates,
    pub(crate) pool: Arc<Pool>,
}

/// The reason why a connection failed.
pub(crate) enum ConnectError {
    /// No granted pattern allows the address. The text describes the class of the address, for example a
    /// private address.
    Refused(IpAddr, &'static str),
    /// The server's certificate is not from a certificate authority that the system trusts.
    Untrusted(String),
    /// The connection failed for another reason.
    Failed(Error),
}

/// A bidirectional byte stream, with or without encryption.
pub(crate) trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

impl Network {
    pub(crate) fn new(resolver: Arc<dyn NameResolver>) -> Self {
        Self { resolver, tls: OnceCell::new(), rates: Rates::default(), pool: Arc::default() }
    }

    /// Connects to the server of the URL if the patterns allow every address to which the server's name resolves. If
    /// one address is refused, the connection fails even if other addresses are allowed, because such a name is not
    /// trustworthy. Returns the byte stream and the address to which the stream is connected.
    pub(crate) async fn connect(
        &self,
        url: &Url,
        patterns: &[HttpPattern],
        time: Duration,
    ) -> Result<(Box<dyn ByteStream>, IpAddr), ConnectError> {
        let connected = tokio::time::timeout(time, async {
            let addresses = self.addresses(url).await?;
            for address in &addresses {
                let refusals: Result<Vec<_>, ()> =
                    patterns.iter().map(|pattern| pattern.admits(address.ip()).err().ok_or(())).collect();
                if let Ok(refusals) = refusals {
                    let class = refusals.first().copied().unwrap_or("an address that is not granted");
                    return Err(ConnectError::Refused(address.ip(), class));
                }
            }
            let (socket, address) = connect_to_first(&addresses).await?;
            let wire = if url.scheme() == "https" { self.encrypted(url, socket).await? } else { Box::new(socket) };
            Ok((wire, address))
        });
        connected.await.map_err(|_| ConnectError::Failed(Error::ConnectionTimeout))?
    }

    async fn addresses(&self, url: &Url) -> Result<Vec<SocketAddr>, ConnectError> {
        let invalid = || ConnectError::Failed(Error::HttpRequestUriInvalid);
        let port = url.port_or_known_default().ok_or_else(invalid)?;
        let addresses = match url.host().ok_or_else(invalid)? {
            Host::Ipv4(address) => vec![SocketAddr::from((address, port))],
            Host::Ipv6(address) => vec![SocketAddr::from((address, port))],
            Host::Domain(name) => self.resolver.resolve(name, port).await.map_err(|error| {
                tracing::debug!(target: "plugin", %name, %error, "the server's name cannot be resolved");
                ConnectError::Failed(Error::DnsError { rcode: None, info_code: None })
            })?,
        };
        if addresses.is_empty() { Err(ConnectError::Failed(Error::DestinationNotFound)) } else { Ok(addresses) }
    }

    async fn encrypted(&self, url: &Url, socket: TcpStream) -> Result<Box<dyn ByteStream>, ConnectError> {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).trim_end_matches('.').to_owned();
        let name = ServerName::try_from(host).map_err(|_| ConnectError::Failed(Error::HttpRequestUriInvalid))?;
        let configuration = self.tls.get_or_try_init(configuration).await.map_err(ConnectError::Failed)?;
        let stream = TlsConnector::from(Arc::clone(configuration)).connect(name, socket).await;
        stream.map(|stream| Box::new(stream) as Box<dyn ByteStream>).map_err(|error| {
            let is_about_trust = |error: &rustls::Error| matches!(error, rustls::Error::InvalidCertificate(_));
            let (host, inner) = (url.host_str(), error.get_ref().and_then(|inner| inner.downcast_ref()));
            if inner.is_some_and(is_about_trust) {
                return ConnectError::Untrusted(format!(
                    "the certificate of {} is not trusted: {error}; if you trust its certificate authority, set \
                     SSL_CERT_FILE to the path of the authority's file",
                    host.unwrap_or_default()
                ));
            }
            tracing::debug!(target: "plugin", host, %error, "the TLS connection failed");
            ConnectError::Failed(Error::TlsProtocolError)
        })
    }
}

async fn connect_to_first(addresses: &[SocketAddr]) -> Result<(TcpStream, IpAddr), ConnectError> {
    let mut last_error = Error::DestinationUnavailable;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(socket) => return Ok((socket, address.ip())),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => last_error = Error::ConnectionRefused,
            Err(_) => last_error = Error::DestinationUnavailable,
        }
    }
    Err(ConnectError::Failed(last_error))
}

/// A TLS configuration that trusts the certificate authorities of the system.
async fn configuration() -> Result<Arc<ClientConfig>, Error> {
    let created = tokio::task::spawn_blocking(|| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut configuration = builder.with_platform_verifier()?.with_no_client_auth();
        configuration.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok::<_, rustls::Error>(Arc::new(configuration))
    });
    match created.await {
        Ok(Ok(configuration)) => Ok(configuration),
        Ok(Err(error)) => Err(Error::InternalError(Some(format!("TLS cannot be used: {error}")))),
        Err(error) => Err(Error::InternalError(Some(format!("TLS cannot be used: {error}")))),
    }
}
