//! Compiling in a child process of the same program, so that a component that is made to be expensive can take neither the
//! host's memory nor its processors (P9, row 11). The child has limits of its own and the lowest claim to the processors.

use crate::engine::{self, Metering};
use crate::limits::{COMPILER_MEMORY, HostLimits, MIB};
use crate::room::Room;
use std::ffi::OsString;
use std::io::{self, Read, Write};
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, Command};

/// Before the compiled code: what it was compiled for, its digest, its length.
const HEADER_BYTES: usize = 32 + 32 + 8;
/// Compiled code of one component: what 32 MiB of component come to, several times over.
const MOST_CODE: u64 = 1024 * MIB as u64;
/// What is kept of the child's words.
const MOST_WORDS: u64 = 4 * 1024;
/// What the child is told where fuel is counted.
const COUNTING: [u8; 1] = [1];
/// How often its time may pass by the clock: on a machine that is busy with other things, it gets little of it.
const PATIENCE: u32 = 10;
/// A component of so many bytes may take its time twice: honest ones take the longer the larger they are.
const SIZE_OF_ONE_TIME: u64 = 10 * MIB as u64;
/// How little the child asks of the processors, from 0 to 19: beside one that asks usually, a third of its share.
#[cfg(unix)]
const NICENESS: i32 = 5;

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
    /// The compiler's own words.
    #[error("{0}")]
    Refused(String),
    /// It has used up its time.
    #[error(transparent)]
    Time(#[from] CompileTime),
    /// It was stopped by its limits, or by somebody.
    #[error("its compiler was stopped ({status}); it may use {} MiB", COMPILER_MEMORY / MIB)]
    Stopped { status: String },
    /// It is another program by now, or what it wrote is damaged.
    #[error("its compiler's output is not usable: {0}")]
    Output(&'static str),
    /// It could not be started or spoken to.
    #[error("its compiler cannot be used: {0}")]
    Process(#[from] io::Error),
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

/// What compiling a component of so many bytes may take, where a small one may take `time`.
pub(crate) fn time_for(time: Duration, bytes: usize) -> Duration {
    let more = time.as_millis() * bytes as u128 / u128::from(SIZE_OF_ONE_TIME);
    time + Duration::from_millis(u64::try_from(more).unwrap_or(u64::MAX))
}

/// The child's side: reads its seconds of processor time, whether fuel is counted, and a component from `input` until its
/// end, and writes the compiled code to `output`. The limits of memory and time are the process's own from here on. The error is for people.
pub fn serve_compiler(mut input: impl Read, mut output: impl Write) -> Result<(), String> {
    let mut seconds = [0; 8];
    input.read_exact(&mut seconds).map_err(|error| format!("the limits cannot be read: {error}"))?;
    let mut metering = [0; 1];
    input.read_exact(&mut metering).map_err(|error| format!("the limits cannot be read: {error}"))?;
    let metering = if metering == COUNTING { Metering::Fuel } else { Metering::Off };
    limit_this_process(u64::from_le_bytes(seconds));
    let engine = engine::engine_of(1, HostLimits::default(), metering)
        .map_err(|error| format!("the compiler cannot start: {error:#}"))?;
    let mut component = Vec::new();
    input.read_to_end(&mut component).map_err(|error| format!("the component cannot be read: {error}"))?;
    let code = engine.precompile_component(&component).map_err(|error| format!("{error:#}"))?;
    let mut write = |bytes: &[u8]| output.write_all(bytes).map_err(|error| format!("nobody takes the code: {error}"));
    write(engine::compatibility_hash(&engine).as_bytes())?;
    write(blake3::hash(&code).as_bytes())?;
    write(&(code.len() as u64).to_le_bytes())?;
    write(&code)?;
    output.flush().map_err(|error| format!("nobody takes the code: {error}"))
}

/// The host's side: compiled code, whole and for this engine. Dropping the future ends the child. What counts is the
/// processors' `time`, all its threads together: it stands behind everybody else, so that the clock says little. The clock
/// ends it only after a multiple of that.
pub(crate) async fn compile(
    command: &CompilerCommand,
    room: &Room,
    component: &[u8],
    time: Duration,
) -> Result<Vec<u8>, CompilerError> {
    let compiling = compile_in_child(command, room, component, time);
    let longest = time * PATIENCE;
    tokio::time::timeout(longest, compiling).await.unwrap_or(Err(CompileTime::Clock(longest).into()))
}

async fn compile_in_child(
    command: &CompilerCommand,
    room: &Room,
    component: &[u8],
    time: Duration,
) -> Result<Vec<u8>, CompilerError> {
    let mut child = Command::new(&command.program)
        .args(&command.arguments)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()?;
    let seconds = time.as_millis().div_ceil(1_000) as u64;
    let (status, code, words) = talk(&mut child, (seconds, room.metering), component).await?;
    let words = String::from_utf8_lossy(&words).trim().to_owned();
    match status.code() {
        Some(0) => unpacked(code, engine::compatibility_hash(&room.engine)),
        Some(1) if !words.is_empty() => Err(CompilerError::Refused(words)),
        _ if is_out_of_time(status) => Err(CompileTime::Processor(time).into()),
        _ => Err(CompilerError::Stopped { status: status.to_string() }),
    }
}

type Said = (ExitStatus, Vec<u8>, Vec<u8>);

#[cfg(unix)]
fn is_out_of_time(status: ExitStatus) -> bool {
    use std::os::unix::process::ExitStatusExt;
    status.signal() == Some(rustix::process::Signal::XCPU.as_raw())
}

#[cfg(not(unix))]
fn is_out_of_time(_: ExitStatus) -> bool {
    false
}

async fn talk(child: &mut Child, (seconds, metering): (u64, Metering), component: &[u8]) -> io::Result<Said> {
    let no_pipe = || io::Error::other("it has no pipes");
    let mut input = child.stdin.take().ok_or_else(no_pipe)?;
    let output = child.stdout.take().ok_or_else(no_pipe)?;
    let errors = child.stderr.take().ok_or_else(no_pipe)?;
    let (mut code, mut words) = (Vec::new(), Vec::new());
    let give = async move {
        // One that ends before it has read everything says why, which counts more than the broken pipe.
        let mut begin = seconds.to_le_bytes().to_vec();
        begin.extend(if metering == Metering::Fuel { COUNTING } else { [0] });
        let given = input.write_all(&begin).await;
        if given.is_ok() {
            let _ = input.write_all(component).await;
        }
        drop(input);
    };
    let take = async {
        let mut output = output.take(MOST_CODE + HEADER_BYTES as u64);
        output.read_to_end(&mut code).await
    };
    let listen = async {
        let mut errors = errors;
        (&mut errors).take(MOST_WORDS).read_to_end(&mut words).await?;
        // The rest is read so that the child is not held up, and forgotten.
        tokio::io::copy(&mut errors, &mut tokio::io::sink()).await
    };
    let (_, taken, said) = tokio::join!(give, take, listen);
    taken?;
    said?;
    Ok((child.wait().await?, code, words))
}

/// The code behind its header, once that fits.
fn unpacked(mut bytes: Vec<u8>, expected: blake3::Hash) -> Result<Vec<u8>, CompilerError> {
    if bytes.len() < HEADER_BYTES {
        return Err(CompilerError::Output("it is cut"));
    }
    let code = bytes.split_off(HEADER_BYTES);
    let (made_for, rest) = bytes.split_at(32);
    let (digest, length) = rest.split_at(32);
    if made_for != expected.as_bytes() {
        return Err(CompilerError::Output("it is for another version of this program; start that again"));
    }
    let is_whole = length == (code.len() as u64).to_le_bytes() && digest == blake3::hash(&code).as_bytes();
    if is_whole { Ok(code) } else { Err(CompilerError::Output("it is damaged")) }
}

/// Bounds of the child: its memory, its processor time and its priority. A system that has none of them still has the
/// host's clock.
#[cfg(unix)]
fn limit_this_process(seconds: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, nice, setrlimit};
    // One that somebody has set lower stays. Behind the first bound is a last one, in seconds or bytes.
    let limit = |resource: Resource, bound: u64| {
        let bound = getrlimit(resource).current.map_or(bound, |set| set.min(bound));
        let _ = setrlimit(resource, Rlimit { current: Some(bound), maximum: Some(bound + 1) });
    };
    // Not the address space: the engine reserves far more of that than it ever uses.
    limit(Resource::Data, COMPILER_MEMORY as u64);
    limit(Resource::Cpu, seconds.max(1));
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    let _ = nice(NICENESS);
}

#[cfg(not(unix))]
fn limit_this_process(_: u64) {}

#[cfg(test)]
mod tests {
    use super::*;
    use wasmtime::Engine;

    // Row 11: a small bomb ends at 20 s, and the largest component has 84 s.
    #[test]
    fn large_components_have_more_time() {
        let time = Duration::from_secs(20);
        assert_eq!(time_for(time, 0), time);
        assert_eq!(time_for(time, 32 * MIB), Duration::from_secs(84));
    }

    fn engine() -> Engine {
        engine::engine(HostLimits::default(), Metering::Off).expect("an engine")
    }

    fn packed(code: &[u8]) -> Vec<u8> {
        let mut bytes = engine::compatibility_hash(&engine()).as_bytes().to_vec();
        bytes.extend(blake3::hash(code).as_bytes());
        bytes.extend((code.len() as u64).to_le_bytes());
        bytes.extend(code);
        bytes
    }

    // P9: what comes out of the pipe is whole and for this engine, or not used.
    #[test]
    fn output_is_verified() {
        let hash = engine::compatibility_hash(&engine());
        assert_eq!(unpacked(packed(b"code"), hash).expect("whole"), b"code");
        for place in [0, 40, 64, HEADER_BYTES] {
            let mut bytes = packed(b"code");
            bytes[place] ^= 1;
            assert!(matches!(unpacked(bytes, hash), Err(CompilerError::Output(_))), "{place}");
        }
        for length in [0, HEADER_BYTES - 1, HEADER_BYTES + 3] {
            let bytes = packed(b"code")[..length].to_vec();
            assert!(matches!(unpacked(bytes, hash), Err(CompilerError::Output(_))), "{length}");
        }
    }

    // P9: compiled for one instance is compiled for as many as the host has.
    #[test]
    fn the_number_of_instances_makes_no_other_code() {
        let small = engine::engine_of(1, HostLimits::default(), Metering::Off).expect("an engine");
        assert_eq!(engine::compatibility_hash(&small), engine::compatibility_hash(&engine()));
    }

    // P9: code that counts fuel is no code for an engine that does not, and stands elsewhere in the cache.
    #[test]
    fn counting_fuel_makes_other_code() {
        let metered = engine::engine(HostLimits::default(), Metering::Fuel).expect("an engine");
        assert_ne!(engine::compatibility_hash(&metered), engine::compatibility_hash(&engine()));
    }
}
