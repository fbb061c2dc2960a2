//! Chooses the names of the tools for exported functions: the shortest names that are unique in the component. The
//! names are the same each time the component is loaded.

use crate::contract::v0_1::tools::NAME_LENGTH;
use std::collections::{BTreeMap, BTreeSet};

/// Chooses a tool name for each exported function.
///
/// A name has the form `interface.function`. If two functions would have the same name, both names become
/// `package.interface.function`. If the names are still equal, the namespace is added to both names, and then the
/// version. If the names are equal even with the version, numbers are added. A name is None if it would be too long.
pub(super) fn assign(exports: &[(Option<&str>, String)], taken: &BTreeSet<String>) -> Vec<Option<String>> {
    let candidates: Vec<_> = exports.iter().map(|(interface, function)| candidates(*interface, function)).collect();
    let mut level = vec![0_usize; candidates.len()];
    loop {
        let mut uses: BTreeMap<&str, usize> = BTreeMap::new();
        let name = |index: usize, level: &[usize]| candidates[index][level[index]].as_str();
        (0..candidates.len()).for_each(|index| *uses.entry(name(index, &level)).or_default() += 1);
        let shared = |index: &usize| uses[name(*index, &level)] > 1 || taken.contains(name(*index, &level));
        let longer: Vec<usize> =
            (0..candidates.len()).filter(shared).filter(|index| level[*index] + 1 < candidates[*index].len()).collect();
        if longer.is_empty() {
            break;
        }
        longer.into_iter().for_each(|index| level[index] += 1);
    }
    let mut used = taken.clone();
    let names = candidates.iter().zip(level).map(|(names, level)| with_number(&names[level], &mut used));
    names.collect()
}

/// Returns the name for the tool of a command-line program: the name of the plugin. If that name is already used, a
/// number is added to it.
pub(super) fn for_command<'t>(plugin: &str, others: impl Iterator<Item = &'t str> + Clone) -> String {
    let mut used = others.map(str::to_owned).collect();
    let name = if plugin.is_empty() { "run" } else { plugin };
    with_number(name, &mut used).unwrap_or_else(|| "run".to_owned())
}

fn candidates(interface: Option<&str>, function: &str) -> Vec<String> {
    let Some(interface) = interface else { return vec![function.to_owned()] };
    let (path, version) = interface.split_once('@').unwrap_or((interface, ""));
    let (package, name) = path.rsplit_once('/').unwrap_or(("", path));
    let (namespace, package) = package.rsplit_once(':').unwrap_or(("", package));
    let joined = |parts: &[&str]| {
        let parts: Vec<_> = parts.iter().filter(|part| !part.is_empty()).map(|part| sanitize(part)).collect();
        parts.join(".")
    };
    let mut names = vec![
        joined(&[name, function]),
        joined(&[package, name, function]),
        joined(&[namespace, package, name, function]),
        joined(&[namespace, package, name, version, function]),
    ];
    names.dedup();
    names
}

/// Replaces each character that is not allowed in a tool name by `-`.
fn sanitize(part: &str) -> String {
    let sanitize = |character: char| {
        if character.is_ascii_alphanumeric() || matches!(character, '_' | '-' | '.') { character } else { '-' }
    };
    part.chars().map(sanitize).collect()
}

fn with_number(name: &str, used: &mut BTreeSet<String>) -> Option<String> {
    let numbers = (2_usize..).map(|number| format!("{name}-{number}"));
    let name = std::iter::once(name.to_owned()).chain(numbers).find(|name| !used.contains(name))?;
    (name.len() <= NAME_LENGTH).then(|| {
        used.insert(name.clone());
        name
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(exports: &[(Option<&str>, &str)], taken: &[&str]) -> Vec<String> {
        let exports: Vec<_> = exports.iter().map(|(interface, name)| (*interface, (*name).to_owned())).collect();
        let taken = taken.iter().map(|name| (*name).to_owned()).collect();
        assign(&exports, &taken).into_iter().map(|name| name.expect("a name")).collect()
    }

    // P3: if two functions would have the same name, parts of the exporting interface's name are added to both names
    // until the names differ.
    #[test]
    fn p3_names_are_short_and_unique() {
        let exports = [
            (Some("docs:calc/ops@0.1.0"), "add"),
            (Some("docs:words/ops@0.1.0"), "add"),
            (Some("docs:words/ops@0.1.0"), "split"),
            (Some("a:b/ops"), "sub"),
            (Some("c:b/ops"), "sub"),
            (Some("a:v/ops@1.0.0"), "neg"),
            (Some("a:v/ops@2.0.0-rc+1"), "neg"),
            (None, "greet"),
            (Some("inline"), "greet"),
            (Some("a:b/ops"), "counter.inc"),
        ];
        let expected = [
            "calc.ops.add",
            "words.ops.add",
            "ops.split",
            "a.b.ops.sub",
            "c.b.ops.sub",
            "a.v.ops.1.0.0.neg",
            "a.v.ops.2.0.0-rc-1.neg",
            "greet",
            "inline.greet",
            "ops.counter.inc",
        ];
        assert_eq!(names(&exports, &[]), expected);
        assert_eq!(
            names(&exports[2..3], &["ops.split"]),
            ["words.ops.split"],
            "the tools of the contract keep their names"
        );
        assert_eq!(names(&[(None, "greet")], &["greet", "greet-2"]), ["greet-3"]);
        let long = [(None, "x".repeat(129))];
        assert_eq!(assign(&long, &BTreeSet::new()), [None]);
        assert_eq!(for_command("upper", ["upper", "b"].into_iter()), "upper-2");
    }
}
