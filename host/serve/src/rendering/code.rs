//! Highlights code: finds comments, strings, numbers, keywords, types and calls. One pass over the text, without regular
//! expressions, so that the time grows only with the length of the text, whatever the text is (row 26).

mod languages;

use languages::Language;
use serde::Serialize;

/// Maximum size of code that is highlighted, in bytes.
const MAX_BYTES: usize = 256 << 10;
/// Keywords that are followed by the name of a function.
const DEFINITIONS: [&str; 5] = ["fn", "def", "function", "func", "fun"];

/// A piece of code: its kind, such as `keyword`, or an empty text; and its text.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Token(&'static str, String);

impl Token {
    pub(crate) fn plain(text: &str) -> Self {
        Self("", text.to_owned())
    }
}

/// Divides code into pieces. Code in an unknown language and long code has no kinds.
pub(crate) fn highlight(text: &str, language: &str) -> Vec<Token> {
    match languages::find(language) {
        Some(language) if text.len() <= MAX_BYTES => Scanner { text, at: 0, language, tokens: Vec::new() }.scan(),
        _ => vec![Token::plain(text)],
    }
}

struct Scanner<'t> {
    text: &'t str,
    /// Position of the next character, in bytes.
    at: usize,
    language: &'static Language,
    tokens: Vec<Token>,
}

impl Scanner<'_> {
    fn scan(mut self) -> Vec<Token> {
        while let Some(next) = self.rest().chars().next() {
            let from = self.at;
            let kind = self.piece(next);
            let piece = &self.text[from..self.at];
            match self.tokens.last_mut() {
                Some(Token(last, text)) if *last == kind => text.push_str(piece),
                // Space between two pieces belongs to the first one, which makes fewer pieces.
                Some(Token(_, text)) if piece.trim().is_empty() => text.push_str(piece),
                _ => self.tokens.push(Token(kind, piece.to_owned())),
            }
        }
        self.tokens
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// Moves to the end of the next piece, and returns its kind.
    fn piece(&mut self, next: char) -> &'static str {
        let language = self.language;
        if language.markup
            && next == '<'
            && self.rest()[1..].starts_with(|after: char| after.is_alphabetic() || after == '/')
        {
            return self.tag();
        }
        if let Some((start, end)) = language.block_comments.iter().find(|(start, _)| self.rest().starts_with(start)) {
            let length = start.len();
            let found = self.rest()[length..].find(end);
            self.at = found.map_or(self.text.len(), |found| self.at + length + found + end.len());
            return "comment";
        }
        if language.line_comments.iter().any(|start| self.rest().starts_with(start)) && self.may_begin_comment() {
            self.at = self.rest().find('\n').map_or(self.text.len(), |found| self.at + found);
            return "comment";
        }
        if let Some(quote) = language.quotes.iter().find(|quote| self.rest().starts_with(**quote)) {
            return self.string(quote);
        }
        if next.is_ascii_digit() {
            let is_part = |letter: char| letter.is_alphanumeric() || letter == '_' || letter == '.';
            self.skip(is_part);
            return "number";
        }
        if next.is_alphabetic() || next == '_' || next == '$' || next == '@' {
            return self.word();
        }
        self.at += next.len_utf8();
        ""
    }

    /// In shells and YAML, `#` begins a comment only at the beginning of a word.
    fn may_begin_comment(&self) -> bool {
        !self.rest().starts_with('#') || self.text[..self.at].chars().next_back().is_none_or(char::is_whitespace)
    }

    fn string(&mut self, quote: &str) -> &'static str {
        if quote == "'" && self.language.short_characters {
            return self.character();
        }
        let is_short = quote.len() == 1 && !self.language.multiline.contains(&quote);
        self.at += quote.len();
        while let Some(next) = self.rest().chars().next() {
            if self.rest().starts_with(quote) {
                self.at += quote.len();
                break;
            }
            if next == '\n' && is_short {
                break;
            }
            self.at += next.len_utf8();
            if next == '\\' && self.language.escapes {
                self.at += self.rest().chars().next().map_or(0, char::len_utf8);
            }
        }
        let is_key = self.language.keys && self.rest().trim_start_matches([' ', '\t']).starts_with(':');
        if is_key { "name" } else { "string" }
    }

    /// Reads a single character in quotes, such as `'a'` or `'\u{1f600}'`. Another quote is an apostrophe or a lifetime.
    fn character(&mut self) -> &'static str {
        let letters: Vec<char> = self.rest().chars().take(14).collect();
        let end = match letters.get(1) {
            Some('\\') => letters.iter().skip(3).position(|letter| *letter == '\'').map(|found| found + 3),
            Some(_) => (letters.get(2) == Some(&'\'')).then_some(2),
            None => None,
        };
        let length: usize = letters[..=end.unwrap_or(0)].iter().map(|letter| letter.len_utf8()).sum();
        self.at += length;
        if end.is_some() { "string" } else { "" }
    }

    fn word(&mut self) -> &'static str {
        let start = self.at;
        let hyphen = self.language.hyphens;
        self.skip(|letter| {
            letter.is_alphanumeric() || letter == '_' || letter == '$' || letter == '@' || (hyphen && letter == '-')
        });
        let word = &self.text[start..self.at];
        let rest = self.rest().trim_start_matches([' ', '\t']);
        let is_keyword = |known: &&str| {
            if self.language.ignores_case { known.eq_ignore_ascii_case(word) } else { *known == word }
        };
        if self.language.keywords.iter().any(is_keyword) {
            return "keyword";
        }
        if self.language.constants.contains(&word) {
            return "number";
        }
        if self.language.keys && (rest.starts_with(':') || rest.starts_with('=')) {
            return "name";
        }
        if word.starts_with('@') {
            return "name";
        }
        if rest.starts_with('(') || rest.starts_with("!(") || self.is_after_definition() {
            return "function";
        }
        if self.language.capital_types && word.starts_with(char::is_uppercase) {
            return "type";
        }
        ""
    }

    /// Whether the last word before this one begins the definition of a function. Its name may be followed by something else than
    /// arguments, such as type parameters.
    fn is_after_definition(&self) -> bool {
        self.tokens.last().is_some_and(|Token(kind, text)| {
            *kind == "keyword" && text.split_whitespace().next_back().is_some_and(|word| DEFINITIONS.contains(&word))
        })
    }

    /// Skips the beginning of a tag of a markup language: `<name`, `</name`.
    fn tag(&mut self) -> &'static str {
        self.at += 1;
        self.skip(|letter| letter.is_alphanumeric() || matches!(letter, '/' | '-' | ':' | '_' | '.'));
        "keyword"
    }

    fn skip(&mut self, is_part: impl Fn(char) -> bool) {
        let length = self.rest().find(|letter| !is_part(letter)).unwrap_or(self.rest().len());
        self.at += length.max(self.rest().chars().next().map_or(0, char::len_utf8).min(1));
        while !self.text.is_char_boundary(self.at) {
            self.at += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, Instant};

    fn joined(tokens: &[Token]) -> String {
        tokens.iter().map(|Token(_, text)| text.as_str()).collect()
    }

    fn kind(tokens: &[Token], piece: &str) -> Option<&'static str> {
        tokens.iter().find(|Token(_, text)| text.trim() == piece).map(|Token(kind, _)| *kind)
    }

    /// I3: pieces of code have kinds, and together they are the code.
    #[test]
    fn i3_code_is_divided_into_kinds() {
        let rust = "// Adds \"x\".\nfn add<'a>(a: &'a Count) -> u32 {\n    call!(b'x', '\\'', 1_000) /* c */\n}\n";
        let found = highlight(rust, "rust");
        assert_eq!(joined(&found), rust);
        assert_eq!(found[0], Token("comment", "// Adds \"x\".\n".to_owned()));
        for (piece, expected) in [
            ("fn", "keyword"),
            ("add", "function"),
            ("Count", "type"),
            ("call", "function"),
            ("1_000", "number"),
            ("/* c */", "comment"),
        ] {
            assert_eq!(kind(&found, piece), Some(expected), "{piece}: {found:?}");
        }
        for (language, code, piece, expected) in [
            ("python", "def f(x):\n    return \"\"\"a\nb\"\"\"  # c", "def", "keyword"),
            ("py", "x = \"\"\"a\nb\"\"\"", "\"\"\"a\nb\"\"\"", "string"),
            ("ts", "const a: Thing = `x\ny`;", "`x\ny`", "string"),
            ("json", "{\"a\": \"b\"}", "\"a\"", "name"),
            ("json", "{\"a\": true}", "true", "number"),
            ("toml", "name = \"a\" # c", "name", "name"),
            ("yaml", "a-b: x#y # c", "# c", "comment"),
            ("sql", "SELECT a FROM b -- c", "SELECT", "keyword"),
            ("sh", "if true; then echo \"$a\"; fi # c", "if", "keyword"),
            ("html", "<p class=\"a\">b</p><!-- c -->", "<!-- c -->", "comment"),
            ("diff", "no such language", "no such language", ""),
        ] {
            let found = highlight(code, language);
            assert_eq!(joined(&found), code);
            assert_eq!(kind(&found, piece), Some(expected), "{language}: {found:?}");
        }
    }

    /// Row 26: no text takes long, and every text is returned completely.
    #[test]
    fn row_26_hostile_code_is_highlighted_in_one_pass() {
        let pieces = ["\"", "'", "/*", "<a", "`", "\\", "#", "\u{202e}", "ä", "0", "@", "//", "\n", "<!--", "'''"];
        for language in ["rust", "python", "js", "html", "sh", "yaml", "sql", "css", "go", "c", "json", "toml"] {
            for piece in pieces {
                let code = piece.repeat(20_000);
                let started = Instant::now();
                assert_eq!(joined(&highlight(&code, language)), code);
                assert!(started.elapsed() < Duration::from_secs(20), "{language} {piece:?}");
            }
        }
        let long = "a ".repeat(MAX_BYTES);
        assert_eq!(highlight(&long, "rust"), [Token::plain(&long)]);
    }
}
