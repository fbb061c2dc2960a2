//! The connection of a process to NATS. It is established in the background and repaired without end, so that nothing waits for
//! NATS.

use crate::address::{Credentials, NatsAddress};
use crate::client_certificate::ClientCertificate;
use crate::credentials::CredentialsFile;
use crate::error::FleetError;
use crate::subjects::Subjects;
use async_nats::jetstream::{self, context::ContextBuilder};
use async_nats::{Auth, AuthError, Client, ClientError, ConnectErrorKind, ConnectOptions, Event};
use rustls::ClientConfig;
use rustls_platform_verifier::BuilderVerifierExt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// Maximum time until a server answers.
pub(crate) const ANSWER_TIME: Duration = Duration::from_secs(2);
/// Maximum time until the work queue has stored an announcement.
pub(crate) const STORE_TIME: Duration = Duration::from_secs(2);
/// Time between two checks while NATS answers.
const CHECK_INTERVAL: Duration = Duration::from_secs(5);
/// Time between two checks while NATS does not answer.
const RETRY_INTERVAL: Duration = Duration::from_secs(1);
/// Time between two attempts to connect.
const CONNECT_INTERVAL: Duration = Duration::from_millis(500);
/// Number of messages that a subscription may be behind. Further messages are dropped.
const SUBSCRIPTION_CAPACITY: usize = 4_096;
/// Why NATS cannot be used, if no attempt to connect has failed.
const NO_ANSWER: &str = "it does not answer in time";
/// Number of outgoing messages that wait for the connection.
const OUTGOING_CAPACITY: usize = 1_024;
/// Maximum number of announcements that wait until the work queue has stored them.
const STORED_AT_ONCE: usize = 1_000;

/// A connection to NATS, which may be down at any time. All clones share the connection.
#[derive(Clone)]
pub struct Nats(Arc<Connection>);

struct Connection {
    client: Client,
    context: jetstream::Context,
    subjects: Subjects,
    /// The servers, without credentials.
    shown: String,
    health: Arc<Health>,
}

/// Whether NATS answers.
#[derive(Default)]
struct Health {
    answers: AtomicBool,
    /// Why the last attempt to connect failed. `None` after a successful one.
    problem: Mutex<Option<String>>,
    /// The certificate of this process, without which a server may refuse the connection.
    certificate: Option<ClientCertificate>,
    /// Whether the log says that NATS does not answer.
    is_reported: AtomicBool,
    /// Asks for a check.
    doubted: Notify,
    /// Notified when a check has succeeded.
    answered: Notify,
}

impl Health {
    fn set_problem(&self, problem: Option<String>) {
        *self.problem.lock().unwrap_or_else(PoisonError::into_inner) = problem;
    }

    /// Returns why the last attempt to connect failed. A server that asks for a certificate does not say that it received none, so
    /// the reason why this process has sent none comes first.
    fn problem(&self) -> Option<String> {
        let of_certificate = self.certificate.as_ref().and_then(ClientCertificate::problem);
        of_certificate.or_else(|| self.problem.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// Forgets the problems of earlier attempts to connect.
    fn connected(&self) {
        self.set_problem(None);
        if let Some(certificate) = &self.certificate {
            certificate.forget_problem();
        }
    }
}

impl Nats {
    /// Begins to connect, and returns at once. Fails only if TLS cannot be used. If no server can be reached, the log says so once,
    /// and the attempts continue.
    pub async fn connect(address: &NatsAddress) -> Result<Self, FleetError> {
        let shown = address.to_string();
        let health = Arc::new(Health { certificate: address.certificate.clone(), ..Health::default() });
        let options = options(address, &health)?;
        let servers: Vec<async_nats::ServerAddr> = address
            .servers
            .iter()
            .map(|server| async_nats::ServerAddr::from_url(server.clone()))
            .collect::<Result<_, _>>()
            .map_err(|error| failed(&shown, "accept its address", &error))?;
        let client = options.connect(servers).await.map_err(|error| failed(&shown, "connect", &error))?;
        let context = ContextBuilder::new()
            .timeout(ANSWER_TIME)
            .ack_timeout(STORE_TIME)
            .max_ack_inflight(STORED_AT_ONCE)
            .build(client.clone());
        let subjects = Subjects::new(&address.fleet);
        let connection = Arc::new(Connection { client, context, subjects, shown, health: health.clone() });
        // The task ends soon after the connection was dropped.
        tokio::spawn(check(Arc::downgrade(&connection), health));
        Ok(Self(connection))
    }

    /// Returns whether NATS with JetStream answered the last time. Otherwise, announcements must use another way.
    pub fn is_usable(&self) -> bool {
        self.0.health.answers.load(Ordering::Relaxed)
    }

    /// Waits until NATS answers, for a command that needs it.
    pub async fn wait_until_usable(&self, patience: Duration) -> Result<(), FleetError> {
        let usable = async {
            loop {
                let answered = self.0.health.answered.notified();
                if self.is_usable() {
                    return;
                }
                answered.await;
            }
        };
        tokio::time::timeout(patience, usable).await.map_err(|_| self.unreachable())
    }

    /// Returns the error for work that needs NATS while it cannot be used.
    pub(crate) fn unreachable(&self) -> FleetError {
        let problem = self.0.health.problem().unwrap_or_else(|| NO_ANSWER.to_owned());
        FleetError::Unreachable { server: self.0.shown.clone(), problem }
    }

    /// Sends what has not been sent yet, for a process that ends.
    pub async fn flush(&self) {
        // If the servers do not answer, the messages are lost, as messages may be.
        let _ = tokio::time::timeout(STORE_TIME, self.0.client.flush()).await;
    }

    /// Returns the servers without credentials, for messages to people.
    pub fn shown(&self) -> &str {
        &self.0.shown
    }

    pub(crate) fn client(&self) -> &Client {
        &self.0.client
    }

    pub(crate) fn context(&self) -> &jetstream::Context {
        &self.0.context
    }

    pub(crate) fn subjects(&self) -> &Subjects {
        &self.0.subjects
    }

    /// Notes that NATS did not answer. It is not used until a check succeeds.
    pub(crate) fn doubt(&self) {
        self.0.health.answers.store(false, Ordering::Relaxed);
        self.0.health.doubted.notify_one();
    }

    pub(crate) fn failed(&self, action: &'static str, problem: &dyn std::fmt::Display) -> FleetError {
        failed(&self.0.shown, action, problem)
    }

    /// Publishes a message that may be lost. Nothing is sent while NATS does not answer. Returns whether the message was sent.
    pub(crate) async fn publish(&self, subject: String, payload: bytes::Bytes) -> bool {
        if !self.is_usable() {
            return false;
        }
        match tokio::time::timeout(STORE_TIME, self.0.client.publish(subject, payload)).await {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => tracing::debug!(%error, "a message was not sent"),
            // The connection does not accept messages fast enough.
            Err(_) => self.doubt(),
        }
        false
    }
}

fn failed(server: &str, action: &'static str, problem: &dyn std::fmt::Display) -> FleetError {
    FleetError::Failed { server: server.to_owned(), action, problem: problem.to_string() }
}

fn options(address: &NatsAddress, health: &Arc<Health>) -> Result<ConnectOptions, FleetError> {
    let for_sign_in = health.clone();
    let mut options = match &address.credentials {
        None => ConnectOptions::new(),
        Some(Credentials::Token(token)) => ConnectOptions::with_token(token.clone()),
        Some(Credentials::User { user, password }) => {
            ConnectOptions::with_user_and_password(user.clone(), password.clone())
        }
        Some(Credentials::File(file)) => {
            let file = file.clone();
            ConnectOptions::with_auth_callback(move |nonce| {
                std::future::ready(sign_in(&file, &nonce, &for_sign_in).map_err(AuthError::new))
            })
        }
    };
    let health = health.clone();
    options = options
        .name("agent-host")
        .retry_on_initial_connect()
        .connection_timeout(Duration::from_secs(5))
        .request_timeout(Some(ANSWER_TIME))
        .ping_interval(Duration::from_secs(5))
        .reconnect_delay_callback(|_| CONNECT_INTERVAL)
        .subscription_capacity(SUBSCRIPTION_CAPACITY)
        .client_capacity(OUTGOING_CAPACITY)
        .event_callback(move |event| {
            match &event {
                Event::Disconnected => health.answers.store(false, Ordering::Relaxed),
                Event::Connected => health.connected(),
                Event::ClientError(ClientError::Other(kind)) => {
                    if let Some(problem) = described(kind) {
                        health.set_problem(Some(problem));
                    }
                }
                // Nothing else changes what this process may send.
                event => tracing::debug!(%event, "the connection to NATS has changed"),
            }
            health.doubted.notify_one();
            std::future::ready(())
        });
    if address.requires_tls {
        options = options.require_tls(true);
    }
    // The configuration is also used if a server asks for TLS although the address does not.
    Ok(options.tls_client_config(tls(address.certificate.as_ref())?))
}

/// Describes why an attempt to connect failed, of which the library tells only the kind. Returns `None` if [`sign_in`] has described it.
fn described(kind: &str) -> Option<String> {
    let is = |known: ConnectErrorKind| kind == known.to_string();
    Some(if is(ConnectErrorKind::Authentication) {
        return None;
    } else if is(ConnectErrorKind::AuthorizationViolation) {
        "it does not accept the credentials".to_owned()
    } else if is(ConnectErrorKind::Io) || is(ConnectErrorKind::Tls) {
        "no connection can be established, or no TLS connection with a certificate that this machine trusts, or the server does \
         not accept the certificate of this process"
            .to_owned()
    } else if is(ConnectErrorKind::Dns) {
        "the name of the server cannot be resolved".to_owned()
    } else if is(ConnectErrorKind::TimedOut) {
        NO_ANSWER.to_owned()
    } else {
        kind.to_owned()
    })
}

/// Reads the file of the credentials, and signs the server's nonce.
fn sign_in(file: &CredentialsFile, nonce: &[u8], health: &Health) -> Result<Auth, String> {
    let signed = file.user_key().and_then(|key| key.sign(nonce).ok_or_else(|| "the NKey cannot sign".to_owned()));
    if let Err(problem) = &signed {
        health.set_problem(Some(problem.clone()));
    }
    signed
}

/// TLS with the authorities that the operating system trusts.
fn tls(certificate: Option<&ClientCertificate>) -> Result<ClientConfig, FleetError> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(|builder| builder.with_platform_verifier())
        .map_err(|error| FleetError::Tls(error.to_string()))?;
    Ok(match certificate {
        Some(certificate) => config.with_client_cert_resolver(Arc::new(certificate.clone())),
        None => config.with_no_client_auth(),
    })
}

/// Checks again and again whether NATS answers, and writes each change to the log once.
async fn check(connection: Weak<Connection>, health: Arc<Health>) {
    let mut begun = Some(tokio::time::Instant::now());
    loop {
        let Some(current) = connection.upgrade() else { return };
        let result = tokio::time::timeout(ANSWER_TIME, current.context.query_account()).await;
        let problem = match result {
            Ok(Ok(_)) => None,
            Ok(Err(error)) => Some(error.to_string()),
            Err(_) => Some(health.problem().unwrap_or_else(|| NO_ANSWER.to_owned())),
        };
        let answers = problem.is_none();
        health.answers.store(answers, Ordering::Relaxed);
        match problem {
            None => {
                begun = None;
                health.answered.notify_waiters();
                if health.is_reported.swap(false, Ordering::Relaxed) {
                    tracing::info!(server = current.shown, "NATS answers again");
                }
            }
            // A connection needs a moment at the start.
            Some(_) if begun.is_some_and(|begun| begun.elapsed() < ANSWER_TIME) => {}
            Some(problem) if !health.is_reported.swap(true, Ordering::Relaxed) => tracing::warn!(
                server = current.shown,
                problem,
                "NATS cannot be used now; turns continue, and other processes find their work in the database"
            ),
            Some(_) => {}
        }
        drop(current);
        let interval = if answers { CHECK_INTERVAL } else { RETRY_INTERVAL };
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            // Many doubts at once must not cause as many checks.
            () = async { health.doubted.notified().await; tokio::time::sleep(Duration::from_millis(100)).await } => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustls::client::ResolvesClientCert;

    /// F1: the reason why this process has sent no certificate comes before what the connection shows of it, until a server accepts a
    /// connection.
    #[test]
    fn f1_a_damaged_certificate_is_the_reason_why_nats_cannot_be_used() {
        let certificate = ClientCertificate::new("c.pem".into(), "k.pem".into(), |_, _| Ok(b"damaged".to_vec()));
        let health = Health { certificate: Some(certificate.clone()), ..Health::default() };
        assert!(certificate.resolve(&[], &[]).is_none());
        health.set_problem(described(&ConnectErrorKind::Io.to_string()));
        let problem = health.problem().expect("a problem");
        assert!(problem.contains("`c.pem`") && problem.contains("no certificate in PEM format"), "{problem}");
        health.connected();
        assert_eq!(health.problem(), None);
    }
}
