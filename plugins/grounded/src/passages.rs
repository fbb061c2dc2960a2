//! Finds quoted passages in a text, and looks for them in sources.

/// Minimum number of words in a passage. Shorter ones are names or scare quotes.
const MIN_WORDS: usize = 4;

/// Opening quotation marks with their closing ones.
const MARKS: [(char, char); 5] = [('"', '"'), ('“', '”'), ('„', '“'), ('«', '»'), ('»', '«')];

/// The passages that a text quotes: between quotation marks in one paragraph, or in lines that start with `>`. Code
/// is not quoted text.
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
            None => found.extend(pieces(&std::mem::take(&mut block))),
        }
        if line.trim().is_empty() {
            between_marks(&std::mem::take(&mut paragraph), &mut found);
        } else if !line.trim_start().starts_with('>') {
            paragraph.push_str(line);
            paragraph.push('\n');
        }
    }
    found
}

fn between_marks(paragraph: &str, found: &mut Vec<String>) {
    let mut rest = paragraph;
    while let Some((at, open)) = rest.char_indices().find(|(_, mark)| MARKS.iter().any(|(open, _)| open == mark)) {
        let inner = &rest[at + open.len_utf8()..];
        let closes: Vec<char> = MARKS.iter().filter(|(one, _)| *one == open).map(|(_, close)| *close).collect();
        match inner.find(closes.as_slice()) {
            Some(end) => {
                found.extend(pieces(&inner[..end]));
                rest = &inner[end..];
                rest = &rest[rest.chars().next().map_or(0, char::len_utf8)..];
            }
            None => rest = inner,
        }
    }
}

/// Splits a passage at omissions, and drops parts of a few words.
fn pieces(passage: &str) -> Vec<String> {
    let passage = passage.replace("[…]", "…").replace("[...]", "…").replace("...", "…");
    let pieces = passage.split('…').map(|piece| piece.split_whitespace().collect::<Vec<_>>());
    pieces.filter(|words| words.len() >= MIN_WORDS).map(|words| words.join(" ")).collect()
}

/// The texts that passages may come from.
pub struct Sources(Vec<String>);

impl Sources {
    /// Prepares the texts for comparison.
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

/// The text without differences that a quote may have: line breaks (including `\n` in JSON), the form of quotation
/// marks and dashes, and case.
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
