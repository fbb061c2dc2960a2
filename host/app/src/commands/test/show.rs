//! Prints the reports of scenarios as text.

use crate::exit::Failure as CommandFailure;
use crate::terminal::{BOLD, DIM, GREEN, RED, Terminal, YELLOW, text};
use agent_devkit::scenario::{Failure, GoldenResult, Report, Totals, Verdict};
use std::collections::BTreeSet;
use std::time::Duration;

/// Maximum number of displayed lines of a diff.
const DIFF_LINES: usize = 80;

/// Maximum size of a value that is shown again if several expectations of a scenario found it, in bytes.
const MAX_REPEATED_BYTES: usize = 60;

/// Prints reports. If scenarios cannot run, this struct remembers which reasons were already printed.
#[derive(Debug, Default)]
pub(super) struct ShownReports {
    /// Reasons why scenarios could not run. Each reason is printed once, because many scenarios may need the
    /// same project.
    reasons: BTreeSet<String>,
}

impl ShownReports {
    /// Prints one report. If the scenario passed, prints one line. Otherwise, prints all failures.
    pub(super) fn report(&mut self, report: &Report, terminal: &Terminal) -> Result<(), CommandFailure> {
        let is_shown = match &report.verdict {
            Verdict::NotPlayed(reason) => !self.reasons.insert(reason.clone()),
            _ => false,
        };
        if !is_shown {
            return full_report(report, terminal);
        }
        let name = text::one_line(&report.name, 200);
        let line = format!("{RED}✗{RED:#} {BOLD}{name}{BOLD:#} cannot run, for the same reason as a scenario above");
        terminal.print(line).map_err(CommandFailure::output)
    }
}

fn full_report(report: &Report, terminal: &Terminal) -> Result<(), CommandFailure> {
    let print = |line: String| terminal.print(line).map_err(CommandFailure::output);
    let (name, time) = (text::one_line(&report.name, 200), format_time(report.time));
    match &report.verdict {
        Verdict::Passed => print(format!("{GREEN}✓{GREEN:#} {name} {DIM}({time}){DIM:#}"))?,
        Verdict::Failed(failures) => {
            print(format!("{RED}✗{RED:#} {BOLD}{name}{BOLD:#} {DIM}({time}){DIM:#}"))?;
            let mut shown = BTreeSet::new();
            for failure in failures {
                let is_repeated = failure.found.len() > MAX_REPEATED_BYTES && !shown.insert(&failure.found);
                print(describe_failure(failure, is_repeated))?;
            }
        }
        Verdict::NotPlayed(reason) => {
            print(format!("{RED}✗{RED:#} {BOLD}{name}{BOLD:#} cannot run"))?;
            print(indented(&text::harmless(reason)))?;
        }
    }
    for note in &report.notes {
        print(format!("  {YELLOW}!{YELLOW:#} {}", text::harmless(note)))?;
    }
    match &report.golden {
        GoldenResult::Written { path, diff } => {
            print(format!("  {YELLOW}wrote{YELLOW:#} {}; review the changes:", path.display()))?;
            print(coloured(diff))?;
        }
        GoldenResult::Kept { path } => {
            let why = "a scenario that fails does not update its transcript";
            print(format!("  {YELLOW}!{YELLOW:#} {} was not changed: {why}", path.display()))?;
        }
        GoldenResult::None | GoldenResult::Same | GoldenResult::Differs => {}
    }
    Ok(())
}

/// Describes a failure. If `is_repeated` is true, what was found is above, as part of another failure of the scenario.
fn describe_failure(failure: &Failure, is_repeated: bool) -> String {
    let line = |text: &str| text::harmless(text).replace('\n', "\n              ");
    let mut shown = format!("  {BOLD}{}{BOLD:#}\n", failure.place);
    let found = if is_repeated { "the same as above".to_owned() } else { line(&failure.found) };
    shown.push_str(&format!("    expected  {}\n    found     {found}", line(&failure.expected)));
    if let Some(diff) = &failure.diff {
        shown.push_str(&format!("\n{}", coloured(diff)));
    }
    if let Some(advice) = &failure.advice {
        shown.push_str(&format!("\n    {DIM}to do{DIM:#}     {}", line(advice)));
    }
    shown
}

fn coloured(diff: &str) -> String {
    let diff_lines: Vec<&str> = diff.lines().collect();
    let lines = diff_lines.iter().take(DIFF_LINES).map(|line| {
        let line = text::harmless(line);
        match line.as_bytes().first() {
            Some(b'+') => format!("    {GREEN}{line}{GREEN:#}"),
            Some(b'-') => format!("    {RED}{line}{RED:#}"),
            Some(b'@') => format!("    {DIM}{line}{DIM:#}"),
            _ => format!("    {line}"),
        }
    });
    let mut shown = lines.collect::<Vec<_>>().join("\n");
    if diff_lines.len() > DIFF_LINES {
        shown.push_str(&format!("\n    {DIM}and {} more lines{DIM:#}", diff_lines.len() - DIFF_LINES));
    }
    shown
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// Prints the last line of a run that the user stopped.
pub(super) fn stopped(played: usize, selected: usize, terminal: &Terminal) {
    terminal.note(format!("stopped: {played} of {selected} scenarios ran"));
}

/// Prints the last line of a complete run.
pub(super) fn totals(totals: Totals, time: Duration, terminal: &Terminal) -> Result<(), CommandFailure> {
    let Totals { passed, failed, not_played } = totals;
    let count = |number: usize, word: &str| (number > 0).then(|| format!("{number} {word}"));
    let total = passed + failed + not_played;
    let counts = [count(passed, "passed"), count(failed, "failed"), count(not_played, "not run")];
    let counts = counts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let word = if total == 1 { "scenario" } else { "scenarios" };
    let line = format!("\n{total} {word}: {counts} {DIM}({}){DIM:#}", format_time(time));
    terminal.print(line).map_err(CommandFailure::output)
}

fn format_time(time: Duration) -> String {
    match time.as_millis() {
        millis if millis < 10_000 => format!("{millis} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}
