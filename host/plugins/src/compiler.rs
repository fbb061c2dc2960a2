//! Examining and compiling a component in a child process of the same program (P9, P15; rows 11 and 36): whatever its bytes make
//! a parser or a compiler do, they do it to a process with limits of its own, and the host reads a bounded answer.

mod child;
mod confinement;
mod report;

#[cfg(fuzzing)]
pub(crate) use child::examine_bytes;
pub use child::serve_compiler;
pub(crate) use report::BytesFacts;

use crate::engine::{self, AddressSpace, Build, Metering};
use crate::limits::{HostLimits, MIB};
use crate::room::Room;
use crate::scan::NotAComponent;
use crate::structure::StructureProblem;
use crate::text::clean;
use confinement::Confinement;
use report::{HEADER_BYTES, Header, MOST_REPORT, Report, Request, Verdict};
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdout, Command};

/// Most bytes that are kept of the child's error output.
const MOST_WORDS: u64 = 4 * 1024;
/// How often its time may pass by the clock: on a machine that is busy with other things, it gets little of it.
const PATIENCE: u32 = 10;
/// A component of so many bytes may take its time twice: honest ones take the longer the larger they are.
const SIZE_OF_ONE_TIME: u64 = 10 * MIB as u64;
/// Memory of a child: this much, and for each byte of its component so many more. Cranelift takes some 20 times a component.
const LEAST_MEMORY: usize = 512 * MIB;
const MEMORY_PER_BYTE: usize = 48;
/// The most memory of one child, and of all children together.
pub(crate) const MOST_MEMORY: usize = 2048 * MIB;
/// Compiled code that every component may have, however small it is.
const LEAST_CODE: u64 = 16 * MIB as u64;

/// How the child is started: this very program, with arguments upon which it calls [`serve_compiler`].
#[derive(Clone, Debug)]
pub struct CompilerCommand {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// Why there is no compiled code.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CompilerError {
    /// The child could not do its work, in its own words.
    #[error("{0}")]
    Refused(String),
    /// The compiler refused the component.
    #[error("{0}")]
    NotCompiled(String),
    #[error(transparent)]
    NotAComponent(#[from] NotAComponent),
    #[error(transparent)]
    Structure(#[from] StructureProblem),
    #[error(transparent)]
    CodeTooLarge(#[from] CodeTooLarge),
    /// It has used up its time.
    #[error(transparent)]
    Time(#[from] CompileTime),
    /// It was stopped by its limits, or by somebody.
    #[error("the process that examines and compiles it was stopped ({status}); it may use {} MiB", memory / MIB)]
    Stopped { status: ExitStatus, memory: usize },
    /// It is another program by now, or what it wrote is damaged.
    #[error("its compiler's output is not usable: {0}")]
    Output(&'static str),
    /// It could not be started or spoken to.
    #[error("its compiler cannot be used: {0}")]
    Process(#[from] io::Error),
}

impl CompilerError {
    /// Whether the component itself ended the child, so that the same would happen at every start. Signals by which people and
    /// the system end whole groups of processes say nothing about the component.
    pub(crate) fn is_the_components_fault(&self) -> bool {
        match self {
            Self::Time(CompileTime::Processor(_)) => true,
            Self::Stopped { status, .. } => !was_asked_to_end(*status),
            _ => false,
        }
    }
}

/// A component whose code is larger than it may be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "its compiled code has {size} bytes, and a component of its size may have {most} (`compiled_ratio` and `compiled_mib` under \
     [host.limits])"
)]
pub struct CodeTooLarge {
    /// Its bytes.
    pub size: u64,
    /// The limit.
    pub most: u64,
}

/// Compiling took too long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompileTime {
    /// Of the processors' time, all threads together.
    #[error(
        "it takes more than {0:?} of processor time to compile; make it smaller, or raise `compile_ms` under [host.limits]"
    )]
    Processor(Duration),
    /// By the clock.
    #[error("it was not compiled within {0:?}, since the machine is busy with other things; try again later")]
    Clock(Duration),
}

/// What examining and compiling one component may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CompileLimits {
    time: Duration,
    memory: usize,
    code: u64,
    structure: crate::structure::StructureLimits,
}

impl CompileLimits {
    /// For a component of so many bytes.
    pub(crate) fn new(limits: &HostLimits, bytes: usize) -> Self {
        let memory = LEAST_MEMORY.saturating_add(bytes.saturating_mul(MEMORY_PER_BYTE)).min(MOST_MEMORY);
        Self {
            time: time_for(limits.compile_time, bytes),
            memory,
            code: code_for(limits, bytes as u64),
            structure: limits.structure(),
        }
    }

    /// In MiB, for a budget.
    pub(crate) fn memory_mib(&self) -> u32 {
        (self.memory / MIB) as u32
    }

    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    /// Refuses code that is too large.
    pub(crate) fn check_code(&self, size: u64) -> Result<(), CodeTooLarge> {
        if size > self.code { Err(CodeTooLarge { size, most: self.code }) } else { Ok(()) }
    }

    fn request(&self, build: Build) -> Request {
        Request {
            seconds: self.time.as_millis().div_ceil(1_000) as u64,
            memory: self.memory as u64,
            counts_fuel: build.metering == Metering::Fuel,
            reserves: build.space == AddressSpace::Reserved,
            code: self.code,
            structure: self.structure,
        }
    }
}

/// What compiling a component of so many bytes may take, where a small one may take `time`.
fn time_for(time: Duration, bytes: usize) -> Duration {
    let more = time.as_millis() * bytes as u128 / u128::from(SIZE_OF_ONE_TIME);
    time + Duration::from_millis(u64::try_from(more).unwrap_or(u64::MAX))
}

/// Bytes of code that a component of so many bytes may have (row 37).
fn code_for(limits: &HostLimits, bytes: u64) -> u64 {
    bytes.saturating_mul(limits.compiled_ratio).max(LEAST_CODE).min(limits.compiled)
}

/// What a child has found out and made.
#[derive(Debug)]
pub(crate) struct Compiled {
    pub(crate) facts: BytesFacts,
    answer: Vec<u8>,
    code_at: usize,
}

impl Compiled {
    /// The compiled code; empty where the component was not compiled because of its imports or exports.
    pub(crate) fn code(&self) -> &[u8] {
        &self.answer[self.code_at..]
    }
}

/// Examines a component in this process: for tests, and for hosts that compile only components that they trust.
pub(crate) fn examine_here(bytes: &[u8], limits: &CompileLimits) -> Result<BytesFacts, CompilerError> {
    BytesFacts::read(bytes, limits.structure).map_err(|verdict| refusal(verdict, limits))
}

/// The host's side: what the child found, and compiled code, whole and for this engine. Dropping the future ends the child. What
/// counts is the processors' time, all its threads together: it stands behind everybody else, so that the clock says little.
/// The clock ends it only after a multiple of that.
pub(crate) async fn compile(
    command: &CompilerCommand,
    room: &Room,
    component: &[u8],
    limits: &CompileLimits,
) -> Result<Compiled, CompilerError> {
    let longest = limits.time * PATIENCE;
    let compiling = compile_in_child(command, room, component, limits);
    tokio::time::timeout(longest, compiling).await.unwrap_or(Err(CompileTime::Clock(longest).into()))
}

async fn compile_in_child(
    command: &CompilerCommand,
    room: &Room,
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
    let request = serde_json::to_vec(&limits.request(room.build())).map_err(io::Error::other)?;
    let said = talk(&mut child, [&(request.len() as u32).to_le_bytes(), &request, component], limits).await?;
    let words = clean(String::from_utf8_lossy(&said.words).trim(), MOST_WORDS as usize);
    // What the host did not want to read ended the child, which is not the component's fault.
    let was_cut_off = Header::parse(&said.header).is_some_and(|header| !header.fits(limits));
    match said.status.code() {
        _ if was_cut_off => Err(CompilerError::Output("it is for another version of this program; start that again")),
        Some(0) => unpacked(said, &engine::compatibility_hash(&room.engine), limits),
        Some(1) if !words.is_empty() => Err(CompilerError::Refused(words)),
        _ if is_out_of_time(said.status) => Err(CompileTime::Processor(limits.time).into()),
        _ => Err(CompilerError::Stopped { status: said.status, memory: limits.memory }),
    }
}

impl Header {
    /// Whether the host reads an answer of this size.
    fn fits(&self, limits: &CompileLimits) -> bool {
        self.report <= MOST_REPORT as u64 && self.code <= limits.code
    }
}

/// What came out of a child.
struct Said {
    status: ExitStatus,
    header: Vec<u8>,
    answer: Vec<u8>,
    words: Vec<u8>,
}

#[cfg(unix)]
fn is_out_of_time(status: ExitStatus) -> bool {
    signal_of(status) == Some(rustix::process::Signal::XCPU.as_raw())
}

#[cfg(unix)]
fn was_asked_to_end(status: ExitStatus) -> bool {
    use rustix::process::Signal;
    let polite = [Signal::HUP, Signal::INT, Signal::QUIT, Signal::TERM, Signal::PIPE].map(Signal::as_raw);
    signal_of(status).is_some_and(|signal| polite.contains(&signal))
}

#[cfg(unix)]
fn signal_of(status: ExitStatus) -> Option<i32> {
    use std::os::unix::process::ExitStatusExt;
    // A shell that ran the child says so by its own code.
    status.signal().or_else(|| status.code().filter(|code| *code > 128).map(|code| code - 128))
}

#[cfg(not(unix))]
fn is_out_of_time(_: ExitStatus) -> bool {
    false
}

#[cfg(not(unix))]
fn was_asked_to_end(_: ExitStatus) -> bool {
    false
}

async fn talk(child: &mut Child, parts: [&[u8]; 3], limits: &CompileLimits) -> io::Result<Said> {
    let no_pipe = || io::Error::other("it has no pipes");
    let mut input = child.stdin.take().ok_or_else(no_pipe)?;
    let output = child.stdout.take().ok_or_else(no_pipe)?;
    let mut errors = child.stderr.take().ok_or_else(no_pipe)?;
    let give = async move {
        // A child that ends before it has read everything says why, which counts more than the broken pipe.
        for part in parts {
            if input.write_all(part).await.is_err() {
                break;
            }
        }
    };
    let listen = async {
        let mut words = Vec::new();
        (&mut errors).take(MOST_WORDS).read_to_end(&mut words).await?;
        // The rest is read so that the child is not held up, and forgotten.
        tokio::io::copy(&mut errors, &mut tokio::io::sink()).await?;
        Ok::<_, io::Error>(words)
    };
    let ((), answered, words) = tokio::join!(give, answer(output, limits), listen);
    let (header, answer) = answered?;
    Ok(Said { status: child.wait().await?, header, answer, words: words? })
}

/// Reads the header, and behind it as much as the header says, if that is not too much. A child that wants to say more finds
/// its pipe closed.
async fn answer(mut output: ChildStdout, limits: &CompileLimits) -> io::Result<(Vec<u8>, Vec<u8>)> {
    let mut header = Vec::with_capacity(HEADER_BYTES);
    (&mut output).take(HEADER_BYTES as u64).read_to_end(&mut header).await?;
    let mut answer = Vec::new();
    if let Some(Header { report, code, .. }) = Header::parse(&header).filter(|header| header.fits(limits)) {
        let length = report + code;
        answer.reserve_exact(length as usize);
        output.take(length).read_to_end(&mut answer).await?;
    }
    Ok((header, answer))
}

/// The answer behind its header, once that fits.
fn unpacked(said: Said, expected: &blake3::Hash, limits: &CompileLimits) -> Result<Compiled, CompilerError> {
    let header = Header::parse(&said.header).ok_or(CompilerError::Output("it is cut"))?;
    if header.engine != *expected.as_bytes() {
        return Err(CompilerError::Output("it is for another version of this program; start that again"));
    }
    let code_at = usize::try_from(header.report).unwrap_or(usize::MAX);
    let Some((report, code)) = said.answer.split_at_checked(code_at) else {
        return Err(CompilerError::Output("it is damaged"));
    };
    if header.code != code.len() as u64 || header.digest != report::digest(report, code) {
        return Err(CompilerError::Output("it is damaged"));
    }
    let Report { verdict, confinement } =
        serde_json::from_slice(report).map_err(|_| CompilerError::Output("its report cannot be read"))?;
    tell_what_is_missing(confinement);
    match verdict {
        Verdict::Compiled(facts) | Verdict::Unserved(facts) => {
            Ok(Compiled { facts: *facts, answer: said.answer, code_at })
        }
        verdict => Err(refusal(verdict, limits)),
    }
}

fn refusal(verdict: Verdict, limits: &CompileLimits) -> CompilerError {
    match verdict {
        Verdict::NotAComponent(reason) => reason.into(),
        Verdict::Structure(problem) => problem.into(),
        Verdict::NotCompiled(reason) => CompilerError::NotCompiled(clean(&reason, MOST_WORDS as usize)),
        Verdict::CodeTooLarge { size } => CodeTooLarge { size, most: limits.code }.into(),
        Verdict::Compiled(_) | Verdict::Unserved(_) => CompilerError::Output("it says two things"),
    }
}

/// Says once in a process which means of confinement the kernel lacks.
fn tell_what_is_missing(confinement: Confinement) {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if let Some(missing) = confinement.missing()
        && !TOLD.swap(true, Ordering::Relaxed)
    {
        tracing::info!(
            "this system has no {missing}: the process that examines components is bounded in memory and time, and confined less"
        );
    }
}

#[cfg(test)]
mod tests;
