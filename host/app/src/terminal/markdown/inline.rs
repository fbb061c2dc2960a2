//! Renders the marks within a line: emphasis, code, links and escapes. The renderer holds back the text after a
//! possible opening mark until the closing mark arrives, the line ends, or the text that is held back has reached a
//! maximum length.

use super::{CODE, Rendering};
use crate::terminal::DIM;
use anstyle::Style;

/// Maximum distance in bytes between an opening mark and its closing mark. While the renderer waits for a closing mark,
/// it holds back at most this amount of text.
const MAX_DISTANCE: usize = 600;

/// Whether the text of a line is complete, or more text of the line may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// More text of the line may follow.
    Open,
    /// The line is complete.
    Over,
}

/// Renderer for one line that arrives in pieces.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inline {
    rendering: Rendering,
    style: Style,
    /// The last character that was read.
    before: char,
}

/// Token at the start of the unread text.
enum Token {
    /// More text is needed to recognise the token.
    Undecided,
    /// Plain text, with its length in bytes.
    Plain(usize),
    /// A mark with its contents: the length of the source text in bytes, and the styled text to show.
    Mark(usize, Vec<(Style, String)>),
}

impl Inline {
    /// Creates a renderer for a line whose plain text has the style `style`.
    pub(super) fn new(rendering: Rendering, style: Style) -> Self {
        Self { rendering, style, before: ' ' }
    }

    /// Renders the part at the beginning of the text whose appearance later text cannot change, and returns the length
    /// of this part in bytes. If the line is complete, all of the text is rendered.
    pub(super) fn read(&mut self, text: &str, ending: Ending, put: &mut dyn FnMut(Style, &str)) -> usize {
        if self.rendering == Rendering::Plain {
            put(self.style, text);
            return text.len();
        }
        let mut done = 0;
        while let Some(character) = text[done..].chars().next() {
            match self.token(&text[done..], character, ending) {
                Token::Undecided => break,
                Token::Plain(length) => {
                    put(self.style, &text[done..done + length]);
                    done += length;
                }
                Token::Mark(length, shown) => {
                    shown.iter().for_each(|(style, text)| put(*style, text));
                    done += length;
                }
            }
            self.before = text[..done].chars().next_back().unwrap_or(self.before);
        }
        done
    }

    fn token(&self, text: &str, character: char, ending: Ending) -> Token {
        match character {
            '\\' => escape(self.style, text, ending),
            '`' => self.code(text, ending),
            '*' | '_' | '~' => self.emphasis(text, character, ending),
            '[' => self.link(text, 0, ending),
            '!' if text.len() == 1 && ending == Ending::Open => Token::Undecided,
            '!' if text[1..].starts_with('[') => self.link(text, 1, ending),
            '<' => self.address(text, ending),
            _ => {
                let special = |character: char| matches!(character, '\\' | '`' | '*' | '_' | '~' | '[' | '!' | '<');
                let first = character.len_utf8();
                Token::Plain(text[first..].find(special).map_or(text.len(), |position| position + first))
            }
        }
    }

    /// Inline code between two runs of backticks of the same length.
    fn code(&self, text: &str, ending: Ending) -> Token {
        let length = run_length(text, '`');
        if length == text.len() && ending == Ending::Open {
            return Token::Undecided;
        }
        let window = Window::of(&text[length..], ending);
        let Some(end) = position_of_run(window.text, '`', length) else { return window.without_closer(length) };
        if window.is_at_end(end + length) {
            return Token::Undecided;
        }
        let inside = &window.text[..end];
        let spaced = inside.strip_prefix(' ').and_then(|inside| inside.strip_suffix(' '));
        let inside = spaced.filter(|inside| !inside.trim().is_empty()).unwrap_or(inside);
        Token::Mark(length + end + length, vec![(overlaid(self.style, CODE), inside.to_owned())])
    }

    /// Recognises emphasis at the start of the text: `*italic*`, `**bold**`, `***bold italic***` or `~~struck~~`.
    /// Emphasis can also be written with underscores in place of the asterisks.
    fn emphasis(&self, text: &str, mark: char, ending: Ending) -> Token {
        let length = run_length(text, mark);
        let Some(next) = text[length..].chars().next() else {
            return if ending == Ending::Open { Token::Undecided } else { Token::Plain(length) };
        };
        // Marks within a word, such as `snake_case` or `2*3*4`, are plain text.
        let within_word = self.before.is_ascii_alphanumeric() && !(mark == '*' && length == 2);
        let Some(style) = emphasised(self.style, mark, length) else { return Token::Plain(length) };
        if next.is_whitespace() || within_word {
            return Token::Plain(length);
        }
        let window = Window::of(&text[length..], ending);
        match closer(&window, mark, length) {
            Closer::Undecided => Token::Undecided,
            Closer::None => window.without_closer(length),
            Closer::At(end) => {
                let mut shown = Vec::new();
                let mut inner = Inline { rendering: self.rendering, style, before: mark };
                inner.read(&window.text[..end], Ending::Over, &mut |style, text| shown.push((style, text.to_owned())));
                Token::Mark(length + end + length, shown)
            }
        }
    }

    /// Recognises a link `[text](address)` or an image `![text](address)` at the start of the text. `bang` is the
    /// length of the `!`, so it is 1 for an image and 0 for a link.
    fn link(&self, text: &str, bang: usize, ending: Ending) -> Token {
        let start = bang + 1;
        let window = Window::of(&text[start..], ending);
        let Some(end) = balanced(window.text, '[', ']') else { return window.without_closer(start) };
        if window.is_at_end(end + 1) {
            return Token::Undecided;
        }
        if !window.text[end + 1..].starts_with('(') {
            return Token::Plain(start);
        }
        let address = &window.text[end + 2..];
        let Some(length) = balanced(address, '(', ')') else { return window.without_closer(start) };
        let (label, address) = (&window.text[..end], address[..length].trim());
        let whole = start + end + 2 + length + 1;
        let mut shown = Vec::new();
        let style = if bang == 0 { self.style.underline() } else { self.style };
        let mut inner = Inline { rendering: self.rendering, style, before: '[' };
        inner.read(label, Ending::Over, &mut |style, text| shown.push((style, text.to_owned())));
        if !address.is_empty() && address != label {
            let space = if label.is_empty() { "" } else { " " };
            shown.push((overlaid(self.style, DIM), format!("{space}({address})")));
        }
        Token::Mark(whole, shown)
    }

    /// Recognises an address in angle brackets, such as `<https://example.com>`. A `<` that does not begin an address
    /// is plain text.
    fn address(&self, text: &str, ending: Ending) -> Token {
        let window = Window::of(&text[1..], ending);
        let Some(end) = window.text.find(|character: char| character == '>' || character.is_whitespace()) else {
            return window.without_closer(1);
        };
        let inside = &window.text[..end];
        if !window.text[end..].starts_with('>') || !(inside.contains("://") || inside.starts_with("mailto:")) {
            return Token::Plain(1);
        }
        Token::Mark(1 + end + 1, vec![(self.style.underline(), inside.to_owned())])
    }
}

/// The text in which the renderer looks for the closing mark.
struct Window<'t> {
    text: &'t str,
    /// `Over` if text that arrives later cannot change the result of the search.
    ending: Ending,
}

impl<'t> Window<'t> {
    fn of(text: &'t str, ending: Ending) -> Self {
        match text.len() > MAX_DISTANCE {
            true => Self { text: &text[..text.floor_char_boundary(MAX_DISTANCE)], ending: Ending::Over },
            false => Self { text, ending },
        }
    }

    /// Returns the token for an opening mark whose closing mark was not found. The token is undecided if the closing
    /// mark may still arrive. If the line is complete, the token is plain text of `length` bytes.
    fn without_closer(&self, length: usize) -> Token {
        if self.ending == Ending::Open { Token::Undecided } else { Token::Plain(length) }
    }

    /// Returns true if text that arrives later may follow at this position, so that a run of marks that ends here may
    /// still become longer.
    fn is_at_end(&self, position: usize) -> bool {
        self.ending == Ending::Open && position >= self.text.len()
    }
}

/// The closing marks of an emphasis.
enum Closer {
    /// More text is needed to find the closing marks.
    Undecided,
    /// The text contains no closing marks.
    None,
    /// Byte offset of the closing marks in the text.
    At(usize),
}

/// Finds the closing marks of an emphasis of `length` marks. Ignores escaped marks and marks within code.
fn closer(window: &Window<'_>, mark: char, length: usize) -> Closer {
    let text = window.text;
    let open = window.ending == Ending::Open;
    let mut position = 0;
    while let Some(character) = text[position..].chars().next() {
        let rest = &text[position..];
        if character == '\\' {
            position += 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
        } else if character == '`' {
            let ticks = run_length(rest, '`');
            match position_of_run(&rest[ticks..], '`', ticks) {
                Some(end) => position += ticks + end + ticks,
                None if open => return Closer::Undecided,
                None => position += ticks,
            }
        } else if character == mark {
            let marks = run_length(rest, mark);
            let after = rest[marks..].chars().next();
            if after.is_none() && open {
                return Closer::Undecided;
            }
            let before = text[..position].chars().next_back().unwrap_or(' ');
            let fits = marks == length || (marks > length && marks != 2);
            let within_word = after.is_some_and(|after| after.is_ascii_alphanumeric()) && !(mark == '*' && length == 2);
            if fits && !before.is_whitespace() && !within_word {
                return Closer::At(position + marks - length);
            }
            position += marks;
        } else {
            position += character.len_utf8();
        }
    }
    if open { Closer::Undecided } else { Closer::None }
}

fn emphasised(style: Style, mark: char, length: usize) -> Option<Style> {
    match (mark, length) {
        ('~', 2) => Some(style.strikethrough()),
        ('~', _) => None,
        (_, 1) => Some(style.italic()),
        (_, 2) => Some(style.bold()),
        (_, 3) => Some(style.bold().italic()),
        _ => None,
    }
}

/// Applies the style `above` on top of `below`.
fn overlaid(below: Style, above: Style) -> Style {
    let style = below | above.get_effects();
    if above.get_fg_color().is_some() { style.fg_color(above.get_fg_color()) } else { style }
}

fn escape(style: Style, text: &str, ending: Ending) -> Token {
    match text[1..].chars().next() {
        Some(next) if next.is_ascii_punctuation() => Token::Mark(2, vec![(style, next.into())]),
        Some(_) => Token::Plain(1),
        None if ending == Ending::Open => Token::Undecided,
        // In Markdown, a backslash at the end of a line is a line break. The renderer keeps all line breaks anyway, so
        // it writes nothing for the backslash.
        None => Token::Mark(1, Vec::new()),
    }
}

/// Returns the length, in bytes, of the sequence of equal characters at the start of the text.
fn run_length(text: &str, character: char) -> usize {
    text.len() - text.trim_start_matches(character).len()
}

/// Returns the position, in bytes, of the next sequence of equal characters that has exactly this length. Returns None
/// if the text contains no such sequence.
fn position_of_run(text: &str, character: char, length: usize) -> Option<usize> {
    let mut position = 0;
    loop {
        position += text[position..].find(character)?;
        match run_length(&text[position..], character) {
            found if found == length => return Some(position),
            other => position += other,
        }
    }
}

/// Returns the position, in bytes, of the bracket that closes an open bracket just before the text. Returns None if the
/// text contains no such bracket.
fn balanced(text: &str, open: char, close: char) -> Option<usize> {
    let (mut depth, mut escaped) = (0_usize, false);
    for (position, character) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if character == '\\' {
            escaped = true;
        } else if character == open {
            depth += 1;
        } else if character == close {
            if depth == 0 {
                return Some(position);
            }
            depth -= 1;
        }
    }
    None
}
