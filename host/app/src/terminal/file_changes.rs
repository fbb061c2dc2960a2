//! Shows changes to text files as coloured differences.

use super::approval::escaped;
use super::text::{count, grouped};
use super::{BOLD, DIM, GREEN, RED, YELLOW};
use agent_runtime::{LineKind, ProposedChange, TextDifference};
use std::path::Path;

/// Number of unchanged lines that are shown before and after changed lines.
const CONTEXT_LINES: usize = 2;
/// Maximum number of lines that are shown, unless all are requested.
const MAX_LINES: usize = 40;
/// Maximum number of characters of a line that are shown, unless all are requested.
const MAX_CHARACTERS: usize = 200;

/// How much of the changes is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Extent {
    /// The beginning.
    Beginning,
    /// Everything.
    All,
}

/// Formats the changes. Paths below `folder`, which is the current folder, are shown relative to it. If something is left
/// out, the last line says so; it begins with `showing`, which is the subject and the verb of its sentence.
pub(crate) fn changes(changes: &[ProposedChange], folder: &Path, (extent, showing): (Extent, &str)) -> String {
    let mut lines = Vec::new();
    let mut is_cut = false;
    for change in changes {
        let (old, new) = (change.old.as_deref().unwrap_or(""), change.new.as_deref().unwrap_or(""));
        let difference = TextDifference::of(old, new, CONTEXT_LINES);
        let (added, removed) = (grouped(difference.added as u64), grouped(difference.removed as u64));
        let what = match (&change.old, &change.new) {
            (None, _) => "new file, ",
            (_, None) => "removed, ",
            _ => "",
        };
        let path = escaped(&change.path.strip_prefix(folder).unwrap_or(&change.path).to_string_lossy());
        lines
            .push(format!("  {BOLD}{path}{BOLD:#}  {DIM}{what}{DIM:#}{GREEN}+{added}{GREEN:#} {RED}-{removed}{RED:#}"));
        for (index, group) in difference.groups.iter().enumerate() {
            if index > 0 {
                lines.push(format!("  {DIM}  …{DIM:#}"));
            }
            for line in group {
                let (text, is_line_cut) = shown_line(line.text, extent);
                is_cut |= is_line_cut;
                lines.push(match line.kind {
                    LineKind::Removed => format!("  {RED}- {text}{RED:#}"),
                    LineKind::Added => format!("  {GREEN}+ {text}{GREEN:#}"),
                    LineKind::Same => format!("  {DIM}  {text}{DIM:#}"),
                });
                if !line.text.ends_with('\n') {
                    lines.push(format!("  {DIM}  (no newline at the end){DIM:#}"));
                }
            }
        }
    }
    if extent == Extent::Beginning && (is_cut || lines.len() > MAX_LINES) {
        let left_out = lines.len().saturating_sub(MAX_LINES);
        lines.truncate(MAX_LINES);
        let what = if left_out > 0 { count(left_out, "more line") } else { "the rest of long lines".to_owned() };
        lines.push(format!("  {YELLOW}… not everything is shown: {showing} all ({what}){YELLOW:#}"));
    }
    lines.join("\n")
}

/// Returns a line of a file in a form that cannot control the terminal, and whether the end of the line is left out.
fn shown_line(line: &str, extent: Extent) -> (String, bool) {
    let line = line.strip_suffix('\n').unwrap_or(line);
    let limit = if extent == Extent::All { usize::MAX } else { MAX_CHARACTERS };
    let beginning: String = line.chars().take(limit).collect();
    let is_cut = beginning.len() < line.len();
    let more = if is_cut { "…" } else { "" };
    (format!("{}{more}", escaped(&beginning.replace('\t', "    "))), is_cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(path: &str, old: Option<&str>, new: Option<&str>) -> ProposedChange {
        ProposedChange { path: path.into(), old: old.map(str::to_owned), new: new.map(str::to_owned) }
    }

    fn shown(proposed: &[ProposedChange], extent: Extent) -> String {
        let text = changes(proposed, Path::new("/work"), (extent, "v shows"));
        anstream::adapter::strip_str(&text).to_string()
    }

    /// L17: a difference shows what is added, changed and removed, and no character can control the terminal.
    #[test]
    fn l17_shows_new_changed_and_removed_files() {
        let proposed = [
            change(
                "/work/a.md",
                Some("one\ntwo\nthree\nfour\nfive\nsix\n"),
                Some("one\ntwo\nthree\nfour\n5\u{1b}[2J\nsix"),
            ),
            change("/work/sub/new.md", None, Some("\tfirst\n")),
            change("/else/old.md", Some("gone\n"), None),
        ];
        insta::assert_snapshot!(shown(&proposed, Extent::Beginning), @r"
          a.md  +2 -2
            three
            four
          - five
          - six
          + 5\u{1b}[2J
          + six
            (no newline at the end)
          sub/new.md  new file, +1 -0
          +     first
          /else/old.md  removed, +0 -1
          - gone
        ");
    }

    #[test]
    fn long_differences_are_cut_and_say_so() {
        let lines: String = (0..100).map(|number| format!("line {number}\n")).collect();
        let text = shown(&[change("/work/a.md", None, Some(&lines))], Extent::Beginning);
        assert!(text.ends_with("… not everything is shown: v shows all (61 more lines)"), "{text}");
        let text = shown(&[change("/work/a.md", None, Some(&"x".repeat(300)))], Extent::Beginning);
        assert!(
            text.contains(&format!("{}…", "x".repeat(200))) && text.ends_with("(the rest of long lines)"),
            "{text}"
        );
        let text = shown(&[change("/work/a.md", None, Some(&lines))], Extent::All);
        assert!(text.contains("line 99") && !text.contains("not everything"), "{text}");
    }
}
