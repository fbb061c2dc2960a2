//! Whether a plugin may take the place of the locked one of its name: a registry cannot turn back the clock (row 53).

use crate::lock::LockedPlugin;
use crate::reference::Source;
use crate::signature::signed_at;
use crate::trust::Trust;
use crate::version::{Age, age};

/// Whether a person has asked for a plugin that is not newer than the locked one, or that has lost its signature.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downgrade {
    /// They have.
    Allowed,
    /// They have not.
    Refused,
}

/// Checks that `new` may follow `locked` from the same place. Files of this machine are somebody's own work and may keep their
/// version. Returns the reason, with the option that allows it.
pub fn check_succession(
    new: &LockedPlugin,
    locked: &LockedPlugin,
    trust: &Trust,
    downgrade: Downgrade,
) -> Result<(), String> {
    let problem = problem(new, locked, trust).filter(|_| downgrade == Downgrade::Refused);
    problem.map_or(Ok(()), |problem| {
        Err(format!(
            "{} has {} {}, {problem}; the locked one stays, and --allow-downgrade takes the other one",
            new.reference,
            new.name,
            shown_version(&new.version)
        ))
    })
}

fn problem(new: &LockedPlugin, locked: &LockedPlugin, trust: &Trust) -> Option<String> {
    let from_file = matches!(new.source(), Ok(Source::File(_)));
    let age = age(&new.version, &locked.version);
    let locked_version = shown_version(&locked.version);
    if age == Age::Older {
        return Some(format!("which is older than {locked_version}, which is locked"));
    }
    if let Some(signer) = locked.signer.as_ref().filter(|_| new.signer.is_none() && trust.looks() && !from_file) {
        return Some(format!(
            "which no trusted key has signed, and {locked_version}, which is locked, was signed by the key {signer}"
        ));
    }
    if age == Age::Newer || new.component == locked.component || from_file || is_signed_later(new, locked) {
        return None;
    }
    Some(match age {
        Age::Same => {
            "which is the locked version with other content, and no trusted key has signed it later".to_owned()
        }
        _ => format!("which may be older than {locked_version}, which is locked: the two versions cannot be compared"),
    })
}

/// Whether a trusted key has signed the new one after the locked one was signed by one. Only then is it known which of two
/// contents of one version came later.
fn is_signed_later(new: &LockedPlugin, locked: &LockedPlugin) -> bool {
    let time = |plugin: &LockedPlugin| {
        plugin.signer.as_ref()?;
        signed_at(plugin.signature.as_deref()?)
    };
    time(new).zip(time(locked)).is_some_and(|(new, locked)| new > locked)
}

fn shown_version(version: &str) -> String {
    let shown = crate::error::shown(version);
    if shown.is_empty() { "(no version)".to_owned() } else { shown }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::trust::SignaturePolicy;
    use agent_plugins::digest_of;

    fn plugin(version: &str, content: &str, signed: Option<u64>) -> LockedPlugin {
        let text = |time| format!("untrusted comment: a\nRUQ=\ntrusted comment: timestamp:{time}\tname:calc\nAA==\n");
        LockedPlugin {
            name: "calc".to_owned(),
            version: version.to_owned(),
            reference: "registry.example/team/calc:latest".to_owned(),
            manifest: Some(digest_of(content.as_bytes())),
            component: digest_of(content.as_bytes()),
            signer: signed.map(|_| "RWQkey".to_owned()),
            signature: signed.map(text),
        }
    }

    // Row 53: what may follow a locked plugin, and why something may not.
    #[test]
    fn a_locked_plugin_is_followed_by_what_is_newer() {
        let warn = Trust { policy: SignaturePolicy::Warn, keys: Vec::new(), unsigned: Vec::new() };
        let off = Trust { policy: SignaturePolicy::Off, keys: Vec::new(), unsigned: Vec::new() };
        let locked = plugin("1.10", "locked", Some(100));
        let cases: [(LockedPlugin, &Trust, Option<&str>); 14] = [
            (plugin("1.11", "new", Some(200)), &warn, None),
            (plugin("1.10", "locked", Some(50)), &warn, None),
            (plugin("1.9", "old", Some(200)), &warn, Some("older than 1.10")),
            (plugin("1.9", "locked", Some(200)), &warn, Some("older than 1.10")),
            (plugin("1.9", "old", None), &off, Some("older than 1.10")),
            (plugin("1.10", "other", None), &warn, Some("no trusted key has signed")),
            (plugin("1.10", "locked", None), &warn, Some("no trusted key has signed")),
            (plugin("1.11", "new", None), &warn, Some("signed by the key RWQkey")),
            (plugin("1.11", "new", None), &off, None),
            (plugin("1.10", "other", None), &off, Some("with other content")),
            (plugin("1.10", "other", Some(100)), &warn, Some("with other content")),
            (plugin("1.10", "other", Some(101)), &warn, None),
            (plugin("nightly", "other", Some(99)), &warn, Some("cannot be compared")),
            (plugin("nightly", "other", Some(101)), &warn, None),
        ];
        for (new, trust, expected) in cases {
            let checked = check_succession(&new, &locked, trust, Downgrade::Refused);
            match expected {
                None => assert_eq!(checked, Ok(()), "{new:?}"),
                Some(reason) => {
                    let error = checked.expect_err(reason);
                    assert!(error.contains(reason) && error.contains("--allow-downgrade"), "{error}");
                    assert_eq!(check_succession(&new, &locked, trust, Downgrade::Allowed), Ok(()));
                }
            }
        }
        // Neither is signed: what one version is does not change either.
        let unsigned = plugin("1.0.0", "locked", None);
        assert!(check_succession(&plugin("1.0.0", "other", None), &unsigned, &warn, Downgrade::Refused).is_err());
        assert!(check_succession(&plugin("1.0.0", "other", Some(9)), &unsigned, &warn, Downgrade::Refused).is_err());
        // A file of this machine is built again and again under one version.
        let file =
            |content: &str| LockedPlugin { reference: "/here/calc.wasm".to_owned(), ..plugin("1.0.0", content, None) };
        assert_eq!(check_succession(&file("two"), &file("one"), &warn, Downgrade::Refused), Ok(()));
    }
}
