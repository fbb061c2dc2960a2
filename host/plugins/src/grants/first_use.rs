//! Finds the needs about which the user is asked when a plugin is first used. These are the needs in the plugin's
//! manifest that are not granted and that the user has not refused (P6).

use super::called_servers::servers_in;
use super::http_pattern::{HttpPattern, within};
use super::manifest::{Access, Manifest};
use super::{Grants, Need, UnmetNeed, files_advice, request_need, unmet};
use serde_json::Value;
use std::collections::BTreeSet;

/// Whether a tool call may change something, according to the traits of the tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallEffect {
    /// The tool is marked as read-only.
    Reads,
    /// The tool is not marked as read-only.
    Changes,
}

/// What is known about the needs of a call before it runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CallNeeds {
    /// Whether the call may change something.
    pub effect: CallEffect,
    /// The servers that the arguments of the call name.
    pub servers: Vec<HttpPattern>,
}

impl CallNeeds {
    /// Returns the needs of a call with these arguments.
    pub fn new(effect: CallEffect, arguments: &Value) -> Self {
        Self { effect, servers: servers_in(arguments) }
    }

    /// Whether the call needs nothing that the other call does not need.
    pub fn is_within(&self, other: &Self) -> bool {
        self.effect <= other.effect && self.servers.iter().all(|server| other.servers.contains(server))
    }

    /// Adds the needs of another call.
    pub fn add(&mut self, other: &Self) {
        self.effect = self.effect.max(other.effect);
        self.servers
            .extend(other.servers.iter().filter(|server| !self.servers.contains(server)).cloned().collect::<Vec<_>>());
    }

    /// Returns the parts of a requested pattern that match the servers of the call.
    fn servers_within(&self, pattern: &str) -> Vec<HttpPattern> {
        let Ok(pattern) = pattern.parse::<HttpPattern>() else { return Vec::new() };
        let is_in_network = |server: &&HttpPattern| server.is_private() == pattern.is_private();
        let servers: Vec<_> = self.servers.iter().filter(is_in_network).cloned().collect();
        pattern.narrowed_to(&servers)
    }
}

/// Returns what a call with this effect needs of an unmet need. A call that only reads does not need write access to files.
pub(crate) fn narrowed(plugin: &str, unmet: &UnmetNeed, granted: &Grants, effect: CallEffect) -> Option<UnmetNeed> {
    match (&unmet.need, effect) {
        (Need::Files(Access::ReadWrite), CallEffect::Reads) => {
            granted.trees.is_empty().then(|| files_advice(plugin, Access::Read))
        }
        _ => Some(unmet.clone()),
    }
}

/// Returns the needs in the manifest that are relevant for a call and not granted. If the arguments name servers to which the plugin may ask to send requests, the call needs only these servers.
pub(crate) fn needed(manifest: Option<&Manifest>, granted: &Grants, call: &CallNeeds) -> Vec<UnmetNeed> {
    let Some(manifest) = manifest else { return Vec::new() };
    let names_server = |pattern: &&String| !call.servers_within(pattern).is_empty();
    let is_granted = |server: &HttpPattern| {
        let grants: Vec<_> =
            granted.http.iter().filter(|grant| grant.is_private() >= server.is_private()).cloned().collect();
        !within(&grants, std::slice::from_ref(server)).is_empty()
    };
    let of_call: Vec<_> = manifest.asks.http.iter().filter(names_server).collect();
    let of_other_requests = |unmet: &UnmetNeed| matches!(unmet.need, Need::Http(_)) && !of_call.is_empty();
    let relevant = |unmet: UnmetNeed| match of_other_requests(&unmet) || manifest.asks.is_optional(&unmet.need) {
        true => None,
        false => narrowed(&manifest.name, &unmet, granted, call.effect),
    };
    let lacks_server = |pattern: &&&String| !call.servers_within(pattern).iter().all(is_granted);
    let requests = of_call.iter().filter(lacks_server).map(|pattern| request_need(&manifest.name, pattern));
    unmet(Some(manifest), granted).into_iter().filter_map(relevant).chain(requests).collect()
}

/// The needs that the user has refused to grant to one plugin of one agent since the host started. If a new version of
/// the plugin has one of these needs, the user is not asked about this need a second time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RefusedNeeds {
    refused: BTreeSet<Need>,
}

impl RefusedNeeds {
    /// Records that the user refused to give the grants for these needs of a call. If the call names servers, requests to other
    /// servers are not refused.
    pub fn refuse(&mut self, unmet: &[UnmetNeed], call: &CallNeeds) {
        self.refused.extend(unmet.iter().flat_map(|unmet| parts(&unmet.need, call)));
    }
}

/// The unmet needs of a call about which the user must be asked, because the user has not refused them yet.
pub fn to_ask(unmet: &[UnmetNeed], refused: &RefusedNeeds, call: &CallNeeds) -> Vec<UnmetNeed> {
    let is_refused = |need: &Need| {
        refused.refused.contains(need) || parts(need, call).iter().all(|part| refused.refused.contains(part))
    };
    unmet.iter().filter(|unmet| !is_refused(&unmet.need)).cloned().collect()
}

/// Returns the parts of a need about which the user decides separately: requests to each server that the call names.
fn parts(need: &Need, call: &CallNeeds) -> Vec<Need> {
    let servers = match need {
        Need::Http(pattern) => call.servers_within(pattern),
        _ => Vec::new(),
    };
    if servers.is_empty() {
        return vec![need.clone()];
    }
    servers.iter().map(|server| Need::Http(server.to_string())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::grants::TreeGrant;
    use crate::grants::manifest::Asks;
    use serde_json::json;

    fn manifest(asks: Asks) -> Manifest {
        Manifest { name: "files".to_owned(), asks, ..Manifest::default() }
    }

    fn needs(asks: &Asks, grants: &Grants, answers: &RefusedNeeds) -> Vec<Need> {
        let unmet = unmet(Some(&manifest(asks.clone())), grants);
        to_ask(&unmet, answers, &call(&Value::Null)).into_iter().map(|unmet| unmet.need).collect()
    }

    fn call(arguments: &Value) -> CallNeeds {
        CallNeeds::new(CallEffect::Changes, arguments)
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
        answers.refuse(&unmet(Some(&manifest(asks.clone())), &tree(Access::Read)), &call(&Value::Null));
        assert_eq!(
            needs(&asks, &Grants::default(), &answers),
            all[..1],
            "the user is asked again about all needs except the refused ones"
        );
        answers.refuse(&unmet(Some(&manifest(asks.clone())), &Grants::default()), &call(&Value::Null));
        assert_eq!(needs(&asks, &Grants::default(), &answers), []);
        assert_eq!(needs(&Asks::default(), &Grants::default(), &RefusedNeeds::default()), []);
    }

    // P6: before a read-only call, the user is asked only for read access, and only if the plugin does not have it yet.
    #[test]
    fn p6_read_only_call_asks_for_read_access_only() {
        let asks = Asks { files: Some(Access::ReadWrite), key_value: true, ..Asks::default() };
        let needs = |granted: &Grants, effect| -> Vec<Need> {
            let call = CallNeeds::new(effect, &Value::Null);
            needed(Some(&manifest(asks.clone())), granted, &call).into_iter().map(|unmet| unmet.need).collect()
        };
        let nothing = Grants::default();
        assert_eq!(needs(&nothing, CallEffect::Reads), [Need::Files(Access::Read), Need::KeyValue]);
        assert_eq!(needs(&nothing, CallEffect::Changes), [Need::Files(Access::ReadWrite), Need::KeyValue]);
        assert_eq!(needs(&tree(Access::Read), CallEffect::Reads), [Need::KeyValue]);
        let asks = Asks { secrets: vec!["A".into(), "B".into()], optional: vec!["A".into()], ..Asks::default() };
        let call = CallNeeds::new(CallEffect::Reads, &Value::Null);
        let lacking = needed(Some(&manifest(asks)), &nothing, &call);
        assert_eq!(lacking.len(), 1, "optional grants are not asked for: {lacking:?}");
        assert_eq!(needs(&tree(Access::Read), CallEffect::Changes), [Need::Files(Access::ReadWrite), Need::KeyValue]);
    }

    // P6: if a new version of a plugin asks for more grants, the user is asked only about the additional grants.
    #[test]
    fn p6_new_version_asks_only_for_additional_needs() {
        let before = Asks { files: Some(Access::Read), http: vec!["https://a.example".into()], ..Asks::default() };
        let mut answers = RefusedNeeds::default();
        answers.refuse(&unmet(Some(&manifest(before.clone())), &Grants::default()), &call(&Value::Null));
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

    // P6: a call needs only the servers that its arguments name. A grant or a refusal for one server says nothing about another.
    #[test]
    fn p6_each_server_of_a_call_is_asked_about_once() {
        let manifest = manifest(Asks {
            http: ["GET https://*:*", "GET http://*:*"].map(str::to_owned).into(),
            key_value: true,
            ..Asks::default()
        });
        let granted = |patterns: &[&str]| Grants {
            http: patterns.iter().map(|pattern| pattern.parse().expect("a pattern")).collect(),
            key_value: Some(10),
            ..Grants::default()
        };
        let lacks = |grants: &Grants, arguments: &Value, refused: &RefusedNeeds| -> Vec<String> {
            let call = call(arguments);
            let lacking = to_ask(&needed(Some(&manifest), grants, &call), refused, &call);
            lacking.into_iter().map(|unmet| unmet.thing).collect()
        };
        let (a, b) = (json!({"url": "https://a.example/x"}), json!({"url": "https://b.example/?q"}));
        let (https, http) = ("the request GET https://*:*", "the request GET http://*:*");
        let mut refused = RefusedNeeds::default();
        assert_eq!(lacks(&granted(&[]), &a, &refused), [https], "the other scheme is not needed");
        let with_a = granted(&["GET https://a.example"]);
        assert_eq!(lacks(&with_a, &a, &refused), Vec::<String>::new());
        assert_eq!(lacks(&with_a, &b, &refused), [https], "another server is asked about");
        assert_eq!(lacks(&with_a, &json!([a, b]), &refused), [https]);
        assert_eq!(lacks(&with_a, &json!({"url": "http://a.example"}), &refused), [http]);
        assert_eq!(lacks(&granted(&["GET https://*:*"]), &b, &refused), Vec::<String>::new());
        assert_eq!(lacks(&with_a, &json!({"query": "x"}), &refused), [http], "as before, if no server is named");
        let call_of_b = call(&b);
        refused.refuse(&needed(Some(&manifest), &with_a, &call_of_b), &call_of_b);
        assert_eq!(lacks(&with_a, &b, &refused), Vec::<String>::new());
        assert_eq!(lacks(&with_a, &json!({"url": "https://c.example"}), &refused), [https]);
        let mut asked = call(&a);
        assert!(call(&a).is_within(&asked) && !call_of_b.is_within(&asked));
        asked.add(&call_of_b);
        assert!(call_of_b.is_within(&asked) && call(&Value::Null).is_within(&asked));
    }
}
