//! Reports of scenarios for people.

use crate::exit::Failure as Ending;
use crate::terminal::{BOLD, DIM, GREEN, RED, Terminal, YELLOW, text};
use agent_devkit::scenario::{Failure, Golden, Report, Totals, Verdict};
use std::collections::BTreeSet;
use std::time::Duration;

/// Lines of a diff that are shown.
const DIFF_LINES: usize = 80;

/// What was shown so far.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// Why scenarios could not be played: a project that many need is told once.
    reasons: BTreeSet<String>,
}

impl Shown {
    /// One scenario: a line where it passed, else everything that does not hold.
    pub(super) fn report(&mut self, report: &Report, terminal: &Terminal) -> Result<(), Ending> {
        let is_told = match &report.verdict {
            Verdict::NotPlayed(reason) => !self.reasons.insert(reason.clone()),
            _ => false,
        };
        if !is_told {
            return whole_report(report, terminal);
        }
        let name = text::one_line(&report.name, 200);
        let line = format!("{RED}✗{RED:#} {BOLD}{name}{BOLD:#} cannot be played, for the same reason as one above");
        terminal.print(line).map_err(Ending::output)
    }
}

fn whole_report(report: &Report, terminal: &Terminal) -> Result<(), Ending> {
    let print = |line: String| terminal.print(line).map_err(Ending::output);
    let (name, time) = (text::one_line(&report.name, 200), shown(report.time));
    match &report.verdict {
        Verdict::Passed => print(format!("{GREEN}✓{GREEN:#} {name} {DIM}({time}){DIM:#}"))?,
        Verdict::Failed(failures) => {
            print(format!("{RED}✗{RED:#} {BOLD}{name}{BOLD:#} {DIM}({time}){DIM:#}"))?;
            for failure in failures {
                print(whole(failure))?;
            }
        }
        Verdict::NotPlayed(reason) => {
            print(format!("{RED}✗{RED:#} {BOLD}{name}{BOLD:#} cannot be played"))?;
            print(indented(&text::harmless(reason)))?;
        }
    }
    for note in &report.notes {
        print(format!("  {YELLOW}!{YELLOW:#} {}", text::harmless(note)))?;
    }
    match &report.golden {
        Golden::Written { path, diff } => {
            print(format!("  {YELLOW}wrote{YELLOW:#} {}; review what changed:", path.display()))?;
            print(coloured(diff))?;
        }
        Golden::Kept { path } => {
            let why = "a scenario that fails writes no transcript";
            print(format!("  {YELLOW}!{YELLOW:#} {} is left as it is: {why}", path.display()))?;
        }
        Golden::None | Golden::Same | Golden::Differs => {}
    }
    Ok(())
}

fn whole(failure: &Failure) -> String {
    let line = |text: &str| text::harmless(text).replace('\n', "\n              ");
    let mut shown = format!("  {BOLD}{}{BOLD:#}\n", failure.place);
    shown.push_str(&format!("    expected  {}\n    found     {}", line(&failure.expected), line(&failure.found)));
    if let Some(diff) = &failure.diff {
        shown.push_str(&format!("\n{}", coloured(diff)));
    }
    if let Some(advice) = &failure.advice {
        shown.push_str(&format!("\n    {DIM}to do{DIM:#}     {}", line(advice)));
    }
    shown
}

fn coloured(diff: &str) -> String {
    let all: Vec<&str> = diff.lines().collect();
    let lines = all.iter().take(DIFF_LINES).map(|line| {
        let line = text::harmless(line);
        match line.as_bytes().first() {
            Some(b'+') => format!("    {GREEN}{line}{GREEN:#}"),
            Some(b'-') => format!("    {RED}{line}{RED:#}"),
            Some(b'@') => format!("    {DIM}{line}{DIM:#}"),
            _ => format!("    {line}"),
        }
    });
    let mut shown = lines.collect::<Vec<_>>().join("\n");
    if all.len() > DIFF_LINES {
        shown.push_str(&format!("\n    {DIM}and {} more lines{DIM:#}", all.len() - DIFF_LINES));
    }
    shown
}

fn indented(text: &str) -> String {
    text.lines().map(|line| format!("  {line}")).collect::<Vec<_>>().join("\n")
}

/// The last line where somebody has stopped it.
pub(super) fn stopped(played: usize, all: usize, terminal: &Terminal) {
    terminal.note(format!("stopped: {played} of {all} scenarios were played"));
}

/// The last line.
pub(super) fn totals(totals: Totals, time: Duration, terminal: &Terminal) -> Result<(), Ending> {
    let Totals { passed, failed, not_played } = totals;
    let count = |number: usize, word: &str| (number > 0).then(|| format!("{number} {word}"));
    let all = passed + failed + not_played;
    let counts = [count(passed, "passed"), count(failed, "failed"), count(not_played, "not played")];
    let counts = counts.into_iter().flatten().collect::<Vec<_>>().join(", ");
    let word = if all == 1 { "scenario" } else { "scenarios" };
    let line = format!("\n{all} {word}: {counts} {DIM}({}){DIM:#}", shown(time));
    terminal.print(line).map_err(Ending::output)
}

fn shown(time: Duration) -> String {
    match time.as_millis() {
        millis if millis < 10_000 => format!("{millis} ms"),
        _ => format!("{:.1} s", time.as_secs_f64()),
    }
}
