//! "Compiled code": The time from the start of loading a plugin until the plugin can be called, if the cache already
//! contains the plugin's compiled code. For comparison, raw wasmtime opens the code of the same component without
//! verifying or linking it.

use crate::component::scratch;
use crate::samples::Samples;
use crate::table::{Table, reached};
use agent_plugins::{CodeSource, LoadEvent, Sandbox, SandboxOptions};
use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::{Duration, Instant};
use wasmtime::Engine;
use wasmtime::bail;
use wasmtime::component::Component;
use wasmtime::error::Context;

const WARM_UP: usize = 20;
const ROUNDS: usize = 300;
/// The target for the load time per MB of compiled code.
const TARGET: Duration = Duration::from_millis(1);
const MEGABYTE: f64 = 1e6;
/// If a plugin has fewer MB of code than this number, the fixed part of its load time is longer than the part that
/// depends on the code.
const SMALL_PLUGIN_MB: f64 = 0.5;
/// The number of functions in the large component.
const FUNCTIONS: usize = 3_000;
/// The number of operations in each function of the large component.
const OPERATIONS: usize = 150;

/// Measures how long each component takes to load from the cache.
pub(crate) async fn measure(components: &[PathBuf], table: &mut Table) -> wasmtime::Result<()> {
    table.title(format!("compiled code: loaded from the cache, verified, {ROUNDS} samples each"));
    std::fs::create_dir_all(scratch())?;
    let large = scratch().join("large.wasm");
    std::fs::write(&large, wat::parse_str(large_component())?)?;
    for component in components.iter().chain([&large]) {
        // Each component has its own cache, so that each cache contains only one file of compiled code.
        let cache = tempfile::tempdir_in(scratch())?;
        let options = SandboxOptions { cache_directory: Some(cache.path().to_owned()), ..SandboxOptions::default() };
        let sandbox = Sandbox::new(options)?;
        drop(sandbox.load_file(component).await?);
        let mut samples = Samples::default();
        for round in 0..WARM_UP + ROUNDS {
            let source = Mutex::new(None);
            let start = Instant::now();
            let plugin = sandbox.load_file_with(component, &|event| record_source(event, &source)).await?;
            let elapsed = start.elapsed();
            // No other reference to the plugin exists, so the next round loads the plugin again.
            drop(plugin);
            let source = source.into_inner().ok().flatten();
            if source != Some(CodeSource::Cache) {
                bail!("the code came from {source:?}");
            }
            if round >= WARM_UP {
                samples.push(elapsed);
            }
        }
        let raw = raw(component)?;
        let megabytes = compiled_bytes(cache.path())? as f64 / MEGABYTE;
        let read_and_digest = read_and_digest(component)?;
        let time_per_mb = samples.median().saturating_sub(read_and_digest.median()).as_secs_f64() / megabytes;
        let verdict = if megabytes < SMALL_PLUGIN_MB {
            "too little code to measure the time for each MB".to_owned()
        } else {
            let (target, reached) = (TARGET.as_secs_f64() * 1e3, reached(time_per_mb <= TARGET.as_secs_f64()));
            format!("without its digest {:.2} ms for each MB; target {target:.0} ms: {reached}", time_per_mb * 1e3)
        };
        let ratio = samples.median().as_secs_f64() / raw.median().as_secs_f64();
        let verdict = format!("{megabytes:.2} MB of code, {ratio:.1} × raw, {verdict}");
        table.line("raw wasmtime, neither verified nor linked", raw, String::new());
        table.line("reading the component and computing its digest", read_and_digest, String::new());
        let name = component.file_stem().unwrap_or_default().to_string_lossy();
        let kilobytes = std::fs::metadata(component)?.len() / 1_000;
        table.line(&format!("{name}, a component of {kilobytes} KB"), samples, verdict);
    }
    Ok(())
}

/// Compiles a component with raw wasmtime, and measures how long raw wasmtime takes to open the compiled code.
#[allow(unsafe_code, reason = "compiled code can only be loaded unsafely, and this function has compiled it")]
fn raw(component: &Path) -> wasmtime::Result<Samples> {
    let engine = Engine::default();
    let file = tempfile::NamedTempFile::new_in(scratch())?;
    std::fs::write(file.path(), Component::from_file(&engine, component)?.serialize()?)?;
    let mut samples = Samples::default();
    for round in 0..WARM_UP + ROUNDS {
        let start = Instant::now();
        // SAFETY: Nothing else accesses the file.
        let opened = unsafe { Component::deserialize_file(&engine, file.path())? };
        let elapsed = start.elapsed();
        drop(opened);
        if round >= WARM_UP {
            samples.push(elapsed);
        }
    }
    Ok(samples)
}

/// Reads the component's file and computes its digest.
fn read_and_digest(component: &Path) -> wasmtime::Result<Samples> {
    let mut samples = Samples::default();
    for round in 0..WARM_UP + ROUNDS {
        let start = Instant::now();
        std::hint::black_box(agent_plugins::digest_of(&std::fs::read(component)?));
        if round >= WARM_UP {
            samples.push(start.elapsed());
        }
    }
    Ok(samples)
}

/// Returns the WebAssembly text of a component that contains as much code as a small interpreter.
fn large_component() -> String {
    let mut functions = String::new();
    for function in 0..FUNCTIONS {
        let _ = write!(functions, "(func (export \"f{function}\") (param i32) (result i32) local.get 0");
        for operation in 0..OPERATIONS {
            let number = function * 31 + operation * 7 + 3;
            let _ = write!(
                functions,
                " i32.const {number} i32.mul local.get 0 i32.xor i32.const {} i32.rotl",
                operation % 31
            );
        }
        functions.push(')');
    }
    format!(
        "(component (core module $m {functions}) (core instance $i (instantiate $m)) \
         (func (export \"run\") (param \"x\" s32) (result s32) (canon lift (core func $i \"f0\"))))"
    )
}

fn record_source(event: LoadEvent, source: &Mutex<Option<CodeSource>>) {
    if let (LoadEvent::Loaded { code, .. }, Ok(mut source)) = (event, source.lock()) {
        *source = Some(code);
    }
}

/// Returns the size in bytes of the cache's only file of compiled code.
fn compiled_bytes(cache: &Path) -> wasmtime::Result<u64> {
    for engine in std::fs::read_dir(cache)? {
        let engine = engine?.path();
        if engine.is_dir() {
            let file = std::fs::read_dir(engine)?.next().context("the cache contains no file")?;
            return Ok(file?.metadata()?.len());
        }
    }
    bail!("the cache is empty")
}
