//! The list of the files that agent-host wrote into a project. The list contains the digests of the files in the format
//! of `sha256sum -c`.

use agent_plugins::digest_of;
use std::collections::BTreeMap;

/// Name of the file that contains the list. This file is in the same folder as the listed files.
pub(crate) const LIST: &str = "agent-host.sha256";
/// The folder of a Rust or JavaScript project that contains the SDK.
pub(crate) const SDK_FOLDER: &str = "agent-host";

/// The folder of a Python project that contains the SDK. The folder is a Python package.
pub(crate) const PYTHON_SDK_FOLDER: &str = "agent_host_sdk";

/// Texts of the files in a folder. The keys are the paths of the files, relative to the folder.
pub(crate) type Files = BTreeMap<String, String>;

#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FileList {
    /// Version of the agent-host that wrote the files. Empty if the list does not contain the version.
    pub(crate) version: String,
    /// SHA-256 digests of the files in hexadecimal. The keys are the paths of the files, relative to the
    /// folder of the list.
    pub(crate) files: BTreeMap<String, String>,
}

/// The beginning of the first line of the list. The version of agent-host follows this text in the line.
const LINE_START: &str = "# Written by agent-host ";

impl FileList {
    /// Returns the list for files that this version of agent-host writes.
    pub(crate) fn of(files: &Files) -> Self {
        let digest = |text: &String| digest_of(text.as_bytes()).hex().to_owned();
        let files = files.iter().map(|(path, text)| (path.clone(), digest(text))).collect();
        Self { version: env!("CARGO_PKG_VERSION").to_owned(), files }
    }

    pub(crate) fn parse(text: &str) -> Self {
        let mut list = Self::default();
        for line in text.lines() {
            if let Some(after_line_start) = line.strip_prefix(LINE_START) {
                list.version = after_line_start.split([';', ' ']).next().unwrap_or_default().to_owned();
            } else if let Some((digest, path)) = line.split_once("  ").filter(|_| !line.starts_with('#')) {
                list.files.insert(path.to_owned(), digest.to_owned());
            }
        }
        list
    }

    pub(crate) fn text(&self) -> String {
        let lines = self.files.iter().map(|(path, digest)| format!("{digest}  {path}\n"));
        let heading =
            format!("{LINE_START}{}; `agent-host plugin renew` replaces these files with newer ones.\n", self.version);
        std::iter::once(heading).chain(lines).collect()
    }
}
