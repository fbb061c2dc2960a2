//! Cleans text from imported documents before it is shown to users.

/// Returns at most the first `characters` characters of the text. Control characters are removed.
pub(super) fn one_line(text: &str, characters: usize) -> String {
    text.chars().filter(|character| !character.is_control()).take(characters).collect()
}
