//! The results of scenarios, and their conversion to JUnit XML for build servers and to JSON for other programs.

use super::golden::GoldenResult;
use super::pattern::Mismatch;
use super::place::Place;
use serde_json::{Value, json};
use std::fmt::Write;
use std::path::PathBuf;
use std::time::Duration;

/// An expectation that is not met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The location of the expectation in the scenario file.
    pub place: Place,
    /// Description of the expected value.
    pub expected: String,
    /// Description of the actual value.
    pub found: String,
    /// A unified diff from the expected value to the actual value. None if the expectation is not about a whole
    /// text or a whole value.
    pub diff: Option<String>,
    /// Advice on how to fix the problem, if it is not obvious.
    pub advice: Option<String>,
}

impl Failure {
    pub(crate) fn at(place: Place, expected: &str, found: String) -> Self {
        Self { place, expected: expected.to_owned(), found, diff: None, advice: None }
    }

    pub(crate) fn advising(self, advice: impl Into<String>) -> Self {
        Self { advice: Some(advice.into()), ..self }
    }

    pub(crate) fn of(place: &Place, mismatches: Vec<Mismatch>) -> impl Iterator<Item = Self> {
        let failure = |Mismatch { expected, found, diff }: Mismatch| Self {
            place: place.clone(),
            expected,
            found,
            diff,
            advice: None,
        };
        mismatches.into_iter().map(failure)
    }
}

/// Whether a scenario was played and whether it passed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// All expectations are met.
    Passed,
    /// At least one expectation is not met.
    Failed(Vec<Failure>),
    /// The scenario could not be played, for the given reason.
    NotPlayed(String),
}

/// The result of one scenario.
#[derive(Clone, Debug)]
pub struct Report {
    /// Name of the scenario.
    pub name: String,
    /// Path of the scenario file.
    pub path: PathBuf,
    /// Whether the scenario passed.
    pub verdict: Verdict,
    /// The result of comparing or updating the golden transcript.
    pub golden: GoldenResult,
    /// Notes about parts of the agent's configuration that have no effect in a scenario.
    pub notes: Vec<String>,
    /// Duration of the scenario.
    pub time: Duration,
}

/// The numbers of scenarios that passed, failed and were not played.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Number of scenarios whose expectations are all met.
    pub passed: usize,
    /// Number of scenarios with at least one expectation that is not met.
    pub failed: usize,
    /// Number of scenarios that could not be played.
    pub not_played: usize,
}

impl Totals {
    /// Counts the verdicts of the reports.
    pub fn of(reports: &[Report]) -> Self {
        let mut totals = Self::default();
        for report in reports {
            match report.verdict {
                Verdict::Passed => totals.passed += 1,
                Verdict::Failed(_) => totals.failed += 1,
                Verdict::NotPlayed(_) => totals.not_played += 1,
            }
        }
        totals
    }
}

/// Returns a JSON document with all reports.
pub fn json(reports: &[Report]) -> Value {
    let totals = Totals::of(reports);
    json!({
        "passed": totals.passed,
        "failed": totals.failed,
        "not_played": totals.not_played,
        "scenarios": reports.iter().map(report_json).collect::<Vec<_>>(),
    })
}

fn report_json(report: &Report) -> Value {
    let (verdict, failures, reason) = match &report.verdict {
        Verdict::Passed => ("passed", Vec::new(), None),
        Verdict::Failed(failures) => ("failed", failures.iter().map(failure_json).collect(), None),
        Verdict::NotPlayed(reason) => ("not_played", Vec::new(), Some(reason)),
    };
    json!({
        "name": report.name,
        "file": report.path.display().to_string(),
        "verdict": verdict,
        "failures": failures,
        "reason": reason,
        "golden": report.golden.word(),
        "notes": report.notes,
        "time_ms": u64::try_from(report.time.as_millis()).unwrap_or(u64::MAX),
    })
}

fn failure_json(failure: &Failure) -> Value {
    json!({
        "file": failure.place.file.display().to_string(),
        "line": failure.place.line,
        "key": failure.place.key,
        "expected": failure.expected,
        "found": failure.found,
        "diff": failure.diff,
        "advice": failure.advice,
    })
}

/// Returns JUnit XML with a test suite for each folder and a test case for each scenario.
pub fn junit(reports: &[Report]) -> String {
    let mut suites: Vec<(&str, Vec<&Report>)> = Vec::new();
    for report in reports {
        let suite = report.name.rsplit_once('/').map_or("scenarios", |(folder, _)| folder);
        match suites.iter_mut().find(|(name, _)| *name == suite) {
            Some((_, cases)) => cases.push(report),
            None => suites.push((suite, vec![report])),
        }
    }
    let totals = Totals::of(reports);
    let mut xml = String::from("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    let (count, time) = (reports.len(), seconds(reports.iter().map(|report| report.time).sum()));
    let counts = format!("failures=\"{}\" errors=\"{}\"", totals.failed, totals.not_played);
    let _ = writeln!(xml, "<testsuites name=\"agent-host test\" tests=\"{count}\" {counts} time=\"{time}\">");
    for (suite, cases) in suites {
        let owned: Vec<Report> = cases.iter().map(|report| (*report).clone()).collect();
        let totals = Totals::of(&owned);
        let time = seconds(cases.iter().map(|report| report.time).sum());
        let counts = format!("failures=\"{}\" errors=\"{}\"", totals.failed, totals.not_played);
        let name = escaped(suite);
        let _ = writeln!(xml, "  <testsuite name=\"{name}\" tests=\"{}\" {counts} time=\"{time}\">", cases.len());
        cases.iter().for_each(|report| write_case(report, &name, &mut xml));
        xml.push_str("  </testsuite>\n");
    }
    xml.push_str("</testsuites>\n");
    xml
}

fn write_case(report: &Report, suite: &str, xml: &mut String) {
    let name = report.name.rsplit('/').next().unwrap_or_default();
    let (name, file, time) = (escaped(name), escaped(&report.path.display().to_string()), seconds(report.time));
    let _ = write!(xml, "    <testcase name=\"{name}\" classname=\"{suite}\" file=\"{file}\" time=\"{time}\"");
    let (tag, kind, message, text) = match &report.verdict {
        Verdict::Passed => {
            match notes(report) {
                Some(notes) => {
                    let _ = writeln!(xml, ">\n{notes}    </testcase>");
                }
                None => xml.push_str("/>\n"),
            }
            return;
        }
        Verdict::Failed(failures) => {
            let first = failures.first().map(|failure| format!("{}: expected {}", failure.place, failure.expected));
            let details = failures.iter().map(failure_text).collect::<Vec<_>>().join("\n");
            ("failure", "expectation", first.unwrap_or_default(), details)
        }
        Verdict::NotPlayed(reason) => {
            ("error", "not_played", reason.lines().next().unwrap_or_default().to_owned(), reason.clone())
        }
    };
    let (message, text) = (escaped(&message), escaped(&text));
    let notes = notes(report).unwrap_or_default();
    let _ =
        writeln!(xml, ">\n      <{tag} type=\"{kind}\" message=\"{message}\">{text}</{tag}>\n{notes}    </testcase>");
}

fn notes(report: &Report) -> Option<String> {
    let notes = escaped(&report.notes.join("\n"));
    (!notes.is_empty()).then(|| format!("      <system-out>{notes}</system-out>\n"))
}

/// Formats a failure as several lines of text.
fn failure_text(failure: &Failure) -> String {
    let mut text = format!("{}\n  expected {}\n  found    {}\n", failure.place, failure.expected, failure.found);
    failure.diff.iter().for_each(|diff| text.push_str(diff));
    failure.advice.iter().for_each(|advice| {
        let _ = writeln!(text, "  {advice}");
    });
    text
}

fn seconds(time: Duration) -> String {
    format!("{:.3}", time.as_secs_f64())
}

/// Escapes a text for XML 1.0. Characters that XML cannot contain are replaced by U+FFFD.
fn escaped(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' => escaped.push_str("&#9;"),
            character if character.is_control() || matches!(character, '\u{fffe}' | '\u{ffff}') => {
                escaped.push('\u{fffd}')
            }
            character => escaped.push(character),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(name: &str, verdict: Verdict) -> Report {
        let path = PathBuf::from(format!("{name}.scenario.toml"));
        let (name, time) = (name.to_owned(), Duration::from_millis(12));
        Report { name, path, verdict, golden: GoldenResult::None, notes: Vec::new(), time }
    }

    /// S4: the JUnit report has a suite for each folder, and the JSON report contains each failure with its line.
    #[test]
    fn junit_has_a_suite_for_each_folder() {
        let place = Place { file: "text/a.scenario.toml".into(), line: 3, key: "turns[0].output".into() };
        let failed = vec![Failure::at(place, "the text \"<b>\"", "\"a\u{1b}[0m\"".to_owned())];
        let reports = [
            report("text/a", Verdict::Failed(failed)),
            report("text/b", Verdict::Passed),
            report("c", Verdict::NotPlayed("no\nplugin".to_owned())),
        ];
        insta::assert_snapshot!(junit(&reports));
        let noted = Report { notes: vec!["without <b>".to_owned()], ..report("d", Verdict::Passed) };
        assert!(junit(&[noted]).contains("<system-out>without &lt;b&gt;</system-out>"));
        let document = json(&reports);
        assert_eq!(document["scenarios"][0]["failures"][0]["line"], 3);
        assert_eq!(
            (&document["passed"], &document["failed"], &document["not_played"]),
            (&json!(1), &json!(1), &json!(1))
        );
    }
}
