//! Scenarios: what is said to an agent and what must come of it, played with real components, the real loop and a real
//! store, without network and key (S4). `host/docs/guide/scenarios.md` is the form of the file.

mod answers;
mod attached;
mod check;
mod discover;
mod file;
mod folder;
mod golden;
mod http;
mod model;
mod pattern;
mod place;
mod play;
mod report;
mod script;
mod transcript;
mod values;

pub use discover::{Discovered, SUFFIX, Unreadable, discover};
pub use file::{AgentSource, Scenario, ScenarioError};
pub use golden::{Golden, GoldenMode};
pub use place::Place;
pub use play::{Casting, Made, Player, Setting};
pub use report::{Failure, Report, Totals, Verdict, json, junit};
