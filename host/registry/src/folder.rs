//! A plugin folder with its lock file. This module adds and removes plugins and compares their files with the
//! lock file.

use crate::error::RegistryError;
use crate::files::{MAX_COMPONENT_BYTES, read, read_if_exists};
use crate::local_signature::{unsigned_in_store_reason, verify_local};
use crate::lock::{LockFile, LockedPlugin, namespace_of};
use crate::reference::Source;
use crate::trust::{LOCAL_NAMESPACE, Signer, Trust};
use agent_core::message::Digest;
use agent_plugins::{
    ComponentVerifier, PluginIdentity, ReadComponent, digest_of, existing_manifest_file, read_claims,
    write_file_atomically,
};
use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Maximum time to wait for another process that changes the folder.
const MAX_LOCK_TIME: Duration = Duration::from_secs(30);
const LOCK_INTERVAL: Duration = Duration::from_millis(20);

/// A folder that contains plugins and a lock file.
#[derive(Clone, Debug)]
pub struct PluginFolder {
    path: PathBuf,
}

/// The existing files in the plugin folder that a new plugin may replace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReplacePolicy {
    /// Only a file that matches its entry in the lock file may be replaced.
    LockedFile,
    /// Any existing file may be replaced.
    AnyFile,
}

/// The state of a plugin in the lock file. The state is determined by comparing the plugin's file with its entry.
#[derive(Debug)]
pub enum PluginState {
    /// The file matches its entry in the lock file, and its signature, or the lack of a signature, is accepted.
    Valid(Signer),
    /// The plugin's file does not exist.
    Missing,
    /// The digest of the plugin's file differs from the digest in the lock file. The variant contains the digest of
    /// the file.
    Modified(Digest),
    /// The file matches its entry in the lock file, but its signature, or the lack of a signature, is not accepted.
    Untrusted(RegistryError),
    /// The plugin's file cannot be read.
    Unreadable(RegistryError),
}

impl PluginFolder {
    /// Creates a `PluginFolder` for the folder at this path. This function does not access the folder.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Returns the path of the folder.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Reads the folder's lock file.
    pub fn lock_file(&self) -> Result<LockFile, RegistryError> {
        LockFile::read(&self.path)
    }

    /// Returns the path of a plugin's file.
    pub fn file(&self, plugin: &LockedPlugin) -> PathBuf {
        self.path.join(plugin.file_name())
    }

    /// Checks whether the plugin may be added. Fails if a file with another name contains a plugin with the same plugin
    /// name. Unless `replace` allows any file to be replaced, this function also fails if the plugin would replace a
    /// file that has no entry in the lock file or differs from its entry.
    pub fn check_replaceable(&self, plugin: &LockedPlugin, replace: ReplacePolicy) -> Result<(), RegistryError> {
        let path = self.file(plugin);
        self.refuse_duplicate_name(plugin)?;
        if replace == ReplacePolicy::AnyFile {
            return Ok(());
        }
        let Some(existing) = read_if_exists(&path, MAX_COMPONENT_BYTES)?.map(|bytes| digest_of(&bytes)) else {
            return refuse_manifest_file(&path);
        };
        let lock = self.lock_file()?;
        let locked = lock.plugin(&plugin.name).map(|locked| &locked.component);
        if existing == plugin.component || locked == Some(&existing) {
            return Ok(());
        }
        let reason = match locked {
            None => "it has no entry in the lock file, so it was built or copied here; use --replace to replace it",
            Some(_) => "it differs from its entry in the lock file; use --replace to discard the changes",
        };
        Err(RegistryError::Conflict { place: path.display().to_string(), reason: reason.to_owned() })
    }

    /// Fails if a file with another name contains a plugin with the same plugin name. Each plugin name must be unique
    /// in a folder, because grants are given to plugin names.
    pub(crate) fn refuse_duplicate_name(&self, plugin: &LockedPlugin) -> Result<(), RegistryError> {
        let own = self.file(plugin);
        let entries =
            std::fs::read_dir(&self.path).map_err(|source| RegistryError::file(&self.path, "read", source))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            let is_component = path.extension().is_some_and(|extension| extension == "wasm");
            if !is_component || path == own {
                continue;
            }
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            // Ignore a file that cannot be read, because it cannot be loaded as a plugin.
            let Ok(bytes) = read(&path, MAX_COMPONENT_BYTES) else { continue };
            if read_claims(&stem, &bytes).is_ok_and(|other| other.identity.name == plugin.name) {
                let reason = format!(
                    "this file already contains the plugin `{}`; move it away to let the new plugin use the grants of that name",
                    plugin.name
                );
                return Err(RegistryError::Conflict { place: path.display().to_string(), reason });
            }
        }
        Ok(())
    }

    /// Adds a plugin to the lock file, and then writes the plugin's file. Each of the two files is replaced atomically.
    /// The lock file is written first, because a running session loads the new file only if the lock file describes
    /// that file.
    pub fn install(
        &self,
        plugin: LockedPlugin,
        component: &[u8],
        replace: ReplacePolicy,
    ) -> Result<PathBuf, RegistryError> {
        std::fs::create_dir_all(&self.path).map_err(|source| RegistryError::file(&self.path, "created", source))?;
        let _lock = self.lock_folder()?;
        self.check_replaceable(&plugin, replace)?;
        let path = self.file(&plugin);
        let mut lock = self.lock_file()?;
        // A component that was built here keeps its manifest in a file beside it.
        let is_present = Self::has_digest(&path, &plugin.component);
        lock.set(plugin);
        write(&LockFile::path(&self.path), lock.to_text(&self.path).as_bytes())?;
        if !is_present {
            // The manifest file belonged to the component that is replaced: the new component contains its own manifest.
            remove_manifest_file(&path)?;
            write(&path, component)?;
        }
        Ok(path)
    }

    /// Removes a plugin from the lock file and, if requested, deletes the plugin's file. If the file should be deleted
    /// but differs from its entry, nothing is removed, and an error is returned.
    pub fn remove(&self, name: &str, file: RemoveMode) -> Result<LockedPlugin, RegistryError> {
        let _lock = self.lock_folder()?;
        let mut lock = self.lock_file()?;
        let Some(plugin) = lock.take(name) else {
            let names: Vec<_> = lock.plugins().iter().map(|plugin| plugin.name.as_str()).collect();
            let advice = match names.as_slice() {
                [] => format!(": {} lists no plugins", LockFile::path(&self.path).display()),
                names => format!("; the lock file lists: {}", names.join(", ")),
            };
            return Err(RegistryError::NotFound { place: format!("the plugin `{name}`"), advice });
        };
        let path = self.file(&plugin);
        if file == RemoveMode::EntryAndFile {
            let existing = read_if_exists(&path, MAX_COMPONENT_BYTES)?.map(|bytes| digest_of(&bytes));
            if existing.is_some_and(|existing| existing != plugin.component) {
                let reason = "it differs from its entry in the lock file; use --keep-file to remove only that entry and keep the file";
                return Err(RegistryError::Conflict { place: path.display().to_string(), reason: reason.to_owned() });
            }
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(RegistryError::file(path, "removed", error));
                }
                _ => remove_manifest_file(&path)?,
            }
        }
        write(&LockFile::path(&self.path), lock.to_text(&self.path).as_bytes())?;
        Ok(plugin)
    }

    /// Whether the component at `path`, together with the manifest file beside it, has this digest.
    fn has_digest(path: &Path, digest: &Digest) -> bool {
        read(path, MAX_COMPONENT_BYTES).is_ok_and(|bytes| digest_of(&bytes) == *digest)
    }

    /// Determines the state of a plugin that the lock file lists. The check reads only local files.
    pub fn state(&self, plugin: &LockedPlugin, trust: &Trust) -> PluginState {
        let path = self.file(plugin);
        let bytes = match read_if_exists(&path, MAX_COMPONENT_BYTES) {
            Ok(None) => return PluginState::Missing,
            Err(error) => return PluginState::Unreadable(error),
            Ok(Some(bytes)) => bytes,
        };
        let found = digest_of(&bytes);
        if found != plugin.component {
            return PluginState::Modified(found);
        }
        match verify_locked(plugin, &bytes, trust) {
            Ok(signer) => PluginState::Valid(signer),
            Err(error) => PluginState::Untrusted(error),
        }
    }

    /// Checks whether a file without an entry in the lock file may be loaded. If the file may not be loaded, the error
    /// contains the reason.
    pub fn check_unlocked(&self, path: &Path, trust: &Trust) -> Result<(), String> {
        if !trust.requires_signature() {
            return Ok(());
        }
        let bytes = read(path, MAX_COMPONENT_BYTES).map_err(|error| error.to_string())?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let found = read_claims(&stem, &bytes).map_err(|error| error.to_string())?;
        verify_local(path, &found.identity, &bytes, trust).map(drop)
    }

    /// Locks the folder, so that two commands for the same folder run one after the other. Waits for up to 30 seconds.
    pub(crate) fn lock_folder(&self) -> Result<Option<File>, RegistryError> {
        // Some operating systems cannot open a folder like a file. The folder is not locked on these systems, so if two
        // commands run at the same time, the changes of one command can be lost.
        let Ok(folder) = File::open(&self.path) else { return Ok(None) };
        let begun = Instant::now();
        let failed = |source| RegistryError::file(&self.path, "locked", source);
        loop {
            match folder.try_lock() {
                Ok(()) => return Ok(Some(folder)),
                Err(TryLockError::WouldBlock) if begun.elapsed() < MAX_LOCK_TIME => std::thread::sleep(LOCK_INTERVAL),
                Err(TryLockError::WouldBlock) => {
                    return Err(failed(io::Error::other("another process has locked it for too long")));
                }
                Err(TryLockError::Error(source)) => return Err(failed(source)),
            }
        }
    }
}

/// Whether removing a plugin removes only the plugin's entry in the lock file, or the entry and the plugin's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemoveMode {
    /// Removes the entry in the lock file and the plugin's file.
    EntryAndFile,
    /// Removes only the entry in the lock file, and keeps the plugin's file.
    EntryOnly,
}

/// Checks the component of a plugin in the lock file. If the component needs a signature, the signature in the plugin's
/// entry is checked.
fn verify_locked(plugin: &LockedPlugin, component: &[u8], trust: &Trust) -> Result<Signer, RegistryError> {
    let identity = PluginIdentity { name: plugin.name.clone(), digest: plugin.component.clone() };
    let allowed = || Ok(Signer::Untrusted { reason: "it is listed in `unsigned` of [sharing]".to_owned() });
    let verify = |place: &str| match &plugin.signature {
        Some(signature) => trust.verify(place, component, &plugin.claims(), std::slice::from_ref(signature)),
        None => trust
            .verify(place, component, &plugin.claims(), &[])
            .map_err(|error| explain_missing_signature(plugin, error)),
    };
    match namespace_of(&plugin.source()?) {
        Some(_) if trust.requires_signature() && trust.allows_digest(&plugin.component) => allowed(),
        Some(place) => verify(&place),
        None if !trust.requires_signature() => {
            Ok(Signer::Untrusted { reason: "it comes from a file on this machine".to_owned() })
        }
        None if trust.allows_local(&identity) => allowed(),
        None => verify(LOCAL_NAMESPACE),
    }
}

/// Adds to the error for an entry without a signature how the entry gets one. The entry has none if the plugin was added
/// before its key was trusted.
fn explain_missing_signature(plugin: &LockedPlugin, error: RegistryError) -> RegistryError {
    match error {
        RegistryError::Signature { place, reason } => {
            let advice = format!(
                "if a trusted key has signed it, `agent-host plugin add --replace {}` adds the signature to plugins.lock",
                plugin.reference
            );
            RegistryError::Signature { place, reason: format!("{reason}; {advice}") }
        }
        error => error,
    }
}

/// Fails if there is a manifest file beside the place of a new component.
pub(crate) fn refuse_manifest_file(component: &Path) -> Result<(), RegistryError> {
    let Some(manifest) = existing_manifest_file(component) else { return Ok(()) };
    let reason = "it would change the manifest of the new plugin; move it away, or use --replace to delete it";
    Err(RegistryError::Conflict { place: manifest.display().to_string(), reason: reason.to_owned() })
}

/// Deletes the manifest file beside a component, if there is one.
pub(crate) fn remove_manifest_file(component: &Path) -> Result<(), RegistryError> {
    match existing_manifest_file(component) {
        Some(file) => std::fs::remove_file(&file).map_err(|source| RegistryError::file(file, "removed", source)),
        None => Ok(()),
    }
}

pub(crate) fn write(path: &Path, bytes: &[u8]) -> Result<(), RegistryError> {
    write_file_atomically(path, bytes).map_err(|source| RegistryError::file(path, "written", source))
}

/// Checks plugins when they are loaded. If the lock file has an entry for the name of the file or the name of the
/// plugin, the file must match the entry and, if the policy requires signatures, must have a signature. A file without
/// an entry is loaded if the policy does not require signatures. If the policy requires signatures, such a file needs a
/// signature by a key for local builds, or an exception in the agent's own configuration.
#[derive(Clone, Debug, Default)]
pub struct LockFileVerifier {
    /// The signature policy and the trusted keys.
    pub trust: Trust,
}

impl LockFileVerifier {
    fn verify(&self, locked: &LockedPlugin, component: &ReadComponent<'_>) -> Result<(), String> {
        if !self.trust.checks_signatures() {
            return Ok(());
        }
        let component = component().map_err(|error| format!("it cannot be read: {error}"))?;
        verify_locked(locked, &component, &self.trust).map(drop).map_err(|error| error.to_string())
    }
}

impl ComponentVerifier for LockFileVerifier {
    fn verify_file(
        &self,
        file: &Path,
        plugin: &PluginIdentity,
        component: &ReadComponent<'_>,
    ) -> Result<Option<String>, String> {
        let mut origin_entry = None;
        let folder = file.parent().unwrap_or(Path::new("."));
        let lock = LockFile::read(folder).map_err(|error| error.to_string())?;
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        for locked in [plugin.name.as_str(), stem].iter().filter_map(|name| lock.plugin(name)) {
            if locked.component != plugin.digest {
                return Err(format!(
                    "it is not the locked file: {} locks `{}` to the digest {} from {}, but this file has the digest {}; \
                     `agent-host plugin add --replace --plugins {folder}` restores the locked file, \
                     `agent-host plugin remove {} --keep-file --plugins {folder}` accepts this file",
                    LockFile::path(folder).display(),
                    locked.name,
                    locked.component.short(),
                    locked.reference,
                    plugin.digest.short(),
                    locked.name,
                    folder = folder.display(),
                ));
            }
            self.verify(locked, component)?;
            // A signature or an exception is valid only for the plugin name in the lock file, because a plugin with
            // another name would get other grants.
            if locked.name != plugin.name {
                return Err(format!(
                    "it contains the plugin `{}`, but {} locks this file as `{}`: rename the file to `{}.wasm`, or remove that entry \
                     from the lock file",
                    plugin.name,
                    LockFile::path(folder).display(),
                    locked.name,
                    plugin.name
                ));
            }
            origin_entry = Some(locked.origin_entry());
        }
        if origin_entry.is_some() || !self.trust.requires_signature() {
            return Ok(origin_entry);
        }
        let component = component().map_err(|error| format!("it cannot be read: {error}"))?;
        let signed = verify_local(file, plugin, &component, &self.trust)?;
        Ok(signed.map(|signed| signed.origin_entry()))
    }

    fn verify_stored(
        &self,
        origin_entry: Option<&str>,
        plugin: &PluginIdentity,
        component: &ReadComponent<'_>,
    ) -> Result<(), String> {
        let entries = origin_entry
            .map(LockFile::parse_origin_entries)
            .transpose()
            .map_err(|error| error.to_string())?
            .unwrap_or_default();
        let mut refused = None;
        // An entry vouches only for its own name, because a plugin with another name would get other grants.
        let is_for_plugin = |locked: &&LockedPlugin| locked.component == plugin.digest && locked.name == plugin.name;
        for locked in entries.iter().filter(is_for_plugin) {
            match self.verify(locked, component) {
                Ok(()) => return Ok(()),
                Err(reason) => refused = Some(reason),
            }
        }
        match refused {
            Some(reason) => Err(reason),
            None if self.trust.requires_signature() && !self.trust.allows_local(plugin) => {
                Err(unsigned_in_store_reason(plugin))
            }
            None => Ok(()),
        }
    }

    fn shared_statements(&self, vouched: &str) -> Option<String> {
        let entries = LockFile::parse_origin_entries(vouched).unwrap_or_default();
        let in_registry = |entry: &&LockedPlugin| matches!(entry.source(), Ok(Source::Registry(_)));
        let shared: String = entries.iter().filter(in_registry).map(LockedPlugin::origin_entry).collect();
        Some(shared).filter(|shared| !shared.is_empty())
    }

    fn lock_file(&self) -> &'static str {
        crate::lock::LOCK_FILE
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    fn plugin(name: &str, component: &[u8]) -> LockedPlugin {
        LockedPlugin {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            reference: format!("registry.example/team/{name}:1"),
            manifest: Some(digest_of(b"manifest")),
            component: digest_of(component),
            signer: None,
            signature: None,
        }
    }

    fn identity(name: &str, component: &[u8]) -> PluginIdentity {
        PluginIdentity { name: name.to_owned(), digest: digest_of(component) }
    }

    // P11: a file is replaced only if the caller requests this, and a file is removed only if it matches the lock file.
    #[test]
    fn local_files_are_not_replaced_or_removed() {
        let directory = tempfile::tempdir().expect("the directory is created");
        let folder = PluginFolder::new(directory.path());
        let file = directory.path().join("calc.wasm");
        std::fs::write(&file, b"built here").expect("the file is written");
        let error = folder
            .install(plugin("calc", b"one"), b"one", ReplacePolicy::LockedFile)
            .expect_err("it is refused")
            .to_string();
        assert!(error.contains("no entry in the lock file") && error.contains("--replace"), "{error}");
        assert_eq!(std::fs::read(&file).expect("it exists"), b"built here");
        assert_eq!(folder.lock_file().expect("a missing lock file is read as empty").plugins(), []);

        folder.install(plugin("calc", b"one"), b"one", ReplacePolicy::AnyFile).expect("the plugin is installed");
        folder.install(plugin("calc", b"two"), b"two", ReplacePolicy::LockedFile).expect("a locked file is replaced");
        assert_eq!(std::fs::read(&file).expect("it exists"), b"two");
        std::fs::write(&file, b"changed").expect("the file is written");
        let error = folder
            .install(plugin("calc", b"three"), b"three", ReplacePolicy::LockedFile)
            .expect_err("it is refused")
            .to_string();
        assert!(error.contains("differs from its entry"), "{error}");
        assert!(
            folder
                .remove("calc", RemoveMode::EntryAndFile)
                .expect_err("it is refused")
                .to_string()
                .contains("--keep-file")
        );
        folder.remove("calc", RemoveMode::EntryOnly).expect("the entry is removed");
        assert_eq!(std::fs::read(&file).expect("it exists"), b"changed");
        assert!(
            folder
                .remove("calc", RemoveMode::EntryAndFile)
                .expect_err("the plugin is not locked")
                .to_string()
                .contains("lists no plugin")
        );
        let names: Vec<_> = std::fs::read_dir(directory.path())
            .expect("the file is read")
            .map(|entry| entry.expect("the entry is read").file_name())
            .collect();
        assert_eq!(names.len(), 2, "no temporary files remain: {names:?}");
    }

    // Row 23: a file that differs from its entry in the lock file is not loaded, regardless of the file's name. A file
    // without an entry in the lock file is loaded.
    #[test]
    fn modified_locked_plugin_is_refused() {
        let directory = tempfile::tempdir().expect("the directory is created");
        let folder = PluginFolder::new(directory.path());
        folder.install(plugin("calc", b"one"), b"one", ReplacePolicy::LockedFile).expect("the plugin is installed");
        let vet = |file: &str, name: &str, component: &[u8]| {
            let read = || Ok(Arc::new(component.to_vec()));
            LockFileVerifier::default()
                .verify_file(&directory.path().join(file), &identity(name, component), &read)
                .map(drop)
        };
        assert_eq!(vet("calc.wasm", "calc", b"one"), Ok(()));
        assert_eq!(vet("mine.wasm", "mine", b"anything"), Ok(()));
        for (file, name) in [("calc.wasm", "calc"), ("renamed.wasm", "calc"), ("calc.wasm", "other")] {
            let error = vet(file, name, b"two").expect_err(name);
            assert!(error.contains("locks `calc`") && error.contains("plugin add --replace"), "{error}");
        }
        std::fs::write(LockFile::path(directory.path()), "<<<<<<< ours\n").expect("the file is written");
        assert!(
            vet("mine.wasm", "mine", b"anything").expect_err("the lock file is invalid").contains("plugins.lock:1")
        );
    }

    // P10, P11: a component in the store is checked against the lock entry that was stored with it, even if the lock
    // file was changed later.
    #[test]
    fn stored_component_is_verified_by_its_origin_entry() {
        let directory = tempfile::tempdir().expect("the directory is created");
        let folder = PluginFolder::new(directory.path());
        let file =
            folder.install(plugin("calc", b"one"), b"one", ReplacePolicy::LockedFile).expect("the plugin is installed");
        let read = || Ok(Arc::new(b"one".to_vec()));
        let identity = identity("calc", b"one");
        let origin_entry = LockFileVerifier::default()
            .verify_file(&file, &identity, &read)
            .expect("the plugin may be loaded")
            .expect("it is locked");
        assert_eq!(
            LockFileVerifier::default().verify_file(
                &directory.path().join("mine.wasm"),
                &super::tests::identity("mine", b"x"),
                &read
            ),
            Ok(None)
        );
        assert_eq!(LockFileVerifier::default().verify_stored(Some(&origin_entry), &identity, &read), Ok(()));
        let strict = LockFileVerifier { trust: Trust { policy: crate::SignaturePolicy::Required, ..Trust::default() } };
        let refused = strict.verify_stored(Some(&origin_entry), &identity, &read).expect_err("it is refused");
        assert!(refused.contains("registry.example/team/calc: it is not signed"), "{refused}");
        assert!(strict.verify_stored(Some("[[plugin"), &identity, &read).is_err(), "an unreadable entry is an error");
    }

    #[test]
    fn state_of_a_locked_plugin_is_determined() {
        let directory = tempfile::tempdir().expect("the directory is created");
        let folder = PluginFolder::new(directory.path());
        let locked = plugin("calc", b"one");
        assert!(matches!(folder.state(&locked, &Trust::default()), PluginState::Missing));
        let file = folder.install(locked.clone(), b"one", ReplacePolicy::LockedFile).expect("the plugin is installed");
        assert!(matches!(folder.state(&locked, &Trust::default()), PluginState::Valid(Signer::Untrusted { .. })));
        let strict = Trust { policy: crate::SignaturePolicy::Required, ..Trust::default() };
        assert!(matches!(folder.state(&locked, &strict), PluginState::Untrusted(_)));
        std::fs::write(file, b"onf").expect("the file is changed");
        assert!(
            matches!(folder.state(&locked, &Trust::default()), PluginState::Modified(found) if found == digest_of(b"onf"))
        );
    }
}
