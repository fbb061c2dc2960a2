//! Quoted passages of a text, and whether sources hold them.

/// Fewest words of a passage: fewer are a name or a word that somebody distances himself from.
const WORDS: usize = 4;

/// Opening marks with their closing ones.
const MARKS: [(char, char); 5] = [('"', '"'), ('“', '”'), ('„', '“'), ('«', '»'), ('»', '«')];

/// The passages that a text quotes: between marks in one paragraph, or in lines that begin with `>`. Code is no quote.
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

/// A passage with words left out is as many passages. Those of a few words are none.
fn pieces(passage: &str) -> Vec<String> {
    let passage = passage.replace("[…]", "…").replace("[...]", "…").replace("...", "…");
    let pieces = passage.split('…').map(|piece| piece.split_whitespace().collect::<Vec<_>>());
    pieces.filter(|words| words.len() >= WORDS).map(|words| words.join(" ")).collect()
}

/// Texts that passages may come from.
pub struct Sources(Vec<String>);

impl Sources {
    /// Of these texts.
    pub fn new<'t>(texts: impl IntoIterator<Item = &'t str>) -> Self {
        Self(texts.into_iter().map(plain).collect())
    }

    /// Whether one of them holds the passage, whatever its spaces, marks and last dot are.
    pub fn hold(&self, passage: &str) -> bool {
        let passage = plain(passage);
        let passage = passage.trim_end_matches(['.', ',', ';', ':', '!', '?', ' ']);
        self.0.iter().any(|source| source.contains(passage))
    }
}

/// Without what differs between a text and its quote: line breaks (also those of JSON), the form of marks, dashes and case.
fn plain(text: &str) -> String {
    let text = text.replace("\\n", " ").replace("\\\"", "\"");
    let mut plain = String::with_capacity(text.len());
    for character in text.chars() {
        let character = match character {
            '“' | '”' | '„' | '«' | '»' => '"',
            '‘' | '’' | '‚' => '\'',
            '–' | '—' | '‑' => '-',
            '*' | '`' | '_' => continue,
            character if character.is_whitespace() => ' ',
            character => character,
        };
        if character != ' ' || !plain.ends_with(' ') {
            plain.extend(character.to_lowercase());
        }
    }
    plain
}
