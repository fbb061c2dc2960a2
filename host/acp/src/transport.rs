//! Messages as lines: reads lines of limited length, and counts what waits, so that neither a fast sender nor a slow reader
//! can fill the memory.

use agent_client_protocol::{
    Channel, Error, ErrorCode, RawJsonRpcId, RawJsonRpcMessage, RawJsonRpcResponse, TransportFrame,
};
use futures::StreamExt;
use futures::channel::mpsc::{UnboundedReceiver, UnboundedSender};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader, BufWriter};
use tokio::sync::{Semaphore, mpsc};

/// Maximum length of a line in bytes.
pub const LINE_BYTES: usize = 32 << 20;

/// Number of updates that wait until they are written. A sender of further updates waits.
pub(crate) const WAITING_UPDATES: usize = 64;
/// Number of requests that may be unanswered at the same time.
const OPEN_REQUESTS: usize = 128;
/// Number of received messages that wait until they are handled.
const WAITING_MESSAGES: usize = 64;
/// Number of refusals that wait until they are written.
const WAITING_REFUSALS: usize = 16;
/// Time between two checks whether received messages were handled.
const CHECK_INTERVAL: Duration = Duration::from_millis(1);
/// Notifications that the host understands. Others are dropped.
const KNOWN_NOTIFICATIONS: [&str; 2] = ["session/cancel", "$/cancel_request"];
/// The notification with which the host sends updates.
const UPDATE: &str = "session/update";

/// What the two directions of a connection share.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    /// Permits to send updates.
    pub(crate) updates: Arc<Semaphore>,
    open_requests: Arc<AtomicUsize>,
}

impl Default for Flow {
    fn default() -> Self {
        Self { updates: Arc::new(Semaphore::new(WAITING_UPDATES)), open_requests: Arc::default() }
    }
}

/// The two directions of a connection.
pub(crate) struct Transport {
    pub(crate) reader: FrameReader,
    pub(crate) writer: FrameWriter,
    /// The end that the protocol's SDK uses.
    pub(crate) channel: Channel,
}

/// Converts lines to messages.
pub(crate) struct FrameReader {
    flow: Flow,
    messages: UnboundedSender<TransportFrame>,
    refusals: mpsc::Sender<TransportFrame>,
}

/// Converts messages to lines.
pub(crate) struct FrameWriter {
    flow: Flow,
    messages: UnboundedReceiver<TransportFrame>,
    refusals: mpsc::Receiver<TransportFrame>,
}

impl Transport {
    pub(crate) fn new(flow: &Flow) -> Self {
        let (own, channel) = Channel::duplex();
        let (received, sent) = own.into_parts();
        let (refuse, refusals) = mpsc::channel(WAITING_REFUSALS);
        let reader = FrameReader { flow: flow.clone(), messages: sent, refusals: refuse };
        let writer = FrameWriter { flow: flow.clone(), messages: received, refusals };
        Self { reader, writer, channel }
    }
}

impl FrameReader {
    /// Reads lines until the input ends.
    pub(crate) async fn run(self, input: impl AsyncRead + Unpin) -> std::io::Result<()> {
        let mut input = BufReader::with_capacity(64 << 10, input);
        loop {
            let frame = match read_line(&mut input).await? {
                Line::End => return Ok(()),
                Line::TooLong => malformed(ErrorCode::INVALID_REQUEST, "the line is longer than 32 MiB"),
                Line::Text(line) if line.is_empty() => continue,
                Line::Text(line) => parse(line).await,
            };
            if !self.accept(frame).await {
                return Ok(());
            }
        }
    }

    /// Forwards a message to the SDK. Returns `false` if the connection has ended.
    async fn accept(&self, frame: TransportFrame) -> bool {
        match &frame {
            TransportFrame::Single(RawJsonRpcMessage::Notification(notification))
                if !KNOWN_NOTIFICATIONS.contains(&&*notification.method) =>
            {
                return true;
            }
            TransportFrame::Single(RawJsonRpcMessage::Request(request)) if request.id != RawJsonRpcId::Null => {
                if self.flow.open_requests.load(Ordering::Relaxed) >= OPEN_REQUESTS {
                    let error = Error::new(
                        i32::from(ErrorCode::INTERNAL_ERROR),
                        "too many requests are open; wait for their answers",
                    );
                    let refusal = RawJsonRpcMessage::response(request.id.clone(), Err(error));
                    return self.refusals.send(TransportFrame::Single(refusal)).await.is_ok();
                }
                self.flow.open_requests.fetch_add(1, Ordering::Relaxed);
            }
            _ => {}
        }
        if self.messages.unbounded_send(frame).is_err() {
            return false;
        }
        while self.messages.len() >= WAITING_MESSAGES && !self.messages.is_closed() {
            tokio::time::sleep(CHECK_INTERVAL).await;
        }
        true
    }
}

impl FrameWriter {
    /// Writes messages until the connection ends, and flushes the output.
    pub(crate) async fn run(mut self, output: impl AsyncWrite + Unpin) -> std::io::Result<()> {
        let mut output = BufWriter::new(output);
        loop {
            let frame = tokio::select! {
                biased;
                frame = self.messages.next() => match frame {
                    Some(frame) => frame,
                    None => return output.flush().await,
                },
                Some(refusal) = self.refusals.recv() => {
                    write(&mut output, &refusal).await?;
                    continue;
                }
            };
            write(&mut output, &frame).await?;
            self.note_written(&frame);
        }
    }

    fn note_written(&self, frame: &TransportFrame) {
        match frame {
            TransportFrame::Single(RawJsonRpcMessage::Notification(notification))
                if &*notification.method == UPDATE =>
            {
                self.flow.updates.add_permits(1);
            }
            TransportFrame::Single(RawJsonRpcMessage::Response(
                RawJsonRpcResponse::Result { id, .. } | RawJsonRpcResponse::Error { id, .. },
            )) if *id != RawJsonRpcId::Null => {
                self.flow.open_requests.fetch_sub(1, Ordering::Relaxed);
            }
            _ => {}
        }
    }
}

async fn write(output: &mut BufWriter<impl AsyncWrite + Unpin>, frame: &TransportFrame) -> std::io::Result<()> {
    let mut line = frame.to_json().map_err(std::io::Error::other)?;
    line.push('\n');
    output.write_all(line.as_bytes()).await?;
    output.flush().await
}

/// A line of the input.
enum Line {
    Text(Vec<u8>),
    TooLong,
    End,
}

/// Reads a line without its line break. A line that is too long is read to its end, but not kept.
async fn read_line(input: &mut (impl AsyncBufRead + Unpin)) -> std::io::Result<Line> {
    let (mut line, mut is_too_long) = (Vec::new(), false);
    loop {
        let bytes = input.fill_buf().await?;
        if bytes.is_empty() {
            return Ok(match (is_too_long, line.is_empty()) {
                (true, _) => Line::TooLong,
                (false, true) => Line::End,
                (false, false) => Line::Text(line),
            });
        }
        let end = bytes.iter().position(|byte| *byte == b'\n');
        let piece = &bytes[..end.unwrap_or(bytes.len())];
        is_too_long |= line.len() + piece.len() > LINE_BYTES;
        if is_too_long {
            line = Vec::new();
        } else {
            line.extend_from_slice(piece);
        }
        let used = end.map_or(bytes.len(), |end| end + 1);
        input.consume(used);
        if end.is_some() {
            return Ok(if is_too_long { Line::TooLong } else { Line::Text(line) });
        }
    }
}

/// Parses a line on another thread, because parsing a long line takes a noticeable time.
async fn parse(line: Vec<u8>) -> TransportFrame {
    let parsed = tokio::task::spawn_blocking(move || {
        let Ok(text) = std::str::from_utf8(&line) else {
            return malformed(ErrorCode::PARSE_ERROR, "the line is not UTF-8 text");
        };
        if text.trim().is_empty() {
            return malformed(ErrorCode::INVALID_REQUEST, "the line is empty");
        }
        match TransportFrame::parse_json(text) {
            // The error of the SDK contains the whole line.
            TransportFrame::Malformed { error, .. } if error.code == ErrorCode::PARSE_ERROR => {
                malformed(ErrorCode::PARSE_ERROR, "the line is not JSON, or is nested more than 127 levels deep")
            }
            frame => frame,
        }
    });
    parsed.await.unwrap_or_else(|_| malformed(ErrorCode::PARSE_ERROR, "the line cannot be parsed"))
}

/// Returns a message that the SDK answers with this error.
fn malformed(code: ErrorCode, message: &str) -> TransportFrame {
    TransportFrame::Malformed { raw: String::new(), error: Error::new(i32::from(code), message) }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(input: &[u8]) -> Vec<Option<usize>> {
        let (mut input, mut lines) = (BufReader::with_capacity(1 << 16, input), Vec::new());
        loop {
            match read_line(&mut input).await.expect("memory can be read") {
                Line::Text(line) => lines.push(Some(line.len())),
                Line::TooLong => lines.push(None),
                Line::End => return lines,
            }
        }
    }

    /// I7: a line that is too long is skipped, and the next line is read.
    #[tokio::test]
    async fn i7_lines_are_bounded() {
        let mut input = vec![b'x'; LINE_BYTES];
        input.extend_from_slice(b"\nshort\n");
        input.extend(vec![b'y'; LINE_BYTES + 1]);
        input.extend_from_slice(b"\nlast");
        assert_eq!(lines(&input).await, [Some(LINE_BYTES), Some(5), None, Some(4)]);
        assert_eq!(lines(b"").await, []);
    }

    /// I7, row 26: input that is not a message is answered with an error that does not repeat the input.
    #[tokio::test]
    async fn i7_row_26_invalid_lines_become_errors() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let cases: [(&[u8], ErrorCode); 4] = [
            (b"{", ErrorCode::PARSE_ERROR),
            (b"\xff\xfe", ErrorCode::PARSE_ERROR),
            (deep.as_bytes(), ErrorCode::PARSE_ERROR),
            (b"[]", ErrorCode::INVALID_REQUEST),
        ];
        for (line, code) in cases {
            let TransportFrame::Malformed { error, .. } = parse(line.to_vec()).await else { panic!("{line:?}") };
            assert_eq!(error.code, code);
            assert!(error.to_string().len() < 300, "{error}");
        }
    }
}
