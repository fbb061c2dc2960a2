//! The report of a finished call.

use super::failure::CallFailure;
use crate::grants::Denial;
use crate::recording::guest_log::LostLog;
use crate::recording::host_calls::HostCallLog;
use agent_core::tool::CallCost;
use serde::Serialize;
use std::io;

/// The result of a call, with the cost and the side effects of the call. The cost is reported even if the call
/// failed (P8).
#[derive(Debug)]
pub struct CallReport<T> {
    /// The result of the call, or the reason why the call failed.
    pub result: Result<T, CallFailure>,
    /// The time, the memory and the other resources that the call used.
    pub cost: CallCost,
    /// The denials of the call. Each denial describes an access that the guest tried without permission.
    pub denials: Vec<Denial>,
    /// How much of the guest's log was dropped.
    pub lost_log: LostLog,
    /// The recorded results of the host functions that the guest called. None if the guest called no host function
    /// whose results are recorded.
    pub answers: Option<Box<HostCallLog>>,
    /// In a replay, the differences between the files after the replayed call and the files after the original call.
    pub effects: Vec<String>,
}

impl<T> CallReport<T> {
    /// Creates the report of a call for which the host has a result without running the guest.
    pub(crate) fn returned_early(answer: T) -> Self {
        Self {
            result: Ok(answer),
            cost: CallCost::default(),
            denials: Vec::new(),
            lost_log: LostLog::default(),
            answers: None,
            effects: Vec::new(),
        }
    }

    /// Creates the report of a call that was refused before the guest ran.
    pub(crate) fn refused(failure: CallFailure) -> Self {
        Self {
            result: Err(failure),
            cost: CallCost::default(),
            denials: Vec::new(),
            lost_log: LostLog::default(),
            answers: None,
            effects: Vec::new(),
        }
    }
}

impl<A: Serialize, E: Serialize> CallReport<Result<A, E>> {
    /// Adds the size of the result, encoded as JSON, to the cost of the call.
    pub(crate) fn with_result_bytes(mut self) -> Self {
        let bytes = match &self.result {
            Ok(Ok(answer)) => json_bytes(answer),
            Ok(Err(error)) => json_bytes(error),
            Err(_) => 0,
        };
        self.cost.bytes_out += bytes as u64;
        self
    }
}

/// The size of a value when it is encoded as JSON, in bytes.
pub(crate) fn json_bytes(value: &impl Serialize) -> usize {
    struct Count(usize);
    impl io::Write for Count {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut count = Count(0);
    // Encoding never fails, because all types of this crate can be written as JSON.
    let _ = serde_json::to_writer(&mut count, value);
    count.0
}
