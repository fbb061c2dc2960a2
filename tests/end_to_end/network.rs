//! A network that fails: a proxy between a program and a server, which is late, silent, cut or closed in one direction, and which
//! doubles the messages of NATS.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream, UnixStream};
use tokio::sync::watch;

/// What happens to the connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Everything arrives.
    None,
    /// Each piece of data is up to 200 milliseconds late.
    Delay,
    /// Nothing arrives, but no connection ends. What was sent arrives when the fault ends.
    Silence,
    /// All connections are cut, and new connections end at once.
    Cut,
    /// The servers see the end of their input, and what programs send is lost. Answers still arrive.
    NoRequests,
    /// The programs see the end of their input, and answers are lost. What they have sent still arrives.
    NoAnswers,
    /// Each message that a program publishes with NATS arrives twice. Nothing happens to other protocols, because TCP does not
    /// double data.
    Double,
}

/// Where the connections lead.
#[derive(Clone)]
pub(crate) enum Target {
    /// PostgreSQL with this socket.
    Postgres(PathBuf),
    /// NATS at this port.
    Nats(u16),
}

/// A proxy on a port of its own.
pub(crate) struct Network {
    pub(crate) port: u16,
    fault: watch::Sender<Fault>,
}

impl Network {
    pub(crate) async fn start(target: Target) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let (fault, faults) = watch::channel(Fault::None);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let (target, faults) = (target.clone(), faults.clone());
                tokio::spawn(async move { connect(client, target, faults).await });
            }
        });
        Self { port, fault }
    }

    pub(crate) fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }
}

/// The connection was cut.
struct WasCut;

async fn connect(client: TcpStream, target: Target, faults: watch::Receiver<Fault>) {
    if *faults.borrow() == Fault::Cut {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let requests = |frames| Direction { faults: faults.clone(), end: Fault::NoRequests, frames };
    let answers = Direction { faults: faults.clone(), end: Fault::NoAnswers, frames: None };
    // The target may not run at the moment.
    let _ = match target {
        Target::Postgres(socket) => match UnixStream::connect(&socket).await {
            Ok(server) => {
                let (from_server, to_server) = server.into_split();
                tokio::try_join!(requests(None).pass(from_client, to_server), answers.pass(from_server, to_client))
            }
            Err(_) => Err(WasCut),
        },
        Target::Nats(port) => match TcpStream::connect(("127.0.0.1", port)).await {
            Ok(server) => {
                let (from_server, to_server) = server.into_split();
                let requests = requests(Some(Frames::default()));
                tokio::try_join!(requests.pass(from_client, to_server), answers.pass(from_server, to_client))
            }
            Err(_) => Err(WasCut),
        },
    };
}

/// One direction of a connection.
struct Direction {
    faults: watch::Receiver<Fault>,
    /// The fault that ends this direction.
    end: Fault,
    /// Finds the messages, if they can be doubled.
    frames: Option<Frames>,
}

impl Direction {
    async fn pass(mut self, mut from: impl AsyncRead + Unpin, mut to: impl AsyncWrite + Unpin) -> Result<(), WasCut> {
        let mut buffer = vec![0; 64 << 10];
        loop {
            let fault = *self.faults.borrow_and_update();
            match fault {
                Fault::Cut => return Err(WasCut),
                Fault::Silence => {
                    self.changed().await?;
                    continue;
                }
                ended if ended == self.end => {
                    let _ = to.shutdown().await;
                    // What still comes is lost.
                    while from.read(&mut buffer).await.is_ok_and(|count| count > 0) {}
                    return Ok(());
                }
                _ => {}
            }
            let count = tokio::select! {
                changed = self.faults.changed() => {
                    changed.map_err(|_| WasCut)?;
                    continue;
                }
                read = from.read(&mut buffer) => read.map_err(|_| WasCut)?,
            };
            if count == 0 {
                let _ = to.shutdown().await;
                return Ok(());
            }
            if fault == Fault::Delay {
                tokio::time::sleep(Duration::from_millis(random(200))).await;
            }
            // The fault may have begun meanwhile, and then the data waits, too.
            while *self.faults.borrow_and_update() == Fault::Silence {
                self.changed().await?;
            }
            let sent = match &mut self.frames {
                Some(frames) => to.write_all(&frames.next(&buffer[..count], fault == Fault::Double)).await,
                None => to.write_all(&buffer[..count]).await,
            };
            sent.map_err(|_| WasCut)?;
        }
    }

    async fn changed(&mut self) -> Result<(), WasCut> {
        self.faults.changed().await.map_err(|_| WasCut)
    }
}

/// Finds the messages in what a client of NATS sends.
#[derive(Default)]
struct Frames(Vec<u8>);

impl Frames {
    /// Returns the complete frames, with published messages doubled.
    fn next(&mut self, bytes: &[u8], doubles: bool) -> Vec<u8> {
        self.0.extend_from_slice(bytes);
        let mut sent = Vec::new();
        while let Some(length) = self.frame() {
            let frame: Vec<u8> = self.0.drain(..length).collect();
            sent.extend_from_slice(&frame);
            if doubles && is_message(&frame) {
                sent.extend_from_slice(&frame);
            }
        }
        sent
    }

    /// Returns the length of the first frame, or `None` if it is not complete.
    fn frame(&self) -> Option<usize> {
        let line = self.0.windows(2).position(|pair| pair == b"\r\n")? + 2;
        let payload = match is_message(&self.0[..line]) {
            true => {
                let size = self.0[..line - 2].rsplit(|byte| *byte == b' ').next()?;
                std::str::from_utf8(size).ok()?.parse::<usize>().ok()? + 2
            }
            false => 0,
        };
        (self.0.len() >= line + payload).then_some(line + payload)
    }
}

fn is_message(frame: &[u8]) -> bool {
    frame.starts_with(b"PUB ") || frame.starts_with(b"HPUB ")
}

/// Returns a number below `end`.
fn random(end: u64) -> u64 {
    static STATE: AtomicU64 = AtomicU64::new(1);
    // The constants are those of Knuth's MMIX generator.
    let next = |state: u64| Some(state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407));
    (STATE.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next).unwrap_or_default() >> 33) % end
}

#[test]
fn frames_are_doubled_whole() {
    let mut frames = Frames::default();
    let sent = b"CONNECT {}\r\nPUB a 5\r\nx\r\ny!\r\nHPUB a _R.1 4 6\r\nabcdef\r\nPING\r\n";
    let doubled = "CONNECT {}\r\nPUB a 5\r\nx\r\ny!\r\nPUB a 5\r\nx\r\ny!\r\nHPUB a _R.1 4 6\r\nabcdef\r\nHPUB a _R.1 4 6\r\nabcdef\r\nPING\r\n";
    let received: Vec<u8> = sent.chunks(3).flat_map(|chunk| frames.next(chunk, true)).collect();
    assert_eq!(String::from_utf8(received).expect("text"), doubled);
}
