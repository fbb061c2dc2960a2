//! The code that runs in the compiler process. This code limits and confines the process before it reads, parses and
//! compiles a component.

use super::confinement::{self, Confinement};
use super::report::{BytesFacts, HEADER_BYTES, Header, MAX_REPORT, MAX_REQUEST, Report, Request, Verdict};
use crate::binary::docs::Docs;
use crate::binary::structure::StructureProblem;
use crate::execution::engine;
use crate::limits::HostLimits;
use std::io::{Read, Write};
use wasmtime::Engine;

/// Size of the stack for examining a component, in bytes. Parsers recurse for each level of nesting, but the limit on
/// nesting keeps their stack use far below this size.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// Serves one request: reads the limits and a component from `input`, examines and compiles the component, and writes
/// the result to `output`.
///
/// Before it reads the component, the process closes inherited descriptors, limits its memory and time, and gives up
/// access to the file system, the network and other programs. Returns an error message for the user if the request
/// cannot be served.
pub fn serve_compiler(mut input: impl Read, mut output: impl Write) -> Result<(), String> {
    confinement::close_inherited_descriptors();
    let request = read_request(&mut input)?;
    confinement::limit_this_process(&request);
    let engine = engine::engine_with_slots(1, HostLimits::default(), request.code_options())
        .map_err(|error| format!("the compiler cannot start: {error:#}"))?;
    let confinement = confinement::confine_this_process();
    let mut component = Vec::new();
    input.read_to_end(&mut component).map_err(|error| format!("the component cannot be read: {error}"))?;
    let (verdict, code) = examine_on_large_stack(&engine, &component, &request)?;
    drop(component);
    let report = report_json(verdict, confinement)?;
    let header = Header::of(&engine::compatibility_hash(&engine), &report, &code);
    let mut write = |bytes: &[u8]| output.write_all(bytes).map_err(|error| cannot_write(&error));
    debug_assert_eq!(header.to_bytes().len(), HEADER_BYTES);
    write(&header.to_bytes())?;
    write(&report)?;
    write(&code)?;
    output.flush().map_err(|error| cannot_write(&error))
}

fn cannot_write(error: &std::io::Error) -> String {
    format!("the result cannot be written: {error}")
}

fn read_request(input: &mut impl Read) -> Result<Request, String> {
    let failed = |error: std::io::Error| format!("the limits cannot be read: {error}");
    let mut length = [0; 4];
    input.read_exact(&mut length).map_err(failed)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MAX_REQUEST {
        return Err("the limits cannot be read: the request is too long".to_owned());
    }
    let mut request = vec![0; length];
    input.read_exact(&mut request).map_err(failed)?;
    serde_json::from_slice(&request).map_err(|error| format!("the limits cannot be read: {error}"))
}

fn examine_on_large_stack(engine: &Engine, component: &[u8], request: &Request) -> Result<(Verdict, Vec<u8>), String> {
    std::thread::scope(|scope| {
        let examine = || examine(engine, component, request);
        let thread = std::thread::Builder::new().stack_size(STACK_BYTES).spawn_scoped(scope, examine);
        let thread = thread.map_err(|error| format!("the compiler cannot start: {error}"))?;
        // A panic ends the process, like any other crash that a component causes.
        thread.join().map_err(|_| std::process::abort())
    })
}

fn examine(engine: &Engine, component: &[u8], request: &Request) -> (Verdict, Vec<u8>) {
    let facts = match BytesFacts::read(component, request.structure) {
        Ok(facts) => facts,
        Err(verdict) => return (verdict, Vec::new()),
    };
    if facts.check().is_err() {
        return (Verdict::UnsupportedInterface(Box::new(facts)), Vec::new());
    }
    match engine.precompile_component(component) {
        Ok(code) if code.len() as u64 > request.code => (Verdict::CodeTooLarge { size: code.len() as u64 }, Vec::new()),
        Ok(code) => (Verdict::Compiled(Box::new(facts)), code),
        Err(error) => (Verdict::NotCompiled(format!("{error:#}")), Vec::new()),
    }
}

/// For the fuzz targets: performs all steps that precede the compilation of a component, and returns the report about
/// the component as JSON.
#[cfg(fuzzing)]
pub(crate) fn examine_bytes(component: &[u8], limits: crate::binary::structure::StructureLimits) -> String {
    let verdict = match BytesFacts::read(component, limits) {
        Ok(facts) => Verdict::UnsupportedInterface(Box::new(facts)),
        Err(verdict) => verdict,
    };
    let report = report_json(verdict, Confinement::default()).expect("a report can be converted to JSON");
    String::from_utf8(report).expect("JSON is UTF-8")
}

/// Converts the report to JSON. If the JSON would be too large, the component's documentation is left out.
fn report_json(verdict: Verdict, confinement: Confinement) -> Result<Vec<u8>, String> {
    let mut report = Report { verdict, confinement };
    let mut text = json(&report)?;
    if text.len() > MAX_REPORT {
        if let Verdict::Compiled(facts) | Verdict::UnsupportedInterface(facts) = &mut report.verdict {
            facts.docs = Docs::default();
        }
        text = json(&report)?;
    }
    if text.len() > MAX_REPORT {
        report.verdict = Verdict::Structure(StructureProblem::Names { most: MAX_REPORT });
        text = json(&report)?;
    }
    Ok(text)
}

fn json(report: &Report) -> Result<Vec<u8>, String> {
    serde_json::to_vec(report).map_err(|error| format!("the result cannot be written: {error}"))
}
