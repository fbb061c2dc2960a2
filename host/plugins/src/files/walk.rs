//! Follows a guest's path, name by name and through links, as the system will: so what is recorded stands under the one path that
//! it has in its tree, and every name on the way is known.

use super::FoundFile;
pub(crate) use crate::trees::Last;
use std::collections::VecDeque;

/// Links on one path; the system follows no more.
const LINKS: u32 = 40;

/// A path in a tree, without links, `.` and `..`. The tree itself is the empty one.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Place {
    /// The tree's number.
    pub(crate) tree: usize,
    pub(crate) path: String,
}

impl Place {
    /// The directory that it is in, and its name there.
    pub(crate) fn parent(&self) -> Option<(Place, &str)> {
        let (above, name) = match self.path.rsplit_once('/') {
            Some(parts) => parts,
            None if self.path.is_empty() => return None,
            None => ("", self.path.as_str()),
        };
        Some((Place { tree: self.tree, path: above.to_owned() }, name))
    }

    /// A name in this directory.
    pub(crate) fn join(&self, name: &str) -> Place {
        let path = if self.path.is_empty() { name.to_owned() } else { format!("{}/{name}", self.path) };
        Place { tree: self.tree, path }
    }
}

/// What is at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Nothing,
    File,
    Directory,
    Link(String),
    Other,
}

impl From<&FoundFile> for Kind {
    fn from(found: &FoundFile) -> Self {
        match found {
            FoundFile::Nothing => Kind::Nothing,
            FoundFile::File { .. } => Kind::File,
            FoundFile::Directory { .. } => Kind::Directory,
            FoundFile::Link { to, .. } => Kind::Link(to.clone()),
            FoundFile::Other { .. } => Kind::Other,
        }
    }
}

/// Whether a path ends at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Through,
    End,
}

/// Where a path has led.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Met {
    /// Nowhere that is watched, or nowhere at all: the system says so itself.
    Elsewhere,
    /// Here.
    At(Place, Kind),
    /// To something that is not recorded. It is denied already.
    Unrecorded,
}

/// A path that is being followed.
#[derive(Debug)]
pub(crate) struct Walk {
    last: Last,
    current: Place,
    todo: VecDeque<String>,
    links: u32,
    /// What is at the current place, once that is known.
    here: Option<Kind>,
}

/// What comes next on a path.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// To know what is here.
    Know(Place),
    /// It is over.
    Over(Met),
}

impl Walk {
    pub(crate) fn new(from: Place, path: &str, last: Last) -> Self {
        let todo = path.split('/').map(str::to_owned).collect();
        Self { last, current: from, todo, links: 0, here: None }
    }

    /// Whether the path goes on behind what is here.
    pub(crate) fn way(&self) -> Way {
        // A slash may stand behind what is to be made.
        if self.todo.iter().all(String::is_empty) { Way::End } else { Way::Through }
    }

    /// Goes as far as is known.
    pub(crate) fn step(&mut self) -> Step {
        loop {
            if let Some(kind) = self.here.take()
                && let Some(met) = self.pass(kind)
            {
                return Step::Over(met);
            }
            match self.todo.pop_front().as_deref() {
                // Here it ends, behind `.`, `..` or nothing.
                None => return Step::Know(self.current.clone()),
                Some("" | ".") => {}
                Some("..") => match self.current.parent() {
                    Some((above, _)) => self.current = above,
                    None => return Step::Over(Met::Elsewhere),
                },
                Some(name) => {
                    self.current = self.current.join(name);
                    return Step::Know(self.current.clone());
                }
            }
        }
    }

    /// What is at the place that was asked for.
    pub(crate) fn know(&mut self, kind: Kind) {
        self.here = Some(kind);
    }

    /// Goes through what is here, or ends.
    fn pass(&mut self, kind: Kind) -> Option<Met> {
        match kind {
            Kind::Link(to) if self.last == Last::Follow || !self.todo.is_empty() => {
                self.links += 1;
                if to.starts_with('/') || self.links > LINKS {
                    return Some(Met::Elsewhere);
                }
                if let Some((above, _)) = self.current.parent() {
                    self.current = above;
                }
                for name in to.split('/').rev() {
                    self.todo.push_front(name.to_owned());
                }
                None
            }
            Kind::Directory if !self.todo.is_empty() => None,
            Kind::Nothing if self.way() == Way::Through => Some(Met::Elsewhere),
            Kind::File | Kind::Other if !self.todo.is_empty() => Some(Met::Elsewhere),
            kind => Some(Met::At(self.current.clone(), kind)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Follows a path in a tree of these names; also says what was looked at.
    fn walk(path: &str, last: Last) -> (Met, Vec<String>) {
        let mut walk = Walk::new(Place::default(), path, last);
        let mut seen = Vec::new();
        loop {
            match walk.step() {
                Step::Over(met) => return (met, seen),
                Step::Know(place) => {
                    walk.know(match place.path.as_str() {
                        "" | "a" | "a/b" | "c" => Kind::Directory,
                        "a/f" | "c/f" => Kind::File,
                        "l" => Kind::Link("a/b".into()),
                        "a/b/up" => Kind::Link("../../c".into()),
                        "out" => Kind::Link("/a".into()),
                        "away" => Kind::Link("../x".into()),
                        "round" => Kind::Link("round".into()),
                        _ => Kind::Nothing,
                    });
                    seen.push(place.path);
                }
            }
        }
    }

    fn at(path: &str, kind: Kind) -> Met {
        Met::At(Place { tree: 0, path: path.into() }, kind)
    }

    /// S6, row 12: what a path leads to has one name, whatever way the path takes; links count as the system follows them.
    #[test]
    fn every_way_to_a_file_ends_at_one_place() {
        for path in ["a/f", "./a//f", "a/b/../f", "l/../f", "c/../a/f"] {
            assert_eq!(walk(path, Last::Keep).0, at("a/f", Kind::File), "{path}");
        }
        assert_eq!(
            walk("l/up/f", Last::Keep),
            (at("c/f", Kind::File), ["l", "a", "a/b", "a/b/up", "c", "c/f"].map(String::from).into())
        );
        assert_eq!(walk("l", Last::Keep).0, at("l", Kind::Link("a/b".into())));
        assert_eq!(walk("l", Last::Follow).0, at("a/b", Kind::Directory));
        assert_eq!(walk("l/", Last::Keep).0, at("a/b", Kind::Directory), "a slash follows");
        assert_eq!(walk(".", Last::Follow).0, at("", Kind::Directory));
        assert_eq!(walk("a/..", Last::Follow).0, at("", Kind::Directory));
        assert_eq!(walk("new", Last::Follow).0, at("new", Kind::Nothing));
        assert_eq!(walk("new/", Last::Keep).0, at("new", Kind::Nothing));
    }

    /// S6, row 12: what leads out of the tree, through a file or nowhere is for the system to refuse.
    #[test]
    fn what_leads_nowhere_has_no_place() {
        for path in ["..", "a/../../x", "out/f", "away", "round", "a/f/x", "a/f/", "none/x"] {
            assert_eq!(walk(path, Last::Follow).0, Met::Elsewhere, "{path}");
        }
    }
}
