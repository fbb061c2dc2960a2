//! One request and its answer, with every wait bounded.

use super::connection::{Connection, shown};
use super::failure;
use super::redaction::Pieces;
use super::refused;
use crate::chat_stream::{ChatStream, Decoded, StreamError};
use crate::error::{Awaited, Endpoint, ModelError, Refusal, Said};
use agent_core::model::Delta;
use agent_core::visible::visible_name;
use reqwest::header::{CONTENT_ENCODING, CONTENT_TYPE, LOCATION};
use reqwest::{Response, StatusCode};
use std::future::Future;
use tokio::sync::mpsc::Sender;
use url::Url;

/// Most characters of an answer that a message quotes.
pub(super) const EXCERPT: usize = 200;

/// What may stand before a text in UTF-8.
const BYTE_ORDER_MARK: [u8; 3] = [0xEF, 0xBB, 0xBF];

/// One exchange with one model.
pub(super) struct Exchange<'e> {
    pub(super) connection: &'e Connection,
    /// Its name as the provider knows it.
    pub(super) model: &'e str,
    pub(super) endpoint: Endpoint,
}

impl Exchange<'_> {
    /// Sends the request and reads the whole reply.
    pub(super) async fn reply(&self, body: Vec<u8>, deltas: &Sender<Delta>) -> Result<Decoded, ModelError> {
        let limit = self.connection.config.timeouts.total;
        let overdue = |_| ModelError::Overdue { endpoint: self.endpoint.clone(), limit };
        tokio::time::timeout(limit, self.ask(body, deltas)).await.map_err(overdue)?
    }

    async fn ask(&self, body: Vec<u8>, deltas: &Sender<Delta>) -> Result<Decoded, ModelError> {
        let response = self.send("chat/completions", body).await?;
        self.read(response, deltas).await
    }

    /// Sends a request and gives the whole body of the answer, of at most so many bytes.
    pub(super) async fn whole(&self, path: &str, body: Vec<u8>, most: usize) -> Result<Vec<u8>, ModelError> {
        let ask = async {
            let mut response = self.send(path, body).await?;
            let mut whole = Vec::new();
            while let Some(bytes) = self.piece(&mut response).await? {
                whole.extend_from_slice(&bytes);
                if whole.len() > most {
                    return Err(self.invalid(format!("it has more than {most} bytes")));
                }
            }
            Ok(whole)
        };
        let limit = self.connection.config.timeouts.total;
        let overdue = |_| ModelError::Overdue { endpoint: self.endpoint.clone(), limit };
        tokio::time::timeout(limit, ask).await.map_err(overdue)?
    }

    /// Sends a request; what the server does not answer well is an error.
    async fn send(&self, path: &str, body: Vec<u8>) -> Result<Response, ModelError> {
        let Connection { client, headers, .. } = self.connection;
        let request = client.post(self.connection.url(path)).headers(headers.clone()).body(body);
        let response = self.within_stall(Awaited::Beginning, request.send()).await?;
        let response = response.map_err(|error| failure::of_request(&self.endpoint, &error))?;
        let status = response.status();
        if status.is_redirection() {
            return Err(self.redirected(&response));
        }
        if !status.is_success() {
            return Err(refused::read(self, response).await);
        }
        self.check_encoding(&response)?;
        Ok(response)
    }

    /// Reads the body as what it is, whatever was asked for, and passes on what is said as it comes.
    async fn read(&self, mut response: Response, deltas: &Sender<Delta>) -> Result<Decoded, ModelError> {
        let declared = content_type(&response);
        let first = loop {
            let Some(bytes) = self.piece(&mut response).await? else {
                return Err(self.broken("it ended before it began"));
            };
            // Some servers send blank lines while they wait, or begin with a byte-order mark.
            let start = bytes.iter().position(|byte| !byte.is_ascii_whitespace() && !BYTE_ORDER_MARK.contains(byte));
            if let Some(start) = start {
                break bytes.slice(start..);
            }
        };
        if is_foreign(first[0], &declared) {
            return Err(self.foreign(response.status(), &declared, &first));
        }
        let mut decoder = ChatStream::new(self.connection.provider(), &self.endpoint.model);
        let mut decoded = Vec::new();
        let mut pieces = Pieces::new(&self.connection.redaction);
        let refused = |error| self.stream_error(error);
        decoder.push(&first, &mut decoded).map_err(refused)?;
        loop {
            send(pieces.take(&mut decoded), deltas).await;
            if decoder.is_done() {
                break;
            }
            let Some(bytes) = self.piece(&mut response).await? else { break };
            decoder.push(&bytes, &mut decoded).map_err(refused)?;
        }
        let reply = decoder.finish(&mut decoded).map_err(refused)?;
        send(pieces.take(&mut decoded), deltas).await;
        send(pieces.rest(), deltas).await;
        Ok(reply)
    }

    /// The next piece of the body; none at its end.
    pub(super) async fn piece(&self, response: &mut Response) -> Result<Option<bytes::Bytes>, ModelError> {
        let piece = self.within_stall(Awaited::NextPiece, response.chunk()).await?;
        piece.map_err(|error| failure::of_reply(self.endpoint.clone(), &error))
    }

    async fn within_stall<Made>(&self, awaited: Awaited, made: impl Future<Output = Made>) -> Result<Made, ModelError> {
        let limit = self.connection.config.timeouts.stall;
        let stalled = |_| ModelError::Stalled { endpoint: self.endpoint.clone(), awaited, limit };
        tokio::time::timeout(limit, made).await.map_err(stalled)
    }

    fn check_encoding(&self, response: &Response) -> Result<(), ModelError> {
        let encoding = response.headers().get(CONTENT_ENCODING).map(|value| String::from_utf8_lossy(value.as_bytes()));
        match encoding {
            Some(encoding) if !encoding.trim().is_empty() && !encoding.trim().eq_ignore_ascii_case("identity") => {
                let encoding = self.excerpt(encoding.as_bytes());
                Err(self.invalid(format!("it is encoded as `{encoding}`, which was not asked for")))
            }
            _ => Ok(()),
        }
    }

    fn redirected(&self, response: &Response) -> ModelError {
        let location =
            response.headers().get(LOCATION).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
        let to = location.and_then(|location| response.url().join(&location).ok());
        let to = to.as_ref().map_or_else(|| "nowhere".to_owned(), |to: &Url| shown(to));
        let to = self.excerpt(to.as_bytes());
        ModelError::Redirected { endpoint: self.endpoint.clone(), status: response.status().as_u16(), to }
    }

    /// An answer that is none of a model's server.
    pub(super) fn foreign(&self, status: StatusCode, declared: &str, body: &[u8]) -> ModelError {
        let content =
            if declared.is_empty() { "no content type".to_owned() } else { self.excerpt(declared.as_bytes()) };
        let (endpoint, status, excerpt) = (self.endpoint.clone(), status.as_u16(), self.excerpt(body));
        ModelError::NotAModel { endpoint, status, content, excerpt }
    }

    /// The beginning of what a server sent, on one line, without secrets and control characters.
    pub(super) fn excerpt(&self, bytes: &[u8]) -> String {
        // Secrets are looked for before anything is cut off: half a key is still half a key.
        let text = self.connection.redaction.text(String::from_utf8_lossy(bytes).into_owned());
        let words = text.split(|character: char| character.is_whitespace() || character.is_control());
        let line = words.filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ");
        visible_name(&line, EXCERPT)
    }

    fn stream_error(&self, error: StreamError) -> ModelError {
        match error {
            StreamError::Provider { status, code, message } => {
                let (code, message) = (code.map(|code| self.excerpt(code.as_bytes())), refused::quoted(self, &message));
                let refusal = Refusal::new(self.endpoint.clone(), Said::InReply(status), code, message);
                ModelError::Refused(Box::new(refused::with_advice(self.connection, refusal)))
            }
            StreamError::Cut => self.broken(&error.to_string()),
            StreamError::Invalid { problem, excerpt } => {
                let problem = format!("{problem}: `{}`", self.excerpt(excerpt.as_bytes()));
                ModelError::Garbled { endpoint: self.endpoint.clone(), problem }
            }
            StreamError::TooLarge { .. } | StreamError::TooMany { .. } => self.invalid(error.to_string()),
        }
    }

    fn broken(&self, message: &str) -> ModelError {
        ModelError::Broken { endpoint: self.endpoint.clone(), message: message.to_owned() }
    }

    pub(super) fn invalid(&self, problem: String) -> ModelError {
        ModelError::InvalidReply { endpoint: self.endpoint.clone(), problem }
    }
}

/// The declared type, without parameters, in lower case.
pub(super) fn content_type(response: &Response) -> String {
    let value =
        response.headers().get(CONTENT_TYPE).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned());
    let value = value.unwrap_or_default();
    value.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// Whether this is no model's reply, as its first character shows. Declared types are often wrong; which of an event stream
/// and a document it is, the decoder sees.
fn is_foreign(first: u8, declared: &str) -> bool {
    match first {
        b'{' | b'[' => false,
        b'<' => true,
        _ if declared == "text/html" => true,
        // `data`, `event`, `id`, `retry`, `error`, and comments.
        b'd' | b'e' | b'i' | b'r' | b':' => false,
        _ => declared != "text/event-stream",
    }
}

/// Waits for a slow listener, and forgets one that is gone.
async fn send(pieces: Vec<Delta>, deltas: &Sender<Delta>) {
    for delta in pieces {
        let _ = deltas.send(delta).await;
    }
}
