//! `agent-host test`: builds the plugins that the scenarios of a folder need, runs the scenarios, and reports the
//! results (S4).

mod agents;
mod components;
mod show;

use crate::arguments::test::TestArguments;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Activity, Interrupts};
use crate::terminal::{Terminal, show_build};
use agent_config::{DataDirectory, DataLocation, assembly};
use agent_devkit::build::{BuildError, Project, Toolchain, build_projects};
use agent_devkit::scenario::{
    DiscoveredScenario, GoldenMode, GoldenResult, Player, Report, SUFFIX, Scenario, Totals, Verdict, discover, json,
    junit,
};
use agents::ScenarioAgents;
use components::Components;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Maximum number of scenarios that run at the same time, if the number of processors is unknown.
const DEFAULT_PARALLELISM: usize = 4;

/// Text that the report file contains until the run has finished.
const UNFINISHED: &str = "the run did not finish";

/// The reports of the scenarios, and how the run ended.
struct RunResult {
    reports: Vec<Report>,
    /// Number of scenarios that were selected, including those that did not run.
    selected: usize,
    time: Duration,
    end: RunEnd,
}

/// Whether all scenarios ran.
#[derive(Clone, Copy, PartialEq, Eq)]
enum RunEnd {
    /// All scenarios ran.
    Complete,
    /// The user stopped the run.
    Stopped,
}

/// Runs `agent-host test`. Before the scenarios run, the report file is overwritten, so that it never contains the
/// report of an earlier run.
pub(crate) async fn run(
    arguments: TestArguments,
    data: DataLocation<'_>,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let junit_file = arguments.junit.as_deref();
    if let Some(file) = junit_file.filter(|file| !file.exists() || file.is_file()) {
        let as_refusal = |failure: Failure| Failure::refused(failure.message);
        write_junit(file, &[placeholder(&arguments, UNFINISHED)]).map_err(as_refusal)?;
    }
    match play(&arguments, data, terminal).await {
        Ok(played) => finish(&arguments, played, terminal),
        Err(failure) => {
            let reports = [placeholder(&arguments, &failure.message)];
            if arguments.json && !failure.message.is_empty() {
                terminal.print(json(&reports).to_string()).map_err(Failure::output)?;
            }
            junit_file.map_or(Ok(()), |file| write_junit(file, &reports))?;
            Err(failure)
        }
    }
}

/// Creates a report that contains the reason why scenarios did not run.
fn placeholder(arguments: &TestArguments, reason: &str) -> Report {
    Report {
        name: "agent-host test".to_owned(),
        path: arguments.path.clone(),
        verdict: Verdict::NotPlayed(reason.to_owned()),
        golden: GoldenResult::None,
        notes: Vec::new(),
        time: Duration::ZERO,
    }
}

async fn play(arguments: &TestArguments, data: DataLocation<'_>, terminal: &Terminal) -> Result<RunResult, Failure> {
    let found = discover_scenarios(arguments)?;
    let cancel = Interrupts::listen(terminal.clone()).begin(Activity::Turn);
    let read: Vec<_> = found.iter().map(|found| (found, Scenario::read(&found.path, &found.name))).collect();
    let scenarios = read.iter().filter_map(|(_, scenario)| scenario.as_ref().ok());
    let mut components = Components::new(&arguments.path, arguments.plugins.clone())?;
    let (began, selected) = (Instant::now(), found.len());
    let environment = environment::host();
    let data = DataDirectory::open(data, &environment)?;
    if arguments.plugins.is_none() && !arguments.no_build {
        let groups = components.projects(scenarios);
        let toolchain = environment::development_toolchain(&data);
        tokio::select! {
            () = build(groups, &mut components, (&toolchain, terminal)) => {}
            () = cancel.cancelled() => {
                return Ok(RunResult { reports: Vec::new(), selected, time: began.elapsed(), end: RunEnd::Stopped });
            }
        }
    }
    let sandbox = assembly::open_default_sandbox(&data, &environment)?;
    let golden = if arguments.update { GoldenMode::Update } else { GoldenMode::Compare };
    let agents = Arc::new(ScenarioAgents { sandbox: sandbox.clone(), components, terminal: terminal.clone() });
    let player = Arc::new(Player { sandbox, agents, golden });
    let (began, mut reports, mut shown) = (Instant::now(), Vec::new(), show::ShownReports::default());
    let mut running = start_all(read, &player).into_iter();
    while let Some(next) = running.next() {
        let report = tokio::select! {
            report = next.report() => report,
            () = cancel.cancelled() => {
                running.for_each(ScenarioRun::stop);
                break;
            }
        };
        terminal.idle();
        if !arguments.json {
            shown.report(&report, terminal)?;
        }
        reports.push(report);
        terminal.busy(format!("{} of {selected} scenarios", reports.len()));
    }
    terminal.idle();
    let end = if cancel.is_cancelled() { RunEnd::Stopped } else { RunEnd::Complete };
    Ok(RunResult { reports, selected, time: began.elapsed(), end })
}

fn discover_scenarios(arguments: &TestArguments) -> Result<Vec<DiscoveredScenario>, Failure> {
    let path = &arguments.path;
    if !path.exists() {
        return Err(missing_path(path));
    }
    let scenarios = discover(path).map_err(Failure::refused)?;
    if scenarios.is_empty() && path.is_file() {
        let what = path.display();
        return Err(Failure::refused(format!(
            "`{what}` is not a scenario: the name of a scenario file ends in {SUFFIX}"
        )));
    }
    if scenarios.is_empty() {
        let (what, advice) = (path.display(), "host/docs/guide/scenarios.md shows how to write one");
        return Err(Failure::refused(format!(
            "there is no scenario (*{SUFFIX}) in `{what}` or its subfolders; {advice}"
        )));
    }
    let Some(filter) = &arguments.filter else { return Ok(scenarios) };
    let names: Vec<String> = scenarios.iter().map(|found| found.name.clone()).collect();
    let matches: Vec<_> = scenarios.into_iter().filter(|found| found.name.contains(filter.as_str())).collect();
    if matches.is_empty() {
        return Err(Failure::refused(format!(
            "no scenario's name contains `{filter}`; the scenarios are: {}",
            names.join(", ")
        )));
    }
    Ok(matches)
}

/// Returns the error for a path that does not exist. The user may have meant the name of a scenario in this folder.
fn missing_path(path: &Path) -> Failure {
    let (what, scenarios) = (path.display(), discover(Path::new(".")).unwrap_or_default());
    let advice = if scenarios.iter().any(|found| found.name.contains(&*path.to_string_lossy())) {
        format!("`agent-host test . {what}` runs the scenarios of this folder whose names contain it")
    } else {
        format!("name a folder with scenarios or a scenario file (*{SUFFIX}); without a name, this folder is used")
    };
    Failure::refused(format!("there is no file or folder `{what}`: {advice}"))
}

/// Builds the projects that the scenarios need, one folder at a time. A build error is reported by each scenario that
/// needs the project, and the other scenarios still run.
async fn build(
    groups: Vec<(PathBuf, Vec<Project>)>,
    components: &mut Components,
    (toolchain, terminal): (&Toolchain, &Terminal),
) {
    let progress = |event: agent_devkit::build::BuildEvent<'_>| show_build(terminal, &event);
    for (out, projects) in groups {
        let built = build_projects(toolchain, &projects, &out, &progress).await;
        terminal.idle();
        match built {
            Ok(built) => {
                for (project, plugin) in projects.iter().zip(built) {
                    components.add_built(project.directory(), plugin.path);
                }
            }
            Err(error) => {
                let why = match &error {
                    BuildError::Compile { .. } | BuildError::NotAComponent { .. } => error.to_string(),
                    _ => format!("{error}\n--no-build uses the existing components"),
                };
                projects.iter().for_each(|project| components.add_build_error(project.directory(), why.clone()));
            }
        }
    }
}

/// A scenario that was started, or the report about a scenario that could not be started.
enum ScenarioRun {
    Started(JoinHandle<Report>),
    Refused(Report),
}

impl ScenarioRun {
    async fn report(self) -> Report {
        match self {
            ScenarioRun::Refused(report) => report,
            // This program never aborts the task, so the only possible error is a panic.
            ScenarioRun::Started(handle) => {
                handle.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
            }
        }
    }

    fn stop(self) {
        if let ScenarioRun::Started(handle) = self {
            handle.abort();
        }
    }
}

/// Starts all scenarios. The number of scenarios that run at the same time is at most the number of processors.
fn start_all(
    read: Vec<(&DiscoveredScenario, Result<Scenario, agent_devkit::scenario::ScenarioError>)>,
    player: &Arc<Player>,
) -> Vec<ScenarioRun> {
    let parallelism = std::thread::available_parallelism().map_or(DEFAULT_PARALLELISM, usize::from);
    let permits = Arc::new(Semaphore::new(parallelism));
    let start = |(found, scenario): (&DiscoveredScenario, Result<Scenario, agent_devkit::scenario::ScenarioError>)| {
        match scenario {
            Ok(scenario) => {
                let (player, permits) = (player.clone(), permits.clone());
                ScenarioRun::Started(tokio::spawn(async move {
                    let _permit = permits.acquire().await;
                    player.play(&scenario).await
                }))
            }
            Err(error) => ScenarioRun::Refused(Report {
                name: found.name.clone(),
                path: found.path.clone(),
                verdict: Verdict::NotPlayed(error.to_string()),
                golden: GoldenResult::None,
                notes: Vec::new(),
                time: Duration::ZERO,
            }),
        }
    };
    read.into_iter().map(start).collect()
}

fn finish(arguments: &TestArguments, played: RunResult, terminal: &Terminal) -> Result<Exit, Failure> {
    let RunResult { mut reports, selected, time, end } = played;
    let totals = Totals::of(&reports);
    match (arguments.json, end) {
        (true, _) => terminal.print(json(&reports).to_string()).map_err(Failure::output)?,
        (false, RunEnd::Stopped) => show::stopped(reports.len(), selected, terminal),
        (false, RunEnd::Complete) => show::totals(totals, time, terminal)?,
    }
    if let Some(file) = &arguments.junit {
        if end == RunEnd::Stopped {
            reports.push(placeholder(arguments, &format!("stopped: {} of {selected} scenarios ran", reports.len())));
        }
        write_junit(file, &reports)?;
    }
    Ok(match totals {
        _ if end == RunEnd::Stopped => Exit::Cancelled,
        Totals { passed: 0, failed: 0, .. } => Exit::Refused,
        Totals { failed: 0, not_played: 0, .. } => Exit::Done,
        _ => Exit::Failed,
    })
}

fn write_junit(file: &Path, reports: &[Report]) -> Result<(), Failure> {
    let write_error = |error| Failure::failed(format!("--junit: `{}` cannot be written: {error}", file.display()));
    std::fs::write(file, junit(reports)).map_err(write_error)
}
