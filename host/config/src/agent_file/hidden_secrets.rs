//! Hides secrets in the text of a configuration file before parts of the text are shown.

use super::text_format::is_secret;
use std::ops::Range;

/// Replaces each byte of a secret with `*`, so that line and column numbers stay the same. In addition, hides the
/// value on every line whose key looks like the name of a secret, because no keys can be parsed from a file that is
/// not valid TOML.
pub(super) fn without_secrets(text: &str, secrets: &[Range<usize>]) -> String {
    let mut hidden = vec![false; text.len()];
    let mut hide = |range: Range<usize>| hidden.get_mut(range).into_iter().for_each(|bytes| bytes.fill(true));
    secrets.iter().cloned().for_each(&mut hide);
    let mut begin = 0;
    for line in text.split_inclusive('\n') {
        let key = line.split('=').next().unwrap_or_default();
        if is_secret(key.trim().trim_matches(['"', '\''])) {
            hide(begin + key.len()..begin + line.len());
        }
        begin += line.len();
    }
    let shown = text.char_indices().map(|(index, character)| match character {
        '\n' | '\r' | ' ' | '=' => character.to_string(),
        _ if hidden[index] => "*".repeat(character.len_utf8()),
        _ => character.to_string(),
    });
    shown.collect()
}
