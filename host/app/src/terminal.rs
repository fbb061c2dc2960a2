//! Writes output for users: answers go to stdout, and everything else goes to stderr. Colours and spinners appear only
//! on a terminal; in a pipe, lines show what takes long.

mod activity;
pub(crate) mod approval;
pub(crate) mod budget;
mod build;
pub(crate) mod card;
pub(crate) mod cost;
pub(crate) mod events;
pub(crate) mod file_changes;
pub(crate) mod first_use;
pub(crate) mod flow;
mod json_list;
mod keyboard;
pub(crate) mod markdown;
mod model_question;
mod page;
pub(crate) mod pending_answers;
pub(crate) mod pending_calls;
mod question;
mod reply;
mod reporter;
pub(crate) mod spending;
pub(crate) mod suspension;
pub(crate) mod text;
mod theme;
pub(crate) mod turn;

pub(crate) use activity::Announced;
pub(crate) use build::{built, show_build, show_load};
pub(crate) use keyboard::KeyboardMode;
pub(crate) use question::Line as TypedLine;
pub(crate) use theme::Theme;

use activity::ACTIVITY_DELAY;
use agent_core::redaction::Redaction;
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};
use keyboard::{EchoOffGuard, Keyboard};
use markdown::Rendering;
use std::borrow::Cow;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Style for the names of tools and plugins.
pub(crate) const BOLD: Style = Style::new().bold();
/// Style for less important details.
pub(crate) const DIM: Style = Style::new().dimmed();
/// Style for errors.
pub(crate) const RED: Style = AnsiColor::Red.on_default();
/// Style for success.
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
/// Style for warnings and for questions to the user.
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();

/// Interval between checks whether the terminal still exists.
const HANGUP_CHECK_INTERVAL: Duration = Duration::from_millis(500);
/// Width in columns that is assumed if the terminal does not report its width.
const DEFAULT_WIDTH: usize = 100;

/// One of the two output streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// The stream for answers and results.
    Stdout,
    /// The stream for progress, questions, warnings and errors.
    Stderr,
}

/// The process's terminal, or the pipes that replace it. All clones share the same spinner.
#[derive(Clone, Debug)]
pub(crate) struct Terminal {
    /// True if stderr is a terminal that can erase lines.
    interactive: bool,
    screen: Arc<Mutex<Screen>>,
    keyboard: Keyboard,
    /// Token that is cancelled when the process must end.
    exiting: CancellationToken,
}

/// State of the output, which all clones of a [`Terminal`] share.
#[derive(Debug, Default)]
struct Screen {
    spinner: Option<ProgressBar>,
    /// Whether the last output ended with a line break, so that the next output starts a new line.
    line: Line,
    compiling: build::Compiling,
    /// The activity that is shown if the output is a pipe.
    activity: activity::Activity,
    /// Secrets that must not appear in any output.
    secrets: Redaction,
    theme: Theme,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    /// The last output ended with a line break.
    #[default]
    Complete,
    /// The last output ended without a line break.
    Open,
}

impl Terminal {
    /// Creates the terminal of this process. A dumb terminal (`TERM=dumb`) is treated like a pipe and gets no colours.
    pub(crate) fn new() -> Self {
        let is_dumb = crate::environment::is_terminal_dumb();
        if is_dumb {
            // Otherwise, `anstream` would write colours even to a dumb terminal if the variable `CI` is set.
            anstream::ColorChoice::Never.write_global();
        }
        let interactive = io::stderr().is_terminal() && !is_dumb;
        Self { interactive, screen: Arc::default(), keyboard: Keyboard::default(), exiting: CancellationToken::new() }
    }

    /// Redacts these secrets in all later output, in case an earlier step has not redacted all of them.
    pub(crate) fn keep_secret(&self, secrets: &Redaction) {
        let mut screen = self.screen();
        screen.secrets = screen.secrets.and(secrets);
    }

    /// Returns the text with its secrets redacted, and with the colours of the theme.
    fn without_secrets(&self, text: &str) -> String {
        let screen = self.screen();
        let (secrets, theme) = (screen.secrets.clone(), screen.theme);
        drop(screen);
        theme.recolour(secrets.whole(text.to_owned()))
    }

    /// Returns true if stderr is a terminal that can erase lines, so that a spinner can show progress.
    pub(crate) fn is_interactive(&self) -> bool {
        self.interactive
    }

    /// Returns a token that is cancelled when the process must end, because it received SIGTERM or its terminal
    /// was closed.
    pub(crate) fn exiting(&self) -> CancellationToken {
        self.exiting.clone()
    }

    /// Waits until the terminal is closed. Most terminals also send SIGHUP, but the process may ignore this signal.
    pub(crate) async fn hung_up(&self) {
        while !keyboard::is_hung_up() {
            tokio::time::sleep(HANGUP_CHECK_INTERVAL).await;
        }
    }

    /// Returns true if this output stream is a terminal.
    pub(crate) fn is_terminal(&self, output: Output) -> bool {
        match output {
            Output::Stdout => io::stdout().is_terminal(),
            Output::Stderr => io::stderr().is_terminal(),
        }
    }

    /// Returns the way in which Markdown is rendered for this output stream. The rendered text has no escape codes if
    /// the output is not a terminal, or if `NO_COLOR` or `TERM=dumb` is set.
    pub(crate) fn rendering(&self, output: Output) -> Rendering {
        let choice = match output {
            Output::Stdout => anstream::AutoStream::choice(&io::stdout()),
            Output::Stderr => anstream::AutoStream::choice(&io::stderr()),
        };
        if choice == anstream::ColorChoice::Never { Rendering::Plain } else { Rendering::Styled }
    }

    /// Returns the current width of the terminal in columns.
    pub(crate) fn width(&self) -> usize {
        keyboard::columns().unwrap_or(DEFAULT_WIDTH)
    }

    /// Turns off the echo until the returned guard is dropped. Text that is typed while the echo is off is kept for
    /// the next prompt. Ctrl-C and Ctrl-Z still work.
    pub(crate) fn echo_off_guard(&self) -> EchoOffGuard {
        EchoOffGuard::new(&self.keyboard)
    }

    /// Turns off the echo again after a call to [`Terminal::restore_keyboard`].
    pub(crate) fn turn_off_echo(&self) {
        self.keyboard.turn_off_echo();
    }

    /// Restores the keyboard's original mode. Returns the mode that was in effect until now.
    pub(crate) fn restore_keyboard(&self) -> KeyboardMode {
        self.keyboard.restore()
    }

    /// Shows the progress of a download in bytes until the next call to [`Terminal::idle`]. If the total size is unknown, no
    /// bar is shown. In a pipe, only the name of the download is shown.
    pub(crate) fn downloaded(&self, what: &str, done: u64, total: Option<u64>) {
        if !self.interactive {
            return self.busy(what);
        }
        let mut screen = self.screen();
        let is_bar = screen.spinner.as_ref().is_some_and(|bar| bar.length() == total && total.is_some());
        if let (Some(total), false) = (total, is_bar) {
            if let Some(previous) = screen.spinner.take() {
                previous.finish_and_clear();
            }
            screen.spinner = Some(new_bar(total, text::one_line(what, 50)));
        }
        match &screen.spinner {
            Some(bar) if total.is_some() => bar.set_position(done),
            _ => {
                drop(screen);
                self.busy(format!("{what} {}", text::size(done)));
            }
        }
    }

    /// Records that the compilation of a component has started. The compilation is shown after [`ACTIVITY_DELAY`],
    /// because most compilations are shorter.
    fn compilation_started(&self, name: &str, size: u64) {
        self.screen().compiling.start(name, size);
        if !self.interactive {
            return self.show_compiling();
        }
        let terminal = self.clone();
        tokio::spawn(async move {
            tokio::time::sleep(ACTIVITY_DELAY).await;
            terminal.show_compiling();
        });
    }

    /// Records that the compilation of a component has ended.
    fn compilation_ended(&self, name: &str) {
        let mut screen = self.screen();
        screen.compiling.end(name);
        let is_shown = screen.spinner.is_some();
        if !self.interactive && screen.compiling.line().is_none() {
            screen.activity.end();
        }
        drop(screen);
        if is_shown || !self.interactive {
            self.show_compiling();
        }
    }

    fn show_compiling(&self) {
        let line = self.screen().compiling.line();
        if let Some(line) = line {
            self.show_compilation(&line);
        }
    }

    /// Ends the activity that is shown, and removes the spinner.
    pub(crate) fn idle(&self) {
        let mut screen = self.screen();
        screen.activity.end();
        screen.compiling.reset_if_idle();
        if let Some(spinner) = screen.spinner.take() {
            spinner.finish_and_clear();
        }
    }

    /// Writes lines for the user to stderr. On a terminal, lines that are wider than the window are wrapped between words.
    /// Write errors are ignored.
    pub(crate) fn note(&self, lines: impl AsRef<str>) {
        let line = self.without_secrets(&self.fitting(lines.as_ref()));
        self.write_around_spinner(|| {
            let _ = writeln!(anstream::stderr().lock(), "{line}");
        });
    }

    /// Writes the error that ends the process to stderr.
    pub(crate) fn failure(&self, message: &str) {
        self.note(format!("{RED}error:{RED:#} {}", text::harmless(message)));
    }

    /// Writes a line of the result to stdout.
    pub(crate) fn print(&self, line: impl AsRef<str>) -> io::Result<()> {
        let line = self.without_secrets(line.as_ref());
        self.write_around_spinner(|| {
            let mut stdout = anstream::stdout().lock();
            writeln!(stdout, "{line}")?;
            stdout.flush()
        })
    }

    /// Writes an entry of a list to stdout. On a terminal, long lines are wrapped between words.
    pub(crate) fn print_entry(&self, entry: &str) -> io::Result<()> {
        match self.is_terminal(Output::Stdout) {
            true => self.print(text::wrapped_entry(entry, self.width())),
            false => self.print(entry),
        }
    }

    /// Writes a prompt to stderr. The caller then reads the line that the user types.
    pub(crate) fn ask(&self, prompt: &str) -> io::Result<()> {
        // The spaces at the end separate the prompt from the typed line.
        let words = prompt.trim_end_matches(' ');
        let shown = format!("{}{}", self.fitting(words), &prompt[words.len()..]);
        self.write_around_spinner(|| write_and_flush(&mut io::stderr().lock(), &shown))
    }

    /// Wraps lines that are wider than the terminal. In a pipe, returns the lines unchanged.
    fn fitting<'l>(&self, lines: &'l str) -> Cow<'l, str> {
        match self.interactive {
            true => {
                let end = if lines.ends_with('\n') { "\n" } else { "" };
                Cow::Owned(text::wrapped(lines, self.width()) + end)
            }
            false => Cow::Borrowed(lines),
        }
    }

    /// Writes text of a model or plugin to stdout. If stdout is a terminal, control characters are escaped. If stdout
    /// is a file or pipe, the text is written unchanged.
    pub(crate) fn print_foreign(&self, text: &str) -> io::Result<()> {
        let text = self.without_secrets(text);
        self.write_around_spinner(|| {
            let mut stdout = io::stdout().lock();
            let shown = if stdout.is_terminal() { text::harmless(&text) } else { text.as_str().into() };
            writeln!(stdout, "{shown}")?;
            stdout.flush()
        })
    }

    /// Writes a piece of streamed text that is already formatted for this terminal. The next piece continues the same
    /// line, unless other output is written between the two pieces.
    pub(crate) fn stream(&self, output: Output, piece: &str) -> io::Result<()> {
        if piece.is_empty() {
            return Ok(());
        }
        let piece = &*self.without_secrets(piece);
        let mut screen = self.screen();
        if let Some(spinner) = screen.spinner.take() {
            spinner.finish_and_clear();
        }
        screen.line = if piece.ends_with('\n') { Line::Complete } else { Line::Open };
        match output {
            Output::Stdout => write_and_flush(&mut io::stdout().lock(), piece),
            Output::Stderr => write_and_flush(&mut io::stderr().lock(), piece),
        }
    }
}

impl Terminal {
    /// Hides the spinner while `write` writes complete lines.
    fn write_around_spinner<T>(&self, write: impl FnOnce() -> T) -> T {
        let mut screen = self.screen();
        if std::mem::take(&mut screen.line) == Line::Open {
            let _ = io::stderr().write_all(b"\n");
        }
        match &screen.spinner {
            Some(spinner) => spinner.suspend(write),
            None => write(),
        }
    }

    fn screen(&self) -> MutexGuard<'_, Screen> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn write_and_flush(output: &mut impl Write, piece: &str) -> io::Result<()> {
    output.write_all(piece.as_bytes())?;
    output.flush()
}

fn new_spinner() -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    match ProgressStyle::with_template("{spinner} {elapsed} {wide_msg:.dim}") {
        Ok(style) => spinner.with_style(style),
        Err(_) => spinner,
    }
}

fn new_bar(total: u64, what: String) -> ProgressBar {
    let bar = ProgressBar::new(total).with_message(what);
    match ProgressStyle::with_template("{msg} {wide_bar} {bytes} of {total_bytes} {bytes_per_sec:.dim}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Lets the logger write its lines without disturbing the spinner.
impl<'w> tracing_subscriber::fmt::MakeWriter<'w> for Terminal {
    type Writer = LogWriter;

    fn make_writer(&'w self) -> LogWriter {
        LogWriter { terminal: self.clone() }
    }
}

/// Writes complete log lines to the terminal.
pub(crate) struct LogWriter {
    terminal: Terminal,
}

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // The logger writes complete lines. The returned number must be the number of input bytes, even if redaction
        // changes the length of the text.
        let line = self.terminal.without_secrets(&String::from_utf8_lossy(bytes));
        self.terminal.write_around_spinner(|| io::stderr().write_all(line.as_bytes())).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
