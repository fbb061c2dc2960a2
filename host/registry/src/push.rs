//! Pushes a component to a registry as an OCI artifact in the CNCF's Wasm format.

use crate::error::RegistryError;
use crate::oci::{
    CONFIG_TYPE, DESCRIPTION, Descriptor, KINDS, MANIFEST_TYPE, Manifest, TITLE, VERSION, WASM_TYPE, WasmConfig,
    WasmInterfaces,
};
use crate::reference::{Reference, tag_of_version};
use crate::registry::{Access, Registry};
use crate::signature::Claims;
use agent_core::message::Digest;
use bytes::Bytes;

/// Metadata of a plugin, which is stored with the plugin in a registry.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginFacts {
    /// Name of the plugin.
    pub name: String,
    /// Version of the plugin. Empty if the plugin has no version.
    pub version: String,
    /// Description of the plugin in one line, which is shown to users.
    pub description: String,
    /// Kinds of the plugin, which `plugin list` shows.
    pub kinds: Vec<String>,
    /// Names of the component's imports.
    pub imports: Vec<String>,
    /// Names of the component's exports.
    pub exports: Vec<String>,
}

/// Creation time that is written into an artifact if the creation time is unknown. The value is constant, so that equal
/// components have equal manifests.
pub const NO_TIMESTAMP: &str = "1970-01-01T00:00:00Z";

/// Whether pushing may replace the content of an existing version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// Pushing different content under an existing version fails.
    Never,
    /// Pushing may replace the content, because the user requested it.
    Allowed,
}

/// A component that was pushed to a registry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// Reference of the pushed component, including the tag.
    pub reference: Reference,
    /// Digest of the component's manifest.
    pub manifest: Digest,
    /// Size of the manifest in bytes.
    pub(crate) size: u64,
    /// Digest of the component.
    pub component: Digest,
    /// Digest of the manifest that the tag referred to before the push. `None` if the tag is new or already referred to
    /// the same manifest.
    pub replaced: Option<Digest>,
    /// True if the tag already referred to exactly this component, so that nothing was uploaded.
    pub already_present: bool,
}

impl Pushed {
    /// Returns the claims that a signature of the component must contain.
    pub fn claims(&self, facts: &PluginFacts) -> Claims {
        Claims {
            name: facts.name.clone(),
            version: facts.version.clone(),
            repository: self.reference.repository().to_string(),
            manifest: Some(self.manifest.clone()),
        }
    }
}

impl Registry {
    /// Pushes a component with the creation time `created`. If the reference has no tag, the plugin's version becomes
    /// the tag.
    pub async fn push(
        &self,
        reference: &Reference,
        facts: &PluginFacts,
        component: &[u8],
        created: &str,
        overwrite: Overwrite,
    ) -> Result<Pushed, RegistryError> {
        let refused = |reason| RegistryError::Reference { text: reference.to_string(), reason };
        if reference.digest().is_some() {
            return Err(refused("the target of a push cannot have a digest"));
        }
        let version_tag = tag_of_version(&facts.version);
        let tag = reference.tag().map(str::to_owned).or_else(|| version_tag.clone());
        let tag =
            tag.ok_or_else(|| refused("it has no tag, and the plugin has no version that can be used as a tag"))?;
        let reference = reference.with_tag(&tag);
        let repository = reference.repository();
        let config = serde_json::to_vec(&config(facts, component, created)).expect("the value serialises to JSON");
        let manifest = serde_json::to_vec(&manifest(facts, &config, component)).expect("the value serialises to JSON");
        let digest = agent_plugins::digest_of(&manifest);
        let existing = self.find_manifest((repository, Access::Push), &tag).await?.map(|stored| stored.digest);
        let pushed = Pushed {
            reference: reference.clone(),
            size: manifest.len() as u64,
            component: agent_plugins::digest_of(component),
            already_present: existing.as_ref() == Some(&digest),
            replaced: existing.filter(|existing| *existing != digest),
            manifest: digest,
        };
        if pushed.already_present {
            return Ok(pushed);
        }
        if let Some(other) = pushed.replaced.as_ref().filter(|_| version_tag.as_ref() == Some(&tag)) {
            let reason = format!(
                "this version already exists with other content, {}; raise `version` in plugin.toml, or use --overwrite to replace it for all users",
                other.short()
            );
            if overwrite == Overwrite::Never {
                return Err(RegistryError::Conflict { place: reference.to_string(), reason });
            }
        }
        self.put_blob(repository, &Bytes::copy_from_slice(component)).await?;
        self.put_blob(repository, &Bytes::from(config)).await?;
        self.put_manifest(repository, &tag, (&manifest, MANIFEST_TYPE)).await?;
        Ok(pushed)
    }
}

fn config(facts: &PluginFacts, component: &[u8], created: &str) -> WasmConfig {
    WasmConfig {
        created: created.to_owned(),
        author: None,
        architecture: "wasm".to_owned(),
        os: "wasip2".to_owned(),
        layer_digests: vec![agent_plugins::digest_of(component)],
        component: Some(WasmInterfaces {
            exports: facts.exports.clone(),
            imports: facts.imports.clone(),
            target: None,
        }),
    }
}

fn manifest(facts: &PluginFacts, config: &[u8], component: &[u8]) -> Manifest {
    let mut layer = Descriptor::of(WASM_TYPE, component);
    // `oras pull` saves the layer in a file with this name.
    layer.annotations.insert(TITLE.to_owned(), format!("{}.wasm", facts.name));
    let mut manifest = Manifest::new(Descriptor::of(CONFIG_TYPE, config), vec![layer]);
    let kinds = facts.kinds.join(",");
    for (key, value) in
        [(TITLE, &facts.name), (VERSION, &facts.version), (DESCRIPTION, &facts.description), (KINDS, &kinds)]
    {
        if !value.is_empty() {
            manifest.annotations.insert(key.to_owned(), value.clone());
        }
    }
    manifest
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Returns the manifest and the config that `oci-wasm` 0.6.0 wrote for a component with the interfaces of this
    /// test. The two documents were read back from Debian's docker-registry 2.8 on 2026-11-22. In the returned
    /// documents, the digests and sizes are those in the parameters of this function. In addition, this crate pushed 27
    /// components that five toolchains had built, and `oci-wasm` read all of them back without a difference. For these
    /// components, the configs of `oci-wasm` and of this crate differed only in `created`.
    fn oci_wasm_documents(component: &Digest, size: usize, config: (&Digest, usize)) -> (Value, Value) {
        let manifest = json!({
            "annotations": {"org.opencontainers.image.version": "0.1.0"},
            "config": {"digest": config.0, "mediaType": "application/vnd.wasm.config.v0+json", "size": config.1},
            "layers": [{"digest": component, "mediaType": "application/wasm", "size": size}],
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "schemaVersion": 2,
        });
        let config = json!({
            "created": "2026-11-22T14:18:13.028954521Z",
            "author": null,
            "architecture": "wasm",
            "os": "wasip2",
            "layerDigests": [component],
            "component": {
                "exports": ["agent-host:plugin/tool@0.1.0"],
                "imports": ["agent-host:plugin/types@0.1.0", "wasi:io/poll@0.2.12", "wasi:io/error@0.2.12"],
                "target": null,
            },
        });
        (manifest, config)
    }

    // P11: for the same component and creation time, the config equals the config that `oci-wasm` writes. The
    // manifest differs from the manifest of `oci-wasm` only in additional annotations with the plugin's name.
    #[test]
    fn layout_matches_the_layout_of_other_tools() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let facts = PluginFacts {
            name: "calc".to_owned(),
            version: "0.1.0".to_owned(),
            imports: words(&["agent-host:plugin/types@0.1.0", "wasi:io/poll@0.2.12", "wasi:io/error@0.2.12"]),
            exports: words(&["agent-host:plugin/tool@0.1.0"]),
            ..PluginFacts::default()
        };
        let bytes = b"component";
        let our_config =
            serde_json::to_vec(&config(&facts, bytes, "2026-11-22T14:18:13.028954521Z")).expect("the JSON is valid");
        let digests = [agent_plugins::digest_of(bytes), agent_plugins::digest_of(&our_config)];
        let (their_manifest, their_config) =
            oci_wasm_documents(&digests[0], bytes.len(), (&digests[1], our_config.len()));
        assert_eq!(serde_json::from_slice::<Value>(&our_config).expect("the JSON is valid"), their_config);
        // Compare the config also as text, because its digest, which is part of the manifest, depends on every byte.
        assert!(String::from_utf8_lossy(&our_config).starts_with(r#"{"created":"2026-11-22T14:18:13.028954521Z","author":null,"architecture":"wasm","os":"wasip2","layerDigests":["#));
        let mut manifest = serde_json::to_value(manifest(&facts, &our_config, bytes)).expect("the JSON is valid");
        let layer_annotations = json!({"org.opencontainers.image.title": "calc.wasm"});
        assert_eq!(
            manifest["layers"][0].as_object_mut().and_then(|layer| layer.remove("annotations")),
            Some(layer_annotations)
        );
        let title = manifest["annotations"].as_object_mut().and_then(|annotations| annotations.remove(TITLE));
        assert_eq!(title, Some(json!("calc")));
        assert_eq!(manifest, their_manifest);
        let read: Manifest = serde_json::from_value(their_manifest).expect("the file is read");
        assert_eq!(read.component().expect("it is a plugin").digest, digests[0]);
    }
}
