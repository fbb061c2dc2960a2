//! A proxy before the server that cuts connections in the moment of a commit.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::Notify;

/// What happens to the next commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Cut {
    /// The commit passes.
    Never = 0,
    /// The connection is cut before the server receives the commit.
    Before = 1,
    /// The server receives the commit, but its answer is lost.
    After = 2,
    /// The client's connection is cut before the server receives the commit. The server keeps the transaction open for
    /// some time.
    BeforeAndLate = 3,
    /// The client's connection is cut at once, and the server receives the commit some time later.
    Delayed = 4,
    /// The server receives the commit when [`Proxy::pass_held_commits`] is called, as if the client had been stopped.
    Held = 5,
}

/// Time after which the server learns about [`Cut::BeforeAndLate`] and [`Cut::Delayed`].
const DELAY: Duration = Duration::from_secs(1);

/// A simple query of the protocol: type, length, text, and a zero byte.
const COMMIT: &[u8] = b"Q\0\0\0\x0bCOMMIT\0";

pub(crate) struct Proxy {
    pub(crate) port: u16,
    cut: Arc<AtomicU8>,
    /// Whether new connections wait.
    hold: Arc<AtomicBool>,
    held: Arc<Notify>,
}

impl Proxy {
    /// Starts a proxy for the server with this socket.
    pub(crate) async fn start(socket: PathBuf) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let cut = Arc::new(AtomicU8::new(Cut::Never as u8));
        let hold = Arc::new(AtomicBool::new(false));
        let held = Arc::new(Notify::new());
        let (next, is_held, pass) = (cut.clone(), hold.clone(), held.clone());
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                while is_held.load(Ordering::SeqCst) {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
                let server = UnixStream::connect(&socket).await.expect("the server");
                tokio::spawn(relay(client, server, next.clone(), pass.clone()));
            }
        });
        Self { port, cut, hold, held }
    }

    /// Sets what happens to the next commit. Later commits pass.
    pub(crate) fn cut_next(&self, cut: Cut) {
        self.cut.store(cut as u8, Ordering::SeqCst);
    }

    /// Lets new connections wait, or ends their wait.
    pub(crate) fn hold_new_connections(&self, hold: bool) {
        self.hold.store(hold, Ordering::SeqCst);
    }

    /// Sends the commits to the server that [`Cut::Held`] has stopped.
    pub(crate) fn pass_held_commits(&self) {
        self.held.notify_waiters();
    }

    /// Returns whether the cut has happened.
    pub(crate) fn has_cut(&self) -> bool {
        self.cut.load(Ordering::SeqCst) == Cut::Never as u8
    }
}

async fn relay(client: TcpStream, server: UnixStream, cut: Arc<AtomicU8>, pass: Arc<Notify>) {
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    let answers = tokio::spawn(async move {
        let _ = tokio::io::copy(&mut from_server, &mut to_client).await;
        from_server
    });
    let mut buffer = vec![0; 64 << 10];
    while let Ok(count @ 1..) = from_client.read(&mut buffer).await {
        let bytes = &buffer[..count];
        // The client sends its commit alone, because it waits for all answers before.
        let action = if bytes.ends_with(COMMIT) { cut.swap(0, Ordering::SeqCst) } else { 0 };
        if action == Cut::Held as u8 {
            pass.notified().await;
        } else if action != 0 {
            // Aborting the task closes the client's connection.
            answers.abort();
            drop(from_client);
            if action == Cut::After as u8 {
                let _ = to_server.write_all(bytes).await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            if action == Cut::BeforeAndLate as u8 || action == Cut::Delayed as u8 {
                tokio::time::sleep(DELAY).await;
            }
            if action == Cut::Delayed as u8 {
                let _ = to_server.write_all(bytes).await;
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            return;
        }
        if to_server.write_all(bytes).await.is_err() {
            return;
        }
    }
}
