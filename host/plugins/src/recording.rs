//! The record of one running call: its cost, limits, denials and log, and the host's responses to it. The record is
//! used to explain the call, to count its costs and to replay it. Capabilities write to a [`CallRecord`], and read from
//! it only
//! in a replay.

pub(crate) mod bytes;
pub(crate) mod call_record;
pub(crate) mod file_records;
pub(crate) mod files;
pub(crate) mod guest_log;
pub(crate) mod host_calls;
pub(crate) mod missed_lookups;
pub(crate) mod replay_inputs;
pub(crate) mod stopped_calls;
pub(crate) mod timing;

pub(crate) use call_record::CallRecord;
