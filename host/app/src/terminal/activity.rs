//! Shows what the host is doing: with a spinner on a terminal, and with lines in a pipe (I1).

use super::{DIM, Line, Screen, Terminal, new_spinner, text};
use std::time::Duration;

/// Time after which an activity is shown in a pipe. Most activities are shorter.
pub(super) const ACTIVITY_DELAY: Duration = Duration::from_millis(300);
/// Interval between two lines about the same activity in a pipe.
const REPEAT_INTERVAL: Duration = Duration::from_secs(30);
/// Maximum displayed length of an activity, in characters.
const MAX_CHARACTERS: usize = 200;

/// Whether a line has already named an activity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Announced {
    /// A line has named the activity, so in a pipe only later lines say that it continues.
    Already,
    /// No line has named the activity.
    NotYet,
}

/// The activity that is shown in a pipe.
#[derive(Debug, Default)]
pub(super) struct Activity {
    text: String,
    /// Number of activities that have begun or ended. A task that shows an activity stops if the number has changed.
    changes: u64,
    /// Whether the activity is the compilation of components, of which many follow each other.
    is_compiling: bool,
}

impl Activity {
    /// Begins an activity, and returns its number. Returns `None` if this activity is shown already.
    fn begin(&mut self, text: &str) -> Option<u64> {
        if self.text == text {
            return None;
        }
        text.clone_into(&mut self.text);
        self.changes += 1;
        self.is_compiling = false;
        Some(self.changes)
    }

    /// Continues the compilation with another component. Returns false if nothing is being compiled.
    fn continue_compilation(&mut self, text: &str) -> bool {
        if self.is_compiling {
            text.clone_into(&mut self.text);
        }
        self.is_compiling
    }

    /// Ends the activity, if there is one.
    pub(super) fn end(&mut self) {
        self.text.clear();
        self.changes += 1;
        self.is_compiling = false;
    }

    /// Returns the text of the activity with this number. Returns `None` if the activity has ended.
    fn text_of(&self, number: u64) -> Option<String> {
        (self.changes == number).then(|| self.text.clone())
    }
}

impl Terminal {
    /// Shows this activity until the next call to [`Terminal::idle`]: on a terminal with a spinner, and in a pipe with a
    /// line if the activity takes more than 300 ms, and with another line every 30 seconds.
    pub(crate) fn busy(&self, activity: impl AsRef<str>) {
        self.show_activity(activity.as_ref(), Announced::NotYet);
    }

    /// Shows which component is being compiled. In a pipe, all compilations that follow each other are one activity, so that
    /// not every component has a line.
    pub(super) fn show_compilation(&self, line: &str) {
        let shown = text::one_line(line, MAX_CHARACTERS);
        if self.is_interactive() || !self.screen().activity.continue_compilation(&shown) {
            self.busy(line);
            self.screen().activity.is_compiling = true;
        }
    }

    /// Shows this activity as [`Terminal::busy`] does. `announced` says whether a line has already named the activity.
    pub(crate) fn show_activity(&self, activity: &str, announced: Announced) {
        let activity = text::one_line(activity, MAX_CHARACTERS);
        let mut screen = self.screen();
        match self.is_interactive() {
            true => spin(&mut screen, &activity),
            false => {
                let begun = screen.activity.begin(&activity);
                drop(screen);
                if let Some((number, runtime)) = begun.zip(tokio::runtime::Handle::try_current().ok()) {
                    runtime.spawn(show_lines(self.clone(), number, announced));
                }
            }
        }
    }
}

fn spin(screen: &mut Screen, activity: &str) {
    if screen.line == Line::Open {
        return;
    }
    let spinner = screen.spinner.get_or_insert_with(new_spinner);
    if spinner.message() != activity {
        spinner.reset_elapsed();
        spinner.set_message(activity.to_owned());
    }
    spinner.enable_steady_tick(Duration::from_millis(100));
}

/// Writes lines about an activity until it ends.
async fn show_lines(terminal: Terminal, number: u64, announced: Announced) {
    let (mut waited, mut next) = match announced {
        Announced::NotYet => (Duration::ZERO, ACTIVITY_DELAY),
        Announced::Already => (Duration::ZERO, REPEAT_INTERVAL),
    };
    loop {
        tokio::time::sleep(next).await;
        waited += next;
        let Some(activity) = terminal.screen().activity.text_of(number) else { return };
        let time = match waited.as_secs() {
            0 => String::new(),
            seconds => format!(" ({seconds} s so far)"),
        };
        terminal.note(format!("{DIM}… {activity}{time}{DIM:#}"));
        next = REPEAT_INTERVAL;
    }
}
