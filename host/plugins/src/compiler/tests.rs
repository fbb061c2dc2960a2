//! What the host accepts from the examining child, and what it refuses (P15, row 37).

use super::*;
use wasmtime::Engine;

const PLAIN: Build = Build { metering: Metering::Off, space: AddressSpace::Reserved };

fn engine() -> Engine {
    engine::engine(HostLimits::default(), PLAIN).expect("an engine")
}

fn limits(bytes: usize) -> CompileLimits {
    CompileLimits::new(&HostLimits::default(), bytes)
}

/// What a child says that ends well.
fn said(engine: &blake3::Hash, report: &[u8], code: &[u8]) -> Said {
    let header = Header::of(engine, report, code).to_bytes();
    Said { status: ExitStatus::default(), header, answer: [report, code].concat(), words: Vec::new() }
}

fn report() -> Vec<u8> {
    let report = Report { verdict: Verdict::Compiled(Box::default()), confinement: Confinement::default() };
    serde_json::to_vec(&report).expect("JSON")
}

// Row 11: a small bomb ends at 20 s, and the largest component has 84 s.
#[test]
fn large_components_have_more_time() {
    let time = Duration::from_secs(20);
    assert_eq!(time_for(time, 0), time);
    assert_eq!(time_for(time, 32 * MIB), Duration::from_secs(84));
}

// Row 37: code is bounded by its component and by itself; small components have room for what every component has.
#[test]
fn code_is_bounded_by_its_component() {
    let most = |bytes| limits(bytes).code;
    assert_eq!(most(0), LEAST_CODE);
    assert_eq!(most(MIB), 64 * MIB as u64);
    assert_eq!(most(32 * MIB), 512 * MIB as u64);
    assert!(limits(0).check_code(LEAST_CODE).is_ok() && limits(0).check_code(LEAST_CODE + 1).is_err());
}

// Row 37: all that compile at once have bounded memory, and the largest component has what it needs.
#[test]
fn memory_grows_with_the_component() {
    assert_eq!(limits(0).memory_mib(), 512);
    assert_eq!(limits(10 * MIB).memory_mib(), 992);
    assert_eq!(limits(256 * MIB).memory_mib(), 2_048);
}

// P9: what comes out of the pipe is whole and for this engine, or not used.
#[test]
fn output_is_verified() {
    let hash = engine::compatibility_hash(&engine());
    let (report, limits) = (report(), limits(0));
    assert_eq!(unpacked(said(&hash, &report, b"code"), &hash, &limits).expect("whole").code(), b"code");
    for place in 0..HEADER_BYTES {
        let mut damaged = said(&hash, &report, b"code");
        damaged.header[place] ^= 1;
        assert!(matches!(unpacked(damaged, &hash, &limits), Err(CompilerError::Output(_))), "{place}");
    }
    for length in [0, report.len() - 1, report.len(), report.len() + 3] {
        let mut cut = said(&hash, &report, b"code");
        cut.answer.truncate(length);
        assert!(matches!(unpacked(cut, &hash, &limits), Err(CompilerError::Output(_))), "{length}");
    }
    for length in [0, HEADER_BYTES - 1] {
        let mut cut = said(&hash, &report, b"code");
        cut.header.truncate(length);
        assert!(matches!(unpacked(cut, &hash, &limits), Err(CompilerError::Output(_))), "{length}");
    }
    let nonsense = said(&hash, b"{}", b"code");
    assert!(matches!(unpacked(nonsense, &hash, &limits), Err(CompilerError::Output(_))));
}

// P9: compiled for one instance is compiled for as many as the host has.
#[test]
fn the_number_of_instances_makes_no_other_code() {
    let small = engine::engine_of(1, HostLimits::default(), PLAIN).expect("an engine");
    assert_eq!(engine::compatibility_hash(&small), engine::compatibility_hash(&engine()));
}

// P9: code that counts fuel is no code for an engine that does not, and is elsewhere in the cache.
#[test]
fn counting_fuel_makes_other_code() {
    let metered =
        engine::engine(HostLimits::default(), Build { metering: Metering::Fuel, ..PLAIN }).expect("an engine");
    assert_ne!(engine::compatibility_hash(&metered), engine::compatibility_hash(&engine()));
    let unreserved =
        engine::engine(HostLimits::default(), Build { space: AddressSpace::Small, ..PLAIN }).expect("an engine");
    assert_ne!(engine::compatibility_hash(&unreserved), engine::compatibility_hash(&engine()));
}

// Row 36: a signal that a component caused puts it in quarantine; one that ends groups of processes does not.
#[cfg(unix)]
#[test]
fn who_ended_the_child_is_told_apart() {
    use std::os::unix::process::ExitStatusExt;
    let stopped = |signal| CompilerError::Stopped { status: ExitStatus::from_raw(signal), memory: MIB };
    for signal in [4, 6, 9, 11, 31] {
        assert!(stopped(signal).is_the_components_fault(), "{signal}");
    }
    for signal in [1, 2, 3, 13, 15] {
        assert!(!stopped(signal).is_the_components_fault(), "{signal}");
    }
    assert!(CompilerError::Time(CompileTime::Processor(Duration::ZERO)).is_the_components_fault());
    assert!(!CompilerError::Time(CompileTime::Clock(Duration::ZERO)).is_the_components_fault());
}
