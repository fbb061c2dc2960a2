//! Requests a server's list of models, and finds the names in this list that are similar to an unknown name.

use reqwest::Client;
use reqwest::header::HeaderMap;
use serde::Deserialize;
use std::collections::HashMap;
use std::time::Duration;
use url::Url;

/// Maximum size of the response that contains the list, in bytes.
const MAX_BYTES: usize = 4 * 1024 * 1024;

/// Maximum number of names that are read from the list.
const MAX_NAMES: usize = 2_000;

/// Maximum length of a model name in bytes.
const MAX_NAME_BYTES: usize = 200;

/// Maximum number of similar names that are suggested for an unknown name.
const MAX_SUGGESTIONS: usize = 3;

/// Minimum [`similarity`] between an unknown name and a name that is suggested for it.
const MIN_SIMILARITY: f32 = 0.3;

/// A list of models. Gemini uses other field names than the other APIs.
#[derive(Deserialize)]
struct ModelList {
    #[serde(alias = "models")]
    data: Vec<ListedModel>,
}

#[derive(Deserialize)]
struct ListedModel {
    id: Option<String>,
    /// Name of the model, if the model has no `id`. In Gemini's list, the name begins with `models/`.
    name: Option<String>,
}

impl ListedModel {
    fn into_name(self) -> Option<String> {
        let name = || Some(self.name?.trim_start_matches("models/").to_owned());
        self.id.or_else(name)
    }
}

/// Requests the list of models and returns the valid names (see [`is_name`]) in the server's order. Returns `None` if
/// no list arrives within `timeout`.
pub(crate) async fn fetch(client: &Client, url: Url, headers: HeaderMap, timeout: Duration) -> Option<Vec<String>> {
    let request = async {
        let mut response = client.get(url).headers(headers).send().await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        let mut body = Vec::new();
        while let Some(bytes) = response.chunk().await.ok()? {
            body.extend_from_slice(&bytes);
            if body.len() > MAX_BYTES {
                return None;
            }
        }
        let list: ModelList = serde_json::from_slice(&body).ok()?;
        let listed_count = list.data.len();
        let names: Vec<_> =
            list.data.into_iter().filter_map(ListedModel::into_name).filter(|id| is_name(id)).take(MAX_NAMES).collect();
        if names.len() < listed_count {
            tracing::warn!(
                "left out {} of the models that a server lists: at most {MAX_NAMES} names of up to {MAX_NAME_BYTES} printable ASCII characters are read",
                listed_count - names.len()
            );
        }
        Some(names)
    };
    tokio::time::timeout(timeout, request).await.ok().flatten()
}

/// Returns whether the text is accepted as the name of a model. Names are printed, written into files and sent back to
/// the server, so they must not contain characters that break a line, hide text or change the order of text.
fn is_name(id: &str) -> bool {
    (1..=MAX_NAME_BYTES).contains(&id.len()) && id.bytes().all(|byte| matches!(byte, b' '..=b'~')) && id.trim() == id
}

/// Returns at most [`MAX_SUGGESTIONS`] names that are similar to `wanted`, the most similar name first.
pub(super) fn nearest(wanted: &str, names: &[String]) -> Vec<String> {
    let wanted = pairs(wanted);
    let mut scored: Vec<(f32, &String)> = names.iter().map(|name| (similarity(&wanted, &pairs(name)), name)).collect();
    scored.retain(|(score, _)| *score >= MIN_SIMILARITY);
    scored.sort_by(|(left, left_name), (right, right_name)| right.total_cmp(left).then(left_name.cmp(right_name)));
    scored.into_iter().take(MAX_SUGGESTIONS).map(|(_, name)| name.chars().take(100).collect()).collect()
}

/// Counts how often each pair of adjacent characters occurs in the name, without regard to case.
fn pairs(name: &str) -> HashMap<(char, char), usize> {
    let characters: Vec<char> = name.chars().take(200).flat_map(char::to_lowercase).collect();
    let mut pairs = HashMap::new();
    for pair in characters.windows(2) {
        *pairs.entry((pair[0], pair[1])).or_default() += 1;
    }
    pairs
}

/// Returns Dice's coefficient of two names. For each name, the argument contains how often each pair of characters
/// occurs. The result is 1 if both names have the same pairs, and 0 if no pair occurs in both names.
fn similarity(left: &HashMap<(char, char), usize>, right: &HashMap<(char, char), usize>) -> f32 {
    let common: usize = left.iter().map(|(pair, count)| right.get(pair).copied().unwrap_or_default().min(*count)).sum();
    let total: usize = left.values().sum::<usize>() + right.values().sum::<usize>();
    if total == 0 { 0.0 } else { 2.0 * common as f32 / total as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Row 49: only names that are safe to print are read from a server's list.
    #[test]
    fn row49_only_printable_names_are_accepted() {
        for name in ["qwen3:8b", "/home/ann/My Models/x.gguf", "Qwen/Qwen3-8B@q4_k_m", &"x".repeat(200)] {
            assert!(is_name(name), "{name}");
        }
        let long = "x".repeat(201);
        for invalid in
            ["", " a", "a ", "a\nb", "a\rb", "a\u{1b}[2J", "a\u{200b}", "a\u{202e}b", "p\u{430}y", long.as_str()]
        {
            assert!(!is_name(invalid), "{}", invalid.escape_unicode());
        }
    }

    #[test]
    fn m5_the_nearest_names_come_first() {
        let names =
            ["gpt-4o", "gpt-4o-mini", "gpt-4.1", "o3", "text-embedding-3-small", "llama3.2:1b"].map(str::to_owned);
        assert_eq!(nearest("gpt-4o-mimi", &names), ["gpt-4o-mini", "gpt-4o", "gpt-4.1"]);
        assert_eq!(nearest("llama3.2", &names), ["llama3.2:1b"]);
        assert_eq!(nearest("GPT-4O", &names)[0], "gpt-4o");
        assert_eq!(nearest("zzz", &names), Vec::<String>::new());
        assert_eq!(nearest("", &names), Vec::<String>::new());
    }
}
