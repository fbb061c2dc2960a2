//! Splits a reply into sentences and matches patterns against the sentences. A pattern is a sequence of these items:
//!
//! - `a|b` matches either of the words.
//! - `#` matches a number above 0.
//! - `*` matches up to three words, and `**` up to eight words.
//! - `~` matches up to three words of which none is in [`BARRIERS`].
//! - `^` matches the beginning of the sentence, and `$` its end.

use super::patterns::{BARRIERS, NUMBERS, SentenceKind};

/// Maximum number of words that one `*` or `~` can match.
const SHORT_GAP: usize = 3;
/// Maximum number of words that one `**` can match.
const LONG_GAP: usize = 8;
/// The element of [`Sentence::words`] for a comma. `*` and `~` do not match across a comma.
const COMMA: &str = ",";

/// A sentence as a list of its words, in lower case, and its commas.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sentence {
    pub(super) words: Vec<String>,
    /// Whether the sentence ends with a question mark.
    pub(super) is_question: bool,
}

impl Sentence {
    pub(super) fn is_of(&self, kind: &SentenceKind) -> bool {
        !self.has_any(kind.unless) && kind.patterns.iter().any(|pattern| self.matches(pattern))
    }

    pub(super) fn has_any(&self, words: &[&str]) -> bool {
        self.words.iter().any(|word| words.contains(&word.as_str()))
    }

    fn matches(&self, pattern: &str) -> bool {
        let items: Vec<&str> = pattern.split(' ').collect();
        match items.split_first() {
            Some((&"^", after_start)) => matches_at_start(&self.words, after_start),
            _ => (0..self.words.len()).any(|from| matches_at_start(&self.words[from..], &items)),
        }
    }
}

/// Returns the sentences of a text, leaving out code, quotations and block quotes.
pub(super) fn sentences(text: &str) -> Vec<Sentence> {
    let text = text.replace(['’', '‘'], "'");
    let mut sentences = Vec::new();
    let mut fence: Option<&str> = None;
    for line in text.lines() {
        let start = line.trim_start();
        let mark = ["```", "~~~"].into_iter().find(|mark| start.starts_with(mark));
        match (fence, mark) {
            (Some(open), Some(mark)) if open == mark => fence = None,
            (None, Some(mark)) => fence = Some(mark),
            (None, None) if !start.starts_with('>') => split(&without_quotations(line), &mut sentences),
            _ => {}
        }
    }
    sentences
}

/// Removes everything between two quotation marks of the same line.
fn without_quotations(line: &str) -> String {
    let mut kept = String::with_capacity(line.len());
    let mut unread = line;
    while let Some(at) = unread.find(['"', '“', '`']) {
        let (before, quoted) = unread.split_at(at);
        kept.push_str(before);
        let mark = quoted.chars().next().unwrap_or_default();
        let closing = if mark == '“' { '”' } else { mark };
        let inside = &quoted[mark.len_utf8()..];
        unread = match inside.find(closing) {
            Some(end) => &inside[end + closing.len_utf8()..],
            None => inside,
        };
    }
    kept.push_str(unread);
    kept
}

fn split(line: &str, sentences: &mut Vec<Sentence>) {
    let mut words = SentenceBuilder::default();
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        // Inside a word, punctuation may be part of the word, as in `notes.txt`, `4.5` and `don't`.
        let continues = words.is_inside() && characters.peek().is_some_and(|next| next.is_alphanumeric());
        match character {
            '.' | '_' | '/' | '\'' if continues => words.current.push(character),
            ',' if continues && characters.peek().is_some_and(char::is_ascii_digit) => {}
            ',' => words.comma(),
            '.' | '!' | '?' | '…' | ';' => words.end_sentence(character == '?', sentences),
            other if other.is_alphanumeric() => words.current.extend(other.to_lowercase()),
            _ => words.end_word(),
        }
    }
    words.end_sentence(false, sentences);
}

#[derive(Default)]
struct SentenceBuilder {
    current: String,
    words: Vec<String>,
}

impl SentenceBuilder {
    fn is_inside(&self) -> bool {
        !self.current.is_empty()
    }

    fn end_word(&mut self) {
        if self.is_inside() {
            push_expanded(&std::mem::take(&mut self.current), &mut self.words);
        }
    }

    fn comma(&mut self) {
        self.end_word();
        self.words.push(COMMA.to_owned());
    }

    fn end_sentence(&mut self, is_question: bool, sentences: &mut Vec<Sentence>) {
        self.end_word();
        if !self.words.is_empty() {
            sentences.push(Sentence { words: std::mem::take(&mut self.words), is_question });
        }
    }
}

/// Appends a word. A contraction is replaced by the words that it abbreviates.
fn push_expanded(word: &str, words: &mut Vec<String>) {
    const ENDS: [(&str, &str); 7] =
        [("n't", "not"), ("'ll", "will"), ("'ve", "have"), ("'re", "are"), ("'m", "am"), ("'d", "would"), ("'s", "is")];
    let pair = match word {
        "can't" | "cannot" => Some(("can", "not")),
        "won't" => Some(("will", "not")),
        _ => ENDS.iter().find_map(|(end, expansion)| Some((word.strip_suffix(end)?, *expansion))),
    };
    match pair {
        Some((first, second)) if !first.is_empty() => words.extend([first.to_owned(), second.to_owned()]),
        _ => words.push(word.to_owned()),
    }
}

/// Whether the items of a pattern match the words, starting at the first word.
fn matches_at_start(words: &[String], items: &[&str]) -> bool {
    let Some((item, next_items)) = items.split_first() else { return true };
    match *item {
        "$" => words.iter().all(|word| word == COMMA),
        "*" => after_gap(words, &[]).any(|words| matches_at_start(words, next_items)),
        "~" => after_gap(words, BARRIERS).any(|words| matches_at_start(words, next_items)),
        "**" => (0..=LONG_GAP.min(words.len())).any(|count| matches_at_start(&words[count..], next_items)),
        _ => match words.split_first() {
            Some((word, next_words)) if word == COMMA => matches_at_start(next_words, items),
            Some((word, next_words)) => is_one_of(word, item) && matches_at_start(next_words, next_items),
            None => false,
        },
    }
}

/// Returns the remaining words after a gap of zero words, after a gap of one word, and so on. The gap ends at a comma
/// or a barrier, and has at most [`SHORT_GAP`] words.
fn after_gap<'w>(words: &'w [String], barriers: &[&str]) -> impl Iterator<Item = &'w [String]> {
    let is_open = |word: &&String| *word != COMMA && !barriers.contains(&word.as_str());
    let open = words.iter().take(SHORT_GAP).take_while(is_open).count();
    (0..=open).map(move |count| &words[count..])
}

fn is_one_of(word: &str, item: &str) -> bool {
    item.split('|').any(|option| if option == "#" { is_number(word) } else { option == word })
}

fn is_number(word: &str) -> bool {
    NUMBERS.contains(&word) || word.parse::<u64>().is_ok_and(|number| number > 0)
}
