//! A real server on loopback that responds with scripted bytes, including invalid responses and closed connections.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// One step of the server's response to a request. The connection stays open for the next request unless a step closes
/// the connection.
#[derive(Clone)]
pub(crate) enum Step {
    /// Sends these bytes.
    Send(Vec<u8>),
    /// Sends these bytes one by one.
    Trickle(Vec<u8>),
    /// Sends these bytes repeatedly until the client stops reading.
    Forever(Vec<u8>),
    /// Waits for the given time.
    Wait(Duration),
    /// Waits until the client closes the connection, and records the time at which this happens.
    AwaitClose,
    /// Closes the connection.
    Close,
    /// Closes the connection without reading the body of the request, which resets the connection. A script can
    /// contain this step only as its first step.
    Reset,
}

/// A request that the server received.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    pub(crate) line: String,
    pub(crate) headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
    /// Number of the connection over which the request arrived, starting at 0.
    pub(crate) connection: usize,
}

impl Request {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(header_name, _)| header_name == name).map(|(_, value)| value.as_str())
    }
}

pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    requests: Arc<Mutex<Vec<Request>>>,
    closed: Receiver<Instant>,
}

impl Server {
    /// Starts a server that performs the first script for the first request, the second script for the second request,
    /// and so on. The server performs the last script for all further requests.
    pub(crate) fn start(scripts: Vec<Vec<Step>>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (sender, closed) = channel();
        let shared = requests.clone();
        std::thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let (stream, requests, scripts, sender) =
                    (stream.unwrap(), shared.clone(), scripts.clone(), sender.clone());
                std::thread::spawn(move || serve(stream, connection, &requests, &scripts, &sender));
            }
        });
        Self { address, requests, closed }
    }

    /// Starts a server that performs the same steps for every request.
    pub(crate) fn always(steps: Vec<Step>) -> Self {
        Self::start(vec![steps])
    }

    pub(crate) fn base_url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    pub(crate) fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// Waits until the client has closed a connection and returns the time at which it was closed.
    pub(crate) async fn closed(&self) -> Instant {
        let started = Instant::now();
        loop {
            if let Ok(closed) = self.closed.try_recv() {
                return closed;
            }
            assert!(started.elapsed() < Duration::from_secs(5), "the connection was not closed within 5 s");
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }
}

/// Returns the step that sends a response with a content length and keeps the connection open.
pub(crate) fn answer(status: &str, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Step {
    let body = body.as_ref();
    let mut head = format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n", body.len());
    for (name, value) in headers {
        head.push_str(&format!("{name}: {value}\r\n"));
    }
    Step::Send([head.as_bytes(), b"\r\n", body].concat())
}

/// Returns the step that sends a response with a JSON body and keeps the connection open.
pub(crate) fn json(status: &str, body: &serde_json::Value) -> Step {
    answer(status, &[("content-type", "application/json")], body.to_string())
}

/// Returns the step that sends the status line and headers of a chunked event stream.
pub(crate) fn stream_head() -> Step {
    Step::Send(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n".to_vec())
}

/// Returns one chunk of a chunked body.
pub(crate) fn chunk(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    let bytes = bytes.as_ref();
    [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat()
}

/// Returns a server-sent event with a piece of the reply's text.
pub(crate) fn text_event(text: &str) -> String {
    let delta = serde_json::json!({ "choices": [{ "index": 0, "delta": { "content": text }, "finish_reason": null }] });
    format!("data: {delta}\n\n")
}

/// The last events of a complete stream.
pub(crate) const END: &str =
    "data: {\"choices\":[{\"index\":0,\"delta\":{},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

/// Returns the steps that stream a complete reply with the given text.
pub(crate) fn streamed(text: &str) -> Vec<Step> {
    vec![stream_head(), Step::Send([chunk(text_event(text)), chunk(END), chunk("")].concat())]
}

fn serve(
    mut stream: TcpStream,
    connection: usize,
    requests: &Mutex<Vec<Request>>,
    scripts: &[Vec<Step>],
    closed: &Sender<Instant>,
) {
    while let Some((request, length)) = read_head(&mut stream, connection) {
        let index = {
            let mut requests = requests.lock().unwrap();
            requests.push(request);
            requests.len() - 1
        };
        let script = scripts.get(index).unwrap_or_else(|| scripts.last().unwrap());
        if matches!(script.first(), Some(Step::Reset)) {
            // The operating system resets a connection that is closed while there are unread bytes.
            std::thread::sleep(Duration::from_millis(50));
            return;
        }
        let mut body = vec![0; length];
        if stream.read_exact(&mut body).is_err() {
            return;
        }
        requests.lock().unwrap()[index].body = body;
        for step in script {
            if !perform(step, &mut stream, closed) {
                return;
            }
        }
    }
}

/// Performs a step and returns whether the connection stays open.
fn perform(step: &Step, stream: &mut TcpStream, closed: &Sender<Instant>) -> bool {
    match step {
        Step::Send(bytes) => stream.write_all(bytes).is_ok(),
        Step::Trickle(bytes) => {
            let _ = stream.set_nodelay(true);
            bytes.iter().all(|byte| stream.write_all(&[*byte]).is_ok())
        }
        Step::Forever(bytes) => {
            while stream.write_all(bytes).is_ok() {}
            let _ = closed.send(Instant::now());
            false
        }
        Step::Wait(time) => {
            std::thread::sleep(*time);
            true
        }
        Step::AwaitClose => {
            let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
            // In this step, the client sends nothing more, so the next read returns when the client closes
            // the connection.
            if matches!(stream.read(&mut [0; 1]), Ok(0)) || stream.take_error().is_ok_and(|error| error.is_some()) {
                let _ = closed.send(Instant::now());
            }
            false
        }
        Step::Close | Step::Reset => false,
    }
}

/// Reads the head of a request and the length of its body.
fn read_head(stream: &mut TcpStream, connection: usize) -> Option<(Request, usize)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        stream.read_exact(&mut byte).ok()?;
        head.push(byte[0]);
        // A TLS handshake does not begin with a letter. Respond to the handshake as an HTTP server without TLS does.
        if !head[0].is_ascii_alphabetic() {
            let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\nconnection: close\r\n\r\n");
            return None;
        }
    }
    let head = String::from_utf8(head).ok()?;
    let mut lines = head.lines();
    let line = lines.next()?.to_owned();
    let header = |line: &str| line.split_once(": ").map(|(name, value)| (name.to_lowercase(), value.to_owned()));
    let headers: Vec<(String, String)> = lines.filter_map(header).collect();
    let length =
        headers.iter().find(|(name, _)| name == "content-length").map_or(0, |(_, value)| value.parse().unwrap());
    Some((Request { line, headers, body: Vec::new(), connection }, length))
}
