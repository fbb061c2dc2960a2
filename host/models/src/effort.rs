//! How much a model thinks before it answers.

use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// How much a model thinks before it answers. The configuration key `effort` of a model selects it. Not every model
/// accepts every value.
///
/// # Examples
///
/// ```
/// use agent_models::Effort;
///
/// assert_eq!("high".parse(), Ok(Effort::High));
/// assert!("much".parse::<Effort>().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Effort {
    /// The model does not think.
    None,
    /// The model thinks as little as possible.
    Minimal,
    /// The model thinks little.
    Low,
    /// The model thinks a medium amount.
    Medium,
    /// The model thinks a lot.
    High,
    /// The model thinks more than with [`Effort::High`].
    Xhigh,
    /// The model thinks as much as it can.
    Max,
}

/// The name is not the name of an effort. The message lists the accepted names.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not a known effort: use `none`, `minimal`, `low`, `medium`, `high`, `xhigh` or `max`")]
pub struct UnknownEffort(pub String);

impl Effort {
    /// All efforts, from the smallest to the largest.
    pub const ALL: [Self; 7] = [Self::None, Self::Minimal, Self::Low, Self::Medium, Self::High, Self::Xhigh, Self::Max];

    /// The names of all efforts in the configuration.
    pub const NAMES: [&'static str; 7] = [
        Self::None.name(),
        Self::Minimal.name(),
        Self::Low.name(),
        Self::Medium.name(),
        Self::High.name(),
        Self::Xhigh.name(),
        Self::Max.name(),
    ];

    /// Returns the name in the configuration, which OpenAI and Anthropic use as well.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Low => "low",
            Self::Medium => "medium",
            Self::High => "high",
            Self::Xhigh => "xhigh",
            Self::Max => "max",
        }
    }
}

/// How the thinking of a model is set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Thinking {
    /// The model does not think.
    Never,
    /// A number of tokens limits the thinking.
    Tokens,
    /// An [`Effort`] sets how much the model thinks.
    Effort,
}

impl fmt::Display for Effort {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Effort {
    type Err = UnknownEffort;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|effort| effort.name() == name).ok_or_else(|| UnknownEffort(name.to_owned()))
    }
}
