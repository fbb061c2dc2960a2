//! Splits a reply into sentences and matches patterns on them. A pattern is a sequence of words: `a|b` matches either
//! word, `#` a number above 0, `*` up to three words, `~` up to three words without a barrier, `**` up to eight
//! words, `^` the beginning and `$` the end of the sentence.

use super::patterns::{BARRIERS, Kind, NUMBERS};

/// Maximum number of words that `*` and `~` match, and that `**` matches.
const SHORT_GAP: usize = 3;
const LONG_GAP: usize = 8;
/// Represents a comma. A short gap does not cross it.
const COMMA: &str = ",";

/// A sentence as words in lower case, with its commas.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Sentence {
    pub(super) words: Vec<String>,
    /// Whether the sentence ends with a question mark.
    pub(super) is_question: bool,
}

impl Sentence {
    pub(super) fn is_of(&self, kind: &Kind) -> bool {
        !self.has_any(kind.unless) && kind.patterns.iter().any(|pattern| self.matches(pattern))
    }

    pub(super) fn has_any(&self, words: &[&str]) -> bool {
        self.words.iter().any(|word| words.contains(&word.as_str()))
    }

    fn matches(&self, pattern: &str) -> bool {
        let items: Vec<&str> = pattern.split(' ').collect();
        match items.split_first() {
            Some((&"^", rest)) => matches_at_start(&self.words, rest),
            _ => (0..self.words.len()).any(|from| matches_at_start(&self.words[from..], &items)),
        }
    }
}

/// Returns the sentences that the model itself says. Code, quotations and block quotes are left out.
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
    let mut rest = line;
    while let Some(at) = rest.find(['"', '“', '`']) {
        let (before, quoted) = rest.split_at(at);
        kept.push_str(before);
        let mark = quoted.chars().next().unwrap_or_default();
        let closing = if mark == '“' { '”' } else { mark };
        let inside = &quoted[mark.len_utf8()..];
        rest = match inside.find(closing) {
            Some(end) => &inside[end + closing.len_utf8()..],
            None => inside,
        };
    }
    kept.push_str(rest);
    kept
}

fn split(line: &str, sentences: &mut Vec<Sentence>) {
    let mut words = SentenceBuilder::default();
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        // A character that is part of a word, as in `notes.txt`, `4.5` and `don't`.
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

/// Appends a word. A contraction becomes the words that it abbreviates.
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

/// Whether the pattern matches, starting at the first word.
fn matches_at_start(words: &[String], items: &[&str]) -> bool {
    let Some((item, later)) = items.split_first() else { return true };
    match *item {
        "$" => words.iter().all(|word| word == COMMA),
        "*" => gap(words, &[]).any(|rest| matches_at_start(rest, later)),
        "~" => gap(words, BARRIERS).any(|rest| matches_at_start(rest, later)),
        "**" => (0..=LONG_GAP.min(words.len())).any(|count| matches_at_start(&words[count..], later)),
        _ => match words.split_first() {
            Some((word, rest)) if word == COMMA => matches_at_start(rest, items),
            Some((word, rest)) => is_one_of(word, item) && matches_at_start(rest, later),
            None => false,
        },
    }
}

/// Returns what remains after zero words, one word, and so on, up to a comma or a barrier.
fn gap<'w>(words: &'w [String], barriers: &[&str]) -> impl Iterator<Item = &'w [String]> {
    let is_open = |word: &&String| *word != COMMA && !barriers.contains(&word.as_str());
    let open = words.iter().take(SHORT_GAP).take_while(is_open).count();
    (0..=open).map(move |count| &words[count..])
}

fn is_one_of(word: &str, item: &str) -> bool {
    item.split('|').any(|one| if one == "#" { is_number(word) } else { one == word })
}

fn is_number(word: &str) -> bool {
    NUMBERS.contains(&word) || word.parse::<u64>().is_ok_and(|number| number > 0)
}
