//! Signatures of components that were built on this machine. The signature is in the file `FILE.minisig` next to the
//! component. The signature must be made with a key that the agent trusts for the namespace [`LOCAL_NAMESPACE`].

use crate::error::RegistryError;
use crate::files::read_if_exists;
use crate::keys::PublicKey;
use crate::lock::LockedPlugin;
use crate::signature::{Claims, MAX_SIGNATURE_BYTES};
use crate::trust::{LOCAL_NAMESPACE, Signer, Trust};
use agent_plugins::{PluginIdentity, read_claims, write_file_atomically};
use std::path::{Path, PathBuf};

/// Returns the path of the signature file that belongs to a component.
pub fn signature_path(component: &Path) -> PathBuf {
    let mut name = component.as_os_str().to_owned();
    name.push(".minisig");
    PathBuf::from(name)
}

/// Reads the signature next to a component. Returns an empty list if there is no signature.
pub fn local_signatures(component: &Path) -> Result<Vec<String>, RegistryError> {
    let path = signature_path(component);
    let Some(bytes) = read_if_exists(&path, MAX_SIGNATURE_BYTES)? else { return Ok(Vec::new()) };
    let text = String::from_utf8(bytes);
    let text = text.map_err(|error| RegistryError::file(path, "read", std::io::Error::other(error)))?;
    Ok(vec![text])
}

/// Writes a signature next to its component and returns the signature's path.
pub fn write_local_signature(component: &Path, signature: &str) -> Result<PathBuf, RegistryError> {
    let path = signature_path(component);
    write_file_atomically(&path, signature.as_bytes())
        .map_err(|source| RegistryError::file(&path, "written", source))?;
    Ok(path)
}

/// Returns the claims that the signature of a component built on this machine must contain: the name and the version
/// from the component's manifest.
pub fn local_claims(stem: &str, component: &[u8]) -> Result<Claims, RegistryError> {
    let found = read_claims(stem, component).map_err(|error| RegistryError::Signature {
        place: LOCAL_NAMESPACE.to_owned(),
        reason: format!("`{stem}` cannot be signed: {error}"),
    })?;
    let version = found.manifest.map(|manifest| manifest.version).unwrap_or_default();
    Ok(Claims { name: found.identity.name, version, ..Claims::default() })
}

impl Trust {
    /// Checks a local file before it is added to the lock file. If the policy requires signatures, a file without the
    /// signature of a trusted key is an error. Otherwise, only a signature next to the file is checked: the result says
    /// if no trusted key made it, and a signature of a trusted key that does not match is an error.
    pub fn verify_file(&self, file: &Path, component: &[u8], plugin: &PluginIdentity) -> Result<Signer, RegistryError> {
        if !self.requires_signature() {
            return self.verify_present_signature(file, component);
        }
        let signed = verify_local(file, plugin, component, self)
            .map_err(|reason| RegistryError::Signature { place: file.display().to_string(), reason })?;
        let signed = signed.and_then(|signed| Some((PublicKey::parse(&signed.signer?).ok()?, signed.signature?)));
        Ok(match signed {
            Some((key, signature)) => Signer::Trusted { key, signature },
            None => Signer::Untrusted { reason: String::new() },
        })
    }

    /// Checks the signature next to a file, if there is one.
    fn verify_present_signature(&self, file: &Path, component: &[u8]) -> Result<Signer, RegistryError> {
        let signatures = if self.checks_signatures() { local_signatures(file)? } else { Vec::new() };
        if signatures.is_empty() {
            return Ok(Signer::Untrusted { reason: String::new() });
        }
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        self.verify(LOCAL_NAMESPACE, component, &local_claims(stem, component)?, &signatures)
    }
}

/// Checks whether a component without an entry in the lock file may be loaded if signatures are required. If a trusted
/// key signed the component, returns an entry that proves the origin of the component and must be stored with the
/// component. If the agent's own configuration accepts the component without a signature, returns `None`.
pub(crate) fn verify_local(
    file: &Path,
    plugin: &PluginIdentity,
    component: &[u8],
    trust: &Trust,
) -> Result<Option<LockedPlugin>, String> {
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    // An exception for a name applies only to the file with that name, so that a file with another name cannot use the
    // exception by claiming the plugin's name in its manifest.
    if trust.allows_digest(&plugin.digest) || (stem == plugin.name && trust.allows_local(plugin)) {
        return Ok(None);
    }
    let signatures = local_signatures(file).map_err(|error| error.to_string())?;
    if signatures.is_empty() {
        return Err(unsigned_reason(file));
    }
    let claims = local_claims(stem, component).map_err(|error| error.to_string())?;
    let signer = trust.verify(LOCAL_NAMESPACE, component, &claims, &signatures).map_err(|error| error.to_string())?;
    let Signer::Trusted { key, signature } = signer else { return Err(unsigned_reason(file)) };
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

fn unsigned_reason(file: &Path) -> String {
    format!(
        "it is not signed, but [sharing] has `signatures = \"required\"`: sign it with `agent-host plugin sign {} --key KEY` and trust \
         that key as `{LOCAL_NAMESPACE}` in [sharing.trusted_keys], or list its name or digest in `unsigned` of [sharing]",
        file.display()
    )
}

/// Returns the reason why an unsigned component that exists only in the plugin store may not be loaded.
pub(crate) fn unsigned_in_store_reason(plugin: &PluginIdentity) -> String {
    format!(
        "it is not signed, but [sharing] has `signatures = \"required\"`: list `{}` or its digest ({}) in `unsigned` of [sharing], or \
         load it again with a signature",
        plugin.name, plugin.digest
    )
}
