//! The clock of the database. Asking for it would cost a round trip each time, so the difference to the clock of this machine is
//! measured when the store is opened, and each time when its leases are renewed.

use super::PostgresStore;
use super::queries::NOW;
use crate::Clock;
use crate::encoding::values;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use tokio_postgres::{Client, Error};

/// A measured difference below this number of microseconds is not distinguished from the time that the measurement takes.
const PRECISION: i64 = 20_000;

/// The difference between the clock of the database and the clock of this machine, in microseconds.
#[derive(Clone, Debug, Default)]
pub(super) struct DatabaseClock(Arc<AtomicI64>);

impl DatabaseClock {
    /// Measures the difference.
    pub(super) async fn measure(&self, client: &Client) -> Result<(), Error> {
        let before = values::now();
        let row = client.query_one(&format!("SELECT {NOW}"), &[]).await?;
        let after = values::now();
        // The database has read its clock between the two times, most probably in the middle.
        let difference = row.try_get::<_, i64>(0)?.saturating_sub(before.midpoint(after));
        let is_precise =
            after.saturating_sub(before) < difference.saturating_abs() || difference.saturating_abs() < PRECISION;
        if is_precise {
            let difference = if difference.saturating_abs() < PRECISION { 0 } else { difference };
            self.0.store(difference, Ordering::Relaxed);
        }
        Ok(())
    }
}

impl Clock for PostgresStore {
    fn now(&self) -> i64 {
        values::now().saturating_add(self.clock.0.load(Ordering::Relaxed))
    }
}
