//! Checks that the generated bindings in the SDK match the contract. If the bindings do not match the contract, the
//! test generates new bindings. The bindings are generated in advance because the generator takes longer to compile
//! than all other dependencies of a plugin.

use std::path::{Path, PathBuf};
use wit_bindgen_core::wit_parser::Resolve;
use wit_bindgen_core::{Files, WorldGenerator};
use wit_bindgen_rust::{Opts, WithOption};

/// A file with generated bindings.
struct Bindings {
    /// The path of the file, relative to the SDK's folder.
    file: &'static str,
    /// The WIT text that defines the world of the bindings.
    wit: &'static str,
    /// The folders of the WIT packages that the world refers to, relative to the SDK's folder.
    packages: &'static [&'static str],
    /// The Rust path of the types that all plugin kinds share. `None` if the bindings themselves contain these types,
    /// or do not use these types.
    shared_types: Option<&'static str>,
    purpose: Purpose,
}

/// The purpose for which the SDK uses a file with generated bindings.
#[derive(PartialEq)]
enum Purpose {
    /// The bindings contain public types of the SDK. The types implement `PartialEq`.
    PublicTypes,
    /// The SDK uses the bindings only to call imported functions.
    Imports,
    /// The SDK uses the bindings only to export an interface. The types do not need `PartialEq`.
    Exports,
}

const IMPORTS_WORLD: &str = "package agent-host:sdk; world imports { import agent-host:plugin/types@0.1.0; \
                             import agent-host:plugin/media-store@0.1.0; import wasi:config/store@0.2.0-rc.1; import wasi:logging/logging; }";
const KEY_VALUE_WORLD: &str = "package agent-host:sdk; world values { import wasi:keyvalue/store@0.2.0-draft2; \
                               import wasi:keyvalue/atomics@0.2.0-draft2; }";
const STEP_CONTEXT_WORLD: &str = "package agent-host:sdk; world step { export agent-host:plugin/context-builder@0.1.0; \
                                  export agent-host:plugin/step-context@0.1.0; }";
const SHARED_TYPES: &str = "crate::bindings::imports::agent_host::plugin::types";

fn all_bindings() -> [Bindings; 8] {
    let export_bindings = |file, wit| Bindings {
        file,
        wit,
        packages: &["../wit"],
        shared_types: Some(SHARED_TYPES),
        purpose: Purpose::PublicTypes,
    };
    [
        Bindings {
            file: "bindings/src/generated/imports.rs",
            wit: IMPORTS_WORLD,
            packages: &["../wit", "wit/deps/config", "wit/deps/logging"],
            shared_types: None,
            purpose: Purpose::PublicTypes,
        },
        Bindings {
            file: "bindings/src/generated/key_value.rs",
            wit: KEY_VALUE_WORLD,
            packages: &["wit/deps/keyvalue"],
            shared_types: None,
            purpose: Purpose::Imports,
        },
        Bindings {
            file: "bindings/src/generated/model.rs",
            wit: "package agent-host:sdk; world model { import agent-host:model/host-model@0.1.0; }",
            packages: &["../wit/model"],
            shared_types: None,
            purpose: Purpose::Imports,
        },
        Bindings {
            shared_types: Some("crate::imports::agent_host::plugin::types"),
            purpose: Purpose::Exports,
            ..export_bindings(
                "bindings/src/generated/context_builder.rs",
                "package agent-host:sdk; world builder { export agent-host:plugin/context-builder@0.1.0; }",
            )
        },
        export_bindings(
            "src/generated/tool.rs",
            "package agent-host:sdk; world tool { export agent-host:plugin/tool@0.1.0; }",
        ),
        export_bindings("src/generated/step_context.rs", STEP_CONTEXT_WORLD),
        export_bindings(
            "src/generated/output_validator.rs",
            "package agent-host:sdk; world validator { export agent-host:plugin/output-validator@0.1.0; }",
        ),
        export_bindings(
            "src/generated/media_policy.rs",
            "package agent-host:sdk; world policy { export agent-host:plugin/media-policy@0.1.0; }",
        ),
    ]
}

impl Bindings {
    fn generate(&self) -> anyhow::Result<String> {
        let mut resolve = Resolve::default();
        for package in self.packages {
            resolve.push_path(Path::new(env!("CARGO_MANIFEST_DIR")).join(package))?;
        }
        let package = resolve.push_str("sdk.wit", self.wit)?;
        let world = resolve.select_world(&[package], None)?;
        let shared_types =
            |path: &&str| ("agent-host:plugin/types@0.1.0".to_owned(), WithOption::Path((*path).to_owned()));
        let options = Opts {
            format: true,
            with: self.shared_types.as_ref().map(shared_types).into_iter().collect(),
            generate_all: self.shared_types.is_none(),
            generate_unused_types: self.purpose != Purpose::Imports,
            pub_export_macro: self.purpose != Purpose::Imports,
            additional_derive_attributes: if self.purpose == Purpose::PublicTypes {
                vec!["PartialEq".to_owned()]
            } else {
                Vec::new()
            },
            ..Opts::default()
        };
        let mut files = Files::default();
        options.build().generate(&mut resolve, world, &mut files)?;
        let (_, text) = files.iter().next().ok_or_else(|| anyhow::anyhow!("the generator produced no file"))?;
        Ok(String::from_utf8(text.to_vec())?)
    }
}

/// S7, P12: the bindings match the contract. After a change to the contract or to wit-bindgen, copy the files that this
/// test generates. The message of the failed test contains the commands.
#[test]
fn s7_bindings_match_the_contract() {
    let sdk = Path::new(env!("CARGO_MANIFEST_DIR"));
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bindings");
    let mut commands = Vec::new();
    for bindings in all_bindings() {
        let text = bindings.generate().expect(bindings.file);
        let (new_file, old_file) = (folder.join(bindings.file), sdk.join(bindings.file));
        if std::fs::read_to_string(&old_file).unwrap_or_default() != text {
            std::fs::create_dir_all(new_file.parent().expect("the file is in a folder"))
                .expect("the folder is created");
            std::fs::write(&new_file, text).expect("the file is written");
            commands.push(format!("cp {} {}", new_file.display(), old_file.display()));
        }
    }
    assert!(
        commands.is_empty(),
        "the bindings do not match the contract; copy the generated files:\n{}",
        commands.join("\n")
    );
}
