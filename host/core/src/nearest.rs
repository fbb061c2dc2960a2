//! Finds the documents whose names and descriptions match a query best, with the ranking function BM25. The search is
//! deterministic. The search handles English with a short list of function words and simple rules for plurals. The tool
//! pre-filter (L25) and the offline router (M4) use this search.

use std::collections::{BTreeMap, BTreeSet};

/// The BM25 parameter `k1`: how quickly repetitions of a term lose weight. The value is Lucene's default.
pub const K1: f32 = 1.2;

/// The BM25 parameter `b`: how strongly long documents are penalised, from 0 (not at all) to 1 (fully). The value is
/// Lucene's default.
pub const B: f32 = 0.75;

/// Weight of a term in a document's name. A term in the text has weight 1. Terms in names weigh more than terms in
/// texts because the name of a tool usually states the tool's purpose.
pub const NAME_WEIGHT: u32 = 3;

/// English function words, which occur in most texts. Function words are removed from texts, but not from names or
/// queries, so that a tool whose name contains a function word can still be found.
pub const FUNCTION_WORDS: &[&str] = &[
    "a", "an", "and", "are", "as", "at", "be", "been", "by", "can", "do", "does", "for", "from", "has", "have", "how",
    "if", "in", "into", "is", "it", "its", "me", "my", "of", "on", "or", "our", "please", "that", "the", "their",
    "them", "then", "there", "these", "this", "to", "was", "were", "what", "when", "where", "which", "who", "why",
    "will", "with", "you", "your",
];

/// An index over documents with a name and a text. Documents are numbered in the order in which they were added,
/// starting at 0.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// For each term, a list of the documents that contain it. Each entry contains the number of a document and the
    /// weighted frequency of the term in that document.
    postings: BTreeMap<String, Vec<(usize, u32)>>,
    /// For each document, the sum of the weighted frequencies of its terms.
    lengths: Vec<u32>,
}

impl Index {
    /// Creates an index over documents, each given as `(name, text)`.
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

    /// Returns the numbers and scores of at most `count` documents that share a term with the query, nearest first.
    /// Documents with equal scores keep their order. Scores are greater than 0. Scores of different queries cannot be
    /// compared.
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

    /// Returns the average weighted length of the documents. The result is at least 1, so that the caller can divide by
    /// it even if the documents contain no terms.
    fn average_length(&self) -> f32 {
        let sum: u64 = self.lengths.iter().map(|&length| u64::from(length)).sum();
        (sum as f32 / self.lengths.len().max(1) as f32).max(1.0)
    }

    /// Inverse document frequency of a term that occurs in `matching` documents. The formula adds 1 before
    /// the logarithm, so the result is never negative.
    fn rarity(&self, matching: usize) -> f32 {
        let (documents, matching) = (self.lengths.len() as f32, matching as f32);
        (1.0 + (documents - matching + 0.5) / (matching + 0.5)).ln()
    }
}

/// Splits a text into terms, in order. The text is split at camelCase boundaries and at every character that is neither
/// a letter nor a digit. Terms are in lower case, and regular English plurals become singular.
pub fn terms(text: &str) -> Vec<String> {
    text.split(|character: char| !character.is_alphanumeric())
        .flat_map(split_camel_case)
        .map(|word| singular(word.to_lowercase()))
        .collect()
}

/// Splits a word at camelCase boundaries. `readFile` becomes `read` and `File`; `HTTPServer` becomes `HTTP` and
/// `Server`.
fn split_camel_case(word: &str) -> Vec<&str> {
    let characters: Vec<(usize, char)> = word.char_indices().collect();
    let mut words = Vec::new();
    let mut start = 0;
    for index in 1..characters.len() {
        let (previous, (offset, current)) = (characters[index - 1].1, characters[index]);
        let next_is_lower = characters.get(index + 1).is_some_and(|next| next.1.is_lowercase());
        if current.is_uppercase() && (previous.is_lowercase() || (previous.is_uppercase() && next_is_lower)) {
            words.push(&word[start..offset]);
            start = offset;
        }
    }
    words.push(&word[start..]);
    words.retain(|word| !word.is_empty());
    words
}

/// Removes the ending of regular English plurals and of third-person verbs, such as `files`, `matches` and `entries`.
/// Short words stay unchanged.
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
    fn terms_are_singular_words_in_lower_case() {
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
    fn a_term_in_the_name_weighs_more_than_in_the_text() {
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
