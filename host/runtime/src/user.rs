//! For whom a turn works (D4).

/// Characters of a user's name at most.
const MAX_CHARACTERS: usize = 128;

/// A user's name: what is remembered is remembered under it, and recalled for nobody else.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct UserName(String);

/// A text that is no user's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserNameError {
    /// It has no character.
    #[error("the user's name is empty")]
    Empty,
    /// It is too long.
    #[error("the user's name has {characters} characters; it may have {MAX_CHARACTERS}")]
    TooLong {
        /// Of the text.
        characters: usize,
    },
    /// Two names would look the same.
    #[error("the user's name has {0:?} in it: a name has no control characters, and no space at its ends")]
    Character(char),
}

impl UserName {
    /// The name, if it is one: 1 to 128 characters, no control characters, no white space at either end.
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

    /// As it was written.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// D4: names are short, visible, and told from one another.
    #[test]
    fn d4_what_a_users_name_is() {
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
