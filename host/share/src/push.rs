//! From a component to an artifact of a registry, in the layout of the CNCF's wasm OCI artifact; and its signature beside it.

use crate::error::ShareError;
use crate::oci::{
    CONFIG_TYPE, DESCRIPTION, Descriptor, EMPTY, EMPTY_TYPE, INDEX_TYPE, Index, KINDS, MANIFEST_TYPE, Manifest, TITLE,
    VERSION, WASM_TYPE, WasmConfig, WasmInterfaces,
};
use crate::reference::{Reference, Repository, tag_of_version};
use crate::registry::{Access, Registry};
use crate::signature::{Claims, SIGNATURE_BYTES};
use agent_core::message::Digest;
use bytes::Bytes;
use std::time::Duration;

/// What a signature is, in the registry.
pub(crate) const SIGNATURE_TYPE: &str = "application/vnd.agent-host.plugin.signature.v1";
/// The signature itself: minisign's four lines.
const MINISIG_TYPE: &str = "application/vnd.minisign.signature.v1";
/// Signatures of one artifact that are looked at.
const MOST_SIGNATURES: usize = 32;
/// Tries to get an entry into a list that others write, too.
const TRIES: u32 = 6;
const BETWEEN_TRIES: Duration = Duration::from_millis(100);

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

    /// Puts a signature beside what it signs: as an artifact that refers to it, and, where the registry keeps no list of
    /// those, in the list under the tag `sha256-…`.
    pub async fn attach_signature(&self, pushed: &Pushed, signature: &str) -> Result<(), ShareError> {
        let repository = pushed.reference.repository();
        let subject =
            Descriptor { digest: pushed.manifest.clone(), size: pushed.size, ..Descriptor::of(MANIFEST_TYPE, b"") };
        let layer = Descriptor::of(MINISIG_TYPE, signature.as_bytes());
        let mut manifest = Manifest::new(Descriptor::of(EMPTY_TYPE, EMPTY), vec![layer]);
        manifest.artifact_type = Some(SIGNATURE_TYPE.to_owned());
        manifest.subject = Some(subject);
        let bytes = serde_json::to_vec(&manifest).expect("texts are JSON");
        let entry =
            Descriptor { artifact_type: Some(SIGNATURE_TYPE.to_owned()), ..Descriptor::of(MANIFEST_TYPE, &bytes) };
        self.put_blob(repository, &Bytes::from_static(EMPTY)).await?;
        self.put_blob(repository, &Bytes::copy_from_slice(signature.as_bytes())).await?;
        self.put(repository, entry.digest.as_str(), (&bytes, MANIFEST_TYPE)).await?;
        let listed = self.referrers(repository, &pushed.manifest).await?;
        if listed.is_some_and(|index| index.manifests.iter().any(|other| other.digest == entry.digest)) {
            return Ok(());
        }
        self.list(repository, &fallback_tag(&pushed.manifest), entry).await
    }

    /// Adds to a list that anybody else may write at the same moment: it is read again until the entry stands in it.
    async fn list(&self, repository: &Repository, tag: &str, entry: Descriptor) -> Result<(), ShareError> {
        for number in 0..TRIES {
            let mut index =
                self.fallback((repository, Access::Push), tag).await?.unwrap_or_else(|| Index::of(Vec::new()));
            if index.manifests.iter().any(|other| other.digest == entry.digest) {
                return Ok(());
            }
            index.manifests.push(entry.clone());
            let bytes = serde_json::to_vec(&index).expect("texts are JSON");
            self.put(repository, tag, (&bytes, INDEX_TYPE)).await?;
            tokio::time::sleep(BETWEEN_TRIES * (number + 1)).await;
        }
        let place = format!("{repository}:{tag}");
        Err(ShareError::Server {
            place,
            said: "others write this list of signatures all the time; sign once more".to_owned(),
        })
    }

    /// The list under the fallback tag.
    async fn fallback(
        &self,
        (repository, access): (&Repository, Access),
        tag: &str,
    ) -> Result<Option<Index>, ShareError> {
        let Some(stored) = self.stored((repository, access), tag).await? else { return Ok(None) };
        let index: Option<Index> = serde_json::from_slice(&stored.bytes).ok();
        index.map(Some).ok_or_else(|| ShareError::Server {
            place: format!("{repository}:{tag}"),
            said: "what stands there is no list of artifacts".to_owned(),
        })
    }

    /// The signatures that stand beside an artifact. What cannot be read among them is none.
    pub(crate) async fn signatures(
        &self,
        repository: &Repository,
        subject: &Digest,
    ) -> Result<Vec<String>, ShareError> {
        let listed = self.referrers(repository, subject).await?.unwrap_or_else(|| Index::of(Vec::new()));
        let fallback = self.fallback((repository, Access::Pull), &fallback_tag(subject)).await.ok().flatten();
        let mut seen = Vec::new();
        let mut signatures = Vec::new();
        for entry in listed.manifests.iter().chain(fallback.iter().flat_map(|index| &index.manifests)) {
            let is_other = entry.artifact_type.as_deref().is_some_and(|kind| kind != SIGNATURE_TYPE);
            if is_other || seen.contains(&entry.digest) || seen.len() >= MOST_SIGNATURES {
                continue;
            }
            seen.push(entry.digest.clone());
            match self.signature(repository, subject, entry).await {
                Ok(signature) => signatures.extend(signature),
                Err(error) if error.is_offline() => return Err(error),
                Err(error) => tracing::warn!(%error, "a signature cannot be read"),
            }
        }
        Ok(signatures)
    }

    async fn signature(
        &self,
        repository: &Repository,
        subject: &Digest,
        entry: &Descriptor,
    ) -> Result<Option<String>, ShareError> {
        let Some(stored) = self.stored((repository, Access::Pull), entry.digest.as_str()).await? else {
            return Ok(None);
        };
        let Ok(manifest) = serde_json::from_slice::<Manifest>(&stored.bytes) else { return Ok(None) };
        let refers = manifest.subject.as_ref().is_some_and(|wanted| wanted.digest == *subject);
        let is_signature = manifest.artifact_type.as_deref() == Some(SIGNATURE_TYPE);
        let Some(layer) = manifest.layers.first().filter(|_| refers && is_signature) else { return Ok(None) };
        let bytes = self.blob(repository, layer, SIGNATURE_BYTES).await?;
        Ok(String::from_utf8(bytes.to_vec()).ok())
    }
}

/// `sha256-…`, as the distribution specification names the list of what refers to a digest.
fn fallback_tag(subject: &Digest) -> String {
    format!("sha256-{}", subject.hex())
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
