//! Finds the documents nearest to a query by BM25 over names and descriptions. It is deterministic, and the only
//! language it knows is a short list of English function words. Used for the tool pre-filter (L25) and the offline
//! router (M4).

use std::collections::{BTreeMap, BTreeSet};

/// How quickly repetitions of a term lose weight. The usual value in the literature and in Lucene.
pub const K1: f32 = 1.2;

/// How strongly long documents are penalised, from 0 (not at all) to 1 (fully). Also Lucene's value.
pub const B: f32 = 0.75;

/// Weight of a term in the name compared with one in the text. A name says what a tool is for.
pub const NAME_WEIGHT: u32 = 3;

/// Function words, which do not distinguish texts. They are removed from texts but not from names or queries, so that
/// a tool with such a name can still be found.
pub const FUNCTION_WORDS: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "been", "by", "can", "do", "does", "for", "from", "has", "have", "how",
    "if", "in", "into", "is", "it", "its", "me", "my", "of", "on", "or", "our", "please", "that", "the", "their",
    "them", "then", "there", "these", "this", "to", "was", "were", "what", "when", "where", "which", "who", "why",
    "will", "with", "you", "your",
];

/// An index over documents with a name and a text. A document is identified by its index, from 0.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// For each term, the documents that contain it, in order, with its weighted frequency.
    postings: BTreeMap<String, Vec<(usize, u32)>>,
    /// Weighted number of terms of each document.
    lengths: Vec<u32>,
}

impl Index {
    /// Indexes `(name, text)` documents in order.
    pub fn new<Name: AsRef<str>, Text: AsRef<str>>(documents: impl IntoIterator<Item = (Name, Text)>) -> Self {
        let mut index = Self::default();
        for (name, text) in documents {
            index.add(name.as_ref(), text.as_ref());
        }
        index
    }

    /// Number of documents.
    pub fn len(&self) -> usize {
        self.lengths.len()
    }

    /// Whether the index has no documents.
    pub fn is_empty(&self) -> bool {
        self.lengths.is_empty()
    }

    /// Returns at most `count` documents that share a term with the query, nearest first, with their scores.
    /// Documents with equal scores keep their order. Scores are greater than 0 and only comparable within one query.
    pub fn nearest(&self, query: &str, count: usize) -> Vec<(usize, f32)> {
        let mut scores: BTreeMap<usize, f32> = BTreeMap::new();
        let average = self.average_length();
        for term in terms(query).into_iter().collect::<BTreeSet<_>>() {
            let Some(postings) = self.postings.get(&term) else { continue };
            let rarity = self.rarity(postings.len());
            for &(document, frequency) in postings {
                let frequency = frequency as f32;
                let length = self.lengths[document] as f32 / average;
                let saturated = frequency * (K1 + 1.0) / (frequency + K1 * (1.0 - B + B * length));
                *scores.entry(document).or_default() += rarity * saturated;
            }
        }
        let mut nearest: Vec<_> = scores.into_iter().collect();
        nearest.sort_by(|left, right| right.1.total_cmp(&left.1).then(left.0.cmp(&right.0)));
        nearest.truncate(count);
        nearest
    }

    fn add(&mut self, name: &str, text: &str) {
        let mut frequencies: BTreeMap<String, u32> = BTreeMap::new();
        for term in terms(name) {
            *frequencies.entry(term).or_default() += NAME_WEIGHT;
        }
        for term in terms(text) {
            if !FUNCTION_WORDS.contains(&term.as_str()) {
                *frequencies.entry(term).or_default() += 1;
            }
        }
        let document = self.lengths.len();
        self.lengths.push(frequencies.values().sum());
        for (term, frequency) in frequencies {
            self.postings.entry(term).or_default().push((document, frequency));
        }
    }

    /// Average document length. It is at least 1, so that documents without terms do not cause a division by zero.
    fn average_length(&self) -> f32 {
        let sum: u64 = self.lengths.iter().map(|&length| u64::from(length)).sum();
        (sum as f32 / self.lengths.len().max(1) as f32).max(1.0)
    }

    /// The inverse document frequency, in the form that is never negative.
    fn rarity(&self, having: usize) -> f32 {
        let (all, having) = (self.lengths.len() as f32, having as f32);
        (1.0 + (all - having + 0.5) / (having + 0.5)).ln()
    }
}

/// The terms of a text in order, in lower case and with English plurals folded. The text is split at camelCase and at
/// every character that is not a letter or digit.
pub fn terms(text: &str) -> Vec<String> {
    text.split(|character: char| !character.is_alphanumeric())
        .flat_map(split_camel_case)
        .map(|word| singular(word.to_lowercase()))
        .collect()
}

/// `readFile` → `read`, `File`; `HTTPServer` → `HTTP`, `Server`.
fn split_camel_case(word: &str) -> Vec<&str> {
    let characters: Vec<(usize, char)> = word.char_indices().collect();
    let mut words = Vec::new();
    let mut start = 0;
    for index in 1..characters.len() {
        let (before, (offset, here)) = (characters[index - 1].1, characters[index]);
        let next_is_lower = characters.get(index + 1).is_some_and(|next| next.1.is_lowercase());
        if here.is_uppercase() && (before.is_lowercase() || (before.is_uppercase() && next_is_lower)) {
            words.push(&word[start..offset]);
            start = offset;
        }
    }
    words.push(&word[start..]);
    words.retain(|word| !word.is_empty());
    words
}

/// Folds regular English plurals and third persons: `files`, `matches`, `entries`. Short words stay unchanged.
fn singular(word: String) -> String {
    let stem = |ending: &str| word.strip_suffix(ending).filter(|stem| stem.chars().count() >= 3);
    if let Some(stem) = stem("ies") {
        return format!("{stem}y");
    }
    if let Some(stem) = stem("es")
        && ["s", "x", "z", "ch", "sh"].iter().any(|ending| stem.ends_with(ending))
    {
        return stem.to_owned();
    }
    match stem("s") {
        Some(stem) if !["s", "u", "i"].iter().any(|ending| stem.ends_with(ending)) => stem.to_owned(),
        _ => word,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_words_in_lower_case() {
        let cases: &[(&str, &[&str])] = &[
            ("files.read_range", &["file", "read", "range"]),
            ("readFile", &["read", "file"]),
            ("HTTPServer v2", &["http", "server", "v2"]),
            ("Matches, entries; classes!", &["match", "entry", "class"]),
            ("status this is gas", &["status", "this", "is", "gas"]),
            ("Straße ÄRGER 数える", &["straße", "ärger", "数える"]),
            ("  … — ", &[]),
        ];
        for (text, expected) in cases {
            assert_eq!(&terms(text), expected, "{text}");
        }
    }

    fn tools() -> Index {
        Index::new([
            ("files.read", "Reads a range of a text file."),
            ("files.search", "Searches the files of a tree for a regular expression."),
            ("text.count", "Counts the lines, words and characters of a text or file."),
            ("calc.evaluate", "Evaluates an arithmetic expression exactly."),
        ])
    }

    /// L25, M4: the nearest document comes first.
    #[test]
    fn l25_m4_the_nearest_document_is_found() {
        let cases = [
            ("how many words are in README.md?", Some(2)),
            ("count characters", Some(2)),
            ("searching: search the tree", Some(1)),
            ("evaluate 2+2", Some(3)),
            ("fly to the moon", None),
            ("", None),
        ];
        for (query, expected) in cases {
            let nearest = tools().nearest(query, 10);
            assert_eq!(nearest.first().map(|found| found.0), expected, "{query}: {nearest:?}");
            assert!(nearest.iter().all(|found| found.1 > 0.0), "{query}");
        }
    }

    #[test]
    fn at_most_count_documents_are_returned() {
        assert_eq!(tools().nearest("file", 2).len(), 2);
        assert_eq!(tools().nearest("file", 0).len(), 0);
    }

    #[test]
    fn equally_near_documents_keep_their_order() {
        let index = Index::new([("other", "x"), ("same", "one"), ("same", "one"), ("same", "one")]);
        let nearest = index.nearest("same", 10);
        assert_eq!(nearest.iter().map(|found| found.0).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!(nearest[0].1, nearest[2].1);
    }

    #[test]
    fn a_name_weighs_more_than_a_text() {
        let index = Index::new([("alpha", "counts things well"), ("count", "alpha things well")]);
        assert_eq!(index.nearest("count", 1)[0].0, 1);
    }

    #[test]
    fn a_rare_term_weighs_more_than_a_common_one() {
        let index = Index::new([("a1", "file copy"), ("a2", "file move"), ("a3", "file move"), ("a4", "file digest")]);
        assert_eq!(index.nearest("file digest", 1)[0].0, 3);
    }

    #[test]
    fn an_empty_index_finds_nothing() {
        let index = Index::new(Vec::<(String, String)>::new());
        assert!(index.is_empty() && index.nearest("file", 3).is_empty());
        let index = Index::new([("", ""), ("—", "the")]);
        assert_eq!(index.len(), 2);
        assert!(index.nearest("the", 3).is_empty());
    }
}
