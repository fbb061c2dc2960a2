//! A command-line program (`wasi:cli/command`) as one tool: what it reads on standard input, what it prints, how it ends.

use crate::limits::Limit;
use crate::logging::Source;
use crate::record::{CallRecord, lock};
use crate::text::clean;
use agent_core::tool::{ToolDefinition, Traits, Violation};
use bytes::Bytes;
use serde_json::{Value, json};
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

/// Bytes that a program may print at once.
const CHUNK_BYTES: usize = 64 * 1024;
/// The end of standard error, and of what was printed, that a failure shows.
const TAIL_BYTES: usize = 1_536;

/// A program's arguments and input for one run, and what it has printed so far.
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

/// What the model is told of the tool; `name` is its own, `description` its manifest's.
pub(super) fn definition(name: String, description: Option<&str>, traits: Traits) -> ToolDefinition {
    let about = description.map(|text| format!("{}\n", text.trim_end())).unwrap_or_default();
    let usage = "Runs this command-line program once and returns what it prints to standard output.";
    ToolDefinition {
        name,
        title: None,
        description: format!("{about}{usage}"),
        input_schema: json!({
            "type": "object",
            "properties": {
                "args": {
                    "type": "array", "items": {"type": "string"},
                    "description": "The program's arguments, without its own name. No shell reads them.",
                },
                "stdin": {"type": "string", "description": "What the program reads on standard input."},
            },
            "additionalProperties": false,
        }),
        output_schema: None,
        traits,
        priority: 0,
    }
}

impl Program {
    /// For these arguments, as [`definition`] describes them.
    pub(super) fn new(name: &str, arguments: &Value) -> Result<Self, Violation> {
        let wrong = |pointer: String| {
            let message = "it must be a string without zero bytes".to_owned();
            Violation { pointer, rule: Some("type".to_owned()), message }
        };
        let mut given = Vec::new();
        for (index, argument) in arguments["args"].as_array().into_iter().flatten().enumerate() {
            let text = argument.as_str().filter(|text| !text.contains('\0'));
            given.push(text.ok_or_else(|| wrong(format!("/args/{index}")))?.to_owned());
        }
        let input = arguments["stdin"].as_str().unwrap_or_default().to_owned();
        Ok(Self { name: name.to_owned(), arguments: given, input: input.into(), output: Mutex::default() })
    }

    /// Puts the program's own streams in the place of the call's.
    pub(crate) fn connect(self: &Arc<Self>, record: &Arc<CallRecord>, wasi: &mut WasiCtxBuilder) {
        let stream = |source| Printed { program: Arc::clone(self), record: Arc::clone(record), source };
        wasi.arg(&self.name)
            .args(&self.arguments)
            .stdin(MemoryInputPipe::new(self.input.clone()))
            .stdout(stream(Source::Stdout))
            .stderr(stream(Source::Stderr));
    }

    /// What it printed. Bytes that are no text are replaced.
    pub(super) fn printed(&self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut lock(&self.output).stdout)).into_owned()
    }

    /// What is said of a run that ended with this code.
    pub(super) fn failure(&self, code: i32) -> String {
        let mut output = lock(&self.output);
        let stderr = String::from_utf8_lossy(output.stderr_tail.make_contiguous()).trim().to_owned();
        let start = output.stdout.len().saturating_sub(TAIL_BYTES);
        let stdout = String::from_utf8_lossy(&output.stdout[start..]).trim().to_owned();
        let mut text = format!("{} ended with exit code {code}", self.name);
        for (title, printed) in [("standard error", stderr), ("standard output", stdout)] {
            if !printed.is_empty() {
                text.push_str(&format!("\n{title} (its end):\n{}", clean(&printed, TAIL_BYTES)));
            }
        }
        text
    }

    fn take(&self, record: &CallRecord, source: Source, bytes: &[u8]) -> Result<(), OutputFull> {
        let mut output = lock(&self.output);
        if source == Source::Stdout {
            let limit = record.limits.result;
            if output.stdout.len() + bytes.len() > limit {
                record.hit(Limit::ResultText(limit));
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

/// The program has printed more than a result may have.
struct OutputFull;

/// A program's standard output or error.
#[derive(Clone)]
struct Printed {
    program: Arc<Program>,
    record: Arc<CallRecord>,
    source: Source,
}

impl IsTerminal for Printed {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for Printed {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[async_trait::async_trait]
impl Pollable for Printed {
    async fn ready(&mut self) {}
}

impl OutputStream for Printed {
    fn write(&mut self, bytes: Bytes) -> StreamResult<()> {
        let taken = self.program.take(&self.record, self.source, &bytes);
        taken.map_err(|OutputFull| StreamError::Trap(wasmtime::Error::msg("too much was printed")))
    }

    fn flush(&mut self) -> StreamResult<()> {
        Ok(())
    }

    fn check_write(&mut self) -> StreamResult<usize> {
        Ok(CHUNK_BYTES)
    }
}

impl AsyncWrite for Printed {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let taken = self.program.take(&self.record, self.source, bytes);
        Poll::Ready(taken.map(|()| bytes.len()).map_err(|OutputFull| io::Error::other("too much was printed")))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
