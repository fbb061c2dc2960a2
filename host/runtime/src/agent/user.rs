//! The name of the user that a turn works for (D4).

/// Maximum number of characters of a user's name.
const MAX_CHARACTERS: usize = 128;

/// The name of a user. Memories are stored under this name and are recalled only for this user.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UserName(String);

/// The reason why a text is not a valid user name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserNameError {
    /// The text is empty.
    #[error("the user's name is empty")]
    Empty,
    /// The text has more than 128 characters.
    #[error("the user's name has {characters} characters; at most {MAX_CHARACTERS} are allowed")]
    TooLong {
        /// Number of characters in the text.
        characters: usize,
    },
    /// The text contains a control character, or white space at an end, so that two names could look the same.
    #[error("the user's name has {0:?} in it: control characters, and spaces at either end, are not allowed")]
    Character(char),
}

impl UserName {
    /// Checks a name: it must have 1 to 128 characters, no control characters, and no white space at either end.
    pub fn new(text: &str) -> Result<Self, UserNameError> {
        let characters = text.chars().count();
        if characters > MAX_CHARACTERS {
            return Err(UserNameError::TooLong { characters });
        }
        let (Some(first), Some(last)) = (text.chars().next(), text.chars().last()) else {
            return Err(UserNameError::Empty);
        };
        let at_end = [first, last].into_iter().find(|character| character.is_whitespace());
        match text.chars().find(|character| character.is_control()).or(at_end) {
            Some(character) => Err(UserNameError::Character(character)),
            None => Ok(Self(text.to_owned())),
        }
    }

    /// The name as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D4: user names are short, visible and distinguishable.
    #[test]
    fn d4_user_names_are_checked() {
        for name in ["ann", "Ann Lee", "ann@example.org", "ä", &"x".repeat(128)] {
            assert_eq!(UserName::new(name).map(|name| name.0).as_deref(), Ok(name));
        }
        assert_eq!(UserName::new(""), Err(UserNameError::Empty));
        assert_eq!(UserName::new(&"ä".repeat(129)), Err(UserNameError::TooLong { characters: 129 }));
        for (name, character) in
            [(" ann", ' '), ("ann\t", '\t'), ("a\0b", '\0'), ("a\u{1b}[2J", '\u{1b}'), ("\n", '\n')]
        {
            assert_eq!(UserName::new(name), Err(UserNameError::Character(character)), "{name:?}");
        }
    }
}
