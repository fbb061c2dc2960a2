//! The time by which deadlines, schedules and days are decided (F1).

use crate::encoding::values;

/// The clock that all processes with the same store share.
pub trait Clock: Send + Sync {
    /// Returns the time in microseconds since the beginning of 1970 in UTC.
    ///
    /// This is the clock of this machine, unless several machines share the store. Then, it is the clock of the database, so
    /// that all machines decide alike about deadlines, even if their own clocks are wrong. It may go back if the clock of the
    /// database is corrected.
    fn now(&self) -> i64 {
        values::now()
    }
}
