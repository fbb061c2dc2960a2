//! Wraps words into terminal lines. Output is only appended, never redrawn.

use anstyle::{Effects, Style};
use unicode_width::{UnicodeWidthChar, UnicodeWidthStr};

/// Minimum number of columns for the words of a wrapped line. If the prefix leaves fewer columns, the prefix
/// is omitted.
const MIN_COLUMNS: usize = 10;
/// Width of a tab in columns.
const TAB: usize = 4;

/// Text before the words of a line, such as an indentation or a list mark.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Prefix {
    text: String,
    width: usize,
}

impl Prefix {
    /// Creates a prefix of `number` spaces.
    pub(crate) fn spaces(number: usize) -> Self {
        Self { text: " ".repeat(number), width: number }
    }

    /// Returns the width of the prefix in columns.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Appends text in this style to the prefix.
    pub(crate) fn with(mut self, style: Style, text: &str) -> Self {
        write_styled(&mut self.text, style, text);
        self.width += text.width();
        self
    }

    /// Appends another prefix to this prefix.
    pub(crate) fn followed_by(mut self, other: Prefix) -> Self {
        self.text.push_str(&other.text);
        self.width += other.width;
        self
    }

    /// Returns the text of the prefix without trailing spaces.
    pub(crate) fn trimmed(&self) -> &str {
        self.text.trim_end()
    }
}

/// A writer that wraps words into lines. The writer buffers each word until the word is complete, because it cannot
/// know earlier whether the word fits on the line.
#[derive(Clone, Debug)]
pub(crate) struct Flow {
    /// Width of a line in columns.
    width: usize,
    /// Column at which the next output starts.
    column: usize,
    /// If a line is wrapped, the prefix of each of its output lines after the first.
    hanging: Prefix,
    /// Styled parts of the word that is not complete yet.
    word: Vec<(Style, String)>,
    word_width: usize,
    /// Number of spaces that precede the word and are not written yet.
    spaces: usize,
    /// Style of the last word on this line.
    last: Style,
    out: String,
}

impl Flow {
    /// Creates a writer for lines of `width` columns.
    pub(crate) fn new(width: usize) -> Self {
        Self {
            width: width.max(1),
            column: 0,
            hanging: Prefix::default(),
            word: Vec::new(),
            word_width: 0,
            spaces: 0,
            last: Style::new(),
            out: String::new(),
        }
    }

    /// Sets the width, in columns, of the lines that follow.
    pub(crate) fn resize(&mut self, width: usize) {
        self.width = width.max(1);
    }

    /// Returns the width of a line in columns.
    pub(crate) fn width(&self) -> usize {
        self.width
    }

    /// Starts a line with the prefix `first`. If the line is wrapped, each following part of it starts with `hanging`.
    pub(crate) fn begin(&mut self, first: &Prefix, hanging: Prefix) {
        self.out.push_str(&first.text);
        (self.column, self.last) = (first.width, Style::new());
        self.hanging = if hanging.width + MIN_COLUMNS <= self.width { hanging } else { Prefix::default() };
    }

    /// Adds text in one style. White space separates words. White space is written unchanged, except where a line
    /// is wrapped.
    pub(crate) fn put(&mut self, style: Style, text: &str) {
        for character in text.chars() {
            match character {
                ' ' => self.space(1),
                '\t' => self.space(TAB),
                _ => self.put_character(style, character),
            }
        }
    }

    /// Ends the line.
    pub(crate) fn end_line(&mut self) {
        self.end_word();
        self.spaces = 0;
        self.out.push('\n');
        self.column = 0;
    }

    /// Writes a complete line without wrapping it.
    pub(crate) fn line(&mut self, line: &str) {
        self.out.push_str(line);
        self.end_line();
    }

    /// Returns the output since the previous call.
    pub(crate) fn take(&mut self) -> String {
        std::mem::take(&mut self.out)
    }

    fn space(&mut self, columns: usize) {
        self.end_word();
        self.spaces += columns;
    }

    fn put_character(&mut self, style: Style, character: char) {
        let width = character.width().unwrap_or(0);
        // A line may break between wide characters, such as Chinese characters, but not within a joined emoji.
        if width == 2 && !self.joins(character) {
            self.end_word();
        }
        match self.word.last_mut() {
            Some((last, run)) if *last == style => run.push(character),
            _ => self.word.push((style, character.into())),
        }
        self.word_width += width;
        // A word of this width does not fit on any line and must be broken, so the writer stops buffering the word.
        if self.word_width >= self.width {
            self.end_word();
        }
    }

    /// Returns true if the character forms one emoji with the character before it.
    fn joins(&self, character: char) -> bool {
        let joined = self.word.last().is_some_and(|(_, run)| run.ends_with('\u{200d}'));
        joined || matches!(character, '\u{1f3fb}'..='\u{1f3ff}')
    }

    fn end_word(&mut self) {
        if self.word.is_empty() {
            return;
        }
        let word = std::mem::take(&mut self.word);
        self.word_width = 0;
        let width: usize = word.iter().map(|(_, run)| run.width()).sum();
        let spaces = std::mem::take(&mut self.spaces);
        if self.column + spaces + width > self.width && self.column > self.hanging.width {
            self.wrap();
        } else {
            let next = word.first().map(|(style, _)| *style).unwrap_or_default();
            write_styled(&mut self.out, space_style(self.last, next), &" ".repeat(spaces));
            self.column += spaces;
        }
        for (style, run) in word {
            self.write(style, &run);
        }
    }

    /// Writes a part of a word, and breaks the part if it does not fit on the line.
    fn write(&mut self, style: Style, run: &str) {
        let mut rest = run;
        while self.column + rest.width() > self.width {
            let fits = fitting(rest, self.width.saturating_sub(self.column));
            if fits == 0 && self.column <= self.hanging.width {
                break;
            }
            write_styled(&mut self.out, style, &rest[..fits]);
            rest = &rest[fits..];
            self.wrap();
        }
        write_styled(&mut self.out, style, rest);
        self.column += rest.width();
        self.last = style;
    }

    fn wrap(&mut self) {
        self.out.push('\n');
        self.out.push_str(&self.hanging.text);
        self.column = self.hanging.width;
    }
}

/// Returns the style of spaces between two words. An underline or strikethrough continues between words of the
/// same style.
fn space_style(last: Style, next: Style) -> Style {
    let effects = last.get_effects();
    let is_lined = effects.contains(Effects::UNDERLINE) || effects.contains(Effects::STRIKETHROUGH);
    if last == next && is_lined { last } else { Style::new() }
}

/// Returns the length, in bytes, of the longest prefix of `text` that fits into `columns` columns.
pub(crate) fn fitting(text: &str, columns: usize) -> usize {
    let mut used = 0;
    let over = text.char_indices().find(|(_, character)| {
        used += character.width().unwrap_or(0);
        used > columns
    });
    over.map_or(text.len(), |(position, _)| position)
}

/// Writes text with the escape codes of its style. If the text is empty, nothing is written.
pub(crate) fn write_styled(out: &mut String, style: Style, text: &str) {
    if text.is_empty() {
        return;
    }
    out.push_str(&format!("{style}{text}{style:#}"));
}
