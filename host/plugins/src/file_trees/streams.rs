//! Streams that read and write files of granted trees. The streams fail after the grant has been revoked, and count the
//! bytes that they write towards the quota.

use super::{CallTree, TreeRefusal};
use crate::grants::manifest::Access;
use bytes::Bytes;
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use tokio::task::JoinHandle;
use wasmtime_wasi::p2::{DynInputStream, InputStream, OutputStream, Pollable, StreamError, StreamResult};

/// Maximum number of bytes that a stream writes at a time.
const CHUNK_BYTES: usize = 64 * 1024;

/// The position in the file at which a stream writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WritePosition {
    At(u64),
    End,
}

/// Writes all bytes to the file, and returns their number. The caller must have reserved quota for these bytes.
pub(super) fn write(file: &File, bytes: &[u8], position: WritePosition) -> io::Result<usize> {
    match position {
        WritePosition::At(offset) => file.write_all_at(bytes, offset)?,
        WritePosition::End => append(file, bytes)?,
    }
    Ok(bytes.len())
}

/// Appends atomically, because other processes may append at the same time.
#[cfg(target_os = "linux")]
fn append(file: &File, mut bytes: &[u8]) -> io::Result<()> {
    use rustix::io::{ReadWriteFlags, pwritev2};
    while !bytes.is_empty() {
        match pwritev2(file, &[io::IoSlice::new(bytes)], 0, ReadWriteFlags::APPEND) {
            Ok(written) => bytes = &bytes[written..],
            Err(Errno::NOSYS | Errno::OPNOTSUPP) => return file.write_all_at(bytes, file.metadata()?.len()),
            Err(errno) => return Err(errno.into()),
        }
    }
    Ok(())
}

#[cfg(not(target_os = "linux"))]
fn append(file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, file.metadata()?.len())
}

/// Converts a refusal to an error code of the operating system, so that the guest's library can show the usual message
/// for this code.
impl From<TreeRefusal> for io::Error {
    fn from(refusal: TreeRefusal) -> Self {
        match refusal {
            TreeRefusal::System(error) => error,
            TreeRefusal::NotPermitted | TreeRefusal::Protected(_) => Errno::PERM.into(),
            TreeRefusal::Unsupported => Errno::NOTSUP.into(),
            TreeRefusal::Quota(_) => Errno::NOSPC.into(),
        }
    }
}

fn failed(refusal: TreeRefusal) -> StreamError {
    StreamError::LastOperationFailed(io::Error::from(refusal).into())
}

/// A stream that reads a file, and fails when the file's tree is no longer granted.
pub(crate) struct GuardedReader {
    pub(crate) tree: Arc<CallTree>,
    pub(crate) inner: DynInputStream,
}

#[async_trait::async_trait]
impl InputStream for GuardedReader {
    fn read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.tree.check(Access::Read).map_err(failed)?;
        self.inner.read(size)
    }

    async fn blocking_read(&mut self, size: usize) -> StreamResult<Bytes> {
        self.tree.check(Access::Read).map_err(failed)?;
        self.inner.blocking_read(size).await
    }

    async fn cancel(&mut self) {
        self.inner.cancel().await;
    }
}

#[async_trait::async_trait]
impl Pollable for GuardedReader {
    async fn ready(&mut self) {
        self.inner.ready().await;
    }
}

/// Callback that receives the reason when a write is refused.
pub(crate) type OnRefusal = Arc<dyn Fn(&TreeRefusal) + Send + Sync>;

/// A stream that writes a file within the quota of its tree.
pub(crate) struct GuardedWriter {
    tree: Arc<CallTree>,
    file: Arc<File>,
    position: WritePosition,
    refused: OnRefusal,
    state: State,
}

enum State {
    Ready,
    Writing(JoinHandle<Result<usize, TreeRefusal>>),
    Failed(TreeRefusal),
    Closed,
}

impl GuardedWriter {
    pub(crate) fn new(tree: Arc<CallTree>, file: Arc<File>, position: WritePosition, refused: OnRefusal) -> Self {
        Self { tree, file, position, refused, state: State::Ready }
    }

    fn failure(&mut self) -> Option<StreamError> {
        match std::mem::replace(&mut self.state, State::Closed) {
            State::Failed(refusal) => {
                (self.refused)(&refusal);
                Some(failed(refusal))
            }
            other => {
                self.state = other;
                None
            }
        }
    }
}

#[async_trait::async_trait]
impl OutputStream for GuardedWriter {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        match self.state {
            State::Ready if bytes.len() <= CHUNK_BYTES => {}
            State::Closed => return Err(StreamError::Closed),
            _ => return Err(StreamError::trap("a write that was not permitted by check-write")),
        }
        let (tree, file, position) = (Arc::clone(&self.tree), Arc::clone(&self.file), self.position);
        self.state = State::Writing(tokio::task::spawn_blocking(move || tree.write_at(&file, &bytes, position)));
        Ok(())
    }

    fn flush(&mut self) -> StreamResult<()> {
        match (self.failure(), &self.state) {
            (Some(error), _) => Err(error),
            (None, State::Closed) => Err(StreamError::Closed),
            (None, _) => Ok(()),
        }
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        match (self.failure(), &self.state) {
            (Some(error), _) => Err(error),
            (None, State::Closed) => Err(StreamError::Closed),
            (None, State::Ready) => Ok(CHUNK_BYTES),
            (None, _) => Ok(0),
        }
    }

    async fn cancel(&mut self) {
        self.ready().await;
        self.state = State::Closed;
    }
}

#[async_trait::async_trait]
impl Pollable for GuardedWriter {
    async fn ready(&mut self) {
        let State::Writing(task) = &mut self.state else { return };
        self.state = match task.await {
            Ok(Ok(written)) => {
                if let WritePosition::At(offset) = &mut self.position {
                    *offset += written as u64;
                }
                State::Ready
            }
            Ok(Err(refusal)) => State::Failed(refusal),
            Err(stopped) => State::Failed(TreeRefusal::System(io::Error::other(stopped))),
        };
    }
}
