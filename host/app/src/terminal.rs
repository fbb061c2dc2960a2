//! What people see: answers on stdout, everything else on stderr; colours and spinners only on a terminal.

mod build;
pub(crate) mod events;
pub(crate) mod text;
pub(crate) mod turn;

pub(crate) use build::{built, show_build, show_load};

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

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

/// The process's two outputs. Clones share one spinner.
#[derive(Clone, Debug)]
pub(crate) struct Terminal {
    interactive: bool,
    spinner: Arc<Mutex<Option<ProgressBar>>>,
}

impl Terminal {
    /// The process's own.
    pub(crate) fn new() -> Self {
        Self { interactive: io::stderr().is_terminal(), spinner: Arc::default() }
    }

    /// Whether a person sees stderr as it is written; then a spinner shows what passes by.
    pub(crate) fn is_interactive(&self) -> bool {
        self.interactive
    }

    /// Shows on a terminal that something goes on, until the next [`Terminal::idle`].
    pub(crate) fn busy(&self, what: impl AsRef<str>) {
        if self.interactive {
            let mut spinner = self.spinner();
            let spinner = spinner.get_or_insert_with(new_spinner);
            spinner.set_message(text::one_line(what.as_ref(), 200));
            spinner.enable_steady_tick(Duration::from_millis(100));
        }
    }

    /// Takes the spinner away.
    pub(crate) fn idle(&self) {
        if let Some(spinner) = self.spinner().take() {
            spinner.finish_and_clear();
        }
    }

    /// A line for people, on stderr. That nobody reads it is no failure.
    pub(crate) fn note(&self, line: impl AsRef<str>) {
        self.beside(|| {
            let _ = writeln!(anstream::stderr().lock(), "{}", line.as_ref());
        });
    }

    /// Why the process ends, on stderr.
    pub(crate) fn failure(&self, message: &str) {
        self.note(format!("{RED}error:{RED:#} {}", text::harmless(message)));
    }

    /// A line of the result, on stdout.
    pub(crate) fn print(&self, line: impl AsRef<str>) -> io::Result<()> {
        self.beside(|| {
            let mut stdout = anstream::stdout().lock();
            writeln!(stdout, "{}", line.as_ref())?;
            stdout.flush()
        })
    }

    /// Text that a model or a plugin wrote, on stdout: as it is into a file, without control characters on a terminal.
    pub(crate) fn print_foreign(&self, text: &str) -> io::Result<()> {
        self.beside(|| {
            let mut stdout = io::stdout().lock();
            let shown = if stdout.is_terminal() { text::harmless(text) } else { text.into() };
            writeln!(stdout, "{shown}")?;
            stdout.flush()
        })
    }
}

impl Terminal {
    /// Writes while the spinner is away.
    fn beside<T>(&self, write: impl FnOnce() -> T) -> T {
        match &*self.spinner() {
            Some(spinner) => spinner.suspend(write),
            None => write(),
        }
    }

    fn spinner(&self) -> MutexGuard<'_, Option<ProgressBar>> {
        self.spinner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn new_spinner() -> ProgressBar {
    let spinner = ProgressBar::new_spinner();
    match ProgressStyle::with_template("{spinner} {wide_msg}") {
        Ok(style) => spinner.with_style(style),
        Err(_) => spinner,
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
        self.terminal.beside(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
