//! Sends a request and reads the response to it. A timeout limits each wait for the server.

use super::connection::{Connection, display_url};
use super::error_response;
use super::exchange::{Exchange, content_type};
use super::redaction::RedactedDeltas;
use super::transport_error;
use crate::decode::{DecodedReply, ReplyStream, StreamError};
use crate::error::{ErrorOrigin, ModelError, ProviderError, WaitingFor};
use crate::progress::CallProgress;
use agent_core::model::Delta;
use agent_core::tokens;
use reqwest::Response;
use reqwest::header::{CONTENT_ENCODING, LOCATION};
use std::time::{Duration, Instant};
use tokio::sync::mpsc::Sender;
use url::Url;

/// The byte-order mark of UTF-8, with which some servers begin a response.
const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// Maximum size of a response that is recorded, in bytes.
const MAX_TAPE_BYTES: usize = 64 * 1024 * 1024;

/// Maximum time to wait for the end of the body after the reply is complete.
const END_TIMEOUT: Duration = Duration::from_secs(2);

impl Exchange<'_> {
    /// Sends a request with the given body to the model, forwards the deltas, and returns the complete reply. Appends the
    /// bytes of the response to `tape`.
    pub(super) async fn reply(
        &self,
        body: Vec<u8>,
        (deltas, progress): (&Sender<Delta>, &CallProgress),
        tape: Option<&mut Vec<u8>>,
    ) -> Result<DecodedReply, ModelError> {
        let limit = self.connection.config.timeouts.total;
        let timed_out = |_| ModelError::TimedOut { endpoint: self.endpoint.clone(), limit };
        tokio::time::timeout(limit, self.send_and_read(body, (deltas, progress), tape)).await.map_err(timed_out)?
    }

    async fn send_and_read(
        &self,
        body: Vec<u8>,
        (deltas, progress): (&Sender<Delta>, &CallProgress),
        tape: Option<&mut Vec<u8>>,
    ) -> Result<DecodedReply, ModelError> {
        let response = self.send(self.connection.reply_url(self.model), body).await?;
        progress.begin();
        self.read(response, (deltas, progress), tape).await
    }

    /// Sends a request and returns the complete body of the response. Returns an error if this body has more than
    /// `max_bytes` bytes.
    pub(super) async fn whole_body(&self, path: &str, body: Vec<u8>, max_bytes: usize) -> Result<Vec<u8>, ModelError> {
        let request = async {
            let mut response = self.send(self.connection.url(path), body).await?;
            let mut response_body = Vec::new();
            while let Some(bytes) = self.next_chunk(&mut response).await? {
                response_body.extend_from_slice(&bytes);
                if response_body.len() > max_bytes {
                    return Err(self.invalid(format!("the response has more than {max_bytes} bytes")));
                }
            }
            Ok(response_body)
        };
        let limit = self.connection.config.timeouts.total;
        let timed_out = |_| ModelError::TimedOut { endpoint: self.endpoint.clone(), limit };
        tokio::time::timeout(limit, request).await.map_err(timed_out)?
    }

    /// Sends a request and returns the response as soon as its headers arrive. Returns an error if the status of the
    /// response is not a success.
    async fn send(&self, url: Url, body: Vec<u8>) -> Result<Response, ModelError> {
        let Connection { client, headers, .. } = self.connection;
        let request = client.post(url).headers(headers.clone()).body(body);
        let response = self.within_stall_timeout(WaitingFor::ResponseStart, request.send()).await?;
        let response = response.map_err(|error| transport_error::request_error(&self.endpoint, &error))?;
        let status = response.status();
        if status.is_redirection() {
            return Err(self.redirected(&response));
        }
        if !status.is_success() {
            return Err(error_response::read(self, response).await);
        }
        self.check_encoding(&response)?;
        Ok(response)
    }

    /// Decodes the body of the response and forwards the deltas as they arrive. The content of the body determines how
    /// the body is decoded, because the content type that the headers declare is often wrong.
    async fn read(
        &self,
        mut response: Response,
        (deltas, progress): (&Sender<Delta>, &CallProgress),
        mut tape: Option<&mut Vec<u8>>,
    ) -> Result<DecodedReply, ModelError> {
        let declared = content_type(&response);
        let first = loop {
            let Some(bytes) = self.next_chunk(&mut response).await? else {
                return Err(self.connection_lost("the response has no content"));
            };
            // Skip the blank lines that some servers send while they prepare the reply, and the byte-order mark at the
            // beginning of some replies.
            let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace() && !BYTE_ORDER_MARK.contains(byte));
            if let Some(start) = start {
                break bytes.slice(start..);
            }
        };
        if cannot_be_reply(first[0], &declared) {
            return Err(self.unexpected_response(response.status(), &declared, &first));
        }
        let mut decoder =
            ReplyStream::new(self.connection.config.protocol, self.connection.provider(), &self.endpoint.model);
        let mut decoded = Vec::new();
        let mut redacted = RedactedDeltas::new(&self.connection.redaction);
        let stream_error = |error| self.stream_error(error);
        let mut copy =
            |bytes: &[u8]| match &mut tape {
                Some(tape) if tape.len() + bytes.len() > MAX_TAPE_BYTES => Err(self
                    .invalid(format!("the response has more than {MAX_TAPE_BYTES} bytes, so it cannot be recorded"))),
                Some(tape) => {
                    tape.extend_from_slice(bytes);
                    Ok(())
                }
                None => Ok(()),
            };
        copy(&first)?;
        decoder.push(&first, &mut decoded).map_err(stream_error)?;
        let (mut complete_since, mut text_tokens) = (None, 0);
        loop {
            text_tokens += tokens_of(&decoded);
            // A tool call has no deltas, but each of its pieces is an event.
            progress.received(decoder.events().max(text_tokens));
            send_deltas(redacted.redact(&mut decoded), deltas).await;
            if decoder.is_done() {
                break;
            }
            complete_since = complete_since.or_else(|| decoder.is_complete().then(Instant::now));
            let Some(bytes) = self.chunk_of_reply(&mut response, complete_since).await? else { break };
            copy(&bytes)?;
            decoder.push(&bytes, &mut decoded).map_err(stream_error)?;
        }
        let reply = decoder.finish(&mut decoded).map_err(stream_error)?;
        send_deltas(redacted.redact(&mut decoded), deltas).await;
        send_deltas(redacted.finish(), deltas).await;
        Ok(reply)
    }

    /// Returns the next chunk of a reply, or `None` at the end. `complete_since` is the time at which the reply became
    /// complete. From then on, the reply also ends without an error if the connection stays open or breaks, because
    /// only data after the end of the reply can be missing.
    async fn chunk_of_reply(
        &self,
        response: &mut Response,
        complete_since: Option<Instant>,
    ) -> Result<Option<bytes::Bytes>, ModelError> {
        let Some(since) = complete_since else { return self.next_chunk(response).await };
        let remaining = END_TIMEOUT.saturating_sub(since.elapsed());
        let chunk = tokio::time::timeout(remaining, self.next_chunk(response)).await;
        Ok(chunk.ok().and_then(Result::ok).flatten())
    }

    fn check_encoding(&self, response: &Response) -> Result<(), ModelError> {
        let encoding = response.headers().get(CONTENT_ENCODING).map(|value| String::from_utf8_lossy(value.as_bytes()));
        match encoding {
            Some(encoding) if !encoding.trim().is_empty() && !encoding.trim().eq_ignore_ascii_case("identity") => {
                let encoding = self.excerpt(encoding.as_bytes());
                Err(self.invalid(format!("the response is encoded as `{encoding}`, which was not requested")))
            }
            _ => Ok(()),
        }
    }

    fn redirected(&self, response: &Response) -> ModelError {
        let location =
            response.headers().get(LOCATION).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let to = location.and_then(|location| response.url().join(&location).ok());
        let to = to.as_ref().map_or_else(|| "nowhere".to_owned(), |to: &Url| display_url(to));
        let to = self.excerpt(to.as_bytes());
        ModelError::Redirected { endpoint: self.endpoint.clone(), status: response.status().as_u16(), to }
    }

    fn stream_error(&self, error: StreamError) -> ModelError {
        match error {
            StreamError::Provider { status, code, message } => {
                let code = code.map(|code| self.excerpt(code.as_bytes()));
                let message = error_response::quote(self, &message);
                let error = ProviderError::new(self.endpoint.clone(), ErrorOrigin::InReply(status), code, message);
                ModelError::Provider(Box::new(error_response::with_advice(self.connection, error)))
            }
            StreamError::Truncated => self.connection_lost(&error.to_string()),
            StreamError::Invalid { problem, excerpt } => {
                let problem = format!("{problem}: `{}`", self.excerpt(excerpt.as_bytes()));
                ModelError::MalformedReply { endpoint: self.endpoint.clone(), problem }
            }
            StreamError::TooLarge { .. } | StreamError::TooMany { .. } => self.invalid(error.to_string()),
        }
    }
}

/// Returns whether the first byte of a response body shows that the body cannot be a model's reply. The declared
/// content type is considered only if the first byte is ambiguous, because the declared type is often wrong.
fn cannot_be_reply(first: u8, declared: &str) -> bool {
    match first {
        b'{' | b'[' => false,
        b'<' => true,
        _ if declared == "text/html" => true,
        // An event stream begins with one of the fields `data`, `event`, `id`, `retry` and `error`, or with a comment.
        b'd' | b'e' | b'i' | b'r' | b':' => false,
        _ => declared != "text/event-stream",
    }
}

/// Sends the deltas to the receiver. If the receiver is slow, this function waits. If the receiver was dropped, the
/// deltas are discarded without an error.
async fn send_deltas(pieces: Vec<Delta>, deltas: &Sender<Delta>) {
    for delta in pieces {
        let _ = deltas.send(delta).await;
    }
}

/// Estimates the tokens of pieces of a reply.
fn tokens_of(deltas: &[Delta]) -> u64 {
    let text = |delta: &Delta| match delta {
        Delta::Text(text) | Delta::Thinking(text) => u64::from(tokens::of_text(text)),
        _ => 0,
    };
    deltas.iter().map(text).sum()
}
