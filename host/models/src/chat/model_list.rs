//! The models that a server lists, and which of them somebody may have meant.

use reqwest::Client;
use reqwest::header::HeaderMap;
use serde::Deserialize;
use std::collections::HashMap;
use std::time::Duration;
use url::Url;

/// Most bytes of a list.
const LIMIT: usize = 4 * 1024 * 1024;

/// Names of a list that are kept.
const MOST: usize = 2_000;

/// Longest name that is kept.
const LONGEST: usize = 200;

/// How many names are suggested.
const SUGGESTED: usize = 3;

/// Less alike than this, a name is no suggestion.
const LEAST_ALIKE: f32 = 0.3;

#[derive(Deserialize)]
struct List {
    data: Vec<Listed>,
}

#[derive(Deserialize)]
struct Listed {
    id: String,
}

/// Names in the server's order, without those that are no names (see [`is_name`]). None where it gives no list in time.
pub(crate) async fn ask(client: &Client, url: Url, headers: HeaderMap, time: Duration) -> Option<Vec<String>> {
    let ask = async {
        let mut response = client.get(url).headers(headers).send().await.ok()?;
        if !response.status().is_success() {
            return None;
        }
        let mut body = Vec::new();
        while let Some(bytes) = response.chunk().await.ok()? {
            body.extend_from_slice(&bytes);
            if body.len() > LIMIT {
                return None;
            }
        }
        let list: List = serde_json::from_slice(&body).ok()?;
        let listed = list.data.len();
        let names: Vec<_> = list.data.into_iter().map(|listed| listed.id).filter(|id| is_name(id)).take(MOST).collect();
        if names.len() < listed {
            tracing::warn!(
                "{} of the models that a server lists are left out: at most {MOST} names of up to {LONGEST} printable ASCII characters are read",
                listed - names.len()
            );
        }
        Some(names)
    };
    tokio::time::timeout(time, ask).await.ok().flatten()
}

/// Whether a server's word can be a model's name. Names are printed, written into files and sent back, so what could break a line,
/// hide something or reorder the text around it is none.
fn is_name(id: &str) -> bool {
    (1..=LONGEST).contains(&id.len()) && id.bytes().all(|byte| matches!(byte, b' '..=b'~')) && id.trim() == id
}

/// The names most like this one, the likest first.
pub(super) fn nearest(wanted: &str, names: &[String]) -> Vec<String> {
    let wanted = pairs(wanted);
    let mut scored: Vec<(f32, &String)> = names.iter().map(|name| (alike(&wanted, &pairs(name)), name)).collect();
    scored.retain(|(score, _)| *score >= LEAST_ALIKE);
    scored.sort_by(|(left, left_name), (right, right_name)| right.total_cmp(left).then(left_name.cmp(right_name)));
    scored.into_iter().take(SUGGESTED).map(|(_, name)| name.chars().take(100).collect()).collect()
}

/// How often each pair of neighbouring characters occurs.
fn pairs(name: &str) -> HashMap<(char, char), usize> {
    let characters: Vec<char> = name.chars().take(200).flat_map(char::to_lowercase).collect();
    let mut pairs = HashMap::new();
    for pair in characters.windows(2) {
        *pairs.entry((pair[0], pair[1])).or_default() += 1;
    }
    pairs
}

/// Dice's coefficient: 1 for the same pairs, 0 for none in common.
fn alike(left: &HashMap<(char, char), usize>, right: &HashMap<(char, char), usize>) -> f32 {
    let both: usize = left.iter().map(|(pair, count)| right.get(pair).copied().unwrap_or_default().min(*count)).sum();
    let all: usize = left.values().sum::<usize>() + right.values().sum::<usize>();
    if all == 0 { 0.0 } else { 2.0 * both as f32 / all as f32 }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Row 49: names of models that a server lists.
    #[test]
    fn only_names_are_names() {
        for name in ["qwen3:8b", "/home/ann/My Models/x.gguf", "Qwen/Qwen3-8B@q4_k_m", &"x".repeat(200)] {
            assert!(is_name(name), "{name}");
        }
        let long = "x".repeat(201);
        for none in
            ["", " a", "a ", "a\nb", "a\rb", "a\u{1b}[2J", "a\u{200b}", "a\u{202e}b", "p\u{430}y", long.as_str()]
        {
            assert!(!is_name(none), "{}", none.escape_unicode());
        }
    }

    /// M5
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
