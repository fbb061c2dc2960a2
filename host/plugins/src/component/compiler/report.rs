//! The protocol between the host and the compiler process. The host sends a request and the bytes of the component to
//! the compiler process. The output of the compiler process consists of a header, a report of limited size, and the
//! compiled code.

use super::confinement::Confinement;
use crate::binary::docs::Docs;
use crate::binary::imports::{self, InterfaceProblem};
use crate::binary::scan::{Interfaces, NotAComponent, scan, type_only_imports};
use crate::binary::structure::{self, StructureLimits, StructureProblem};
use crate::execution::engine::{AddressSpace, CodeOptions, Metering};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Maximum size of a child's report, in bytes.
pub(super) const MAX_REPORT: usize = 16 * 1024 * 1024;
/// Maximum size of a host's request, in bytes.
pub(super) const MAX_REQUEST: usize = 4 * 1024;
/// Size of the header in bytes: the hash of the engine, the digest of the output, and the lengths of the report and of
/// the code.
pub(super) const HEADER_BYTES: usize = 32 + 32 + 8 + 8;

/// The limits and the options for compiling one component.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Maximum processor time of the compiler process, in seconds.
    pub(super) seconds: u64,
    /// Maximum memory use of the compiler process, in bytes.
    pub(super) memory: u64,
    /// Whether the compiled code counts fuel.
    pub(super) counts_fuel: bool,
    /// Whether the compiled code is for an engine that reserves address space.
    pub(super) reserves: bool,
    /// Maximum size of the compiled code, in bytes.
    pub(super) code: u64,
    /// Limits on the structure of the component.
    pub(super) structure: StructureLimits,
}

impl Request {
    pub(super) fn code_options(&self) -> CodeOptions {
        CodeOptions {
            metering: if self.counts_fuel { Metering::Fuel } else { Metering::Off },
            space: if self.reserves { AddressSpace::Reserved } else { AddressSpace::Small },
        }
    }
}

/// The report of the compiler process about one component.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) verdict: Verdict,
    /// The parts of the confinement that were in force in the compiler process.
    pub(super) confinement: Confinement,
}

/// The result of examining and compiling the component.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Verdict {
    /// The component was compiled, and its code follows the report.
    Compiled(Box<BytesFacts>),
    /// The component was not compiled, because it imports or exports an interface that this host does not have. The
    /// host finds the interface in the facts about the component.
    #[serde(rename = "Unserved")]
    UnsupportedInterface(Box<BytesFacts>),
    NotAComponent(NotAComponent),
    Structure(StructureProblem),
    /// Cranelift or wasmtime refused the component.
    NotCompiled(String),
    CodeTooLarge {
        size: u64,
    },
}

/// The facts about a component that can be read from its bytes.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct BytesFacts {
    pub(crate) interfaces: Interfaces,
    /// Names of the imports that contain only types and therefore need no implementation.
    type_imports: BTreeSet<String>,
    pub(crate) has_async_lift: bool,
    pub(crate) docs: Docs,
}

impl BytesFacts {
    /// Checks that the structure of the component is within the limits, and then parses the component.
    pub(super) fn read(bytes: &[u8], limits: StructureLimits) -> Result<Self, Verdict> {
        structure::check(bytes, limits).map_err(|problem| match problem {
            // If the bytes are a core module or have an unknown format, the error reports this fact instead of the
            // position of the damage, because the fact is more useful.
            StructureProblem::Damaged { reason } => Verdict::NotAComponent(match scan(bytes) {
                Err(other @ (NotAComponent::CoreModule(_) | NotAComponent::Unknown { .. })) => other,
                _ => NotAComponent::Damaged { reason },
            }),
            problem => Verdict::Structure(problem),
        })?;
        let scan = scan(bytes).map_err(Verdict::NotAComponent)?;
        let is_known = imports::check(scan.imports.iter().map(String::as_str)).is_ok();
        // Finding the imports that contain only types is expensive, so it is done only for components with unknown
        // imports.
        let type_imports = if is_known { BTreeSet::new() } else { type_only_imports(bytes, &scan.imports) };
        let interfaces = Interfaces { imports: scan.imports, exports: scan.exports };
        Ok(Self { interfaces, type_imports, has_async_lift: scan.has_async_lift, docs: Docs::read(bytes) })
    }

    /// The names of the imports that need an implementation.
    pub(crate) fn needed_imports(&self) -> Vec<String> {
        let needed = self.interfaces.imports.iter().filter(|name| !self.type_imports.contains(*name));
        needed.cloned().collect()
    }

    /// Checks that this host implements every import that needs an implementation, and that it supports every export of
    /// the contract. Returns the exported plugin kinds.
    pub(crate) fn check(&self) -> Result<Vec<crate::identity::Kind>, InterfaceProblem> {
        imports::check(self.needed_imports().iter().map(String::as_str))?;
        imports::kinds(self.interfaces.exports.iter().map(String::as_str))
    }
}

/// The header of a child's output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) engine: [u8; 32],
    pub(super) digest: [u8; 32],
    pub(super) report: u64,
    pub(super) code: u64,
}

impl Header {
    pub(super) fn of(engine: &blake3::Hash, report: &[u8], code: &[u8]) -> Self {
        Self {
            engine: *engine.as_bytes(),
            digest: digest(report, code),
            report: report.len() as u64,
            code: code.len() as u64,
        }
    }

    pub(super) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend(self.engine);
        bytes.extend(self.digest);
        bytes.extend(self.report.to_le_bytes());
        bytes.extend(self.code.to_le_bytes());
        bytes
    }

    /// Parses the header of a child's output. Returns None if `bytes` is shorter than a header.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (engine, rest) = bytes.split_first_chunk()?;
        let (digest, rest) = rest.split_first_chunk()?;
        let (report, rest) = rest.split_first_chunk()?;
        let (code, _) = rest.split_first_chunk()?;
        let (report, code) = (u64::from_le_bytes(*report), u64::from_le_bytes(*code));
        Some(Self { engine: *engine, digest: *digest, report, code })
    }
}

/// The digest of the report and the code. The header contains the lengths of the report and of the code.
pub(super) fn digest(report: &[u8], code: &[u8]) -> [u8; 32] {
    *blake3::Hasher::new().update(report).update(code).finalize().as_bytes()
}
