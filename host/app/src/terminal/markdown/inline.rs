//! The marks within a line: emphasis, code, links, escapes. What may still become a mark is left unread until it is
//! decided: by its other end, by the end of the line, or because the other end is too far away to be waited for.

use super::{CODE, Look};
use crate::terminal::DIM;
use anstyle::Style;

/// Bytes between the ends of a mark. Text is held back for at most so long.
const FARTHEST: usize = 600;

/// Whether more of a line may come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// It may.
    Open,
    /// The line is over.
    Over,
}

/// Reads one line, piece by piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Inline {
    look: Look,
    style: Style,
    /// The last character that was read.
    before: char,
}

/// What stands at a place that may begin a mark.
enum Found {
    /// Not yet known.
    Undecided,
    /// So many bytes that mean themselves.
    Plain(usize),
    /// A mark: its bytes, and what is shown for it.
    Mark(usize, Vec<(Style, String)>),
}

impl Inline {
    /// The beginning of a line whose text has this style.
    pub(super) fn new(look: Look, style: Style) -> Self {
        Self { look, style, before: ' ' }
    }

    /// Reads what is decided and returns how many bytes that is; all of them where the line is over.
    pub(super) fn read(&mut self, text: &str, ending: Ending, put: &mut dyn FnMut(Style, &str)) -> usize {
        if self.look == Look::Plain {
            put(self.style, text);
            return text.len();
        }
        let mut done = 0;
        while let Some(character) = text[done..].chars().next() {
            match self.found(&text[done..], character, ending) {
                Found::Undecided => break,
                Found::Plain(length) => {
                    put(self.style, &text[done..done + length]);
                    done += length;
                }
                Found::Mark(length, shown) => {
                    shown.iter().for_each(|(style, text)| put(*style, text));
                    done += length;
                }
            }
            self.before = text[..done].chars().next_back().unwrap_or(self.before);
        }
        done
    }

    fn found(&self, text: &str, character: char, ending: Ending) -> Found {
        match character {
            '\\' => escape(self.style, text, ending),
            '`' => self.code(text, ending),
            '*' | '_' | '~' => self.emphasis(text, character, ending),
            '[' => self.link(text, 0, ending),
            '!' if text.len() == 1 && ending == Ending::Open => Found::Undecided,
            '!' if text[1..].starts_with('[') => self.link(text, 1, ending),
            '<' => self.address(text, ending),
            _ => {
                let special = |character: char| matches!(character, '\\' | '`' | '*' | '_' | '~' | '[' | '!' | '<');
                let first = character.len_utf8();
                Found::Plain(text[first..].find(special).map_or(text.len(), |place| place + first))
            }
        }
    }

    /// `` `code` ``, between runs of the same length.
    fn code(&self, text: &str, ending: Ending) -> Found {
        let length = run(text, '`');
        if length == text.len() && ending == Ending::Open {
            return Found::Undecided;
        }
        let window = Window::of(&text[length..], ending);
        let Some(end) = run_of(window.text, '`', length) else { return window.otherwise(length) };
        if window.is_at_end(end + length) {
            return Found::Undecided;
        }
        let inside = &window.text[..end];
        let spaced = inside.strip_prefix(' ').and_then(|inside| inside.strip_suffix(' '));
        let inside = spaced.filter(|inside| !inside.trim().is_empty()).unwrap_or(inside);
        Found::Mark(length + end + length, vec![(over(self.style, CODE), inside.to_owned())])
    }

    /// `*italic*`, `**bold**`, `***both***`, the same with `_`, and `~~struck~~`.
    fn emphasis(&self, text: &str, mark: char, ending: Ending) -> Found {
        let length = run(text, mark);
        let Some(next) = text[length..].chars().next() else {
            return if ending == Ending::Open { Found::Undecided } else { Found::Plain(length) };
        };
        // As in `snake_case` and `2*3*4`.
        let within_word = self.before.is_ascii_alphanumeric() && !(mark == '*' && length == 2);
        let Some(style) = emphasised(self.style, mark, length) else { return Found::Plain(length) };
        if next.is_whitespace() || within_word {
            return Found::Plain(length);
        }
        let window = Window::of(&text[length..], ending);
        match closer(&window, mark, length) {
            Closer::Undecided => Found::Undecided,
            Closer::None => window.otherwise(length),
            Closer::At(end) => {
                let mut shown = Vec::new();
                let mut inner = Inline { look: self.look, style, before: mark };
                inner.read(&window.text[..end], Ending::Over, &mut |style, text| shown.push((style, text.to_owned())));
                Found::Mark(length + end + length, shown)
            }
        }
    }

    /// `[text](address)`, or a picture, which has a `!` before it.
    fn link(&self, text: &str, bang: usize, ending: Ending) -> Found {
        let start = bang + 1;
        let window = Window::of(&text[start..], ending);
        let Some(end) = balanced(window.text, '[', ']') else { return window.otherwise(start) };
        if window.is_at_end(end + 1) {
            return Found::Undecided;
        }
        if !window.text[end + 1..].starts_with('(') {
            return Found::Plain(start);
        }
        let address = &window.text[end + 2..];
        let Some(length) = balanced(address, '(', ')') else { return window.otherwise(start) };
        let (label, address) = (&window.text[..end], address[..length].trim());
        let whole = start + end + 2 + length + 1;
        let mut shown = Vec::new();
        let style = if bang == 0 { self.style.underline() } else { self.style };
        let mut inner = Inline { look: self.look, style, before: '[' };
        inner.read(label, Ending::Over, &mut |style, text| shown.push((style, text.to_owned())));
        if !address.is_empty() && address != label {
            let space = if label.is_empty() { "" } else { " " };
            shown.push((over(self.style, DIM), format!("{space}({address})")));
        }
        Found::Mark(whole, shown)
    }

    /// `<https://example.com>`; any other `<` means itself.
    fn address(&self, text: &str, ending: Ending) -> Found {
        let window = Window::of(&text[1..], ending);
        let Some(end) = window.text.find(|character: char| character == '>' || character.is_whitespace()) else {
            return window.otherwise(1);
        };
        let inside = &window.text[..end];
        if !window.text[end..].starts_with('>') || !(inside.contains("://") || inside.starts_with("mailto:")) {
            return Found::Plain(1);
        }
        Found::Mark(1 + end + 1, vec![(self.style.underline(), inside.to_owned())])
    }
}

/// How far the other end of a mark is looked for.
struct Window<'t> {
    text: &'t str,
    /// Whether nothing that comes later can change what is found here.
    ending: Ending,
}

impl<'t> Window<'t> {
    fn of(text: &'t str, ending: Ending) -> Self {
        match text.len() > FARTHEST {
            true => Self { text: &text[..text.floor_char_boundary(FARTHEST)], ending: Ending::Over },
            false => Self { text, ending },
        }
    }

    /// The other end is not there: then the mark means itself, unless the other end may come yet.
    fn otherwise(&self, length: usize) -> Found {
        if self.ending == Ending::Open { Found::Undecided } else { Found::Plain(length) }
    }

    /// Whether the place is the end of what is known so far, so that a run there may still grow.
    fn is_at_end(&self, place: usize) -> bool {
        self.ending == Ending::Open && place >= self.text.len()
    }
}

enum Closer {
    Undecided,
    None,
    At(usize),
}

/// Where an emphasis of `length` marks ends; code and escapes within it don't end it.
fn closer(window: &Window<'_>, mark: char, length: usize) -> Closer {
    let text = window.text;
    let open = window.ending == Ending::Open;
    let mut place = 0;
    while let Some(character) = text[place..].chars().next() {
        let rest = &text[place..];
        if character == '\\' {
            place += 1 + rest[1..].chars().next().map_or(0, char::len_utf8);
        } else if character == '`' {
            let ticks = run(rest, '`');
            match run_of(&rest[ticks..], '`', ticks) {
                Some(end) => place += ticks + end + ticks,
                None if open => return Closer::Undecided,
                None => place += ticks,
            }
        } else if character == mark {
            let marks = run(rest, mark);
            let after = rest[marks..].chars().next();
            if after.is_none() && open {
                return Closer::Undecided;
            }
            let before = text[..place].chars().next_back().unwrap_or(' ');
            let fits = marks == length || (marks > length && marks != 2);
            let within_word = after.is_some_and(|after| after.is_ascii_alphanumeric()) && !(mark == '*' && length == 2);
            if fits && !before.is_whitespace() && !within_word {
                return Closer::At(place + marks - length);
            }
            place += marks;
        } else {
            place += character.len_utf8();
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

/// One style over another.
fn over(below: Style, above: Style) -> Style {
    let style = below | above.get_effects();
    if above.get_fg_color().is_some() { style.fg_color(above.get_fg_color()) } else { style }
}

fn escape(style: Style, text: &str, ending: Ending) -> Found {
    match text[1..].chars().next() {
        Some(next) if next.is_ascii_punctuation() => Found::Mark(2, vec![(style, next.into())]),
        Some(_) => Found::Plain(1),
        None if ending == Ending::Open => Found::Undecided,
        // A line's last character: the line is broken here anyway.
        None => Found::Mark(1, Vec::new()),
    }
}

/// Length of the run of a character at the beginning.
fn run(text: &str, character: char) -> usize {
    text.len() - text.trim_start_matches(character).len()
}

/// Where the next run of exactly this length is.
fn run_of(text: &str, character: char, length: usize) -> Option<usize> {
    let mut place = 0;
    loop {
        place += text[place..].find(character)?;
        match run(&text[place..], character) {
            found if found == length => return Some(place),
            other => place += other,
        }
    }
}

/// Where the bracket is closed that was opened just before the text.
fn balanced(text: &str, open: char, close: char) -> Option<usize> {
    let (mut depth, mut escaped) = (0_usize, false);
    for (place, character) in text.char_indices() {
        if escaped {
            escaped = false;
        } else if character == '\\' {
            escaped = true;
        } else if character == open {
            depth += 1;
        } else if character == close {
            if depth == 0 {
                return Some(place);
            }
            depth -= 1;
        }
    }
    None
}
