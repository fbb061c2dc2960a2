//! Decides which missing grants of a plugin are offered to the user at the plugin's first use, and which can be granted
//! only in `agent.toml` (P6).

use super::folders::{KnownFolders, offered_folders};
use crate::grants::{self, Grant, Kind, Receiver};
use crate::protection;
use crate::text::shell_word;
use agent_plugins::{Access, Grants, HttpPattern, Need, PatternError, ProtectedPath, TreeGrant, UnmetNeed, servers_in};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// Maximum number of grants that are offered at once. If more grants are missing, the grants beyond this number are
/// not offered.
const MAX_OFFERS: usize = 24;
/// Maximum number of characters that an offered value may have.
const MAX_CHARACTERS: usize = 200;
/// Amount of storage, in MiB, that is offered to a plugin that requests storage.
const STORAGE_MEBIBYTES: u64 = 10;

/// The grants that a question offers to the user, and the plugin's requests that the question cannot offer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct GrantOffers {
    /// Grants that the plugin gets if the user answers yes.
    pub offered: Vec<GrantOffer>,
    /// Requests of the plugin that no answer can grant.
    pub not_offered: Vec<NotOffered>,
    /// Requests of the plugin to other servers than those that the call names. They are neither offered nor shown.
    pub unneeded: Vec<UnmetNeed>,
}

/// A grant that is offered to the user.
#[derive(Clone, Debug, PartialEq)]
pub struct GrantOffer {
    /// The plugin's request that this grant satisfies.
    pub unmet: UnmetNeed,
    /// The grant, as it would be written into the agent's file.
    pub grant: Grant,
    /// Description of the grant for the user. The description contains untrusted text from the plugin.
    pub meaning: String,
    grants: Grants,
}

/// A request that cannot be granted at the first use.
#[derive(Clone, Debug, PartialEq)]
pub struct NotOffered {
    /// The plugin's request that cannot be granted.
    pub unmet: UnmetNeed,
    /// The reason why the request cannot be granted.
    pub why: String,
}

/// The folder that is offered to a plugin that requests files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OfferedFolder {
    /// Base of a relative path in `written`: the folder of the agent's file. If the base is empty, relative paths are
    /// relative to the current folder.
    pub base: PathBuf,
    /// Path of the offered folder, as it would be written into the agent's file.
    pub written: String,
    /// True if the user has typed the folder. False if the folder is the default offer.
    pub is_typed: bool,
}

/// Restrictions on the grants that are offered to a plugin.
#[derive(Clone, Debug, Default)]
pub struct OfferBounds {
    /// Grants of the plugin that were revoked. If a grant of some kind was revoked, an offered grant of the same kind
    /// must not exceed the revoked grant (row 48).
    pub revoked: Grants,
    /// The folders that the plugin may use now. If the call names a path in one that it may only read, changing this folder is offered.
    pub granted: Vec<TreeGrant>,
    /// Arguments of the call. Null if there is none.
    pub arguments: Value,
    /// Whether the user allows only reading, although the plugin requests to change files.
    pub read_only: bool,
    /// Servers to which the user may allow the plugin to send HTTP requests.
    pub hosts: OfferedHosts,
    /// Files and folders that grants never cover.
    pub protected: Vec<ProtectedPath>,
}

/// The servers to which the user may allow a plugin to send HTTP requests.
#[derive(Clone, Debug, Default)]
pub enum OfferedHosts {
    /// The user can allow all servers that the plugin requests.
    #[default]
    All,
    /// The user can allow only the requested servers whose URLs are in the arguments of the call. If the arguments
    /// contain no URL of a requested server, all requested servers are offered.
    OfCall(Vec<HttpPattern>),
    /// The user can allow only the servers whose names the user has typed.
    Typed(Vec<HttpPattern>),
}

impl OfferBounds {
    /// Returns the restrictions on the grants that are offered for a call with these arguments. If the arguments
    /// contain URLs, only the servers in these URLs are offered, because the call needs no other servers.
    pub fn of_call(arguments: Value, revoked: Grants, protected: Vec<ProtectedPath>) -> Self {
        let hosts = OfferedHosts::OfCall(servers_in(&arguments));
        Self { revoked, granted: Vec::new(), arguments, read_only: false, hosts, protected }
    }

    fn known_folders(&self) -> KnownFolders<'_> {
        KnownFolders { revoked: &self.revoked.trees, granted: &self.granted, arguments: &self.arguments }
    }
}

impl GrantOffers {
    /// Decides which grants to offer for the unmet requests of a plugin.
    pub fn new(
        plugin: &str,
        lacking: Vec<UnmetNeed>,
        (folder, bounds): (&OfferedFolder, &OfferBounds),
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let mut offers = Self::default();
        let names_server =
            |unmet: &UnmetNeed| matches!(&unmet.need, Need::Http(pattern) if is_narrowed(pattern, bounds));
        let (lacking, unneeded): (Vec<_>, Vec<_>) = match lacking.iter().any(names_server) {
            true => lacking.into_iter().partition(|unmet| !matches!(unmet.need, Need::Http(_)) || names_server(unmet)),
            false => (lacking, Vec::new()),
        };
        offers.unneeded = unneeded;
        for unmet in lacking {
            let values = match offered_values(&unmet.need, folder, bounds) {
                Ok(values) => values,
                Err(why) => {
                    offers.not_offered.push(NotOffered { unmet, why });
                    continue;
                }
            };
            for value in values {
                let unmet = unmet.clone();
                let has_room = offers.offered.len() < MAX_OFFERS;
                let checked = if has_room { Ok(()) } else { Err("there are too many requests to show".to_owned()) };
                match checked.and_then(|()| offer(plugin, value, (folder, bounds), variable)) {
                    Ok((grant, meaning, grants)) => offers.offered.push(GrantOffer { unmet, grant, meaning, grants }),
                    Err(why) => offers.not_offered.push(NotOffered { unmet, why }),
                }
            }
        }
        offers
    }

    /// Returns one value that combines all offered grants.
    pub fn grants(&self) -> Grants {
        self.offered.iter().fold(Grants::default(), |all, offer| all.and(&offer.grants))
    }

    /// Returns all offered grants, as they would be written into the agent's file.
    pub fn written(&self) -> Vec<Grant> {
        self.offered.iter().map(|offer| offer.grant.clone()).collect()
    }

    /// Returns all unmet requests of the plugin, including the requests that are not offered.
    pub fn requested(&self) -> Vec<UnmetNeed> {
        let offered = self.offered.iter().map(|offer| offer.unmet.clone());
        let not_offered = self.not_offered.iter().map(|not_offered| not_offered.unmet.clone());
        offered.chain(not_offered).chain(self.unneeded.iter().cloned()).collect()
    }

    /// Whether the plugin requests permission for HTTP requests.
    pub fn has_requests(&self) -> bool {
        self.requested().iter().any(|unmet| matches!(unmet.need, Need::Http(_)))
    }

    /// Whether the plugin requests to change files.
    pub fn has_write(&self) -> bool {
        self.requested().iter().any(|unmet| unmet.need == Need::Files(Access::ReadWrite))
    }

    /// Whether the plugin requests access to files.
    pub fn has_folder(&self) -> bool {
        self.requested().iter().any(|unmet| matches!(unmet.need, Need::Files(_)))
    }
}

impl GrantOffer {
    /// Formats the grant as a line of the table `[plugins.NAME.grants]`.
    pub fn line(&self) -> String {
        let Grant { kind, value, .. } = &self.grant;
        let text = toml::Value::String(value.clone());
        match kind {
            Kind::KeyValue | Kind::ModelTokens | Kind::Media => format!("{} = {value}", kind.key()),
            _ => format!("{} = [{text}]", kind.key()),
        }
    }

    /// Formats the grant as a command-line option.
    pub fn flag(&self, plugin: &str) -> String {
        let Grant { kind, value, .. } = &self.grant;
        format!("--grant {}", shell_word(&format!("{plugin}:{}={value}", kind.key())))
    }
}

/// The kind of a grant to offer, and its value as it would be written into the agent's file.
struct OfferedValue {
    kind: Kind,
    value: String,
}

impl OfferedValue {
    fn new(kind: Kind, value: impl Into<String>) -> Self {
        Self { kind, value: value.into() }
    }
}

const REVOKED: &str = "the request exceeds the grant that was revoked";

/// Returns the values that are offered for a request. The values do not exceed the revoked grants. If no value can be
/// offered, returns the reason as the error.
fn offered_values(need: &Need, folder: &OfferedFolder, bounds: &OfferBounds) -> Result<Vec<OfferedValue>, String> {
    let revoked = &bounds.revoked;
    let at_most = |kind, requested: u64, revoked: Option<u64>| {
        let value = revoked.map_or(requested, |revoked| revoked.min(requested));
        if value == 0 { Err(REVOKED.to_owned()) } else { Ok(vec![OfferedValue::new(kind, value.to_string())]) }
    };
    match need {
        Need::Files(access) => {
            let access = if bounds.read_only { Access::Read } else { *access };
            let folders = offered_folders(access, folder, &bounds.known_folders()).into_iter();
            Ok(folders.map(|(kind, folder)| OfferedValue::new(kind, folder)).collect())
        }
        Need::Env(name) if !revoked.env.is_empty() && !revoked.env.contains_key(name) => Err(REVOKED.to_owned()),
        Need::Env(name) => Ok(vec![OfferedValue::new(Kind::Env, name)]),
        Need::Http(pattern) => request_values(pattern, bounds),
        Need::Event(event_type)
            if !revoked.events.is_empty() && !revoked.events.iter().any(|one| one.as_str() == event_type) =>
        {
            Err(REVOKED.to_owned())
        }
        Need::Event(event_type) => Ok(vec![OfferedValue::new(Kind::Events, event_type)]),
        Need::Media => Ok(vec![OfferedValue::new(Kind::Media, "true")]),
        Need::KeyValue => at_most(Kind::KeyValue, STORAGE_MEBIBYTES, revoked.key_value.map(|bytes| bytes >> 20)),
        Need::Model(tokens) => at_most(Kind::ModelTokens, *tokens, revoked.model_tokens),
        Need::Config(_) => Err("the configuration must contain its value".to_owned()),
        Need::Secret(_) => Err("the configuration must name its hosts".to_owned()),
    }
}

/// Returns whether the call names a server that the requested pattern allows.
fn is_narrowed(pattern: &str, bounds: &OfferBounds) -> bool {
    let OfferedHosts::OfCall(hosts) = &bounds.hosts else { return false };
    pattern.parse().is_ok_and(|requested: HttpPattern| !requested.narrowed_to(hosts).is_empty())
}

fn request_values(pattern: &str, bounds: &OfferBounds) -> Result<Vec<OfferedValue>, String> {
    let requested: HttpPattern = pattern.parse().map_err(|error: PatternError| error.to_string())?;
    // A host in a private network is offered only to a plugin that requests private networks.
    let is_private = requested.is_private();
    let mut offered = vec![requested];
    if !bounds.revoked.http.is_empty() {
        offered = offered.iter().flat_map(|pattern| pattern.narrowed_to(&bounds.revoked.http)).collect();
        if offered.is_empty() {
            return Err(REVOKED.to_owned());
        }
    }
    let (OfferedHosts::OfCall(hosts) | OfferedHosts::Typed(hosts)) = &bounds.hosts else {
        return Ok(http_values(&offered));
    };
    let hosts: Vec<_> = hosts.iter().filter(|host| host.is_private() == is_private).cloned().collect();
    let narrowed: Vec<_> = offered.iter().flat_map(|pattern| pattern.narrowed_to(&hosts)).collect();
    match (narrowed.is_empty(), &bounds.hosts) {
        (false, _) => Ok(http_values(&narrowed)),
        (true, OfferedHosts::Typed(_)) => Err("the plugin does not ask for that server".to_owned()),
        (true, _) => Ok(http_values(&offered)),
    }
}

fn http_values(patterns: &[HttpPattern]) -> Vec<OfferedValue> {
    let mut values: Vec<String> = patterns.iter().map(ToString::to_string).collect();
    values.dedup();
    values.into_iter().map(|value| OfferedValue::new(Kind::Http, value)).collect()
}

fn offer(
    plugin: &str,
    offered: OfferedValue,
    (folder, bounds): (&OfferedFolder, &OfferBounds),
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<(Grant, String, Grants), String> {
    let OfferedValue { kind, value } = offered;
    let base = folder.base.clone();
    if !matches!(kind, Kind::Read | Kind::Write) && value.chars().nth(MAX_CHARACTERS).is_some() {
        return Err("the value is too long to show".to_owned());
    }
    if kind == Kind::Env && variable(&value).is_none() {
        return Err("the variable is not set".to_owned());
    }
    let meaning = match kind {
        Kind::Read => folder_meaning(Access::Read, &base.join(&value), &bounds.protected),
        Kind::Write => folder_meaning(Access::ReadWrite, &base.join(&value), &bounds.protected),
        Kind::Env => format!("the environment variable {value}"),
        Kind::Http => requests_meaning(&value),
        Kind::Events => format!("sending events of type {value} to an external service"),
        Kind::Media => "reading the images and other media of the conversation".to_owned(),
        Kind::ModelTokens => format!("using the agent's model, up to {value} tokens per turn"),
        _ => format!("storing up to {value} MiB between calls"),
    };
    let receiver = Receiver::Plugin(plugin.to_owned());
    let grant = Grant { receiver, kind, value, base, origin: String::new() };
    let resolved = grants::resolve(std::slice::from_ref(&grant), variable);
    let mut resolved = resolved.map_err(|problems| problems.concat().trim_start_matches(": ").to_owned())?;
    Ok((grant, meaning, resolved.plugins.remove(plugin).unwrap_or_default()))
}

fn folder_meaning(access: Access, folder: &Path, protected: &[ProtectedPath]) -> String {
    let canonical = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let action = match access {
        Access::Read => "reading",
        Access::ReadWrite => "reading, changing and deleting",
    };
    let excluded = match access {
        Access::Read => Vec::new(),
        Access::ReadWrite => protection::excluded_from_writing(protected, folder),
    };
    let exception =
        if excluded.is_empty() { String::new() } else { format!(", but not changing {}", excluded.join(", ")) };
    format!("{action} everything in {}{exception}", canonical.display())
}

fn requests_meaning(pattern: &str) -> String {
    let location = match pattern {
        _ if pattern.parse().is_ok_and(|pattern: HttpPattern| pattern.is_inside()) => {
            ", which is on this machine or its network, not on the internet"
        }
        _ if pattern.starts_with("private ") => ", including this machine and its network",
        _ if pattern.contains("://*.") => "",
        _ if pattern.contains("://*") => ", which is any server on the internet",
        _ => "",
    };
    format!("requests {pattern}{location}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_plugins::{GrantAdvice, host_patterns};

    fn lacking(need: Need) -> UnmetNeed {
        let advice = GrantAdvice { table: "[plugins.p.grants]".into(), line: String::new(), flag: String::new() };
        UnmetNeed { need, thing: "a thing".into(), advice }
    }

    fn offers(needs: Vec<Need>, folder: &OfferedFolder) -> GrantOffers {
        let lang = |name: &str| (name == "LANG").then(|| "C".to_owned());
        GrantOffers::new("p", needs.into_iter().map(lacking).collect(), (folder, &OfferBounds::default()), &lang)
    }

    /// P6: the answer `yes` gives the plugin exactly the grants that are shown. Requests that cannot be granted are
    /// shown with the reason.
    #[test]
    fn p6_answering_yes_grants_exactly_the_shown_grants() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let base = directory.path().canonicalize().expect("exists");
        let folder = OfferedFolder { base: base.clone(), written: ".".into(), is_typed: false };
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
            .offered
            .iter()
            .map(|offer| format!("{} · {} · {}", offer.meaning, offer.line(), offer.flag("p")))
            .chain(
                offers
                    .not_offered
                    .iter()
                    .map(|not_offered| format!("{:?}: {}", not_offered.unmet.need, not_offered.why)),
            )
            .collect();
        insta::assert_snapshot!(shown.join("\n").replace(&base.display().to_string(), "/base"), @r#"
        reading, changing and deleting everything in /base · write = ["."] · --grant p:write=.
        the environment variable LANG · env = ["LANG"] · --grant p:env=LANG
        requests GET https://*:*, which is any server on the internet · http = ["GET https://*:*"] · --grant 'p:http=GET https://*:*'
        requests private https://*.corp.example, including this machine and its network · http = ["private https://*.corp.example"] · --grant 'p:http=private https://*.corp.example'
        storing up to 10 MiB between calls · key_value_mib = 10 · --grant p:key_value_mib=10
        using the agent's model, up to 20000 tokens per turn · model_tokens = 20000 · --grant p:model_tokens=20000
        sending events of type com.example.paid to an external service · events = ["com.example.paid"] · --grant p:events=com.example.paid
        reading the images and other media of the conversation · media = true · --grant p:media=true
        Env("ABSENT"): the variable is not set
        Config("region"): the configuration must contain its value
        Secret("TOKEN"): the configuration must name its hosts
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

    /// P6: if there are too many grants to show all of them, the grants that are not shown are not given. A grant that
    /// is too long to be shown is not given.
    #[test]
    fn p6_grants_nothing_that_is_not_shown() {
        let folder = OfferedFolder { base: PathBuf::new(), written: ".".into(), is_typed: false };
        let many = (0..100).map(|number| Need::Http(format!("https://h{number}.example"))).collect();
        let offers_of_many = offers(many, &folder);
        assert_eq!((offers_of_many.offered.len(), offers_of_many.not_offered.len()), (MAX_OFFERS, 76));
        assert_eq!(offers_of_many.grants().http.len(), MAX_OFFERS);
        let long = offers(vec![Need::Http(format!("https://a.example/{}", "x".repeat(MAX_CHARACTERS)))], &folder);
        assert!(long.offered.is_empty(), "{long:?}");
    }

    /// P6: a folder that does not exist is not offered.
    #[test]
    fn p6_a_folder_that_cannot_be_granted_is_not_offered() {
        let folder = OfferedFolder { base: PathBuf::new(), written: "/absent/nowhere".into(), is_typed: true };
        let offers = offers(vec![Need::Files(Access::Read)], &folder);
        assert!(offers.offered.is_empty() && offers.not_offered[0].why.contains("cannot be granted"), "{offers:?}");
        assert!(offers.has_folder());
    }

    /// P6: a request is narrowed to the servers in the arguments of a call or to the server that the user types, and is
    /// never widened.
    #[test]
    fn p6_narrows_requests_to_one_host() {
        let folder = OfferedFolder { base: PathBuf::new(), written: ".".into(), is_typed: false };
        let lines = |pattern: &str, bounds: &OfferBounds| -> Vec<String> {
            let lacking = vec![lacking(Need::Http(pattern.to_owned()))];
            GrantOffers::new("p", lacking, (&folder, bounds), &|_| None).offered.iter().map(GrantOffer::line).collect()
        };
        let called = |url: &str| {
            OfferBounds::of_call(serde_json::json!({"deep": [{"url": url}]}), Grants::default(), Vec::new())
        };
        let typed =
            |host: &str| OfferBounds { hosts: OfferedHosts::Typed(host_patterns(host)), ..OfferBounds::default() };
        assert_eq!(
            lines("GET https://*", &called("https://a.example/path?q=1")),
            ["http = [\"GET https://a.example\"]"]
        );
        assert_eq!(lines("https://*", &called("https://a.example")), ["http = [\"https://a.example\"]"]);
        assert_eq!(lines("https://*.b.example", &called("https://a.example/")), ["http = [\"https://*.b.example\"]"]);
        assert_eq!(lines("https://*", &called("https://127.0.0.1/")), ["http = [\"https://127.0.0.1\"]"]);
        let both = |url: &str| {
            let lacking = ["https://*:*", "http://*:*", "private https://*"]
                .map(|pattern| lacking(Need::Http(pattern.to_owned())));
            let offers = GrantOffers::new("p", lacking.to_vec(), (&folder, &called(url)), &|_| None);
            (offers.offered.iter().map(GrantOffer::line).collect::<Vec<_>>(), offers.unneeded.len())
        };
        let (lines_of_call, unneeded) = both("https://a.example/x");
        let of_server = ["http = [\"https://a.example\"]", "http = [\"private https://a.example\"]"];
        assert_eq!(
            (lines_of_call, unneeded),
            (of_server.map(str::to_owned).to_vec(), 1),
            "other servers are not offered"
        );
        assert!(requests_meaning("https://127.0.0.1").contains("on this machine"), "the user sees where the server is");
        assert!(requests_meaning("private http://localhost:1").contains("on this machine"));
        assert!(!requests_meaning("https://1.1.1.1").contains("this machine"));
        assert_eq!(lines("https://*:*", &typed("b.example:8080")), ["http = [\"https://b.example:8080\"]"]);
        assert_eq!(lines("https://*", &typed("b.example")), ["http = [\"https://b.example\"]"]);
        assert_eq!(lines("private https://*", &typed("b.example")), ["http = [\"private https://b.example\"]"]);
        assert!(lines("https://*.c.example", &typed("b.example")).is_empty(), "nothing else is offered instead");
        assert!(host_patterns("*.example").is_empty() && host_patterns("user@a.example").is_empty());
    }

    /// P6: a plugin that may only read some folders is offered to change the one that the call names, because the innermost grant
    /// decides about a path.
    #[test]
    fn p6_offers_to_change_the_folder_that_the_plugin_may_read() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let base = directory.path().to_owned();
        let elsewhere = tempfile::tempdir().expect("a temporary folder");
        for folder in ["docs", "docs/old", "src"] {
            std::fs::create_dir(base.join(folder)).expect("created");
        }
        let folder = OfferedFolder { base: base.clone(), written: ".".into(), is_typed: false };
        let tree = |host: PathBuf, guest: &str, access| TreeGrant { host, guest: guest.to_owned(), access };
        let lines = |granted: &[TreeGrant], arguments: Value, (folder, read_only): (&OfferedFolder, bool)| {
            let bounds = OfferBounds {
                granted: granted.to_vec(),
                read_only,
                ..OfferBounds::of_call(arguments, Grants::default(), Vec::new())
            };
            let lacking = vec![lacking(Need::Files(Access::ReadWrite))];
            let offers = GrantOffers::new("p", lacking, (folder, &bounds), &|_| None);
            offers.offered.iter().map(GrantOffer::line).collect::<Vec<_>>()
        };
        let writes = |path: &str| serde_json::json!({"edits": [{"path": path, "content": "src/a.rs is wrong\n"}]});
        let docs = tree(base.join("docs"), "docs", Access::Read);
        let old = tree(base.join("docs/old"), "docs/old", Access::Read);
        let outside = tree(elsewhere.path().to_owned(), "other", Access::Read);
        let sources = tree(base.join("src"), "src", Access::Read);
        let all = [docs.clone(), old, outside, sources];
        assert_eq!(lines(&[], writes("docs/a.md"), (&folder, false)), ["write = [\".\"]"]);
        assert_eq!(lines(&all, writes("a.md"), (&folder, false)), ["write = [\".\"]"], "not in a readable folder");
        assert_eq!(lines(&all, writes("./docs/a.md"), (&folder, false)), ["write = [\"docs\"]"]);
        assert_eq!(lines(&all, writes("docs/old/a.md"), (&folder, false)), ["write = [\"docs/old\"]"]);
        let of_outside = format!("write = [\"{}\"]", elsewhere.path().display());
        assert_eq!(lines(&all, writes("other/a.md"), (&folder, false)), [of_outside]);
        assert_eq!(lines(&all, Value::Null, (&folder, false)), ["write = [\".\"]"], "without a path, as before");
        assert_eq!(lines(&all, writes("other/no/such/file"), (&folder, false)), ["write = [\".\"]"]);
        assert_eq!(
            lines(&all, writes("docs/a.md"), (&folder, true)),
            ["read = [\".\"]"],
            "only reading, wherever the user chooses"
        );
        let typed = OfferedFolder { written: "src".to_owned(), is_typed: true, ..folder.clone() };
        assert_eq!(lines(&all, writes("docs/a.md"), (&typed, false)), ["write = [\"src\"]"]);
        let writable = [docs, tree(base.join("src"), "src", Access::ReadWrite)];
        assert_eq!(lines(&writable[1..], writes("a.md"), (&folder, false)), ["write = [\".\"]"]);
    }

    /// Row 48: the offered grants do not exceed the revoked grants.
    #[test]
    fn row_48_offered_grants_do_not_exceed_revoked_grants() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let base = directory.path().to_owned();
        std::fs::create_dir(base.join("docs")).expect("created");
        let folder = OfferedFolder { base: base.clone(), written: ".".into(), is_typed: false };
        let tree = TreeGrant { host: base.join("docs"), guest: "docs".to_owned(), access: Access::Read };
        let revoked = Grants {
            trees: vec![tree],
            http: vec!["https://a.example".parse().expect("a pattern")],
            env: [("LANG".to_owned(), "C".to_owned())].into(),
            key_value: Some(1 << 20),
            model_tokens: Some(5),
            ..Grants::default()
        };
        let bounds = OfferBounds { revoked, ..OfferBounds::default() };
        let needs = [
            Need::Files(Access::ReadWrite),
            Need::Http("https://*".into()),
            Need::Http("https://b.example".into()),
            Need::Env("LANG".into()),
            Need::Env("HOME".into()),
            Need::KeyValue,
            Need::Model(100),
        ];
        let offers = GrantOffers::new("p", needs.map(lacking).into(), (&folder, &bounds), &|_| Some("C".to_owned()));
        let lines: Vec<_> = offers.offered.iter().map(GrantOffer::line).collect();
        let expected = [
            "read = [\"docs\"]",
            "http = [\"https://a.example\"]",
            "env = [\"LANG\"]",
            "key_value_mib = 1",
            "model_tokens = 5",
        ];
        assert_eq!(lines, expected);
        let not_offered: Vec<_> = offers.not_offered.iter().map(|not_offered| &not_offered.unmet.need).collect();
        assert_eq!(not_offered, [&Need::Http("https://b.example".into()), &Need::Env("HOME".into())]);
    }
}
