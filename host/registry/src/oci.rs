//! Documents of the OCI image specification that are needed for plugins. Plugins are stored as OCI artifacts in the
//! CNCF's Wasm format.

use agent_core::message::Digest;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

pub(crate) const MANIFEST_TYPE: &str = "application/vnd.oci.image.manifest.v1+json";
pub(crate) const INDEX_TYPE: &str = "application/vnd.oci.image.index.v1+json";
pub(crate) const CONFIG_TYPE: &str = "application/vnd.wasm.config.v0+json";
pub(crate) const WASM_TYPE: &str = "application/wasm";
pub(crate) const EMPTY_TYPE: &str = "application/vnd.oci.empty.v1+json";
/// Content of the empty blob. An OCI artifact that has no config or no content refers to this blob instead.
pub(crate) const EMPTY: &[u8] = b"{}";

/// Media types of layers that contain a component: the current media type, and the media types that older tools write.
const WASM_TYPES: &[&str] = &[
    WASM_TYPE,
    "application/vnd.wasm.content.layer.v1+wasm",
    "application/vnd.module.wasm.content.layer.v1+wasm",
    "application/vnd.bytecodealliance.wasm.component.layer.v0+wasm",
];
/// Media types of the config of an artifact that contains a component.
const CONFIG_TYPES: &[&str] = &[
    CONFIG_TYPE,
    EMPTY_TYPE,
    "application/vnd.wasm.config.v1+json",
    "application/vnd.bytecodealliance.component.config.v1+json",
];

pub(crate) const TITLE: &str = "org.opencontainers.image.title";
pub(crate) const VERSION: &str = "org.opencontainers.image.version";
pub(crate) const DESCRIPTION: &str = "org.opencontainers.image.description";
/// Name of the annotation that contains the kinds of the plugin, separated by commas. The command `plugin list` shows
/// these kinds.
pub(crate) const KINDS: &str = "host.agent.plugin.kinds";

/// A reference to content in a registry, which identifies the content by its digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Descriptor {
    pub(crate) media_type: String,
    pub(crate) digest: Digest,
    pub(crate) size: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifact_type: Option<String>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Descriptor {
    pub(crate) fn of(media_type: &str, bytes: &[u8]) -> Self {
        Self {
            media_type: media_type.to_owned(),
            digest: agent_plugins::digest_of(bytes),
            size: bytes.len() as u64,
            artifact_type: None,
            annotations: BTreeMap::new(),
        }
    }
}

/// An image manifest, which refers to a config and to layers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Manifest {
    pub(crate) schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) media_type: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) artifact_type: Option<String>,
    pub(crate) config: Descriptor,
    #[serde(default)]
    pub(crate) layers: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) subject: Option<Descriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Manifest {
    pub(crate) fn new(config: Descriptor, layers: Vec<Descriptor>) -> Self {
        Self {
            schema_version: 2,
            media_type: Some(MANIFEST_TYPE.to_owned()),
            artifact_type: None,
            config,
            layers,
            subject: None,
            annotations: BTreeMap::new(),
        }
    }

    /// Returns the layer that contains the component. If the artifact is not a plugin, the error describes the
    /// artifact's content.
    pub(crate) fn component(&self) -> Result<&Descriptor, String> {
        let is_wasm = |layer: &&Descriptor| WASM_TYPES.contains(&layer.media_type.as_str());
        let components: Vec<_> = self.layers.iter().filter(is_wasm).collect();
        let config = self.config.media_type.as_str();
        if config == "application/vnd.oci.image.config.v1+json" || config.starts_with("application/vnd.docker.") {
            return Err(
                "it is a container image; a plugin is a WebAssembly component, which `plugin push` uploads".to_owned()
            );
        }
        match components.as_slice() {
            [component] if self.layers.len() == 1 => {
                if !CONFIG_TYPES.contains(&config) {
                    let config = crate::error::display_text(config);
                    return Err(format!(
                        "its config has the media type `{config}`, but the config of a component has `{CONFIG_TYPE}`; push it with \
                         `plugin push` or another tool that writes wasm artifacts"
                    ));
                }
                Ok(component)
            }
            [] => {
                let types: Vec<_> =
                    self.layers.iter().map(|layer| crate::error::display_text(&layer.media_type)).take(4).collect();
                let types = if types.is_empty() { "no content".to_owned() } else { types.join(", ") };
                Err(format!("it contains {types}, but a component has the media type `{WASM_TYPE}`"))
            }
            _ => Err(format!("it has {} layers, but a plugin has exactly one", self.layers.len())),
        }
    }
}

/// An image index, which is a list of manifests.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Index {
    pub(crate) schema_version: u32,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) media_type: Option<String>,
    #[serde(default)]
    pub(crate) manifests: Vec<Descriptor>,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) annotations: BTreeMap<String, String>,
}

impl Index {
    pub(crate) fn of(manifests: Vec<Descriptor>) -> Self {
        let media_type = Some(INDEX_TYPE.to_owned());
        Self { schema_version: 2, media_type, manifests, annotations: BTreeMap::new() }
    }
}

/// The config of a wasm artifact. The fields are in the order in which `oci-wasm` writes them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct WasmConfig {
    pub(crate) created: String,
    pub(crate) author: Option<String>,
    pub(crate) architecture: String,
    pub(crate) os: String,
    pub(crate) layer_digests: Vec<Digest>,
    pub(crate) component: Option<WasmInterfaces>,
}

/// Names of the interfaces that a component exports and of those that it imports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct WasmInterfaces {
    pub(crate) exports: Vec<String>,
    pub(crate) imports: Vec<String>,
    pub(crate) target: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn manifest(config: &str, layers: &[&str]) -> Manifest {
        let layers = layers.iter().map(|media_type| Descriptor::of(media_type, b"x")).collect();
        Manifest::new(Descriptor::of(config, EMPTY), layers)
    }

    // P11: artifacts that other tools created can be loaded. If an artifact is not a plugin, the error describes the
    // content of the artifact.
    #[test]
    fn error_describes_the_content_of_other_artifacts() {
        for config in CONFIG_TYPES {
            for layer in WASM_TYPES {
                assert!(manifest(config, &[layer]).component().is_ok(), "{config} {layer}");
            }
        }
        for (config, layers, message) in [
            (
                "application/vnd.oci.image.config.v1+json",
                &["application/vnd.oci.image.layer.v1.tar+gzip"][..],
                "a container image",
            ),
            ("application/vnd.docker.container.image.v1+json", &[WASM_TYPE], "a container image"),
            ("application/vnd.unknown.config.v1+json", &[WASM_TYPE], "`application/vnd.unknown.config.v1+json`"),
            (CONFIG_TYPE, &["text/plain"], "it contains text/plain"),
            (CONFIG_TYPE, &[], "no content"),
            (CONFIG_TYPE, &[WASM_TYPE, WASM_TYPE], "2 layers"),
        ] {
            let error = manifest(config, layers).component().expect_err(message);
            assert!(error.contains(message), "{error}");
        }
    }
}
