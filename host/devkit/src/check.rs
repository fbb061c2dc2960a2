//! Checks a plugin before it is shared with others: finds errors, problems for models or users, and possible
//! improvements (S3).

mod authority;
mod cost;
mod tools;

use agent_core::tool::{CallCost, ToolDefinition};
use agent_plugins::{Kind, LoadedPlugin, Manifest, SkippedExport};
use serde::Serialize;
use std::time::Duration;

/// The facts about a plugin that the rules check.
#[derive(Clone, Debug, Default)]
pub struct PluginFacts {
    /// The manifest in the component. None if the component has no manifest.
    pub manifest: Option<Manifest>,
    /// The kinds of plugin that the component implements, such as output validator.
    pub kinds: Vec<Kind>,
    /// Names of the interfaces that the component imports.
    pub imports: Vec<String>,
    /// The plugin's tools, including exported functions that are offered as tools.
    pub tools: Vec<ToolDefinition>,
    /// Exported functions that cannot be offered as tools.
    pub left_out: Vec<SkippedExport>,
    /// Size of the component in bytes.
    pub size: u64,
    /// Duration of the compilation. None if the compiled code came from the cache.
    pub compiled_in: Option<Duration>,
    /// The result of the canary call. None if the manifest has no canary or the canary was not called.
    pub canary: Option<Result<CallCost, String>>,
}

impl PluginFacts {
    /// Returns the facts about a loaded plugin. The caller sets `compiled_in` and `canary`, which are
    /// None in the result.
    pub fn of(plugin: &LoadedPlugin) -> Self {
        Self {
            manifest: plugin.manifest().cloned(),
            kinds: plugin.kinds().to_vec(),
            imports: plugin.imports().to_vec(),
            tools: plugin.tools().to_vec(),
            left_out: plugin.skipped_exports().to_vec(),
            size: plugin.size(),
            compiled_in: None,
            canary: None,
        }
    }

    /// Whether the component imports an interface whose name starts with `beginning`.
    fn imports(&self, beginning: &str) -> bool {
        self.imports.iter().any(|import| import.starts_with(beginning))
    }
}

/// The severity of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// The plugin or a part of it does not work.
    Error,
    /// The plugin works, but models or users will have a problem with it.
    Warning,
    /// The plugin could be improved.
    Hint,
}

/// A problem that the check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// Severity of the finding.
    pub level: Level,
    /// Name of the rule. The name does not change between versions of agent-host, so that programs can
    /// recognise the rule.
    pub rule: &'static str,
    /// The subject of the finding: a tool, a tool with a JSON pointer into its schema, or a key of `plugin.toml`.
    /// Empty if the finding is about the whole plugin.
    pub subject: String,
    /// Description of the problem, with advice on how to fix it.
    pub message: String,
}

impl Finding {
    /// Returns the finding for a plugin that cannot be loaded.
    pub fn unloadable(reason: String) -> Self {
        Self::new(Level::Error, "loads", "", reason)
    }

    fn new(level: Level, rule: &'static str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self { level, rule, subject: subject.into(), message: message.into() }
    }
}

/// Runs all rules and returns their findings. The most severe findings come first.
pub fn check(facts: &PluginFacts) -> Vec<Finding> {
    let mut findings = Vec::new();
    authority::check(facts, &mut findings);
    tools::check(&facts.tools, &mut findings);
    cost::check(facts, &mut findings);
    findings.sort_by_key(|finding| finding.level);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;
    use agent_core::tool::Traits;
    use agent_plugins::{Access, Asks, Canary};
    use serde_json::{Value, json};

    fn tool(name: &str, description: &str, properties: Value) -> ToolDefinition {
        ToolDefinition {
            name: name.to_owned(),
            title: None,
            description: description.to_owned(),
            input_schema: json!({"type": "object", "properties": properties, "additionalProperties": false}),
            output_schema: None,
            traits: Traits { read_only: true, ..Traits::default() },
            priority: 0,
        }
    }

    /// Returns the facts about a plugin that passes the check without findings.
    fn facts_without_findings() -> PluginFacts {
        let text = json!({"text": {"type": "string", "description": "The text to look in."}});
        let manifest = Manifest {
            name: "words".to_owned(),
            version: "1.0.0".to_owned(),
            description: "Counts words.".to_owned(),
            canary: Some(Canary { tool: "words.count".to_owned(), arguments: json!({"text": "a"}) }),
            ..Manifest::default()
        };
        PluginFacts {
            manifest: Some(manifest),
            kinds: vec![Kind::Tool],
            tools: vec![tool("words.count", "Counts the words of a text, as people count them.", text)],
            size: 200_000,
            canary: Some(Ok(CallCost { memory_bytes: 1 << 20, ..CallCost::default() })),
            ..PluginFacts::default()
        }
    }

    /// Returns the level, the rule and the subject of each finding after `change` is applied to a plugin
    /// without findings.
    fn findings(change: impl FnOnce(&mut PluginFacts)) -> Vec<(Level, &'static str, String)> {
        let mut facts = facts_without_findings();
        change(&mut facts);
        check(&facts).into_iter().map(|finding| (finding.level, finding.rule, finding.subject)).collect()
    }

    fn set_requests(facts: &mut PluginFacts, asks: Asks) {
        facts.manifest.as_mut().expect("a manifest").asks = asks;
    }

    use Level::{Error, Hint, Warning};

    /// S3: a plugin without problems has no findings.
    #[test]
    fn s3_good_plugin_has_no_findings() {
        assert_eq!(findings(|_| ()), []);
    }

    /// S3, P6: the check reports a warning if the manifest requests a permission but the component does not have the
    /// matching import, and an error if the component has the import but the manifest does not contain the request.
    #[test]
    fn s3_requests_must_match_imports() {
        let imports = |names: &'static [&'static str]| {
            move |facts: &mut PluginFacts| facts.imports = names.iter().map(|name| (*name).to_owned()).collect()
        };
        let of = |rule, key: &str, level| vec![(level, rule, key.to_owned())];
        assert_eq!(findings(imports(&["wasi:http/outgoing-handler@0.2.3"])), of("asks-too-little", "asks.http", Error));
        assert_eq!(
            findings(imports(&["wasi:keyvalue/store@0.2.0-draft2"])),
            of("asks-too-little", "asks.key_value", Error)
        );
        assert_eq!(findings(imports(&["wasi:config/store@0.2.0-rc.1"])), of("asks-too-little", "asks.config", Error));
        assert_eq!(
            findings(imports(&["agent-host:model/host-model@0.1.0"])),
            of("asks-too-little", "asks.model_tokens", Error)
        );
        // The manifest does not have to request the following imports, because toolchains add these imports even if
        // the plugin does not use them.
        assert_eq!(
            findings(imports(&["wasi:filesystem/types@0.2.9", "wasi:cli/environment@0.2.9", "wasi:http/types@0.2.3"])),
            []
        );
        let everything = Asks {
            files: Some(Access::Read),
            env: vec!["LANG".to_owned()],
            config: vec!["a".to_owned()],
            http: vec!["https://a.example".to_owned()],
            secrets: vec!["TOKEN".to_owned()],
            key_value: true,
            model_tokens: Some(1),
            // A request for events does not require an import, because the imports do not show whether a tool returns
            // `pending` or a final result.
            events: vec!["com.example.paid".to_owned()],
            media: true,
            optional: Vec::new(),
        };
        let keys = ["files", "env", "config", "http", "secrets", "key_value", "model_tokens", "media"];
        let unnecessary_requests: Vec<_> =
            keys.iter().map(|key| (Warning, "asks-in-vain", format!("asks.{key}"))).collect();
        assert_eq!(findings(|facts| set_requests(facts, everything.clone())), unnecessary_requests);
        let with_all_imports = findings(|facts| {
            set_requests(facts, everything.clone());
            imports(&[
                "wasi:filesystem/types@0.2.9",
                "wasi:cli/environment@0.2.9",
                "wasi:config/store@0.2.0-rc.1",
                "wasi:http/outgoing-handler@0.2.3",
                "wasi:keyvalue/store@0.2.0-draft2",
                "agent-host:plugin/media-store@0.1.0",
                "agent-host:model/host-model@0.1.0",
            ])(facts);
        });
        assert_eq!(with_all_imports, []);
        let validator = findings(|facts| {
            (facts.kinds, facts.tools) = (vec![Kind::OutputValidator], Vec::new());
            let manifest = facts.manifest.as_mut().expect("a manifest");
            (manifest.canary, facts.canary) = (None, None);
            set_requests(facts, Asks { files: Some(Access::Read), ..Asks::default() });
            facts.imports = vec!["wasi:filesystem/types@0.2.9".to_owned()];
        });
        assert_eq!(validator, of("asks-in-vain", "asks", Warning));
    }

    /// S3, P6: the check reports methods that no request has.
    #[test]
    fn s3_requests_have_standard_methods() {
        let asked = |pattern: &str| {
            findings(|facts| {
                facts.imports = vec!["wasi:http/outgoing-handler@0.2.3".to_owned()];
                set_requests(facts, Asks { http: vec![pattern.to_owned()], ..Asks::default() });
            })
        };
        assert_eq!(asked("GET,POST https://a.example"), []);
        assert_eq!(asked("GET,GETT https://a.example"), [(Warning, "http-method", "asks.http".to_owned())]);
    }

    /// S3: the check finds descriptions of tools and arguments that are missing, too short or too long.
    #[test]
    fn s3_checks_descriptions() {
        let described =
            |description: &'static str| findings(move |facts| facts.tools[0].description = description.to_owned());
        let of = |rule, level| vec![(level, rule, "words.count".to_owned())];
        assert_eq!(described(""), of("description", Error));
        assert_eq!(described("Counts."), of("description", Warning));
        assert_eq!(described("words count"), of("description", Warning));
        let long = findings(|facts| facts.tools[0].description = "long words ".repeat(200));
        assert_eq!(long, of("description-length", Warning));
        // Findings about the canary are ignored, because its arguments do not match the schemas of this test.
        let argument = |schema: Value| {
            let found = findings(move |facts| facts.tools[0].input_schema = schema).into_iter();
            found.filter(|(_, rule, _)| *rule != "canary").collect::<Vec<_>>()
        };
        let nested = json!({"type": "object", "additionalProperties": false, "properties": {
            "rows": {"type": "array", "description": "The rows.", "items": {"type": "object", "properties": {"a/b": {}}}}}});
        let pointer = "words.count /properties/rows/items/properties/a~1b";
        assert_eq!(argument(nested), [(Warning, "argument-description", pointer.to_owned())]);
        // In a schema that is generated from a type, the description of an argument can be in the definition that
        // the argument references.
        let referred = json!({"type": "object", "properties": {"unit": {"$ref": "#/$defs/Unit"}}, "additionalProperties": false,
            "$defs": {"Unit": {"description": "What is counted.", "enum": ["word"]}}});
        assert_eq!(argument(referred), []);
        assert_eq!(argument(json!({"type": "object"})), of("arguments-open", Hint));
        let circular = json!({"type": "object", "additionalProperties": false, "properties": {"a": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"description": "Itself.", "properties": {"a": {"$ref": "#/$defs/A"}}}}});
        assert_eq!(argument(circular), []);
    }

    /// S3: the check finds names that do not follow conventions, and pairs of tools that a model may confuse.
    #[test]
    fn s3_checks_names_and_similar_tools() {
        let named = |name: &'static str| {
            findings(move |facts| {
                facts.tools[0].name = name.to_owned();
                let canary = facts.manifest.as_mut().and_then(|manifest| manifest.canary.as_mut());
                canary.expect("a canary").tool = name.to_owned();
            })
        };
        assert_eq!(named("count"), [(Hint, "name", "count".to_owned())]);
        assert_eq!(named("Words.Count"), [(Hint, "name", "Words.Count".to_owned())]);
        let long = "words.counts-all-the-words-of-a-text-and-tells-how-many-there-are-of-them";
        assert_eq!(named(long), [(Warning, "name-length", long.to_owned())]);
        let second = |name: &'static str, description: &'static str| {
            findings(move |facts| {
                let properties = facts.tools[0].input_schema["properties"].clone();
                facts.tools.push(tool(name, description, properties));
            })
        };
        let same = "Counts the words of a text, as people count them.";
        assert_eq!(second("words.total", same), [(Warning, "alike", "words.total".to_owned())]);
        let near = "Counts the words of any text as people count them";
        assert_eq!(second("words.total", near), [(Warning, "alike", "words.total".to_owned())]);
        let other = "Finds the longest line, with its number.";
        assert_eq!(second("words.counts", other), [(Warning, "alike", "words.counts".to_owned())]);
        assert_eq!(second("words_count", other).first(), Some(&(Warning, "alike", "words_count".to_owned())));
        assert_eq!(second("words.longest", other), []);
    }

    /// S3: the check finds tools that do not declare their side effects, and tools that declare
    /// contradictory side effects.
    #[test]
    fn s3_checks_traits() {
        let with = |traits: Traits| findings(move |facts| facts.tools[0].traits = traits);
        assert_eq!(with(Traits::default()), [(Hint, "traits", "words.count".to_owned())]);
        let both = Traits { read_only: true, destructive: true, ..Traits::default() };
        assert_eq!(with(both), [(Error, "traits", "words.count".to_owned())]);
        assert_eq!(with(Traits { destructive: true, ..Traits::default() }), []);
    }

    /// S3, P10: the check finds missing canaries, and canaries that cannot succeed.
    #[test]
    fn s3_checks_canary() {
        let canary = |change: fn(&mut Canary)| {
            findings(move |facts| {
                change(facts.manifest.as_mut().and_then(|manifest| manifest.canary.as_mut()).expect("a canary"));
            })
        };
        assert_eq!(
            canary(|canary| canary.tool = "words.cuont".to_owned()),
            [(Error, "canary", "canary.tool".to_owned())]
        );
        assert_eq!(
            canary(|canary| canary.arguments = json!({"text": 1})),
            [(Error, "canary", "canary.arguments".to_owned())]
        );
        let failed = findings(|facts| facts.canary = Some(Err("it crashed".to_owned())));
        assert_eq!(failed, [(Error, "canary", "canary".to_owned())]);
        let without = findings(|facts| {
            facts.manifest.as_mut().expect("a manifest").canary = None;
            facts.canary = None;
        });
        assert_eq!(without, [(Hint, "canary", "canary".to_owned())]);
        let nameless = findings(|facts| (facts.manifest, facts.canary) = (None, None));
        assert_eq!(nameless, [(Warning, "manifest", String::new())]);
        let bare = findings(|facts| facts.manifest.as_mut().expect("a manifest").description.clear());
        assert_eq!(bare, [(Hint, "manifest", "description".to_owned())]);
    }

    /// S3: the check finds plugins that are close to a limit, and plugins whose tool definitions make prompts large.
    #[test]
    fn s3_checks_costs() {
        let single_finding = |level, rule| vec![(level, rule, String::new())];
        assert_eq!(findings(|facts| facts.size = 20 << 20), single_finding(Hint, "size"));
        assert_eq!(findings(|facts| facts.size = 28 << 20), single_finding(Warning, "size"));
        assert_eq!(
            findings(|facts| facts.compiled_in = Some(Duration::from_secs(12))),
            single_finding(Hint, "compile-time")
        );
        assert_eq!(findings(|facts| facts.compiled_in = Some(Duration::from_secs(2))), []);
        let memory = |bytes| CallCost { memory_bytes: bytes, ..CallCost::default() };
        assert_eq!(findings(|facts| facts.canary = Some(Ok(memory(40 << 20)))), single_finding(Warning, "memory"));
        let definitions = findings(|facts| {
            let filler = json!({"type": "string", "description": "x".repeat(400)});
            let properties: serde_json::Map<_, _> =
                (0..25).map(|number| (format!("a{number}"), filler.clone())).collect();
            facts.tools[0].input_schema["properties"] = Value::Object(properties);
            facts.manifest.as_mut().and_then(|manifest| manifest.canary.as_mut()).expect("a canary").arguments =
                json!({});
        });
        assert_eq!(definitions, single_finding(Hint, "definitions"));
        let left_out = SkippedExport { function: "a.b".to_owned(), reason: "it takes a stream".to_owned() };
        assert_eq!(findings(|facts| facts.left_out = vec![left_out]), [(Hint, "not-offered", "a.b".to_owned())]);
    }
}
