//! Objects that other programs change, and a proxy in front of the S3 server that fails.

use super::s3::S3;
use agent_store::ObjectStoreAddress;
use rusty_s3::{Bucket, Credentials, S3Action as _, UrlStyle};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// A secret that no message may contain.
pub(crate) const SECRET: &str = "s3cret-access";

impl S3 {
    /// Returns the address of a bucket of this server.
    pub(crate) fn address(&self, bucket: &str) -> ObjectStoreAddress {
        address(bucket, self.port)
    }

    /// Replaces an object, as another program would.
    pub(crate) async fn write(&self, bucket: &str, key: &str, bytes: &'static [u8]) {
        let url = self.bucket(bucket).put_object(Some(&credentials()), key).sign(Duration::from_secs(60));
        let answer = client().put(url).body(bytes).send().await.expect("an answer");
        assert!(answer.status().is_success(), "{answer:?}");
    }

    /// Deletes an object, as another program would.
    pub(crate) async fn delete(&self, bucket: &str, key: &str) {
        let url = self.bucket(bucket).delete_object(Some(&credentials()), key).sign(Duration::from_secs(60));
        let answer = client().delete(url).send().await.expect("an answer");
        assert!(answer.status().is_success(), "{answer:?}");
    }

    fn bucket(&self, name: &str) -> Bucket {
        let server = self.url().parse().expect("a URL");
        Bucket::new(server, UrlStyle::Path, name.to_owned(), "us-east-1").expect("a bucket")
    }

    /// Starts a proxy in front of the server.
    pub(crate) async fn proxy(&self) -> S3Proxy {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (mode, modes) = watch::channel(Mode::Pass);
        let server = self.port;
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let mut modes = modes.clone();
                let mode = *modes.borrow_and_update();
                tokio::spawn(async move {
                    // A connection ends when the mode changes, because clients use connections again.
                    tokio::select! {
                        () = serve(client, server, mode) => {}
                        _ = modes.changed() => {}
                    }
                });
            }
        });
        S3Proxy { port, mode }
    }
}

fn credentials() -> Credentials {
    Credentials::new("test", "test")
}

/// Returns a client for this machine.
fn client() -> reqwest::Client {
    let _ = rustls::crypto::ring::default_provider().install_default();
    reqwest::Client::builder().no_proxy().tls_certs_only([]).build().expect("a client")
}

/// What happens to requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Pass,
    /// Every request is answered with this status and this code.
    Answer(u16, &'static str),
    /// No request is answered.
    Hang,
    /// The server handles each request, but its answer does not arrive.
    LoseAnswers,
    /// Every connection is closed at once.
    Close,
}

pub(crate) struct S3Proxy {
    port: u16,
    mode: watch::Sender<Mode>,
}

impl S3Proxy {
    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }

    pub(crate) fn address(&self, bucket: &str) -> ObjectStoreAddress {
        address(bucket, self.port)
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }
}

/// Returns the address of a bucket of a server on this machine.
pub(crate) fn address(bucket: &str, port: u16) -> ObjectStoreAddress {
    let variable = |name: &str| match name {
        "AWS_ENDPOINT_URL" => Some(format!("http://127.0.0.1:{port}")),
        "AWS_ACCESS_KEY_ID" | "AWS_SECRET_ACCESS_KEY" | "AWS_SESSION_TOKEN" => Some(SECRET.to_owned()),
        _ => None,
    };
    ObjectStoreAddress::parse(&format!("s3://{bucket}/agents"), variable).expect("a valid address")
}

async fn serve(mut client: TcpStream, server: u16, mode: Mode) {
    match mode {
        Mode::Close => {}
        Mode::Hang => std::future::pending().await,
        Mode::Pass => {
            let mut server = TcpStream::connect(("127.0.0.1", server)).await.expect("the server");
            let _ = tokio::io::copy_bidirectional(&mut client, &mut server).await;
        }
        Mode::LoseAnswers => {
            let server = TcpStream::connect(("127.0.0.1", server)).await.expect("the server");
            let (mut from_server, mut to_server) = server.into_split();
            tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut tokio::io::sink()).await });
            let _ = tokio::io::copy(&mut client, &mut to_server).await;
        }
        Mode::Answer(status, code) => {
            let body = format!("<Error><Code>{code}</Code><AWSAccessKeyId>{SECRET}</AWSAccessKeyId></Error>");
            let length = body.len();
            let answer = format!("HTTP/1.1 {status} X\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}");
            let _ = client.read(&mut [0; 16 << 10]).await;
            let _ = client.write_all(answer.as_bytes()).await;
            // Reads the rest of the request, so that the answer is not lost.
            let _ = tokio::io::copy(&mut client, &mut tokio::io::sink()).await;
        }
    }
}
