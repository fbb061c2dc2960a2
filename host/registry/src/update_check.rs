//! Decides whether a plugin may replace the locked plugin with the same name, so that a registry cannot downgrade
//! plugins (row 53).

use crate::lock::LockedPlugin;
use crate::reference::Source;
use crate::signature::signed_at;
use crate::trust::Trust;
use crate::version::{VersionOrder, compare_versions};

/// Whether the user allows a plugin that is not newer than the locked plugin, or that is no longer signed by a trusted
/// key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Downgrade {
    /// A plugin that is not newer, or is no longer signed by a trusted key, may replace the locked plugin.
    Allowed,
    /// A plugin that is not newer, or is no longer signed by a trusted key, is refused.
    Refused,
}

/// Checks that the plugin `new` may replace the plugin `locked`, which has the same name and comes from the same
/// source. If the source is a file on this machine, the content of the file may change without a new version,
/// because the file is the user's own work. If `new` is refused, the error contains the reason and the option that
/// allows `new`.
pub fn check_update(
    new: &LockedPlugin,
    locked: &LockedPlugin,
    trust: &Trust,
    downgrade: Downgrade,
) -> Result<(), String> {
    let problem = downgrade_problem(new, locked, trust).filter(|_| downgrade == Downgrade::Refused);
    problem.map_or(Ok(()), |problem| {
        Err(format!(
            "{} has {} {}, {problem}; the locked version was kept (use --allow-downgrade to accept this version)",
            new.reference,
            new.name,
            display_version(&new.version)
        ))
    })
}

fn downgrade_problem(new: &LockedPlugin, locked: &LockedPlugin, trust: &Trust) -> Option<String> {
    let from_file = matches!(new.source(), Ok(Source::File(_)));
    let order = compare_versions(&new.version, &locked.version);
    let locked_version = display_version(&locked.version);
    if order == VersionOrder::Older {
        return Some(format!("which is older than {locked_version}, the locked version"));
    }
    if let Some(signer) =
        locked.signer.as_ref().filter(|_| new.signer.is_none() && trust.checks_signatures() && !from_file)
    {
        return Some(format!(
            "which no trusted key has signed, but the locked version {locked_version} was signed by the key {signer}"
        ));
    }
    if order == VersionOrder::Newer || new.component == locked.component || from_file || is_signed_later(new, locked) {
        return None;
    }
    Some(match order {
        VersionOrder::Same => {
            "which has the locked version but different content, and no newer signature by a trusted key".to_owned()
        }
        _ => {
            format!("which may be older than {locked_version}, the locked version: the two versions cannot be compared")
        }
    })
}

/// Returns whether a trusted key signed the new plugin after the locked plugin was signed. If two plugins have the same
/// version but different content, only the times of their signatures show which plugin is newer.
fn is_signed_later(new: &LockedPlugin, locked: &LockedPlugin) -> bool {
    let time = |plugin: &LockedPlugin| {
        plugin.signer.as_ref()?;
        signed_at(plugin.signature.as_deref()?)
    };
    time(new).zip(time(locked)).is_some_and(|(new, locked)| new > locked)
}

fn display_version(version: &str) -> String {
    let text = crate::error::display_text(version);
    if text.is_empty() { "(no version)".to_owned() } else { text }
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

    // Row 53: a plugin that may be older than the locked plugin is refused, and the error contains the reason.
    #[test]
    fn only_newer_plugins_replace_a_locked_plugin() {
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
            (plugin("1.10", "other", None), &off, Some("but different content")),
            (plugin("1.10", "other", Some(100)), &warn, Some("but different content")),
            (plugin("1.10", "other", Some(101)), &warn, None),
            (plugin("nightly", "other", Some(99)), &warn, Some("cannot be compared")),
            (plugin("nightly", "other", Some(101)), &warn, None),
        ];
        for (new, trust, expected) in cases {
            let checked = check_update(&new, &locked, trust, Downgrade::Refused);
            match expected {
                None => assert_eq!(checked, Ok(()), "{new:?}"),
                Some(reason) => {
                    let error = checked.expect_err(reason);
                    assert!(error.contains(reason) && error.contains("--allow-downgrade"), "{error}");
                    assert_eq!(check_update(&new, &locked, trust, Downgrade::Allowed), Ok(()));
                }
            }
        }
        // The content of a version must not change, even if neither the locked nor the new component is signed.
        let unsigned = plugin("1.0.0", "locked", None);
        assert!(check_update(&plugin("1.0.0", "other", None), &unsigned, &warn, Downgrade::Refused).is_err());
        assert!(check_update(&plugin("1.0.0", "other", Some(9)), &unsigned, &warn, Downgrade::Refused).is_err());
        // A file on this machine may be built several times with the same version.
        let file =
            |content: &str| LockedPlugin { reference: "/here/calc.wasm".to_owned(), ..plugin("1.0.0", content, None) };
        assert_eq!(check_update(&file("two"), &file("one"), &warn, Downgrade::Refused), Ok(()));
    }
}
