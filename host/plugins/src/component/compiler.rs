//! Examines and compiles a component in the compiler process, a child process of the same program (P9, P15, rows 11 and
//! 36). If the component's bytes make a parser or the compiler misbehave, only the compiler process is affected. The
//! compiler process has its own limits, and the host reads only a limited amount of its output.

mod child;
mod confinement;
mod report;

#[cfg(fuzzing)]
pub(crate) use child::examine_bytes;
pub use child::serve_compiler;
pub(crate) use report::BytesFacts;

use super::engine_context::EngineContext;
use crate::binary::scan::NotAComponent;
use crate::binary::structure::StructureProblem;
use crate::execution::engine::{self, AddressSpace, CodeOptions, Metering};
use crate::limits::{HostLimits, MIB};
use crate::text::clean;
use confinement::Confinement;
use report::{HEADER_BYTES, Header, MAX_REPORT, Report, Request, Verdict};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdout, Command};

/// Maximum number of bytes of the child's error output that the host keeps. Further error output is discarded.
const MAX_ERROR_OUTPUT: u64 = 4 * 1024;
/// The limit on wall time, as a multiple of the limit on processor time. On a busy machine, the child runs only for a
/// part of each second.
const CLOCK_FACTOR: u32 = 10;
/// A component of this size, in bytes, has twice the time limit of the smallest components. The time limit grows
/// linearly with the component's size.
const BYTES_PER_TIME_LIMIT: u64 = 10 * MIB as u64;
/// Memory limit of a compiler process for the smallest components, in bytes.
const MIN_MEMORY: usize = 512 * MIB;
/// Number of bytes that are added to the memory limit for each byte of the component. The memory that Cranelift
/// needs is about 20 times the size of the component.
const MEMORY_PER_BYTE: usize = 48;
/// Upper bound for the memory limit of one compiler process, in bytes. The memory limits of all compiler processes
/// together have the same upper bound.
pub(crate) const MAX_MEMORY: usize = 2048 * MIB;
/// Maximum size of the compiled code of the smallest components, in bytes.
const MIN_CODE: u64 = 16 * MIB as u64;

/// The error if the child's output shows that the program file has been replaced with another version.
const OTHER_VERSION: &str = "the program file was replaced with another version; restart this program";

/// The command that starts the compiler process: this program, with arguments that make it call [`serve_compiler`].
#[derive(Clone, Debug)]
pub struct CompilerCommand {
    /// Path of the executable file to start.
    pub program: PathBuf,
    /// Arguments that make the program call [`serve_compiler`].
    pub arguments: Vec<OsString>,
}

/// The reason why a component could not be compiled.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompilerError {
    /// The child process reported a failure. Contains the error message of the child process.
    #[error("{0}")]
    Refused(String),
    /// Cranelift or wasmtime refused the component.
    #[error("{0}")]
    NotCompiled(String),
    #[error(transparent)]
    NotAComponent(#[from] NotAComponent),
    #[error(transparent)]
    Structure(#[from] StructureProblem),
    #[error(transparent)]
    CodeTooLarge(#[from] CodeTooLarge),
    /// The child exceeded its time limit.
    #[error(transparent)]
    Time(#[from] CompileTimeout),
    /// A signal ended the child process, for example because the process exceeded its memory limit.
    #[error("the process that compiles it was stopped ({status}); its memory limit is {} MiB", memory / MIB)]
    Stopped { status: ExitStatus, memory: usize },
    /// The child's output is damaged, or the program file has been replaced with another version.
    #[error("the output of the process that compiles it cannot be used: {0}")]
    Output(&'static str),
    /// The child cannot be started, or its pipes failed.
    #[error("the process that compiles it cannot be used: {0}")]
    Process(#[from] io::Error),
}

impl CompilerError {
    /// Whether the component itself caused the child to end, so that the child would end in the same way each time the
    /// component is compiled. Signals that users and the system send to whole process groups do not count as caused by
    /// the component.
    pub(crate) fn is_caused_by_component(&self) -> bool {
        match self {
            Self::Time(CompileTimeout::Processor(_)) => true,
            Self::Stopped { status, .. } => !is_external_signal(*status),
            _ => false,
        }
    }
}

/// The error if the compiled code of a component is larger than allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "its compiled code has {size} bytes; the limit for a component of its size is {most} bytes (`compiled_ratio` and \
        `compiled_mib` under [host.limits])"
)]
pub struct CodeTooLarge {
    /// Size of the compiled code in bytes.
    pub size: u64,
    /// Maximum allowed size of the compiled code in bytes.
    pub most: u64,
}

/// The error if compiling a component exceeded a time limit. The duration is the exceeded limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileTimeout {
    /// Compiling exceeded the limit on the total processor time of all threads.
    #[error(
        "compiling it takes more than {0:?} of processor time; make it smaller, or raise `compile_ms` under [host.limits]"
    )]
    Processor(Duration),
    /// Compiling exceeded the limit on wall time.
    #[error("it was not compiled within {0:?}, because the machine is busy; try again later")]
    Clock(Duration),
}

/// The limits on examining and compiling one component.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompileLimits {
    time: Duration,
    memory: usize,
    code: u64,
    structure: crate::binary::structure::StructureLimits,
}

impl CompileLimits {
    /// Computes the limits for a component of `bytes` bytes.
    pub(crate) fn new(limits: &HostLimits, bytes: usize) -> Self {
        let memory = MIN_MEMORY.saturating_add(bytes.saturating_mul(MEMORY_PER_BYTE)).min(MAX_MEMORY);
        Self {
            time: time_for(limits.compile_time, bytes),
            memory,
            code: code_for(limits, bytes as u64),
            structure: limits.structure(),
        }
    }

    /// The memory limit of the compiler process, in MiB.
    pub(crate) fn memory_mib(&self) -> u32 {
        (self.memory / MIB) as u32
    }

    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    /// Fails if `size`, in bytes, exceeds the limit on the compiled code.
    pub(crate) fn check_code(&self, size: u64) -> Result<(), CodeTooLarge> {
        if size > self.code { Err(CodeTooLarge { size, most: self.code }) } else { Ok(()) }
    }

    fn request(&self, options: CodeOptions) -> Request {
        Request {
            seconds: self.time.as_millis().div_ceil(1_000) as u64,
            memory: self.memory as u64,
            counts_fuel: options.metering == Metering::Fuel,
            reserves: options.space == AddressSpace::Reserved,
            code: self.code,
            structure: self.structure,
        }
    }
}

/// Returns the time limit for a component of `bytes` bytes. `time` is the limit for the smallest components.
fn time_for(time: Duration, bytes: usize) -> Duration {
    let extra = time.as_millis() * bytes as u128 / u128::from(BYTES_PER_TIME_LIMIT);
    time + Duration::from_millis(u64::try_from(extra).unwrap_or(u64::MAX))
}

/// Maximum size of the compiled code of a component of `bytes` bytes (row 37).
fn code_for(limits: &HostLimits, bytes: u64) -> u64 {
    bytes.saturating_mul(limits.compiled_ratio).max(MIN_CODE).min(limits.compiled)
}

/// The result of a compiler process: the facts about the component, and its compiled code.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) facts: BytesFacts,
    output_bytes: Vec<u8>,
    code_offset: usize,
}

impl Compiled {
    /// The compiled code of the component. The code is empty if the component was not compiled, because the component
    /// imports or exports an interface that this host does not have.
    pub(crate) fn code(&self) -> &[u8] {
        &self.output_bytes[self.code_offset..]
    }
}

/// Examines a component in the host process, without a compiler process. This function is used in tests, and in hosts
/// that compile only trusted components.
pub(crate) fn examine_without_child(bytes: &[u8], limits: &CompileLimits) -> Result<BytesFacts, CompilerError> {
    BytesFacts::read(bytes, limits.structure).map_err(|verdict| refusal(verdict, limits))
}

/// Compiles a component in a child process and returns the child's verified result. Dropping the future ends the child.
///
/// The time limit applies to the total processor time of all threads of the child. The child runs with low priority, so
/// its wall time is much longer than its processor time on a busy machine. The limit on wall time is therefore a
/// multiple of the limit on processor time.
pub(crate) async fn compile(
    command: &CompilerCommand,
    context: &EngineContext,
    component: &[u8],
    limits: &CompileLimits,
) -> Result<Compiled, CompilerError> {
    let longest = limits.time * CLOCK_FACTOR;
    let compiling = compile_in_child(command, context, component, limits);
    tokio::time::timeout(longest, compiling).await.unwrap_or(Err(CompileTimeout::Clock(longest).into()))
}

async fn compile_in_child(
    command: &CompilerCommand,
    context: &EngineContext,
    component: &[u8],
    limits: &CompileLimits,
) -> Result<Compiled, CompilerError> {
    let mut child = Command::new(&command.program)
        .args(&command.arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let request = serde_json::to_vec(&limits.request(context.code_options())).map_err(io::Error::other)?;
    let output = exchange(&mut child, [&(request.len() as u32).to_le_bytes(), &request, component], limits).await?;
    let error_output = clean(String::from_utf8_lossy(&output.errors).trim(), MAX_ERROR_OUTPUT as usize);
    // If the host refuses to read the output, it closes the pipe, which ends the child. In this case, the child did not
    // end because of the component.
    let was_cut_off = Header::parse(&output.header).is_some_and(|header| !header.fits(limits));
    match output.status.code() {
        _ if was_cut_off => Err(CompilerError::Output(OTHER_VERSION)),
        Some(0) => parse_output(output, &engine::compatibility_hash(&context.engine), limits),
        Some(1) if !error_output.is_empty() => Err(CompilerError::Refused(error_output)),
        _ if is_out_of_time(output.status) => Err(CompileTimeout::Processor(limits.time).into()),
        _ => Err(CompilerError::Stopped { status: output.status, memory: limits.memory }),
    }
}

impl Header {
    /// Returns whether the child's output is small enough for the host to read it.
    fn fits(&self, limits: &CompileLimits) -> bool {
        self.report <= MAX_REPORT as u64 && self.code <= limits.code
    }
}

/// The exit status and the output of a compiler process.
struct ChildOutput {
    status: ExitStatus,
    header: Vec<u8>,
    output_bytes: Vec<u8>,
    /// The beginning of the child's error output.
    errors: Vec<u8>,
}

#[cfg(unix)]
fn is_out_of_time(status: ExitStatus) -> bool {
    signal_of(status) == Some(rustix::process::Signal::XCPU.as_raw())
}

#[cfg(unix)]
fn is_external_signal(status: ExitStatus) -> bool {
    use rustix::process::Signal;
    let outside = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::PIPE].map(Signal::as_raw);
    signal_of(status).is_some_and(|signal| outside.contains(&signal))
}

#[cfg(unix)]
fn signal_of(status: ExitStatus) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;
    // If the child ran in a shell, the exit code of the shell encodes the number of the signal.
    status.signal().or_else(|| status.code().filter(|code| *code > 128).map(|code| code - 128))
}

#[cfg(not(unix))]
fn is_out_of_time(_: ExitStatus) -> bool {
    false
}

#[cfg(not(unix))]
fn is_external_signal(_: ExitStatus) -> bool {
    false
}

/// Writes the request to the child's input and reads the child's output.
async fn exchange(child: &mut Child, parts: [&[u8]; 3], limits: &CompileLimits) -> io::Result<ChildOutput> {
    let no_pipe = || io::Error::other("the pipes of the child process are missing");
    let mut input = child.stdin.take().ok_or_else(no_pipe)?;
    let output = child.stdout.take().ok_or_else(no_pipe)?;
    let mut errors = child.stderr.take().ok_or_else(no_pipe)?;
    let write_input = async move {
        // If the child ends early, writing to the child fails. The failed write is ignored, because the child's error
        // output contains the reason, which is more useful than an error about a broken pipe.
        for part in parts {
            if input.write_all(part).await.is_err() {
                break;
            }
        }
    };
    let read_errors = async {
        let mut error_output = Vec::new();
        (&mut errors).take(MAX_ERROR_OUTPUT).read_to_end(&mut error_output).await?;
        // The remaining error output is read and discarded, so that the child does not block.
        tokio::io::copy(&mut errors, &mut tokio::io::sink()).await?;
        Ok::<_, io::Error>(error_output)
    };
    let ((), output_bytes, errors) = tokio::join!(write_input, read_output(output, limits), read_errors);
    let (header, output_bytes) = output_bytes?;
    Ok(ChildOutput { status: child.wait().await?, header, output_bytes, errors: errors? })
}

/// Reads the header and then as many bytes as the header announces. If the announced number is too large, only the
/// header is read. The pipe is closed after reading, even if the child still writes output.
async fn read_output(mut output: ChildStdout, limits: &CompileLimits) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    (&mut output).take(HEADER_BYTES as u64).read_to_end(&mut header).await?;
    let mut output_bytes = Vec::new();
    if let Some(Header { report, code, .. }) = Header::parse(&header).filter(|header| header.fits(limits)) {
        let length = report + code;
        output_bytes.reserve_exact(length as usize);
        output.take(length).read_to_end(&mut output_bytes).await?;
    }
    Ok((header, output_bytes))
}

/// Checks the output against its header and the expected engine, and parses the report.
fn parse_output(
    output: ChildOutput,
    expected: &blake3::Hash,
    limits: &CompileLimits,
) -> Result<Compiled, CompilerError> {
    let header = Header::parse(&output.header).ok_or(CompilerError::Output("it is incomplete"))?;
    if header.engine != *expected.as_bytes() {
        return Err(CompilerError::Output(OTHER_VERSION));
    }
    let code_offset = usize::try_from(header.report).unwrap_or(usize::MAX);
    let Some((report, code)) = output.output_bytes.split_at_checked(code_offset) else {
        return Err(CompilerError::Output("it is damaged"));
    };
    if header.code != code.len() as u64 || header.digest != report::digest(report, code) {
        return Err(CompilerError::Output("it is damaged"));
    }
    let Report { verdict, confinement } =
        serde_json::from_slice(report).map_err(|_| CompilerError::Output("its report cannot be read"))?;
    report_missing_confinement(confinement);
    match verdict {
        Verdict::Compiled(facts) | Verdict::UnsupportedInterface(facts) => {
            Ok(Compiled { facts: *facts, output_bytes: output.output_bytes, code_offset })
        }
        verdict => Err(refusal(verdict, limits)),
    }
}

fn refusal(verdict: Verdict, limits: &CompileLimits) -> CompilerError {
    match verdict {
        Verdict::NotAComponent(reason) => reason.into(),
        Verdict::Structure(problem) => problem.into(),
        Verdict::NotCompiled(reason) => CompilerError::NotCompiled(clean(&reason, MAX_ERROR_OUTPUT as usize)),
        Verdict::CodeTooLarge { size } => CodeTooLarge { size, most: limits.code }.into(),
        Verdict::Compiled(_) | Verdict::UnsupportedInterface(_) => {
            CompilerError::Output("its report contradicts itself")
        }
    }
}

/// Logs which parts of the confinement this kernel does not support. The message is logged only once per process.
fn report_missing_confinement(confinement: Confinement) {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if let Some(missing) = confinement.missing()
        && !REPORTED.swap(true, Ordering::Relaxed)
    {
        tracing::info!(
            "this kernel has no {missing}: the process that compiles components is limited in memory and time, but less confined"
        );
    }
}

#[cfg(test)]
mod tests;
