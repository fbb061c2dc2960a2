//! The child's side: it bounds and confines itself, and only then reads, parses and compiles a component.

use super::confinement::{self, Confinement};
use super::report::{BytesFacts, HEADER_BYTES, Header, MOST_REPORT, MOST_REQUEST, Report, Request, Verdict};
use crate::engine;
use crate::limits::HostLimits;
use crate::plain::Docs;
use crate::structure::StructureProblem;
use std::io::{Read, Write};
use wasmtime::Engine;

/// The stack on which a component is examined. Parsers recurse with its nesting, which is bounded to far less than fills this.
const STACK_BYTES: usize = 64 * 1024 * 1024;

/// Serves one request: reads the limits and a component from `input`, examines and compiles it, and writes the answer to
/// `output`. The process gives up its descriptors, its memory, the file system, the network and other programs before it
/// reads the component. The error is for people.
pub fn serve_compiler(mut input: impl Read, mut output: impl Write) -> Result<(), String> {
    confinement::close_inherited_descriptors();
    let request = read_request(&mut input)?;
    confinement::limit_this_process(&request);
    let engine = engine::engine_of(1, HostLimits::default(), request.build())
        .map_err(|error| format!("the compiler cannot start: {error:#}"))?;
    let confinement = confinement::confine_this_process();
    let mut component = Vec::new();
    input.read_to_end(&mut component).map_err(|error| format!("the component cannot be read: {error}"))?;
    let (verdict, code) = examine_on_large_stack(&engine, &component, &request)?;
    drop(component);
    let report = written(verdict, confinement)?;
    let header = Header::of(&engine::compatibility_hash(&engine), &report, &code);
    let mut write = |bytes: &[u8]| output.write_all(bytes).map_err(|error| format!("nobody takes the code: {error}"));
    debug_assert_eq!(header.to_bytes().len(), HEADER_BYTES);
    write(&header.to_bytes())?;
    write(&report)?;
    write(&code)?;
    output.flush().map_err(|error| format!("nobody takes the code: {error}"))
}

fn read_request(input: &mut impl Read) -> Result<Request, String> {
    let failed = |error: std::io::Error| format!("the limits cannot be read: {error}");
    let mut length = [0; 4];
    input.read_exact(&mut length).map_err(failed)?;
    let length = u32::from_le_bytes(length) as usize;
    if length > MOST_REQUEST {
        return Err("the limits cannot be read: they are too long".to_owned());
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
        // A panic ends the process like any other fault that a component causes.
        thread.join().map_err(|_| std::process::abort())
    })
}

fn examine(engine: &Engine, component: &[u8], request: &Request) -> (Verdict, Vec<u8>) {
    let facts = match BytesFacts::read(component, request.structure) {
        Ok(facts) => facts,
        Err(verdict) => return (verdict, Vec::new()),
    };
    if facts.check().is_err() {
        return (Verdict::Unserved(Box::new(facts)), Vec::new());
    }
    match engine.precompile_component(component) {
        Ok(code) if code.len() as u64 > request.code => (Verdict::CodeTooLarge { size: code.len() as u64 }, Vec::new()),
        Ok(code) => (Verdict::Compiled(Box::new(facts)), code),
        Err(error) => (Verdict::NotCompiled(format!("{error:#}")), Vec::new()),
    }
}

/// All that happens before a component is compiled, for the fuzzer: the report as JSON.
#[cfg(fuzzing)]
pub(crate) fn examine_bytes(component: &[u8], limits: crate::structure::StructureLimits) -> String {
    let verdict = match BytesFacts::read(component, limits) {
        Ok(facts) => Verdict::Unserved(Box::new(facts)),
        Err(verdict) => verdict,
    };
    let report = written(verdict, Confinement::default()).expect("a report is JSON");
    String::from_utf8(report).expect("JSON is UTF-8")
}

/// The document as JSON. Documentation is left out where it alone makes the document too large.
fn written(verdict: Verdict, confinement: Confinement) -> Result<Vec<u8>, String> {
    let mut report = Report { verdict, confinement };
    let mut text = json(&report)?;
    if text.len() > MOST_REPORT {
        if let Verdict::Compiled(facts) | Verdict::Unserved(facts) = &mut report.verdict {
            facts.docs = Docs::default();
        }
        text = json(&report)?;
    }
    if text.len() > MOST_REPORT {
        report.verdict = Verdict::Structure(StructureProblem::Names { most: MOST_REPORT });
        text = json(&report)?;
    }
    Ok(text)
}

fn json(report: &Report) -> Result<Vec<u8>, String> {
    serde_json::to_vec(report).map_err(|error| format!("the answer cannot be written: {error}"))
}
