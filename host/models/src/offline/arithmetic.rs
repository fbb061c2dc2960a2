//! Distinguishes arithmetic expressions from other texts with digits, such as dates, versions and ranges.

/// What a text that consists of digits, operators, points and parentheses is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RunKind {
    /// A single number without parentheses.
    Number,
    /// A valid arithmetic expression with at least one operation.
    Expression,
    /// Text without digits, which contains only operators and punctuation.
    Punctuation,
    /// Text with digits that is neither a single number nor a valid expression, such as a date.
    Unclear,
}

/// Maximum nesting depth of the parentheses in an expression.
const MAX_DEPTH: usize = 100;

/// Returns whether the character can be part of an arithmetic expression.
pub(super) fn is_allowed(character: char) -> bool {
    character.is_ascii_digit() || ".()".contains(character) || is_operator(character)
}

/// Determines the kind of a text that consists only of spaces and of characters for which [`is_allowed`] returns true.
pub(super) fn classify(text: &str) -> RunKind {
    if !text.contains(|character: char| character.is_ascii_digit()) {
        return RunKind::Punctuation;
    }
    if is_date(text) {
        return RunKind::Unclear;
    }
    let mut parser = Parser { rest: text.trim(), operations: 0, depth: 0 };
    match parser.parse_expression() && parser.rest.is_empty() {
        true if parser.operations > 0 => RunKind::Expression,
        true if !text.contains('(') => RunKind::Number,
        _ => RunKind::Unclear,
    }
}

fn is_operator(character: char) -> bool {
    "+-*/^%×÷−".contains(character)
}

/// Returns whether the text is a date such as `2024-01-15` or `15/01/2024`.
fn is_date(text: &str) -> bool {
    ['-', '/'].iter().any(|separator| {
        let fields: Vec<&str> = text.split(*separator).collect();
        let is_numeric = |field: &&str| !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit());
        fields.len() == 3 && fields.iter().all(is_numeric) && fields.iter().any(|field| field.len() == 4)
    })
}

struct Parser<'a> {
    rest: &'a str,
    operations: usize,
    depth: usize,
}

impl Parser<'_> {
    /// Parses operands with operators between them, and returns whether they form a valid expression. The precedence of
    /// operators does not matter, because the parser does not calculate anything.
    fn parse_expression(&mut self) -> bool {
        loop {
            if !self.operand() {
                return false;
            }
            self.rest = self.rest.trim_start();
            let Some(operator) = self.rest.chars().next().filter(|&character| is_operator(character)) else {
                return true;
            };
            self.operations += 1;
            self.rest = &self.rest[operator.len_utf8()..];
            if operator == '*' && self.rest.starts_with('*') {
                self.rest = &self.rest[1..];
            }
        }
    }

    fn operand(&mut self) -> bool {
        self.rest = self.rest.trim_start();
        self.rest = self.rest.strip_prefix(['-', '−']).unwrap_or(self.rest);
        let Some(inner) = self.rest.strip_prefix('(') else {
            return self.number();
        };
        self.rest = inner;
        self.depth += 1;
        if self.depth > MAX_DEPTH || !self.parse_expression() {
            return false;
        }
        self.depth -= 1;
        let after_parenthesis = self.rest.strip_prefix(')');
        self.rest = after_parenthesis.unwrap_or(self.rest);
        after_parenthesis.is_some()
    }

    fn number(&mut self) -> bool {
        let has_whole_part = self.digits();
        match self.rest.strip_prefix('.') {
            Some(rest) => {
                self.rest = rest;
                self.digits()
            }
            None => has_whole_part,
        }
    }

    fn digits(&mut self) -> bool {
        let rest = self.rest.trim_start_matches(|character: char| character.is_ascii_digit());
        let has_digits = rest.len() < self.rest.len();
        self.rest = rest;
        has_digits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_distinguished_from_other_text() {
        let cases = [
            ("2+2", RunKind::Expression),
            ("(1 + 2) * -3 / 4.5", RunKind::Expression),
            ("2 ** 10", RunKind::Expression),
            ("3 × 4 ÷ 2", RunKind::Expression),
            ("3/4", RunKind::Expression),
            ("((((1))))+1", RunKind::Expression),
            ("42", RunKind::Number),
            ("-4.5", RunKind::Number),
            (".5", RunKind::Number),
            ("-", RunKind::Punctuation),
            ("( )", RunKind::Punctuation),
            ("12%", RunKind::Unclear),
            ("+ 4", RunKind::Unclear),
            ("2 2", RunKind::Unclear),
            ("1.2.3", RunKind::Unclear),
            ("5.", RunKind::Unclear),
            ("(1+2", RunKind::Unclear),
            ("(2)", RunKind::Unclear),
            ("1+2)", RunKind::Unclear),
            ("2024-01-15", RunKind::Unclear),
            ("15/01/2024", RunKind::Unclear),
        ];
        for (text, expected) in cases {
            assert_eq!(classify(text), expected, "{text}");
        }
        assert_eq!(classify(&format!("{}1+1", "(".repeat(100_000))), RunKind::Unclear);
    }
}
