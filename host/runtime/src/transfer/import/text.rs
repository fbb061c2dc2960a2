//! Cleans text from outside before it is shown to people.

/// Returns at most this number of characters of the text, without control characters.
pub(super) fn one_line(text: &str, characters: usize) -> String {
    text.chars().filter(|character| !character.is_control()).take(characters).collect()
}
