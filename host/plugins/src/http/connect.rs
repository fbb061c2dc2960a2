//! One connection: the name is resolved here, every address is checked, and the socket goes to an address that was.

use super::pattern::HttpPattern;
use super::pool::Pool;
use super::rate::Rates;
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

/// Finds the addresses of a name. The system's own is the default.
#[async_trait::async_trait]
pub trait NameResolver: Send + Sync + std::fmt::Debug {
    /// All addresses of the name, with this port.
    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>>;
}

/// The system's resolver: `/etc/hosts`, DNS, and whatever else it is set up with.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemResolver;

#[async_trait::async_trait]
impl NameResolver for SystemResolver {
    async fn resolve(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        Ok(tokio::net::lookup_host((name, port)).await?.collect())
    }
}

/// The outside world, as all plugins of a sandbox share it.
pub(crate) struct Network {
    resolver: Arc<dyn NameResolver>,
    /// Made at the first encrypted request: reading the system's certificates takes a while.
    tls: OnceCell<Arc<ClientConfig>>,
    pub(crate) rates: Rates,
    pub(crate) pool: Arc<Pool>,
}

/// Why there is no connection.
pub(crate) enum NoConnection {
    /// An address that no pattern admits, and what it is.
    Refused(IpAddr, &'static str),
    /// A certificate of somebody whom this system does not trust.
    Untrusted(String),
    /// Anything else.
    Failed(Error),
}

/// Bytes both ways, plain or encrypted.
pub(crate) trait Wire: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Wire for T {}

impl Network {
    pub(crate) fn new(resolver: Arc<dyn NameResolver>) -> Self {
        Self { resolver, tls: OnceCell::new(), rates: Rates::default(), pool: Arc::default() }
    }

    /// Connects to where the URL points, if the patterns admit every address that its name has: one that is refused
    /// means that the name is not what it seems. Says to which address.
    pub(crate) async fn connect(
        &self,
        url: &Url,
        patterns: &[HttpPattern],
        time: Duration,
    ) -> Result<(Box<dyn Wire>, IpAddr), NoConnection> {
        let connected = tokio::time::timeout(time, async {
            let addresses = self.addresses(url).await?;
            for address in &addresses {
                let refusals: Result<Vec<_>, ()> =
                    patterns.iter().map(|pattern| pattern.admits(address.ip()).err().ok_or(())).collect();
                if let Ok(refusals) = refusals {
                    let what = refusals.first().copied().unwrap_or("an address that is not granted");
                    return Err(NoConnection::Refused(address.ip(), what));
                }
            }
            let (socket, address) = first_that_answers(&addresses).await?;
            let wire = if url.scheme() == "https" { self.encrypted(url, socket).await? } else { Box::new(socket) };
            Ok((wire, address))
        });
        connected.await.map_err(|_| NoConnection::Failed(Error::ConnectionTimeout))?
    }

    async fn addresses(&self, url: &Url) -> Result<Vec<SocketAddr>, NoConnection> {
        let invalid = || NoConnection::Failed(Error::HttpRequestUriInvalid);
        let port = url.port_or_known_default().ok_or_else(invalid)?;
        let addresses = match url.host().ok_or_else(invalid)? {
            Host::Ipv4(address) => vec![SocketAddr::from((address, port))],
            Host::Ipv6(address) => vec![SocketAddr::from((address, port))],
            Host::Domain(name) => self.resolver.resolve(name, port).await.map_err(|error| {
                tracing::debug!(target: "plugin", %name, %error, "the name cannot be resolved");
                NoConnection::Failed(Error::DnsError { rcode: None, info_code: None })
            })?,
        };
        if addresses.is_empty() { Err(NoConnection::Failed(Error::DestinationNotFound)) } else { Ok(addresses) }
    }

    async fn encrypted(&self, url: &Url, socket: TcpStream) -> Result<Box<dyn Wire>, NoConnection> {
        let host = url.host_str().unwrap_or_default().trim_matches(['[', ']']).trim_end_matches('.').to_owned();
        let name = ServerName::try_from(host).map_err(|_| NoConnection::Failed(Error::HttpRequestUriInvalid))?;
        let configuration = self.tls.get_or_try_init(configuration).await.map_err(NoConnection::Failed)?;
        let stream = TlsConnector::from(Arc::clone(configuration)).connect(name, socket).await;
        stream.map(|stream| Box::new(stream) as Box<dyn Wire>).map_err(|error| {
            let is_about_trust = |error: &rustls::Error| matches!(error, rustls::Error::InvalidCertificate(_));
            let (host, inner) = (url.host_str(), error.get_ref().and_then(|inner| inner.downcast_ref()));
            if inner.is_some_and(is_about_trust) {
                return NoConnection::Untrusted(format!(
                    "the certificate of {} is not trusted: {error}; if its authority is one of your own, name its file in \
                     SSL_CERT_FILE",
                    host.unwrap_or_default()
                ));
            }
            tracing::debug!(target: "plugin", host, %error, "no TLS connection");
            NoConnection::Failed(Error::TlsProtocolError)
        })
    }
}

async fn first_that_answers(addresses: &[SocketAddr]) -> Result<(TcpStream, IpAddr), NoConnection> {
    let mut last = Error::DestinationUnavailable;
    for address in addresses {
        match TcpStream::connect(address).await {
            Ok(socket) => return Ok((socket, address.ip())),
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => last = Error::ConnectionRefused,
            Err(_) => last = Error::DestinationUnavailable,
        }
    }
    Err(NoConnection::Failed(last))
}

/// TLS with the system's certificates.
async fn configuration() -> Result<Arc<ClientConfig>, Error> {
    let made = tokio::task::spawn_blocking(|| {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
        let mut configuration = builder.with_platform_verifier()?.with_no_client_auth();
        configuration.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok::<_, rustls::Error>(Arc::new(configuration))
    });
    match made.await {
        Ok(Ok(configuration)) => Ok(configuration),
        Ok(Err(error)) => Err(Error::InternalError(Some(format!("TLS cannot be used: {error}")))),
        Err(error) => Err(Error::InternalError(Some(format!("TLS cannot be used: {error}")))),
    }
}
