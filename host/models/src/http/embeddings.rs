//! Requests embeddings from a configured provider with `POST {base}/embeddings` (L25).

use super::connection::Connection;
use super::exchange::Exchange;
use crate::error::ModelError;
use crate::retry::RetryPolicy;
use agent_core::redaction::Redaction;
use serde::Deserialize;
use serde_json::json;
use std::fmt;
use std::sync::Arc;
use std::time::Instant;

/// Maximum number of texts in one request.
const MAX_BATCH_TEXTS: usize = 64;
/// Maximum size of a response in bytes.
const MAX_RESPONSE_BYTES: usize = 32 * 1024 * 1024;
/// Maximum size of one text in bytes. Longer texts are truncated, because embedding models have small windows and
/// servers reject texts that do not fit.
const MAX_TEXT_BYTES: usize = 8 * 1024;

/// A model that represents the meaning of texts as vectors.
pub struct Embedder {
    connection: Arc<Connection>,
    name: String,
    retry: RetryPolicy,
}

#[derive(Deserialize)]
struct Response {
    data: Vec<Embedding>,
}

#[derive(Deserialize)]
struct Embedding {
    index: Option<usize>,
    embedding: Vec<f32>,
}

impl Embedder {
    /// Creates the model with the default retry policy, without contacting the provider.
    pub(crate) fn new(connection: Arc<Connection>, name: &str) -> Self {
        Self { connection, name: name.to_owned(), retry: RetryPolicy::default() }
    }

    /// Replaces the default policy that decides whether and when a failed request is retried (M3).
    pub fn with_retry(self, retry: RetryPolicy) -> Self {
        Self { retry, ..self }
    }

    /// Returns the host name in the base URL of the server, if there is one.
    pub fn host(&self) -> Option<String> {
        self.connection.base_url.host_str().map(str::to_owned)
    }

    /// Returns a redaction that removes the secrets that are sent to the server.
    pub fn secrets(&self) -> &Redaction {
        &self.connection.redaction
    }

    /// Returns the name of the model as `provider/model`.
    pub fn model(&self) -> String {
        format!("{}/{}", self.connection.provider(), self.name)
    }

    /// Returns one vector for each text, in the order of the texts. All vectors have the same length. Texts of more
    /// than 8 KiB are truncated.
    ///
    /// # Errors
    ///
    /// Returns an error if a request fails and is not retried any more, or if a response is invalid.
    pub async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ModelError> {
        let mut vectors: Vec<Vec<f32>> = Vec::with_capacity(texts.len());
        for batch in texts.chunks(MAX_BATCH_TEXTS) {
            vectors.extend(self.embed_batch_with_retries(batch).await?);
        }
        let length = vectors.first().map_or(0, Vec::len);
        match vectors.iter().all(|vector| vector.len() == length && length > 0) {
            true => Ok(vectors),
            false => Err(self.invalid("some embeddings are empty or differ in length".to_owned())),
        }
    }

    async fn embed_batch_with_retries(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ModelError> {
        let started = Instant::now();
        let mut attempt = 1;
        loop {
            let error = match self.embed_batch(texts).await {
                Ok(vectors) => return Ok(vectors),
                Err(error) => error,
            };
            let Some(wait) = self.retry.wait(attempt, started.elapsed(), &error) else { return Err(error) };
            tracing::debug!(model = self.model(), %error, attempt, "retrying a request to an embedding model");
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    async fn embed_batch(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ModelError> {
        let texts: Vec<&str> = texts.iter().map(|text| &text[..text.floor_char_boundary(MAX_TEXT_BYTES)]).collect();
        let body = json!({"model": self.name, "input": texts, "encoding_format": "float"});
        let body = serde_json::to_vec(&body).expect("strings can always be serialised");
        let body = self.exchange().whole_body("embeddings", body, MAX_RESPONSE_BYTES).await?;
        let response: Response = serde_json::from_slice(&body)
            .map_err(|error| self.invalid(format!("the response is not a list of embeddings: {error}")))?;
        let mut vectors = vec![Vec::new(); texts.len()];
        let count = response.data.len();
        for (position, Embedding { index, embedding }) in response.data.into_iter().enumerate() {
            if let Some(vector) = vectors.get_mut(index.unwrap_or(position)) {
                *vector = embedding;
            }
        }
        match count == texts.len() && vectors.iter().all(|vector| !vector.is_empty()) {
            true => Ok(vectors),
            false => Err(self.invalid(format!("the response has {count} embeddings for {} texts", texts.len()))),
        }
    }

    fn exchange(&self) -> Exchange<'_> {
        let endpoint = self.connection.endpoint_at(&self.name, "embeddings");
        Exchange { connection: &self.connection, model: &self.name, endpoint }
    }

    fn invalid(&self, problem: String) -> ModelError {
        self.exchange().invalid(problem)
    }
}

impl fmt::Debug for Embedder {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_tuple("Embedder").field(&self.model()).finish()
    }
}
