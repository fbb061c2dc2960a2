//! A folder of plugins with its lock file: putting plugins there, taking them away, and seeing whether they are what they
//! should be.

use crate::error::ShareError;
use crate::files::{LARGEST, read, read_if_there};
use crate::local::{judge_local, unsigned_in_store};
use crate::lock::{LockFile, LockedPlugin, place_of};
use crate::trust::{LOCAL, Signer, Trust};
use agent_core::message::Digest;
use agent_plugins::{PluginIdentity, ReadComponent, Vetting, digest_of, introduction, place_file};
use std::fs::File;
use std::path::{Path, PathBuf};

/// A folder of plugins.
#[derive(Clone, Debug)]
pub struct Folder {
    path: PathBuf,
}

/// What may stand in the way of a new file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replace {
    /// Only what the lock file says is there.
    Locked,
    /// Whatever there is.
    Anything,
}

/// How a locked plugin is.
#[derive(Debug)]
pub enum State {
    /// It is what the lock says.
    Right(Signer),
    /// Its file is not there.
    Missing,
    /// Its file is another one.
    Differs(Digest),
    /// Its signature does not count.
    Untrusted(ShareError),
    /// Its file cannot be read.
    Unreadable(ShareError),
}

impl Folder {
    /// One that is there.
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned() }
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What it has locked.
    pub fn lock_file(&self) -> Result<LockFile, ShareError> {
        LockFile::read(&self.path)
    }

    /// The file of a plugin.
    pub fn file(&self, plugin: &LockedPlugin) -> PathBuf {
        self.path.join(plugin.file_name())
    }

    /// Refuses where a file is in the way that nobody has locked, or that somebody has changed.
    pub fn make_way(&self, plugin: &LockedPlugin, replace: Replace) -> Result<(), ShareError> {
        let path = self.file(plugin);
        self.refuse_taken_name(plugin)?;
        let Some(there) = read_if_there(&path, LARGEST)?.map(|bytes| digest_of(&bytes)) else { return Ok(()) };
        let lock = self.lock_file()?;
        let locked = lock.plugin(&plugin.name).map(|locked| &locked.component);
        if replace == Replace::Anything || there == plugin.component || locked == Some(&there) {
            return Ok(());
        }
        let reason = match locked {
            None => "it is there and not locked: it was built or copied here; --replace puts the other in its place",
            Some(_) => "it was changed since it was locked; --replace gives that up",
        };
        Err(ShareError::Taken { place: path.display().to_string(), reason: reason.to_owned() })
    }

    /// Another file's plugin has its grants by its name, and two of one name are none.
    fn refuse_taken_name(&self, plugin: &LockedPlugin) -> Result<(), ShareError> {
        let own = self.file(plugin);
        let entries = std::fs::read_dir(&self.path).map_err(|source| ShareError::file(&self.path, "read", source))?;
        for path in entries.flatten().map(|entry| entry.path()) {
            let is_component = path.extension().is_some_and(|extension| extension == "wasm");
            if !is_component || path == own {
                continue;
            }
            let stem = path.file_stem().unwrap_or_default().to_string_lossy();
            // What cannot be read serves nobody.
            let Ok(bytes) = read(&path, LARGEST) else { continue };
            if introduction(&stem, &bytes).is_ok_and(|other| other.identity.name == plugin.name) {
                let reason = format!(
                    "it is the plugin `{}` already; move it away, and what its name is granted goes to the other",
                    plugin.name
                );
                return Err(ShareError::Taken { place: path.display().to_string(), reason });
            }
        }
        Ok(())
    }

    /// Locks a plugin and puts its file there, each whole or not at all. The lock goes first: a session that watches the
    /// folder takes the new file only where it is what the lock says.
    pub fn place(&self, plugin: LockedPlugin, component: &[u8], replace: Replace) -> Result<PathBuf, ShareError> {
        std::fs::create_dir_all(&self.path).map_err(|source| ShareError::file(&self.path, "made", source))?;
        let _alone = self.alone()?;
        self.make_way(&plugin, replace)?;
        let path = self.file(&plugin);
        let mut lock = self.lock_file()?;
        lock.set(plugin);
        write(&LockFile::path(&self.path), lock.to_text().as_bytes())?;
        write(&path, component)?;
        Ok(path)
    }

    /// Takes a plugin out of the lock, and its file away where it is still the one that was locked or may go all the same.
    pub fn remove(&self, name: &str, file: Removed) -> Result<LockedPlugin, ShareError> {
        let _alone = self.alone()?;
        let mut lock = self.lock_file()?;
        let Some(plugin) = lock.take(name) else {
            let names: Vec<_> = lock.plugins().iter().map(|plugin| plugin.name.as_str()).collect();
            let advice = match names.as_slice() {
                [] => format!(": {} locks no plugin", LockFile::path(&self.path).display()),
                names => format!("; locked are: {}", names.join(", ")),
            };
            return Err(ShareError::NotFound { place: format!("a locked plugin `{name}`"), advice });
        };
        let path = self.file(&plugin);
        if file == Removed::File {
            let there = read_if_there(&path, LARGEST)?.map(|bytes| digest_of(&bytes));
            if there.is_some_and(|there| there != plugin.component) {
                let reason = "it was changed since it was locked; --keep-file takes it out of the lock alone, and then it is yours";
                return Err(ShareError::Taken { place: path.display().to_string(), reason: reason.to_owned() });
            }
            match std::fs::remove_file(&path) {
                Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                    return Err(ShareError::file(path, "removed", error));
                }
                _ => {}
            }
        }
        write(&LockFile::path(&self.path), lock.to_text().as_bytes())?;
        Ok(plugin)
    }

    /// How a locked plugin is, by what is here alone.
    pub fn state(&self, plugin: &LockedPlugin, trust: &Trust) -> State {
        let path = self.file(plugin);
        let bytes = match read_if_there(&path, LARGEST) {
            Ok(None) => return State::Missing,
            Err(error) => return State::Unreadable(error),
            Ok(Some(bytes)) => bytes,
        };
        let found = digest_of(&bytes);
        if found != plugin.component {
            return State::Differs(found);
        }
        match judge(plugin, &bytes, trust) {
            Ok(signer) => State::Right(signer),
            Err(error) => State::Untrusted(error),
        }
    }

    /// Whether a file that is not locked may serve by this trust.
    pub fn unlocked_may_serve(&self, path: &Path, trust: &Trust) -> Result<(), String> {
        if !trust.requires() {
            return Ok(());
        }
        let bytes = read(path, LARGEST).map_err(|error| error.to_string())?;
        let stem = path.file_stem().unwrap_or_default().to_string_lossy();
        let found = introduction(&stem, &bytes).map_err(|error| error.to_string())?;
        judge_local(path, &found.identity, &bytes, trust).map(drop)
    }

    /// Two commands on one folder wait for each other.
    fn alone(&self) -> Result<Option<File>, ShareError> {
        // Where folders cannot be opened like files there is no such lock, and the last one wins.
        let Ok(folder) = File::open(&self.path) else { return Ok(None) };
        folder.lock().map_err(|source| ShareError::file(&self.path, "locked", source))?;
        Ok(Some(folder))
    }
}

/// What goes when a plugin is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    /// Its entry and its file.
    File,
    /// Its entry alone.
    EntryAlone,
}

/// Judges a locked plugin by the signature in the lock.
fn judge(plugin: &LockedPlugin, component: &[u8], trust: &Trust) -> Result<Signer, ShareError> {
    let identity = PluginIdentity { name: plugin.name.clone(), digest: plugin.component.clone() };
    let allowed = || Ok(Signer::Nobody { because: "it is listed in `unsigned` of [sharing]".to_owned() });
    match place_of(&plugin.source()?) {
        Some(_) if trust.requires() && trust.allows_digest(&plugin.component) => allowed(),
        Some(place) => trust.judge(&place, component, &plugin.claims(), plugin.signature.as_slice()),
        None if !trust.requires() => Ok(Signer::Nobody { because: "it is from a file of this machine".to_owned() }),
        None if trust.allows_local(&identity) => allowed(),
        None => trust.judge(LOCAL, component, &plugin.claims(), plugin.signature.as_slice()),
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<(), ShareError> {
    place_file(path, bytes).map_err(|source| ShareError::file(path, "written", source))
}

/// At load: a file whose plugin, or whose own name, is locked in its folder must be the one that is locked, signed as the
/// policy wants it. What is not locked is somebody's own: it loads, unless signatures are required. Then it needs one of a key
/// for local builds, or the explicit word of the agent's own file.
#[derive(Clone, Debug, Default)]
pub struct Locked {
    /// Whose signatures count.
    pub trust: Trust,
}

impl Locked {
    fn judge(&self, locked: &LockedPlugin, component: &ReadComponent<'_>) -> Result<(), String> {
        if !self.trust.looks() {
            return Ok(());
        }
        let component = component().map_err(|error| format!("it cannot be read: {error}"))?;
        judge(locked, &component, &self.trust).map(drop).map_err(|error| error.to_string())
    }
}

impl Vetting for Locked {
    fn vet(
        &self,
        file: &Path,
        plugin: &PluginIdentity,
        component: &ReadComponent<'_>,
    ) -> Result<Option<String>, String> {
        let mut vouched = None;
        let folder = file.parent().unwrap_or(Path::new("."));
        let lock = LockFile::read(folder).map_err(|error| error.to_string())?;
        let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
        for locked in [plugin.name.as_str(), stem].iter().filter_map(|name| lock.plugin(name)) {
            if locked.component != plugin.digest {
                return Err(format!(
                    "it is not the locked file: {} locks `{}` to {} of {}, and this file has {}; `agent-host plugin add --replace --plugins {folder}` puts the \
                     locked one back, `agent-host plugin remove {} --keep-file --plugins {folder}` lets this one serve",
                    LockFile::path(folder).display(),
                    locked.name,
                    locked.component.short(),
                    locked.reference,
                    plugin.digest.short(),
                    locked.name,
                    folder = folder.display(),
                ));
            }
            self.judge(locked, component)?;
            // A signature, and what `unsigned` allows, are about a name: another one would have other grants.
            if locked.name != plugin.name {
                return Err(format!(
                    "it is the plugin `{}`, and {} locks this file as `{}`: name the file `{}.wasm`, or take that entry out of the lock",
                    plugin.name,
                    LockFile::path(folder).display(),
                    locked.name,
                    plugin.name
                ));
            }
            vouched = Some(locked.voucher());
        }
        if vouched.is_some() || !self.trust.requires() {
            return Ok(vouched);
        }
        let component = component().map_err(|error| format!("it cannot be read: {error}"))?;
        let signed = judge_local(file, plugin, &component, &self.trust)?;
        Ok(signed.map(|signed| signed.voucher()))
    }

    fn vet_kept(
        &self,
        vouched: Option<&str>,
        plugin: &PluginIdentity,
        component: &ReadComponent<'_>,
    ) -> Result<(), String> {
        let came_as =
            vouched.map(LockFile::vouched).transpose().map_err(|error| error.to_string())?.unwrap_or_default();
        let mut refused = None;
        for locked in came_as.iter().filter(|locked| locked.component == plugin.digest) {
            match self.judge(locked, component) {
                Ok(()) => return Ok(()),
                Err(reason) => refused = Some(reason),
            }
        }
        match refused {
            Some(reason) => Err(reason),
            None if self.trust.requires() && !self.trust.allows_local(plugin) => Err(unsigned_in_store(plugin)),
            None => Ok(()),
        }
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

    // P11: what is in the way is not overwritten unasked, and what is removed is what was locked.
    #[test]
    fn files_that_are_somebodys_own_stay() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = Folder::new(directory.path());
        let file = directory.path().join("calc.wasm");
        std::fs::write(&file, b"built here").expect("written");
        let error = folder.place(plugin("calc", b"one"), b"one", Replace::Locked).expect_err("refused").to_string();
        assert!(error.contains("not locked") && error.contains("--replace"), "{error}");
        assert_eq!(std::fs::read(&file).expect("there"), b"built here");
        assert_eq!(folder.lock_file().expect("none").plugins(), []);

        folder.place(plugin("calc", b"one"), b"one", Replace::Anything).expect("placed");
        folder.place(plugin("calc", b"two"), b"two", Replace::Locked).expect("what was locked is replaced");
        assert_eq!(std::fs::read(&file).expect("there"), b"two");
        std::fs::write(&file, b"changed").expect("written");
        let error = folder.place(plugin("calc", b"three"), b"three", Replace::Locked).expect_err("refused").to_string();
        assert!(error.contains("changed since it was locked"), "{error}");
        assert!(folder.remove("calc", Removed::File).expect_err("refused").to_string().contains("--keep-file"));
        folder.remove("calc", Removed::EntryAlone).expect("unlocked");
        assert_eq!(std::fs::read(&file).expect("there"), b"changed");
        assert!(folder.remove("calc", Removed::File).expect_err("gone").to_string().contains("locks no plugin"));
        let names: Vec<_> =
            std::fs::read_dir(directory.path()).expect("read").map(|entry| entry.expect("one").file_name()).collect();
        assert_eq!(names.len(), 2, "nothing unfinished stays: {names:?}");
    }

    // Row 23: a file that is not what the lock says is refused at load, under whatever name it lies; what is not locked loads.
    #[test]
    fn a_locked_plugin_is_the_locked_one_or_none() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = Folder::new(directory.path());
        folder.place(plugin("calc", b"one"), b"one", Replace::Locked).expect("placed");
        let vet = |file: &str, name: &str, component: &[u8]| {
            let read = || Ok(Arc::new(component.to_vec()));
            Locked::default().vet(&directory.path().join(file), &identity(name, component), &read).map(drop)
        };
        assert_eq!(vet("calc.wasm", "calc", b"one"), Ok(()));
        assert_eq!(vet("mine.wasm", "mine", b"anything"), Ok(()));
        for (file, name) in [("calc.wasm", "calc"), ("renamed.wasm", "calc"), ("calc.wasm", "other")] {
            let error = vet(file, name, b"two").expect_err(name);
            assert!(error.contains("locks `calc`") && error.contains("plugin add --replace"), "{error}");
        }
        std::fs::write(LockFile::path(directory.path()), "<<<<<<< ours\n").expect("written");
        assert!(
            vet("mine.wasm", "mine", b"anything").expect_err("a lock that nobody can read").contains("plugins.lock:1")
        );
    }

    // P11, P10: a component that came from elsewhere is judged by what it came with, also after the lock has gone on to another.
    #[test]
    fn what_vouched_for_a_component_goes_with_it() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = Folder::new(directory.path());
        let file = folder.place(plugin("calc", b"one"), b"one", Replace::Locked).expect("placed");
        let read = || Ok(Arc::new(b"one".to_vec()));
        let identity = identity("calc", b"one");
        let vouched = Locked::default().vet(&file, &identity, &read).expect("it may serve").expect("it is locked");
        assert_eq!(
            Locked::default().vet(&directory.path().join("mine.wasm"), &super::tests::identity("mine", b"x"), &read),
            Ok(None)
        );
        assert_eq!(Locked::default().vet_kept(Some(&vouched), &identity, &read), Ok(()));
        let strict = Locked { trust: Trust { policy: crate::SignaturePolicy::Required, ..Trust::default() } };
        let refused = strict.vet_kept(Some(&vouched), &identity, &read).expect_err("refused");
        assert!(refused.contains("registry.example/team/calc: it is not signed"), "{refused}");
        assert!(
            strict.vet_kept(Some("[[plugin"), &identity, &read).is_err(),
            "what cannot be read vouches for nothing"
        );
    }

    #[test]
    fn the_state_of_a_plugin_is_told() {
        let directory = tempfile::tempdir().expect("a directory");
        let folder = Folder::new(directory.path());
        let locked = plugin("calc", b"one");
        assert!(matches!(folder.state(&locked, &Trust::default()), State::Missing));
        let file = folder.place(locked.clone(), b"one", Replace::Locked).expect("placed");
        assert!(matches!(folder.state(&locked, &Trust::default()), State::Right(Signer::Nobody { .. })));
        let strict = Trust { policy: crate::SignaturePolicy::Required, ..Trust::default() };
        assert!(matches!(folder.state(&locked, &strict), State::Untrusted(_)));
        std::fs::write(file, b"onf").expect("flipped");
        assert!(
            matches!(folder.state(&locked, &Trust::default()), State::Differs(found) if found == digest_of(b"onf"))
        );
    }
}
