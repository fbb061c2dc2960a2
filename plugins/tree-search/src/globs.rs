//! Glob filters for the names of files.

use globset::{GlobBuilder, GlobMatcher};

/// Filters for files. A file passes if it matches one of the globs, or if there are only globs that begin with `!`,
/// and if it matches none of the globs that begin with `!`.
#[derive(Default)]
pub struct Globs {
    included: Vec<Filter>,
    excluded: Vec<Filter>,
}

struct Filter {
    matcher: GlobMatcher,
    applies_to: Subject,
}

enum Subject {
    /// The name of the file, because the glob contains no `/`.
    Name,
    /// The path relative to the directory that is searched.
    Path,
}

/// The glob that is invalid, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidGlob {
    /// The position of the glob in the list, from 0.
    pub index: usize,
    /// The reason, which completes a sentence that begins with the glob.
    pub message: String,
}

impl Globs {
    /// Parses a list of globs.
    pub fn parse<G: AsRef<str>>(globs: &[G]) -> Result<Self, InvalidGlob> {
        let mut parsed = Self::default();
        for (index, glob) in globs.iter().enumerate() {
            let (list, glob) = match glob.as_ref().strip_prefix('!') {
                Some(glob) => (&mut parsed.excluded, glob),
                None => (&mut parsed.included, glob.as_ref()),
            };
            if glob.is_empty() {
                return Err(InvalidGlob { index, message: "must not be empty".to_owned() });
            }
            let glob = glob.strip_prefix("./").unwrap_or(glob);
            let matcher = GlobBuilder::new(glob)
                .literal_separator(true)
                .build()
                .map_err(|error| InvalidGlob { index, message: format!("is not a glob: {}", error.kind()) })?
                .compile_matcher();
            let applies_to = if glob.contains('/') { Subject::Path } else { Subject::Name };
            list.push(Filter { matcher, applies_to });
        }
        Ok(parsed)
    }

    /// Whether the file with this path passes the filters. The path is relative to the directory that is searched.
    pub fn accept(&self, path: &str) -> bool {
        let matches = |filter: &Filter| match filter.applies_to {
            Subject::Name => filter.matcher.is_match(path.rsplit('/').next().unwrap_or(path)),
            Subject::Path => filter.matcher.is_match(path),
        };
        (self.included.is_empty() || self.included.iter().any(matches)) && !self.excluded.iter().any(matches)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accepts_names_and_paths() {
        for (globs, accepted, rejected) in [
            (&[][..], &["a", "b/c.rs"][..], &[][..]),
            (&["*.rs"], &["a.rs", "b/c.rs"], &["a.md", "a.rs/b"]),
            (&["src/*.rs"], &["src/a.rs"], &["src/b/a.rs", "a.rs"]),
            (&["./src/**/*.rs", "*.toml"], &["src/a.rs", "src/b/c/d.rs", "x/Cargo.toml"], &["a.rs"]),
            (&["*.{rs,md}", "!build.rs"], &["a.rs", "a.md"], &["build.rs", "x/build.rs"]),
            (&["!vendor/**"], &["a.rs", "x/vendor/b"], &["vendor/b", "vendor/c/d"]),
            (&["[!a]?.txt"], &["bc.txt"], &["ac.txt", "b.txt"]),
        ] {
            let parsed = Globs::parse(globs).expect("the globs are valid");
            for path in accepted {
                assert!(parsed.accept(path), "{globs:?} accepts {path}");
            }
            for path in rejected {
                assert!(!parsed.accept(path), "{globs:?} rejects {path}");
            }
        }
    }

    #[test]
    fn names_the_invalid_glob() {
        for (globs, index) in [(["a", "["], 1), (["", "a"], 0), (["{a", "b"], 0), (["a", "!"], 1)] {
            assert_eq!(Globs::parse(&globs).err().map(|error| error.index), Some(index), "{globs:?}");
        }
    }
}
