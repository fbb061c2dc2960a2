//! Embeddings over the same servers: `POST {base}/embeddings` (L25).

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

/// Texts of one request.
const BATCH: usize = 64;
/// Most bytes of an answer.
const LIMIT: usize = 32 * 1024 * 1024;
/// Most bytes of one text: embedding models have small windows, and servers refuse what is longer.
const TEXT_BYTES: usize = 8 * 1024;

/// A model that says what texts mean, as vectors.
pub struct Embedder {
    connection: Arc<Connection>,
    name: String,
    retry: RetryPolicy,
}

#[derive(Deserialize)]
struct Answer {
    data: Vec<Embedding>,
}

#[derive(Deserialize)]
struct Embedding {
    index: Option<usize>,
    embedding: Vec<f32>,
}

impl Embedder {
    /// The model of that name; nobody is asked whether it is there.
    pub(crate) fn new(connection: Arc<Connection>, name: &str) -> Self {
        Self { connection, name: name.to_owned(), retry: RetryPolicy::default() }
    }

    /// The same, asked again by another policy when it does not answer (M3).
    pub fn with_retry(self, retry: RetryPolicy) -> Self {
        Self { retry, ..self }
    }

    /// The host that it asks.
    pub fn host(&self) -> Option<String> {
        self.connection.base_url.host_str().map(str::to_owned)
    }

    /// What it is given that nobody else is to see.
    pub fn secrets(&self) -> &Redaction {
        &self.connection.redaction
    }

    /// `provider/model`.
    pub fn model(&self) -> String {
        format!("{}/{}", self.connection.provider(), self.name)
    }

    /// One vector a text, in their order, all of one length. Texts are cut at 8 KiB.
    pub async fn embed(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ModelError> {
        let mut vectors: Vec<Vec<f32>> = Vec::with_capacity(texts.len());
        for batch in texts.chunks(BATCH) {
            vectors.extend(self.until_answered(batch).await?);
        }
        let length = vectors.first().map_or(0, Vec::len);
        match vectors.iter().all(|vector| vector.len() == length && length > 0) {
            true => Ok(vectors),
            false => Err(self.invalid("its embeddings are empty, or of different lengths".to_owned())),
        }
    }

    async fn until_answered(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ModelError> {
        let begun = Instant::now();
        let mut attempt = 1;
        loop {
            let error = match self.batch(texts).await {
                Ok(vectors) => return Ok(vectors),
                Err(error) => error,
            };
            let Some(wait) = self.retry.wait(attempt, begun.elapsed(), &error) else { return Err(error) };
            tracing::debug!(model = self.model(), %error, attempt, "an embedding model is asked again");
            tokio::time::sleep(wait).await;
            attempt += 1;
        }
    }

    async fn batch(&self, texts: &[String]) -> Result<Vec<Vec<f32>>, ModelError> {
        let texts: Vec<&str> = texts.iter().map(|text| &text[..text.floor_char_boundary(TEXT_BYTES)]).collect();
        let body = json!({"model": self.name, "input": texts, "encoding_format": "float"});
        let body = serde_json::to_vec(&body).expect("texts serialise");
        let body = self.exchange().whole("embeddings", body, LIMIT).await?;
        let answer: Answer = serde_json::from_slice(&body)
            .map_err(|error| self.invalid(format!("it is no list of embeddings: {error}")))?;
        let mut vectors = vec![Vec::new(); texts.len()];
        let count = answer.data.len();
        for (place, Embedding { index, embedding }) in answer.data.into_iter().enumerate() {
            if let Some(vector) = vectors.get_mut(index.unwrap_or(place)) {
                *vector = embedding;
            }
        }
        match count == texts.len() && vectors.iter().all(|vector| !vector.is_empty()) {
            true => Ok(vectors),
            false => Err(self.invalid(format!("it has {count} embeddings for {} texts", texts.len()))),
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
