//! Scenarios: tests with scripted conversations and their expected results (S4). A scenario runs real components, the
//! real agent loop and a real store, but needs neither a network nor an API key. `host/docs/guide/scenarios.md`
//! describes the file format.

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

pub use discover::{DiscoveredScenario, SUFFIX, UnreadableFolder, discover};
pub use file::{AgentSource, Scenario, ScenarioError};
pub use golden::{GoldenMode, GoldenResult};
pub use place::Place;
pub use play::{AgentFactory, AgentSetup, Player, ScenarioAgent};
pub use report::{Failure, Report, Totals, Verdict, json, junit};
