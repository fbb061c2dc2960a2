//! Copies all data of one store into another, such as from the file in a data folder to a PostgreSQL database (F1).

use crate::data_directory::DataDirectory;
use crate::data_location::SharedDatabase;
use crate::environment::HostEnvironment;
use crate::error::ConfigError;
use crate::media_location::MediaStore;
use agent_store::{CopyEnd, CopyError, CopyProgress, CopyReport, Options, PostgresStore, SqliteStore};
use std::fmt;
use std::path::{Path, PathBuf};

/// A store that is copied, or to which a store is copied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyPlace {
    /// A SQLite database file.
    File(PathBuf),
    /// A PostgreSQL database.
    Database(Box<SharedDatabase>),
}

/// Whether a place is read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Side {
    From,
    To,
}

impl CopyPlace {
    /// Finds the store that is copied: an address `postgres://…`, a data folder, or a database file. The file must exist.
    pub fn source(text: &str, environment: &HostEnvironment) -> Result<Self, ConfigError> {
        Self::find(text, Side::From, None, environment)
    }

    /// Finds the store to which another store is copied. If nothing exists at the path, a name that ends in `.db` means a file,
    /// and any other name means a data folder, which is created. `media` is the object store of a database.
    pub fn target(text: &str, media: Option<&MediaStore>, environment: &HostEnvironment) -> Result<Self, ConfigError> {
        Self::find(text, Side::To, media, environment)
    }

    fn find(
        text: &str,
        side: Side,
        media: Option<&MediaStore>,
        environment: &HostEnvironment,
    ) -> Result<Self, ConfigError> {
        if agent_store::PostgresAddress::is_meant(text) {
            let password = environment.variable("PGPASSWORD");
            let database = SharedDatabase::from_option(text, password.as_deref())?;
            return Ok(Self::Database(Box::new(database.with_media(media.cloned()))));
        }
        let path = Path::new(text);
        let is_file = path.is_file() || (!path.exists() && path.extension().is_some_and(|end| end == "db"));
        let file = match (is_file, side) {
            (true, _) => path.to_owned(),
            (false, Side::From) => DataDirectory::database_file_in(path),
            (false, Side::To) => DataDirectory::open(Some(path), environment)?.database_file(),
        };
        if side == Side::From && !file.is_file() {
            return Err(ConfigError::Database(format!(
                "there is no database `{}`: name a data folder, a database file, or an address postgres://…",
                file.display()
            )));
        }
        Ok(Self::File(file))
    }

    async fn open(&self) -> Result<OpenPlace, ConfigError> {
        Ok(match self {
            Self::File(file) => OpenPlace::File(Box::new(SqliteStore::open(file, Options::default())?)),
            Self::Database(database) => {
                let store = PostgresStore::open(database.address().clone(), database.options()).await?;
                OpenPlace::Database(Box::new(store))
            }
        })
    }
}

/// Selects the object store in which a database that is copied already keeps its media.
async fn with_registered_media(
    from: &CopyPlace,
    to: &CopyPlace,
    environment: &HostEnvironment,
) -> Result<CopyPlace, ConfigError> {
    let CopyPlace::Database(database) = from else { return Ok(from.clone()) };
    let registered = PostgresStore::object_store_of(database.address().clone(), database.options()).await?;
    let chosen = match to {
        CopyPlace::Database(to) => to.media(),
        CopyPlace::File(_) => None,
    };
    let variable = |name: &str| environment.variable(name);
    let media = registered.map(|registered| MediaStore::of_database(&registered, chosen, variable)).transpose()?;
    Ok(CopyPlace::Database(Box::new(SharedDatabase::clone(database).with_media(media))))
}

impl fmt::Display for CopyPlace {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => file.display().fmt(formatter),
            Self::Database(database) => database.fmt(formatter),
        }
    }
}

enum OpenPlace {
    File(Box<SqliteStore>),
    Database(Box<PostgresStore>),
}

impl OpenPlace {
    fn end(&self) -> CopyEnd<'_> {
        match self {
            Self::File(store) => CopyEnd::Sqlite(store),
            Self::Database(store) => CopyEnd::Postgres(store),
        }
    }
}

/// Why a copy has failed. What was copied before stays in the target, and a repeated copy continues there.
#[derive(Debug, thiserror::Error)]
pub enum StoreCopyError {
    /// A store cannot be opened.
    #[error("{place}: {source}")]
    Open {
        /// The path or the address of the store, without secrets.
        place: String,
        /// Why it cannot be opened.
        source: ConfigError,
    },
    /// The source and the target are the same database.
    #[error("the source and the target are the same database: name two different ones")]
    SamePlace,
    /// The data cannot be copied.
    #[error(transparent)]
    Copy(#[from] CopyError),
}

/// Copies all data of `from` into `to`, and compares everything afterwards. `progress` is called before each session. The object
/// store of `from` is the one that its database names, with the access key of the environment.
pub async fn copy_all_data(
    from: &CopyPlace,
    to: &CopyPlace,
    environment: &HostEnvironment,
    progress: impl FnMut(CopyProgress<'_>) + Send,
) -> Result<CopyReport, StoreCopyError> {
    if is_same(from, to) {
        return Err(StoreCopyError::SamePlace);
    }
    let failed = |place: &CopyPlace| {
        let place = place.to_string();
        move |source| StoreCopyError::Open { place, source }
    };
    let from = &with_registered_media(from, to, environment).await.map_err(failed(from))?;
    let source = from.open().await.map_err(failed(from))?;
    let target = to.open().await.map_err(failed(to))?;
    Ok(agent_store::copy_store(source.end(), target.end(), progress).await?)
}

fn is_same(from: &CopyPlace, to: &CopyPlace) -> bool {
    match (from, to) {
        (CopyPlace::File(from), CopyPlace::File(to)) => {
            let real = |path: &Path| path.canonicalize().unwrap_or_else(|_| path.to_owned());
            real(from) == real(to)
        }
        (CopyPlace::Database(from), CopyPlace::Database(to)) => from.to_string() == to.to_string(),
        _ => false,
    }
}
