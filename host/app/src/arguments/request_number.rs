//! The number of a model call on the command line.

use std::str::FromStr;

/// A model call of a session, written as `TURN` or `TURN.STEP`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RequestNumber {
    /// Number of the turn.
    pub(crate) turn: u32,
    /// Number of the model call in its turn. `None` selects the last model call.
    pub(crate) step: Option<u32>,
}

impl FromStr for RequestNumber {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let number = |text: &str| text.parse().ok().filter(|number| *number > 0);
        let parsed = match text.split_once('.') {
            None => number(text).map(|turn| Self { turn, step: None }),
            Some((turn, step)) => number(turn).zip(number(step)).map(|(turn, step)| Self { turn, step: Some(step) }),
        };
        parsed
            .ok_or_else(|| "write the number of a turn, or of a turn and a model call, such as `2` or `2.3`".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::RequestNumber;

    #[test]
    fn numbers_of_turns_and_model_calls_are_parsed() {
        assert_eq!("2".parse(), Ok(RequestNumber { turn: 2, step: None }));
        assert_eq!("12.3".parse(), Ok(RequestNumber { turn: 12, step: Some(3) }));
        for wrong in ["", "0", "2.", ".3", "2.0", "a", "-1", "1.2.3", "99999999999"] {
            assert!(wrong.parse::<RequestNumber>().is_err(), "{wrong}");
        }
    }
}
