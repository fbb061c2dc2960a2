//! Tells arithmetic from dates, versions and ranges.

/// What a run of digits, operators and parentheses is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// A number alone.
    Number,
    /// At least one operation.
    Expression,
    /// Punctuation only.
    Nothing,
    /// Something with digits that is neither.
    Unclear,
}

/// Deepest nesting of parentheses that is looked at.
const DEPTH: usize = 100;

/// Whether the character may stand in arithmetic.
pub(super) fn allows(character: char) -> bool {
    character.is_ascii_digit() || ".()".contains(character) || is_operator(character)
}

/// What the text is; it holds only characters that arithmetic allows, and spaces.
pub(super) fn classify(text: &str) -> Run {
    if !text.contains(|character: char| character.is_ascii_digit()) {
        return Run::Nothing;
    }
    if is_date(text) {
        return Run::Unclear;
    }
    let mut reader = Reader { rest: text.trim(), operations: 0, depth: 0 };
    match reader.sum() && reader.rest.is_empty() {
        true if reader.operations > 0 => Run::Expression,
        true if !text.contains('(') => Run::Number,
        _ => Run::Unclear,
    }
}

fn is_operator(character: char) -> bool {
    "+-*/^%×÷−".contains(character)
}

/// `2024-01-15`, `15/01/2024`.
fn is_date(text: &str) -> bool {
    ['-', '/'].iter().any(|separator| {
        let fields: Vec<&str> = text.split(*separator).collect();
        let digits = |field: &&str| !field.is_empty() && field.bytes().all(|byte| byte.is_ascii_digit());
        fields.len() == 3 && fields.iter().all(digits) && fields.iter().any(|field| field.len() == 4)
    })
}

struct Reader<'a> {
    rest: &'a str,
    operations: usize,
    depth: usize,
}

impl Reader<'_> {
    /// Operands with operators between them; which binds closer does not matter here.
    fn sum(&mut self) -> bool {
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
        if self.depth > DEPTH || !self.sum() {
            return false;
        }
        self.depth -= 1;
        let closed = self.rest.strip_prefix(')');
        self.rest = closed.unwrap_or(self.rest);
        closed.is_some()
    }

    fn number(&mut self) -> bool {
        let whole = self.digits();
        match self.rest.strip_prefix('.') {
            Some(rest) => {
                self.rest = rest;
                self.digits()
            }
            None => whole,
        }
    }

    fn digits(&mut self) -> bool {
        let rest = self.rest.trim_start_matches(|character: char| character.is_ascii_digit());
        let some = rest.len() < self.rest.len();
        self.rest = rest;
        some
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_told_from_the_rest() {
        let cases = [
            ("2+2", Run::Expression),
            ("(1 + 2) * -3 / 4.5", Run::Expression),
            ("2 ** 10", Run::Expression),
            ("3 × 4 ÷ 2", Run::Expression),
            ("3/4", Run::Expression),
            ("((((1))))+1", Run::Expression),
            ("42", Run::Number),
            ("-4.5", Run::Number),
            (".5", Run::Number),
            ("-", Run::Nothing),
            ("( )", Run::Nothing),
            ("12%", Run::Unclear),
            ("+ 4", Run::Unclear),
            ("2 2", Run::Unclear),
            ("1.2.3", Run::Unclear),
            ("5.", Run::Unclear),
            ("(1+2", Run::Unclear),
            ("(2)", Run::Unclear),
            ("1+2)", Run::Unclear),
            ("2024-01-15", Run::Unclear),
            ("15/01/2024", Run::Unclear),
        ];
        for (text, expected) in cases {
            assert_eq!(classify(text), expected, "{text}");
        }
        assert_eq!(classify(&format!("{}1+1", "(".repeat(100_000))), Run::Unclear);
    }
}
