//! Downloads components. The size of a component is limited, an interrupted download is resumed, and the downloaded
//! content is verified before it is used.

use crate::error::RegistryError;
use crate::http::{Request, range_start, read_parts};
use crate::oci::Descriptor;
use crate::reference::Repository;
use crate::registry::{Registry, ensure_success};
use crate::retry::{Attempts, delays};
use agent_plugins::digest_of;
use reqwest::StatusCode;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

/// Maximum number of attempts for one download. Each further attempt continues at the byte at which the previous
/// attempt was interrupted.
const MAX_ATTEMPTS: u32 = 5;
/// Delay before the second attempt. Each further delay is twice as long as the previous one.
const FIRST_DELAY: Duration = Duration::from_millis(250);

/// The folder for incomplete downloads, and the size limit for components.
#[derive(Clone, Debug)]
pub struct Downloads {
    /// Folder for incomplete downloads. Only the user who runs the host should have access to this folder.
    pub directory: PathBuf,
    /// Maximum size of a component, in bytes.
    pub most: u64,
}

/// A callback that reports the progress of a download. The callback receives the number of downloaded bytes and, if
/// known, the total number of bytes. The callback is called often, so it should return quickly.
pub type Progress<'p> = dyn Fn(u64, Option<u64>) + Send + Sync + 'p;

impl Registry {
    /// Downloads the content that a descriptor refers to and verifies it. If an incomplete download of this content
    /// exists, it is continued.
    pub(crate) async fn download(
        &self,
        repository: &Repository,
        descriptor: &Descriptor,
        downloads: &Downloads,
        progress: &Progress<'_>,
    ) -> Result<Vec<u8>, RegistryError> {
        let place = format!("{repository}@{}", descriptor.digest);
        if descriptor.size > downloads.most {
            return Err(RegistryError::TooLarge { place, size: descriptor.size, limit: downloads.most });
        }
        let mut partial = PartialDownload::open(&downloads.directory, descriptor)?;
        let mut resumed = partial.length;
        let mut delays = delays(FIRST_DELAY, 2.0, MAX_ATTEMPTS);
        loop {
            match self.continue_download(repository, descriptor, &mut partial, progress).await {
                Ok(()) => {}
                Err(error) if error.is_offline() && partial.length > 0 => {
                    let Some(delay) = delays.next() else { return Err(error) };
                    tracing::info!(%place, bytes = partial.length, %error, "the download was interrupted and continues");
                    tokio::time::sleep(delay).await;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let bytes = partial.read()?;
            let found = digest_of(&bytes);
            if found == descriptor.digest {
                partial.delete();
                return Ok(bytes);
            }
            partial.restart()?;
            // If an earlier process downloaded the first part, this part may have been damaged, so download everything
            // again. If this download started from the beginning, the content on the server is wrong, so fail.
            if resumed == 0 {
                partial.delete();
                return Err(RegistryError::tampered(place, &descriptor.digest, &found));
            }
            resumed = 0;
        }
    }

    /// Requests the missing bytes and stores each part that arrives, until the download is complete or interrupted.
    async fn continue_download(
        &self,
        repository: &Repository,
        descriptor: &Descriptor,
        partial: &mut PartialDownload,
        progress: &Progress<'_>,
    ) -> Result<(), RegistryError> {
        let place = format!("{repository}@{}", descriptor.digest);
        progress(partial.length, Some(descriptor.size));
        if partial.length == descriptor.size && descriptor.size > 0 {
            return Ok(());
        }
        let mut response = self.open_blob(repository, &descriptor.digest, partial.length).await?;
        let continues =
            response.status() == StatusCode::PARTIAL_CONTENT && range_start(&response) == Some(partial.length);
        if partial.length > 0 && !continues {
            partial.restart()?;
            if response.status() != StatusCode::OK {
                response = self.open_blob(repository, &descriptor.digest, 0).await?;
            }
        }
        let response = ensure_success(response, &place).await?;
        read_parts(response, &place, |piece| {
            if partial.length + piece.len() as u64 > descriptor.size {
                let found = format!("more than {} bytes", descriptor.size);
                partial.restart()?;
                return Err(RegistryError::Tampered {
                    place: place.clone(),
                    expected: format!("{} bytes", descriptor.size),
                    found,
                });
            }
            partial.add(&piece)?;
            progress(partial.length, Some(descriptor.size));
            Ok(())
        })
        .await?;
        match partial.length == descriptor.size {
            true => Ok(()),
            // The server ended the response without an error but sent too few bytes, so the content is wrong. If
            // the connection had been interrupted, there would have been an error.
            false => {
                let found = format!("{} bytes", partial.length);
                partial.restart()?;
                Err(RegistryError::Tampered { place, expected: format!("{} bytes", descriptor.size), found })
            }
        }
    }

    /// Downloads a file from a web server. Returns `None` if the file does not exist. If the download is interrupted,
    /// it is started again from the beginning.
    pub(crate) async fn download_page(
        &self,
        url: &Url,
        max_bytes: u64,
        progress: &Progress<'_>,
    ) -> Result<Option<Vec<u8>>, RegistryError> {
        let place = url.to_string();
        let mut attempts = Attempts::new(&self.http().listener, &place);
        loop {
            match self.download_page_once(url, max_bytes, progress).await {
                Err(RegistryError::Interrupted { reason, .. }) if attempts.wait(reason.clone(), None).await => {}
                page => return page,
            }
        }
    }

    async fn download_page_once(
        &self,
        url: &Url,
        max_bytes: u64,
        progress: &Progress<'_>,
    ) -> Result<Option<Vec<u8>>, RegistryError> {
        let place = url.to_string();
        let response = self.http().send(Request::get(url.clone()), &place).await?;
        if matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Ok(None);
        }
        let response = ensure_success(response, &place).await?;
        let length = response.content_length();
        let too_large = |size| RegistryError::TooLarge { place: place.clone(), size, limit: max_bytes };
        if let Some(length) = length.filter(|length| *length > max_bytes) {
            return Err(too_large(length));
        }
        let mut bytes = Vec::new();
        read_parts(response, &place, |piece| {
            bytes.extend_from_slice(&piece);
            if bytes.len() as u64 > max_bytes {
                return Err(too_large(bytes.len() as u64));
            }
            progress(bytes.len() as u64, length);
            Ok(())
        })
        .await?;
        Ok(Some(bytes))
    }
}

/// Whether the file of an incomplete download has a name. A later process can continue the download only if the file
/// has the name `HEX.partial`.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PartialName {
    /// The file has the name `HEX.partial`, where `HEX` is the digest of the content.
    Regular,
    /// The file has no name, because another process is using the file `HEX.partial`.
    Unnamed,
}

/// An incomplete download. Its file is `DIRECTORY/HEX.partial`. Only one process at a time can use this file, so the
/// download uses an unnamed file if another process is using it.
struct PartialDownload {
    path: PathBuf,
    file: File,
    length: u64,
    name: PartialName,
}

impl PartialDownload {
    fn open(directory: &Path, descriptor: &Descriptor) -> Result<Self, RegistryError> {
        let path = directory.join(format!("{}.partial", descriptor.digest.hex()));
        let failed = |source| RegistryError::file(path.clone(), "written", source);
        std::fs::create_dir_all(directory).map_err(failed)?;
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        let mut partial = match file.try_lock() {
            Ok(()) => {
                let length = file.metadata().map_err(failed)?.len();
                Self { path: path.clone(), file, length, name: PartialName::Regular }
            }
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {
                let file = tempfile::tempfile_in(directory).map_err(failed)?;
                Self { path: path.clone(), file, length: 0, name: PartialName::Unnamed }
            }
        };
        if partial.length > descriptor.size {
            partial.restart()?;
        }
        (&partial.file).seek(SeekFrom::Start(partial.length)).map_err(failed)?;
        Ok(partial)
    }

    fn add(&mut self, piece: &[u8]) -> Result<(), RegistryError> {
        (&self.file).write_all(piece).map_err(|source| RegistryError::file(&self.path, "written", source))?;
        self.length += piece.len() as u64;
        Ok(())
    }

    fn restart(&mut self) -> Result<(), RegistryError> {
        let failed = |source| RegistryError::file(&self.path, "written", source);
        self.file.set_len(0).map_err(failed)?;
        (&self.file).seek(SeekFrom::Start(0)).map_err(failed)?;
        self.length = 0;
        Ok(())
    }

    fn read(&self) -> Result<Vec<u8>, RegistryError> {
        let failed = |source| RegistryError::file(&self.path, "read", source);
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut bytes = Vec::with_capacity(usize::try_from(self.length).unwrap_or_default());
        file.take(self.length).read_to_end(&mut bytes).map_err(failed)?;
        file.seek(SeekFrom::Start(self.length)).map_err(failed)?;
        Ok(bytes)
    }

    fn delete(&self) {
        if self.name == PartialName::Regular {
            // Ignore this error, because a file that cannot be removed only wastes disk space.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
