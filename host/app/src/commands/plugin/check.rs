//! `plugin check`: reports the errors, warnings and hints that an author should read before others use a plugin (S3).

use super::call::Format;
use super::manifest_file;
use crate::commands::build_projects;
use crate::environment;
use crate::exit::{Exit, Failure};
use crate::interrupt::{Activity, Interrupts};
use crate::terminal::{BOLD, DIM, GREEN, RED, Terminal, YELLOW, show_load, text};
use agent_config::{DataDirectory, assembly};
use agent_devkit::build::projects_at;
use agent_devkit::check::{Finding, Level, PluginFacts};
use agent_plugins::{CallLimits, CodeSource, LoadEvent, LoadedPlugin, Sandbox};
use serde_json::json;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Checks one plugin, or all plugins of a folder. Stops early if the user cancels.
pub(super) async fn check(
    path: &Path,
    format: Format,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Exit, Failure> {
    let cancel = Interrupts::listen(terminal.clone()).begin(Activity::Turn);
    tokio::select! {
        checked = check_files(path, format, data, terminal) => checked,
        () = cancel.cancelled() => Ok(Exit::Cancelled),
    }
}

async fn check_files(path: &Path, format: Format, data: &DataDirectory, terminal: &Terminal) -> Result<Exit, Failure> {
    let files = files(path, terminal).await?;
    let sandbox = assembly::open_default_sandbox(data, &environment::host())?;
    let mut errors = 0;
    for file in files {
        let (plugin, findings) = check_file(&sandbox, &file, terminal).await;
        errors += count_of(&findings, Level::Error);
        let shown = match format {
            Format::Json => document(&file, plugin.as_deref(), &findings).to_string(),
            Format::Text => describe(&file, plugin.as_deref(), &findings),
        };
        super::print(terminal, shown)?;
    }
    Ok(if errors > 0 { Exit::Failed } else { Exit::Done })
}

/// Returns the components to check. Projects are built first, so that their current sources are checked.
async fn files(path: &Path, terminal: &Terminal) -> Result<Vec<PathBuf>, Failure> {
    if !path.is_dir() {
        return Ok(vec![path.to_owned()]);
    }
    let no_project_error = match projects_at(path) {
        Ok(_) => {
            let built = build_projects::build(path, terminal).await?;
            return Ok(built.into_iter().map(|plugin| plugin.path).collect());
        }
        Err(error) => error,
    };
    let entries = std::fs::read_dir(path).map_err(Failure::refused)?.flatten().map(|entry| entry.path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|end| end == "wasm")).collect();
    files.sort();
    if files.is_empty() { Err(Failure::refused(no_project_error)) } else { Ok(files) }
}

async fn check_file(sandbox: &Sandbox, file: &Path, terminal: &Terminal) -> (Option<Arc<LoadedPlugin>>, Vec<Finding>) {
    let compile_start: Mutex<Option<Instant>> = Mutex::new(None);
    let compile_time: Mutex<Option<Duration>> = Mutex::new(None);
    let progress = |event: LoadEvent| {
        let mut compile_start = compile_start.lock().unwrap_or_else(PoisonError::into_inner);
        match &event {
            LoadEvent::Compiling { .. } => *compile_start = Some(Instant::now()),
            LoadEvent::Loaded { code: CodeSource::Compiled, .. } => {
                *compile_time.lock().unwrap_or_else(PoisonError::into_inner) =
                    compile_start.take().map(|begun| begun.elapsed());
            }
            _ => {}
        }
        show_load(terminal, &event);
    };
    let loaded = sandbox.load_file_with(file, &progress).await;
    terminal.idle();
    let plugin = match loaded {
        Ok(plugin) => plugin,
        Err(error) => return (None, vec![Finding::unloadable(error.to_string())]),
    };
    let compiled_in = *compile_time.lock().unwrap_or_else(PoisonError::into_inner);
    let canary = sandbox.canary_cost(&plugin, CallLimits::default()).await;
    let findings = agent_devkit::check::check(&PluginFacts { compiled_in, canary, ..PluginFacts::of(&plugin) });
    (Some(plugin), findings)
}

fn count_of(findings: &[Finding], level: Level) -> usize {
    findings.iter().filter(|finding| finding.level == level).count()
}

/// Formats the findings as text: the most important findings first, and then the number of findings of each level.
fn describe(file: &Path, plugin: Option<&LoadedPlugin>, findings: &[Finding]) -> String {
    let heading = match plugin {
        Some(plugin) => super::describe::heading(plugin),
        None => format!("{BOLD}{}{BOLD:#}", file.display()),
    };
    let mut lines = vec![heading];
    lines.extend(manifest_file::shown(file).map(|manifest| format!("  {DIM}manifest {manifest}{DIM:#}")));
    for Finding { level, subject, message, .. } in findings {
        let (style, word) = match level {
            Level::Error => (RED, "error  "),
            Level::Warning => (YELLOW, "warning"),
            Level::Hint => (DIM, "hint   "),
        };
        let subject = if subject.is_empty() { String::new() } else { format!("{}: ", text::one_line(subject, 300)) };
        let message = text::harmless(message).replace('\n', "\n           ");
        lines.push(format!("  {style}{word}{style:#}  {subject}{message}"));
    }
    let counts = [(Level::Error, "error"), (Level::Warning, "warning"), (Level::Hint, "hint")];
    let counts = counts.map(|(level, word)| (count_of(findings, level), word));
    let totals: Vec<_> =
        counts.iter().filter(|(number, _)| *number > 0).map(|(number, word)| text::count(*number, word)).collect();
    lines.push(match totals.is_empty() {
        true => format!("  {GREEN}no problems found{GREEN:#}"),
        false => format!("  {}", totals.join(", ")),
    });
    lines.join("\n")
}

/// Formats the findings as a JSON document.
fn document(file: &Path, plugin: Option<&LoadedPlugin>, findings: &[Finding]) -> serde_json::Value {
    json!({
        "file": file,
        "manifest_file": manifest_file::shown(file),
        "name": plugin.map(LoadedPlugin::name),
        "digest": plugin.map(LoadedPlugin::digest),
        "size": plugin.map(LoadedPlugin::size),
        "kinds": plugin.map(LoadedPlugin::kind_labels),
        "errors": count_of(findings, Level::Error),
        "warnings": count_of(findings, Level::Warning),
        "hints": count_of(findings, Level::Hint),
        "findings": findings,
    })
}
