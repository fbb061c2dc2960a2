//! "Compiled code": loading a plugin whose code is in the cache, from its file to a plugin that can be called.

use crate::component::scratch;
use crate::samples::Samples;
use crate::table::{Table, reached};
use agent_plugins::{CodeSource, LoadEvent, Sandbox, SandboxOptions};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use wasmtime::bail;
use wasmtime::error::Context;

const WARM_UP: usize = 20;
const ROUNDS: usize = 300;
/// For each MB of compiled code.
const TARGET: Duration = Duration::from_millis(1);
const MEGABYTE: f64 = 1e6;

/// Measures each component.
pub(crate) async fn measure(components: &[PathBuf], table: &mut Table) -> wasmtime::Result<()> {
    table.title(format!("compiled code: loaded from the cache, verified, {ROUNDS} samples each"));
    for component in components {
        std::fs::create_dir_all(scratch())?;
        // A cache of its own, so that the only file of compiled code in it is this component's.
        let cache = tempfile::tempdir_in(scratch())?;
        let options = SandboxOptions { cache_directory: Some(cache.path().to_owned()), ..SandboxOptions::default() };
        let sandbox = Sandbox::new(options)?;
        drop(sandbox.load_file(component).await?);
        let mut samples = Samples::default();
        for round in 0..WARM_UP + ROUNDS {
            let source = Mutex::new(None);
            let started = Instant::now();
            let plugin = sandbox.load_file_with(component, &|event| note(event, &source)).await?;
            let elapsed = started.elapsed();
            // Nobody holds it, so the next round loads it again.
            drop(plugin);
            let source = source.into_inner().ok().flatten();
            if source != Some(CodeSource::Cache) {
                bail!("the code came from {source:?}");
            }
            if round >= WARM_UP {
                samples.push(elapsed);
            }
        }
        let megabytes = compiled_bytes(cache.path())? as f64 / MEGABYTE;
        let each = samples.median().as_secs_f64() / megabytes;
        let verdict = format!(
            "{megabytes:.2} MB of code, {:.2} ms for each; target {:.0} ms: {}",
            each * 1e3,
            TARGET.as_secs_f64() * 1e3,
            reached(each <= TARGET.as_secs_f64())
        );
        let name = component.file_stem().unwrap_or_default().to_string_lossy();
        let kilobytes = std::fs::metadata(component)?.len() / 1_000;
        table.line(&format!("{name}, a component of {kilobytes} KB"), samples, verdict);
    }
    Ok(())
}

fn note(event: LoadEvent, source: &Mutex<Option<CodeSource>>) {
    if let (LoadEvent::Loaded { code, .. }, Ok(mut source)) = (event, source.lock()) {
        *source = Some(code);
    }
}

/// Of the one file of compiled code in the cache.
fn compiled_bytes(cache: &Path) -> wasmtime::Result<u64> {
    for engine in std::fs::read_dir(cache)? {
        let engine = engine?.path();
        if engine.is_dir() {
            let file = std::fs::read_dir(engine)?.next().context("the cache has a file")?;
            return Ok(file?.metadata()?.len());
        }
    }
    bail!("nothing is in the cache")
}
