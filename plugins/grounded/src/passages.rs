//! Finds the quoted passages of a text, and checks whether the sources contain each passage.

/// Minimum number of words in a passage. Shorter passages are usually names or scare quotes.
const MIN_WORDS: usize = 4;

/// Each opening quotation mark, with a mark that can close the quote.
const MARKS: [(char, char); 5] = [('"', '"'), ('“', '”'), ('„', '“'), ('«', '»'), ('»', '«')];

/// Returns the passages that a text quotes: text between quotation marks in one paragraph, and lines that start with
/// `>`. Code blocks are ignored.
pub fn passages(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let (mut paragraph, mut block, mut in_code) = (String::new(), String::new(), false);
    for line in text.lines().chain([""]) {
        if line.trim_start().starts_with("```") {
            in_code = !in_code;
            continue;
        }
        if in_code {
            continue;
        }
        match line.trim_start().strip_prefix('>') {
            Some(quoted) => {
                block.push_str(quoted);
                block.push('\n');
            }
            None => found.extend(passages_of(&std::mem::take(&mut block))),
        }
        if line.trim().is_empty() {
            add_quoted_text(&std::mem::take(&mut paragraph), &mut found);
        } else if !line.trim_start().starts_with('>') {
            paragraph.push_str(line);
            paragraph.push('\n');
        }
    }
    found
}

fn add_quoted_text(paragraph: &str, found: &mut Vec<String>) {
    let mut remaining = paragraph;
    while let Some((at, open)) = remaining.char_indices().find(|(_, mark)| MARKS.iter().any(|(open, _)| open == mark)) {
        let inner = &remaining[at + open.len_utf8()..];
        let closes: Vec<char> = MARKS.iter().filter(|(opening, _)| *opening == open).map(|(_, close)| *close).collect();
        match inner.find(closes.as_slice()) {
            Some(end) => {
                found.extend(passages_of(&inner[..end]));
                remaining = &inner[end..];
                remaining = &remaining[remaining.chars().next().map_or(0, char::len_utf8)..];
            }
            None => remaining = inner,
        }
    }
}

/// Splits a quote at omissions such as `…`, and removes parts with fewer than [`MIN_WORDS`] words.
fn passages_of(passage: &str) -> Vec<String> {
    let passage = passage.replace("[…]", "…").replace("[...]", "…").replace("...", "…");
    let passages_of = passage.split('…').map(|piece| piece.split_whitespace().collect::<Vec<_>>());
    passages_of.filter(|words| words.len() >= MIN_WORDS).map(|words| words.join(" ")).collect()
}

/// The texts that an answer may quote.
pub struct Sources(Vec<String>);

impl Sources {
    /// Normalizes the texts, so that passages can be compared with the texts.
    pub fn new<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        Self(texts.into_iter().map(normalized).collect())
    }

    /// Whether one of the texts contains the passage. Spaces, quotation marks and final punctuation are ignored.
    pub fn contain(&self, passage: &str) -> bool {
        let passage = normalized(passage);
        let passage = passage.trim_end_matches(['.', ',', ';', ':', '!', '?', ' ']);
        self.0.iter().any(|source| source.contains(passage))
    }
}

/// Removes differences that a correct quote may have: line breaks (including `\n` in JSON), the form of quotation marks
/// and dashes, and differences between upper and lower case.
fn normalized(text: &str) -> String {
    let text = text.replace("\\n", " ").replace("\\\"", "\"");
    let mut normalized = String::with_capacity(text.len());
    for character in text.chars() {
        let character = match character {
            '“' | '”' | '„' | '«' | '»' => '"',
            '‘' | '’' | '‚' => '\'',
            '–' | '—' | '‑' => '-',
            '*' | '`' | '_' => continue,
            character if character.is_whitespace() => ' ',
            character => character,
        };
        if character != ' ' || !normalized.ends_with(' ') {
            normalized.extend(character.to_lowercase());
        }
    }
    normalized
}
