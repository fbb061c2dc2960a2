//! Extracts paths, URLs, quoted strings, numbers, arithmetic expressions and words from a prompt in prose.

use super::arithmetic::{self, RunKind};

/// Words that negate a part of a prompt. A prompt with such a word is unclear, because the router does not
/// interpret negations.
const NEGATIONS: &[&str] = &["not", "no", "never", "without", "except", "don't", "doesn't", "isn't", "nor", "unless"];

/// Pairs of opening and closing quotation marks. An apostrophe counts as a quotation mark only at the edge of a word.
const QUOTES: &[(char, char)] = &[('"', '"'), ('`', '`'), ('“', '”'), ('«', '»'), ('\'', '\'')];

/// A part of the prompt that could be the value of an argument.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Token {
    /// Kind of the token, which limits the arguments for which the token can be used.
    pub(super) kind: TokenKind,
    /// Text of the token, without the quotation marks around it.
    pub(super) text: String,
    /// Word directly before the token, in lower case. At the beginning of the prompt and after another token, this
    /// field is empty. If the prompt contains `word=token` or `word: token`, this field is `word=`.
    pub(super) before: String,
}

/// Kind of a token in a prompt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// Text with a slash or a file extension.
    Path,
    /// Text that contains `://` after a URL scheme.
    Url,
    /// Text in quotation marks or backticks.
    Quoted,
    /// A single number, such as `10` or `0.5`.
    Number,
    /// An arithmetic expression with at least one operation.
    Expression,
}

/// The tokens and words into which a prompt was split.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ParsedPrompt {
    /// Tokens in the order in which they occur in the prompt.
    pub(super) tokens: Vec<Token>,
    /// Words that are not part of a token, in lower case and in the order in which they occur in the prompt.
    pub(super) words: Vec<String>,
    /// Reason why no tool can be chosen for the prompt, or `None` if the prompt is clear enough.
    pub(super) unclear: Option<String>,
}

/// Splits a prompt into tokens and words. Names of tools are read as words, although they can look like file names.
pub(super) fn read(prompt: &str, tool_names: &[&str]) -> ParsedPrompt {
    let mut reader =
        Reader { tool_names, parsed: ParsedPrompt::default(), arithmetic_run: String::new(), before: String::new() };
    let mut rest = prompt;
    let mut at_edge = true;
    while let Some(first) = rest.chars().next() {
        if let Some((quotation, remaining)) = split_quotation(rest, at_edge) {
            // Text in backticks is read as a path if it looks like a path. Text in other quotation marks is never read
            // as a path.
            let kind = if first == '`' && is_path(quotation) { TokenKind::Path } else { TokenKind::Quoted };
            reader.add_token(kind, quotation);
            rest = remaining;
            at_edge = true;
        } else if first.is_whitespace() || "([{<".contains(first) && !starts_arithmetic(rest) {
            rest = &rest[first.len_utf8()..];
            at_edge = true;
        } else {
            let end = rest.find(char::is_whitespace).unwrap_or(rest.len());
            let end = rest[..end].find(['"', '`', '“', '«']).filter(|&quote| quote > 0).unwrap_or(end);
            reader.read_chunk(&rest[..end]);
            rest = &rest[end..];
            at_edge = rest.starts_with(char::is_whitespace) || rest.starts_with(['"', '`', '“', '«']);
        }
    }
    reader.end_arithmetic();
    reader.parsed
}

/// Returns whether the text looks like a path.
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
    let is_short = extension.len() <= if stem.is_empty() { 20 } else { 8 };
    let is_alphanumeric = extension.chars().all(|character| character.is_ascii_alphanumeric());
    // The abbreviations `e.g` and `i.e` look like names of files but are not.
    first_is_letter
        && is_short
        && is_alphanumeric
        && !(stem.chars().count() == 1 && extension.len() == 1 && text.is_ascii())
}

fn starts_arithmetic(rest: &str) -> bool {
    let chunk = rest.split(char::is_whitespace).next().unwrap_or(rest);
    chunk.trim_end_matches([',', ';', ':', '!', '?', '.']).chars().all(arithmetic::is_allowed)
}

/// If the text begins with a quotation, returns the quoted text and the text after the closing mark. `at_edge` is
/// true if the text begins at the edge of a word.
fn split_quotation(text: &str, at_edge: bool) -> Option<(&str, &str)> {
    let opening = text.chars().next()?;
    let (_, closing) = QUOTES.iter().find(|(open, _)| *open == opening)?;
    if !at_edge {
        return None;
    }
    let after_opening = &text[opening.len_utf8()..];
    let line = &after_opening[..after_opening.find('\n').unwrap_or(after_opening.len())];
    let is_closing = |end: &usize| {
        let next = line[end + closing.len_utf8()..].chars().next();
        opening != '\'' || next.is_none_or(|next| !next.is_alphanumeric())
    };
    let end = line.match_indices(*closing).map(|(end, _)| end).find(is_closing)?;
    Some((&after_opening[..end], &after_opening[end + closing.len_utf8()..]))
}

struct Reader<'a> {
    tool_names: &'a [&'a str],
    parsed: ParsedPrompt,
    /// The part of an arithmetic expression that was read so far, or an empty string outside an expression.
    arithmetic_run: String,
    /// Word directly before the next token, which becomes [`Token::before`] of this token.
    before: String,
}

impl Reader<'_> {
    /// Reads a part of the prompt that contains no white space.
    fn read_chunk(&mut self, chunk: &str) {
        let trimmed = chunk.trim_end_matches([',', ';', ':', '?', '.']);
        // Do not remove an exclamation mark at the end, because it may mean a factorial.
        if trimmed.chars().all(arithmetic::is_allowed)
            && !trimmed.is_empty()
            && !trimmed.chars().all(|character| matches!(character, '.' | '/'))
        {
            self.arithmetic_run.push(' ');
            self.arithmetic_run.push_str(trimmed);
            if trimmed.len() < chunk.len() {
                self.end_arithmetic();
            }
            return;
        }
        self.end_arithmetic();
        if let Some((name, value)) = trimmed.split_once('=').filter(|(name, value)| is_word(name) && !value.is_empty())
        {
            self.add_word(name);
            self.before.push('=');
            return self.add_value(value);
        }
        let value = trimmed.trim_end_matches(['!', ')', ']', '}', '>', '\'']).trim_start_matches('\'');
        if !value.is_empty() && value.chars().all(arithmetic::is_allowed) {
            self.mark_unclear(format!("`{trimmed}` is neither a word nor a number"));
        }
        self.add_value(value);
        if chunk.ends_with(':') && !self.before.is_empty() {
            self.before.push('=');
        }
    }

    fn add_value(&mut self, text: &str) {
        if self.tool_names.contains(&text) {
            self.add_word(text);
        } else if text.contains("://") {
            self.add_token(TokenKind::Url, text);
        } else if is_path(text) {
            self.add_token(TokenKind::Path, text);
        } else if text.chars().all(arithmetic::is_allowed) && arithmetic::classify(text) == RunKind::Number {
            self.add_token(TokenKind::Number, text);
        } else {
            self.add_word(text);
        }
    }

    fn add_word(&mut self, text: &str) {
        let word = text.to_lowercase().replace('’', "'");
        if word.contains(|character: char| character.is_ascii_digit())
            && word.contains(['+', '*', '^', '(', '%', '=', ','])
        {
            self.mark_unclear(format!("`{text}` is neither a word nor a number"));
        }
        if NEGATIONS.contains(&word.as_str()) {
            self.mark_unclear(format!("`{text}` negates the prompt"));
        }
        if word.contains(['"', '`', '“', '«']) {
            self.mark_unclear("there is an unmatched quotation mark".to_owned());
        }
        if !word.is_empty() {
            self.parsed.words.push(word.clone());
        }
        self.before = word;
    }

    fn add_token(&mut self, kind: TokenKind, text: &str) {
        self.end_arithmetic();
        let before = std::mem::take(&mut self.before);
        self.parsed.tokens.push(Token { kind, text: text.to_owned(), before });
    }

    fn end_arithmetic(&mut self) {
        let run = std::mem::take(&mut self.arithmetic_run);
        let run = run.trim();
        let kind = match arithmetic::classify(run) {
            RunKind::Punctuation => return,
            RunKind::Unclear => return self.mark_unclear(format!("`{run}` is neither a number nor arithmetic")),
            RunKind::Number => TokenKind::Number,
            RunKind::Expression => TokenKind::Expression,
        };
        let before = std::mem::take(&mut self.before);
        self.parsed.tokens.push(Token { kind, text: run.to_owned(), before });
    }

    fn mark_unclear(&mut self, reason: String) {
        self.parsed.unclear.get_or_insert(reason);
    }
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(|character| character.is_alphanumeric() || character == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses the prompt and formats the parsed prompt as `words | tokens ! reason`.
    fn formatted(prompt: &str) -> String {
        let parsed = read(prompt, &["text.count"]);
        let format_token = |token: &Token| format!("{:?}[{}]({})", token.kind, token.text, token.before);
        let tokens = parsed.tokens.iter().map(format_token).collect::<Vec<_>>().join(" ");
        let unclear = parsed.unclear.map(|reason| format!(" ! {reason}")).unwrap_or_default();
        format!("{} | {tokens}{unclear}", parsed.words.join(" "))
    }

    #[test]
    fn prompts_are_parsed_into_words_and_tokens() {
        let cases = [
            ("How many words are in README.md?", "how many words are in | Path[README.md](in)"),
            ("list (the files in) plugins/, please", "list the files in please | Path[plugins/](in)"),
            ("move ./a.txt to b/c", "move to | Path[./a.txt](move) Path[b/c](to)"),
            ("search \"foo bar.\" in `my notes.txt`.", "search in | Quoted[foo bar.](search) Path[my notes.txt](in)"),
            ("`a b` and \"a.txt\"", "and | Quoted[a b]() Quoted[a.txt](and)"),
            ("say 'it is' and don’t", "say and don't | Quoted[it is](say) ! `don’t` negates the prompt"),
            ("the dog's tail isn't 'x'", "the dog's tail isn't | Quoted[x](isn't) ! `isn't` negates the prompt"),
            ("what is (1 + 2) * 3?", "what is | Expression[(1 + 2) * 3](is)"),
            ("2 + 10!", " | Number[10]() ! `2 +` is neither a number nor arithmetic"),
            ("10! or 5\"", "or \" | Number[10]() Number[5](or) ! `10!` is neither a word nor a number"),
            ("a 5\" disk", "a \" disk | Number[5](a) ! there is an unmatched quotation mark"),
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
            ("a \"b", "a \"b |  ! there is an unmatched quotation mark"),
            ("", " | "),
            ("ünïcödé 数える ﷽ a/数.md", "ünïcödé 数える ﷽ | Path[a/数.md](﷽)"),
        ];
        for (prompt, expected) in cases {
            assert_eq!(formatted(prompt), expected, "{prompt}");
        }
    }
}
