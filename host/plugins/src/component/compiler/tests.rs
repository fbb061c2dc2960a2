//! Tests of the limits on the compiler process and of the checks on its output (P15, row 37).

use super::*;
use wasmtime::Engine;

const DEFAULT_OPTIONS: CodeOptions = CodeOptions { metering: Metering::Off, space: AddressSpace::Reserved };

fn engine() -> Engine {
    engine::engine(HostLimits::default(), DEFAULT_OPTIONS).expect("an engine")
}

fn limits(bytes: usize) -> CompileLimits {
    CompileLimits::new(&HostLimits::default(), bytes)
}

/// The output of a compiler process that has compiled a component.
fn output(engine: &blake3::Hash, report: &[u8], code: &[u8]) -> ChildOutput {
    let header = Header::of(engine, report, code).to_bytes();
    ChildOutput { status: ExitStatus::default(), header, output_bytes: [report, code].concat(), errors: Vec::new() }
}

fn report() -> Vec<u8> {
    let report = Report { verdict: Verdict::Compiled(Box::default()), confinement: Confinement::default() };
    serde_json::to_vec(&report).expect("JSON")
}

// Row 11: the time limit for compiling is 20 s for a small component and 84 s for the largest component.
#[test]
fn row_11_time_limit_grows_with_the_component() {
    let time = Duration::from_secs(20);
    assert_eq!(time_for(time, 0), time);
    assert_eq!(time_for(time, 32 * MIB), Duration::from_secs(84));
}

// Row 37: the limit on the size of compiled code has a minimum for small components and a maximum for large components.
#[test]
fn row_37_code_limit_grows_with_the_component() {
    let limit = |bytes| limits(bytes).code;
    assert_eq!(limit(0), MIN_CODE);
    assert_eq!(limit(MIB), 64 * MIB as u64);
    assert_eq!(limit(32 * MIB), 512 * MIB as u64);
    assert!(limits(0).check_code(MIN_CODE).is_ok() && limits(0).check_code(MIN_CODE + 1).is_err());
}

// Row 37: the memory limit for compiling one component has a maximum.
#[test]
fn row_37_memory_limit_grows_with_the_component() {
    assert_eq!(limits(0).memory_mib(), 512);
    assert_eq!(limits(10 * MIB).memory_mib(), 992);
    assert_eq!(limits(256 * MIB).memory_mib(), 2_048);
}

// P9: the output of a compiler process is used only if it is complete and was created for this engine.
#[test]
fn p9_damaged_or_incomplete_output_is_refused() {
    let hash = engine::compatibility_hash(&engine());
    let (report, limits) = (report(), limits(0));
    assert_eq!(parse_output(output(&hash, &report, b"code"), &hash, &limits).expect("complete").code(), b"code");
    for index in 0..HEADER_BYTES {
        let mut damaged = output(&hash, &report, b"code");
        damaged.header[index] ^= 1;
        assert!(matches!(parse_output(damaged, &hash, &limits), Err(CompilerError::Output(_))), "{index}");
    }
    for length in [0, report.len() - 1, report.len(), report.len() + 3] {
        let mut cut = output(&hash, &report, b"code");
        cut.output_bytes.truncate(length);
        assert!(matches!(parse_output(cut, &hash, &limits), Err(CompilerError::Output(_))), "{length}");
    }
    for length in [0, HEADER_BYTES - 1] {
        let mut cut = output(&hash, &report, b"code");
        cut.header.truncate(length);
        assert!(matches!(parse_output(cut, &hash, &limits), Err(CompilerError::Output(_))), "{length}");
    }
    let nonsense = output(&hash, b"{}", b"code");
    assert!(matches!(parse_output(nonsense, &hash, &limits), Err(CompilerError::Output(_))));
}

// P9: code that was compiled by an engine with one instance slot is valid for an engine with many instance slots.
#[test]
fn p9_compatibility_hash_does_not_depend_on_the_number_of_slots() {
    let small = engine::engine_with_slots(1, HostLimits::default(), DEFAULT_OPTIONS).expect("an engine");
    assert_eq!(engine::compatibility_hash(&small), engine::compatibility_hash(&engine()));
}

// P9: code that counts fuel is not valid for an engine without metering, so each of the two engines has its own
// directory in the cache.
#[test]
fn p9_compatibility_hash_depends_on_metering_and_address_space() {
    let metered = engine::engine(HostLimits::default(), CodeOptions { metering: Metering::Fuel, ..DEFAULT_OPTIONS })
        .expect("an engine");
    assert_ne!(engine::compatibility_hash(&metered), engine::compatibility_hash(&engine()));
    let unreserved =
        engine::engine(HostLimits::default(), CodeOptions { space: AddressSpace::Small, ..DEFAULT_OPTIONS })
            .expect("an engine");
    assert_ne!(engine::compatibility_hash(&unreserved), engine::compatibility_hash(&engine()));
}

// Row 36: a component is put in quarantine if it caused the signal that ended the compiler process, and not if the
// signal was sent to a process group.
#[cfg(unix)]
#[test]
fn row_36_only_signals_caused_by_the_component_lead_to_quarantine() {
    use std::os::unix::process::ExitStatusExt;
    let stopped = |signal| CompilerError::Stopped { status: ExitStatus::from_raw(signal), memory: MIB };
    for signal in [4, 6, 9, 11, 31] {
        assert!(stopped(signal).is_caused_by_component(), "{signal}");
    }
    for signal in [1, 2, 3, 13, 15] {
        assert!(!stopped(signal).is_caused_by_component(), "{signal}");
    }
    assert!(CompilerError::Time(CompileTimeout::Processor(Duration::ZERO)).is_caused_by_component());
    assert!(!CompilerError::Time(CompileTimeout::Clock(Duration::ZERO)).is_caused_by_component());
}
