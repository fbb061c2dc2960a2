//! Reads a CloudEvent from a file or from stdin.

use crate::exit::Failure;
use agent_core::cloud_event::{CloudEvent, MAX_EVENT_BYTES};
use std::io::Read;
use std::path::Path;

/// Reads an event from a file, or from stdin if the path is `-`.
pub(crate) fn read(path: &Path) -> Result<CloudEvent, Failure> {
    let shown = if path == Path::new("-") { "stdin".to_owned() } else { path.display().to_string() };
    let limit = MAX_EVENT_BYTES as u64 + 1;
    let mut text = Vec::new();
    let read = match path == Path::new("-") {
        true => std::io::stdin().lock().take(limit).read_to_end(&mut text),
        false => std::fs::File::open(path).and_then(|file| file.take(limit).read_to_end(&mut text)),
    };
    read.map_err(|error| Failure::refused(format!("{shown}: the event cannot be read: {error}")))?;
    CloudEvent::parse(&text).map_err(|error| Failure::refused(format!("{shown}: {error}")))
}
