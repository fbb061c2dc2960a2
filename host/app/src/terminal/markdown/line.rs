//! Recognises the kind of a line from its start, as soon as the start is unambiguous.

use super::inline::Ending;

/// Width of a tab in columns.
const TAB: usize = 4;

/// Kind of a line of Markdown, which decides how the line is rendered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// An empty line.
    Blank,
    /// A line that starts with `>`. The text after the `>` is a line within the quote.
    Quote,
    /// A heading that starts with this number of `#` characters.
    Heading(usize),
    /// A list item with this mark, which is `-`, `*`, `+` or a number such as `1.`.
    Item(String),
    /// A horizontal rule, such as `---`.
    Rule,
    /// The first line of a code block, which starts with three or more backticks or tildes.
    Fence(Fence),
    /// A line that starts with `|` and may be a table row.
    Row,
    /// A line of plain text, which has none of the marks above.
    Text,
}

/// The start of a code block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fence {
    /// Character of the fence: a backtick or a tilde.
    pub(super) mark: char,
    /// Number of backticks or tildes in the fence. The closing fence has at least this many characters.
    pub(super) length: usize,
    /// Text after the fence, usually the language.
    pub(super) info: String,
}

impl Fence {
    /// Returns true if the line closes the block.
    pub(super) fn is_closed_by(&self, line: &str) -> bool {
        let line = line.trim();
        line.len() >= self.length && line.chars().all(|character| character == self.mark)
    }

    /// Returns true if a line that begins with this text may close the block.
    pub(super) fn may_be_closed_by(&self, line: &str) -> bool {
        line.trim().chars().all(|character| character == self.mark)
    }
}

/// The recognised start of a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Start {
    /// Width of the indentation, in columns.
    pub(super) indent: usize,
    /// Kind of the line, which follows from its first characters.
    pub(super) kind: Kind,
    /// Length in bytes of the indentation and marks before the text.
    pub(super) length: usize,
}

/// Recognises the start of a line. Returns None if the kind depends on text of the line that has not arrived yet.
pub(super) fn start(line: &str, ending: Ending) -> Option<Start> {
    let rest = line.trim_start_matches([' ', '\t']);
    let blank = &line[..line.len() - rest.len()];
    let indent = blank.chars().map(|character| if character == '\t' { TAB } else { 1 }).sum();
    let at = |kind, length| Some(Start { indent, kind, length: blank.len() + length });
    let Some(first) = rest.chars().next() else {
        return if ending == Ending::Over { at(Kind::Blank, 0) } else { None };
    };
    match first {
        '>' => {
            let more = rest.len() > 1 || ending == Ending::Over;
            more.then(|| at(Kind::Quote, if rest[1..].starts_with(' ') { 2 } else { 1 }))?
        }
        '|' => at(Kind::Row, 0),
        '#' => {
            let (kind, length) = heading(rest, ending)?;
            at(kind, length)
        }
        '`' | '~' => {
            let (kind, length) = fence(rest, first, ending)?;
            at(kind, length)
        }
        '-' | '*' | '_' | '+' => {
            let (kind, length) = rule_or_item(rest, first, ending)?;
            at(kind, length)
        }
        '0'..='9' => {
            let (kind, length) = number(rest, ending)?;
            at(kind, length)
        }
        _ => at(Kind::Text, 0),
    }
}

fn heading(rest: &str, ending: Ending) -> Option<(Kind, usize)> {
    let text = rest.trim_start_matches('#');
    let level = rest.len() - text.len();
    let words = text.trim_start();
    if words.is_empty() && ending == Ending::Open {
        return None;
    }
    let is_heading = level <= 6 && (words.len() < text.len() || text.is_empty());
    Some(if is_heading { (Kind::Heading(level), rest.len() - words.len()) } else { (Kind::Text, 0) })
}

fn fence(rest: &str, mark: char, ending: Ending) -> Option<(Kind, usize)> {
    let info = rest.trim_start_matches(mark);
    let length = rest.len() - info.len();
    if info.is_empty() && ending == Ending::Open {
        return None;
    }
    if length < 3 || (mark == '`' && info.contains('`')) {
        return Some((Kind::Text, 0));
    }
    // The complete line is needed, because further backticks in the rest of the line would mean that the line is inline
    // code and not a fence.
    if ending == Ending::Open {
        return None;
    }
    let info = info.trim().to_owned();
    Some((Kind::Fence(Fence { mark, length, info }), rest.len()))
}

fn rule_or_item(rest: &str, mark: char, ending: Ending) -> Option<(Kind, usize)> {
    let marks = rest.chars().filter(|character| *character == mark).count();
    let nothing_else = rest.chars().all(|character| character == mark || character == ' ');
    match (nothing_else, ending) {
        (true, Ending::Open) => return None,
        (true, Ending::Over) if marks >= 3 && mark != '+' => return Some((Kind::Rule, rest.len())),
        _ => {}
    }
    if mark == '_' || !(rest.len() == 1 || rest[1..].starts_with([' ', '\t'])) {
        return Some((Kind::Text, 0));
    }
    item(rest, 1, ending)
}

fn number(rest: &str, ending: Ending) -> Option<(Kind, usize)> {
    let after = rest.trim_start_matches(|character: char| character.is_ascii_digit());
    let digits = rest.len() - after.len();
    if digits > 9 {
        return Some((Kind::Text, 0));
    }
    let is_open = ending == Ending::Open;
    match after.chars().next() {
        None if is_open => None,
        Some('.' | ')') if after.len() == 1 && is_open => None,
        Some('.' | ')') if after.len() == 1 || after[1..].starts_with([' ', '\t']) => item(rest, digits + 1, ending),
        _ => Some((Kind::Text, 0)),
    }
}

/// Recognises a list item whose mark has this length in bytes. Returns None until the text of the item starts.
fn item(rest: &str, mark: usize, ending: Ending) -> Option<(Kind, usize)> {
    let text = rest[mark..].trim_start();
    if text.is_empty() && ending == Ending::Open {
        return None;
    }
    Some((Kind::Item(rest[..mark].to_owned()), rest.len() - text.len()))
}
