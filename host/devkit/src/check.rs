//! What an author should know of a plugin before others use it: what hinders it, what a model or a person will stumble over, and
//! what could be better (S3).

mod authority;
mod cost;
mod tools;

use agent_core::tool::{CallCost, ToolDefinition};
use agent_plugins::{Kind, LeftOut, LoadedPlugin, Manifest};
use serde::Serialize;
use std::time::Duration;

/// What is known of a plugin when it is judged.
#[derive(Clone, Debug, Default)]
pub struct Examined {
    /// None: it has none.
    pub manifest: Option<Manifest>,
    /// What it exports of the contract.
    pub kinds: Vec<Kind>,
    /// Names of its imports.
    pub imports: Vec<String>,
    /// Its tools, plain functions among them.
    pub tools: Vec<ToolDefinition>,
    /// Functions that are no tools.
    pub left_out: Vec<LeftOut>,
    /// Bytes of the component.
    pub size: u64,
    /// How long it took to compile; none where the code was kept from earlier.
    pub compiled_in: Option<Duration>,
    /// What became of its canary call, if its manifest names one.
    pub canary: Option<Result<CallCost, String>>,
}

impl Examined {
    /// What a loaded plugin says of itself.
    pub fn of(plugin: &LoadedPlugin) -> Self {
        Self {
            manifest: plugin.manifest().cloned(),
            kinds: plugin.kinds().to_vec(),
            imports: plugin.imports().to_vec(),
            tools: plugin.tools().to_vec(),
            left_out: plugin.left_out().to_vec(),
            size: plugin.size(),
            compiled_in: None,
            canary: None,
        }
    }

    /// Whether it imports something of this package or interface.
    fn imports(&self, beginning: &str) -> bool {
        self.imports.iter().any(|import| import.starts_with(beginning))
    }
}

/// How much a finding matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// It does not work, or part of it never can.
    Error,
    /// It works, and somebody will stumble over it.
    Warning,
    /// It could be better.
    Hint,
}

/// Something that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// How much it matters.
    pub level: Level,
    /// The rule, for programs: it stays the same.
    pub rule: &'static str,
    /// What it is about: a tool, a tool with a pointer into its schema, or a key of `plugin.toml`; empty: the plugin.
    pub subject: String,
    /// What is so, and what to do.
    pub message: String,
}

impl Finding {
    /// Of a plugin that cannot be loaded.
    pub fn unloadable(reason: String) -> Self {
        Self::new(Level::Error, "loads", "", reason)
    }

    fn new(level: Level, rule: &'static str, subject: impl Into<String>, message: impl Into<String>) -> Self {
        Self { level, rule, subject: subject.into(), message: message.into() }
    }
}

/// All that is to be said, what matters most first.
pub fn check(examined: &Examined) -> Vec<Finding> {
    let mut findings = Vec::new();
    authority::check(examined, &mut findings);
    tools::check(&examined.tools, &mut findings);
    cost::check(examined, &mut findings);
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

    /// Nothing is to be said of it.
    fn good() -> Examined {
        let text = json!({"text": {"type": "string", "description": "The text to look in."}});
        let manifest = Manifest {
            name: "words".to_owned(),
            version: "1.0.0".to_owned(),
            description: "Counts words.".to_owned(),
            canary: Some(Canary { tool: "words.count".to_owned(), arguments: json!({"text": "a"}) }),
            ..Manifest::default()
        };
        Examined {
            manifest: Some(manifest),
            kinds: vec![Kind::Tool],
            tools: vec![tool("words.count", "Counts the words of a text, as people count them.", text)],
            size: 200_000,
            canary: Some(Ok(CallCost { memory_bytes: 1 << 20, ..CallCost::default() })),
            ..Examined::default()
        }
    }

    /// The rules of what is found when a good plugin is changed so, with their levels.
    fn found(change: impl FnOnce(&mut Examined)) -> Vec<(Level, &'static str, String)> {
        let mut examined = good();
        change(&mut examined);
        check(&examined).into_iter().map(|finding| (finding.level, finding.rule, finding.subject)).collect()
    }

    fn ask(examined: &mut Examined, asks: Asks) {
        examined.manifest.as_mut().expect("a manifest").asks = asks;
    }

    use Level::{Error, Hint, Warning};

    /// S3: a good plugin passes in silence.
    #[test]
    fn of_a_good_plugin_nothing_is_said() {
        assert_eq!(found(|_| ()), []);
    }

    /// S3, P6: the manifest against the imports, both ways.
    #[test]
    fn what_is_asked_for_is_what_is_imported() {
        let imports = |names: &'static [&'static str]| {
            move |examined: &mut Examined| examined.imports = names.iter().map(|name| (*name).to_owned()).collect()
        };
        let of = |rule, key: &str, level| vec![(level, rule, key.to_owned())];
        assert_eq!(found(imports(&["wasi:http/outgoing-handler@0.2.3"])), of("asks-too-little", "asks.http", Error));
        assert_eq!(
            found(imports(&["wasi:keyvalue/store@0.2.0-draft2"])),
            of("asks-too-little", "asks.key_value", Error)
        );
        assert_eq!(found(imports(&["wasi:config/store@0.2.0-rc.1"])), of("asks-too-little", "asks.config", Error));
        assert_eq!(
            found(imports(&["agent-host:model/host-model@0.1.0"])),
            of("asks-too-little", "asks.model_tokens", Error)
        );
        // Every toolchain imports these, whether they are used or not.
        assert_eq!(
            found(imports(&["wasi:filesystem/types@0.2.9", "wasi:cli/environment@0.2.9", "wasi:http/types@0.2.3"])),
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
            // Nothing that is imported tells whether a tool returns `pending`.
            events: vec!["com.example.paid".to_owned()],
            media: true,
        };
        let keys = ["files", "env", "config", "http", "secrets", "key_value", "model_tokens", "media"];
        let in_vain: Vec<_> = keys.iter().map(|key| (Warning, "asks-in-vain", format!("asks.{key}"))).collect();
        assert_eq!(found(|examined| ask(examined, everything.clone())), in_vain);
        let all = found(|examined| {
            ask(examined, everything.clone());
            imports(&[
                "wasi:filesystem/types@0.2.9",
                "wasi:cli/environment@0.2.9",
                "wasi:config/store@0.2.0-rc.1",
                "wasi:http/outgoing-handler@0.2.3",
                "wasi:keyvalue/store@0.2.0-draft2",
                "agent-host:plugin/media-store@0.1.0",
                "agent-host:model/host-model@0.1.0",
            ])(examined);
        });
        assert_eq!(all, []);
        let validator = found(|examined| {
            (examined.kinds, examined.tools) = (vec![Kind::OutputValidator], Vec::new());
            let manifest = examined.manifest.as_mut().expect("a manifest");
            (manifest.canary, examined.canary) = (None, None);
            ask(examined, Asks { files: Some(Access::Read), ..Asks::default() });
            examined.imports = vec!["wasi:filesystem/types@0.2.9".to_owned()];
        });
        assert_eq!(validator, of("asks-in-vain", "asks", Warning));
    }

    /// S3: what the model reads to choose a tool and to call it.
    #[test]
    fn descriptions_are_judged() {
        let described =
            |description: &'static str| found(move |examined| examined.tools[0].description = description.to_owned());
        let of = |rule, level| vec![(level, rule, "words.count".to_owned())];
        assert_eq!(described(""), of("description", Error));
        assert_eq!(described("Counts."), of("description", Warning));
        assert_eq!(described("words count"), of("description", Warning));
        let long = found(|examined| examined.tools[0].description = "long words ".repeat(200));
        assert_eq!(long, of("description-length", Warning));
        // The canary's arguments fit another schema.
        let argument = |schema: Value| {
            let found = found(move |examined| examined.tools[0].input_schema = schema).into_iter();
            found.filter(|(_, rule, _)| *rule != "canary").collect::<Vec<_>>()
        };
        let nested = json!({"type": "object", "additionalProperties": false, "properties": {
            "rows": {"type": "array", "description": "The rows.", "items": {"type": "object", "properties": {"a/b": {}}}}}});
        let pointer = "words.count /properties/rows/items/properties/a~1b";
        assert_eq!(argument(nested), [(Warning, "argument-description", pointer.to_owned())]);
        // A schema that is made of a type says it where it refers to.
        let referred = json!({"type": "object", "properties": {"unit": {"$ref": "#/$defs/Unit"}}, "additionalProperties": false,
            "$defs": {"Unit": {"description": "What is counted.", "enum": ["word"]}}});
        assert_eq!(argument(referred), []);
        assert_eq!(argument(json!({"type": "object"})), of("arguments-open", Hint));
        let circle = json!({"type": "object", "additionalProperties": false, "properties": {"a": {"$ref": "#/$defs/A"}},
            "$defs": {"A": {"description": "Itself.", "properties": {"a": {"$ref": "#/$defs/A"}}}}});
        assert_eq!(argument(circle), []);
    }

    /// S3: names, and tools that a model will take for each other.
    #[test]
    fn names_and_likenesses_are_judged() {
        let named = |name: &'static str| {
            found(move |examined| {
                examined.tools[0].name = name.to_owned();
                let canary = examined.manifest.as_mut().and_then(|manifest| manifest.canary.as_mut());
                canary.expect("a canary").tool = name.to_owned();
            })
        };
        assert_eq!(named("count"), [(Hint, "name", "count".to_owned())]);
        assert_eq!(named("Words.Count"), [(Hint, "name", "Words.Count".to_owned())]);
        let long = "words.counts-all-the-words-of-a-text-and-tells-how-many-there-are-of-them";
        assert_eq!(named(long), [(Warning, "name-length", long.to_owned())]);
        let second = |name: &'static str, description: &'static str| {
            found(move |examined| {
                let properties = examined.tools[0].input_schema["properties"].clone();
                examined.tools.push(tool(name, description, properties));
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

    /// S3: what a tool says that it does to the world.
    #[test]
    fn traits_are_judged() {
        let with = |traits: Traits| found(move |examined| examined.tools[0].traits = traits);
        assert_eq!(with(Traits::default()), [(Hint, "traits", "words.count".to_owned())]);
        let both = Traits { read_only: true, destructive: true, ..Traits::default() };
        assert_eq!(with(both), [(Error, "traits", "words.count".to_owned())]);
        assert_eq!(with(Traits { destructive: true, ..Traits::default() }), []);
    }

    /// S3, P10: the canary is a call that the plugin can answer.
    #[test]
    fn the_canary_is_judged() {
        let canary = |change: fn(&mut Canary)| {
            found(move |examined| {
                change(examined.manifest.as_mut().and_then(|manifest| manifest.canary.as_mut()).expect("a canary"));
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
        let failed = found(|examined| examined.canary = Some(Err("it crashed".to_owned())));
        assert_eq!(failed, [(Error, "canary", "canary".to_owned())]);
        let without = found(|examined| {
            examined.manifest.as_mut().expect("a manifest").canary = None;
            examined.canary = None;
        });
        assert_eq!(without, [(Hint, "canary", "canary".to_owned())]);
        let nameless = found(|examined| (examined.manifest, examined.canary) = (None, None));
        assert_eq!(nameless, [(Warning, "manifest", String::new())]);
        let bare = found(|examined| examined.manifest.as_mut().expect("a manifest").description.clear());
        assert_eq!(bare, [(Hint, "manifest", "description".to_owned())]);
    }

    /// S3: how near it is to limits, and what it costs in every prompt.
    #[test]
    fn costs_are_judged() {
        let one = |level, rule| vec![(level, rule, String::new())];
        assert_eq!(found(|examined| examined.size = 20 << 20), one(Hint, "size"));
        assert_eq!(found(|examined| examined.size = 28 << 20), one(Warning, "size"));
        assert_eq!(found(|examined| examined.compiled_in = Some(Duration::from_secs(12))), one(Hint, "compile-time"));
        assert_eq!(found(|examined| examined.compiled_in = Some(Duration::from_secs(2))), []);
        let memory = |bytes| CallCost { memory_bytes: bytes, ..CallCost::default() };
        assert_eq!(found(|examined| examined.canary = Some(Ok(memory(40 << 20)))), one(Warning, "memory"));
        let definitions = found(|examined| {
            let filler = json!({"type": "string", "description": "x".repeat(400)});
            let properties: serde_json::Map<_, _> =
                (0..25).map(|number| (format!("a{number}"), filler.clone())).collect();
            examined.tools[0].input_schema["properties"] = Value::Object(properties);
            examined.manifest.as_mut().and_then(|manifest| manifest.canary.as_mut()).expect("a canary").arguments =
                json!({});
        });
        assert_eq!(definitions, one(Hint, "definitions"));
        let left_out = LeftOut { function: "a.b".to_owned(), reason: "it takes a stream".to_owned() };
        assert_eq!(found(|examined| examined.left_out = vec![left_out]), [(Hint, "not-offered", "a.b".to_owned())]);
    }
}
