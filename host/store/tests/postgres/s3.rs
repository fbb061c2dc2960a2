//! An S3 server on this machine, which ends when the test process ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Runs the server until the input ends, because the test process has ended.
const RUN: &str = r#"
"$1" -m moto.server -H 127.0.0.1 -p 0 2>&1 &
process=$!
read -r _
kill $process 2> /dev/null
"#;

/// A running server.
pub(crate) struct S3 {
    pub(crate) port: u16,
    /// Closing its input ends the server.
    _runner: Child,
}

/// Returns the server that all tests share. Returns `None` if it is not installed.
pub(crate) fn s3() -> Option<&'static S3> {
    static SERVER: OnceLock<Option<S3>> = OnceLock::new();
    SERVER.get_or_init(S3::start).as_ref()
}

impl S3 {
    fn start() -> Option<Self> {
        let python = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/.peers/python/bin");
        if !python.join("moto_server").is_file() {
            let required = std::env::var_os("AGENT_HOST_REQUIRE_PEERS").is_some();
            assert!(!required, "an S3 server is required here and not installed: run tests/install-peers");
            let _ = writeln!(std::io::stderr(), "SKIPPED: no S3 server is installed (tests/install-peers installs it)");
            return None;
        }
        let mut runner = Command::new("sh")
            .args(["-c", RUN, "sh"])
            .arg(python.join("python"))
            .env("AWS_ACCESS_KEY_ID", "test")
            .env("AWS_SECRET_ACCESS_KEY", "test")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let mut lines = BufReader::new(runner.stdout.take().expect("its output")).lines().map_while(Result::ok);
        let port = lines.find_map(|line| line.rsplit_once("127.0.0.1:")?.1.trim().parse().ok()).expect("a port");
        // The server writes a line for each request.
        std::thread::spawn(move || lines.for_each(drop));
        Some(Self { port, _runner: runner })
    }

    /// Creates an empty bucket, and returns its name.
    pub(crate) fn new_bucket(&self) -> String {
        static BUCKETS: AtomicU32 = AtomicU32::new(0);
        let name = format!("bucket-{}", BUCKETS.fetch_add(1, Ordering::Relaxed));
        let answer = self.request("PUT", &name);
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        name
    }

    /// Returns the keys of all objects in a bucket.
    pub(crate) fn keys(&self, bucket: &str) -> Vec<String> {
        let body = self.request("GET", &format!("{bucket}?list-type=2"));
        body.split("<Key>").skip(1).map(|rest| rest.split("</Key>").next().unwrap_or_default().to_owned()).collect()
    }

    fn request(&self, method: &str, path: &str) -> String {
        let mut connection = TcpStream::connect(("127.0.0.1", self.port)).expect("the server");
        let request =
            format!("{method} /{path} HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        connection.write_all(request.as_bytes()).expect("the request is sent");
        let mut answer = String::new();
        connection.read_to_string(&mut answer).expect("an answer");
        answer
    }

    /// Returns the URL of the server.
    pub(crate) fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }
}
