//! Writes a cassette.

use super::{Exchange, Header, MAX_BYTES, account_ids};
use crate::error::ModelError;
use agent_core::redaction::Redaction;
use serde_json::Value;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

/// A cassette that is being recorded. Each exchange is appended when its response is complete.
#[derive(Debug)]
pub(crate) struct Recorder {
    path: PathBuf,
    file: Mutex<File>,
}

impl Recorder {
    /// Opens a cassette. A new file gets the header. An existing file is continued if it has the same header.
    ///
    /// # Errors
    ///
    /// Returns an error if the file cannot be written or contains something else.
    pub(crate) fn open(path: PathBuf, header: &Header) -> Result<Self, ModelError> {
        let failed = |source| ModelError::CassetteFile { path: path.clone(), source };
        let existing = match File::open(&path) {
            Ok(file) => read_header(file).map_err(failed)?,
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            Err(error) => return Err(failed(error)),
        };
        if existing.as_deref().is_some_and(|line| serde_json::from_str::<Header>(line).ok().as_ref() != Some(header)) {
            let problem = "it exists already and is not a cassette of this model: name another file".to_owned();
            return Err(ModelError::InvalidCassette { path, problem });
        }
        let mut file = OpenOptions::new().create(true).append(true).open(&path).map_err(failed)?;
        if existing.is_none() {
            let line = serde_json::to_string(header).expect("the header serialises to JSON");
            writeln!(file, "{line}").map_err(failed)?;
        }
        Ok(Self { path, file: Mutex::new(file) })
    }

    /// Appends one exchange.
    pub(crate) fn record(&self, request: &[u8], response: &[u8], redaction: &Redaction) -> Result<(), ModelError> {
        let clean = |bytes: &[u8]| account_ids::remove(&redaction.text(String::from_utf8_lossy(bytes).into_owned()));
        let request = clean(request);
        let request = serde_json::from_str(&request).unwrap_or(Value::String(request));
        let exchange = Exchange { request, response: clean(response) };
        let mut line = serde_json::to_vec(&exchange).expect("the exchange serialises to JSON");
        line.push(b'\n');
        let failed = |source| ModelError::CassetteFile { path: self.path.clone(), source };
        let mut file = self.file.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if file.metadata().map_err(failed)?.len() + line.len() as u64 > MAX_BYTES {
            let problem = format!("it would have more than {MAX_BYTES} bytes: record to another file");
            return Err(ModelError::InvalidCassette { path: self.path.clone(), problem });
        }
        file.write_all(&line).map_err(failed)
    }

    /// Returns the path of the cassette.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

/// Returns the first line, or `None` if the file is empty.
fn read_header(file: File) -> io::Result<Option<String>> {
    let mut line = String::new();
    let length = BufReader::new(io::Read::take(file, 1024 * 1024)).read_line(&mut line)?;
    Ok((length > 0).then(|| line.trim_end().to_owned()))
}
