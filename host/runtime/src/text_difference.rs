//! Line-based differences between two texts, for people.

use similar::TextDiff;
use std::time::Duration;

/// Maximum time for which a short difference is searched. After this time, the result is still a correct difference, but it
/// may contain more lines than necessary.
const TIME_LIMIT: Duration = Duration::from_millis(500);
/// Number of equal lines that are shown before and after each difference.
const CONTEXT_LINES: usize = 3;

/// Returns a unified diff of two texts. `labels` contains the names of the old and the new text, for the header of the
/// diff. The result is empty if the texts are equal, apart from a missing line break at the end.
///
/// ```
/// let diff = agent_runtime::unified_diff(("then", "now"), "one\ntwo\n", "one\nthree");
/// assert_eq!(diff, "--- then\n+++ now\n@@ -1,2 +1,2 @@\n one\n-two\n+three\n");
/// ```
pub fn unified_diff(labels: (&str, &str), old: &str, new: &str) -> String {
    let ends_with_newline = |text: &str| text.is_empty() || text.ends_with('\n');
    let terminated = |text: &str| if ends_with_newline(text) { text.to_owned() } else { format!("{text}\n") };
    let (old, new) = (terminated(old), terminated(new));
    let diff = TextDiff::configure().timeout(TIME_LIMIT).diff_lines(&old, &new);
    diff.unified_diff().context_radius(CONTEXT_LINES).header(labels.0, labels.1).to_string()
}
