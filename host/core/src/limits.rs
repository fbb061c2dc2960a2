//! Describes each configurable limit by its key, its default and its bounds. Each crate that has configurable limits
//! describes them in one list, with one row for each limit. From this list, the host derives the default values, the
//! keys of agent.toml and the documentation of these keys.

/// Describes one limit, whose value is stored in the struct `L`.
#[derive(Clone, Copy)]
pub struct LimitRow<L> {
    /// Key in agent.toml. If the limit has a unit, the key ends with that unit.
    pub key: &'static str,
    /// The default, which applies if the key is not set.
    pub default: DefaultLimit,
    /// Minimum allowed value, in the key's unit.
    pub least: u64,
    /// Maximum allowed value, in the key's unit.
    pub most: u64,
    /// Description of the limit, which is shown in the documentation of the key.
    pub meaning: &'static str,
    /// An example value, as TOML.
    pub example: &'static str,
    /// Reads the value from a struct `L`, in the key's unit. None if the struct has no value for this limit.
    pub get: fn(&L) -> Option<u64>,
    /// Writes a value, in the key's unit, into a struct `L`.
    pub set: fn(&mut L, u64),
}

/// The default of a limit, which applies if the limit is not configured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DefaultLimit {
    /// A fixed value, in the key's unit.
    Is(u64),
    /// A default that is computed at run time. The text describes this default for the documentation. If the limit is
    /// not configured, the struct `L` contains no value for the limit.
    Words(&'static str),
    /// By default, the limit is off. In addition to a number, the key accepts `true`: `true` turns the limit on with
    /// the value stated in the key's description.
    Off,
}

impl<L> LimitRow<L> {
    /// Writes the default into `limits` if the default is a fixed value.
    pub fn reset(&self, limits: &mut L) {
        if let DefaultLimit::Is(value) = self.default {
            (self.set)(limits, value);
        }
    }

    /// If the value in `limits` exceeds the maximum allowed value, replaces it by that maximum.
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
