//! A small HTTP client for tests, which sends exactly the bytes that a test describes.

use serde_json::Value;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpStream;

/// Maximum time that a test waits for an answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// Sends requests with a token.
#[derive(Clone)]
pub(crate) struct Client {
    address: SocketAddr,
    token: Option<String>,
}

/// The answer to a request.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    /// Checks the status, and returns the body as JSON.
    pub(crate) fn json(&self, status: u16) -> Value {
        assert_eq!(self.status, status, "{}", self.body);
        serde_json::from_str(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.body))
    }
}

/// Encodes the id of a session for a path.
pub(crate) fn encoded(session: &str) -> String {
    session.replace('%', "%25").replace('/', "%2F")
}

impl Client {
    pub(crate) fn new(address: SocketAddr, token: Option<String>) -> Self {
        Self { address, token }
    }

    pub(crate) fn token(&self) -> Option<String> {
        self.token.clone()
    }

    pub(crate) async fn get(&self, path: &str) -> Answer {
        self.send("GET", path, "application/json", &[], String::new()).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Answer {
        self.send("DELETE", path, "application/json", &[], String::new()).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Answer {
        self.send("POST", path, "application/json", &[], body.to_string()).await
    }

    pub(crate) async fn send(
        &self,
        method: &str,
        path: &str,
        content_type: &str,
        headers: &[(String, String)],
        body: String,
    ) -> Answer {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        let head =
            format!("content-type: {content_type}\r\ncontent-length: {length}\r\nconnection: close\r\n{headers}");
        self.exchange(format!("{}{head}\r\n{body}", self.request(method, path)).into_bytes()).await
    }

    /// Returns the head and the bytes of an answer that is not text.
    pub(crate) async fn get_bytes(&self, path: &str) -> (String, Vec<u8>) {
        let request = format!("{}connection: close\r\n\r\n", self.request("GET", path));
        let exchanged = async {
            let mut stream = TcpStream::connect(self.address).await.expect("the server accepts the connection");
            stream.write_all(request.as_bytes()).await.expect("the request is sent");
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await.expect("the answer is read");
            answer
        };
        let answer = tokio::time::timeout(PATIENCE, exchanged).await.expect("the server answers");
        let end = answer.windows(4).position(|bytes| bytes == b"\r\n\r\n").expect("the answer has a head");
        (String::from_utf8_lossy(&answer[..end]).into_owned(), answer[end + 4..].to_vec())
    }

    /// Returns the first lines of a request.
    pub(crate) fn request(&self, method: &str, path: &str) -> String {
        let token = self.token.as_ref().map(|token| format!("authorization: Bearer {token}\r\n")).unwrap_or_default();
        format!("{method} {path} HTTP/1.1\r\nhost: {}\r\n{token}", self.address)
    }

    /// Sends bytes, and reads the answer until the server closes the connection.
    pub(crate) async fn exchange(&self, bytes: Vec<u8>) -> Answer {
        let exchanged = async {
            let mut stream = TcpStream::connect(self.address).await.expect("the server accepts the connection");
            // The server may answer and close the connection before it has read everything.
            let _ = stream.write_all(&bytes).await;
            let mut answer = Vec::new();
            let _ = stream.read_to_end(&mut answer).await;
            String::from_utf8(answer).expect("the answer is text")
        };
        let text = tokio::time::timeout(PATIENCE, exchanged).await.expect("the server answers");
        let (head, body) = text.split_once("\r\n\r\n").unwrap_or((&text, ""));
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// Opens the event stream at this path, after the event with the id `last`.
    pub(crate) async fn stream(&self, path: &str, last: &str) -> EventReader {
        let stream = TcpStream::connect(self.address).await.expect("the server accepts the connection");
        let mut reader = BufReader::new(stream);
        let request = format!("{}last-event-id: {last}\r\n\r\n", self.request("GET", path));
        reader.write_all(request.as_bytes()).await.expect("the request is sent");
        let mut status = String::new();
        reader.read_line(&mut status).await.expect("the server answers");
        assert!(status.contains(" 200 "), "{status}");
        EventReader { reader }
    }
}

/// Reads server-sent events.
pub(crate) struct EventReader {
    reader: BufReader<TcpStream>,
}

/// A server-sent event.
#[derive(Debug)]
pub(crate) struct ServerSentEvent {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) data: Value,
}

impl EventReader {
    /// Waits for the next event. Returns `None` if the server has closed the stream.
    pub(crate) async fn next(&mut self) -> Option<ServerSentEvent> {
        let (mut id, mut name) = (String::new(), String::new());
        loop {
            let mut line = String::new();
            let read = tokio::time::timeout(PATIENCE, self.reader.read_line(&mut line)).await;
            if read.expect("an event arrives").ok()? == 0 {
                return None;
            }
            match line.trim_end().split_once(": ") {
                Some(("id", value)) => value.clone_into(&mut id),
                Some(("event", value)) => value.clone_into(&mut name),
                Some(("data", value)) => {
                    let data = serde_json::from_str(value).expect("the data is JSON");
                    return Some(ServerSentEvent { id, name, data });
                }
                _ => {}
            }
        }
    }
}
