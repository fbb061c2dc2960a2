//! `doctor`: checks whether everything is ready for a session, and explains how to fix what is not. Nothing is changed,
//! except that compiled plugins are kept in the cache of an existing data folder.

mod agent;
mod nats;
mod storage;
mod toolchains;

use crate::arguments::setup::DoctorArguments;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::terminal::{DIM, GREEN, RED, Terminal, YELLOW, text};
use agent_config::DataLocation;
use serde::Serialize;
use serde_json::json;
use std::path::Path;

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
enum Level {
    /// Everything is as it should be.
    Ok,
    /// Something is missing that many users do not need.
    Hint,
    /// Something is probably wrong, but sessions work.
    Warning,
    /// Sessions do not work until this is fixed.
    Error,
}

/// One result of the checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
struct Finding {
    /// The part of the program that was checked.
    area: &'static str,
    level: Level,
    message: String,
    /// How to fix the problem. None if there is nothing to fix.
    fix: Option<String>,
}

impl Finding {
    fn ok(area: &'static str, message: impl Into<String>) -> Self {
        Self { area, level: Level::Ok, message: message.into(), fix: None }
    }

    fn new(area: &'static str, level: Level, message: impl Into<String>, fix: impl Into<String>) -> Self {
        Self { area, level, message: message.into(), fix: Some(fix.into()) }
    }
}

/// Runs `doctor`.
pub(crate) async fn run(
    arguments: DoctorArguments,
    data: DataLocation<'_>,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let environment = environment::host();
    let root = data.folder.map(Path::to_owned).or_else(|| environment.data_directory.clone());
    let mut findings = storage::check(root.as_deref(), data.database).await;
    findings.extend(nats::check(&arguments.nats).await);
    findings.push(storage::clock(root.as_deref()));
    findings.extend(agent::check(root.as_deref(), &environment, terminal).await);
    findings.extend(toolchains::check(&environment::toolchain()).await);
    let is_usable = findings.iter().all(|finding| finding.level < Level::Error);
    let print = |line: String| terminal.print(line).map_err(Failure::output);
    if arguments.json {
        print(json!({"usable": is_usable, "findings": findings}).to_string())?;
    } else {
        for finding in &findings {
            print(describe(finding))?;
        }
        let errors = findings.iter().filter(|finding| finding.level == Level::Error).count();
        print(match is_usable {
            true => format!("{GREEN}agent-host is ready{GREEN:#}"),
            false => format!("{RED}{} must be fixed{RED:#}", text::count(errors, "problem")),
        })?;
    }
    Ok(if is_usable { Exit::Done } else { Exit::Failed })
}

fn describe(finding: &Finding) -> String {
    let mark = match finding.level {
        Level::Ok => format!("{GREEN}✓{GREEN:#}"),
        Level::Hint => format!("{DIM}-{DIM:#}"),
        Level::Warning => format!("{YELLOW}!{YELLOW:#}"),
        Level::Error => format!("{RED}✗{RED:#}"),
    };
    let message = text::harmless(&finding.message).replace('\n', "\n    ");
    let fix = finding.fix.as_ref().map(|fix| format!("\n    {DIM}{}{DIM:#}", text::harmless(fix)));
    format!("{mark} {:<13} {message}{}", finding.area, fix.unwrap_or_default())
}
