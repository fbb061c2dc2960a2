//! Reads the user's input with a line editor that has a history and completion. If the terminal does not support the
//! editor, plain lines are read.

use super::clipboard;
use super::completion::{NameCompleter, Names};
use super::history::open_history;
use crate::exit::Failure;
use crate::interrupt::{Activity, Interrupts};
use crate::terminal::markdown::Rendering;
use crate::terminal::{Terminal, YELLOW, text};
use agent_config::DataDirectory;
use agent_runtime::NewMediaItem;
use reedline::{
    ColumnarMenu, EditCommand, EditMode, Emacs, ExternalPrinter, Highlighter, KeyCode, KeyModifiers, MenuBuilder,
    Prompt, PromptEditMode, PromptHistorySearch, Reedline, ReedlineEvent, ReedlineMenu, Signal, StyledText,
    ValidationResult, Validator, default_emacs_keybindings,
};
use std::borrow::Cow;
use std::io::{BufRead, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::task::JoinHandle;

/// The prompt at the start of the input line.
const ARROW: &str = "> ";
/// Name of the menu that Tab opens.
const MENU: &str = "names";
/// Command of the line editor that suspends the process.
const SUSPEND: &str = "suspend";
/// Command of the line editor that pastes a picture from the clipboard.
const PASTE_PICTURE: &str = "paste a picture";
/// Maximum number of pictures that are pasted into one input.
const MAX_PICTURES: usize = 20;
/// Maximum length in bytes of a line that is read without the editor.
const MAX_LINE: u64 = 1 << 20;

/// An input from the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// The user entered text of one or more lines.
    Text(String),
    /// The user pressed Ctrl-C on a line that contains text. The text is discarded.
    Cleared,
    /// The user pressed Ctrl-C on an empty line.
    Interrupted,
    /// The user pressed Ctrl-D, or the input ended.
    End,
    /// The process must end, because it received a signal or the terminal was closed.
    Leave,
}

/// Reads the inputs of an interactive session.
pub(super) struct Editor {
    terminal: Terminal,
    interrupts: Interrupts,
    reader: LineReader,
    /// The pictures that were pasted into the line that is being typed, each with the mark that stands for it in the line.
    pictures: Vec<(String, NewMediaItem)>,
    /// Number of pictures that were pasted so far. Each picture has its own mark, also if an earlier line is edited again.
    pasted: usize,
}

/// What ended the reading of a line.
enum LineEnd {
    /// The user has entered an input.
    Typed(Typed),
    /// The user wants to suspend the process. The line is kept.
    Suspend,
    /// The user wants to paste a picture into the line. The line is kept.
    PastePicture,
}

/// A background task that reads one line.
type LineTask = JoinHandle<std::io::Result<Option<String>>>;

/// How the editor reads a line.
enum LineReader {
    /// A line editor.
    Full(Box<FullEditor>),
    /// A reader of plain lines. If the wait for a line was interrupted, this value contains the task that still reads
    /// the line.
    Plain(Option<LineTask>),
}

struct FullEditor {
    reedline: Reedline,
    above: PrinterAbove,
    line: Arc<LineState>,
    /// Whether the editor has read a line.
    has_worked: bool,
}

/// Maximum number of texts that are queued to be shown above the input line.
const MAX_QUEUED_TEXTS: usize = 64;

/// Shows texts above the line that is being typed, without changing the line.
#[derive(Clone, Debug)]
pub(super) struct PrinterAbove(SyncSender<String>);

impl PrinterAbove {
    /// Queues the text to be shown. If the queue is full, the text is dropped.
    pub(super) fn print(&self, text: String) {
        if self.0.try_send(text).is_err() {
            tracing::debug!("a text was dropped: too many texts wait to be shown above the line");
        }
    }
}

/// State of the input line, which the parts of the editor share.
#[derive(Debug, Default)]
struct LineState {
    /// Whether the line contains text.
    has_text: AtomicBool,
    /// The whole text of the input at each time when the user pressed Enter after a backslash.
    continued: Mutex<Vec<String>>,
}

impl Editor {
    /// Creates the line editor. If the terminal is not interactive, creates a reader of plain lines instead.
    pub(super) fn new(terminal: &Terminal, interrupts: &Interrupts, data: &DataDirectory, names: Names) -> Self {
        let reader = match terminal.is_interactive() {
            true => LineReader::Full(Box::new(FullEditor::new(terminal, interrupts, data, names))),
            false => LineReader::Plain(None),
        };
        Self { terminal: terminal.clone(), interrupts: interrupts.clone(), reader, pictures: Vec::new(), pasted: 0 }
    }

    /// Returns the printer for texts above the input line, or `None` if there is no line editor.
    pub(super) fn above(&self) -> Option<PrinterAbove> {
        match &self.reader {
            LineReader::Full(full) => Some(full.above.clone()),
            LineReader::Plain(_) => None,
        }
    }

    /// Waits for the next input.
    pub(super) async fn read(&mut self) -> Result<Typed, Failure> {
        self.pictures.clear();
        loop {
            match self.read_once().await? {
                LineEnd::Typed(typed) => return Ok(typed),
                LineEnd::Suspend => {
                    if let Err(error) = self.interrupts.suspend().await {
                        tracing::warn!("the process cannot be suspended: {error}");
                    }
                }
                LineEnd::PastePicture => self.paste_picture().await,
            }
        }
    }

    /// Returns the pictures that were pasted into the input and whose marks are still in its text.
    pub(super) fn take_pictures(&mut self, text: &str) -> Vec<NewMediaItem> {
        let pictures = std::mem::take(&mut self.pictures).into_iter();
        pictures.filter(|(mark, _)| text.contains(mark.as_str())).map(|(_, picture)| picture).collect()
    }

    /// Reads a picture from the clipboard, and inserts its mark into the line.
    async fn paste_picture(&mut self) {
        let number = self.pasted + 1;
        if self.pictures.len() == MAX_PICTURES {
            return self.warn(&format!("an input can have at most {MAX_PICTURES} pictures"));
        }
        let read = tokio::task::spawn_blocking(move || clipboard::read_picture(&format!("picture {number}"))).await;
        match read.unwrap_or_else(|error| Err(error.to_string())) {
            Ok(picture) => {
                let mark = format!("[picture {number}]");
                if let LineReader::Full(full) = &mut self.reader {
                    full.reedline.run_edit_commands(&[EditCommand::InsertString(format!("{mark} "))]);
                }
                self.pasted = number;
                self.pictures.push((mark, picture));
            }
            Err(problem) => self.warn(&problem),
        }
    }

    /// Writes a warning below the line. The editor shows the line again below the warning.
    fn warn(&self, problem: &str) {
        let line = format!("\n{YELLOW}!{YELLOW:#} {}", text::harmless(problem));
        self.terminal.note(text::wrapped(&line, self.terminal.width()));
    }

    /// Waits until the user has entered an input or pressed a key that the host handles.
    async fn read_once(&mut self) -> Result<LineEnd, Failure> {
        let mut full = match std::mem::replace(&mut self.reader, LineReader::Plain(None)) {
            LineReader::Full(full) => full,
            LineReader::Plain(reading) => return self.read_plain(reading).await.map(LineEnd::Typed),
        };
        let _token = self.interrupts.begin(Activity::Prompt);
        let reading = tokio::task::spawn_blocking(move || {
            let signal = full.read_line();
            (full, signal)
        });
        let (mut full, signal) = tokio::select! {
            read = reading => read.map_err(|error| Failure::failed(format!("the line editor failed: {error}")))?,
            // If the terminal was closed, a loop that reads again would never end, because each read returns the end
            // of input.
            () = self.terminal.hung_up() => return Ok(LineEnd::Typed(Typed::Leave)),
        };
        match signal {
            Ok(Signal::HostCommand(command)) if command == SUSPEND => {
                self.reader = LineReader::Full(full);
                Ok(LineEnd::Suspend)
            }
            Ok(Signal::HostCommand(command)) if command == PASTE_PICTURE => {
                self.reader = LineReader::Full(full);
                Ok(LineEnd::PastePicture)
            }
            Ok(Signal::HostCommand(_)) => self.interrupts.leave_at_once(&self.terminal),
            Ok(signal) => {
                let typed = full.typed(signal);
                self.reader = LineReader::Full(full);
                Ok(LineEnd::Typed(typed))
            }
            // The editor does not work, for example because the terminal does not report its cursor position.
            Err(error) => {
                tracing::warn!("the line editor does not work on this terminal, so plain lines are read: {error}");
                drop(full);
                self.read_plain(None).await.map(LineEnd::Typed)
            }
        }
    }

    /// Reads plain lines from the terminal. A line that ends in a backslash continues on the next line.
    async fn read_plain(&mut self, mut reading: Option<LineTask>) -> Result<Typed, Failure> {
        let token = self.interrupts.begin(Activity::Prompt);
        let _ = self.terminal.restore_keyboard();
        let mut text = String::new();
        let typed = loop {
            let prompt = if text.is_empty() { ARROW } else { "  " };
            self.terminal.ask(prompt).map_err(Failure::output)?;
            let mut line = reading.take().unwrap_or_else(|| tokio::task::spawn_blocking(read_line));
            let line = tokio::select! {
                line = &mut line => line.map_err(Failure::failed)?,
                () = token.cancelled() => {
                    self.reader = LineReader::Plain(Some(line));
                    break if self.interrupts.is_exiting() { Typed::Leave } else { Typed::Interrupted };
                }
            };
            match line.map_err(|error| Failure::refused(format!("stdin cannot be read: {error}")))? {
                None => break Typed::End,
                Some(line) => match line.strip_suffix('\\') {
                    Some(line) => text.push_str(&format!("{line}\n")),
                    None => break Typed::Text(text + &line),
                },
            }
        };
        if !matches!(typed, Typed::Text(_)) {
            // The cursor is still after the prompt, so start a new line.
            self.terminal.note("");
        }
        self.terminal.turn_off_echo();
        Ok(typed)
    }
}

/// Reads one line without its line ending. Returns `None` at the end of input.
fn read_line() -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    let read = std::io::stdin().lock().take(MAX_LINE).read_until(b'\n', &mut line)?;
    let line = String::from_utf8_lossy(&line);
    Ok((read > 0).then(|| line.trim_end_matches(['\n', '\r']).to_owned()))
}

impl FullEditor {
    fn new(terminal: &Terminal, interrupts: &Interrupts, data: &DataDirectory, names: Names) -> Self {
        let line = Arc::new(LineState::default());
        let mut keys = default_emacs_keybindings();
        let tab = ReedlineEvent::UntilFound(vec![ReedlineEvent::Menu(MENU.to_owned()), ReedlineEvent::MenuNext]);
        keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, tab);
        keys.add_binding(KeyModifiers::SHIFT, KeyCode::BackTab, ReedlineEvent::MenuPrevious);
        // On terminals without bracketed paste, the line breaks of pasted text arrive as Ctrl-J. Such a Ctrl-J
        // must not end the input.
        let newline = ReedlineEvent::Edit(vec![EditCommand::InsertNewline]);
        keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('j'), newline);
        // While the editor reads from the keyboard, Ctrl-\ does not send a signal. Terminals send the same byte for
        // Ctrl-\ and Ctrl-4.
        for key in ['\\', '4'] {
            let leave_at_once = ReedlineEvent::ExecuteHostCommand("leave at once".to_owned());
            keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char(key), leave_at_once);
        }
        if cfg!(unix) {
            let suspend = ReedlineEvent::ExecuteHostCommand(SUSPEND.to_owned());
            keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('z'), suspend);
        }
        let paste = ReedlineEvent::ExecuteHostCommand(PASTE_PICTURE.to_owned());
        keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('v'), paste);
        let edit_mode: Box<dyn EditMode> = Box::new(Emacs::new(keys));
        let menu = ColumnarMenu::default().with_name(MENU).with_marker(ARROW);
        let colours = terminal.rendering(crate::terminal::Output::Stderr) == Rendering::Styled;
        let printer = ExternalPrinter::new(MAX_QUEUED_TEXTS);
        let above = PrinterAbove(printer.sender());
        let reedline = Reedline::create()
            .with_edit_mode(edit_mode)
            .with_ansi_colors(colours)
            .with_highlighter(Box::new(TextObserver(line.clone())))
            .with_validator(Box::new(Continuation(line.clone())))
            .with_completer(Box::new(NameCompleter::new(names)))
            .with_menu(ReedlineMenu::EngineCompleter(Box::new(menu)))
            .with_quick_completions(true)
            .with_partial_completions(true)
            .with_break_signal(interrupts.break_line())
            .with_external_printer(printer)
            .with_history_exclusion_prefix(Some(" ".to_owned()))
            .use_bracketed_paste(true);
        let reedline = match open_history(&data.history()) {
            Ok(history) => reedline.with_history(Box::new(history)),
            Err(error) => {
                let file = data.history();
                tracing::warn!(
                    "the history file `{}` cannot be used, so this session starts with an empty history: {error}",
                    file.display()
                );
                reedline
            }
        };
        Self { reedline, above, line, has_worked: false }
    }

    /// Reads a line. A busy terminal may not report its cursor position in time, and then the editor fails before it shows
    /// a prompt. So the editor tries again, more often if it has worked before.
    fn read_line(&mut self) -> std::io::Result<Signal> {
        let attempts = if self.has_worked { 5 } else { 2 };
        let mut result = self.reedline.read_line(&Arrow);
        for _ in 1..attempts {
            if result.is_ok() {
                break;
            }
            result = self.reedline.read_line(&Arrow);
        }
        self.has_worked |= result.is_ok();
        result
    }

    fn typed(&mut self, signal: Signal) -> Typed {
        let continued = std::mem::take(&mut *self.line.continued());
        let had_text = self.line.has_text.swap(false, Ordering::Relaxed);
        match signal {
            Signal::Success(text) => {
                if let Err(error) = self.reedline.sync_history() {
                    tracing::warn!("the history could not be written: {error}");
                }
                Typed::Text(remove_continuations(&text, &continued))
            }
            Signal::CtrlC if had_text => Typed::Cleared,
            Signal::CtrlC => Typed::Interrupted,
            Signal::CtrlD => Typed::End,
            Signal::ExternalBreak(_) => Typed::Leave,
            _ => Typed::Cleared,
        }
    }
}

impl LineState {
    fn continued(&self) -> std::sync::MutexGuard<'_, Vec<String>> {
        self.continued.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Removes the backslashes that were typed to begin a new line. Other backslashes are kept, such as the backslashes in
/// a pasted command.
fn remove_continuations(text: &str, continued: &[String]) -> String {
    let mut text = text.to_owned();
    let mut positions: Vec<_> =
        continued.iter().filter(|line| text.starts_with(&format!("{line}\n"))).map(|line| line.len() - 1).collect();
    positions.sort_unstable();
    positions.dedup();
    for position in positions.into_iter().rev() {
        text.remove(position);
    }
    text
}

/// The prompt of the line editor.
struct Arrow;

impl Prompt for Arrow {
    fn render_prompt_left(&self) -> Cow<'_, str> {
        "".into()
    }

    fn render_prompt_right(&self) -> Cow<'_, str> {
        "".into()
    }

    fn render_prompt_indicator(&self, _: PromptEditMode) -> Cow<'_, str> {
        ARROW.into()
    }

    fn render_prompt_multiline_indicator(&self) -> Cow<'_, str> {
        "  ".into()
    }

    fn render_prompt_history_search_indicator(&self, search: PromptHistorySearch) -> Cow<'_, str> {
        format!("(search: {}) ", search.term).into()
    }
}

/// A highlighter that changes nothing, but records whether the line has text.
struct TextObserver(Arc<LineState>);

impl Highlighter for TextObserver {
    fn highlight(&self, line: &str, _: usize) -> StyledText {
        self.0.has_text.store(!line.is_empty(), Ordering::Relaxed);
        let mut text = StyledText::new();
        text.push((Default::default(), line.to_owned()));
        text
    }
}

/// A validator that begins a new line if Enter is pressed after a backslash.
struct Continuation(Arc<LineState>);

impl Validator for Continuation {
    fn validate(&self, line: &str) -> ValidationResult {
        let backslashes = line.len() - line.trim_end_matches('\\').len();
        if backslashes.is_multiple_of(2) {
            return ValidationResult::Complete;
        }
        self.0.continued().push(line.to_owned());
        ValidationResult::Incomplete
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remove_continuations_removes_only_typed_backslashes() {
        let line = Arc::new(LineState::default());
        let validator = Continuation(line.clone());
        assert!(matches!(validator.validate("one\\"), ValidationResult::Incomplete));
        assert!(matches!(validator.validate("one\\\ntwo \\"), ValidationResult::Incomplete));
        assert!(matches!(validator.validate("C:\\\\"), ValidationResult::Complete));
        let continued = line.continued().clone();
        assert_eq!(remove_continuations("one\\\ntwo \\\nthree", &continued), "one\ntwo \nthree");
        assert_eq!(remove_continuations("cargo run \\\n  --quiet", &continued), "cargo run \\\n  --quiet");
    }
}
