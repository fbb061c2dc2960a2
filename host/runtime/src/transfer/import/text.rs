//! Cleans text from imported documents before it is shown to users.

/// Removes the control characters from the text, and returns at most the first `characters` characters.
pub(super) fn one_line(text: &str, characters: usize) -> String {
    text.chars().filter(|character| !character.is_control()).take(characters).collect()
}
