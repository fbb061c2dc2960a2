//! Embedding vectors of tools (L25).

use agent_core::message::Digest;
use agent_core::model::OfferedTool;
use agent_models::Embedder;
use agent_store::{Bucket, Store, StoreError, digest_of};
use std::sync::Arc;

/// The embedding vectors of an agent's tools, in the order of the registry. The tools of an [`Agent`](crate::Agent)
/// never change, so each tool is embedded at most once. The store keeps the vectors for later agents.
#[derive(Default)]
pub(crate) struct ToolVectors(tokio::sync::OnceCell<Vec<Vec<f32>>>);

impl ToolVectors {
    /// Returns the embedding vectors of the given tools. The first call reads the vectors from the store or
    /// computes them.
    pub(crate) async fn get(
        &self,
        store: &Arc<dyn Store>,
        embedder: &Embedder,
        tools: &[OfferedTool],
    ) -> Result<&Vec<Vec<f32>>, String> {
        self.0.get_or_try_init(|| load_vectors(store.clone(), embedder, tools)).await
    }
}

/// Reads the vectors from the store. The key of a vector is the digest of the model's name and the tool's text. The
/// embedding model computes the missing vectors.
async fn load_vectors(
    store: Arc<dyn Store>,
    embedder: &Embedder,
    tools: &[OfferedTool],
) -> Result<Vec<Vec<f32>>, String> {
    let model = embedder.model();
    let texts: Vec<String> = tools.iter().map(|tool| format!("{}: {}", tool.author_name, tool.description)).collect();
    let keys: Vec<Digest> = texts.iter().map(|text| digest_of(format!("{model}\n{text}").as_bytes())).collect();
    let mut vectors = Vec::with_capacity(tools.len());
    for key in &keys {
        vectors.push(load_vector(&*store, key).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "could not read a tool's embedding from the store");
            None
        }));
    }
    let missing: Vec<usize> = (0..tools.len()).filter(|index| vectors[*index].is_none()).collect();
    let missing_texts: Vec<String> = missing.iter().map(|index| texts[*index].clone()).collect();
    let computed = embedder.embed(&missing_texts).await.map_err(|error| error.to_string())?;
    for (index, vector) in missing.into_iter().zip(computed) {
        let bytes = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
        // If the store fails, the next agent that needs the vector computes it again.
        if let Err(error) = store.set(&bucket(), keys[index].as_str(), bytes).await {
            tracing::warn!(%error, "could not store a tool's embedding");
        }
        vectors[index] = Some(vector);
    }
    Ok(vectors.into_iter().map(Option::unwrap_or_default).collect())
}

async fn load_vector(store: &dyn Store, key: &Digest) -> Result<Option<Vec<f32>>, StoreError> {
    let bytes = store.get(&bucket(), key.as_str()).await?;
    let numbers = |bytes: Vec<u8>| {
        let (numbers, rest) = bytes.as_chunks::<4>();
        (rest.is_empty() && !numbers.is_empty())
            .then(|| numbers.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect())
    };
    Ok(bytes.and_then(numbers))
}

/// Returns the key-value bucket in which the host stores the vectors. The bucket differs from the bucket of every
/// plugin, because no agent and no plugin has an empty name.
fn bucket() -> Bucket {
    Bucket { agent: String::new(), plugin: String::new(), name: "tool-embeddings".to_owned(), quota: u64::MAX }
}
