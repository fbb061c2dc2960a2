//! Line-based differences between two texts, for error messages.

/// Returns a unified diff from `expected` to `found`.
pub(crate) fn diff(expected: &str, found: &str) -> String {
    agent_runtime::unified_diff(("expected", "found"), expected, found)
}
