//! The tool `files.list`, which lists the entries of a directory.

use agent_host_sdk::prelude::*;
use tree_search::lookup;
use tree_search::walk::{Entry, Kind, Next, Visibility, walk};

/// Maximum number of entries that one call lists.
const MAX_ENTRIES: usize = 1_000;
/// Maximum value of the argument `depth`.
const MAX_DEPTH: u32 = 32;

/// Arguments of `files.list`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct List {
    /// The directory, for example `src`.
    path: String,
    /// Levels of directories to list: 1 for the directory alone, at most 32.
    #[serde(default = "default_depth")]
    #[schemars(range(min = 1, max = 32))]
    depth: u32,
    /// Also list the entries of subdirectories that are hidden, or that `.gitignore` or `.ignore` excludes. Default: no.
    #[serde(default)]
    all: bool,
}

/// The entries of a directory.
#[derive(Serialize, JsonSchema)]
pub(crate) struct Listing {
    /// The directory as given in the arguments.
    path: String,
    /// The entries sorted by name; a directory comes before its entries.
    entries: Vec<Listed>,
    /// Notes about entries that were left out.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    notes: Vec<String>,
}

#[derive(Serialize, JsonSchema)]
struct Listed {
    /// The path relative to the listed directory.
    name: String,
    kind: Kind,
    /// Size in bytes, for files.
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
}

fn default_depth() -> u32 {
    1
}

/// Runs `files.list`.
pub(crate) fn list(List { path, depth, all }: List) -> Result<Listing, ToolError> {
    if !(1..=MAX_DEPTH).contains(&depth) {
        return Err(ToolError::invalid("/depth", format!("must be 1 to {MAX_DEPTH}")));
    }
    let root = lookup::entry(&path)?;
    if root.metadata.is_file() {
        let entries = vec![Listed { name: path.clone(), kind: Kind::File, size: Some(root.metadata.len()) }];
        return Ok(Listing { path, entries, notes: Vec::new() });
    }
    let (mut entries, mut notes, mut closed) = (Vec::new(), Vec::new(), Vec::new());
    let skipped = walk(&root.path, &path, depth, |found| {
        if entries.len() == MAX_ENTRIES {
            notes.push(format!("cut after {MAX_ENTRIES} entries, before `{}`; list a subdirectory", found.name));
            return Next::Stop;
        }
        let size = match found.kind {
            Kind::File => found.path.metadata().ok().map(|metadata| metadata.len()),
            _ => None,
        };
        entries.push(Listed { name: found.name.clone(), kind: found.kind, size });
        if is_open(found, all) {
            return Next::Enter;
        }
        let is_closed = matches!(found.visibility, Visibility::Ignored | Visibility::Hidden);
        if is_closed && found.kind == Kind::Directory && level(&found.name) < depth {
            closed.push(found.name.clone());
        }
        Next::Skip
    })?;
    if let [first, ..] = &closed[..] {
        let count = closed.len();
        let directories = if count == 1 { "directory" } else { "directories" };
        notes.push(format!(
            "the entries of {count} hidden or ignored {directories}, such as `{first}`, were left out; set `all`, or \
             list such a directory itself"
        ));
    }
    notes.extend(skipped.unreadable.iter().map(|name| format!("`{name}` could not be read")));
    notes.extend(skipped.truncated.iter().map(|name| format!("`{name}` has too many entries; the rest was left out")));
    notes.extend(skipped.ignore_files.iter().map(|file| format!("an ignore file could not be used: {file}")));
    Ok(Listing { path, entries, notes })
}

/// Whether the list contains the entries of this directory. All entries of a directory are listed, even those that are
/// hidden or ignored, but the entries below them are not. The entries of `.git` are listed only if the call names it.
fn is_open(entry: &Entry, all: bool) -> bool {
    match entry.visibility {
        Visibility::Visible => true,
        Visibility::Ignored | Visibility::Hidden => all,
        Visibility::Git => false,
    }
}

/// The level of an entry: 1 for the entries of the listed directory itself.
fn level(name: &str) -> u32 {
    name.split('/').count() as u32
}
