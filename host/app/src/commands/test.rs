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
use agent_kit::build::{BuildError, Project, build_projects};
use agent_kit::scenario::{
    Discovered, Golden, GoldenMode, Player, Report, SUFFIX, Scenario, Totals, Verdict, discover, json, junit,
};
use components::Components;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

/// Scenarios at once where nobody knows how many processors there are.
const AT_ONCE: usize = 4;

/// Runs it.
pub(crate) async fn run(arguments: TestArguments, data: Option<&Path>, terminal: &Terminal) -> Result<Exit, Failure> {
    let found = found(&arguments)?;
    let cancel = Interrupts::listen(terminal.clone()).begin(Doing::Turn);
    let read: Vec<_> = found.iter().map(|found| (found, Scenario::read(&found.path, &found.name))).collect();
    let scenarios = read.iter().filter_map(|(_, scenario)| scenario.as_ref().ok());
    let mut components = Components::new(&arguments.at, arguments.plugins.clone());
    if arguments.plugins.is_none() && !arguments.no_build {
        let groups = components.projects(scenarios)?;
        tokio::select! {
            built = build(groups, &mut components, terminal) => built?,
            () = cancel.cancelled() => return Ok(Exit::Cancelled),
        }
    }
    let sandbox = setup::sandbox(&DataDirectory::open(data)?)?;
    let golden = if arguments.update { GoldenMode::Update } else { GoldenMode::Compare };
    let casting = Arc::new(Cast { sandbox: sandbox.clone(), components, terminal: terminal.clone() });
    let player = Arc::new(Player { sandbox, casting, golden });
    let (began, mut reports) = (Instant::now(), Vec::new());
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
            show::report(&report, terminal)?;
        }
        reports.push(report);
        terminal.busy(format!("{} of {} scenarios", reports.len(), found.len()));
    }
    terminal.idle();
    finish(&arguments, (&reports, found.len(), began.elapsed()), &cancel, terminal)
}

fn found(arguments: &TestArguments) -> Result<Vec<Discovered>, Failure> {
    let at = &arguments.at;
    if !at.exists() {
        return Err(absent(at));
    }
    let unreadable = |error| Failure::refused(format!("`{}` cannot be read: {error}", at.display()));
    let all = discover(at).map_err(unreadable)?;
    if all.is_empty() && at.is_file() {
        let what = at.display();
        return Err(Failure::refused(format!("`{what}` is no scenario: the name of one ends in {SUFFIX}")));
    }
    if all.is_empty() {
        let (what, advice) = (at.display(), "host/docs/scenarios.md shows how one is written");
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

/// Builds the projects that scenarios need, those that lie together in one go.
async fn build(
    groups: Vec<(PathBuf, Vec<Project>)>,
    components: &mut Components,
    terminal: &Terminal,
) -> Result<(), Failure> {
    if groups.is_empty() {
        return Ok(());
    }
    let without = |failure: Failure| Failure {
        message: format!("{}\n--no-build takes the components as they are", failure.message),
        ..failure
    };
    let toolchain = environment::toolchain();
    let progress = |event: agent_kit::build::BuildEvent<'_>| show_build(terminal, &event);
    for (out, projects) in groups {
        let built = build_projects(&toolchain, &projects, &out, &progress).await;
        terminal.idle();
        let built = built.map_err(|error| match error {
            BuildError::Compile { .. } | BuildError::NotAComponent { .. } => Failure::failed(error),
            _ => without(Failure::refused(error)),
        })?;
        for (project, plugin) in projects.iter().zip(built) {
            components.built(project.directory(), plugin.path);
        }
    }
    Ok(())
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
    read: Vec<(&Discovered, Result<Scenario, agent_kit::scenario::ScenarioError>)>,
    player: &Arc<Player>,
) -> Vec<Playing> {
    let at_once = std::thread::available_parallelism().map_or(AT_ONCE, usize::from);
    let places = Arc::new(Semaphore::new(at_once));
    let one = |(found, scenario): (&Discovered, Result<Scenario, agent_kit::scenario::ScenarioError>)| match scenario {
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
            time: Duration::ZERO,
        }),
    };
    read.into_iter().map(one).collect()
}

fn finish(
    arguments: &TestArguments,
    (reports, all, time): (&[Report], usize, Duration),
    cancel: &CancellationToken,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let totals = Totals::of(reports);
    if let Some(file) = &arguments.junit {
        let unwritten = |error| Failure::failed(format!("`{}` cannot be written: {error}", file.display()));
        std::fs::write(file, junit(reports)).map_err(unwritten)?;
    }
    match arguments.json {
        true => terminal.print(json(reports).to_string()).map_err(Failure::output)?,
        false if cancel.is_cancelled() => show::stopped(reports.len(), all, terminal),
        false => show::totals(totals, time, terminal)?,
    }
    Ok(match totals {
        _ if cancel.is_cancelled() => Exit::Cancelled,
        Totals { passed: 0, failed: 0, .. } => Exit::Refused,
        Totals { failed: 0, not_played: 0, .. } => Exit::Done,
        _ => Exit::Failed,
    })
}
