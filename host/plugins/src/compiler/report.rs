//! What the host asks the examining child, and what the child answers: a document of known shape and bounded size, and the
//! compiled code behind it.

use super::confinement::Confinement;
use crate::engine::{AddressSpace, Build, Metering};
use crate::imports::{self, InterfaceProblem};
use crate::plain::Docs;
use crate::scan::{Interfaces, NotAComponent, imports_of_types, scan};
use crate::structure::{self, StructureLimits, StructureProblem};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// Largest document of a child.
pub(super) const MOST_REPORT: usize = 16 * 1024 * 1024;
/// Largest request of a host.
pub(super) const MOST_REQUEST: usize = 4 * 1024;
/// Before an answer: what its code was compiled for, the digest of the rest, and both lengths.
pub(super) const HEADER_BYTES: usize = 32 + 32 + 8 + 8;

/// The bounds of one examination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Request {
    /// Seconds of processor time.
    pub(super) seconds: u64,
    /// Bytes of memory.
    pub(super) memory: u64,
    /// Whether the code counts fuel.
    pub(super) counts_fuel: bool,
    /// Whether the code is for an engine that reserves address space.
    pub(super) reserves: bool,
    /// Bytes of compiled code.
    pub(super) code: u64,
    /// Of the component's structure.
    pub(super) structure: StructureLimits,
}

impl Request {
    pub(super) fn build(&self) -> Build {
        Build {
            metering: if self.counts_fuel { Metering::Fuel } else { Metering::Off },
            space: if self.reserves { AddressSpace::Reserved } else { AddressSpace::Small },
        }
    }
}

/// The child's document.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Report {
    pub(super) verdict: Verdict,
    /// What the kernel kept the child from.
    pub(super) confinement: Confinement,
}

/// What became of the component.
#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Verdict {
    /// It is a component, and its code follows.
    Compiled(Box<BytesFacts>),
    /// It was not compiled, because it imports or exports interfaces that this host does not have. The host finds out which.
    Unserved(Box<BytesFacts>),
    NotAComponent(NotAComponent),
    Structure(StructureProblem),
    /// The engine's compiler refused it.
    NotCompiled(String),
    CodeTooLarge {
        size: u64,
    },
}

/// What a component's bytes say.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct BytesFacts {
    pub(crate) interfaces: Interfaces,
    /// Imports that bring nothing but names for types, so that nobody needs to implement them.
    type_imports: BTreeSet<String>,
    pub(crate) has_async_lift: bool,
    pub(crate) docs: Docs,
}

impl BytesFacts {
    /// Bounds the bytes' structure, and only then parses them.
    pub(super) fn read(bytes: &[u8], limits: StructureLimits) -> Result<Self, Verdict> {
        structure::check(bytes, limits).map_err(|problem| match problem {
            // What the bytes are instead of a component says more than where they are damaged.
            StructureProblem::Damaged { reason } => Verdict::NotAComponent(match scan(bytes) {
                Err(other @ (NotAComponent::CoreModule(_) | NotAComponent::Unknown { .. })) => other,
                _ => NotAComponent::Damaged { reason },
            }),
            problem => Verdict::Structure(problem),
        })?;
        let scan = scan(bytes).map_err(Verdict::NotAComponent)?;
        let is_known = imports::check(scan.imports.iter().map(String::as_str)).is_ok();
        // Looking closer costs more, and is for the few whose imports have names that are not known here.
        let type_imports = if is_known { BTreeSet::new() } else { imports_of_types(bytes, &scan.imports) };
        let interfaces = Interfaces { imports: scan.imports, exports: scan.exports };
        Ok(Self { interfaces, type_imports, has_async_lift: scan.has_async_lift, docs: Docs::read(bytes) })
    }

    /// The imports that need an implementation.
    pub(crate) fn needed_imports(&self) -> Vec<String> {
        let needed = self.interfaces.imports.iter().filter(|name| !self.type_imports.contains(*name));
        needed.cloned().collect()
    }

    /// Whether this host has what it imports, and knows what it exports.
    pub(crate) fn check(&self) -> Result<Vec<crate::identity::Kind>, InterfaceProblem> {
        imports::check(self.needed_imports().iter().map(String::as_str))?;
        imports::kinds(self.interfaces.exports.iter().map(String::as_str))
    }
}

/// The beginning of an answer.
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

    /// None: the bytes are too few.
    pub(super) fn parse(bytes: &[u8]) -> Option<Self> {
        let (engine, rest) = bytes.split_first_chunk()?;
        let (digest, rest) = rest.split_first_chunk()?;
        let (report, rest) = rest.split_first_chunk()?;
        let (code, _) = rest.split_first_chunk()?;
        let (report, code) = (u64::from_le_bytes(*report), u64::from_le_bytes(*code));
        Some(Self { engine: *engine, digest: *digest, report, code })
    }
}

/// Over both parts of an answer; the header says where one ends.
pub(super) fn digest(report: &[u8], code: &[u8]) -> [u8; 32] {
    *blake3::Hasher::new().update(report).update(code).finalize().as_bytes()
}
