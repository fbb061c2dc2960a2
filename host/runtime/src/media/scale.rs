//! Scales pictures down for a model (P4), in blocking threads. Only a few pictures are scaled at the same time
//! (row 34).

use super::ReadError;
use super::cache::{Cache, PictureKey, picture_key};
use super::reduce::{Reduced, Unscalable, reduced};
use agent_core::message::{Dimensions, Media};
use agent_models::MediaBytes;
use agent_store::StoreError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Maximum number of pictures that are decoded at the same time. Each picture may use up to 256 MiB of memory.
const MAX_CONCURRENT: usize = 2;
/// Maximum time for scaling a picture. If scaling takes longer, the caller gets the error [`ScaleError::Late`], but the
/// thread that scales the picture keeps its permit until it has finished.
const TIME_LIMIT: Duration = Duration::from_secs(20);
/// Maximum time that a caller waits for a permit to scale a picture.
const WAIT_LIMIT: Duration = Duration::from_secs(60);

/// The reason why a picture could not be scaled down. A picture that could not be scaled down is not sent in its
/// original size instead, because the media policy requires a smaller version.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScaleError {
    /// The bytes of the picture make scaling impossible, so the picture can never be scaled.
    #[error(transparent)]
    Unscalable(#[from] Unscalable),
    /// The media item is larger than [`MAX_SENT_BYTES`](super::MAX_SENT_BYTES), so it can never be scaled.
    #[error(transparent)]
    TooLarge(ReadError),
    /// Scaling took longer than [`TIME_LIMIT`]. A later attempt may succeed.
    #[error("it was not made smaller within {} s", TIME_LIMIT.as_secs())]
    Late,
    /// No permit to scale a picture became available within [`WAIT_LIMIT`]. A later attempt may succeed.
    #[error("too many pictures are being made smaller at the same time")]
    Busy,
    /// The session does not contain the media item.
    #[error("its bytes are not stored in this session")]
    Missing,
    /// The store returned other bytes than were stored.
    #[error("its bytes differ from those that were stored")]
    Changed,
    /// The store failed, so the picture could not be read.
    #[error(transparent)]
    Store(StoreError),
}

impl ScaleError {
    /// Whether every later attempt to scale the picture would fail in the same way.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Unscalable(_) | Self::TooLarge(_))
    }
}

impl From<ReadError> for ScaleError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::TooLarge { .. } => Self::TooLarge(error),
            ReadError::Store(StoreError::NoBlob { .. }) => Self::Missing,
            ReadError::Changed => Self::Changed,
            ReadError::Store(other) => Self::Store(other),
        }
    }
}

/// Scales pictures down for all sessions of a host, and caches the latest results. All clones of this value share one
/// cache and one set of permits.
#[derive(Clone, Debug)]
pub struct Downscaler {
    permits: Arc<Semaphore>,
    wait_limit: Duration,
    cache: Arc<Mutex<Cache>>,
}

impl Default for Downscaler {
    fn default() -> Self {
        Self { permits: Arc::new(Semaphore::new(MAX_CONCURRENT)), wait_limit: WAIT_LIMIT, cache: Arc::default() }
    }
}

impl Downscaler {
    /// Returns the picture, scaled down to at most this width and height. Returns `None` if the picture is small
    /// enough, or if the media item is not an image. `read` reads the bytes of the picture, and is awaited only if the
    /// bytes are needed.
    pub(crate) async fn scaled(
        &self,
        media: &Media,
        to: Dimensions,
        read: impl Future<Output = Result<Vec<u8>, ReadError>>,
    ) -> Result<Option<MediaBytes>, ScaleError> {
        if !media.mime_type.starts_with("image/") {
            return Ok(None);
        }
        if media.dimensions.is_some_and(|size| size.width <= to.width && size.height <= to.height) {
            return Ok(None);
        }
        let key = picture_key(&media.digest, to);
        if let Some(cached) = self.cached(&key) {
            return Ok(cached);
        }
        let permit = tokio::time::timeout(self.wait_limit, self.permits.clone().acquire_owned()).await;
        // While this call waited for the permit, a different call may have scaled the same picture.
        if let Some(cached) = self.cached(&key) {
            return Ok(cached);
        }
        let permit = permit.ok().and_then(Result::ok).ok_or(ScaleError::Busy)?;
        let bytes = read.await?;
        let made = in_thread(permit, bytes, to).await?;
        self.cache().put(key, made.clone());
        Ok(made)
    }

    fn cached(&self, key: &PictureKey) -> Option<Option<MediaBytes>> {
        self.cache().get(key)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn in_thread(
    permit: OwnedSemaphorePermit,
    bytes: Vec<u8>,
    to: Dimensions,
) -> Result<Option<MediaBytes>, ScaleError> {
    let work = tokio::task::spawn_blocking(move || {
        let made = reduced(&bytes, to);
        drop(permit);
        made
    });
    match tokio::time::timeout(TIME_LIMIT, work).await {
        Err(_) => Err(ScaleError::Late),
        Ok(Err(panic)) => Err(Unscalable::Unreadable(panic.to_string()).into()),
        Ok(Ok(Err(unscalable))) => Err(unscalable.into()),
        Ok(Ok(Ok(Reduced::Fits))) => Ok(None),
        Ok(Ok(Ok(Reduced::Scaled(picture)))) => Ok(Some(picture)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_store::digest_of;
    use std::sync::atomic::{AtomicUsize, Ordering};

    fn picture(width: u32, height: u32) -> (Media, Vec<u8>) {
        let mut bytes = std::io::Cursor::new(Vec::new());
        let picture = image::DynamicImage::new_rgb8(width, height);
        picture.write_to(&mut bytes, image::ImageFormat::Png).expect("encoded");
        let bytes = bytes.into_inner();
        let media = Media {
            digest: digest_of(&bytes),
            mime_type: "image/png".to_owned(),
            size: bytes.len() as u64,
            dimensions: Some(Dimensions { width, height }),
            name: None,
        };
        (media, bytes)
    }

    const MAX_SIZE: Dimensions = Dimensions { width: 50, height: 50 };

    /// P4: a picture is read and scaled only once, even if several callers request it at the same time, and all permits
    /// are returned.
    #[tokio::test(flavor = "multi_thread")]
    async fn p4_a_picture_is_scaled_once() {
        let downscaler = Downscaler::default();
        let (media, bytes) = picture(200, 100);
        let reads = AtomicUsize::new(0);
        let scale = async || {
            let read = async {
                reads.fetch_add(1, Ordering::Relaxed);
                Ok(bytes.clone())
            };
            downscaler.scaled(&media, MAX_SIZE, read).await.expect("scaled").expect("a smaller picture")
        };
        let first = scale().await;
        for repeated in futures::future::join_all((0..10).map(|_| scale())).await {
            assert!(Arc::ptr_eq(&repeated.bytes, &first.bytes));
        }
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        assert_eq!(downscaler.permits.available_permits(), MAX_CONCURRENT);
    }

    #[tokio::test]
    async fn small_pictures_and_other_media_are_not_read() {
        let downscaler = Downscaler::default();
        let (small, _) = picture(50, 20);
        let sound = Media { mime_type: "audio/wav".to_owned(), ..picture(60, 60).0 };
        for media in [small, sound] {
            let read = async { panic!("the bytes were read") };
            assert_eq!(downscaler.scaled(&media, MAX_SIZE, read).await.expect("kept"), None);
        }
    }

    /// Row 34: a caller that gets no permit in time gets an error, and a caller whose picture cannot be scaled
    /// returns its permit.
    #[tokio::test]
    async fn row_34_permits_are_bounded_and_returned() {
        let downscaler = Downscaler { wait_limit: Duration::from_millis(20), ..Downscaler::default() };
        let (media, bytes) = picture(200, 100);
        let held: Vec<_> =
            (0..MAX_CONCURRENT).map(|_| downscaler.permits.clone().try_acquire_owned().expect("a permit")).collect();
        let refused = downscaler.scaled(&media, MAX_SIZE, async { Ok(bytes.clone()) }).await;
        assert!(matches!(refused, Err(ScaleError::Busy)), "{refused:?}");
        drop(held);
        let broken = downscaler.scaled(&media, MAX_SIZE, async { Ok(bytes[..40].to_vec()) }).await;
        assert!(matches!(broken, Err(ScaleError::Unscalable(Unscalable::Unreadable(_)))), "{broken:?}");
        let missing = downscaler
            .scaled(&media, MAX_SIZE, async { Err(StoreError::NoBlob { digest: media.digest.clone() }.into()) });
        assert!(matches!(missing.await, Err(ScaleError::Missing)));
        assert_eq!(downscaler.permits.available_permits(), MAX_CONCURRENT);
        assert!(downscaler.scaled(&media, MAX_SIZE, async { Ok(bytes) }).await.expect("scaled").is_some());
    }
}
