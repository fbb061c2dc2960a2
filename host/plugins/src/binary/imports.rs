//! Checks the names and versions of a component's imports, and finds the exports that belong to the plugin contract.
//! wasmtime's linker would detect missing imports too, but the linker's messages for missing imports are misleading.

use crate::identity::Kind;
use crate::text::clean;
use std::str::FromStr;

/// Name of the WIT package that defines the plugin contract.
const CONTRACT_PACKAGE: &str = "agent-host:plugin";
/// Version of the plugin contract that this host implements.
const CONTRACT_VERSION: Version = Version { major: 0, minor: 1, patch: 0, pre: "" };
/// The interfaces of the plugin contract. A component may import any of these interfaces. A component may even import
/// an interface that it exports, for example if it needs the types that the interface defines.
const CONTRACT_INTERFACES: [&str; 7] =
    ["types", "media-store", "tool", "context-builder", "step-context", "output-validator", "media-policy"];

/// Name of the WIT package whose interface lets plugins send requests to the agent's model.
const MODEL_PACKAGE: &str = "agent-host:model";
const MODEL_INTERFACES: [&str; 1] = ["host-model"];

/// Name of the WIT package through which a development build gets its sources.
const DEVELOPMENT_PACKAGE: &str = "agent-host:development";
const DEVELOPMENT_INTERFACES: [&str; 1] = ["sources"];

/// The interfaces of WASI 0.2 that this host implements.
const IMPLEMENTED_WASI: [(&str, &[&str]); 7] = [
    ("wasi:io", &["error", "poll", "streams"]),
    ("wasi:clocks", &["monotonic-clock", "wall-clock"]),
    ("wasi:random", &["random", "insecure", "insecure-seed"]),
    ("wasi:filesystem", &["types", "preopens"]),
    ("wasi:http", &["types", "outgoing-handler"]),
    (
        "wasi:cli",
        &[
            "environment",
            "exit",
            "stdin",
            "stdout",
            "stderr",
            "terminal-input",
            "terminal-output",
            "terminal-stdin",
            "terminal-stdout",
            "terminal-stderr",
        ],
    ),
    (
        "wasi:sockets",
        &["network", "instance-network", "ip-name-lookup", "tcp", "tcp-create-socket", "udp", "udp-create-socket"],
    ),
];

/// The exact names of the WASI draft interfaces that this host implements.
const WASI_DRAFTS: [&str; 11] = [
    "wasi:config/store@0.2.0-rc.1",
    "wasi:config/store@0.2.0-draft",
    "wasi:config/runtime@0.2.0-draft",
    "wasi:logging/logging",
    "wasi:logging/logging@0.1.0-draft",
    "wasi:keyvalue/store@0.2.0-draft2",
    "wasi:keyvalue/atomics@0.2.0-draft2",
    "wasi:keyvalue/batch@0.2.0-draft2",
    "wasi:keyvalue/store@0.2.0-draft",
    "wasi:keyvalue/atomics@0.2.0-draft",
    "wasi:keyvalue/batch@0.2.0-draft",
];

/// The WASI interfaces that the host knows but does not implement. A component may import these interfaces, but the
/// functions of these interfaces always fail.
const UNIMPLEMENTED_WASI: [(&str, &[&str]); 3] = [
    ("wasi:http", &["incoming-handler"]),
    ("wasi:blobstore", &["blobstore", "container", "types"]),
    ("wasi:clocks", &["timezone"]),
];

/// An import or export that this host does not support (P12, row 14).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InterfaceProblem {
    /// The component was built against an incompatible version of the plugin contract.
    #[error("it needs `{name}`, but this host implements version 0.1.x of that package; {advice}")]
    Version {
        /// Name and version of the interface that the component needs.
        name: String,
        /// How the user can solve the problem.
        advice: &'static str,
    },
    /// The component imports an interface that does not exist in the host's version of the interface's package.
    #[error(
        "it imports `{name}`, which this host's version of that package does not have; use a newer agent-host, or rebuild \
         it without this import"
    )]
    UnknownInterface {
        /// Name and version of the imported interface.
        name: String,
    },
    /// The component imports a standard interface in a version that the host does not implement, although the host
    /// implements other versions of the interface.
    #[error("it imports `{name}`, but this host implements {known}; {advice}")]
    StandardVersion {
        /// Name and version of the imported interface.
        name: String,
        /// The versions of the interface that the host implements.
        known: String,
        /// How the user can solve the problem.
        advice: &'static str,
    },
    /// The component imports interfaces that this host does not know.
    #[error(
        "it imports {}, which this host does not know: it was made for a different host. A plugin may import {CONTRACT_PACKAGE}@0.1.x \
         and WASI 0.2; rebuild it without other imports, or compose it with a component that exports them (`wac plug`)",
        listed(names)
    )]
    Unknown {
        /// Names of the unknown imports.
        names: Vec<String>,
    },
}

/// Maximum number of names that an error message lists.
const SHOWN_NAMES: usize = 4;

fn listed(names: &[String]) -> String {
    let shown: Vec<_> = names.iter().take(SHOWN_NAMES).map(|name| format!("`{}`", clean(name, 128))).collect();
    let shown = shown.join(", ");
    match names.len().saturating_sub(SHOWN_NAMES) {
        0 => shown,
        more => format!("{shown} and {more} more"),
    }
}

/// Whether the host implements all imports of a component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Imports {
    /// The host implements all imports.
    Implemented,
    /// The host knows all imports but does not implement some of them. The functions of an unimplemented import
    /// always fail.
    SomeDenied,
}

/// Whether the functions of an import can have effects outside of the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effects {
    /// The functions have no effects outside of the call. For example, the functions for clocks, random numbers,
    /// configuration and logging have no such effects.
    None,
    /// The functions can have effects outside of the call if the plugin is granted the use of these functions.
    Possible,
}

/// Whether the functions of an import can have effects outside of the call. `name` must be the name of an import that
/// [`check`] accepts.
pub(crate) fn effects(name: &str) -> Effects {
    let path = name.split('@').next().unwrap_or(name);
    let harmless = ["wasi:io/", "wasi:clocks/", "wasi:random/", "wasi:cli/", "wasi:config/", "wasi:logging/"];
    let is_harmless = path == "agent-host:plugin/types" || harmless.iter().any(|package| path.starts_with(package));
    if is_harmless { Effects::None } else { Effects::Possible }
}

/// Whether an export belongs to the plugin contract.
pub(crate) fn is_of_contract(name: &str) -> bool {
    InterfaceName::parse(name).is_some_and(|interface| interface.package == CONTRACT_PACKAGE)
}

/// Checks that the host knows every import by its name and its version.
pub(crate) fn check<'a>(names: impl Iterator<Item = &'a str>) -> Result<Imports, InterfaceProblem> {
    let mut imports = Imports::Implemented;
    let mut unknown = Vec::new();
    for name in names {
        match check_one(name) {
            Ok(Imports::Implemented) => {}
            Ok(Imports::SomeDenied) => imports = Imports::SomeDenied,
            Err(InterfaceProblem::Unknown { names }) => unknown.extend(names),
            // An error about an incompatible version is returned first, because it is more helpful than a list of
            // unknown names.
            Err(problem) => return Err(problem),
        }
    }
    if unknown.is_empty() { Ok(imports) } else { Err(InterfaceProblem::Unknown { names: unknown }) }
}

/// Returns the plugin kinds that are implemented by a component with these exports. Fails if an export belongs to an
/// incompatible version of the plugin contract.
pub(crate) fn kinds<'a>(exports: impl Iterator<Item = &'a str>) -> Result<Vec<Kind>, InterfaceProblem> {
    let mut kinds = Vec::new();
    for name in exports {
        let Some(interface) = InterfaceName::parse(name).filter(|interface| interface.package == CONTRACT_PACKAGE)
        else {
            continue;
        };
        check_contract_interface(name, &interface, &CONTRACT_INTERFACES)?;
        kinds.extend(Kind::ALL.into_iter().find(|kind| kind.interface() == interface.interface));
    }
    kinds.sort_unstable();
    kinds.dedup();
    Ok(kinds)
}

/// Whether the host knows this interface but does not implement it. `name` must be the name of an import that
/// [`check`] accepts.
pub(crate) fn is_denied(name: &str) -> bool {
    InterfaceName::parse(name).is_some_and(|interface| interface.is_in(&UNIMPLEMENTED_WASI))
}

fn check_one(name: &str) -> Result<Imports, InterfaceProblem> {
    let unknown = || InterfaceProblem::Unknown { names: vec![name.to_owned()] };
    if WASI_DRAFTS.contains(&name) {
        return Ok(Imports::Implemented);
    }
    let interface = InterfaceName::parse(name).ok_or_else(unknown)?;
    if interface.package == CONTRACT_PACKAGE {
        check_contract_interface(name, &interface, &CONTRACT_INTERFACES)?;
        return Ok(Imports::Implemented);
    }
    if interface.package == MODEL_PACKAGE {
        check_contract_interface(name, &interface, &MODEL_INTERFACES)?;
        return Ok(Imports::Implemented);
    }
    if interface.package == DEVELOPMENT_PACKAGE {
        check_contract_interface(name, &interface, &DEVELOPMENT_INTERFACES)?;
        return Ok(Imports::Implemented);
    }
    if interface.is_in(&UNIMPLEMENTED_WASI) {
        return Ok(Imports::SomeDenied);
    }
    let drafts = WASI_DRAFTS.iter().filter(|draft| draft.split('@').next() == name.split('@').next());
    let drafts: Vec<_> = drafts.map(|draft| format!("`{draft}`")).collect();
    if !drafts.is_empty() {
        let (known, advice) = (drafts.join(" and "), "rebuild it against one of these");
        return Err(InterfaceProblem::StandardVersion { name: name.to_owned(), known, advice });
    }
    if !interface.is_in(&IMPLEMENTED_WASI) {
        return Err(unknown());
    }
    match interface.version {
        Some(Version { major: 0, minor: 2, pre: "", .. }) => Ok(Imports::Implemented),
        Some(Version { major: 0, minor: 2, .. }) => {
            Err(wasi_version(name, "rebuild it with a newer toolchain, against a released WASI 0.2"))
        }
        _ => Err(wasi_version(name, "rebuild it for WASI 0.2 (in Rust the target wasm32-wasip2)")),
    }
}

fn wasi_version(name: &str, advice: &'static str) -> InterfaceProblem {
    InterfaceProblem::StandardVersion { name: name.to_owned(), known: "WASI 0.2".to_owned(), advice }
}

fn check_contract_interface(name: &str, interface: &InterfaceName<'_>, known: &[&str]) -> Result<(), InterfaceProblem> {
    let version = interface.version.unwrap_or(Version { major: 0, minor: 0, patch: 0, pre: "" });
    if version.compatibility_group() != CONTRACT_VERSION.compatibility_group() {
        let advice = if (version.major, version.minor) > (CONTRACT_VERSION.major, CONTRACT_VERSION.minor) {
            "use a newer agent-host, or rebuild the plugin against 0.1.x"
        } else {
            "rebuild the plugin against 0.1.x"
        };
        return Err(InterfaceProblem::Version { name: name.to_owned(), advice });
    }
    if known.contains(&interface.interface) {
        Ok(())
    } else {
        Err(InterfaceProblem::UnknownInterface { name: name.to_owned() })
    }
}

/// The parsed form of `namespace:package/interface@version`.
struct InterfaceName<'a> {
    package: &'a str,
    interface: &'a str,
    version: Option<Version<'a>>,
}

impl<'a> InterfaceName<'a> {
    fn parse(name: &'a str) -> Option<Self> {
        let (path, version) = match name.split_once('@') {
            Some((path, version)) => (path, Some(Version::parse(version)?)),
            None => (name, None),
        };
        let (package, interface) = path.split_once('/')?;
        package.contains(':').then_some(Self { package, interface, version })
    }

    fn is_in(&self, table: &[(&str, &[&str])]) -> bool {
        table.iter().any(|(package, names)| *package == self.package && names.contains(&self.interface))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Version<'a> {
    major: u64,
    minor: u64,
    patch: u64,
    pre: &'a str,
}

impl<'a> Version<'a> {
    fn parse(text: &'a str) -> Option<Self> {
        let text = text.split('+').next()?;
        let (numbers, pre) = text.split_once('-').unwrap_or((text, ""));
        let mut numbers = numbers.split('.').map(u64::from_str);
        let mut next = || numbers.next()?.ok();
        Some(Self { major: next()?, minor: next()?, patch: next()?, pre })
    }

    /// The group of versions with which a version is compatible, for example `1.x`, `0.1.x` or `0.0.1`. A prerelease is
    /// compatible only with itself.
    fn compatibility_group(self) -> (u64, u64, u64, &'a str) {
        match (self.pre, self.major, self.minor) {
            ("", 0, 0) => (0, 0, self.patch, ""),
            ("", 0, minor) => (0, minor, 0, ""),
            ("", major, _) => (major, 0, 0, ""),
            (pre, major, minor) => (major, minor, self.patch, pre),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(name: &str) -> String {
        check([name].into_iter()).expect_err("this import is refused").to_string()
    }

    // P5, row 14: known imports are accepted with any patch version. If the host does not implement some of these
    // imports, the result is `SomeDenied`.
    #[test]
    fn p5_row_14_known_imports_are_accepted() {
        for name in [
            "agent-host:plugin/types@0.1.0",
            "agent-host:plugin/media-store@0.1.7",
            "agent-host:model/host-model@0.1.0",
            "wasi:io/streams@0.2.0",
            "wasi:sockets/tcp@0.2.6",
            "wasi:config/store@0.2.0-rc.1",
            "wasi:logging/logging",
            "wasi:http/outgoing-handler@0.2.3",
            "wasi:keyvalue/store@0.2.0-draft",
            "wasi:keyvalue/atomics@0.2.0-draft2",
            "wasi:config/store@0.2.0-draft",
            "wasi:config/runtime@0.2.0-draft",
        ] {
            assert_eq!(check([name].into_iter()), Ok(Imports::Implemented), "{name}");
        }
        for name in ["wasi:http/incoming-handler@0.2.3", "wasi:clocks/timezone@0.2.4"] {
            assert_eq!(check([name].into_iter()), Ok(Imports::SomeDenied), "{name}");
        }
    }

    // P12: an import with an incompatible version is refused with advice when the component is loaded.
    #[test]
    fn p12_incompatible_versions_are_refused_with_advice() {
        assert!(message("agent-host:plugin/media-store@0.2.0").contains("use a newer agent-host, or rebuild"));
        assert!(message("agent-host:plugin/media-store@0.1.0-rc.1").contains("rebuild the plugin against 0.1.x"));
        assert!(message("agent-host:model/host-model@0.2.0").contains("use a newer agent-host"));
        assert!(message("agent-host:model/other@0.1.0").contains("does not have"));
        assert!(message("agent-host:plugin/types@9.9.9").contains("use a newer agent-host, or rebuild"));
        assert!(message("wasi:io/streams@0.3.0").contains("implements WASI 0.2; rebuild it for WASI 0.2 (in Rust"));
        assert!(message("wasi:io/streams@0.2.0-rc-2023-11-10").contains("with a newer toolchain"));
        assert!(message("wasi:config/store@0.3.0").contains("implements `wasi:config/store@0.2.0-rc.1` and `wasi"));
        let problem = kinds(["agent-host:plugin/tool@0.2.0"].into_iter()).expect_err("an incompatible version");
        assert!(problem.to_string().contains("`agent-host:plugin/tool@0.2.0`"), "{problem}");
    }

    // P5: unknown imports are refused with an error that contains their names.
    #[test]
    fn p5_unknown_imports_are_refused_by_name() {
        for name in ["acme:thing/api@1.0.0", "fetch", "wasi:nn/tensor@0.2.0", "wasi:io/nonsense@0.2.0"] {
            assert!(message(name).contains(&format!("`{name}`")), "{name}");
        }
        let many = ["a:a/a", "b:b/b", "wasi:io/streams@0.2.0", "c:c/c", "d:d/d", "e:e/e", "f:f/f"];
        let message = check(many.into_iter()).expect_err("five imports are unknown").to_string();
        assert!(message.contains("`a:a/a`, `b:b/b`, `c:c/c`, `d:d/d` and 2 more"), "{message}");
        let newer = check(["a:a/a", "wasi:io/streams@0.3.0"].into_iter()).expect_err("another WASI").to_string();
        assert!(newer.contains("WASI 0.2"), "{newer}");
    }

    // P1: one component may export several plugin kinds.
    #[test]
    fn p1_kinds_are_found_in_any_patch_version() {
        let exports = ["agent-host:plugin/media-policy@0.1.0", "agent-host:plugin/tool@0.1.3", "acme:x/y@1.0.0"];
        assert_eq!(kinds(exports.into_iter()), Ok(vec![Kind::Tool, Kind::MediaPolicy]));
    }
}
