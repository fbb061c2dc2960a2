//! What a person is asked about at the first use of a plugin: what its manifest asks for, less what is granted, less what
//! they have answered already (P6).

use crate::grants::{Grants, Need, Unmet, files_advice};
use crate::manifest::Access;
use std::collections::BTreeSet;

/// What a call does to the world, as far as its tool says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallReach {
    /// Its tool is marked as read-only.
    Reads,
    /// It may change something.
    Changes,
}

/// What of a plugin's unmet requests a call needs: one that only reads needs no right to change files.
pub fn needed(plugin: &str, unmet: &[Unmet], granted: &Grants, reach: CallReach) -> Vec<Unmet> {
    let narrowed = |unmet: &Unmet| match (&unmet.need, reach) {
        (Need::Files(Access::ReadWrite), CallReach::Reads) => {
            granted.trees.is_empty().then(|| files_advice(plugin, Access::Read))
        }
        _ => Some(unmet.clone()),
    };
    unmet.iter().filter_map(narrowed).collect()
}

/// What a person has said of one plugin of one agent, for as long as the host runs. A changed component that asks for the
/// same is the same plugin; for more, they are asked about the more.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    refused: BTreeSet<Need>,
}

impl Answers {
    /// These are not given.
    pub fn refuse(&mut self, unmet: &[Unmet]) {
        self.refused.extend(unmet.iter().map(|unmet| unmet.need.clone()));
    }
}

/// What is to be asked: of what is not granted, all that has no answer.
pub fn to_ask(unmet: &[Unmet], answers: &Answers) -> Vec<Unmet> {
    unmet.iter().filter(|unmet| !answers.refused.contains(&unmet.need)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::{TreeGrant, unmet};
    use crate::manifest::{Asks, Manifest};

    fn manifest(asks: Asks) -> Manifest {
        Manifest { name: "files".to_owned(), asks, ..Manifest::default() }
    }

    fn needs(asks: &Asks, grants: &Grants, answers: &Answers) -> Vec<Need> {
        let unmet = unmet(Some(&manifest(asks.clone())), grants);
        to_ask(&unmet, answers).into_iter().map(|unmet| unmet.need).collect()
    }

    fn tree(access: Access) -> Grants {
        let trees = vec![TreeGrant { host: "/srv".into(), guest: ".".to_owned(), access }];
        Grants { trees, ..Grants::default() }
    }

    // P6: requests − grants − answers.
    #[test]
    fn p6_only_what_is_neither_granted_nor_answered_is_asked() {
        let asks = Asks { files: Some(Access::Read), env: vec!["LANG".into()], key_value: true, ..Asks::default() };
        let all = [Need::Files(Access::Read), Need::Env("LANG".into()), Need::KeyValue];
        let mut answers = Answers::default();
        assert_eq!(needs(&asks, &Grants::default(), &answers), all);
        assert_eq!(needs(&asks, &tree(Access::Read), &answers), all[1..]);
        answers.refuse(&unmet(Some(&manifest(asks.clone())), &tree(Access::Read)));
        assert_eq!(needs(&asks, &Grants::default(), &answers), all[..1], "only what was refused has an answer");
        answers.refuse(&unmet(Some(&manifest(asks.clone())), &Grants::default()));
        assert_eq!(needs(&asks, &Grants::default(), &answers), []);
        assert_eq!(needs(&Asks::default(), &Grants::default(), &Answers::default()), []);
    }

    // P6: listing files needs no right to change them, and what is granted for reading is not asked for again.
    #[test]
    fn p6_a_call_that_reads_asks_for_reading() {
        let asks = Asks { files: Some(Access::ReadWrite), key_value: true, ..Asks::default() };
        let needs = |granted: &Grants, reach| -> Vec<Need> {
            let unmet = unmet(Some(&manifest(asks.clone())), granted);
            needed("files", &unmet, granted, reach).into_iter().map(|unmet| unmet.need).collect()
        };
        let nothing = Grants::default();
        assert_eq!(needs(&nothing, CallReach::Reads), [Need::Files(Access::Read), Need::KeyValue]);
        assert_eq!(needs(&nothing, CallReach::Changes), [Need::Files(Access::ReadWrite), Need::KeyValue]);
        assert_eq!(needs(&tree(Access::Read), CallReach::Reads), [Need::KeyValue]);
        assert_eq!(needs(&tree(Access::Read), CallReach::Changes), [Need::Files(Access::ReadWrite), Need::KeyValue]);
    }

    // P6: a component that asks for more is asked about for the more alone, whether the rest was given or refused.
    #[test]
    fn p6_a_version_that_asks_for_more_is_asked_about_for_the_more() {
        let before = Asks { files: Some(Access::Read), http: vec!["https://a.example".into()], ..Asks::default() };
        let mut answers = Answers::default();
        answers.refuse(&unmet(Some(&manifest(before.clone())), &Grants::default()));
        assert_eq!(needs(&before, &Grants::default(), &answers), []);
        let after = Asks { files: Some(Access::ReadWrite), env: vec!["HOME".into()], ..before };
        let more = [Need::Files(Access::ReadWrite), Need::Env("HOME".into())];
        assert_eq!(needs(&after, &Grants::default(), &answers), more);
        assert_eq!(needs(&after, &tree(Access::Read), &answers), more, "reading is no writing");
        assert_eq!(needs(&after, &tree(Access::ReadWrite), &answers), more[1..]);
    }

    // P6: what an answer gives comes to what is granted already, and takes nothing away.
    #[test]
    fn p6_answers_add_to_grants() {
        let given =
            Grants { key_value: Some(10), env: [("LANG".into(), "C".into())].into(), ..tree(Access::ReadWrite) };
        let both = tree(Access::Read).and(&given);
        assert_eq!(both, given, "one tree with the wider access");
        assert_eq!(given.clone().and(&tree(Access::Read)), given);
        assert_eq!(Grants::default().and(&given), given);
        assert_eq!(given.clone().and(&Grants::default()), given);
    }
}
