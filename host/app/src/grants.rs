//! Grants as people write them, on the command line and in agent.toml (P6).

use agent_core::event_type::EventTypeError;
use agent_plugins::limits::MODEL_TOKENS;
use agent_plugins::{
    Access, Asks, Grants, HttpPattern, LoadedPlugin, PatternError, Secret, SecretTemplate, TreeGrant, http_within,
};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// One grant, wherever it was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    /// Who gets it.
    pub(crate) receiver: Receiver,
    /// What kind of thing.
    pub(crate) kind: Kind,
    /// The thing as it was written: a folder, a variable's name, `KEY=VALUE`.
    pub(crate) value: String,
    /// What a relative folder is relative to; empty for the current folder.
    pub(crate) base: PathBuf,
    /// Where it was written, for messages.
    pub(crate) origin: String,
}

/// Who gets a grant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Receiver {
    /// The host's own file tools.
    Host,
    /// A plugin, by name.
    Plugin(String),
}

/// What kind of thing is granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// A folder to read.
    Read,
    /// A folder to read and write.
    Write,
    /// A variable of the environment.
    Env,
    /// A configuration value.
    Config,
    /// Requests.
    Http,
    /// Room for values between calls, in MiB.
    KeyValue,
    /// Tokens of the agent's model in a turn.
    ModelTokens,
    /// A type of service events.
    Events,
    /// The media of the conversation.
    Media,
}

/// The kinds as they are written.
const KINDS: &[(&str, Kind)] = &[
    ("read", Kind::Read),
    ("write", Kind::Write),
    ("env", Kind::Env),
    ("config", Kind::Config),
    ("http", Kind::Http),
    ("key_value_mib", Kind::KeyValue),
    ("model_tokens", Kind::ModelTokens),
    ("events", Kind::Events),
    ("media", Kind::Media),
];

impl Kind {
    /// As it is written.
    pub(crate) fn key(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map(|(key, _)| *key).unwrap_or_default()
    }
}

/// A secret of a plugin, as it stands in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SecretGrant {
    /// Whose.
    pub(crate) plugin: String,
    /// The variable that holds it.
    pub(crate) env: String,
    /// Where it goes.
    pub(crate) template: SecretTemplate,
    /// Where it was written, for messages.
    pub(crate) origin: String,
}

/// All grants of an agent, ready to use.
#[derive(Clone, Debug, Default)]
pub(crate) struct ResolvedGrants {
    /// By plugin.
    pub(crate) plugins: BTreeMap<String, Grants>,
    /// Of the host's own file tools.
    pub(crate) host: Vec<TreeGrant>,
}

impl Grant {
    /// Reads `PLUGIN:KIND=VALUE` from the command line.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let form = "write PLUGIN:KIND=VALUE, for example `files:read=.`; KIND is read, write, env, config, http, \
                    key_value_mib, model_tokens, events or media";
        let (receiver, rest) = text.split_once(':').ok_or_else(|| format!("there is no `:`; {form}"))?;
        let (kind, value) = rest.split_once('=').ok_or_else(|| format!("there is no `=`; {form}"))?;
        let kind = KINDS.iter().find(|(name, _)| *name == kind);
        let (_, kind) = kind.ok_or_else(|| format!("the kind is not known; {form}"))?;
        if receiver.is_empty() || value.is_empty() {
            return Err(format!("the plugin or the value is empty; {form}"));
        }
        let receiver = match receiver {
            "host" => Receiver::Host,
            name => Receiver::Plugin(name.to_owned()),
        };
        if receiver == Receiver::Host && *kind != Kind::Read {
            return Err("the host's own tools only read: write host:read=DIR".to_owned());
        }
        if *kind == Kind::Config && !value.contains('=') {
            return Err("a configuration value is written PLUGIN:config=KEY=VALUE".to_owned());
        }
        let origin = format!("--grant {text}");
        Ok(Self { receiver, kind: *kind, value: value.to_owned(), base: PathBuf::new(), origin })
    }
}

impl Grant {
    /// The plugin that gets it, if one does.
    pub(crate) fn plugin(&self) -> Option<&str> {
        match &self.receiver {
            Receiver::Host => None,
            Receiver::Plugin(name) => Some(name),
        }
    }
}

/// Turns grants into what the sandbox takes: folders are found, variables read. Every grant that cannot be given is
/// named in the error.
pub(crate) fn resolve(
    grants: &[Grant],
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<ResolvedGrants, Vec<String>> {
    let mut resolved = ResolvedGrants::default();
    let mut problems = Vec::new();
    for grant in grants {
        if let Err(problem) = add(grant, variable, &mut resolved) {
            problems.push(format!("{}: {problem}", grant.origin));
        }
    }
    if problems.is_empty() { Ok(resolved) } else { Err(problems) }
}

/// What is granted and does nothing, or less than it says, since the plugin's manifest does not ask for it: the ends of
/// sentences that begin with the plugin's name. A plugin without a manifest asks for all.
pub(crate) fn idle(plugin: &LoadedPlugin, grants: &Grants) -> Vec<String> {
    plugin.manifest().map(|manifest| idle_beside(&manifest.asks, grants)).unwrap_or_default()
}

fn idle_beside(asks: &Asks, grants: &Grants) -> Vec<String> {
    let nothing = |thing: String| format!("does not ask for {thing} in its manifest: that grant does nothing");
    let writes = grants.trees.iter().any(|tree| tree.access == Access::ReadWrite);
    let trees = match asks.files {
        Some(Access::ReadWrite) => None,
        Some(Access::Read) if writes => {
            Some("asks only for reading files in its manifest: where you grant writing, it reads".to_owned())
        }
        Some(Access::Read) => None,
        None => (!grants.trees.is_empty()).then(|| nothing("files".to_owned())),
    };
    let env = grants.env.keys().filter(|name| !asks.env.contains(name));
    let env = env.map(|name| nothing(format!("the variable {name}")));
    let config = grants.config.keys().filter(|key| !asks.config.contains(key));
    let config = config.map(|key| nothing(format!("the configuration value {key}")));
    let asked: Vec<HttpPattern> = asks.http.iter().filter_map(|asked| asked.parse().ok()).collect();
    let http = grants.http.iter().filter(|pattern| http_within(std::slice::from_ref(pattern), &asked).is_empty());
    let http = http.map(|pattern| nothing(format!("the request {pattern}")));
    let secrets =
        grants.secrets.iter().map(Secret::name).filter(|name| !asks.secrets.iter().any(|asked| asked == name));
    let secrets = secrets.map(|name| nothing(format!("the secret {name}")));
    let key_value = (grants.key_value.is_some() && !asks.key_value).then(|| nothing("keeping values".to_owned()));
    let model = match (grants.model_tokens, asks.model_tokens) {
        (Some(_), None) => Some(nothing("the agent's model".to_owned())),
        (Some(granted), Some(asked)) if asked < granted => {
            Some(format!("asks only for {asked} tokens of the agent's model in its manifest: it gets no more"))
        }
        _ => None,
    };
    let events =
        grants.events.iter().filter(|event_type| !asks.events.iter().any(|asked| asked == event_type.as_str()));
    let events = events.map(|event_type| nothing(format!("the service event {event_type}")));
    let media = (grants.media && !asks.media).then(|| nothing("the media of the conversation".to_owned()));
    let lists = trees.into_iter().chain(env).chain(config).chain(http).chain(secrets);
    lists.chain(key_value).chain(model).chain(events).chain(media).collect()
}

fn add(grant: &Grant, variable: &dyn Fn(&str) -> Option<String>, resolved: &mut ResolvedGrants) -> Result<(), String> {
    let Receiver::Plugin(plugin) = &grant.receiver else {
        resolved.host.push(tree(grant, Access::Read)?);
        return Ok(());
    };
    let grants = resolved.plugins.entry(plugin.clone()).or_default();
    match grant.kind {
        Kind::Read => grants.trees.push(tree(grant, Access::Read)?),
        Kind::Write => grants.trees.push(tree(grant, Access::ReadWrite)?),
        Kind::Env => match variable(&grant.value) {
            Some(value) => {
                grants.env.insert(grant.value.clone(), value);
            }
            None => {
                return Err(format!("the variable `{}` is not set; set it, or leave the grant out", grant.value));
            }
        },
        Kind::Config => {
            let (key, value) = grant.value.split_once('=').ok_or("expected KEY=VALUE")?;
            grants.config.insert(key.to_owned(), value.to_owned());
        }
        Kind::Http => grants.http.push(grant.value.parse().map_err(|error: PatternError| error.to_string())?),
        Kind::KeyValue => {
            let mebibytes = grant.value.parse::<u64>().ok().filter(|number| (1..=1024).contains(number));
            let mebibytes = mebibytes.ok_or_else(|| format!("`{}` is no number from 1 to 1024", grant.value))?;
            grants.key_value = Some(mebibytes << 20);
        }
        Kind::ModelTokens => {
            let tokens = grant.value.parse::<u64>().ok().filter(|number| (1..=MODEL_TOKENS).contains(number));
            let tokens = tokens.ok_or_else(|| format!("`{}` is no number from 1 to {MODEL_TOKENS}", grant.value))?;
            grants.model_tokens = Some(tokens);
        }
        Kind::Events => {
            grants.events.insert(grant.value.parse().map_err(|error: EventTypeError| error.to_string())?);
        }
        Kind::Media if grant.value == "true" => grants.media = true,
        Kind::Media => return Err(format!("`{}` is not `true`; leave the grant out to deny it", grant.value)),
    }
    Ok(())
}

/// Adds secrets to the grants of their plugins. Each that cannot be given is named in the error; none of them is shown.
pub(crate) fn add_secrets(
    secrets: &[SecretGrant],
    variable: &dyn Fn(&str) -> Option<String>,
    resolved: &mut ResolvedGrants,
) -> Result<(), Vec<String>> {
    let mut problems = Vec::new();
    for SecretGrant { plugin, env, template, origin } in secrets {
        let secret = match variable(env) {
            Some(value) => Secret::new(template.clone(), &value).map_err(|error| error.to_string()),
            None => Err(format!("the variable `{env}` is not set; set it, or leave the secret out")),
        };
        match secret {
            Ok(secret) => resolved.plugins.entry(plugin.clone()).or_default().secrets.push(secret),
            Err(problem) => problems.push(format!("{origin}: {problem}")),
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn tree(grant: &Grant, access: Access) -> Result<TreeGrant, String> {
    let written = Path::new(&grant.value);
    let host = grant.base.join(written);
    if written.components().any(|component| component == Component::ParentDir) {
        return Err(climbing(&host));
    }
    match std::fs::metadata(&host) {
        Ok(found) if found.is_dir() => Ok(TreeGrant { host, guest: grant.value.clone(), access }),
        Ok(_) => Err(format!("`{}` is a file; grant the folder that it is in", host.display())),
        Err(error) => Err(format!("the folder `{}` cannot be granted: {error}", host.display())),
    }
}

/// A plugin names a tree as it was granted, and no path of a plugin may climb with `..`.
fn climbing(host: &Path) -> String {
    let advice = match std::fs::canonicalize(host) {
        Ok(absolute) => format!("write `{}`", absolute.display()),
        Err(_) => "write the folder's absolute path".to_owned(),
    };
    format!("a granted folder is written without `..`, since plugins name it as you write it: {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn none(_: &str) -> Option<String> {
        None
    }

    /// P6
    #[test]
    fn well_formed_grants() {
        let cases = [
            ("files:read=.", Receiver::Plugin("files".into()), Kind::Read, "."),
            ("files:write=/a:b=c", Receiver::Plugin("files".into()), Kind::Write, "/a:b=c"),
            ("web:env=HOME", Receiver::Plugin("web".into()), Kind::Env, "HOME"),
            ("web:config=key=a=b", Receiver::Plugin("web".into()), Kind::Config, "key=a=b"),
            ("host:read=docs", Receiver::Host, Kind::Read, "docs"),
        ];
        for (text, receiver, kind, value) in cases {
            let grant = Grant::parse(text).unwrap_or_else(|error| panic!("{text}: {error}"));
            assert_eq!((grant.receiver, grant.kind, grant.value.as_str()), (receiver, kind, value));
        }
    }

    #[test]
    fn malformed_grants_say_how_to_write_them() {
        for text in ["files", "files:read", "files:delete=.", ":read=.", "files:read=", "host:write=.", "a:config=k"] {
            let error = Grant::parse(text).expect_err(text);
            assert!(error.contains("write") || error.contains("written"), "{text}: {error}");
        }
    }

    #[test]
    fn grants_of_one_plugin_add_up() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        std::fs::create_dir(directory.path().join("docs")).expect("created");
        let grant = |text: &str| Grant { base: directory.path().to_owned(), ..Grant::parse(text).expect(text) };
        let grants = [
            grant("a:read=."),
            grant("a:write=docs"),
            grant("a:env=X"),
            grant("a:config=k=v"),
            grant("host:read=docs"),
        ];
        let resolved = resolve(&grants, &|name| Some(format!("value of {name}"))).expect("resolved");
        let plugin = &resolved.plugins["a"];
        let trees: Vec<_> = plugin.trees.iter().map(|tree| (tree.guest.as_str(), tree.access)).collect();
        assert_eq!(trees, [(".", Access::Read), ("docs", Access::ReadWrite)]);
        assert_eq!(plugin.env["X"], "value of X");
        assert_eq!(plugin.config["k"], "v");
        assert_eq!(resolved.host[0].host, directory.path().join("docs"));
    }

    /// P6: what a plugin may do is what it asks for and is granted.
    #[test]
    fn grants_that_nobody_asks_for_are_found() {
        let tree = |access| TreeGrant { host: "/srv".into(), guest: "srv".into(), access };
        let entry = |key: &str| BTreeMap::from([(key.to_owned(), String::new())]);
        let grants = Grants {
            trees: vec![tree(Access::ReadWrite)],
            env: entry("HOME"),
            config: entry("key"),
            http: vec!["https://a.example".parse().expect("a pattern")],
            key_value: Some(1),
            model_tokens: Some(7),
            events: ["com.example.paid".parse().expect("a type")].into(),
            media: true,
            ..Grants::default()
        };
        let all = [
            "files",
            "the variable HOME",
            "the configuration value key",
            "the request https://a.example",
            "keeping values",
            "the agent's model",
            "the service event com.example.paid",
            "the media of the conversation",
        ];
        let all = all.map(|thing| format!("does not ask for {thing} in its manifest: that grant does nothing"));
        assert_eq!(idle_beside(&Asks::default(), &grants), all);
        let asks = Asks {
            files: Some(Access::Read),
            env: vec!["HOME".into()],
            config: vec!["key".into()],
            http: vec!["https://*".into()],
            key_value: true,
            model_tokens: Some(7),
            events: vec!["com.example.paid".into()],
            media: true,
            ..Asks::default()
        };
        let less = "asks only for reading files in its manifest: where you grant writing, it reads";
        assert_eq!(idle_beside(&asks, &grants), [less], "reading is granted by it");
        let asks = Asks { files: Some(Access::ReadWrite), model_tokens: Some(6), ..asks };
        let less = "asks only for 6 tokens of the agent's model in its manifest: it gets no more";
        assert_eq!(idle_beside(&asks, &grants), [less]);
        let asks = Asks { model_tokens: Some(8), ..asks };
        assert!(idle_beside(&asks, &grants).is_empty());
        assert!(idle_beside(&Asks::default(), &Grants::default()).is_empty());
    }

    /// P6: every grant that cannot be given is named, at once.
    #[test]
    fn what_cannot_be_granted_is_named() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(directory.path().join("file"), "").expect("written");
        let grant = |text: &str| Grant { base: directory.path().to_owned(), ..Grant::parse(text).expect(text) };
        let grants = [grant("a:read=absent"), grant("a:read=file"), grant("a:env=ABSENT")];
        let problems = resolve(&grants, &none).expect_err("nothing of this can be granted");
        let shown = problems.join("\n").replace(&directory.path().display().to_string(), "/base");
        insta::assert_snapshot!(shown, @r"
        --grant a:read=absent: the folder `/base/absent` cannot be granted: No such file or directory (os error 2)
        --grant a:read=file: `/base/file` is a file; grant the folder that it is in
        --grant a:env=ABSENT: the variable `ABSENT` is not set; set it, or leave the grant out
        ");
    }
    /// P6: a plugin could never name such a folder, so nobody is made to believe that it may use it.
    #[test]
    fn folders_with_parents_in_them_are_refused() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let folder = directory.path().canonicalize().expect("there");
        std::fs::create_dir(folder.join("docs")).expect("created");
        let absolute = format!("a:read={}/docs/../docs", folder.display());
        for text in ["a:read=docs/..", "a:write=docs/../docs", "host:read=docs/..", absolute.as_str(), "a:read=x/.."] {
            let grant = Grant { base: folder.clone(), ..Grant::parse(text).expect(text) };
            let problems = resolve(&[grant], &none).expect_err(text);
            assert!(problems[0].contains("without `..`"), "{problems:?}");
        }
        let grant = Grant { base: folder.clone(), ..Grant::parse("a:read=docs/..").expect("a grant") };
        let problems = resolve(&[grant], &none).expect_err("refused");
        assert!(problems[0].ends_with(&format!("write `{}`", folder.display())), "{problems:?}");
    }
}
