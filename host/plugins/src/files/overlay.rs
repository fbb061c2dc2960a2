//! What a call has changed in its trees, as a layer over what was there before: it says of each path of now where that was when
//! the call began, or that the call made it itself.

use super::Place;
use std::collections::BTreeMap;

/// Where something was when the call began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// There.
    Before(Place),
    /// Nowhere: the call made it, or removed what was there.
    Own,
}

/// The changes of one call.
#[derive(Default)]
pub(crate) struct Overlay(BTreeMap<Place, Origin>);

impl Overlay {
    /// Where what is at this place now was before.
    pub(crate) fn origin(&self, place: &Place) -> Origin {
        if self.0.is_empty() {
            return Origin::Before(place.clone());
        }
        let mut end = place.path.len();
        loop {
            let above = Place { tree: place.tree, path: place.path[..end].to_owned() };
            match self.0.get(&above) {
                Some(Origin::Own) => return Origin::Own,
                Some(Origin::Before(before)) => {
                    return Origin::Before(Place { tree: before.tree, path: before.path.clone() + &place.path[end..] });
                }
                None => match place.path[..end].rfind('/') {
                    Some(slash) => end = slash,
                    None => return Origin::Before(place.clone()),
                },
            }
        }
    }

    /// The call has made, written or removed what is there.
    pub(crate) fn change(&mut self, place: &Place) {
        self.below(place);
        self.0.insert(place.clone(), Origin::Own);
    }

    /// It has given it another name.
    pub(crate) fn rename(&mut self, from: &Place, to: &Place) {
        if from == to {
            return;
        }
        let origin = self.origin(from);
        let moved = self.below(from);
        self.below(to);
        for (place, origin) in moved {
            let path = to.path.clone() + &place.path[from.path.len()..];
            self.0.insert(Place { tree: to.tree, path }, origin);
        }
        self.0.insert(from.clone(), Origin::Own);
        self.0.insert(to.clone(), origin);
    }

    /// It has given it one more name.
    pub(crate) fn link(&mut self, from: &Place, to: &Place) {
        let origin = self.origin(from);
        self.0.insert(to.clone(), origin);
    }

    /// All that it has changed.
    pub(crate) fn changed(&self) -> impl Iterator<Item = (&Place, &Origin)> {
        self.0.iter()
    }

    /// Takes out what lies below.
    fn below(&mut self, place: &Place) -> BTreeMap<Place, Origin> {
        let at = |path| Place { tree: place.tree, path };
        let mut from = self.0.split_off(&at(format!("{}/", place.path)));
        // `0` is the character behind `/`.
        self.0.append(&mut from.split_off(&at(format!("{}0", place.path))));
        from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(path: &str) -> Place {
        Place { tree: 0, path: path.to_owned() }
    }

    fn before(path: &str) -> Origin {
        Origin::Before(at(path))
    }

    /// S6: what a call made is its own, also below a directory that it made; what it left alone is where it was.
    #[test]
    fn what_is_made_is_the_calls_own() {
        let mut overlay = Overlay::default();
        assert_eq!(overlay.origin(&at("a/b")), before("a/b"));
        overlay.change(&at("made"));
        assert_eq!(overlay.origin(&at("made/below/it")), Origin::Own);
        assert_eq!(overlay.origin(&at("made-up")), before("made-up"), "a path is no prefix of letters");
        assert_eq!(
            overlay.origin(&Place { tree: 1, path: "made".into() }),
            Origin::Before(Place { tree: 1, path: "made".into() })
        );
    }

    /// S6: what was moved is known by where it was, however often, with what the call itself had put into it.
    #[test]
    fn what_is_moved_is_known_by_where_it_was() {
        let mut overlay = Overlay::default();
        overlay.change(&at("d/own"));
        overlay.change(&at("d-other"));
        overlay.rename(&at("d"), &at("e"));
        overlay.rename(&at("e/file"), &at("f"));
        assert_eq!(overlay.origin(&at("e/x/y")), before("d/x/y"));
        assert_eq!(overlay.origin(&at("e/own")), Origin::Own);
        assert_eq!(overlay.origin(&at("d/own")), Origin::Own, "nothing is there now");
        assert_eq!(overlay.origin(&at("f")), before("d/file"));
        assert_eq!(overlay.origin(&at("e/file")), Origin::Own);
        assert_eq!(overlay.origin(&at("d-other")), Origin::Own);
        overlay.link(&at("f"), &at("g"));
        assert_eq!(overlay.origin(&at("g")), before("d/file"));
        overlay.change(&at("e"));
        assert_eq!(overlay.origin(&at("e/own")), Origin::Own, "e was removed with all that was in it");
        let changed: Vec<_> = overlay.changed().map(|(place, _)| place.path.as_str()).collect();
        assert_eq!(changed, ["d", "d-other", "e", "f", "g"]);
    }
}
