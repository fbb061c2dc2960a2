//! Where a person types: a line editor with a history and completion, or plain lines on a terminal that can do no more.

use super::completion::{NameCompleter, Names};
use super::history::open_history;
use crate::data::DataDirectory;
use crate::exit::Failure;
use crate::interrupt::{Doing, Interrupts};
use crate::terminal::Terminal;
use crate::terminal::markdown::Look;
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

/// What stands before the line.
const ARROW: &str = "> ";
/// Name of the menu that Tab opens.
const MENU: &str = "names";
/// Most bytes of a line where there is no editor.
const LONGEST_LINE: u64 = 1 << 20;

/// What a person has typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Typed {
    /// Text, of one line or more.
    Text(String),
    /// Ctrl-C, while something had been typed: that is gone.
    Cleared,
    /// Ctrl-C, and nothing had been typed.
    Interrupted,
    /// Ctrl-D.
    End,
    /// The process is to end.
    Leave,
}

/// The editor of a session.
pub(super) struct Editor {
    terminal: Terminal,
    interrupts: Interrupts,
    kind: Kind,
}

/// A line that is being read.
type Reading = JoinHandle<std::io::Result<Option<String>>>;

enum Kind {
    Full(Box<Full>),
    /// With the line that is being read: who waited for it may have been interrupted.
    Plain(Option<Reading>),
}

struct Full {
    reedline: Reedline,
    above: Above,
    line: Arc<LineState>,
}

/// Most texts that wait to be shown above the line.
const WAITING_ABOVE: usize = 64;

/// Shows texts above the line that is being typed, which stays as it is.
#[derive(Clone, Debug)]
pub(super) struct Above(SyncSender<String>);

impl Above {
    /// Shows it, unless too much waits already.
    pub(super) fn print(&self, text: String) {
        if self.0.try_send(text).is_err() {
            tracing::debug!("nothing more can be shown above the line");
        }
    }
}

/// What the parts of the editor tell of the line.
#[derive(Debug, Default)]
struct LineState {
    /// Whether anything stands in it.
    typed: AtomicBool,
    /// Its beginnings that ended in a backslash when Enter was pressed.
    continued: Mutex<Vec<String>>,
}

impl Editor {
    /// An editor that suits the terminal.
    pub(super) fn new(terminal: &Terminal, interrupts: &Interrupts, data: &DataDirectory, names: Names) -> Self {
        let kind = match terminal.is_interactive() {
            true => Kind::Full(Box::new(Full::new(terminal, interrupts, data, names))),
            false => Kind::Plain(None),
        };
        Self { terminal: terminal.clone(), interrupts: interrupts.clone(), kind }
    }

    /// Where texts are shown while a line is being typed; none without an editor.
    pub(super) fn above(&self) -> Option<Above> {
        match &self.kind {
            Kind::Full(full) => Some(full.above.clone()),
            Kind::Plain(_) => None,
        }
    }

    /// Waits for the next input.
    pub(super) async fn read(&mut self) -> Result<Typed, Failure> {
        let mut full = match std::mem::replace(&mut self.kind, Kind::Plain(None)) {
            Kind::Full(full) => full,
            Kind::Plain(reading) => return self.read_plain(reading).await,
        };
        let _token = self.interrupts.begin(Doing::Prompt);
        let reading = tokio::task::spawn_blocking(move || {
            let signal = full.reedline.read_line(&Arrow);
            (full, signal)
        });
        let (mut full, signal) = tokio::select! {
            read = reading => read.map_err(|error| Failure::failed(format!("the line editor: {error}")))?,
            // The editor would read ends of input for ever.
            () = self.terminal.hung_up() => return Ok(Typed::Leave),
        };
        match signal {
            Ok(Signal::HostCommand(_)) => self.interrupts.leave_at_once(&self.terminal),
            Ok(signal) => {
                let typed = full.typed(signal);
                self.kind = Kind::Full(full);
                Ok(typed)
            }
            // Such as a terminal that does not say where its cursor is.
            Err(error) => {
                tracing::warn!("the line editor does not work here ({error}); plain lines do");
                drop(full);
                self.read_plain(None).await
            }
        }
    }

    /// Reads lines as the terminal gives them; one that ends in a backslash is gone on with.
    async fn read_plain(&mut self, mut reading: Option<Reading>) -> Result<Typed, Failure> {
        let token = self.interrupts.begin(Doing::Prompt);
        let _ = self.terminal.restore_keyboard();
        let mut text = String::new();
        let typed = loop {
            let prompt = if text.is_empty() { ARROW } else { "  " };
            self.terminal.ask(prompt).map_err(Failure::output)?;
            let mut line = reading.take().unwrap_or_else(|| tokio::task::spawn_blocking(read_line));
            let line = tokio::select! {
                line = &mut line => line.map_err(Failure::failed)?,
                () = token.cancelled() => {
                    self.kind = Kind::Plain(Some(line));
                    break if self.interrupts.is_leaving() { Typed::Leave } else { Typed::Interrupted };
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
            // The cursor still stands behind the prompt.
            self.terminal.note("");
        }
        self.terminal.silence_keyboard();
        Ok(typed)
    }
}

/// One line without its end; nothing where there is none.
fn read_line() -> std::io::Result<Option<String>> {
    let mut line = Vec::new();
    let read = std::io::stdin().lock().take(LONGEST_LINE).read_until(b'\n', &mut line)?;
    let line = String::from_utf8_lossy(&line);
    Ok((read > 0).then(|| line.trim_end_matches(['\n', '\r']).to_owned()))
}

impl Full {
    fn new(terminal: &Terminal, interrupts: &Interrupts, data: &DataDirectory, names: Names) -> Self {
        let line = Arc::new(LineState::default());
        let mut keys = default_emacs_keybindings();
        let tab = ReedlineEvent::UntilFound(vec![ReedlineEvent::Menu(MENU.to_owned()), ReedlineEvent::MenuNext]);
        keys.add_binding(KeyModifiers::NONE, KeyCode::Tab, tab);
        keys.add_binding(KeyModifiers::SHIFT, KeyCode::BackTab, ReedlineEvent::MenuPrevious);
        // What is pasted where the terminal does not mark it: its lines stay one input.
        let newline = ReedlineEvent::Edit(vec![EditCommand::InsertNewline]);
        keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char('j'), newline);
        // Ctrl-\ is no signal while the editor has the keyboard; terminals write it as a byte that also stands for Ctrl-4.
        for key in ['\\', '4'] {
            let at_once = ReedlineEvent::ExecuteHostCommand("leave at once".to_owned());
            keys.add_binding(KeyModifiers::CONTROL, KeyCode::Char(key), at_once);
        }
        let edit_mode: Box<dyn EditMode> = Box::new(Emacs::new(keys));
        let menu = ColumnarMenu::default().with_name(MENU).with_marker(ARROW);
        let colours = terminal.look(crate::terminal::Output::Stderr) == Look::Styled;
        let printer = ExternalPrinter::new(WAITING_ABOVE);
        let above = Above(printer.sender());
        let reedline = Reedline::create()
            .with_edit_mode(edit_mode)
            .with_ansi_colors(colours)
            .with_highlighter(Box::new(Watcher(line.clone())))
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
                    "the history `{}` cannot be used: {error}; this session has one of its own",
                    file.display()
                );
                reedline
            }
        };
        Self { reedline, above, line }
    }

    fn typed(&mut self, signal: Signal) -> Typed {
        let continued = std::mem::take(&mut *self.line.continued());
        let had_text = self.line.typed.swap(false, Ordering::Relaxed);
        match signal {
            Signal::Success(text) => {
                if let Err(error) = self.reedline.sync_history() {
                    tracing::warn!("the history was not written: {error}");
                }
                Typed::Text(joined(&text, &continued))
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

/// Without the backslashes that were typed to begin a new line; others, such as those of a pasted command, stay.
fn joined(text: &str, continued: &[String]) -> String {
    let mut text = text.to_owned();
    let mut places: Vec<_> =
        continued.iter().filter(|line| text.starts_with(&format!("{line}\n"))).map(|line| line.len() - 1).collect();
    places.sort_unstable();
    places.dedup();
    for place in places.into_iter().rev() {
        text.remove(place);
    }
    text
}

/// What stands before the line.
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
        format!("(earlier: {}) ", search.term).into()
    }
}

/// Leaves the line as it is, and notes whether there is any.
struct Watcher(Arc<LineState>);

impl Highlighter for Watcher {
    fn highlight(&self, line: &str, _: usize) -> StyledText {
        self.0.typed.store(!line.is_empty(), Ordering::Relaxed);
        let mut text = StyledText::new();
        text.push((Default::default(), line.to_owned()));
        text
    }
}

/// Enter behind a backslash begins a new line.
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
    fn only_backslashes_that_were_typed_to_go_on_are_taken_out() {
        let line = Arc::new(LineState::default());
        let validator = Continuation(line.clone());
        assert!(matches!(validator.validate("one\\"), ValidationResult::Incomplete));
        assert!(matches!(validator.validate("one\\\ntwo \\"), ValidationResult::Incomplete));
        assert!(matches!(validator.validate("C:\\\\"), ValidationResult::Complete));
        let continued = line.continued().clone();
        assert_eq!(joined("one\\\ntwo \\\nthree", &continued), "one\ntwo \nthree");
        assert_eq!(joined("cargo run \\\n  --quiet", &continued), "cargo run \\\n  --quiet");
    }
}
