//! Signatures of what was built on this machine: a file beside the component, `FILE.minisig`, by a key that the agent trusts
//! for [`LOCAL`].

use crate::error::ShareError;
use crate::files::read_if_there;
use crate::keys::PublicKey;
use crate::lock::LockedPlugin;
use crate::signature::{Claims, SIGNATURE_BYTES};
use crate::trust::{LOCAL, Signer, Trust};
use agent_plugins::{PluginIdentity, introduction, place_file};
use std::path::{Path, PathBuf};

/// The file with a component's signature.
pub fn sidecar(component: &Path) -> PathBuf {
    let mut name = component.as_os_str().to_owned();
    name.push(".minisig");
    PathBuf::from(name)
}

/// The signature beside a component, if there is one.
pub fn local_signatures(component: &Path) -> Result<Vec<String>, ShareError> {
    let path = sidecar(component);
    let Some(bytes) = read_if_there(&path, SIGNATURE_BYTES)? else { return Ok(Vec::new()) };
    let text = String::from_utf8(bytes);
    let text = text.map_err(|error| ShareError::file(path, "read", std::io::Error::other(error)))?;
    Ok(vec![text])
}

/// Puts a signature beside its component.
pub fn place_local_signature(component: &Path, signature: &str) -> Result<PathBuf, ShareError> {
    let path = sidecar(component);
    place_file(&path, signature.as_bytes()).map_err(|source| ShareError::file(&path, "written", source))?;
    Ok(path)
}

/// What a local signature says: the name and the version in the component's manifest.
pub fn local_claims(stem: &str, component: &[u8]) -> Result<Claims, ShareError> {
    let found = introduction(stem, component).map_err(|error| ShareError::Signature {
        place: LOCAL.to_owned(),
        reason: format!("`{stem}` cannot be signed: {error}"),
    })?;
    let version = found.manifest.map(|manifest| manifest.version).unwrap_or_default();
    Ok(Claims { name: found.identity.name, version, ..Claims::default() })
}

impl Trust {
    /// Judges a file of this machine that is about to be locked. Only where signatures are required does it need one.
    pub fn judge_file(&self, file: &Path, component: &[u8], plugin: &PluginIdentity) -> Result<Signer, ShareError> {
        if !self.requires() {
            return Ok(Signer::Nobody { because: String::new() });
        }
        let signed = judge_local(file, plugin, component, self)
            .map_err(|reason| ShareError::Signature { place: file.display().to_string(), reason })?;
        let signed = signed.and_then(|signed| Some((PublicKey::parse(&signed.signer?).ok()?, signed.signature?)));
        Ok(match signed {
            Some((key, signature)) => Signer::Trusted { key, signature },
            None => Signer::Nobody { because: String::new() },
        })
    }
}

/// Where signatures are required: whether a component that is not locked may serve. What vouches for it is kept beside it in the
/// plugin store, and is nothing for what the agent's own file allows.
pub(crate) fn judge_local(
    file: &Path,
    plugin: &PluginIdentity,
    component: &[u8],
    trust: &Trust,
) -> Result<Option<LockedPlugin>, String> {
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    // An allowance by name is for the file of that name: another file cannot take it by what its manifest says.
    if trust.allows_digest(&plugin.digest) || (stem == plugin.name && trust.allows_local(plugin)) {
        return Ok(None);
    }
    let signatures = local_signatures(file).map_err(|error| error.to_string())?;
    if signatures.is_empty() {
        return Err(unsigned(file));
    }
    let claims = local_claims(stem, component).map_err(|error| error.to_string())?;
    let signer = trust.judge(LOCAL, component, &claims, &signatures).map_err(|error| error.to_string())?;
    let Signer::Trusted { key, signature } = signer else { return Err(unsigned(file)) };
    Ok(Some(LockedPlugin {
        name: claims.name,
        version: claims.version,
        reference: std::path::absolute(file).unwrap_or_else(|_| file.to_owned()).display().to_string(),
        manifest: None,
        component: plugin.digest.clone(),
        signer: Some(key.to_string()),
        signature: Some(signature),
    }))
}

fn unsigned(file: &Path) -> String {
    format!(
        "it is not signed, and `signatures = \"required\"` in [sharing]: sign it with `agent-host plugin sign {} --key KEY` and trust \
         that key as `{LOCAL}` in [sharing.trusted_keys], or list its name or digest in `unsigned` of [sharing]",
        file.display()
    )
}

/// The same for what is only in the plugin store.
pub(crate) fn unsigned_in_store(plugin: &PluginIdentity) -> String {
    format!(
        "it is not signed, and `signatures = \"required\"` in [sharing]: list `{}` or its digest ({}) in `unsigned` of [sharing], or \
         load it again with a signature",
        plugin.name, plugin.digest
    )
}
