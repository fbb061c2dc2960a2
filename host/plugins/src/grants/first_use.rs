//! Finds the needs about which the user is asked when a plugin is first used. These are the needs in the plugin's
//! manifest that are not granted and that the user has not refused (P6).

use super::manifest::Access;
use super::{Grants, Need, UnmetNeed, files_advice};
use std::collections::BTreeSet;

/// Whether a tool call may change something, according to the traits of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallEffect {
    /// The tool is marked as read-only.
    Reads,
    /// The tool is not marked as read-only.
    Changes,
}

/// Returns the unmet needs that are relevant for a call. A call that only reads does not need write access to files.
pub fn needed(plugin: &str, unmet: &[UnmetNeed], granted: &Grants, effect: CallEffect) -> Vec<UnmetNeed> {
    let narrowed = |unmet: &UnmetNeed| match (&unmet.need, effect) {
        (Need::Files(Access::ReadWrite), CallEffect::Reads) => {
            granted.trees.is_empty().then(|| files_advice(plugin, Access::Read))
        }
        _ => Some(unmet.clone()),
    };
    unmet.iter().filter_map(narrowed).collect()
}

/// The needs that the user has refused to grant to one plugin of one agent since the host started. If a new version of
/// the plugin has one of these needs, the user is not asked about this need a second time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedNeeds {
    refused: BTreeSet<Need>,
}

impl RefusedNeeds {
    /// Records that the user refused to give the grants for these needs.
    pub fn refuse(&mut self, unmet: &[UnmetNeed]) {
        self.refused.extend(unmet.iter().map(|unmet| unmet.need.clone()));
    }
}

/// The unmet needs about which the user must be asked, because the user has not refused them yet.
pub fn to_ask(unmet: &[UnmetNeed], refused: &RefusedNeeds) -> Vec<UnmetNeed> {
    unmet.iter().filter(|unmet| !refused.refused.contains(&unmet.need)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::manifest::{Asks, Manifest};
    use crate::grants::{TreeGrant, unmet};

    fn manifest(asks: Asks) -> Manifest {
        Manifest { name: "files".to_owned(), asks, ..Manifest::default() }
    }

    fn needs(asks: &Asks, grants: &Grants, answers: &RefusedNeeds) -> Vec<Need> {
        let unmet = unmet(Some(&manifest(asks.clone())), grants);
        to_ask(&unmet, answers).into_iter().map(|unmet| unmet.need).collect()
    }

    fn tree(access: Access) -> Grants {
        let trees = vec![TreeGrant { host: "/srv".into(), guest: ".".to_owned(), access }];
        Grants { trees, ..Grants::default() }
    }

    // P6: the user is asked about needs that are neither granted nor refused.
    #[test]
    fn p6_asks_only_for_needs_neither_granted_nor_refused() {
        let asks = Asks { files: Some(Access::Read), env: vec!["LANG".into()], key_value: true, ..Asks::default() };
        let all = [Need::Files(Access::Read), Need::Env("LANG".into()), Need::KeyValue];
        let mut answers = RefusedNeeds::default();
        assert_eq!(needs(&asks, &Grants::default(), &answers), all);
        assert_eq!(needs(&asks, &tree(Access::Read), &answers), all[1..]);
        answers.refuse(&unmet(Some(&manifest(asks.clone())), &tree(Access::Read)));
        assert_eq!(
            needs(&asks, &Grants::default(), &answers),
            all[..1],
            "the user is asked again about all needs except the refused ones"
        );
        answers.refuse(&unmet(Some(&manifest(asks.clone())), &Grants::default()));
        assert_eq!(needs(&asks, &Grants::default(), &answers), []);
        assert_eq!(needs(&Asks::default(), &Grants::default(), &RefusedNeeds::default()), []);
    }

    // P6: before a read-only call, the user is asked only for read access, and only if the plugin does not have it yet.
    #[test]
    fn p6_read_only_call_asks_for_read_access_only() {
        let asks = Asks { files: Some(Access::ReadWrite), key_value: true, ..Asks::default() };
        let needs = |granted: &Grants, effect| -> Vec<Need> {
            let unmet = unmet(Some(&manifest(asks.clone())), granted);
            needed("files", &unmet, granted, effect).into_iter().map(|unmet| unmet.need).collect()
        };
        let nothing = Grants::default();
        assert_eq!(needs(&nothing, CallEffect::Reads), [Need::Files(Access::Read), Need::KeyValue]);
        assert_eq!(needs(&nothing, CallEffect::Changes), [Need::Files(Access::ReadWrite), Need::KeyValue]);
        assert_eq!(needs(&tree(Access::Read), CallEffect::Reads), [Need::KeyValue]);
        assert_eq!(needs(&tree(Access::Read), CallEffect::Changes), [Need::Files(Access::ReadWrite), Need::KeyValue]);
    }

    // P6: if a new version of a plugin asks for more grants, the user is asked only about the additional grants.
    #[test]
    fn p6_new_version_asks_only_for_additional_needs() {
        let before = Asks { files: Some(Access::Read), http: vec!["https://a.example".into()], ..Asks::default() };
        let mut answers = RefusedNeeds::default();
        answers.refuse(&unmet(Some(&manifest(before.clone())), &Grants::default()));
        assert_eq!(needs(&before, &Grants::default(), &answers), []);
        let after = Asks { files: Some(Access::ReadWrite), env: vec!["HOME".into()], ..before };
        let more = [Need::Files(Access::ReadWrite), Need::Env("HOME".into())];
        assert_eq!(needs(&after, &Grants::default(), &answers), more);
        assert_eq!(needs(&after, &tree(Access::Read), &answers), more, "read access does not cover write access");
        assert_eq!(needs(&after, &tree(Access::ReadWrite), &answers), more[1..]);
    }

    // P6: the grants that the user allows are added to the existing grants, and no grant is removed.
    #[test]
    fn p6_answers_add_to_existing_grants() {
        let given =
            Grants { key_value: Some(10), env: [("LANG".into(), "C".into())].into(), ..tree(Access::ReadWrite) };
        let both = tree(Access::Read).and(&given);
        assert_eq!(both, given, "one tree with the wider access");
        assert_eq!(given.clone().and(&tree(Access::Read)), given);
        assert_eq!(Grants::default().and(&given), given);
        assert_eq!(given.clone().and(&Grants::default()), given);
    }
}
