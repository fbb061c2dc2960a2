//! Finds the paths in the arguments of a call that lead into the trees of its plugin.

use crate::turn::calls::changed_files::path_on_host;
use agent_plugins::TreeGrant;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;
use tokio_util::sync::CancellationToken;

/// Maximum number of texts in the arguments. A model may write 16 MiB of arguments, and each text may be a path.
const MAX_TEXTS: usize = 10_000;
/// Maximum number of different paths in the arguments. In a tree with the name `.`, every short text counts as a path.
const MAX_PATHS: usize = 256;
/// Maximum length in bytes of an argument that may be the path of a file.
const MAX_PATH: usize = 4096;
/// Maximum number of components of a path in a tree. Longer paths are ignored.
pub(super) const MAX_DEPTH: usize = 32;

/// The number of a tree, and a path in the tree.
pub(super) type Place = (usize, PathBuf);

/// Returns all texts in the arguments that may be paths in the trees. Returns `None` if there are too many, or if the
/// rehearsal was cancelled.
pub(super) fn paths_in(
    trees: &[TreeGrant],
    arguments: &Value,
    cancelled: &CancellationToken,
) -> Option<BTreeSet<String>> {
    let (mut paths, mut texts) = (BTreeSet::new(), 0);
    let mut values = vec![arguments];
    while let Some(value) = values.pop() {
        match value {
            Value::String(text) => {
                texts += 1;
                if texts > MAX_TEXTS || cancelled.is_cancelled() {
                    return None;
                }
                if !text.contains('\n') && text.len() <= MAX_PATH && place_of(trees, text).is_some() {
                    paths.insert(text.clone());
                }
                if paths.len() > MAX_PATHS {
                    return None;
                }
            }
            Value::Array(items) => values.extend(items),
            Value::Object(fields) => values.extend(fields.values()),
            _ => {}
        }
    }
    Some(paths)
}

/// Returns the most specific tree that contains the path, and the path in the tree.
pub(super) fn place_of(trees: &[TreeGrant], path: &str) -> Option<Place> {
    let on_host = path_on_host(trees, path)?;
    let containing = trees.iter().enumerate().filter_map(|(number, tree)| {
        let host = std::path::absolute(&tree.host).ok()?;
        let inner = on_host.strip_prefix(&host).ok()?;
        Some((host.as_os_str().len(), number, inner.to_owned()))
    });
    let (_, number, inner) = containing.max_by_key(|(length, ..)| *length)?;
    (1..=MAX_DEPTH).contains(&inner.components().count()).then_some((number, inner))
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_plugins::Access;
    use serde_json::json;

    /// Row 44: neither many nor deep paths in the arguments make a rehearsal expensive.
    #[test]
    fn row_44_the_paths_in_arguments_are_bounded() {
        let trees = [TreeGrant { host: "/srv/work".into(), guest: ".".to_owned(), access: Access::ReadWrite }];
        let find = |arguments: &Value| paths_in(&trees, arguments, &CancellationToken::new());
        let numbered =
            |count: usize, end: &str| json!((0..count).map(|number| format!("{number}{end}")).collect::<Vec<_>>());
        assert_eq!(find(&json!({"path": "a/b", "texts": ["two\nlines", "../up", "/etc/x"]})).expect("few").len(), 1);
        assert_eq!(find(&numbered(MAX_PATHS, ".md")).expect("just few enough").len(), MAX_PATHS);
        assert_eq!(find(&numbered(MAX_PATHS + 1, ".md")), None);
        assert_eq!(find(&json!(vec!["same"; MAX_PATHS * 2])).expect("one path").len(), 1);
        assert_eq!(find(&numbered(MAX_TEXTS + 1, "\n")), None);
        let deepest = ["x"; MAX_DEPTH].join("/");
        assert_eq!(find(&json!([deepest])).expect("one").len(), 1);
        assert_eq!(find(&numbered(MAX_TEXTS, &format!("/{deepest}"))).expect("deep paths are ignored").len(), 0);
        let cancelled = CancellationToken::new();
        cancelled.cancel();
        assert_eq!(paths_in(&trees, &json!(["a"]), &cancelled), None);
    }
}
