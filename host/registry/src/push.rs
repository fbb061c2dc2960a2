//! From a component to an artifact of a registry, in the layout of the CNCF's wasm OCI artifact.

use crate::error::ShareError;
use crate::oci::{
    CONFIG_TYPE, DESCRIPTION, Descriptor, KINDS, MANIFEST_TYPE, Manifest, TITLE, VERSION, WASM_TYPE, WasmConfig,
    WasmInterfaces,
};
use crate::reference::{Reference, tag_of_version};
use crate::registry::{Access, Registry};
use crate::signature::Claims;
use agent_core::message::Digest;
use bytes::Bytes;

/// What is said of a plugin where it is shared.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PluginFacts {
    /// Its name.
    pub name: String,
    /// Its version; empty where it has none.
    pub version: String,
    /// For people, one line.
    pub description: String,
    /// What it is, in the words of `plugin list`.
    pub kinds: Vec<String>,
    /// Names of its imports.
    pub imports: Vec<String>,
    /// Names of its exports.
    pub exports: Vec<String>,
}

/// When a component was made: no moment unless somebody says one, so that the same bytes make the same manifest.
pub const NO_MOMENT: &str = "1970-01-01T00:00:00Z";

/// Whether a version that is there may become another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overwrite {
    /// It may not.
    Never,
    /// Somebody asked for it.
    Asked,
}

/// What was pushed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pushed {
    /// Where, with its tag.
    pub reference: Reference,
    /// Of the manifest.
    pub manifest: Digest,
    /// Bytes of the manifest.
    pub(crate) size: u64,
    /// Of the component.
    pub component: Digest,
    /// What was behind the tag before, if that was something else.
    pub instead_of: Option<Digest>,
    /// Whether exactly this was there already.
    pub was_there: bool,
}

impl Pushed {
    /// What its signature says.
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
    /// Pushes a component. Without a tag it goes under its version.
    pub async fn push(
        &self,
        reference: &Reference,
        facts: &PluginFacts,
        component: &[u8],
        created: &str,
        overwrite: Overwrite,
    ) -> Result<Pushed, ShareError> {
        let refused = |reason| ShareError::Reference { text: reference.to_string(), reason };
        if reference.digest().is_some() {
            return Err(refused("a digest is what comes of pushing"));
        }
        let version_tag = tag_of_version(&facts.version);
        let tag = reference.tag().map(str::to_owned).or_else(|| version_tag.clone());
        let tag = tag.ok_or_else(|| refused("it has no tag, and the plugin has no version that could be one"))?;
        let reference = reference.with_tag(&tag);
        let repository = reference.repository();
        let config = serde_json::to_vec(&config(facts, component, created)).expect("texts are JSON");
        let manifest = serde_json::to_vec(&manifest(facts, &config, component)).expect("texts are JSON");
        let digest = agent_plugins::digest_of(&manifest);
        let before = self.stored((repository, Access::Push), &tag).await?.map(|stored| stored.digest);
        let pushed = Pushed {
            reference: reference.clone(),
            size: manifest.len() as u64,
            component: agent_plugins::digest_of(component),
            was_there: before.as_ref() == Some(&digest),
            instead_of: before.filter(|before| *before != digest),
            manifest: digest,
        };
        if pushed.was_there {
            return Ok(pushed);
        }
        if let Some(other) = pushed.instead_of.as_ref().filter(|_| version_tag.as_ref() == Some(&tag)) {
            let reason = format!(
                "this version is there already, as {}; raise `version` in plugin.toml, or replace it for all who have it: --overwrite",
                other.short()
            );
            if overwrite == Overwrite::Never {
                return Err(ShareError::Taken { place: reference.to_string(), reason });
            }
        }
        self.put_blob(repository, &Bytes::copy_from_slice(component)).await?;
        self.put_blob(repository, &Bytes::from(config)).await?;
        self.put(repository, &tag, (&manifest, MANIFEST_TYPE)).await?;
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
    // Under this name `oras pull` writes it.
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

    /// What `oci-wasm` 0.6.0 wrote of a component with these interfaces, into Debian's docker-registry 2.8 on 2026-11-22: read
    /// back key by key, the digests put in. Its own client took what is written here, byte for byte, of 27 components of five
    /// toolchains, and their configs differed in `created` alone.
    fn theirs(component: &Digest, size: usize, config: (&Digest, usize)) -> (Value, Value) {
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

    // P11: the layout is that of the CNCF's artifact as others write it; beyond it stand annotations, and no moment.
    #[test]
    fn the_layout_is_that_of_others() {
        let words = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        let facts = PluginFacts {
            name: "calc".to_owned(),
            version: "0.1.0".to_owned(),
            imports: words(&["agent-host:plugin/types@0.1.0", "wasi:io/poll@0.2.12", "wasi:io/error@0.2.12"]),
            exports: words(&["agent-host:plugin/tool@0.1.0"]),
            ..PluginFacts::default()
        };
        let bytes = b"component";
        let ours = serde_json::to_vec(&config(&facts, bytes, "2026-11-22T14:18:13.028954521Z")).expect("JSON");
        let digests = [agent_plugins::digest_of(bytes), agent_plugins::digest_of(&ours)];
        let (their_manifest, their_config) = theirs(&digests[0], bytes.len(), (&digests[1], ours.len()));
        assert_eq!(serde_json::from_slice::<Value>(&ours).expect("JSON"), their_config);
        // The config is compared as text, too: its digest is what the artifact is known by.
        assert!(String::from_utf8_lossy(&ours).starts_with(r#"{"created":"2026-11-22T14:18:13.028954521Z","author":null,"architecture":"wasm","os":"wasip2","layerDigests":["#));
        let mut manifest = serde_json::to_value(manifest(&facts, &ours, bytes)).expect("JSON");
        let named = json!({"org.opencontainers.image.title": "calc.wasm"});
        assert_eq!(manifest["layers"][0].as_object_mut().and_then(|layer| layer.remove("annotations")), Some(named));
        let titled = manifest["annotations"].as_object_mut().and_then(|all| all.remove(TITLE));
        assert_eq!(titled, Some(json!("calc")));
        assert_eq!(manifest, their_manifest);
        let read: Manifest = serde_json::from_value(their_manifest).expect("read");
        assert_eq!(read.component().expect("it is a plugin").digest, digests[0]);
    }
}
