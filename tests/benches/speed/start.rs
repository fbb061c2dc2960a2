//! "Start": The time from the start of the real binary's process until the model's first output, with many plugins.

use crate::agent::script;
use crate::component::scratch;
use crate::samples::Samples;
use crate::table::{Table, micros, reached};
use agent_plugins::{Manifest, with_manifest};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};
use wasmtime::bail;
use wasmtime::error::Context;

const PLUGINS: usize = 50;
/// The first run compiles the plugins. The other warm-up runs fill the system's file cache.
const WARM_UP: usize = 3;
const ROUNDS: usize = 40;
const TARGET: Duration = Duration::from_millis(60);
/// The name of the tool in the measured component.
const TOOL: &[u8] = b"two.sum";
/// The text that marks the first output of the scripted model.
const FIRST_OUTPUT: &str = "\"type\":\"stream_token\"";

/// Measures the start with all plugins and without plugins.
pub(crate) fn measure(component: &Path, table: &mut Table) -> wasmtime::Result<()> {
    let directory = scratch().join("start");
    let (plugin_folder, empty_folder) = (directory.join("plugins"), directory.join("none"));
    std::fs::create_dir_all(&plugin_folder)?;
    std::fs::create_dir_all(&empty_folder)?;
    std::fs::write(directory.join("script.json"), script(1))?;
    let bytes = write_copies(component, &plugin_folder)?;
    let (mut with, mut without) = (Samples::default(), Samples::default());
    for round in 0..WARM_UP + ROUNDS {
        for (plugins, samples) in [(&plugin_folder, &mut with), (&empty_folder, &mut without)] {
            let elapsed = start(&directory, plugins)?;
            if round >= WARM_UP {
                samples.push(elapsed);
            }
        }
    }
    table.title(format!(
        "start: process start to the model's first word, warm cache, durable store on disk, {} samples each",
        with.count()
    ));
    let verdict = format!("target {}: {}", micros(TARGET), reached(with.median() <= TARGET));
    table.line("no plugin", without, String::new());
    table.line(&format!("{PLUGINS} plugins of {} KB", bytes / 1_000), with, verdict);
    Ok(())
}

/// Writes copies of the component, each with a different plugin name, tool name and digest. Returns the size of a copy.
fn write_copies(component: &Path, directory: &Path) -> wasmtime::Result<usize> {
    let component = std::fs::read(component)?;
    let mut size = 0;
    for number in 0..PLUGINS {
        let renamed = rename_tool(&component, format!("t{number:02}.sum").as_bytes())?;
        let name = format!("plugin-{number:02}");
        let manifest = Manifest { name: name.clone(), version: "0.1.0".to_owned(), ..Manifest::default() };
        let bytes = with_manifest(&renamed, &manifest)?;
        size = bytes.len();
        std::fs::write(directory.join(format!("{name}.wasm")), bytes)?;
    }
    Ok(size)
}

/// Replaces the tool's name in the component's data, because the host refuses two plugins with the same tool name.
fn rename_tool(component: &[u8], name: &[u8]) -> wasmtime::Result<Vec<u8>> {
    let mut bytes = component.to_vec();
    let offsets: Vec<_> = (0..bytes.len()).filter(|offset| bytes[*offset..].starts_with(TOOL)).collect();
    if offsets.is_empty() || name.len() != TOOL.len() {
        bail!("the component does not contain the name of its tool");
    }
    offsets.into_iter().for_each(|offset| bytes[offset..offset + name.len()].copy_from_slice(name));
    Ok(bytes)
}

fn start(directory: &Path, plugins: &Path) -> wasmtime::Result<Duration> {
    let start_time = Instant::now();
    let mut host = crate::program::agent_host()
        .args(["--model", "scripted:script.json", "--json", "--data", "data", "--plugins"])
        .arg(plugins)
        .arg("How many lines has notes.txt?")
        .current_dir(directory)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        // Hides the warning that the folder contains no plugins.
        .stderr(Stdio::null())
        .spawn()?;
    let mut elapsed = None;
    let output = host.stdout.take().context("the output is a pipe")?;
    for line in BufReader::new(output).lines() {
        if line?.contains(FIRST_OUTPUT) {
            elapsed.get_or_insert(start_time.elapsed());
        }
    }
    let status = host.wait()?;
    match elapsed {
        Some(elapsed) if status.success() => Ok(elapsed),
        _ => bail!("agent-host ended with {status} and without an answer"),
    }
}
