//! Parses grants from the command line and from `agent.toml`, and resolves their folders and variables (P6).

use agent_core::event_type::EventTypeError;
use agent_plugins::limits::MODEL_TOKENS;
use agent_plugins::{
    Access, Asks, Grants, HttpPattern, LoadedPlugin, PatternError, Secret, SecretTemplate, TreeGrant, intersect_http,
};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};

/// A grant from the command line or from a configuration file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Grant {
    /// The plugin that gets the grant, or the host's built-in tools.
    pub receiver: Receiver,
    /// Kind of access that is granted.
    pub kind: Kind,
    /// The value of the grant, with a syntax that depends on the kind: for example, a folder, the name of a variable,
    /// or `KEY=VALUE`.
    pub value: String,
    /// Folder to which a relative path in `value` is joined. If this folder's path is empty, a relative path in `value`
    /// starts at the current folder.
    pub base: PathBuf,
    /// Location of the grant, such as `agent.toml:3: plugins.files.grants.read[0]` or `--grant files:read=.`, for
    /// messages.
    pub origin: String,
}

/// The part of the agent that gets a grant.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Receiver {
    /// The host's built-in file tools get the grant.
    Host,
    /// The plugin with this name gets the grant.
    Plugin(String),
}

/// The kind of access that a grant allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The receiver may read the files in a folder.
    Read,
    /// The receiver may read and write the files in a folder.
    Write,
    /// The receiver may read an environment variable.
    Env,
    /// The receiver may read a configuration value.
    Config,
    /// The receiver may send HTTP requests that match a pattern.
    Http,
    /// The receiver may store values between calls, up to a size in MiB.
    KeyValue,
    /// The receiver may use the agent's model, up to a number of tokens per turn.
    ModelTokens,
    /// The receiver may send service events of a type.
    Events,
    /// The receiver may read the media of the conversation.
    Media,
}

/// The kinds of grants, with their keys in `agent.toml` and in `--grant`.
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
    /// Returns all kinds.
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        KINDS.iter().map(|(_, kind)| *kind)
    }

    /// Returns the key of this kind in `[plugins.NAME.grants]` and in `--grant`.
    pub fn key(self) -> &'static str {
        KINDS.iter().find(|(_, kind)| *kind == self).map(|(key, _)| *key).unwrap_or_default()
    }
}

/// Finds the kind with this key, such as `read` or `http`.
impl std::str::FromStr for Kind {
    type Err = String;

    fn from_str(key: &str) -> Result<Self, Self::Err> {
        let keys: Vec<&str> = KINDS.iter().map(|(key, _)| *key).collect();
        let found = KINDS.iter().find(|(name, _)| *name == key).map(|(_, kind)| *kind);
        found.ok_or_else(|| format!("`{key}` is not a kind of grant; the kinds are {}", keys.join(", ")))
    }
}

/// Returns the grants without those of one kind, or no grants if there is no kind. Without the kind `write`, the folders
/// remain readable; without the kind `read`, they are neither readable nor writable.
pub fn without(grants: &Grants, kind: Option<Kind>) -> Grants {
    let mut remaining = grants.clone();
    match kind {
        None => return Grants::default(),
        Some(Kind::Read) => remaining.trees.clear(),
        Some(Kind::Write) => remaining.trees.iter_mut().for_each(|tree| tree.access = Access::Read),
        Some(Kind::Env) => remaining.env.clear(),
        Some(Kind::Config) => remaining.config.clear(),
        Some(Kind::Http) => remaining.http.clear(),
        Some(Kind::KeyValue) => remaining.key_value = None,
        Some(Kind::ModelTokens) => remaining.model_tokens = None,
        Some(Kind::Events) => remaining.events.clear(),
        Some(Kind::Media) => remaining.media = false,
    }
    remaining
}

/// A secret for a plugin, as it is configured in `agent.toml`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretGrant {
    /// Name of the plugin whose requests contain the secret.
    pub plugin: String,
    /// Environment variable that contains the secret.
    pub env: String,
    /// The hosts to which the secret is sent, and the header that contains it.
    pub template: SecretTemplate,
    /// Location of the secret's table in the file, for messages.
    pub origin: String,
}

/// All grants of an agent, after the folders were checked and the variables were replaced by their values.
#[derive(Clone, Debug, Default)]
pub struct ResolvedGrants {
    /// Grants for plugins, by the plugin's name.
    pub plugins: BTreeMap<String, Grants>,
    /// Folders that the host's built-in file tools may read.
    pub host: Vec<TreeGrant>,
}

impl Grant {
    /// Parses `PLUGIN:KIND=VALUE`, the value of `--grant`. If the text is invalid, the error explains the syntax.
    pub fn parse(text: &str) -> Result<Self, String> {
        let syntax = "write PLUGIN:KIND=VALUE, for example `files:read=.`; KIND is read, write, env, config, http, \
                    key_value_mib, model_tokens, events or media";
        let (receiver, assignment) = text.split_once(':').ok_or_else(|| format!("there is no `:`; {syntax}"))?;
        let (kind, value) = assignment.split_once('=').ok_or_else(|| format!("there is no `=`; {syntax}"))?;
        let kind = KINDS.iter().find(|(name, _)| *name == kind);
        let (_, kind) = kind.ok_or_else(|| format!("the kind is not known; {syntax}"))?;
        if receiver.is_empty() || value.is_empty() {
            return Err(format!("the plugin or the value is empty; {syntax}"));
        }
        let receiver = match receiver {
            "host" => Receiver::Host,
            name => Receiver::Plugin(name.to_owned()),
        };
        if receiver == Receiver::Host && *kind != Kind::Read {
            return Err("the host's own tools can only read: write host:read=DIR".to_owned());
        }
        if *kind == Kind::Config && !value.contains('=') {
            return Err("a configuration value is written PLUGIN:config=KEY=VALUE".to_owned());
        }
        let origin = format!("--grant {text}");
        Ok(Self { receiver, kind: *kind, value: value.to_owned(), base: PathBuf::new(), origin })
    }
}

impl Grant {
    /// Returns the plugin that gets the grant, or None if the host's built-in tools get it.
    pub fn plugin(&self) -> Option<&str> {
        match &self.receiver {
            Receiver::Host => None,
            Receiver::Plugin(name) => Some(name),
        }
    }
}

/// Resolves grants to the form that the sandbox needs: checks the folders and reads the variables. The error contains
/// one message for each grant that cannot be resolved.
pub fn resolve(grants: &[Grant], variable: &dyn Fn(&str) -> Option<String>) -> Result<ResolvedGrants, Vec<String>> {
    let mut resolved = ResolvedGrants::default();
    let mut problems = Vec::new();
    for grant in grants {
        if let Err(problem) = add_grant(grant, variable, &mut resolved) {
            problems.push(format!("{}: {problem}", grant.origin));
        }
    }
    if problems.is_empty() { Ok(resolved) } else { Err(problems) }
}

/// Describes each grant that has no effect or only a partial effect, because the plugin's manifest does not request the
/// grant. Each description is worded as the end of a sentence that begins with the plugin's name. A plugin without a
/// manifest counts as requesting everything.
pub fn unused_grants(plugin: &LoadedPlugin, grants: &Grants) -> Vec<String> {
    plugin.manifest().map(|manifest| grants_beyond_requests(&manifest.asks, grants)).unwrap_or_default()
}

fn grants_beyond_requests(asks: &Asks, grants: &Grants) -> Vec<String> {
    let no_effect =
        |permission: String| format!("does not ask for {permission} in its manifest, so this grant has no effect");
    let writes = grants.trees.iter().any(|tree| tree.access == Access::ReadWrite);
    let trees = match asks.files {
        Some(Access::ReadWrite) => None,
        Some(Access::Read) if writes => {
            Some("has a manifest that asks only for reading files, so a grant to write allows only reading".to_owned())
        }
        Some(Access::Read) => None,
        None => (!grants.trees.is_empty()).then(|| no_effect("files".to_owned())),
    };
    let env = grants.env.keys().filter(|name| !asks.env.contains(name));
    let env = env.map(|name| no_effect(format!("the variable {name}")));
    let config = grants.config.keys().filter(|key| !asks.config.contains(key));
    let config = config.map(|key| no_effect(format!("the configuration value {key}")));
    let requested: Vec<HttpPattern> = asks.http.iter().filter_map(|asked| asked.parse().ok()).collect();
    let http =
        grants.http.iter().filter(|pattern| intersect_http(std::slice::from_ref(pattern), &requested).is_empty());
    let http = http.map(|pattern| no_effect(format!("the request {pattern}")));
    let secrets =
        grants.secrets.iter().map(Secret::name).filter(|name| !asks.secrets.iter().any(|asked| asked == name));
    let secrets = secrets.map(|name| no_effect(format!("the secret {name}")));
    let key_value = (grants.key_value.is_some() && !asks.key_value).then(|| no_effect("storing values".to_owned()));
    let model = match (grants.model_tokens, asks.model_tokens) {
        (Some(_), None) => Some(no_effect("the agent's model".to_owned())),
        (Some(granted), Some(asked)) if asked < granted => {
            Some(format!("requests only {asked} model tokens in its manifest, so the plugin gets no more than that"))
        }
        _ => None,
    };
    let events =
        grants.events.iter().filter(|event_type| !asks.events.iter().any(|asked| asked == event_type.as_str()));
    let events = events.map(|event_type| no_effect(format!("the service event {event_type}")));
    let media = (grants.media && !asks.media).then(|| no_effect("the media of the conversation".to_owned()));
    let problems = trees.into_iter().chain(env).chain(config).chain(http).chain(secrets);
    problems.chain(key_value).chain(model).chain(events).chain(media).collect()
}

fn add_grant(
    grant: &Grant,
    variable: &dyn Fn(&str) -> Option<String>,
    resolved: &mut ResolvedGrants,
) -> Result<(), String> {
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
                return Err(format!(
                    "the environment variable `{}` is not set; set it, or remove the grant",
                    grant.value
                ));
            }
        },
        Kind::Config => {
            let (key, value) = grant.value.split_once('=').ok_or("expected KEY=VALUE")?;
            grants.config.insert(key.to_owned(), value.to_owned());
        }
        Kind::Http => grants.http.push(grant.value.parse().map_err(|error: PatternError| error.to_string())?),
        Kind::KeyValue => {
            let mebibytes = grant.value.parse::<u64>().ok().filter(|number| (1..=1024).contains(number));
            let mebibytes =
                mebibytes.ok_or_else(|| format!("`{}` is not a whole number from 1 to 1024", grant.value))?;
            grants.key_value = Some(mebibytes << 20);
        }
        Kind::ModelTokens => {
            let tokens = grant.value.parse::<u64>().ok().filter(|number| (1..=MODEL_TOKENS).contains(number));
            let tokens =
                tokens.ok_or_else(|| format!("`{}` is not a whole number from 1 to {MODEL_TOKENS}", grant.value))?;
            grants.model_tokens = Some(tokens);
        }
        Kind::Events => {
            grants.events.insert(grant.value.parse().map_err(|error: EventTypeError| error.to_string())?);
        }
        Kind::Media if grant.value == "true" => grants.media = true,
        Kind::Media => return Err(format!("`{}` is not `true`; to deny access, remove the grant", grant.value)),
    }
    Ok(())
}

/// Adds secrets to the grants of their plugins. The error contains one message for each secret that cannot be added.
/// The messages do not contain the values of secrets.
pub fn add_secrets(
    secrets: &[SecretGrant],
    variable: &dyn Fn(&str) -> Option<String>,
    resolved: &mut ResolvedGrants,
) -> Result<(), Vec<String>> {
    let mut problems = Vec::new();
    for SecretGrant { plugin, env, template, origin } in secrets {
        let secret = match variable(env) {
            Some(value) => Secret::new(template.clone(), &value).map_err(|error| error.to_string()),
            None => Err(format!("the environment variable `{env}` is not set; set it, or remove the secret")),
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
        return Err(parent_component_error(&host));
    }
    match std::fs::metadata(&host) {
        Ok(metadata) if metadata.is_dir() => Ok(TreeGrant { host, guest: grant.value.clone(), access }),
        Ok(_) => Err(format!("`{}` is a file; grant the folder that contains it", host.display())),
        Err(error) => Err(format!("the folder `{}` cannot be granted: {error}", host.display())),
    }
}

/// Returns the error for a granted folder whose path contains `..`. Plugins use the path of a folder exactly as it is
/// granted, and paths that plugins use must not contain `..`.
fn parent_component_error(host: &Path) -> String {
    let advice = match std::fs::canonicalize(host) {
        Ok(absolute) => format!("write `{}`", absolute.display()),
        Err(_) => "write the folder's absolute path".to_owned(),
    };
    format!("a granted folder must be written without `..`, because plugins use the path as it is written: {advice}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn no_variable(_: &str) -> Option<String> {
        None
    }

    /// P6: the option `--grant` is parsed into the receiver, the kind and the value of the grant.
    #[test]
    fn parses_valid_grants() {
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
    fn errors_for_malformed_grants_explain_the_syntax() {
        for text in ["files", "files:read", "files:delete=.", ":read=.", "files:read=", "host:write=.", "a:config=k"] {
            let error = Grant::parse(text).expect_err(text);
            assert!(error.contains("write") || error.contains("written"), "{text}: {error}");
        }
    }

    #[test]
    fn combines_all_grants_of_a_plugin() {
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

    /// P6: a warning describes each grant that exceeds the requests in the plugin's manifest.
    #[test]
    fn p6_reports_grants_that_the_manifest_does_not_ask_for() {
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
        let permissions = [
            "files",
            "the variable HOME",
            "the configuration value key",
            "the request https://a.example",
            "storing values",
            "the agent's model",
            "the service event com.example.paid",
            "the media of the conversation",
        ];
        let expected = permissions
            .map(|permission| format!("does not ask for {permission} in its manifest, so this grant has no effect"));
        assert_eq!(grants_beyond_requests(&Asks::default(), &grants), expected);
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
        let partial_effect = "has a manifest that asks only for reading files, so a grant to write allows only reading";
        assert_eq!(grants_beyond_requests(&asks, &grants), [partial_effect], "writing includes reading");
        let asks = Asks { files: Some(Access::ReadWrite), model_tokens: Some(6), ..asks };
        let partial_effect = "requests only 6 model tokens in its manifest, so the plugin gets no more than that";
        assert_eq!(grants_beyond_requests(&asks, &grants), [partial_effect]);
        let asks = Asks { model_tokens: Some(8), ..asks };
        assert!(grants_beyond_requests(&asks, &grants).is_empty());
        assert!(grants_beyond_requests(&Asks::default(), &Grants::default()).is_empty());
    }

    /// P6: one error reports all grants that cannot be resolved.
    #[test]
    fn p6_reports_all_grants_that_cannot_be_resolved() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        std::fs::write(directory.path().join("file"), "").expect("written");
        let grant = |text: &str| Grant { base: directory.path().to_owned(), ..Grant::parse(text).expect(text) };
        let grants = [grant("a:read=absent"), grant("a:read=file"), grant("a:env=ABSENT")];
        let problems = resolve(&grants, &no_variable).expect_err("nothing of this can be granted");
        let shown = problems.join("\n").replace(&directory.path().display().to_string(), "/base");
        insta::assert_snapshot!(shown, @r"
        --grant a:read=absent: the folder `/base/absent` cannot be granted: No such file or directory (os error 2)
        --grant a:read=file: `/base/file` is a file; grant the folder that contains it
        --grant a:env=ABSENT: the environment variable `ABSENT` is not set; set it, or remove the grant
        ");
    }

    /// P6: a grant for a folder whose path contains `..` is rejected, because the plugin could not use this path.
    #[test]
    fn p6_rejects_folders_with_parent_components() {
        let directory = tempfile::tempdir().expect("a temporary folder");
        let folder = directory.path().canonicalize().expect("exists");
        std::fs::create_dir(folder.join("docs")).expect("created");
        let absolute = format!("a:read={}/docs/../docs", folder.display());
        for text in ["a:read=docs/..", "a:write=docs/../docs", "host:read=docs/..", absolute.as_str(), "a:read=x/.."] {
            let grant = Grant { base: folder.clone(), ..Grant::parse(text).expect(text) };
            let problems = resolve(&[grant], &no_variable).expect_err(text);
            assert!(problems[0].contains("without `..`"), "{problems:?}");
        }
        let grant = Grant { base: folder.clone(), ..Grant::parse("a:read=docs/..").expect("a grant") };
        let problems = resolve(&[grant], &no_variable).expect_err("refused");
        assert!(problems[0].ends_with(&format!("write `{}`", folder.display())), "{problems:?}");
    }
}
