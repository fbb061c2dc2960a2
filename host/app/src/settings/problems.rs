//! What is wrong with a configuration, gathered over all that looks at it, so that a person is told all of it at once (I2).

use crate::exit::Failure;
use std::path::Path;

/// Problems, most of them led by where they were written: `FILE:LINE: `.
#[derive(Debug, Default)]
pub(crate) struct Problems(Vec<String>);

impl Problems {
    /// What went well; what did not is gathered.
    pub(crate) fn take<T>(&mut self, result: Result<T, Failure>) -> Option<T> {
        result.map_err(|failure| self.add(&failure)).ok()
    }

    /// One or several, each on lines of its own.
    pub(crate) fn add(&mut self, failure: &Failure) {
        self.0.push(failure.message.clone());
    }

    /// Whether there are none.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A failure with all of them, in the order of the file's lines, what stands elsewhere last.
    pub(crate) fn none(self, file: Option<&Path>) -> Result<(), Failure> {
        if self.is_empty() {
            return Ok(());
        }
        let problems = self.in_order(file).into_iter().map(|(_, problem)| problem);
        Err(Failure::refused(problems.collect::<Vec<_>>().join("\n")))
    }

    /// Each with its line in the file, if it stands there.
    pub(crate) fn in_order(self, file: Option<&Path>) -> Vec<(Option<usize>, String)> {
        let lead = file.map(|file| format!("{}:", file.display()));
        let line = |problem: &str| {
            let rest = problem.strip_prefix(lead.as_deref()?)?;
            rest.split_once(": ")?.0.parse::<usize>().ok()
        };
        let mut problems: Vec<(Option<usize>, String)> = Vec::new();
        for text in self.0.iter().flat_map(|message| message.split('\n')) {
            match (line(text), problems.last_mut()) {
                // A line that is led by nothing goes on with the one before, or is a problem of its own where that is led.
                (None, Some((None, before))) => before.push_str(&format!("\n{text}")),
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

    /// I2
    #[test]
    fn problems_stand_in_the_order_of_their_lines() {
        let mut problems = Problems::default();
        assert_eq!(problems.take(Ok(3)), Some(3));
        assert!(problems.is_empty());
        let failures =
            ["a.toml:12: model: no", "elsewhere\nmend it", "a.toml:2: x: no\na.toml:3: y: no", "b.toml:1: z"];
        for failure in failures {
            assert_eq!(problems.take::<()>(Err(Failure::refused(failure))), None);
        }
        let failure = problems.none(Some(Path::new("a.toml"))).expect_err("problems");
        let expected = "a.toml:2: x: no\na.toml:3: y: no\na.toml:12: model: no\nelsewhere\nmend it\nb.toml:1: z";
        assert_eq!(failure.message, expected);
    }
}
