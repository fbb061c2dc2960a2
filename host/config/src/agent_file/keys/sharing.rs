//! Keys of `[sharing]`, the rules about signatures of plugins.

use super::{Default, Key, NONE, Section, TextFormat, Value};

/// Policies that decide what happens if a plugin has no trusted signature.
const POLICIES: &[&str] = &["required", "warn", "off"];

pub(super) const SHARING: Section = Section {
    path: &["sharing"],
    example: "sharing",
    title: "Sharing",
    about: "The signatures that plugins need when `plugin add` and `plugin update` download them from registries and \
            the web, and when the plugins in the plugin directory are loaded. A plugin that was built or copied into \
            the plugin directory has no entry in `plugins.lock`. A plugin without an entry is loaded unless \
            signatures are required.",
    keys: &[
        Key {
            name: "signatures",
            value: Value::Choice(POLICIES),
            default: Default::Is(r#""warn""#),
            meaning: "What happens if a plugin has no signature by a key that is trusted for its origin: `required` \
                      rejects the plugin, even if it was built or copied here; `warn` prints a warning; `off` does not \
                      check signatures. `warn` also rejects a plugin that was changed after a trusted key signed it.",
            example: r#""required""#,
        },
        Key {
            name: "trusted_keys",
            value: Value::Pairs(TextFormat::Namespace, TextFormat::PublicKeys),
            default: NONE,
            meaning: "Public keys. The keys of an entry are trusted for references and addresses that are equal to \
                      the entry's name, or that begin with this name and a `/`. The longest matching entry applies. \
                      Several keys in one entry are separated by spaces. The entry `local` contains keys for plugins \
                      that were built here and signed with `plugin sign FILE`.",
            example: r#"{ "registry.example/team" = "RWRjVy4JExnDZ2+zJGJHVhQc1Hr6ZkXb0vmXfy25M21waP4v/4on32wb" }"#,
        },
        Key {
            name: "unsigned",
            value: Value::Texts(TextFormat::PluginOrDigest),
            default: NONE,
            meaning: "Plugins that are loaded without a signature even if signatures are required. A digest \
                      (`sha256:…`) allows exactly this component. A name allows a plugin that was built on this \
                      machine and whose file has that name, but not a plugin that was installed from a registry or an \
                      address.",
            example: r#"["calc"]"#,
        },
    ],
};
