//! What a limit that can be configured is, for whichever room has such limits: its key, its default and its bounds. Each room has
//! one list of its own, from which its defaults, the keys of agent.toml and their documentation are made.

/// One limit of the set `L`.
#[derive(Clone, Copy)]
pub struct LimitRow<L> {
    /// Its key in agent.toml, with its unit at the end where it has one.
    pub key: &'static str,
    /// What holds without it.
    pub default: DefaultLimit,
    /// Least that it may be.
    pub least: u64,
    /// Most that it may be.
    pub most: u64,
    /// What is limited.
    pub meaning: &'static str,
    /// A value, as TOML.
    pub example: &'static str,
    /// The value that a set has, in the key's unit. None: none is set.
    pub get: fn(&L) -> Option<u64>,
    /// Puts a value, in the key's unit, into a set.
    pub set: fn(&mut L, u64),
}

/// What holds where a limit is not configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultLimit {
    /// This value.
    Is(u64),
    /// What these words say; the set has no value then.
    Words(&'static str),
    /// It is off. A switch turns it on, too, with a value that its meaning tells.
    Off,
}

impl<L> LimitRow<L> {
    /// Puts the default into a set, where it is a value.
    pub fn reset(&self, limits: &mut L) {
        if let DefaultLimit::Is(value) = self.default {
            (self.set)(limits, value);
        }
    }

    /// Takes the set's value down to the most that it may be.
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
