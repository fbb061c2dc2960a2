//! A command-line program (`wasi:cli/command`) that one call runs: its arguments, standard input and output.

use crate::limits::Limit;
use crate::recording::CallRecord;
use crate::recording::guest_log::Source;
use crate::sync::lock;
use crate::text::clean;
use agent_core::tool::Violation;
use bytes::Bytes;
use serde_json::Value;
use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tokio::io::AsyncWrite;
use wasmtime_wasi::WasiCtxBuilder;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::pipe::MemoryInputPipe;
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError, StreamResult};

/// Maximum number of bytes that a program may print in one write.
const CHUNK_BYTES: usize = 64 * 1024;
/// The error message for a failed program quotes the end of standard error and the end of standard output. Each
/// quotation has at most this number of bytes.
const TAIL_BYTES: usize = 1_536;

/// The arguments and the standard input of a program for one call, and the output that the program has printed so far.
pub(crate) struct Program {
    name: String,
    arguments: Vec<String>,
    input: Bytes,
    output: Mutex<Output>,
}

#[derive(Default)]
struct Output {
    stdout: Vec<u8>,
    stderr_tail: VecDeque<u8>,
}

impl Program {
    /// Creates a program from the arguments of a tool call.
    pub(crate) fn new(name: &str, arguments: &Value) -> Result<Self, Violation> {
        let violation = |pointer: String| {
            let message = "it must be a string without zero bytes".to_owned();
            Violation { pointer, rule: Some("type".to_owned()), message }
        };
        let mut args = Vec::new();
        for (index, argument) in arguments["args"].as_array().into_iter().flatten().enumerate() {
            let text = argument.as_str().filter(|text| !text.contains('\0'));
            args.push(text.ok_or_else(|| violation(format!("/args/{index}")))?.to_owned());
        }
        let input = arguments["stdin"].as_str().unwrap_or_default().to_owned();
        Ok(Self { name: name.to_owned(), arguments: args, input: input.into(), output: Mutex::default() })
    }

    /// Sets the program's arguments and streams in the WASI context.
    pub(crate) fn connect(self: &Arc<Self>, record: &Arc<CallRecord>, wasi: &mut WasiCtxBuilder) {
        let stream = |source| OutputStreamHandle { program: Arc::clone(self), record: Arc::clone(record), source };
        wasi.arg(&self.name)
            .args(&self.arguments)
            .stdin(MemoryInputPipe::new(self.input.clone()))
            .stdout(stream(Source::Stdout))
            .stderr(stream(Source::Stderr));
    }

    /// Removes and returns the standard output that the program has printed so far. Bytes that are not valid UTF-8 are
    /// replaced with the replacement character U+FFFD.
    pub(crate) fn take_stdout(&self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut lock(&self.output).stdout)).into_owned()
    }

    /// The error message for a program that ended with this exit code.
    pub(crate) fn failure(&self, code: i32) -> String {
        let mut output = lock(&self.output);
        let stderr = String::from_utf8_lossy(output.stderr_tail.make_contiguous()).trim().to_owned();
        let start = output.stdout.len().saturating_sub(TAIL_BYTES);
        let stdout = String::from_utf8_lossy(&output.stdout[start..]).trim().to_owned();
        let mut text = format!("{} ended with exit code {code}", self.name);
        for (title, text_end) in [("standard error", stderr), ("standard output", stdout)] {
            if !text_end.is_empty() {
                text.push_str(&format!("\nend of {title}:\n{}", clean(&text_end, TAIL_BYTES)));
            }
        }
        text
    }

    fn take(&self, record: &CallRecord, source: Source, bytes: &[u8]) -> Result<(), OutputFull> {
        let mut output = lock(&self.output);
        if source == Source::Stdout {
            let limit = record.limits.result;
            if output.stdout.len() + bytes.len() > limit {
                record.record_limit(Limit::ResultText(limit));
                return Err(OutputFull);
            }
            output.stdout.extend_from_slice(bytes);
            return Ok(());
        }
        output.stderr_tail.extend(&bytes[bytes.len().saturating_sub(TAIL_BYTES)..]);
        let surplus = output.stderr_tail.len().saturating_sub(TAIL_BYTES);
        output.stderr_tail.drain(..surplus);
        drop(output);
        record.print(source, bytes);
        Ok(())
    }
}

/// The error for a program that has printed more than a result may contain.
struct OutputFull;

/// A program's standard output or standard error.
#[derive(Clone)]
struct OutputStreamHandle {
    program: Arc<Program>,
    record: Arc<CallRecord>,
    source: Source,
}

impl IsTerminal for OutputStreamHandle {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for OutputStreamHandle {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait::async_trait]
impl Pollable for OutputStreamHandle {
    async fn ready(&mut self) {}
}

impl OutputStream for OutputStreamHandle {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let taken = self.program.take(&self.record, self.source, &bytes);
        taken.map_err(|OutputFull| {
            StreamError::Trap(wasmtime::Error::msg("the program printed more than a result may contain"))
        })
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(CHUNK_BYTES)
    }
}

impl AsyncWrite for OutputStreamHandle {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let taken = self.program.take(&self.record, self.source, bytes);
        Poll::Ready(
            taken
                .map(|()| bytes.len())
                .map_err(|OutputFull| io::Error::other("the program printed more than a result may contain")),
        )
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
