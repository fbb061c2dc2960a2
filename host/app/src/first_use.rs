//! What a yes at the first use of a plugin would give, and what only agent.toml can give (P6).

use crate::grants::{self, Grant, Kind, Receiver};
use agent_plugins::{Access, Grants, Need, Unmet};
use std::path::{Path, PathBuf};

/// Things that one card may offer: what is not shown is not given.
const MOST: usize = 24;
/// Characters of one of them.
const LONGEST: usize = 200;
/// MiB that a plugin may keep after a yes.
const KEPT_MEBIBYTES: &str = "10";

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
}

impl Offers {
    /// What can be given of what a plugin lacks.
    pub(crate) fn new(
        plugin: &str,
        lacking: Vec<Unmet>,
        folder: &Folder,
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Self {
        let mut offers = Self::default();
        for asked in lacking {
            let room = if offers.given.len() < MOST { Ok(()) } else { Err("there is too much to be shown".to_owned()) };
            match room.and_then(|()| offer(plugin, &asked, folder, variable)) {
                Ok((grant, meaning, gives)) => offers.given.push(Offer { asked, grant, meaning, gives }),
                Err(why) => offers.beyond.push(Beyond { asked, why }),
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

fn offer(
    plugin: &str,
    asked: &Unmet,
    folder: &Folder,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<(Grant, String, Grants), String> {
    let (kind, value) = match &asked.need {
        Need::Files(Access::Read) => (Kind::Read, folder.written.clone()),
        Need::Files(Access::ReadWrite) => (Kind::Write, folder.written.clone()),
        Need::Env(name) => (Kind::Env, name.clone()),
        Need::Http(pattern) => (Kind::Http, pattern.clone()),
        Need::KeyValue => (Kind::KeyValue, KEPT_MEBIBYTES.to_owned()),
        Need::Model(tokens) => (Kind::ModelTokens, tokens.to_string()),
        Need::Event(event_type) => (Kind::Events, event_type.clone()),
        Need::Media => (Kind::Media, "true".to_owned()),
        Need::Config(_) => return Err("it needs a value".to_owned()),
        Need::Secret(_) => return Err("it needs hosts to go to".to_owned()),
    };
    if !matches!(kind, Kind::Read | Kind::Write) && value.chars().nth(LONGEST).is_some() {
        return Err("it is too long to be shown".to_owned());
    }
    if kind == Kind::Env && variable(&value).is_none() {
        return Err("it is not set".to_owned());
    }
    let meaning = match &asked.need {
        Need::Files(access) => of_folder(*access, &folder.base.join(&folder.written)),
        Need::Env(name) => format!("the environment variable {name}"),
        Need::Http(pattern) => of_requests(pattern),
        Need::Event(event_type) => format!("sending events {event_type} to a service outside"),
        Need::Media => "reading the pictures and other media of the conversation".to_owned(),
        Need::Model(tokens) => format!("asking the agent's model, up to {tokens} tokens in a turn"),
        _ => format!("keeping up to {KEPT_MEBIBYTES} MiB between calls"),
    };
    let (receiver, base) = (Receiver::Plugin(plugin.to_owned()), folder.base.clone());
    let grant = Grant { receiver, kind, value, base, origin: String::new() };
    let resolved = grants::resolve(std::slice::from_ref(&grant), variable);
    let mut resolved = resolved.map_err(|problems| problems.concat().trim_start_matches(": ").to_owned())?;
    Ok((grant, meaning, resolved.plugins.remove(plugin).unwrap_or_default()))
}

fn of_folder(access: Access, folder: &Path) -> String {
    let whole = std::fs::canonicalize(folder).unwrap_or_else(|_| folder.to_owned());
    let does = match access {
        Access::Read => "reading",
        Access::ReadWrite => "reading, changing and deleting",
    };
    format!("{does} whatever is in {}", whole.display())
}

fn of_requests(pattern: &str) -> String {
    let reach = match pattern {
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
        Offers::new("p", needs.into_iter().map(lacking).collect(), folder, &lang)
    }

    /// P6: a yes gives just what is shown, and what it cannot give is said with the reason.
    #[test]
    fn p6_what_a_yes_gives_is_what_is_shown() {
        let place = tempfile::tempdir().expect("a temporary folder");
        let base = place.path().canonicalize().expect("there");
        let folder = Folder { base: base.clone(), written: ".".into() };
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
        let folder = Folder { base: PathBuf::new(), written: ".".into() };
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
        let folder = Folder { base: PathBuf::new(), written: "/absent/nowhere".into() };
        let offers = offers(vec![Need::Files(Access::Read)], &folder);
        assert!(offers.given.is_empty() && offers.beyond[0].why.contains("cannot be granted"), "{offers:?}");
        assert!(offers.has_folder());
    }
}
