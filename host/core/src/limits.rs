//! Describes configurable limits: key, default and bounds. Each crate with such limits has one list of rows, and its
//! defaults, the keys of agent.toml and their documentation come from that list.

/// One limit of the set `L`.
#[derive(Clone, Copy)]
pub struct LimitRow<L> {
    /// Key in agent.toml, with the unit as its suffix if it has one.
    pub key: &'static str,
    /// What applies if the key is not set.
    pub default: DefaultLimit,
    /// Smallest allowed value.
    pub least: u64,
    /// Largest allowed value.
    pub most: u64,
    /// What is limited.
    pub meaning: &'static str,
    /// An example value, as TOML.
    pub example: &'static str,
    /// Reads the value from a set, in the key's unit. None: it is not set.
    pub get: fn(&L) -> Option<u64>,
    /// Writes a value, in the key's unit, into a set.
    pub set: fn(&mut L, u64),
}

/// What applies if a limit is not configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultLimit {
    /// This value.
    Is(u64),
    /// What this text describes. The set then has no value.
    Words(&'static str),
    /// The limit is off. A switch can turn it on too, with a value that the meaning states.
    Off,
}

impl<L> LimitRow<L> {
    /// Writes the default into a set if the default is a value.
    pub fn reset(&self, limits: &mut L) {
        if let DefaultLimit::Is(value) = self.default {
            (self.set)(limits, value);
        }
    }

    /// Reduces the value of a set to the largest allowed one.
    pub fn bound(&self, limits: &mut L) {
        if (self.get)(limits).is_some_and(|value| value > self.most) {
            (self.set)(limits, self.most);
        }
    }
}

impl<L> std::fmt::Debug for LimitRow<L> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { key, default, least, most, .. } = self;
        write!(formatter, "{key} = {default:?}, {least}..={most}")
    }
}
