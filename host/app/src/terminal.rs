//! What people see: answers on stdout, everything else on stderr; colours and spinners only on a terminal.

pub(crate) mod approval;
mod build;
pub(crate) mod card;
pub(crate) mod cost;
pub(crate) mod events;
pub(crate) mod first_use;
pub(crate) mod flow;
mod keyboard;
pub(crate) mod markdown;
mod page;
mod question;
mod reply;
pub(crate) mod spent;
pub(crate) mod text;
pub(crate) mod turn;
pub(crate) mod waits;

pub(crate) use build::{built, show_build, show_load};
pub(crate) use keyboard::Silenced;
pub(crate) use question::Line as TypedLine;

use agent_core::redaction::Redaction;
use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};
use keyboard::{Keyboard, Silence};
use markdown::Look;
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// For the names of tools and plugins.
pub(crate) const BOLD: Style = Style::new().bold();
/// For details.
pub(crate) const DIM: Style = Style::new().dimmed();
/// For what failed.
pub(crate) const RED: Style = AnsiColor::Red.on_default();
/// For what went well.
pub(crate) const GREEN: Style = AnsiColor::Green.on_default();
/// For what somebody should look at.
pub(crate) const YELLOW: Style = AnsiColor::Yellow.on_default();

/// How long a compilation takes before it is spoken of.
const A_WHILE: Duration = Duration::from_millis(300);
/// How often somebody looks whether the terminal is still there.
const NEXT_LOOK: Duration = Duration::from_millis(500);
/// Columns where nobody says how many there are.
const USUAL_WIDTH: usize = 100;

/// One of the two outputs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// For the answer.
    Stdout,
    /// For everything else.
    Stderr,
}

/// The process's terminal, or the pipes in its place. Clones share one spinner.
#[derive(Clone, Debug)]
pub(crate) struct Terminal {
    interactive: bool,
    screen: Arc<Mutex<Screen>>,
    keyboard: Keyboard,
    leaving: CancellationToken,
}

/// What must be known before anything is written.
#[derive(Debug, Default)]
struct Screen {
    spinner: Option<ProgressBar>,
    /// Whether the last line has been begun and may be gone on with.
    line: Line,
    compiling: build::Compiling,
    /// What is shown nowhere.
    secrets: Redaction,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Line {
    #[default]
    Over,
    Begun,
}

impl Terminal {
    /// The process's own.
    pub(crate) fn new() -> Self {
        let is_dumb = crate::environment::is_terminal_dumb();
        if is_dumb {
            // Else the library would still write colours where `CI` is set.
            anstream::ColorChoice::Never.write_global();
        }
        let interactive = io::stderr().is_terminal() && !is_dumb;
        Self { interactive, screen: Arc::default(), keyboard: Keyboard::default(), leaving: CancellationToken::new() }
    }

    /// From now on none of these is written to any output, whoever says it: this is the last place where secrets are taken out.
    pub(crate) fn keep_secret(&self, secrets: &Redaction) {
        let mut screen = self.screen();
        screen.secrets = screen.secrets.and(secrets);
    }

    /// The text as it may be written.
    fn without_secrets(&self, text: &str) -> String {
        let secrets = self.screen().secrets.clone();
        secrets.whole(text.to_owned())
    }

    /// Whether a person sees stderr as it is written, on a terminal that can take a line back; then a spinner shows what
    /// passes by.
    pub(crate) fn is_interactive(&self) -> bool {
        self.interactive
    }

    /// Cancelled when the process is to end: it was asked to, or its terminal was closed.
    pub(crate) fn leaving(&self) -> CancellationToken {
        self.leaving.clone()
    }

    /// Waits until nobody can type any more. Most terminals say so by a signal, too, but not to who ignores it.
    pub(crate) async fn hung_up(&self) {
        while !keyboard::is_hung_up() {
            tokio::time::sleep(NEXT_LOOK).await;
        }
    }

    /// Whether a person reads this output as it is written.
    pub(crate) fn is_terminal(&self, output: Output) -> bool {
        match output {
            Output::Stdout => io::stdout().is_terminal(),
            Output::Stderr => io::stderr().is_terminal(),
        }
    }

    /// How styled text is written: without a terminal, with `NO_COLOR` or `TERM=dumb`, it has no escape codes.
    pub(crate) fn look(&self, output: Output) -> Look {
        let choice = match output {
            Output::Stdout => anstream::AutoStream::choice(&io::stdout()),
            Output::Stderr => anstream::AutoStream::choice(&io::stderr()),
        };
        if choice == anstream::ColorChoice::Never { Look::Plain } else { Look::Styled }
    }

    /// Columns of the terminal as it is now.
    pub(crate) fn width(&self) -> usize {
        keyboard::columns().unwrap_or(USUAL_WIDTH)
    }

    /// What is typed while this lives is not echoed and waits for the next prompt; only Ctrl-C and Ctrl-Z still work.
    pub(crate) fn silent_keyboard(&self) -> Silence {
        Silence::new(&self.keyboard)
    }

    /// The keyboard is silent again, after it was restored for a while.
    pub(crate) fn silence_keyboard(&self) {
        self.keyboard.silence();
    }

    /// The keyboard is again as it was found.
    pub(crate) fn restore_keyboard(&self) -> keyboard::Silenced {
        self.keyboard.restore()
    }

    /// Shows on a terminal that something goes on, until the next [`Terminal::idle`].
    pub(crate) fn busy(&self, what: impl AsRef<str>) {
        if self.interactive {
            let mut screen = self.screen();
            if screen.line == Line::Begun {
                return;
            }
            let spinner = screen.spinner.get_or_insert_with(new_spinner);
            let what = text::one_line(what.as_ref(), 200);
            if spinner.message() != what {
                spinner.reset_elapsed();
                spinner.set_message(what);
            }
            spinner.enable_steady_tick(Duration::from_millis(100));
        }
    }

    /// Shows on a terminal how much of a download is there, until the next [`Terminal::idle`].
    pub(crate) fn downloaded(&self, what: &str, done: u64, of: Option<u64>) {
        if !self.interactive {
            return;
        }
        let mut screen = self.screen();
        let is_bar = screen.spinner.as_ref().is_some_and(|bar| bar.length() == of && of.is_some());
        if let (Some(of), false) = (of, is_bar) {
            if let Some(before) = screen.spinner.take() {
                before.finish_and_clear();
            }
            screen.spinner = Some(new_bar(of, text::one_line(what, 50)));
        }
        match &screen.spinner {
            Some(bar) if of.is_some() => bar.set_position(done),
            _ => {
                drop(screen);
                self.busy(format!("{what} {}", text::size(done)));
            }
        }
    }

    /// The compilation of a component has begun. It is shown once it takes a while: most take none.
    fn compiling(&self, name: &str, size: u64) {
        self.screen().compiling.begin(name, size);
        if self.interactive {
            let terminal = self.clone();
            tokio::spawn(async move {
                tokio::time::sleep(A_WHILE).await;
                terminal.show_compiling();
            });
        }
    }

    /// The compilation of a component has ended.
    fn compiled(&self, name: &str) {
        let mut screen = self.screen();
        screen.compiling.end(name);
        let is_shown = screen.spinner.is_some();
        drop(screen);
        if is_shown {
            self.show_compiling();
        }
    }

    fn show_compiling(&self) {
        let line = self.screen().compiling.line();
        if let Some(line) = line {
            self.busy(line);
        }
    }

    /// Takes the spinner away.
    pub(crate) fn idle(&self) {
        let mut screen = self.screen();
        screen.compiling.rest();
        if let Some(spinner) = screen.spinner.take() {
            spinner.finish_and_clear();
        }
    }

    /// A line for people, on stderr. That nobody reads it is no failure.
    pub(crate) fn note(&self, line: impl AsRef<str>) {
        let line = self.without_secrets(line.as_ref());
        self.beside(|| {
            let _ = writeln!(anstream::stderr().lock(), "{line}");
        });
    }

    /// Why the process ends, on stderr.
    pub(crate) fn failure(&self, message: &str) {
        self.note(format!("{RED}error:{RED:#} {}", text::harmless(message)));
    }

    /// A line of the result, on stdout.
    pub(crate) fn print(&self, line: impl AsRef<str>) -> io::Result<()> {
        let line = self.without_secrets(line.as_ref());
        self.beside(|| {
            let mut stdout = anstream::stdout().lock();
            writeln!(stdout, "{line}")?;
            stdout.flush()
        })
    }

    /// Asks for a line that the terminal itself lets somebody type and end.
    pub(crate) fn ask(&self, prompt: &str) -> io::Result<()> {
        self.beside(|| write_and_flush(&mut io::stderr().lock(), prompt))
    }

    /// Text that a model or a plugin wrote, on stdout: as it is into a file, without control characters on a terminal.
    pub(crate) fn print_foreign(&self, text: &str) -> io::Result<()> {
        let text = self.without_secrets(text);
        self.beside(|| {
            let mut stdout = io::stdout().lock();
            let shown = if stdout.is_terminal() { text::harmless(&text) } else { text.as_str().into() };
            writeln!(stdout, "{shown}")?;
            stdout.flush()
        })
    }

    /// A piece of text that was made for this terminal; the next piece follows on the same line. Whatever else is
    /// written in between begins a new one.
    pub(crate) fn stream(&self, output: Output, piece: &str) -> io::Result<()> {
        if piece.is_empty() {
            return Ok(());
        }
        let piece = &*self.without_secrets(piece);
        let mut screen = self.screen();
        if let Some(spinner) = screen.spinner.take() {
            spinner.finish_and_clear();
        }
        screen.line = if piece.ends_with('\n') { Line::Over } else { Line::Begun };
        match output {
            Output::Stdout => write_and_flush(&mut io::stdout().lock(), piece),
            Output::Stderr => write_and_flush(&mut io::stderr().lock(), piece),
        }
    }
}

impl Terminal {
    /// Writes whole lines while the spinner is away.
    fn beside<T>(&self, write: impl FnOnce() -> T) -> T {
        let mut screen = self.screen();
        if std::mem::take(&mut screen.line) == Line::Begun {
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

fn new_bar(of: u64, what: String) -> ProgressBar {
    let bar = ProgressBar::new(of).with_message(what);
    match ProgressStyle::with_template("{msg} {wide_bar} {bytes} of {total_bytes} {bytes_per_sec:.dim}") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// For log lines, which must not run into the spinner.
impl<'w> tracing_subscriber::fmt::MakeWriter<'w> for Terminal {
    type Writer = LogWriter;

    fn make_writer(&'w self) -> LogWriter {
        LogWriter { terminal: self.clone() }
    }
}

/// Writes whole log lines beside the spinner.
pub(crate) struct LogWriter {
    terminal: Terminal,
}

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A line comes whole. However long it is without its secrets, all of it has been taken.
        let line = self.terminal.without_secrets(&String::from_utf8_lossy(bytes));
        self.terminal.beside(|| io::stderr().write_all(line.as_bytes())).map(|()| bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
