//! The manifest: what it says, what it asks for against what is imported, and its canary.

use super::{Examined, Finding, Level};
use agent_core::schema::Schema;
use agent_plugins::{Asks, Authority, Manifest};

/// What an ask needs to be of use. Toolchains import files and the environment in any case, so those imports say nothing.
struct Ask {
    key: &'static str,
    is_asked: fn(&Manifest) -> bool,
    import: &'static str,
    /// What to write where the import alone can only be denied.
    line: Option<&'static str>,
}

const ASKS: [Ask; 8] = [
    Ask { key: "files", is_asked: |manifest| manifest.asks.files.is_some(), import: "wasi:filesystem/", line: None },
    Ask { key: "env", is_asked: |manifest| !manifest.asks.env.is_empty(), import: "wasi:cli/environment", line: None },
    Ask {
        key: "config",
        is_asked: |manifest| !manifest.asks.config.is_empty(),
        import: "wasi:config/",
        line: Some("config = [\"…\"]"),
    },
    Ask {
        key: "http",
        is_asked: |manifest| !manifest.asks.http.is_empty(),
        import: "wasi:http/outgoing-handler",
        line: Some("http = [\"GET https://…\"]"),
    },
    // The host puts them into requests.
    Ask {
        key: "secrets",
        is_asked: |manifest| !manifest.asks.secrets.is_empty(),
        import: "wasi:http/outgoing-handler",
        line: None,
    },
    Ask {
        key: "key_value",
        is_asked: |manifest| manifest.asks.key_value,
        import: "wasi:keyvalue/",
        line: Some("key_value = true"),
    },
    Ask {
        key: "model_tokens",
        is_asked: |manifest| manifest.asks.model_tokens.is_some(),
        import: "agent-host:model/",
        line: Some("model_tokens = 20000"),
    },
    // The import is also there for tools that only make media, which needs no grant.
    Ask { key: "media", is_asked: |manifest| manifest.asks.media, import: "agent-host:plugin/media-store", line: None },
];

pub(super) fn check(examined: &Examined, findings: &mut Vec<Finding>) {
    let Some(manifest) = &examined.manifest else {
        findings.push(Finding::new(
            Level::Warning,
            "manifest",
            "",
            "it has no manifest: it is named by its file, and may use whatever it is granted. `agent-host plugin build` puts \
             plugin.toml into it",
        ));
        return;
    };
    for (key, value) in [("version", &manifest.version), ("description", &manifest.description)] {
        if value.is_empty() {
            let message = format!("plugin.toml says no {key}: people see it where they choose plugins");
            findings.push(Finding::new(Level::Hint, "manifest", key, message));
        }
    }
    asks(examined, manifest, findings);
    canary(examined, manifest, findings);
}

fn asks(examined: &Examined, manifest: &Manifest, findings: &mut Vec<Finding>) {
    let is_inert = !examined.kinds.is_empty()
        && examined.tools.is_empty()
        && examined.kinds.iter().all(|kind| kind.authority() == Authority::Inert);
    if is_inert {
        if ASKS.iter().any(|ask| (ask.is_asked)(manifest)) {
            let message = "validators and media policies never get anything, so it asks in vain: take [asks] out";
            findings.push(Finding::new(Level::Warning, "asks-in-vain", "asks", message));
        }
        return;
    }
    for Ask { key, is_asked, import, line } in &ASKS {
        let subject = format!("asks.{key}");
        match (is_asked(manifest), examined.imports(import), line) {
            (false, true, Some(line)) => {
                let message = format!(
                    "it imports `{import}…` and does not ask for it, so that every use will be denied: write `{line}` under \
                     [asks] in plugin.toml"
                );
                findings.push(Finding::new(Level::Error, "asks-too-little", subject, message));
            }
            (true, false, _) => {
                let message = format!(
                    "it asks for this and imports nothing of `{import}…`, so that people are asked in vain: take it out of \
                     plugin.toml"
                );
                findings.push(Finding::new(Level::Warning, "asks-in-vain", subject, message));
            }
            _ => {}
        }
    }
}

fn canary(examined: &Examined, manifest: &Manifest, findings: &mut Vec<Finding>) {
    let Some(canary) = &manifest.canary else {
        // A canary is granted nothing, so who needs something may have no call that succeeds.
        if manifest.asks == Asks::default() && examined.tools.iter().any(|tool| tool.traits.read_only) {
            let message = "plugin.toml has no [canary]: a call that must succeed before a changed version serves";
            findings.push(Finding::new(Level::Hint, "canary", "canary", message));
        }
        return;
    };
    let Some(tool) = examined.tools.iter().find(|tool| tool.name == canary.tool) else {
        let message =
            format!("its canary calls `{}`, and it has no such tool: no changed version would ever serve", canary.tool);
        findings.push(Finding::new(Level::Error, "canary", "canary.tool", message));
        return;
    };
    if let Ok(Err(violations)) = Schema::compile(&tool.input_schema).map(|schema| schema.check(&canary.arguments)) {
        let words = violations.iter().map(|violation| format!("{}: {}", violation.pointer, violation.message));
        let words: Vec<_> = words.collect();
        let message =
            format!("the arguments of its canary do not fit the schema of `{}`: {}", tool.name, words.join("; "));
        findings.push(Finding::new(Level::Error, "canary", "canary.arguments", message));
    } else if let Some(Err(reason)) = &examined.canary {
        findings.push(Finding::new(Level::Error, "canary", "canary", reason.clone()));
    }
}
