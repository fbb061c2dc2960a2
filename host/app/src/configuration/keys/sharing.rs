//! The keys that say whose plugins are taken from elsewhere.

use super::{Default, Form, Key, NONE, Section, Value};

/// What may follow where a trusted signature is missing.
const POLICIES: &[&str] = &["required", "warn", "off"];

pub(super) const SHARING: Section = Section {
    path: &["sharing"],
    example: "sharing",
    title: "Sharing",
    about: "Whose plugins are taken from registries and the web, by `plugin add` and `plugin update`, and which plugins of \
            the folder load. What is built or copied there is not locked; it loads, unless signatures are required.",
    keys: &[
        Key {
            name: "signatures",
            value: Value::Choice(POLICIES),
            default: Default::Is(r#""warn""#),
            meaning: "What follows where a plugin has no signature of a key that is trusted for where it is from: it is refused \
                      (`required`, also for what was built or copied here), that is said (`warn`), or nobody looks (`off`). One that was changed after a trusted key had \
                      signed it is refused under `warn`, too.",
            example: r#""required""#,
        },
        Key {
            name: "trusted_keys",
            value: Value::Pairs(Form::NameSpace, Form::PublicKeys),
            default: NONE,
            meaning: "Public keys by beginning of a reference or an address, at a `/`; the longest that fits decides. Several keys of one \
                      name space are separated by spaces. `local` has the keys for what was built here and signed by `plugin sign FILE`.",
            example: r#"{ "registry.example/team" = "RWRjVy4JExnDZ2+zJGJHVhQc1Hr6ZkXb0vmXfy25M21waP4v/4on32wb" }"#,
        },
        Key {
            name: "unsigned",
            value: Value::Texts(Form::PluginOrDigest),
            default: NONE,
            meaning: "Plugins that serve without a signature where one is required. A digest (`sha256:…`) is for exactly these bytes; a name is \
                      for what was built here in the file of that name, and not for what is locked from a registry or an address.",
            example: r#"["calc"]"#,
        },
    ],
};
