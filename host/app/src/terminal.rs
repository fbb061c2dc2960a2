//! What people see: answers on stdout, everything else on stderr; colours and spinners only on a terminal.

mod build;
pub(crate) mod events;
pub(crate) mod text;
pub(crate) mod turn;

pub(crate) use build::{built, show_build, show_load};

use anstyle::{AnsiColor, Style};
use indicatif::{ProgressBar, ProgressStyle};
use std::io::{self, IsTerminal, Write};
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
    spinner: ProgressBar,
}

impl Terminal {
    /// The spinner shows itself only where stderr is a terminal.
    pub(crate) fn new() -> Self {
        let spinner = if io::stderr().is_terminal() { ProgressBar::new_spinner() } else { ProgressBar::hidden() };
        if let Ok(style) = ProgressStyle::with_template("{spinner} {wide_msg}") {
            spinner.set_style(style);
        }
        Self { spinner }
    }

    /// Shows that something goes on, until the next [`Terminal::idle`].
    pub(crate) fn busy(&self, what: impl Into<String>) {
        self.spinner.set_message(text::one_line(&what.into(), 200));
        self.spinner.enable_steady_tick(Duration::from_millis(100));
    }

    /// Takes the spinner away.
    pub(crate) fn idle(&self) {
        self.spinner.disable_steady_tick();
        self.spinner.set_message("");
        self.spinner.suspend(|| ());
    }

    /// A line for people, on stderr. That nobody reads it is no failure.
    pub(crate) fn note(&self, line: impl AsRef<str>) {
        self.spinner.suspend(|| {
            let _ = writeln!(anstream::stderr().lock(), "{}", line.as_ref());
        });
    }

    /// Why the process ends, on stderr.
    pub(crate) fn failure(&self, message: &str) {
        self.note(format!("{RED}error:{RED:#} {}", text::harmless(message)));
    }

    /// A line of the result, on stdout.
    pub(crate) fn print(&self, line: impl AsRef<str>) -> io::Result<()> {
        self.spinner.suspend(|| {
            let mut stdout = anstream::stdout().lock();
            writeln!(stdout, "{}", line.as_ref())?;
            stdout.flush()
        })
    }

    /// Text that a model or a plugin wrote, on stdout: as it is into a file, without control characters on a terminal.
    pub(crate) fn print_foreign(&self, text: &str) -> io::Result<()> {
        self.spinner.suspend(|| {
            let mut stdout = io::stdout().lock();
            let shown = if stdout.is_terminal() { text::harmless(text) } else { text.into() };
            writeln!(stdout, "{shown}")?;
            stdout.flush()
        })
    }
}

/// For log lines, which must not run into the spinner.
impl<'w> tracing_subscriber::fmt::MakeWriter<'w> for Terminal {
    type Writer = LogWriter;

    fn make_writer(&'w self) -> LogWriter {
        LogWriter { spinner: self.spinner.clone() }
    }
}

/// Writes whole log lines beside the spinner.
pub(crate) struct LogWriter {
    spinner: ProgressBar,
}

impl Write for LogWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.spinner.suspend(|| io::stderr().write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        io::stderr().flush()
    }
}
