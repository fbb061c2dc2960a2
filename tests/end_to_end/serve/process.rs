//! The real server: the binary in a process of its own.

use super::client::Client;
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Stdio};
use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

/// Number of lines of the log that are shown if a test fails.
const SHOWN_LINES: usize = 40;
/// Maximum time until the server listens.
const PATIENCE: Duration = Duration::from_secs(60);

/// A running process of `agent-host serve`, which is killed when this value is dropped.
pub(crate) struct ServeProcess {
    child: Child,
    address: SocketAddr,
    token: String,
    /// All lines that the server has written to stderr.
    log: Arc<Mutex<Vec<String>>>,
}

impl ServeProcess {
    /// Starts the server in a folder, with the data folder `data` and these arguments, and waits until it listens.
    pub(crate) fn start(folder: &Path, arguments: &[&str]) -> Self {
        Self::start_with(folder, arguments, &[])
    }

    /// Starts the server with these environment variables.
    pub(crate) fn start_with(folder: &Path, arguments: &[&str], variables: &[(&str, &str)]) -> Self {
        Self::start_command((folder, "data"), &["serve", "--listen", "127.0.0.1:0"], arguments, variables)
    }

    /// Starts a command that shows an address as the server does, with this data folder.
    pub(crate) fn start_command(
        (folder, data): (&Path, &str),
        command: &[&str],
        arguments: &[&str],
        variables: &[(&str, &str)],
    ) -> Self {
        let mut child = crate::program::agent_host()
            .args(["--data", data])
            .args(command)
            .args(arguments)
            .envs(variables.iter().copied())
            .current_dir(folder)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the server starts");
        let stderr = BufReader::new(child.stderr.take().expect("stderr is a pipe"));
        let (sender, lines) = mpsc::channel();
        let log: Arc<Mutex<Vec<String>>> = Arc::default();
        let written = log.clone();
        // The thread reads until the process has ended, so that the process never waits for a reader.
        std::thread::spawn(move || {
            stderr.lines().map_while(Result::ok).for_each(|line| {
                written.lock().expect("no panic").push(line.clone());
                drop(sender.send(line));
            });
        });
        let mut shown = Vec::new();
        let address = loop {
            let line = lines.recv_timeout(PATIENCE).unwrap_or_else(|error| panic!("{error}: {}", shown.join("\n")));
            if let Some(address) = line.split("http://").nth(1) {
                let address = address.split(|end: char| end.is_whitespace() || end == '/').next().expect("an address");
                break address.trim_end_matches(|last: char| !last.is_ascii_digit()).parse().expect("an address");
            }
            shown.push(line);
        };
        // A worker has no tokens unless somebody creates one.
        let token = std::fs::read_to_string(folder.join(data).join("server-token")).unwrap_or_default();
        Self { child, address, token: token.trim().to_owned(), log }
    }

    /// Returns the token with all rights.
    pub(crate) fn token(&self) -> &str {
        &self.token
    }

    /// Returns the URL of a path.
    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    /// Returns a client with all rights.
    pub(crate) fn client(&self) -> Client {
        Client::new(self.address, Some(self.token.clone()))
    }

    /// Returns a client with this token.
    pub(crate) fn client_with(&self, token: &str) -> Client {
        Client::new(self.address, Some(token.to_owned()))
    }

    /// Returns a client without a token.
    pub(crate) fn anonymous(&self) -> Client {
        Client::new(self.address, None)
    }

    /// Returns the lines that the server has written to stderr so far.
    pub(crate) fn log(&self) -> Vec<String> {
        self.log.lock().expect("no panic").clone()
    }

    /// Returns the id of the process.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal to the process.
    pub(crate) fn signal(&self, signal: rustix::process::Signal) {
        let process = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(process, signal).expect("the process runs");
    }

    /// Waits until the process has ended, and returns whether it has succeeded.
    pub(crate) fn wait(mut self) -> bool {
        self.child.wait().expect("the process ends").success()
    }

    /// Ends the process immediately, as a power failure would.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("the server runs");
        self.child.wait().expect("the server ends");
    }
}

impl Drop for ServeProcess {
    #[allow(clippy::print_stderr, reason = "developers read why a test failed")]
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let log = self.log();
            eprintln!("the end of the log of a process:\n{}", log[log.len().saturating_sub(SHOWN_LINES)..].join("\n"));
        }
    }
}
