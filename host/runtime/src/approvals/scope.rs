//! What a lasting approval and a rule with a tool's exact name are bound to: the agent's file, the user, who runs the tool,
//! and what that one may reach (row 52).

use crate::agent::{Agent, RuleBinding};
use crate::registry::RegisteredTool;
use crate::session::{Session, Shared};
use agent_core::approval::{ApprovalPolicy, ApprovalScope, Ruling, canonical_json};
use agent_core::change::CallRecord;
use agent_core::message::Digest;
use agent_core::tool::ToolSource;
use agent_mcp::Transport;
use agent_plugins::Grants;
use agent_store::{NamedRule, StoreError, digest_of};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};

impl Session {
    /// What an approval of the tool is about now.
    pub(crate) fn approval_scope(&self, tool: &RegisteredTool) -> ApprovalScope {
        self.shared.approval_scope(tool)
    }

    /// The rule that holds for a tool now. A rule with its exact name relaxes what other rules ask for only for the
    /// plugin or server that it is bound to: where another one offers that name, somebody is asked.
    pub(crate) async fn ruling(&self, tool: &RegisteredTool) -> Result<Ruling, StoreError> {
        let ruling = self.shared.ruling(tool);
        let general = self.shared.general_ruling(tool);
        if general.policy <= ruling.policy {
            return Ok(ruling);
        }
        let config = self.shared.agent.config();
        let identity = rule_identity(&self.shared.agent, tool);
        let rule = NamedRule { agent: config.record_name(), tool: tool.definition.name.clone() };
        if self.shared.store.bind_rule(rule, identity.clone()).await? == identity {
            return Ok(ruling);
        }
        let policy = general.policy.max(ApprovalPolicy::Ask);
        let because = format!("{} (another plugin or server offered it when the rule first applied)", ruling.because);
        Ok(Ruling { policy, because })
    }

    /// Binds rules with exact names to who offers these tools now, where they are not bound yet.
    pub(crate) async fn bind_rules(&self) -> Result<(), StoreError> {
        let agent = self.shared.agent.clone();
        for name in agent.config().approvals.tools.keys() {
            if let Some(tool) = agent.registry().get(name) {
                self.ruling(tool).await?;
            }
        }
        Ok(())
    }
}

impl Shared {
    pub(crate) fn approval_scope(&self, tool: &RegisteredTool) -> ApprovalScope {
        let config = self.agent.config();
        let identity = json!({
            "agent": config.name,
            "file": config.file,
            "user": config.user,
            "tool": tool.digest,
            "executor": executor(&self.agent, tool),
            "program": program(&self.agent, tool),
        });
        ApprovalScope { identity: digest_of_json(&identity), grants: digest_of_json(&self.grants_in_force(tool)) }
    }

    /// What an approval of a plugin's request to a service is about: what an approval of the service is about, and the
    /// plugin that asks. A yes to the model is no yes to a plugin.
    pub(crate) fn request_scope(&self, service: &RegisteredTool, asking: &CallRecord) -> ApprovalScope {
        let ApprovalScope { identity, grants } = self.approval_scope(service);
        let asked = self.agent.registry().get(&asking.name);
        let asker = json!({"tool": asking.name, "source": asking.source});
        ApprovalScope {
            identity: digest_of_json(&json!({"service": identity, "asker": asker})),
            grants: digest_of_json(&json!({"service": grants, "asker": asked.map(|tool| self.grants_in_force(tool))})),
        }
    }

    /// What the one who runs the tool may reach.
    fn grants_in_force(&self, tool: &RegisteredTool) -> Value {
        match &tool.source {
            ToolSource::Plugin { plugin, .. } => {
                let setup = self.agent.setups().get(plugin);
                setup.map_or(Value::Null, |setup| grants_value(self.setup(setup).grants()))
            }
            ToolSource::BuiltIn => trees_value(&Grants { trees: self.host_trees(), ..Grants::default() }),
            ToolSource::Agent { .. } => match self.agent.config().delegates.get(&tool.definition.name) {
                Some(delegate) => everything_granted(&delegate.agent.current()),
                None => Value::Null,
            },
            // What these may reach is not the host's to say.
            ToolSource::Mcp { .. } | ToolSource::Service { .. } => Value::Null,
        }
    }
}

/// Who runs a tool, as configured: another one is not meant by what was said of this one. Of variables and headers only
/// the names count, since their values are secrets that may be renewed.
fn executor(agent: &Agent, tool: &RegisteredTool) -> Value {
    let config = agent.config();
    match &tool.source {
        ToolSource::Plugin { plugin, digest } => json!({"plugin": plugin, "digest": digest}),
        ToolSource::Mcp { server, .. } => {
            let transport = config.mcp.iter().find(|known| known.name == *server).map(|known| &known.transport);
            json!({"server": server, "transport": transport.map(transport_value)})
        }
        ToolSource::Service { event_type } => {
            let domain = config.services.get(&tool.definition.name).map(|service| &service.domain);
            json!({"service": event_type, "domain": domain})
        }
        ToolSource::Agent { agent } => {
            let below = config.delegates.get(&tool.definition.name).map(|delegate| delegate.agent.current());
            json!({"agent": agent, "file": below.and_then(|below| below.config().file.clone())})
        }
        ToolSource::BuiltIn => json!("host"),
    }
}

fn transport_value(transport: &Transport) -> Value {
    match transport {
        Transport::Stdio(child) => json!({
            "command": child.command,
            "args": child.args,
            "directory": child.directory,
            "env": child.env.keys().collect::<Vec<_>>(),
        }),
        Transport::Http(address) => {
            json!({"url": address.url, "headers": address.headers.keys().collect::<Vec<_>>()})
        }
    }
}

/// Of a server that is a program: the file that the command leads to, its content, and the content of the scripts that the arguments name. Rules with exact names are not bound to this, since a person who writes one in a file expects it to survive an update.
fn program(agent: &Agent, tool: &RegisteredTool) -> Value {
    let ToolSource::Mcp { server, .. } = &tool.source else { return Value::Null };
    let known = agent.config().mcp.iter().find(|known| known.name == *server);
    match known.map(|known| &known.transport) {
        Some(Transport::Stdio(child)) => {
            let named =
                child.args.iter().flat_map(|arg| [Some(arg.as_str()), arg.split_once('=').map(|(_, value)| value)]);
            let code = named.flatten().map(|word| (word, child.place_of(word))).filter(|(_, place)| is_code(place));
            let files = code.filter_map(|(word, place)| Some((word, content(&place)?)));
            let program = child.program();
            json!({
                "path": program,
                "content": program.as_deref().and_then(content),
                "files": files.collect::<BTreeMap<_, _>>(),
            })
        }
        Some(Transport::Http(_)) | None => Value::Null,
    }
}

/// Files up to this size are known by their bytes, larger ones by their size and the time of their last change.
const READ_BYTES: u64 = 4 << 20;

/// Endings of scripts. Other files that arguments name are data, which a server changes itself.
const SCRIPTS: [&str; 18] = [
    "bash", "cjs", "cts", "fish", "jar", "js", "jsx", "lua", "mjs", "mts", "php", "pl", "ps1", "py", "pyz", "rb", "sh",
    "ts",
];

/// Whether a file is code: by its ending, or since it begins as a script does.
fn is_code(path: &Path) -> bool {
    let ending = path.extension().map(|ending| ending.to_string_lossy().to_ascii_lowercase());
    let mut beginning = [0; 2];
    ending.is_some_and(|ending| SCRIPTS.contains(&&*ending))
        || std::fs::metadata(path).is_ok_and(|found| found.is_file())
            && std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut beginning)).is_ok()
            && beginning == *b"#!"
}

/// What tells a file from another one under its name; none where there is no file.
fn content(path: &Path) -> Option<Value> {
    let found = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    if found.len() > READ_BYTES {
        let changed = found.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        return Some(json!([found.len(), changed.as_nanos().to_string()]));
    }
    Some(json!(digest_of(&std::fs::read(path).ok()?)))
}

/// What a rule with the tool's exact name is bound to.
fn rule_identity(agent: &Agent, tool: &RegisteredTool) -> Digest {
    let identity = match (&tool.source, agent.config().rule_binding) {
        (ToolSource::Plugin { plugin, .. }, RuleBinding::Name) => json!({"plugin": plugin}),
        _ => executor(agent, tool),
    };
    digest_of_json(&identity)
}

/// Of an agent below: all its plugins and agents with what they may reach.
fn everything_granted(agent: &Agent) -> Value {
    let config = agent.config();
    let plugins: BTreeMap<&str, Value> = agent
        .setups()
        .values()
        .map(|setup| (setup.plugin().name(), json!([setup.plugin().digest(), grants_value(setup.grants())])))
        .collect();
    let servers: BTreeMap<&str, Value> =
        config.mcp.iter().map(|server| (server.name.as_str(), transport_value(&server.transport))).collect();
    let agents: BTreeMap<&str, Value> = config
        .delegates
        .iter()
        .map(|(name, delegate)| (name.as_str(), everything_granted(&delegate.agent.current())))
        .collect();
    let services: BTreeMap<&str, Value> = config
        .services
        .iter()
        .map(|(name, service)| (name.as_str(), json!([service.event_type.as_str(), service.domain])))
        .collect();
    let host = trees_value(&Grants { trees: config.host_trees.clone(), ..Grants::default() });
    let rules = digest_of(format!("{:?} {:?}", config.approvals, config.prompt).as_bytes());
    json!({
        "plugins": plugins,
        "servers": servers,
        "agents": agents,
        "services": services,
        "host": host,
        "rules": rules,
    })
}

/// As an open turn keeps them, with the values of settings, and with the folders that the trees lead to.
fn grants_value(grants: &Grants) -> Value {
    json!({"pinned": grants.pinned(), "config": grants.config, "folders": trees_value(grants)})
}

fn trees_value(grants: &Grants) -> Value {
    let resolved = |path: &Path| -> PathBuf { std::fs::canonicalize(path).unwrap_or_else(|_| path.to_owned()) };
    let trees = grants.trees.iter().map(|tree| json!([resolved(&tree.host), tree.guest, tree.access]));
    Value::Array(trees.collect())
}

fn digest_of_json(value: &Value) -> Digest {
    digest_of(canonical_json(value).as_bytes())
}
