//! Text that somebody else wrote and that people read.

/// A name for people: so many characters of it, in one line.
pub(super) fn harmless(text: &str, characters: usize) -> String {
    text.chars().filter(|character| !character.is_control()).take(characters).collect()
}
