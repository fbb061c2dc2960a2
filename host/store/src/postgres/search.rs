//! Full-text search. The distinct words of each text are stored in an array with an index, and the best matches are found
//! by their BM25 rank.
//!
//! Words are written in lower case and without accents, as in the index of SQLite.

use super::connections::{Connection, Transaction};
use super::failure::Failure;
use super::queries::{CALL_OF_MESSAGE, MESSAGE_COLUMNS, message, number, value};
use super::text::{Text, list, optional, text};
use crate::encoding::search::{self, MAX_HITS, excerpt, searchable_text};
use crate::encoding::values::signed;
use crate::{MessageHit, SearchedSessions, Unowned};
use futures::future::try_join_all;
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};
use tokio_postgres::types::ToSql;
use unicode_normalization::UnicodeNormalization;

/// Maximum number of characters of a stored word. A longer word is stored as its digest, because an index has a limit.
const MAX_WORD_CHARACTERS: usize = 64;

/// Maximum number of distinct words of a text that can be found.
const MAX_DISTINCT_WORDS: usize = 100_000;

/// Maximum number of texts that are ranked. If more texts match, the newest are ranked.
const MAX_CANDIDATES: i64 = 10_000;

/// How often each word occurs in a text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct WordCounts {
    pub(super) words: Vec<String>,
    pub(super) counts: Vec<i32>,
    /// Number of words of the text.
    pub(super) length: i64,
}

impl WordCounts {
    pub(super) fn of(text: &str) -> Self {
        let (mut counts, mut length) = (BTreeMap::<String, i32>::new(), 0);
        for word in text.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty()) {
            for word in normalised(word) {
                length += 1;
                if counts.len() < MAX_DISTINCT_WORDS || counts.contains_key(&word) {
                    let count = counts.entry(word).or_default();
                    *count = count.saturating_add(1);
                }
            }
        }
        let (words, counts) = counts.into_iter().unzip();
        Self { words, counts, length }
    }
}

/// Returns the form of a word in the index: lower case and without accents. A word may become several words.
fn normalised(word: &str) -> Vec<String> {
    let is_accent = |character: &char| ('\u{300}'..='\u{36f}').contains(character);
    let plain: String = word.nfd().filter(|character| !is_accent(character)).flat_map(char::to_lowercase).collect();
    let words = plain.split(|character: char| !character.is_alphanumeric()).filter(|word| !word.is_empty());
    words.map(shortened).collect()
}

fn shortened(word: &str) -> String {
    if word.chars().nth(MAX_WORD_CHARACTERS).is_none() {
        return word.to_owned();
    }
    hex::encode(Sha256::digest(word))
}

/// The words of a query in the form in which they are stored.
pub(super) fn query_words(query: &str) -> Vec<String> {
    let mut words: Vec<String> = Vec::new();
    for word in search::words(query).into_iter().flat_map(normalised) {
        if !words.contains(&word) {
            words.push(word);
        }
    }
    words
}

/// A text that matches a query: its key, its length, and how often it contains each word of the query.
pub(super) struct Candidate<K> {
    pub(super) key: K,
    pub(super) length: i64,
    pub(super) counts: Vec<i32>,
}

/// SQL expression for the number of occurrences of each word of the parameter `$1` in a row with `words` and `counts`.
pub(super) const COUNTS_OF_QUERY: &str = "ARRAY(SELECT coalesce(w.counts[array_position(w.words, asked.word)], 0)
           FROM unnest($1::text[]) WITH ORDINALITY AS asked (word, position) ORDER BY asked.position)";

/// Returns the best candidates with their scores, best first. Candidates with equal scores keep their order.
pub(super) fn best<K>(candidates: Vec<Candidate<K>>, limit: usize) -> Vec<(K, f32)> {
    // The parameters that most programs use for BM25, and SQLite too.
    let (saturation, length_weight) = (1.2, 0.75);
    let total = candidates.len() as f64;
    let average = candidates.iter().map(|candidate| candidate.length as f64).sum::<f64>() / total.max(1.0);
    let words = candidates.first().map_or(0, |candidate| candidate.counts.len());
    let weights: Vec<f64> = (0..words)
        .map(|word| {
            let containing = candidates.iter().filter(|candidate| candidate.counts.get(word) > Some(&0)).count() as f64;
            (1.0 + (total - containing + 0.5) / (containing + 0.5)).ln()
        })
        .collect();
    let rank = |candidate: &Candidate<K>| {
        let relative_length = candidate.length as f64 / average.max(1.0);
        let damping = saturation * (1.0 - length_weight + length_weight * relative_length);
        let word = |(count, weight): (&i32, &f64)| {
            let count = f64::from(*count);
            weight * count * (saturation + 1.0) / (count + damping)
        };
        candidate.counts.iter().zip(&weights).map(word).sum::<f64>()
    };
    let mut ranked: Vec<(K, f64)> = candidates
        .into_iter()
        .map(|candidate| (rank(&candidate), candidate.key))
        .map(|(rank, key)| (key, rank))
        .collect();
    ranked.sort_by(|(_, left), (_, right)| right.total_cmp(left));
    ranked.truncate(limit);
    ranked.into_iter().map(|(key, rank)| (key, search::score(-rank))).collect()
}

/// Stores the words of messages. Existing words of the same messages are replaced.
pub(super) async fn insert_message_words(
    transaction: &Transaction,
    session: &str,
    messages: &[(u64, WordCounts)],
) -> Result<(), Failure> {
    // An array of arrays must be rectangular, so each message is a statement of its own.
    let written = messages.iter().map(async |(id, WordCounts { words, counts, length })| {
        let id = signed(*id);
        let parameters: [&(dyn ToSql + Sync); 5] = [&Text(session), &id, length, words, counts];
        transaction.execute(INSERT_WORDS, &parameters).await
    });
    try_join_all(written).await.map(drop)
}

pub(super) const INSERT_WORDS: &str = "
    INSERT INTO message_words (session, id, length, words, counts) VALUES ($1, $2, $3, $4, $5)
    ON CONFLICT (session, id) DO UPDATE SET length = excluded.length, words = excluded.words, counts = excluded.counts";

/// Which messages are searched.
#[derive(Clone, Copy)]
pub(super) enum Searched<'s> {
    /// The messages of these sessions that contain every word.
    Sessions(&'s SearchedSessions),
    /// The messages that were evicted from the view of this session, and that contain at least one of the words.
    EvictedOf(&'s str),
}

/// Searches messages, best match first.
pub(super) async fn messages(
    connection: &Connection,
    searched: Searched<'_>,
    query: &str,
    limit: usize,
) -> Result<Vec<MessageHit>, Failure> {
    let words = query_words(query);
    if words.is_empty() {
        return Ok(Vec::new());
    }
    let (condition, name, agents, shown) = match searched {
        Searched::Sessions(SearchedSessions { agents, user, unowned }) => (
            "w.words @> $1 AND ($4::text[] IS NULL OR s.agent = ANY($4))
             AND ($3::text IS NULL OR s.user_name = $3 OR ($5::boolean AND s.user_name IS NULL))",
            optional(user.as_deref()),
            agents.as_deref().map(list),
            *unowned == Unowned::Shown,
        ),
        Searched::EvictedOf(session) => (
            "w.words && $1 AND w.session = $3 AND $4::text[] IS NULL AND NOT $5::boolean AND EXISTS
             (SELECT 1 FROM hidden h WHERE h.session = w.session AND h.id = w.id AND h.why = 'evicted')",
            optional(Some(session)),
            None,
            false,
        ),
    };
    let sql = format!(
        "SELECT w.session, w.id, w.length, {COUNTS_OF_QUERY} FROM message_words w
         JOIN sessions s ON s.session = w.session
         WHERE {condition} AND s.state <> 'incomplete' ORDER BY s.place DESC, w.id DESC LIMIT $2"
    );
    let rows = connection.query(&sql, &[&words, &MAX_CANDIDATES, &name, &agents, &shown]).await?;
    let candidates = rows.iter().map(|row| {
        let (length, counts) = (value(row, 2)?, value(row, 3)?);
        Ok(Candidate { key: (text(row, 0)?, number(row, 1)?), length, counts })
    });
    let candidates = candidates.collect::<Result<Vec<_>, Failure>>()?;
    hits(connection, best(candidates, limit.min(MAX_HITS)), &search::words(query)).await
}

/// Reads the messages that were found.
async fn hits(
    connection: &Connection,
    found: Vec<((String, u64), f32)>,
    words: &[&str],
) -> Result<Vec<MessageHit>, Failure> {
    let sql = format!(
        "SELECT {MESSAGE_COLUMNS}, m.session FROM messages m {CALL_OF_MESSAGE}
         JOIN unnest($1::text[], $2::bigint[]) AS found (session, id) ON found.session = m.session AND found.id = m.id"
    );
    let sessions: Vec<Text<'_>> = found.iter().map(|((session, _), _)| Text(session)).collect();
    let ids: Vec<i64> = found.iter().map(|((_, id), _)| signed(*id)).collect();
    let rows = connection.query(&sql, &[&sessions, &ids]).await?;
    let read = rows.iter().map(|row| {
        let message = message(row, 0)?;
        Ok(((text(row, 8)?, message.id), message))
    });
    let mut messages = read.collect::<Result<HashMap<_, _>, Failure>>()?;
    let hits = found.into_iter().filter_map(|(key, score)| {
        // A message may have been deleted in the meantime.
        let message = messages.remove(&key)?;
        let excerpt = excerpt(&searchable_text(&message), words);
        Some(MessageHit { session: key.0, id: message.id, turn: message.turn, role: message.role, excerpt, score })
    });
    Ok(hits.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_stored_without_case_and_accents() {
        let counts = WordCounts::of("Škoda, skoda\0ŠKODA: 2 Straße");
        assert_eq!(counts.words, ["2", "skoda", "straße"]);
        assert_eq!((counts.counts, counts.length), (vec![1, 3, 1], 5));
        assert_eq!(query_words("\"Skoda\" OR škoda*"), ["skoda", "or"]);
        let long = "x".repeat(10_000);
        assert_eq!(WordCounts::of(&long).words, query_words(&long));
        assert!(query_words(&long)[0].len() <= 64);
    }

    /// D4: a rare word has more weight than a common word, and a better match has a higher score.
    #[test]
    fn rare_words_have_more_weight() {
        let candidate = |key: &'static str, counts: [i32; 2]| Candidate { key, length: 5, counts: counts.to_vec() };
        let candidates = || {
            vec![
                candidate("common", [1, 0]),
                candidate("both", [1, 1]),
                candidate("rare", [0, 1]),
                candidate("again", [1, 0]),
            ]
        };
        let found = best(candidates(), 9);
        assert!(found.iter().map(|(key, _)| *key).eq(["both", "rare", "common", "again"]), "{found:?}");
        assert!(found.iter().all(|(_, score)| *score > 0.0 && *score <= 1.0), "{found:?}");
        assert_eq!(best(candidates(), 1).len(), 1);
        assert!(best(vec![candidate("only", [1, 1])], 9)[0].1 > 0.0);
    }
}
