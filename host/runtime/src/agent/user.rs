//! The name of the user that a turn works for (D4).

use serde::{Deserialize, Serialize};

/// Maximum number of characters in a user's name.
const MAX_CHARACTERS: usize = 128;

/// The name of a user. Memories of the user are stored under this name, and are recalled only in turns that work
/// for this user.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct UserName(String);

/// The reason why a string is not a valid user name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserNameError {
    /// The string is empty.
    #[error("the user's name is empty")]
    Empty,
    /// The string has more than 128 characters.
    #[error("the user's name has {characters} characters; at most {MAX_CHARACTERS} are allowed")]
    TooLong {
        /// Number of characters of the rejected string.
        characters: usize,
    },
    /// The string contains a control character, or begins or ends with white space. Control characters and outer
    /// white space could make two different names look the same.
    #[error(
        "the user's name contains {0:?}: control characters are not allowed, and it cannot begin or end with a space"
    )]
    Character(char),
}

impl UserName {
    /// Checks that `text` is a valid user name. The name must have 1 to 128 characters, contain no control characters,
    /// and neither begin nor end with white space.
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

    /// Returns the name as a string slice.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for UserName {
    type Error = UserNameError;

    fn try_from(text: String) -> Result<Self, UserNameError> {
        Self::new(&text)
    }
}

impl From<UserName> for String {
    fn from(name: UserName) -> Self {
        name.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D4: a user name is rejected if it is too long, contains control characters, or begins or ends with white space.
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
