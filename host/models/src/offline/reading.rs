//! What can be read off a prompt in prose: paths, URLs, quoted strings, numbers, arithmetic, and plain words.

use super::expression::{self, Run};

/// Words that turn a prompt's meaning round; the router does not follow them.
const NEGATIONS: &[&str] = &["not", "no", "never", "without", "except", "don't", "doesn't", "isn't", "nor", "unless"];

/// Opening and closing quotation marks. An apostrophe only quotes at the edge of a word.
const QUOTES: &[(char, char)] = &[('"', '"'), ('`', '`'), ('“', '”'), ('«', '»'), ('\'', '\'')];

/// Something in the prompt that could be an argument.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    /// What it is.
    pub(super) kind: TokenKind,
    /// Without its quotation marks.
    pub(super) text: String,
    /// The word right before it, in lower case; empty at the beginning and after another token. It ends with `=` where
    /// the prompt says `word=token` or `word: token`.
    pub(super) before: String,
}

/// What a token is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// Has a slash or a file extension.
    Path,
    /// Has a scheme.
    Url,
    /// Stands in quotation marks.
    Quoted,
    /// A number.
    Number,
    /// Arithmetic.
    Expression,
}

/// A prompt as read.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Reading {
    /// In order.
    pub(super) tokens: Vec<Token>,
    /// The plain words, in lower case, in order.
    pub(super) words: Vec<String>,
    /// Why the prompt is not understood well enough for a guess.
    pub(super) unclear: Option<String>,
}

/// Reads a prompt; the names of tools are words, though they look like files.
pub(super) fn read(prompt: &str, tool_names: &[&str]) -> Reading {
    let mut reader = Reader { tool_names, reading: Reading::default(), run: String::new(), before: String::new() };
    let mut rest = prompt;
    let mut at_edge = true;
    while let Some(first) = rest.chars().next() {
        if let Some((quoted, after)) = quoted(rest, at_edge) {
            // Backticks stand around names of things, other marks around texts.
            let kind = if first == '`' && is_path(quoted) { TokenKind::Path } else { TokenKind::Quoted };
            reader.token(kind, quoted);
            rest = after;
            at_edge = true;
        } else if first.is_whitespace() || "([{<".contains(first) && !starts_arithmetic(rest) {
            rest = &rest[first.len_utf8()..];
            at_edge = true;
        } else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            let end = rest[..end].find(['"', '`', '“', '«']).filter(|&quote| quote > 0).unwrap_or(end);
            reader.piece(&rest[..end]);
            rest = &rest[end..];
            at_edge = rest.starts_with(char::is_whitespace) || rest.starts_with(['"', '`', '“', '«']);
        }
    }
    reader.end_run();
    reader.reading
}

/// Whether the text looks like a path in a tree.
pub(super) fn is_path(text: &str) -> bool {
    if text.contains("://") || text.contains(['*', '?', '|', '\n']) {
        return false;
    }
    if text.contains('/') {
        return text.chars().any(|character| character.is_alphanumeric() || character == '.') && text != "and/or";
    }
    let Some((stem, extension)) = text.rsplit_once('.') else {
        return false;
    };
    let first_is_letter = extension.starts_with(|character: char| character.is_ascii_alphabetic());
    let short = extension.len() <= if stem.is_empty() { 20 } else { 8 };
    let plain = extension.chars().all(|character| character.is_ascii_alphanumeric());
    // `e.g` and `i.e` are no files.
    first_is_letter && short && plain && !(stem.chars().count() == 1 && extension.len() == 1 && text.is_ascii())
}

fn starts_arithmetic(rest: &str) -> bool {
    let piece = rest.split(char::is_whitespace).next().unwrap_or(rest);
    piece.trim_end_matches([',', ';', ':', '!', '?', '.']).chars().all(expression::allows)
}

/// A quotation at the beginning of the text, and what follows it.
fn quoted(text: &str, at_edge: bool) -> Option<(&str, &str)> {
    let opening = text.chars().next()?;
    let (_, closing) = QUOTES.iter().find(|(open, _)| *open == opening)?;
    if !at_edge {
        return None;
    }
    let inside = &text[opening.len_utf8()..];
    let line = &inside[..inside.find('\n').unwrap_or(inside.len())];
    let ends = |end: &usize| {
        let after = line[end + closing.len_utf8()..].chars().next();
        opening != '\'' || after.is_none_or(|after| !after.is_alphanumeric())
    };
    let end = line.match_indices(*closing).map(|(end, _)| end).find(ends)?;
    Some((&inside[..end], &inside[end + closing.len_utf8()..]))
}

struct Reader<'a> {
    tool_names: &'a [&'a str],
    reading: Reading,
    /// Pieces of arithmetic read so far.
    run: String,
    before: String,
}

impl Reader<'_> {
    /// What stands between white space.
    fn piece(&mut self, piece: &str) {
        let trimmed = piece.trim_end_matches([',', ';', ':', '?', '.']);
        // An exclamation mark may be a factorial, so it does not end arithmetic.
        if trimmed.chars().all(expression::allows)
            && !trimmed.is_empty()
            && !trimmed.chars().all(|c| c == '.' || c == '/')
        {
            self.run.push(' ');
            self.run.push_str(trimmed);
            if trimmed.len() < piece.len() {
                self.end_run();
            }
            return;
        }
        self.end_run();
        if let Some((name, value)) = trimmed.split_once('=').filter(|(name, value)| is_word(name) && !value.is_empty())
        {
            self.word(name);
            self.before.push('=');
            return self.value(value);
        }
        let value = trimmed.trim_end_matches(['!', ')', ']', '}', '>', '\'']).trim_start_matches('\'');
        if !value.is_empty() && value.chars().all(expression::allows) {
            self.doubt(format!("`{trimmed}` is neither a word nor a number"));
        }
        self.value(value);
        if piece.ends_with(':') && !self.before.is_empty() {
            self.before.push('=');
        }
    }

    fn value(&mut self, text: &str) {
        if self.tool_names.contains(&text) {
            self.word(text);
        } else if text.contains("://") {
            self.token(TokenKind::Url, text);
        } else if is_path(text) {
            self.token(TokenKind::Path, text);
        } else if text.chars().all(expression::allows) && expression::classify(text) == Run::Number {
            self.token(TokenKind::Number, text);
        } else {
            self.word(text);
        }
    }

    fn word(&mut self, text: &str) {
        let word = text.to_lowercase().replace('’', "'");
        if word.contains(|character: char| character.is_ascii_digit())
            && word.contains(['+', '*', '^', '(', '%', '=', ','])
        {
            self.doubt(format!("`{text}` is neither a word nor a number"));
        }
        if NEGATIONS.contains(&word.as_str()) {
            self.doubt(format!("`{text}` turns the meaning round"));
        }
        if word.contains(['"', '`', '“', '«']) {
            self.doubt("a quotation mark has no partner".to_owned());
        }
        if !word.is_empty() {
            self.reading.words.push(word.clone());
        }
        self.before = word;
    }

    fn token(&mut self, kind: TokenKind, text: &str) {
        self.end_run();
        let before = std::mem::take(&mut self.before);
        self.reading.tokens.push(Token { kind, text: text.to_owned(), before });
    }

    fn end_run(&mut self) {
        let run = std::mem::take(&mut self.run);
        let run = run.trim();
        let kind = match expression::classify(run) {
            Run::Nothing => return,
            Run::Unclear => return self.doubt(format!("`{run}` is neither a number nor arithmetic")),
            Run::Number => TokenKind::Number,
            Run::Expression => TokenKind::Expression,
        };
        let before = std::mem::take(&mut self.before);
        self.reading.tokens.push(Token { kind, text: run.to_owned(), before });
    }

    fn doubt(&mut self, reason: String) {
        self.reading.unclear.get_or_insert(reason);
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|character| character.is_alphanumeric() || character == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(prompt: &str) -> String {
        let reading = read(prompt, &["text.count"]);
        let token = |token: &Token| format!("{:?}[{}]({})", token.kind, token.text, token.before);
        let tokens = reading.tokens.iter().map(token).collect::<Vec<_>>().join(" ");
        let unclear = reading.unclear.map(|reason| format!(" ! {reason}")).unwrap_or_default();
        format!("{} | {tokens}{unclear}", reading.words.join(" "))
    }

    #[test]
    fn what_is_read_off_a_prompt() {
        let cases = [
            ("How many words are in README.md?", "how many words are in | Path[README.md](in)"),
            ("list (the files in) plugins/, please", "list the files in please | Path[plugins/](in)"),
            ("move ./a.txt to b/c", "move to | Path[./a.txt](move) Path[b/c](to)"),
            ("search \"foo bar.\" in `my notes.txt`.", "search in | Quoted[foo bar.](search) Path[my notes.txt](in)"),
            ("`a b` and \"a.txt\"", "and | Quoted[a b]() Quoted[a.txt](and)"),
            ("say 'it is' and don’t", "say and don't | Quoted[it is](say) ! `don’t` turns the meaning round"),
            ("the dog's tail isn't 'x'", "the dog's tail isn't | Quoted[x](isn't) ! `isn't` turns the meaning round"),
            ("what is (1 + 2) * 3?", "what is | Expression[(1 + 2) * 3](is)"),
            ("2 + 10!", " | Number[10]() ! `2 +` is neither a number nor arithmetic"),
            ("10! or 5\"", "or \" | Number[10]() Number[5](or) ! `10!` is neither a word nor a number"),
            ("a 5\" disk", "a \" disk | Number[5](a) ! a quotation mark has no partner"),
            ("Hello, a.txt!", "hello | Path[a.txt](hello)"),
            ("compute 2+2.", "compute | Expression[2+2](compute)"),
            ("first 10 lines, limit=5", "first lines limit | Number[10](first) Number[5](limit=)"),
            ("limit: 7 path=a.md", "limit path | Number[7](limit=) Path[a.md](path=)"),
            ("run text.count on .gitignore", "run text.count on | Path[.gitignore](on)"),
            ("see https://example.com/a.txt now", "see now | Url[https://example.com/a.txt](see)"),
            ("e.g. and/or i.e. a - b", "e.g and/or i.e a b | "),
            ("sqrt(2)+1", "sqrt(2)+1 |  ! `sqrt(2)+1` is neither a word nor a number"),
            ("on 2024-01-15", "on |  ! `2024-01-15` is neither a number nor arithmetic"),
            ("1,000 + 2", "1,000 |  ! `1,000` is neither a word nor a number"),
            ("a \"b", "a \"b |  ! a quotation mark has no partner"),
            ("", " | "),
            ("ünïcödé 数える ﷽ a/数.md", "ünïcödé 数える ﷽ | Path[a/数.md](﷽)"),
        ];
        for (prompt, expected) in cases {
            assert_eq!(shown(prompt), expected, "{prompt}");
        }
    }
}
