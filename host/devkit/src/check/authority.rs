//! Checks the manifest: compares its requests for permissions with the component's imports, and checks the canary.

use super::{Finding, Level, PluginFacts};
use agent_core::schema::Schema;
use agent_plugins::{Asks, Authority, HttpPattern, Manifest};

/// A permission that a manifest can request, and the interface that the component must import to use the permission.
/// Toolchains add the imports for files and for the environment to every component, so these two imports do not show
/// that the plugin uses files or the environment.
struct PermissionRequest {
    key: &'static str,
    is_requested: fn(&Manifest) -> bool,
    import: &'static str,
    /// The line to add to the manifest if the component has the import but the manifest does not contain the request.
    /// `None` means that the component may have the import without a request in the manifest.
    line: Option<&'static str>,
}

const PERMISSION_REQUESTS: [PermissionRequest; 8] = [
    PermissionRequest {
        key: "files",
        is_requested: |manifest| manifest.asks.files.is_some(),
        import: "wasi:filesystem/",
        line: None,
    },
    PermissionRequest {
        key: "env",
        is_requested: |manifest| !manifest.asks.env.is_empty(),
        import: "wasi:cli/environment",
        line: None,
    },
    PermissionRequest {
        key: "config",
        is_requested: |manifest| !manifest.asks.config.is_empty(),
        import: "wasi:config/",
        line: Some("config = [\"…\"]"),
    },
    PermissionRequest {
        key: "http",
        is_requested: |manifest| !manifest.asks.http.is_empty(),
        import: "wasi:http/outgoing-handler",
        line: Some("http = [\"GET https://…\"]"),
    },
    // The host inserts secrets into HTTP requests, so a plugin that asks for secrets must also import the HTTP
    // interface for outgoing requests.
    PermissionRequest {
        key: "secrets",
        is_requested: |manifest| !manifest.asks.secrets.is_empty(),
        import: "wasi:http/outgoing-handler",
        line: None,
    },
    PermissionRequest {
        key: "key_value",
        is_requested: |manifest| manifest.asks.key_value,
        import: "wasi:keyvalue/",
        line: Some("key_value = true"),
    },
    PermissionRequest {
        key: "model_tokens",
        is_requested: |manifest| manifest.asks.model_tokens.is_some(),
        import: "agent-host:model/",
        line: Some("model_tokens = 20000"),
    },
    // A component with this import does not have to request media access, because tools that only create media items
    // have this import too and need no grant.
    PermissionRequest {
        key: "media",
        is_requested: |manifest| manifest.asks.media,
        import: "agent-host:plugin/media-store",
        line: None,
    },
];

pub(super) fn check(facts: &PluginFacts, findings: &mut Vec<Finding>) {
    let Some(manifest) = &facts.manifest else {
        findings.push(Finding::new(
            Level::Warning,
            "manifest",
            "",
            "the component has no manifest, so the plugin has the name of the file and gets all access that the agent \
             grants. `agent-host plugin build` embeds plugin.toml as the manifest; for a component that was built elsewhere, \
             `agent-host plugin describe` writes a manifest file beside it",
        ));
        return;
    };
    for (key, value) in [("version", &manifest.version), ("description", &manifest.description)] {
        if value.is_empty() {
            let message = format!("plugin.toml has no {key}: users see the {key} when they choose plugins");
            findings.push(Finding::new(Level::Hint, "manifest", key, message));
        }
    }
    check_requests(facts, manifest, findings);
    check_http_methods(&manifest.asks, findings);
    check_canary(facts, manifest, findings);
}

fn check_requests(facts: &PluginFacts, manifest: &Manifest, findings: &mut Vec<Finding>) {
    let is_inert = !facts.kinds.is_empty()
        && facts.tools.is_empty()
        && facts.kinds.iter().all(|kind| kind.authority() == Authority::Inert);
    if is_inert {
        if PERMISSION_REQUESTS.iter().any(|request| (request.is_requested)(manifest)) {
            let message = "output validators and media policies are never granted anything, so these requests have no effect: remove [asks]";
            findings.push(Finding::new(Level::Warning, "asks-in-vain", "asks", message));
        }
        return;
    }
    for PermissionRequest { key, is_requested, import, line } in &PERMISSION_REQUESTS {
        let subject = format!("asks.{key}");
        match (is_requested(manifest), facts.imports(import), line) {
            (false, true, Some(line)) => {
                let message = format!(
                    "the component imports `{import}…`, but plugin.toml does not ask for access, so the host will deny \
                     every use of this interface: add `{line}` under [asks] in plugin.toml"
                );
                findings.push(Finding::new(Level::Error, "asks-too-little", subject, message));
            }
            (true, false, _) => {
                let message = format!(
                    "plugin.toml requests `{key}`, but the component does not import `{import}…`, so users are asked \
                     for a permission that the plugin does not use: remove the request from plugin.toml"
                );
                findings.push(Finding::new(Level::Warning, "asks-in-vain", subject, message));
            }
            _ => {}
        }
    }
}

/// Reports methods in the requests of the manifest that are not standard methods and are therefore probably typos.
fn check_http_methods(asks: &Asks, findings: &mut Vec<Finding>) {
    let patterns: Vec<HttpPattern> = asks.http.iter().filter_map(|pattern| pattern.parse().ok()).collect();
    for method in patterns.iter().flat_map(HttpPattern::unusual_methods) {
        let message =
            format!("`{method}` is not a standard HTTP method; methods are written in capital letters, such as `GET`");
        findings.push(Finding::new(Level::Warning, "http-method", "asks.http", message));
    }
}

fn check_canary(facts: &PluginFacts, manifest: &Manifest, findings: &mut Vec<Finding>) {
    let Some(canary) = &manifest.canary else {
        // The canary call runs without grants. A plugin that needs grants may have no call that
        // succeeds as a canary, so the check does not report a missing canary for such a plugin.
        if manifest.asks == Asks::default() && facts.tools.iter().any(|tool| tool.traits.read_only) {
            let message = "plugin.toml has no [canary]: a call that must succeed before a changed plugin is used";
            findings.push(Finding::new(Level::Hint, "canary", "canary", message));
        }
        return;
    };
    let Some(tool) = facts.tools.iter().find(|tool| tool.name == canary.tool) else {
        let message = format!(
            "the canary calls `{}`, but the plugin has no tool with this name, so changed versions of the plugin would \
             never be used",
            canary.tool
        );
        findings.push(Finding::new(Level::Error, "canary", "canary.tool", message));
        return;
    };
    if let Ok(Err(violations)) = Schema::compile(&tool.input_schema).map(|schema| schema.check(&canary.arguments)) {
        let problems = violations.iter().map(|violation| format!("{}: {}", violation.pointer, violation.message));
        let problems: Vec<_> = problems.collect();
        let message =
            format!("the canary's arguments do not match the schema of `{}`: {}", tool.name, problems.join("; "));
        findings.push(Finding::new(Level::Error, "canary", "canary.arguments", message));
    } else if let Some(Err(reason)) = &facts.canary {
        findings.push(Finding::new(Level::Error, "canary", "canary", reason.clone()));
    }
}
