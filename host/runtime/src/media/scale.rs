//! Images made smaller for a model (P4), off the async threads and few at a time (row 34).

use super::ReadError;
use super::cache::{Cache, Key, key};
use super::reduce::{Reduced, Unscalable, reduced};
use agent_core::message::{Dimensions, Media};
use agent_models::MediaBytes;
use agent_store::StoreError;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Pictures that are decoded at once. Each may take 256 MiB.
const PLACES: usize = 2;
/// How long a picture may take. Whoever asked goes on without it; the thread ends by itself and keeps its place until
/// then.
const TIME: Duration = Duration::from_secs(20);
/// How long a picture may wait for a place.
const WAITING_TIME: Duration = Duration::from_secs(60);

/// A picture that is not sent, since a policy wants it smaller and it is not.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScaleError {
    /// It never will be.
    #[error(transparent)]
    Unscalable(#[from] Unscalable),
    /// It never will be.
    #[error(transparent)]
    TooLarge(ReadError),
    /// Perhaps the next time.
    #[error("it was not made smaller within {} s", TIME.as_secs())]
    Late,
    /// Perhaps the next time.
    #[error("too many pictures are being made smaller at once")]
    Busy,
    /// The session does not have it.
    #[error("its bytes are not stored in this session")]
    Missing,
    /// The store did not give it.
    #[error(transparent)]
    Store(StoreError),
}

impl ScaleError {
    /// Whether it is so whenever it is tried.
    pub(crate) fn is_final(&self) -> bool {
        matches!(self, Self::Unscalable(_) | Self::TooLarge(_))
    }
}

impl From<ReadError> for ScaleError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::TooLarge { .. } => Self::TooLarge(error),
            ReadError::Store(StoreError::NoBlob { .. }) => Self::Missing,
            ReadError::Store(other) => Self::Store(other),
        }
    }
}

/// Makes pictures smaller for all sessions of a host, and keeps the latest. Clones are the same one.
#[derive(Clone, Debug)]
pub struct Downscaler {
    places: Arc<Semaphore>,
    patience: Duration,
    cache: Arc<Mutex<Cache>>,
}

impl Default for Downscaler {
    fn default() -> Self {
        Self { places: Arc::new(Semaphore::new(PLACES)), patience: WAITING_TIME, cache: Arc::default() }
    }
}

impl Downscaler {
    /// The picture at most so large; none where it is no larger, or no image at all. `read` gives its bytes, if they are
    /// needed.
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
        let key = key(&media.digest, to);
        if let Some(known) = self.cached(&key) {
            return Ok(known);
        }
        let place = tokio::time::timeout(self.patience, self.places.clone().acquire_owned()).await;
        // Whoever was before us may have made the same picture.
        if let Some(known) = self.cached(&key) {
            return Ok(known);
        }
        let place = place.ok().and_then(Result::ok).ok_or(ScaleError::Busy)?;
        let bytes = read.await?;
        let made = in_thread(place, bytes, to).await?;
        self.cache().put(key, made.clone());
        Ok(made)
    }

    fn cached(&self, key: &Key) -> Option<Option<MediaBytes>> {
        self.cache().get(key)
    }

    fn cache(&self) -> std::sync::MutexGuard<'_, Cache> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn in_thread(
    place: OwnedSemaphorePermit,
    bytes: Vec<u8>,
    to: Dimensions,
) -> Result<Option<MediaBytes>, ScaleError> {
    let work = tokio::task::spawn_blocking(move || {
        let made = reduced(&bytes, to);
        drop(place);
        made
    });
    match tokio::time::timeout(TIME, work).await {
        Err(_) => Err(ScaleError::Late),
        Ok(Err(panic)) => Err(Unscalable::Unreadable(panic.to_string()).into()),
        Ok(Ok(Err(unscalable))) => Err(unscalable.into()),
        Ok(Ok(Ok(Reduced::Fits))) => Ok(None),
        Ok(Ok(Ok(Reduced::Made(picture)))) => Ok(Some(picture)),
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

    const TO: Dimensions = Dimensions { width: 50, height: 50 };

    /// P4: each picture is read and made once, however often it is asked for, and many at once don't take more places.
    #[tokio::test(flavor = "multi_thread")]
    async fn a_picture_is_made_once() {
        let downscaler = Downscaler::default();
        let (media, bytes) = picture(200, 100);
        let reads = AtomicUsize::new(0);
        let ask = async || {
            let read = async {
                reads.fetch_add(1, Ordering::Relaxed);
                Ok(bytes.clone())
            };
            downscaler.scaled(&media, TO, read).await.expect("scaled").expect("a smaller one")
        };
        let first = ask().await;
        for again in futures::future::join_all((0..10).map(|_| ask())).await {
            assert!(Arc::ptr_eq(&again.bytes, &first.bytes));
        }
        assert_eq!(reads.load(Ordering::Relaxed), 1);
        assert_eq!(downscaler.places.available_permits(), PLACES);
    }

    #[tokio::test]
    async fn what_is_small_or_no_image_is_not_even_read() {
        let downscaler = Downscaler::default();
        let (small, _) = picture(50, 20);
        let sound = Media { mime_type: "audio/wav".to_owned(), ..picture(60, 60).0 };
        for media in [small, sound] {
            let read = async { panic!("it is read") };
            assert_eq!(downscaler.scaled(&media, TO, read).await.expect("kept"), None);
        }
    }

    /// Row 34: whoever cannot have a place is told so, and a place is given back after every failure.
    #[tokio::test]
    async fn places_are_bounded_and_come_back() {
        let downscaler = Downscaler { patience: Duration::from_millis(20), ..Downscaler::default() };
        let (media, bytes) = picture(200, 100);
        let held: Vec<_> =
            (0..PLACES).map(|_| downscaler.places.clone().try_acquire_owned().expect("a place")).collect();
        let refused = downscaler.scaled(&media, TO, async { Ok(bytes.clone()) }).await;
        assert!(matches!(refused, Err(ScaleError::Busy)), "{refused:?}");
        drop(held);
        let broken = downscaler.scaled(&media, TO, async { Ok(bytes[..40].to_vec()) }).await;
        assert!(matches!(broken, Err(ScaleError::Unscalable(Unscalable::Unreadable(_)))), "{broken:?}");
        let missing =
            downscaler.scaled(&media, TO, async { Err(StoreError::NoBlob { digest: media.digest.clone() }.into()) });
        assert!(matches!(missing.await, Err(ScaleError::Missing)));
        assert_eq!(downscaler.places.available_permits(), PLACES);
        assert!(downscaler.scaled(&media, TO, async { Ok(bytes) }).await.expect("scaled").is_some());
    }
}
