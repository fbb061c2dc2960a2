//! The table of benchmark results that the program prints.

use crate::samples::Samples;
use std::fmt;
use std::time::Duration;

/// The rows of the table. Each title row is followed by the measurements that belong to the title.
#[derive(Default)]
pub(crate) struct Table(Vec<Row>);

enum Row {
    Title(String),
    Line { what: String, samples: Samples, verdict: String },
}

impl Table {
    /// Adds a title row. The title is the name of a row in the design's table of speed targets.
    pub(crate) fn title(&mut self, title: String) {
        self.0.push(Row::Title(title));
    }

    /// Adds a measurement with its verdict.
    pub(crate) fn line(&mut self, what: &str, samples: Samples, verdict: String) {
        self.0.push(Row::Line { what: what.to_owned(), samples, verdict });
    }
}

impl fmt::Display for Table {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for row in &self.0 {
            match row {
                Row::Title(title) => {
                    writeln!(formatter, "\n{title}\n  {:<52}{:>12}{:>12}", "", "median", "p99")?;
                }
                Row::Line { what, samples, verdict } => {
                    // A line without samples contains only text.
                    let shown = |value| if samples.count() == 0 { String::new() } else { micros(value) };
                    let (median, p99) = (shown(samples.median()), shown(samples.p99()));
                    writeln!(formatter, "  {}", format!("{what:<52}{median:>12}{p99:>12}  {verdict}").trim_end())?;
                }
            }
        }
        Ok(())
    }
}

/// The duration in microseconds, as text for the table.
pub(crate) fn micros(duration: Duration) -> String {
    format!("{:.1} µs", duration.as_secs_f64() * 1e6)
}

/// Returns the word that the table shows for a target: reached or missed.
pub(crate) fn reached(is_reached: bool) -> &'static str {
    if is_reached { "reached" } else { "MISSED" }
}
