//! `agent-host test`: plays the scenarios of a folder, on plugins that are built first, and says what does not hold (S4).

pub(crate) mod components;
mod show;

use crate::arguments::test::TestArguments;
use crate::data::DataDirectory;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Doing, Interrupts};
use crate::setup;
use crate::setup::scenario::Cast;
use crate::terminal::{Terminal, show_build};
use agent_devkit::build::{BuildError, Project, build_projects};
use agent_devkit::scenario::{
    Discovered, Golden, GoldenMode, Player, Report, SUFFIX, Scenario, Totals, Verdict, discover, json, junit,
};
use components::Components;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

/// Scenarios at once where nobody knows how many processors there are.
const AT_ONCE: usize = 4;

/// What stands in a report of what was not played to its end.
const UNFINISHED: &str = "it did not come to an end";

/// What was played.
struct Played {
    reports: Vec<Report>,
    /// Scenarios that there are.
    all: usize,
    time: Duration,
    end: End,
}

/// How playing ended.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    /// All were played.
    Whole,
    /// Somebody stopped it.
    Stopped,
}

/// Runs it. A report in a file is never that of another run: until there is one, it says so.
pub(crate) async fn run(arguments: TestArguments, data: Option<&Path>, terminal: &Terminal) -> Result<Exit, Failure> {
    let junit_file = arguments.junit.as_deref();
    if let Some(file) = junit_file.filter(|file| !file.exists() || file.is_file()) {
        let unwritten = |failure: Failure| Failure::refused(failure.message);
        write_junit(file, &[instead(&arguments, UNFINISHED)]).map_err(unwritten)?;
    }
    match play(&arguments, data, terminal).await {
        Ok(played) => finish(&arguments, played, terminal),
        Err(failure) => {
            let reports = [instead(&arguments, &failure.message)];
            if arguments.json && !failure.message.is_empty() {
                terminal.print(json(&reports).to_string()).map_err(Failure::output)?;
            }
            junit_file.map_or(Ok(()), |file| write_junit(file, &reports))?;
            Err(failure)
        }
    }
}

/// Stands in a report where no scenario does.
fn instead(arguments: &TestArguments, why: &str) -> Report {
    Report {
        name: "agent-host test".to_owned(),
        path: arguments.at.clone(),
        verdict: Verdict::NotPlayed(why.to_owned()),
        golden: Golden::None,
        notes: Vec::new(),
        time: Duration::ZERO,
    }
}

async fn play(arguments: &TestArguments, data: Option<&Path>, terminal: &Terminal) -> Result<Played, Failure> {
    let found = found(arguments)?;
    let cancel = Interrupts::listen(terminal.clone()).begin(Doing::Turn);
    let read: Vec<_> = found.iter().map(|found| (found, Scenario::read(&found.path, &found.name))).collect();
    let scenarios = read.iter().filter_map(|(_, scenario)| scenario.as_ref().ok());
    let mut components = Components::new(&arguments.at, arguments.plugins.clone())?;
    let (began, all) = (Instant::now(), found.len());
    if arguments.plugins.is_none() && !arguments.no_build {
        let groups = components.projects(scenarios);
        tokio::select! {
            () = build(groups, &mut components, terminal) => {}
            () = cancel.cancelled() => {
                return Ok(Played { reports: Vec::new(), all, time: began.elapsed(), end: End::Stopped });
            }
        }
    }
    let sandbox = setup::sandbox(&DataDirectory::open(data)?)?;
    let golden = if arguments.update { GoldenMode::Update } else { GoldenMode::Compare };
    let casting = Arc::new(Cast { sandbox: sandbox.clone(), components, terminal: terminal.clone() });
    let player = Arc::new(Player { sandbox, casting, golden });
    let (began, mut reports, mut shown) = (Instant::now(), Vec::new(), show::Shown::default());
    let mut playing = begin(read, &player).into_iter();
    while let Some(next) = playing.next() {
        let report = tokio::select! {
            report = next.report() => report,
            () = cancel.cancelled() => {
                playing.for_each(Playing::stop);
                break;
            }
        };
        terminal.idle();
        if !arguments.json {
            shown.report(&report, terminal)?;
        }
        reports.push(report);
        terminal.busy(format!("{} of {all} scenarios", reports.len()));
    }
    terminal.idle();
    let end = if cancel.is_cancelled() { End::Stopped } else { End::Whole };
    Ok(Played { reports, all, time: began.elapsed(), end })
}

fn found(arguments: &TestArguments) -> Result<Vec<Discovered>, Failure> {
    let at = &arguments.at;
    if !at.exists() {
        return Err(absent(at));
    }
    let all = discover(at).map_err(Failure::refused)?;
    if all.is_empty() && at.is_file() {
        let what = at.display();
        return Err(Failure::refused(format!("`{what}` is no scenario: the name of one ends in {SUFFIX}")));
    }
    if all.is_empty() {
        let (what, advice) = (at.display(), "host/docs/guide/scenarios.md shows how one is written");
        return Err(Failure::refused(format!("there is no scenario (*{SUFFIX}) in `{what}` or below; {advice}")));
    }
    let Some(filter) = &arguments.filter else { return Ok(all) };
    let names: Vec<String> = all.iter().map(|found| found.name.clone()).collect();
    let fits: Vec<_> = all.into_iter().filter(|found| found.name.contains(filter.as_str())).collect();
    if fits.is_empty() {
        return Err(Failure::refused(format!(
            "no scenario's name contains `{filter}`; there are: {}",
            names.join(", ")
        )));
    }
    Ok(fits)
}

/// What to say where nothing is. Somebody may have meant scenarios of this folder by their name.
fn absent(at: &Path) -> Failure {
    let (what, here) = (at.display(), discover(Path::new(".")).unwrap_or_default());
    let advice = if here.iter().any(|found| found.name.contains(&*at.to_string_lossy())) {
        format!("`agent-host test . {what}` plays those of this folder whose names contain it")
    } else {
        format!("name a folder with scenarios, or one (*{SUFFIX}); without a name it is this folder")
    };
    Failure::refused(format!("there is no file or folder `{what}`: {advice}"))
}

/// Builds the projects that scenarios need, those that lie together in one go. What cannot be built is said where it is
/// needed, and does not keep others from being played.
async fn build(groups: Vec<(PathBuf, Vec<Project>)>, components: &mut Components, terminal: &Terminal) {
    let toolchain = environment::toolchain();
    let progress = |event: agent_devkit::build::BuildEvent<'_>| show_build(terminal, &event);
    for (out, projects) in groups {
        let built = build_projects(&toolchain, &projects, &out, &progress).await;
        terminal.idle();
        match built {
            Ok(built) => {
                for (project, plugin) in projects.iter().zip(built) {
                    components.built(project.directory(), plugin.path);
                }
            }
            Err(error) => {
                let why = match &error {
                    BuildError::Compile { .. } | BuildError::NotAComponent { .. } => error.to_string(),
                    _ => format!("{error}\n--no-build takes the components as they are"),
                };
                projects.iter().for_each(|project| components.unbuilt(project.directory(), why.clone()));
            }
        }
    }
}

/// A scenario that is being played, or cannot be.
enum Playing {
    Played(JoinHandle<Report>),
    Refused(Report),
}

impl Playing {
    async fn report(self) -> Report {
        match self {
            Playing::Refused(report) => report,
            // It is not stopped before it was asked for, and what it does is caught where it fails.
            Playing::Played(handle) => {
                handle.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
            }
        }
    }

    fn stop(self) {
        if let Playing::Played(handle) = self {
            handle.abort();
        }
    }
}

/// Begins all, as many at once as there are processors.
fn begin(
    read: Vec<(&Discovered, Result<Scenario, agent_devkit::scenario::ScenarioError>)>,
    player: &Arc<Player>,
) -> Vec<Playing> {
    let at_once = std::thread::available_parallelism().map_or(AT_ONCE, usize::from);
    let places = Arc::new(Semaphore::new(at_once));
    let one = |(found, scenario): (&Discovered, Result<Scenario, agent_devkit::scenario::ScenarioError>)| match scenario
    {
        Ok(scenario) => {
            let (player, places) = (player.clone(), places.clone());
            Playing::Played(tokio::spawn(async move {
                let _place = places.acquire().await;
                player.play(&scenario).await
            }))
        }
        Err(error) => Playing::Refused(Report {
            name: found.name.clone(),
            path: found.path.clone(),
            verdict: Verdict::NotPlayed(error.to_string()),
            golden: Golden::None,
            notes: Vec::new(),
            time: Duration::ZERO,
        }),
    };
    read.into_iter().map(one).collect()
}

fn finish(arguments: &TestArguments, played: Played, terminal: &Terminal) -> Result<Exit, Failure> {
    let Played { mut reports, all, time, end } = played;
    let totals = Totals::of(&reports);
    match (arguments.json, end) {
        (true, _) => terminal.print(json(&reports).to_string()).map_err(Failure::output)?,
        (false, End::Stopped) => show::stopped(reports.len(), all, terminal),
        (false, End::Whole) => show::totals(totals, time, terminal)?,
    }
    if let Some(file) = &arguments.junit {
        if end == End::Stopped {
            reports.push(instead(arguments, &format!("stopped: {} of {all} scenarios were played", reports.len())));
        }
        write_junit(file, &reports)?;
    }
    Ok(match totals {
        _ if end == End::Stopped => Exit::Cancelled,
        Totals { passed: 0, failed: 0, .. } => Exit::Refused,
        Totals { failed: 0, not_played: 0, .. } => Exit::Done,
        _ => Exit::Failed,
    })
}

fn write_junit(file: &Path, reports: &[Report]) -> Result<(), Failure> {
    let unwritten = |error| Failure::failed(format!("--junit: `{}` cannot be written: {error}", file.display()));
    std::fs::write(file, junit(reports)).map_err(unwritten)
}
