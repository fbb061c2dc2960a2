//! Components that come from elsewhere: bounded, gone on with where they were cut, and verified before anybody sees them.

use crate::again::Tries;
use crate::error::ShareError;
use crate::http::{Request, begins_at, pieces};
use crate::oci::Descriptor;
use crate::reference::Repository;
use crate::registry::{Registry, succeeded};
use agent_plugins::digest_of;
use reqwest::StatusCode;
use std::fs::{File, TryLockError};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;
use url::Url;

/// Tries of one download, each going on where the one before was cut.
const TRIES: u32 = 5;
const FIRST_WAIT: Duration = Duration::from_millis(250);

/// Where downloads are while they are not whole, and how large they may be.
#[derive(Clone, Debug)]
pub struct Downloads {
    /// A folder of this user alone.
    pub directory: PathBuf,
    /// Bytes of the largest component.
    pub most: u64,
}

/// Is told how many bytes are there, of how many. Called often, so it should return soon.
pub type Progress<'p> = dyn Fn(u64, Option<u64>) + Send + Sync + 'p;

impl Registry {
    /// The bytes of a descriptor, verified. What was there of them from before counts.
    pub(crate) async fn download(
        &self,
        repository: &Repository,
        wanted: &Descriptor,
        downloads: &Downloads,
        progress: &Progress<'_>,
    ) -> Result<Vec<u8>, ShareError> {
        let place = format!("{repository}@{}", wanted.digest);
        if wanted.size > downloads.most {
            return Err(ShareError::TooLarge { place, size: wanted.size, most: downloads.most });
        }
        let mut partial = Partial::open(&downloads.directory, wanted)?;
        let mut resumed = partial.length;
        let mut wait = FIRST_WAIT;
        let mut tries = 0;
        loop {
            tries += 1;
            let got = self.go_on(repository, wanted, &mut partial, progress).await;
            match got {
                Ok(()) => {}
                Err(error) if error.is_offline() && tries < TRIES && partial.length > 0 => {
                    tracing::info!(%place, bytes = partial.length, %error, "the download was cut; it goes on");
                    tokio::time::sleep(wait).await;
                    wait *= 2;
                    continue;
                }
                Err(error) => return Err(error),
            }
            let bytes = partial.read()?;
            let found = digest_of(&bytes);
            if found == wanted.digest {
                partial.forget();
                return Ok(bytes);
            }
            partial.restart()?;
            // What was left from before may have been damaged meanwhile; what just came as a whole was not.
            if resumed == 0 {
                partial.forget();
                return Err(ShareError::tampered(place, &wanted.digest, &found));
            }
            resumed = 0;
        }
    }

    /// Asks for what is missing, until all is there or the connection is cut.
    async fn go_on(
        &self,
        repository: &Repository,
        wanted: &Descriptor,
        partial: &mut Partial,
        progress: &Progress<'_>,
    ) -> Result<(), ShareError> {
        let place = format!("{repository}@{}", wanted.digest);
        progress(partial.length, Some(wanted.size));
        if partial.length == wanted.size && wanted.size > 0 {
            return Ok(());
        }
        let mut response = self.open_blob(repository, &wanted.digest, partial.length).await?;
        let goes_on = response.status() == StatusCode::PARTIAL_CONTENT && begins_at(&response) == Some(partial.length);
        if partial.length > 0 && !goes_on {
            partial.restart()?;
            if response.status() != StatusCode::OK {
                response = self.open_blob(repository, &wanted.digest, 0).await?;
            }
        }
        let response = succeeded(response, &place).await?;
        pieces(response, &place, async |piece| {
            if partial.length + piece.len() as u64 > wanted.size {
                let found = format!("more than {} bytes", wanted.size);
                partial.restart()?;
                return Err(ShareError::Tampered {
                    place: place.clone(),
                    wanted: format!("{} bytes", wanted.size),
                    found,
                });
            }
            partial.add(&piece)?;
            progress(partial.length, Some(wanted.size));
            Ok(())
        })
        .await?;
        match partial.length == wanted.size {
            true => Ok(()),
            // The server says that this was all: what is cut is an error of the connection.
            false => {
                let found = format!("{} bytes", partial.length);
                partial.restart()?;
                Err(ShareError::Tampered { place, wanted: format!("{} bytes", wanted.size), found })
            }
        }
    }

    /// A file of the web, and nothing where it is not there. One that was cut begins anew.
    pub(crate) async fn page(
        &self,
        url: &Url,
        most: u64,
        progress: &Progress<'_>,
    ) -> Result<Option<Vec<u8>>, ShareError> {
        let place = url.to_string();
        let mut tries = Tries::new(&self.http().listener, &place);
        loop {
            match self.page_once(url, most, progress).await {
                Err(ShareError::Cut { reason, .. }) if tries.wait(reason.clone(), None).await => {}
                page => return page,
            }
        }
    }

    async fn page_once(&self, url: &Url, most: u64, progress: &Progress<'_>) -> Result<Option<Vec<u8>>, ShareError> {
        let place = url.to_string();
        let response = self.http().send(Request::get(url.clone()), &place).await?;
        if matches!(response.status(), StatusCode::NOT_FOUND | StatusCode::GONE) {
            return Ok(None);
        }
        let response = succeeded(response, &place).await?;
        let length = response.content_length();
        let too_large = |size| ShareError::TooLarge { place: place.clone(), size, most };
        if let Some(length) = length.filter(|length| *length > most) {
            return Err(too_large(length));
        }
        let mut bytes = Vec::new();
        pieces(response, &place, async |piece| {
            bytes.extend_from_slice(&piece);
            if bytes.len() as u64 > most {
                return Err(too_large(bytes.len() as u64));
            }
            progress(bytes.len() as u64, length);
            Ok(())
        })
        .await?;
        Ok(Some(bytes))
    }
}

/// Whether a partial file can be gone on with another time.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Lasts {
    /// It is the one that is looked for.
    Kept,
    /// Another process works on that one; this one has no name.
    Nameless,
}

/// A download that is not whole: `DIRECTORY/HEX.partial`, which one process at a time works on.
struct Partial {
    path: PathBuf,
    file: File,
    length: u64,
    lasts: Lasts,
}

impl Partial {
    fn open(directory: &Path, wanted: &Descriptor) -> Result<Self, ShareError> {
        let path = directory.join(format!("{}.partial", wanted.digest.hex()));
        let failed = |source| ShareError::file(path.clone(), "written", source);
        std::fs::create_dir_all(directory).map_err(failed)?;
        let file = File::options().read(true).write(true).create(true).truncate(false).open(&path).map_err(failed)?;
        let mut partial = match file.try_lock() {
            Ok(()) => {
                let length = file.metadata().map_err(failed)?.len();
                Self { path: path.clone(), file, length, lasts: Lasts::Kept }
            }
            Err(TryLockError::WouldBlock | TryLockError::Error(_)) => {
                let file = tempfile::tempfile_in(directory).map_err(failed)?;
                Self { path: path.clone(), file, length: 0, lasts: Lasts::Nameless }
            }
        };
        if partial.length > wanted.size {
            partial.restart()?;
        }
        (&partial.file).seek(SeekFrom::Start(partial.length)).map_err(failed)?;
        Ok(partial)
    }

    fn add(&mut self, piece: &[u8]) -> Result<(), ShareError> {
        (&self.file).write_all(piece).map_err(|source| ShareError::file(&self.path, "written", source))?;
        self.length += piece.len() as u64;
        Ok(())
    }

    fn restart(&mut self) -> Result<(), ShareError> {
        let failed = |source| ShareError::file(&self.path, "written", source);
        self.file.set_len(0).map_err(failed)?;
        (&self.file).seek(SeekFrom::Start(0)).map_err(failed)?;
        self.length = 0;
        Ok(())
    }

    fn read(&self) -> Result<Vec<u8>, ShareError> {
        let failed = |source| ShareError::file(&self.path, "read", source);
        let mut file = &self.file;
        file.seek(SeekFrom::Start(0)).map_err(failed)?;
        let mut bytes = Vec::with_capacity(usize::try_from(self.length).unwrap_or_default());
        file.take(self.length).read_to_end(&mut bytes).map_err(failed)?;
        file.seek(SeekFrom::Start(self.length)).map_err(failed)?;
        Ok(bytes)
    }

    fn forget(&self) {
        if self.lasts == Lasts::Kept {
            // What stays costs room and nothing else.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
