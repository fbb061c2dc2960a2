//! The random bytes that a call reads. Each byte counts towards the call's limit on random bytes. In a replay, the host
//! returns the recorded bytes.

use super::ProcessView;
use crate::limits::Limit;
use wasmtime_wasi::p2::bindings::random::{insecure, random};
use wasmtime_wasi::random::WasiRandomCtx;

impl ProcessView<'_> {
    fn generator(&mut self) -> &mut WasiRandomCtx {
        self.state.context(self.call).random()
    }

    fn count_random(&mut self, bytes: u64) -> wasmtime::Result<()> {
        match self.state.random_left.checked_sub(bytes) {
            Some(left) => {
                self.state.random_left = left;
                Ok(())
            }
            None => {
                let record = &self.call.record;
                record.record_limit(Limit::RandomBytes(record.limits.random));
                Err(wasmtime::Error::msg("the guest has read too many random bytes"))
            }
        }
    }

    /// Returns the next random bytes from the recording of the original call, or None if the recording has no more
    /// random bytes.
    fn replayed_random(&mut self, length: u64) -> Option<Vec<u8>> {
        let end = self.state.random_replayed.checked_add(usize::try_from(length).ok()?)?;
        let replay = self.state.inputs.replay.as_ref()?;
        let bytes = replay.random.get(self.state.random_replayed..end)?.to_vec();
        self.state.random_replayed = end;
        Some(bytes)
    }
}

impl random::Host for ProcessView<'_> {
    fn get_random_bytes(&mut self, length: u64) -> wasmtime::Result<Vec<u8>> {
        self.count_random(length)?;
        let bytes = match self.replayed_random(length) {
            Some(bytes) => bytes,
            None => random::Host::get_random_bytes(self.generator(), length)?,
        };
        self.call.record.answers.random(&bytes);
        Ok(bytes)
    }

    fn get_random_u64(&mut self) -> wasmtime::Result<u64> {
        let bytes = random::Host::get_random_bytes(self, size_of::<u64>() as u64)?;
        Ok(bytes.into_iter().fold(0, |number, byte| number << 8 | u64::from(byte)))
    }
}

impl insecure::Host for ProcessView<'_> {
    fn get_insecure_random_bytes(&mut self, length: u64) -> wasmtime::Result<Vec<u8>> {
        self.count_random(length)?;
        insecure::Host::get_insecure_random_bytes(self.generator(), length)
    }

    fn get_insecure_random_u64(&mut self) -> wasmtime::Result<u64> {
        self.count_random(size_of::<u64>() as u64)?;
        insecure::Host::get_insecure_random_u64(self.generator())
    }
}
