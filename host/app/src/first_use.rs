//! What a yes at the first use of a plugin would give, and what only agent.toml can give (P6).

use crate::grants::{self, Grant, Kind, Receiver};
use crate::protection;
use agent_plugins::{Access, Grants, HttpPattern, Need, PatternError, ProtectedPath, TreeGrant, Unmet};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Things that one card may offer: what is not shown is not given.
const MOST: usize = 24;
/// Characters of one of them.
const LONGEST: usize = 200;
/// MiB that a plugin may keep after a yes.
const KEPT_MEBIBYTES: u64 = 10;

/// What a person is asked about.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Offers {
    /// What a yes gives.
    pub(crate) given: Vec<Offer>,
    /// What it does not give.
    pub(crate) beyond: Vec<Beyond>,
}

/// One grant.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Offer {
    /// As the plugin asks for it.
    pub(crate) asked: Unmet,
    /// As it would be written.
    pub(crate) grant: Grant,
    /// What it means, for people; a plugin has written parts of it.
    pub(crate) meaning: String,
    gives: Grants,
}

/// What cannot be given here.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Beyond {
    /// As the plugin asks for it.
    pub(crate) asked: Unmet,
    /// Why not.
    pub(crate) why: String,
}

/// Where folders are granted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Folder {
    /// What it is relative to: the folder of the agent's file; empty for the current folder.
    pub(crate) base: PathBuf,
    /// As it is written there.
    pub(crate) written: String,
    /// Whether the person has named it.
    pub(crate) is_typed: bool,
}

/// Within what a plugin may be offered something.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bounds {
    /// What was granted and taken away again: no more of its kind is offered (row 48).
    pub(crate) revoked: Grants,
    /// To which servers requests are offered.
    pub(crate) hosts: Hosts,
    /// What no grant covers.
    pub(crate) protected: Vec<ProtectedPath>,
}

/// Servers that requests are offered to.
#[derive(Clone, Debug, Default)]
pub(crate) enum Hosts {
    /// Whatever the plugin asks for.
    #[default]
    All,
    /// Those that the call names in its arguments, where the plugin asks for them; else all.
    OfCall(Vec<HttpPattern>),
    /// Those that the person has typed, and no others.
    Typed(Vec<HttpPattern>),
}

impl Bounds {
    /// Those of a call: it needs the servers that its arguments name.
    pub(crate) fn of_call(arguments: &Value, revoked: Grants, protected: Vec<ProtectedPath>) -> Self {
        let mut hosts = Vec::new();
        collect_hosts(arguments, &mut hosts);
        Self { revoked, hosts: Hosts::OfCall(hosts), protected }
    }
}

/// Servers in the texts of some arguments.
fn collect_hosts(arguments: &Value, hosts: &mut Vec<HttpPattern>) {
    match arguments {
        Value::String(text) if text.starts_with("http://") || text.starts_with("https://") => {
            let end = text.match_indices(['/', '?', '#']).map(|(index, _)| index).find(|index| *index > 7);
            let origin = end.map_or(text.as_str(), |end| &text[..end]);
            for pattern in host_patterns(origin) {
                if hosts.len() < MOST && !hosts.contains(&pattern) {
                    hosts.push(pattern);
                }
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect_hosts(item, hosts)),
        Value::Object(fields) => fields.values().for_each(|field| collect_hosts(field, hosts)),
        _ => {}
    }
}

/// Patterns for one server, as somebody types it: `a.example`, `a.example:8080` or `https://a.example`. A plugin that asks for
/// servers of the inside may be given this one there.
pub(crate) fn host_patterns(typed: &str) -> Vec<HttpPattern> {
    if typed.contains(['*', ' ', '@']) {
        return Vec::new();
    }
    let origins = match typed.contains("://") {
        true => vec![typed.to_owned()],
        false => vec![format!("https://{typed}"), format!("http://{typed}")],
    };
    let both = origins.iter().flat_map(|origin| [origin.clone(), format!("private {origin}")]);
    both.filter_map(|pattern| pattern.parse().ok()).collect()
}

impl Offers {
    /// What can be given of what a plugin lacks.
    pub(crate) fn new(
        plugin: &str,
        lacking: Vec<Unmet>,
        (folder, bounds): (&Folder, &Bounds),
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let mut offers = Self::default();
        for asked in lacking {
            let values = match values(&asked.need, folder, bounds) {
                Ok(values) => values,
                Err(why) => {
                    offers.beyond.push(Beyond { asked, why });
                    continue;
                }
            };
            for value in values {
                let asked = asked.clone();
                let has_room = offers.given.len() < MOST;
                let room = if has_room { Ok(()) } else { Err("there is too much to be shown".to_owned()) };
                match room.and_then(|()| offer(plugin, value, (folder, bounds), variable)) {
                    Ok((grant, meaning, gives)) => offers.given.push(Offer { asked, grant, meaning, gives }),
                    Err(why) => offers.beyond.push(Beyond { asked, why }),
                }
            }
        }
        offers
    }

    /// All that a yes gives.
    pub(crate) fn grants(&self) -> Grants {
        self.given.iter().fold(Grants::default(), |all, offer| all.and(&offer.gives))
    }

    /// The same as it would be written.
    pub(crate) fn written(&self) -> Vec<Grant> {
        self.given.iter().map(|offer| offer.grant.clone()).collect()
    }

    /// All that was asked for.
    pub(crate) fn asked(&self) -> Vec<Unmet> {
        let given = self.given.iter().map(|offer| offer.asked.clone());
        given.chain(self.beyond.iter().map(|beyond| beyond.asked.clone())).collect()
    }

    /// All requests that were asked for.
    pub(crate) fn has_requests(&self) -> bool {
        self.asked().iter().any(|asked| matches!(asked.need, Need::Http(_)))
    }

    /// Whether a folder is among it.
    pub(crate) fn has_folder(&self) -> bool {
        self.asked().iter().any(|asked| matches!(asked.need, Need::Files(_)))
    }
}

impl Offer {
    /// The line of `[plugins.NAME.grants]`.
    pub(crate) fn line(&self) -> String {
        let Grant { kind, value, .. } = &self.grant;
        let text = toml::Value::String(value.clone());
        match kind {
            Kind::KeyValue | Kind::ModelTokens | Kind::Media => format!("{} = {value}", kind.key()),
            _ => format!("{} = [{text}]", kind.key()),
        }
    }

    /// The same on the command line.
    pub(crate) fn flag(&self, plugin: &str) -> String {
        let Grant { kind, value, .. } = &self.grant;
        format!("--grant {}", crate::terminal::text::shell_word(&format!("{plugin}:{}={value}", kind.key())))
    }
}

/// One thing to offer: its kind, and its value as it would be written.
struct Offered {
    kind: Kind,
    value: String,
}

impl Offered {
    fn new(kind: Kind, value: impl Into<String>) -> Self {
        Self { kind, value: value.into() }
    }
}

const REVOKED: &str = "it is more than was granted before it was taken away";

/// What is offered for a need: never more than was taken away.
fn values(need: &Need, folder: &Folder, bounds: &Bounds) -> Result<Vec<Offered>, String> {
    let revoked = &bounds.revoked;
    let at_most = |kind, asked: u64, most: Option<u64>| {
        let value = most.map_or(asked, |most| most.min(asked));
        if value == 0 { Err(REVOKED.to_owned()) } else { Ok(vec![Offered::new(kind, value.to_string())]) }
    };
    match need {
        Need::Files(access) => Ok(folders(*access, folder, &revoked.trees)),
        Need::Env(name) if !revoked.env.is_empty() && !revoked.env.contains_key(name) => Err(REVOKED.to_owned()),
        Need::Env(name) => Ok(vec![Offered::new(Kind::Env, name)]),
        Need::Http(pattern) => requests(pattern, bounds),
        Need::Event(event_type)
            if !revoked.events.is_empty() && !revoked.events.iter().any(|one| one.as_str() == event_type) =>
        {
            Err(REVOKED.to_owned())
        }
        Need::Event(event_type) => Ok(vec![Offered::new(Kind::Events, event_type)]),
        Need::Media => Ok(vec![Offered::new(Kind::Media, "true")]),
        Need::KeyValue => at_most(Kind::KeyValue, KEPT_MEBIBYTES, revoked.key_value.map(|bytes| bytes >> 20)),
        Need::Model(tokens) => at_most(Kind::ModelTokens, *tokens, revoked.model_tokens),
        Need::Config(_) => Err("it needs a value".to_owned()),
        Need::Secret(_) => Err("it needs hosts to go to".to_owned()),
    }
}

fn folders(access: Access, folder: &Folder, revoked: &[TreeGrant]) -> Vec<Offered> {
    let kind = |access| if access == Access::Read { Kind::Read } else { Kind::Write };
    if revoked.is_empty() || folder.is_typed {
        return vec![Offered::new(kind(access), &*folder.written)];
    }
    let again = revoked.iter().map(|tree| {
        let is_relative_to_file = folder.base.join(&tree.guest) == tree.host;
        let written = if is_relative_to_file { tree.guest.clone() } else { absolute(&tree.host) };
        Offered::new(kind(tree.access.min(access)), written)
    });
    again.collect()
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).to_string_lossy().into_owned()
}

fn requests(pattern: &str, bounds: &Bounds) -> Result<Vec<Offered>, String> {
    let asked: HttpPattern = pattern.parse().map_err(|error: PatternError| error.to_string())?;
    let mut offered = vec![asked];
    if !bounds.revoked.http.is_empty() {
        offered = offered.iter().flat_map(|pattern| pattern.narrowed_to(&bounds.revoked.http)).collect();
        if offered.is_empty() {
            return Err(REVOKED.to_owned());
        }
    }
    // A host in a private network is offered only to a plugin that asks for private networks.
    let is_private = |pattern: &HttpPattern| pattern.to_string().starts_with("private ");
    let (Hosts::OfCall(hosts) | Hosts::Typed(hosts)) = &bounds.hosts else { return Ok(all_of(&offered)) };
    let fits = |host: &&HttpPattern| is_private(host) == pattern.starts_with("private ");
    let hosts: Vec<_> = hosts.iter().filter(fits).cloned().collect();
    let narrowed: Vec<_> = offered.iter().flat_map(|pattern| pattern.narrowed_to(&hosts)).collect();
    match (narrowed.is_empty(), &bounds.hosts) {
        (false, _) => Ok(all_of(&narrowed)),
        (true, Hosts::Typed(_)) => Err("it does not include that server".to_owned()),
        (true, _) => Ok(all_of(&offered)),
    }
}

fn all_of(patterns: &[HttpPattern]) -> Vec<Offered> {
    let mut values: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    values.dedup();
    values.into_iter().map(|value| Offered::new(Kind::Http, value)).collect()
}

fn offer(
    plugin: &str,
    offered: Offered,
    (folder, bounds): (&Folder, &Bounds),
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<(Grant, String, Grants), String> {
    let Offered { kind, value } = offered;
    let base = folder.base.clone();
    if !matches!(kind, Kind::Read | Kind::Write) && value.chars().nth(LONGEST).is_some() {
        return Err("it is too long to be shown".to_owned());
    }
    if kind == Kind::Env && variable(&value).is_none() {
        return Err("it is not set".to_owned());
    }
    let meaning = match kind {
        Kind::Read => of_folder(Access::Read, &base.join(&value), &bounds.protected),
        Kind::Write => of_folder(Access::ReadWrite, &base.join(&value), &bounds.protected),
        Kind::Env => format!("the environment variable {value}"),
        Kind::Http => of_requests(&value),
        Kind::Events => format!("sending events {value} to a service outside"),
        Kind::Media => "reading the pictures and other media of the conversation".to_owned(),
        Kind::ModelTokens => format!("asking the agent's model, up to {value} tokens in a turn"),
        _ => format!("keeping up to {value} MiB between calls"),
    };
    let receiver = Receiver::Plugin(plugin.to_owned());
    let grant = Grant { receiver, kind, value, base, origin: String::new() };
    let resolved = grants::resolve(std::slice::from_ref(&grant), variable);
    let mut resolved = resolved.map_err(|problems| problems.concat().trim_start_matches(": ").to_owned())?;
    Ok((grant, meaning, resolved.plugins.remove(plugin).unwrap_or_default()))
}

fn of_folder(access: Access, folder: &Path, protected: &[ProtectedPath]) -> String {
    let whole = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let does = match access {
        Access::Read => "reading",
        Access::ReadWrite => "reading, changing and deleting",
    };
    let excluded = match access {
        Access::Read => Vec::new(),
        Access::ReadWrite => protection::excluded(protected, folder),
    };
    let without =
        if excluded.is_empty() { String::new() } else { format!(", without changing {}", excluded.join(", ")) };
    format!("{does} whatever is in {}{without}", whole.display())
}

fn of_requests(pattern: &str) -> String {
    let reach = match pattern {
        _ if pattern.parse().is_ok_and(|pattern: HttpPattern| pattern.is_inside()) => {
            ", which is on this machine or its network and not on the internet"
        }
        _ if pattern.starts_with("private ") => ", also on this machine and its network",
        _ if pattern.contains("://*.") => "",
        _ if pattern.contains("://*") => ", which is any server of the internet",
        _ => "",
    };
    format!("requests {pattern}{reach}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_plugins::GrantAdvice;

    fn lacking(need: Need) -> Unmet {
        let advice = GrantAdvice { table: "[plugins.p.grants]".into(), line: String::new(), flag: String::new() };
        Unmet { need, thing: "a thing".into(), advice }
    }

    fn offers(needs: Vec<Need>, folder: &Folder) -> Offers {
        let lang = |name: &str| (name == "LANG").then(|| "C".to_owned());
        Offers::new("p", needs.into_iter().map(lacking).collect(), (folder, &Bounds::default()), &lang)
    }

    /// P6: a yes gives just what is shown, and what it cannot give is said with the reason.
    #[test]
    fn p6_what_a_yes_gives_is_what_is_shown() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let base = place.path().canonicalize().expect("there");
        let folder = Folder { base: base.clone(), written: ".".into(), is_typed: false };
        let needs = vec![
            Need::Files(Access::ReadWrite),
            Need::Env("LANG".into()),
            Need::Env("ABSENT".into()),
            Need::Config("region".into()),
            Need::Http("GET https://*:*".into()),
            Need::Http("private https://*.corp.example".into()),
            Need::Secret("TOKEN".into()),
            Need::KeyValue,
            Need::Model(20_000),
            Need::Event("com.example.paid".into()),
            Need::Event("agent-host.turn.finished".into()),
            Need::Media,
        ];
        let offers = offers(needs, &folder);
        let shown: Vec<_> = offers
            .given
            .iter()
            .map(|offer| format!("{} · {} · {}", offer.meaning, offer.line(), offer.flag("p")))
            .chain(offers.beyond.iter().map(|beyond| format!("{:?}: {}", beyond.asked.need, beyond.why)))
            .collect();
        insta::assert_snapshot!(shown.join("\n").replace(&base.display().to_string(), "/base"), @r#"
        reading, changing and deleting whatever is in /base · write = ["."] · --grant p:write=.
        the environment variable LANG · env = ["LANG"] · --grant p:env=LANG
        requests GET https://*:*, which is any server of the internet · http = ["GET https://*:*"] · --grant 'p:http=GET https://*:*'
        requests private https://*.corp.example, also on this machine and its network · http = ["private https://*.corp.example"] · --grant 'p:http=private https://*.corp.example'
        keeping up to 10 MiB between calls · key_value_mib = 10 · --grant p:key_value_mib=10
        asking the agent's model, up to 20000 tokens in a turn · model_tokens = 20000 · --grant p:model_tokens=20000
        sending events com.example.paid to a service outside · events = ["com.example.paid"] · --grant p:events=com.example.paid
        reading the pictures and other media of the conversation · media = true · --grant p:media=true
        Env("ABSENT"): it is not set
        Config("region"): it needs a value
        Secret("TOKEN"): it needs hosts to go to
        Event("agent-host.turn.finished"): the event type "agent-host.turn.finished" is reserved: types that begin with `agent-host.`, or look like it, are the host's own; use a name of your own, such as `com.example.payment.requested`
        "#);
        let grants = offers.grants();
        assert_eq!(grants.trees.len(), 1);
        assert_eq!(
            (grants.trees[0].host.as_path(), grants.trees[0].access),
            (base.join(".").as_path(), Access::ReadWrite)
        );
        assert_eq!(grants.env["LANG"], "C");
        assert_eq!((grants.http.len(), grants.key_value), (2, Some(10 << 20)));
        assert!(grants.config.is_empty() && grants.secrets.is_empty());
    }

    /// P6: what would not be shown is not given.
    #[test]
    fn p6_nothing_is_given_unseen() {
        let folder = Folder { base: PathBuf::new(), written: ".".into(), is_typed: false };
        let many = (0..100).map(|number| Need::Http(format!("https://h{number}.example"))).collect();
        let offers_of_many = offers(many, &folder);
        assert_eq!((offers_of_many.given.len(), offers_of_many.beyond.len()), (MOST, 76));
        assert_eq!(offers_of_many.grants().http.len(), MOST);
        let long = offers(vec![Need::Http(format!("https://a.example/{}", "x".repeat(LONGEST)))], &folder);
        assert!(long.given.is_empty(), "{long:?}");
    }

    /// P6: a folder that is not there is no grant.
    #[test]
    fn p6_a_folder_that_cannot_be_granted_is_not_offered() {
        let folder = Folder { base: PathBuf::new(), written: "/absent/nowhere".into(), is_typed: true };
        let offers = offers(vec![Need::Files(Access::Read)], &folder);
        assert!(offers.given.is_empty() && offers.beyond[0].why.contains("cannot be granted"), "{offers:?}");
        assert!(offers.has_folder());
    }

    /// P6: what the call names in its arguments narrows a request, and so does a host that a person types; nothing widens it.
    #[test]
    fn p6_requests_are_narrowed_to_one_host() {
        let folder = Folder { base: PathBuf::new(), written: ".".into(), is_typed: false };
        let lines = |pattern: &str, bounds: &Bounds| -> Vec<String> {
            let lacking = vec![lacking(Need::Http(pattern.to_owned()))];
            Offers::new("p", lacking, (&folder, bounds), &|_| None).given.iter().map(Offer::line).collect()
        };
        let called =
            |url: &str| Bounds::of_call(&serde_json::json!({"deep": [{"url": url}]}), Grants::default(), Vec::new());
        let typed = |host: &str| Bounds { hosts: Hosts::Typed(host_patterns(host)), ..Bounds::default() };
        assert_eq!(
            lines("GET https://*", &called("https://a.example/path?q=1")),
            ["http = [\"GET https://a.example\"]"]
        );
        assert_eq!(lines("https://*", &called("https://a.example")), ["http = [\"https://a.example\"]"]);
        assert_eq!(lines("https://*.b.example", &called("https://a.example/")), ["http = [\"https://*.b.example\"]"]);
        assert_eq!(lines("https://*", &called("https://127.0.0.1/")), ["http = [\"https://127.0.0.1\"]"]);
        assert!(of_requests("https://127.0.0.1").contains("on this machine"), "a person is told where it is");
        assert!(of_requests("private http://localhost:1").contains("on this machine"));
        assert!(!of_requests("https://1.1.1.1").contains("this machine"));
        assert_eq!(lines("https://*:*", &typed("b.example:8080")), ["http = [\"https://b.example:8080\"]"]);
        assert_eq!(lines("https://*", &typed("b.example")), ["http = [\"https://b.example\"]"]);
        assert_eq!(lines("private https://*", &typed("b.example")), ["http = [\"private https://b.example\"]"]);
        assert!(lines("https://*.c.example", &typed("b.example")).is_empty(), "nothing is offered in its place");
        assert!(host_patterns("*.example").is_empty() && host_patterns("user@a.example").is_empty());
    }

    /// Row 48: what was taken away is the most that is offered again.
    #[test]
    fn row_48_no_more_is_offered_than_was_taken_away() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let base = place.path().to_owned();
        std::fs::create_dir(base.join("docs")).expect("created");
        let folder = Folder { base: base.clone(), written: ".".into(), is_typed: false };
        let tree = TreeGrant { host: base.join("docs"), guest: "docs".to_owned(), access: Access::Read };
        let revoked = Grants {
            trees: vec![tree],
            http: vec!["https://a.example".parse().expect("a pattern")],
            env: [("LANG".to_owned(), "C".to_owned())].into(),
            key_value: Some(1 << 20),
            model_tokens: Some(5),
            ..Grants::default()
        };
        let bounds = Bounds { revoked, ..Bounds::default() };
        let needs = [
            Need::Files(Access::ReadWrite),
            Need::Http("https://*".into()),
            Need::Http("https://b.example".into()),
            Need::Env("LANG".into()),
            Need::Env("HOME".into()),
            Need::KeyValue,
            Need::Model(100),
        ];
        let offers = Offers::new("p", needs.map(lacking).into(), (&folder, &bounds), &|_| Some("C".to_owned()));
        let lines: Vec<_> = offers.given.iter().map(Offer::line).collect();
        let expected = [
            "read = [\"docs\"]",
            "http = [\"https://a.example\"]",
            "env = [\"LANG\"]",
            "key_value_mib = 1",
            "model_tokens = 5",
        ];
        assert_eq!(lines, expected);
        let beyond: Vec<_> = offers.beyond.iter().map(|beyond| &beyond.asked.need).collect();
        assert_eq!(beyond, [&Need::Http("https://b.example".into()), &Need::Env("HOME".into())]);
    }
}
