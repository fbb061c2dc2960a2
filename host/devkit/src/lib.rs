//! Tools for plugin authors: create plugin projects (S1), build them into components (S2), check the components (S3),
//! test them with scenarios (S4), and rebuild them when a source changes (S5).
//!
//! A scenario is a TOML file that describes a test. Parsing it reports every mistake with file, line and key:
//!
//! ```
//! use agent_devkit::scenario::Scenario;
//! use std::path::Path;
//!
//! let text = r#"
//! description = "Counts the words of a text."
//! plugins = ["words"]
//!
//! [[calls]]
//! name = "words.count"
//! arguments = { text = "one two three" }
//! result = { contains = "3" }
//! "#;
//! let scenario = Scenario::parse(Path::new("count.scenario.toml"), "count", text.to_owned())?;
//! assert_eq!(scenario.description(), Some("Counts the words of a text."));
//!
//! let error = Scenario::parse(Path::new("count.scenario.toml"), "count", "calls = 1".to_owned()).unwrap_err();
//! assert!(error.to_string().starts_with("count.scenario.toml:1:"));
//! # Ok::<(), agent_devkit::scenario::ScenarioError>(())
//! ```

pub mod build;
pub mod check;
pub mod describe;
pub mod dev;
mod diff;
mod embedded;
mod file_list;
mod language;
pub mod new;
mod project;
pub mod renew;
pub mod scenario;
mod source_files;

pub use language::Language;
