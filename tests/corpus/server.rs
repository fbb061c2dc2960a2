//! Misbehaving servers on loopback addresses. Each server has one thread and handles one connection at a time.

use agent_plugins::Grants;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// A server that counts its connections.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicUsize>,
}

impl Server {
    /// Starts a server that calls `serve` for each connection.
    pub(crate) fn new(serve: impl Fn(TcpStream) + Send + 'static) -> Self {
        Self::at("127.0.0.1", serve)
    }

    /// Starts a server at this loopback address.
    pub(crate) fn at(address: &str, serve: impl Fn(TcpStream) + Send + 'static) -> Self {
        let listener = TcpListener::bind((address, 0)).expect("a loopback port is free");
        let address = listener.local_addr().expect("the listener has an address");
        let connections = Arc::new(AtomicUsize::new(0));
        let counter = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                counter.fetch_add(1, Ordering::SeqCst);
                // The server does not wait forever for a client.
                let _ = stream.set_read_timeout(Some(Duration::from_secs(20)));
                serve(stream);
            }
        });
        Self { address, connections }
    }

    /// Starts a server that answers each request with these bytes as soon as the head of the request has arrived.
    pub(crate) fn answering(answer: Vec<u8>) -> Self {
        Self::new(move |mut stream| {
            if read_head(&mut stream) {
                let _ = stream.write_all(&answer);
            }
        })
    }

    /// Starts a server that answers each request with the body `ok`.
    pub(crate) fn ok() -> Self {
        Self::answering(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\nok".to_vec())
    }

    /// Starts a server that never answers and waits until the client disconnects.
    pub(crate) fn silent() -> Self {
        Self::new(|mut stream| while stream.read(&mut [0; 4096]).is_ok_and(|read| read > 0) {})
    }

    /// Starts a server that sends one byte of its answer every ten milliseconds.
    pub(crate) fn slow() -> Self {
        Self::new(|mut stream| {
            read_head(&mut stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 1000000\r\n\r\n");
            while stream.write_all(b"x").is_ok() {
                std::thread::sleep(Duration::from_millis(10));
            }
        })
    }

    /// Starts a server that answers with an endless body.
    pub(crate) fn endless() -> Self {
        Self::new(|mut stream| {
            read_head(&mut stream);
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
            while stream.write_all(&[b'x'; 64 << 10]).is_ok() {}
        })
    }

    /// Starts a server that reads each whole request and never answers.
    pub(crate) fn reading_only() -> Self {
        Self::new(|mut stream| while stream.read(&mut [0; 64 << 10]).is_ok_and(|read| read > 0) {})
    }

    /// Returns the URL of this path on the server.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns grants that let a plugin send any request to this server.
    pub(crate) fn grants(&self) -> Grants {
        Grants {
            http: vec![format!("http://{}", self.address).parse().expect("the pattern is valid")],
            ..Grants::default()
        }
    }

    /// Returns the number of connections that clients have opened so far.
    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// Reads the head of a request. Returns false if the head does not arrive completely.
pub(crate) fn read_head(stream: &mut impl Read) -> bool {
    head(stream).is_some()
}

/// Reads the head of a request and returns it as text. Returns `None` if the head does not arrive completely.
pub(crate) fn head(stream: &mut impl Read) -> Option<String> {
    let (mut head, mut byte) = (Vec::new(), [0]);
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut byte) {
            Ok(1) if head.len() < 1 << 20 => head.push(byte[0]),
            _ => return None,
        }
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}
