//! Collects the problems that all checks of a configuration find, so that they are reported together (I2).

use crate::error::ConfigError;
use std::fmt;
use std::path::Path;

/// A list of problems that were found in a configuration. Most problems begin with their location, `FILE:LINE: `.
#[derive(Debug, Default)]
pub struct Problems(Vec<String>);

impl Problems {
    /// Returns the value if the result is Ok. If the result is an error, adds the error to the list and returns None.
    pub fn collect<T, E: fmt::Display>(&mut self, result: Result<T, E>) -> Option<T> {
        result.map_err(|problem| self.add(&problem)).ok()
    }

    /// Adds a problem, or several problems that are separated by line breaks.
    pub fn add(&mut self, problem: &impl fmt::Display) {
        self.0.push(problem.to_string());
    }

    /// Returns true if no problem has been found.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns an error with all problems, or Ok if no problem has been found. The problems in `file` come first, in
    /// the order of the lines of `file`.
    pub fn into_result(self, file: Option<&Path>) -> Result<(), ConfigError> {
        if self.is_empty() {
            return Ok(());
        }
        let problems = self.in_order(file).into_iter().map(|(_, problem)| problem);
        Err(ConfigError::Settings(problems.collect::<Vec<_>>().join("\n")))
    }

    /// Returns the problems with their lines in `file`, sorted by line. Problems that are not in `file` are at the
    /// end of the list, without a line.
    pub fn in_order(self, file: Option<&Path>) -> Vec<(Option<usize>, String)> {
        let lead = file.map(|file| format!("{}:", file.display()));
        let line = |problem: &str| {
            let after_file = problem.strip_prefix(lead.as_deref()?)?;
            after_file.split_once(": ")?.0.parse::<usize>().ok()
        };
        let mut problems: Vec<(Option<usize>, String)> = Vec::new();
        for text in self.0.iter().flat_map(|message| message.split('\n')) {
            match (line(text), problems.last_mut()) {
                // The text of a problem can have several lines. If neither this line nor the previous problem has a
                // location, this line belongs to the previous problem. Every other line starts a new problem.
                (None, Some((None, previous))) => previous.push_str(&format!("\n{text}")),
                (line, _) => problems.push((line, text.to_owned())),
            }
        }
        problems.sort_by_key(|(line, _)| line.unwrap_or(usize::MAX));
        problems.dedup();
        problems
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I2: problems in the file are sorted by line, and all other problems follow.
    #[test]
    fn problems_are_sorted_by_line() {
        let mut problems = Problems::default();
        assert_eq!(problems.collect::<_, String>(Ok(3)), Some(3));
        assert!(problems.is_empty());
        let failures = ["a.toml:12: model: no", "elsewhere\nfix it", "a.toml:2: x: no\na.toml:3: y: no", "b.toml:1: z"];
        for failure in failures {
            assert_eq!(problems.collect::<(), _>(Err(failure)), None);
        }
        let error = problems.into_result(Some(Path::new("a.toml"))).expect_err("problems");
        let expected = "a.toml:2: x: no\na.toml:3: y: no\na.toml:12: model: no\nelsewhere\nfix it\nb.toml:1: z";
        assert_eq!(error.to_string(), expected);
    }
}
