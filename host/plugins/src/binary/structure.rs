//! Checks the structure of a component before a recursive parser reads the component (row 36). The check limits the
//! nesting of components and types, and the number of types, imports and exports. The check uses an explicit stack and
//! never recurses.

use crate::limits::HostLimits;
use serde::{Deserialize, Serialize};
use std::ops::Range;
use wasmparser::{
    BinaryReader, BinaryReaderError, ComponentAlias, ComponentExternName, ComponentImport, ComponentType,
    ComponentTypeRef, CoreType, FromReader, Parser, Payload, RecGroup, SectionLimited,
};

/// Limits on a component's structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StructureLimits {
    /// Maximum nesting depth of components, modules and types.
    pub(crate) nesting: usize,
    /// Maximum number of types. Types inside nested components, modules and other types also count.
    pub(crate) types: usize,
    /// Maximum number of imports of each component, component type and instance type. The same maximum applies to the
    /// number of exports.
    pub(crate) interfaces: usize,
}

impl HostLimits {
    /// The limits on the structure of a component, taken from these host limits.
    pub(crate) fn structure(&self) -> StructureLimits {
        StructureLimits {
            nesting: self.component_nesting,
            types: self.component_types,
            interfaces: self.component_interfaces,
        }
    }
}

/// Maximum total size of the names of all outermost imports and exports, in bytes.
const NAME_BYTES: usize = 1024 * 1024;
/// Maximum number of imports of one core module, and maximum number of its exports. The limit is large, because modules
/// that share a library link thousands of symbols.
const CORE_INTERFACES: usize = 100_000;

/// The reason why a component is refused before it is parsed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Serialize, Deserialize)]
pub enum StructureProblem {
    /// Components, modules or types are nested too deeply.
    #[error(
        "its components and types are nested more than {most} levels deep (`component_nesting` under [host.limits])"
    )]
    Nesting {
        /// The value of the exceeded limit.
        most: usize,
    },
    /// The component contains too many types.
    #[error("it has more than {most} types (`component_types` under [host.limits])")]
    Types {
        /// The value of the exceeded limit.
        most: usize,
    },
    /// A component, component type or instance type has too many imports or exports.
    #[error("it has more than {most} {what} at one level (`component_interfaces` under [host.limits])")]
    Interfaces {
        /// `imports` if there are too many imports, `exports` if there are too many exports.
        what: String,
        /// The value of the exceeded limit.
        most: usize,
    },
    /// A core module has too many imports or exports.
    #[error("one of its core modules has more than {most} {what}")]
    CoreInterfaces {
        /// `imports` if there are too many imports, `exports` if there are too many exports.
        what: String,
        /// The value of the exceeded limit.
        most: usize,
    },
    /// The names of the component's imports and exports are too long.
    #[error("the names of its imports and exports have more than {most} bytes in total")]
    Names {
        /// The value of the exceeded limit.
        most: usize,
    },
    /// The file violates the binary format.
    #[error("it is damaged: {reason}")]
    Damaged {
        /// Describes the problem and the byte offset at which the problem was found.
        reason: String,
    },
}

impl From<BinaryReaderError> for StructureProblem {
    fn from(error: BinaryReaderError) -> Self {
        Self::Damaged { reason: format!("{} at byte {}", error.message(), error.offset()) }
    }
}

/// Checks the structure of a component or a core module. If the check succeeds, parsers that recurse cannot overflow
/// the stack when they read the bytes.
pub(crate) fn check(bytes: &[u8], limits: StructureLimits) -> Result<(), StructureProblem> {
    let mut walk = StructureWalk { bytes, limits, types: 0, name_bytes: 0, levels: vec![Level::default()] };
    for payload in Parser::new(0).parse_all(bytes) {
        walk.payload(payload?)?;
    }
    Ok(())
}

/// The number of imports and the number of exports that were read so far in one component or module.
#[derive(Default)]
struct Level {
    imports: usize,
    exports: usize,
}

struct StructureWalk<'b> {
    bytes: &'b [u8],
    limits: StructureLimits,
    types: usize,
    name_bytes: usize,
    levels: Vec<Level>,
}

/// A list that is being read: the items of a type section, or the declarations in a component type or instance type.
struct Declarations {
    kind: ListKind,
    /// Number of items of the list that have not been read yet.
    remaining: u32,
    imports: usize,
    exports: usize,
}

impl Declarations {
    fn new(kind: ListKind, remaining: u32) -> Self {
        Self { kind, remaining, imports: 0, exports: 0 }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum ListKind {
    /// The items of a type section.
    Section,
    ComponentType,
    InstanceType,
}

impl StructureWalk<'_> {
    fn payload(&mut self, payload: Payload<'_>) -> Result<(), StructureProblem> {
        match payload {
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => {
                self.levels.push(Level::default());
                self.check_nesting(0)
            }
            Payload::End(_) => {
                if self.levels.len() > 1 {
                    self.levels.pop();
                }
                Ok(())
            }
            Payload::ComponentTypeSection(section) => self.component_types(section.range()),
            Payload::CoreTypeSection(section) => self.core_types(section),
            Payload::TypeSection(section) => self.rec_groups(section),
            Payload::ComponentImportSection(section) => {
                self.count_imports(section.count())?;
                self.names(section, |import: &ComponentImport<'_>| import.name.name.len())
            }
            Payload::ComponentExportSection(section) => {
                self.count_exports(section.count())?;
                self.names(section, |export: &wasmparser::ComponentExport<'_>| export.name.name.len())
            }
            Payload::ImportSection(section) => check_core("imports", section.count()),
            Payload::ExportSection(section) => check_core("exports", section.count()),
            _ => Ok(()),
        }
    }

    /// Fails if the current item is nested more deeply than the limit allows. `types` is the nesting depth of the
    /// current type inside the innermost component.
    fn check_nesting(&self, types: usize) -> Result<(), StructureProblem> {
        let most = self.limits.nesting;
        // The outermost component and the list of all items in a type section do not add to the nesting depth.
        if self.levels.len() - 1 + types > most { Err(StructureProblem::Nesting { most }) } else { Ok(()) }
    }

    fn count_types(&mut self, more: usize) -> Result<(), StructureProblem> {
        self.types = self.types.saturating_add(more);
        let most = self.limits.types;
        if self.types > most { Err(StructureProblem::Types { most }) } else { Ok(()) }
    }

    fn count_imports(&mut self, more: u32) -> Result<(), StructureProblem> {
        let most = self.limits.interfaces;
        let level = self.levels.last_mut().expect("the outermost level is never popped");
        level.imports = level.imports.saturating_add(more as usize);
        check_interfaces("imports", level.imports, most)
    }

    fn count_exports(&mut self, more: u32) -> Result<(), StructureProblem> {
        let most = self.limits.interfaces;
        let level = self.levels.last_mut().expect("the outermost level is never popped");
        level.exports = level.exports.saturating_add(more as usize);
        check_interfaces("exports", level.exports, most)
    }

    /// Checks the total size of the names at the outermost level, because the host process reads these names.
    fn names<'a, T: FromReader<'a>>(
        &mut self,
        section: SectionLimited<'a, T>,
        length: impl Fn(&T) -> usize,
    ) -> Result<(), StructureProblem> {
        if self.levels.len() > 1 {
            return Ok(());
        }
        for item in section {
            self.name_bytes = self.name_bytes.saturating_add(length(&item?));
            if self.name_bytes > NAME_BYTES {
                return Err(StructureProblem::Names { most: NAME_BYTES });
            }
        }
        Ok(())
    }

    fn core_types(&mut self, section: SectionLimited<'_, CoreType<'_>>) -> Result<(), StructureProblem> {
        self.count_types(section.count() as usize)?;
        for core in section {
            match core? {
                CoreType::Module(declarations) => self.count_types(declarations.len())?,
                CoreType::Rec(group) => self.count_types(group.types().len())?,
            }
        }
        Ok(())
    }

    fn rec_groups(&mut self, section: SectionLimited<'_, RecGroup>) -> Result<(), StructureProblem> {
        self.count_types(section.count() as usize)?;
        for group in section {
            let group = group?;
            self.count_types(group.types().len().saturating_sub(1))?;
        }
        Ok(())
    }

    /// Reads the items of a type section. Uses an explicit stack instead of recursion, because the types of a
    /// component can be nested to any depth.
    fn component_types(&mut self, section: Range<usize>) -> Result<(), StructureProblem> {
        let mut reader = BinaryReader::new(&self.bytes[section.clone()], section.start);
        let mut open = vec![Declarations::new(ListKind::Section, reader.read_var_u32()?)];
        while let Some(innermost) = open.last_mut() {
            let Some(remaining) = innermost.remaining.checked_sub(1) else {
                open.pop();
                continue;
            };
            innermost.remaining = remaining;
            let nested = match innermost.kind {
                ListKind::Section => self.component_type(&mut reader)?,
                ListKind::ComponentType | ListKind::InstanceType => self.declaration(&mut reader, innermost)?,
            };
            if let Some(nested) = nested {
                open.push(nested);
                self.check_nesting(open.len() - 1)?;
            }
        }
        Ok(())
    }

    /// Reads one type of a type section or of a declaration. If the type is a component or instance type, reads only
    /// its start and returns the list of declarations that follow.
    fn component_type(&mut self, reader: &mut BinaryReader<'_>) -> Result<Option<Declarations>, StructureProblem> {
        self.count_types(1)?;
        let kind = match reader.clone().read_u8()? {
            0x41 => ListKind::ComponentType,
            0x42 => ListKind::InstanceType,
            _ => {
                // Types of all other forms refer to their inner types by index, so reading them does not recurse.
                reader.read::<ComponentType<'_>>()?;
                return Ok(None);
            }
        };
        reader.read_u8()?;
        Ok(Some(Declarations::new(kind, reader.read_var_u32()?)))
    }

    fn declaration(
        &mut self,
        reader: &mut BinaryReader<'_>,
        list: &mut Declarations,
    ) -> Result<Option<Declarations>, StructureProblem> {
        let most = self.limits.interfaces;
        let position = reader.original_position();
        match reader.read_u8()? {
            0x00 => {
                let declared = match reader.read::<CoreType<'_>>()? {
                    CoreType::Module(declarations) => declarations.len() + 1,
                    CoreType::Rec(group) => group.types().len(),
                };
                self.count_types(declared)?;
            }
            0x01 => return self.component_type(reader),
            0x02 => {
                reader.read::<ComponentAlias<'_>>()?;
            }
            0x03 if list.kind == ListKind::ComponentType => {
                list.imports += 1;
                check_interfaces("imports", list.imports, most)?;
                reader.read::<ComponentImport<'_>>()?;
            }
            0x04 => {
                list.exports += 1;
                check_interfaces("exports", list.exports, most)?;
                reader.read::<ComponentExternName<'_>>()?;
                reader.read::<ComponentTypeRef>()?;
            }
            byte => {
                let reason = format!("invalid leading byte (0x{byte:x}) of a declaration at byte {position}");
                return Err(StructureProblem::Damaged { reason });
            }
        }
        Ok(None)
    }
}

fn check_interfaces(what: &str, count: usize, most: usize) -> Result<(), StructureProblem> {
    if count > most { Err(StructureProblem::Interfaces { what: what.to_owned(), most }) } else { Ok(()) }
}

fn check_core(what: &str, count: u32) -> Result<(), StructureProblem> {
    let most = CORE_INTERFACES;
    if count as usize > most {
        return Err(StructureProblem::CoreInterfaces { what: what.to_owned(), most });
    }
    Ok(())
}

#[cfg(test)]
mod tests;
