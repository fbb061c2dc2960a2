//! The text or regular expression that a search looks for. The time for matching is linear in the length of the text.

use regex::{Regex, RegexBuilder};

/// The maximum length of an expression in bytes.
const MAX_LENGTH: usize = 1_000;
/// The maximum memory of a compiled expression in bytes. The limit rejects patterns such as `(a{1000}){1000}`.
const MAX_COMPILED: usize = 1 << 20;

/// What a search looks for in each line.
#[derive(Clone, Copy, Debug)]
pub enum Wanted<'a> {
    /// This text.
    Text(&'a str),
    /// A match of this regular expression.
    Pattern(&'a str),
}

/// Whether upper and lower case are treated as the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LetterCase {
    /// `a` does not match `A`.
    Distinct,
    /// `a` matches `A`.
    Ignored,
    /// `Distinct` if the expression contains an upper-case letter, otherwise `Ignored`.
    Smart,
}

/// Which matches count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Boundaries {
    /// Every match.
    Anywhere,
    /// Only matches that do not begin or end in the middle of a word.
    WholeWords,
}

/// The compiled form of what a search looks for.
#[derive(Clone, Debug)]
pub struct Expression {
    regex: Regex,
    /// Whether the expression has no `^`, `$`, `\A` or `\z`. Then every match in a line is also a match in the whole
    /// text, because word boundaries treat the ends of a line and line breaks in the same way.
    has_no_anchors: bool,
}

impl Expression {
    /// Compiles a text or a regular expression. The error completes a sentence that begins with the argument.
    pub fn new(wanted: Wanted<'_>, case: LetterCase, boundaries: Boundaries) -> Result<Self, String> {
        let (original, mut pattern) = match wanted {
            Wanted::Text(text) => (text, regex::escape(text)),
            Wanted::Pattern(pattern) => (pattern, pattern.to_owned()),
        };
        if original.is_empty() {
            return Err("must not be empty".to_owned());
        }
        if original.len() > MAX_LENGTH {
            return Err(format!("has {} bytes; at most {MAX_LENGTH} are allowed", original.len()));
        }
        let ignores_case = match case {
            LetterCase::Distinct => false,
            LetterCase::Ignored => true,
            LetterCase::Smart => !has_upper_case(&wanted),
        };
        let compile = |pattern: &str| {
            RegexBuilder::new(pattern)
                .case_insensitive(ignores_case)
                .size_limit(MAX_COMPILED)
                .dfa_size_limit(MAX_COMPILED)
                .build()
                .map_err(|error| format!("is not a regular expression: {error}"))
        };
        let mut regex = compile(&pattern)?;
        if boundaries == Boundaries::WholeWords {
            // The pattern was compiled on its own first, so that its brackets cannot close this group.
            pattern = format!(r"\b{{start-half}}(?:{pattern})\b{{end-half}}");
            regex = compile(&pattern)?;
        }
        let syntax = regex_syntax::Parser::new().parse(&pattern);
        let has_no_anchors = syntax.is_ok_and(|syntax| !syntax.properties().look_set().contains_anchor());
        Ok(Self { regex, has_no_anchors })
    }

    /// Whether a line of the text may contain a match. If this function returns false, no line contains a match. One
    /// check of the whole text takes much less time than one check of each line.
    pub(crate) fn may_match_a_line_of(&self, text: &str) -> bool {
        !self.has_no_anchors || self.regex.is_match(text)
    }

    /// Whether the line contains a match.
    pub fn matches(&self, line: &str) -> bool {
        self.regex.is_match(line)
    }

    /// Returns the byte offset of the first match in the line.
    pub(crate) fn first_match(&self, line: &str) -> Option<usize> {
        self.regex.find(line).map(|found| found.start())
    }
}

/// Whether a text contains an upper-case letter. In a pattern, a letter after a backslash does not count, because it
/// names a class, such as `\S`.
fn has_upper_case(wanted: &Wanted<'_>) -> bool {
    match wanted {
        Wanted::Text(text) => text.chars().any(char::is_uppercase),
        Wanted::Pattern(pattern) => {
            let mut escaped = false;
            pattern.chars().any(|character| {
                let counts = !escaped && character.is_uppercase();
                escaped = !escaped && character == '\\';
                counts
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(wanted: Wanted<'_>, case: LetterCase, boundaries: Boundaries, line: &str) -> bool {
        Expression::new(wanted, case, boundaries).expect("a valid expression").matches(line)
    }

    #[test]
    fn text_is_not_a_pattern() {
        let find = |wanted| matches(wanted, LetterCase::Distinct, Boundaries::Anywhere, "f(x) = axb");
        assert!(find(Wanted::Text("f(x)")) && !find(Wanted::Text("a.b")) && find(Wanted::Pattern("a.b")));
    }

    #[test]
    fn letter_case_can_be_ignored() {
        let find = |wanted, case, line| matches(wanted, case, Boundaries::Anywhere, line);
        assert!(!find(Wanted::Text("über"), LetterCase::Distinct, "ÜBER"));
        assert!(find(Wanted::Text("über"), LetterCase::Ignored, "ÜBER"));
        assert!(find(Wanted::Text("über"), LetterCase::Smart, "ÜBER"));
        assert!(!find(Wanted::Text("Über"), LetterCase::Smart, "ÜBER"));
        assert!(find(Wanted::Pattern(r"\Sber"), LetterCase::Smart, "ÜBER"), "`\\S` is a class, not a letter");
        assert!(!find(Wanted::Pattern(r"\\Sber"), LetterCase::Smart, r"\SBER"), "here `S` is a letter");
    }

    #[test]
    fn whole_words_have_boundaries() {
        let find = |wanted, line| matches(wanted, LetterCase::Distinct, Boundaries::WholeWords, line);
        assert!(find(Wanted::Text("cat"), "a cat sat") && !find(Wanted::Text("cat"), "concatenate"));
        assert!(find(Wanted::Pattern("one|two"), "number two") && !find(Wanted::Pattern("one|two"), "twofold"));
        assert!(find(Wanted::Text("-x"), "run -x now"), "the text may begin with another character than a letter");
    }

    #[test]
    fn check_of_the_whole_text_hides_no_line() {
        let texts = ["ab\ncd", "ab\r\ncd\r\n", "\nab", "a\u{2028}b", "a b\n\nab c", "AB", "", "é\nab é", "a\rb"];
        let patterns = [
            "ab",
            "^ab",
            "ab$",
            r"\Aab\z",
            "(?m)^ab$",
            "(?-m)ab$",
            r"\bab\b",
            r"\Bb",
            r"b\b",
            "[^a]",
            r"\s",
            "a.b",
            "(?s)a.",
            r"(?:^|x)ab",
            "c?d$|AB",
            r"\bab(?:\b|$)",
            "a*",
            r"\B",
        ];
        for pattern in patterns {
            for boundaries in [Boundaries::Anywhere, Boundaries::WholeWords] {
                let expression = Expression::new(Wanted::Pattern(pattern), LetterCase::Distinct, boundaries);
                let expression = expression.expect("a valid expression");
                for text in texts {
                    let a_line_matches = text.lines().any(|line| expression.matches(line));
                    let may_match = expression.may_match_a_line_of(text);
                    assert!(may_match || !a_line_matches, "{pattern} {boundaries:?} {text:?}");
                }
            }
        }
        let text = Expression::new(Wanted::Text("ab"), LetterCase::Ignored, Boundaries::WholeWords);
        assert!(text.is_ok_and(|text| !text.may_match_a_line_of("abc")));
    }

    #[test]
    fn rejects_invalid_and_too_large_expressions() {
        for pattern in ["", "(", "a)(b", r"(?=a)", r"(a)\1", "(a{1000}){1000}", &"a".repeat(1_001)] {
            for boundaries in [Boundaries::Anywhere, Boundaries::WholeWords] {
                let made = Expression::new(Wanted::Pattern(pattern), LetterCase::Distinct, boundaries);
                assert!(made.is_err(), "{pattern} {boundaries:?}");
            }
        }
    }
}
