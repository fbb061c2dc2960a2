//! Determines the scope in which an approval is valid, and the scope in which an approval rule with a tool's exact name
//! is valid (row 52). The scope of an approval consists of the agent's file, the user, the executor of the tool, and
//! the executor's grants.

use super::context::ApprovalContext;
use crate::agent::{Agent, RuleBinding};
use crate::tools::registry::RegisteredTool;
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

impl ApprovalContext<'_> {
    /// Returns the ruling that applies to a tool now. A rule with the tool's exact name is bound to one plugin or
    /// server, and can be less strict than the other rules only for the tool of this plugin or server. If a tool with
    /// this name is now offered by a different plugin or server, a user is asked.
    pub(crate) async fn ruling(&self, tool: &RegisteredTool) -> Result<Ruling, StoreError> {
        let ruling = self.configured_ruling(tool);
        let general = self.general_ruling(tool);
        if general.policy <= ruling.policy {
            return Ok(ruling);
        }
        let config = self.services.agent.config();
        let identity = rule_identity(&self.services.agent, tool);
        let rule = NamedRule { agent: config.record_name(), tool: tool.definition.name.clone() };
        if self.services.store.bind_rule(rule, identity.clone()).await? == identity {
            return Ok(ruling);
        }
        let policy = general.policy.max(ApprovalPolicy::Ask);
        let because =
            format!("{} (another plugin or server offered the tool when the rule first applied)", ruling.because);
        Ok(Ruling { policy, because })
    }

    /// Binds each rule that contains an exact tool name to the plugin or server that offers the tool now. Rules that
    /// are already bound are not changed.
    pub(crate) async fn bind_rules(&self) -> Result<(), StoreError> {
        let agent = self.services.agent.clone();
        for name in agent.config().approvals.tools.keys() {
            if let Some(tool) = agent.registry().get(name) {
                self.ruling(tool).await?;
            }
        }
        Ok(())
    }

    /// Returns the scope of an approval that a user gives for the tool now.
    pub(crate) fn approval_scope(&self, tool: &RegisteredTool) -> ApprovalScope {
        let config = self.services.agent.config();
        let identity = json!({
            "agent": config.name,
            "file": config.file,
            "user": config.user,
            "tool": tool.digest,
            "executor": executor(&self.services.agent, tool),
            "program": program(&self.services.agent, tool),
        });
        ApprovalScope { identity: digest_of_json(&identity), grants: digest_of_json(&self.grants_in_force(tool)) }
    }

    /// Returns the scope of an approval that a user gives for a plugin's service request. The scope contains the
    /// service and the requesting plugin, so that an approval of a call that the model makes to the service does not
    /// cover requests of a plugin.
    pub(crate) fn request_scope(&self, service: &RegisteredTool, call: &CallRecord) -> ApprovalScope {
        let ApprovalScope { identity, grants } = self.approval_scope(service);
        let requesting_tool = self.services.agent.registry().get(&call.name);
        let requester = json!({"tool": call.name, "source": call.source});
        ApprovalScope {
            identity: digest_of_json(&json!({"service": identity, "asker": requester})),
            grants: digest_of_json(
                &json!({"service": grants, "asker": requesting_tool.map(|tool| self.grants_in_force(tool))}),
            ),
        }
    }

    /// Returns the current grants of the plugin or delegate that executes the tool, as JSON. If the host executes the
    /// tool, the JSON contains the directories that the host's file tools may read.
    fn grants_in_force(&self, tool: &RegisteredTool) -> Value {
        match &tool.source {
            ToolSource::Plugin { plugin, .. } => {
                let setup = self.services.agent.setups().get(plugin);
                setup.map_or(Value::Null, |setup| grants_value(self.services.current_setup(setup).grants()))
            }
            ToolSource::BuiltIn => {
                trees_value(&Grants { trees: self.services.current_host_trees(), ..Grants::default() })
            }
            ToolSource::Agent { .. } => match self.services.agent.config().delegates.get(&tool.definition.name) {
                Some(delegate) => delegate_grants(&delegate.agent.current()),
                None => Value::Null,
            },
            // MCP servers, services and clients have no grants, because the host does not control which resources they access.
            ToolSource::Mcp { .. } | ToolSource::Service { .. } | ToolSource::Client => Value::Null,
        }
    }
}

/// Returns JSON that identifies the executor of a tool: a plugin, a server, a service, a delegate or the host. If the
/// returned JSON differs from the JSON at the time of an approval, the approval is not valid any more. The JSON
/// contains the names of environment variables and headers but not their values, because the values are secrets that
/// may be rotated.
fn executor(agent: &Agent, tool: &RegisteredTool) -> Value {
    let config = agent.config();
    match &tool.source {
        ToolSource::Plugin { plugin, digest } => json!({"plugin": plugin, "digest": digest}),
        ToolSource::Mcp { server, .. } => {
            let transport = config.mcp.iter().find(|config| config.name == *server).map(|config| &config.transport);
            json!({"server": server, "transport": transport.map(transport_value)})
        }
        ToolSource::Service { event_type } => {
            let domain = config.services.get(&tool.definition.name).map(|service| &service.domain);
            json!({"service": event_type, "domain": domain})
        }
        ToolSource::Agent { agent } => {
            let delegate = config.delegates.get(&tool.definition.name).map(|delegate| delegate.agent.current());
            json!({"agent": agent, "file": delegate.and_then(|agent| agent.config().file.clone())})
        }
        ToolSource::BuiltIn => json!("host"),
        ToolSource::Client => json!("client"),
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

/// Returns JSON that identifies the program of an MCP server that runs as a child process: the path and content of the
/// executable, and the content of the scripts whose paths are among the server's arguments. Rules with a tool's exact
/// name are not bound to the program, because users expect such a rule to stay valid after an update of the server.
fn program(agent: &Agent, tool: &RegisteredTool) -> Value {
    let ToolSource::Mcp { server, .. } = &tool.source else { return Value::Null };
    let config = agent.config().mcp.iter().find(|config| config.name == *server);
    match config.map(|config| &config.transport) {
        Some(Transport::Stdio(child)) => {
            let words =
                child.args.iter().flat_map(|arg| [Some(arg.as_str()), arg.split_once('=').map(|(_, value)| value)]);
            let code = words.flatten().map(|word| (word, child.resolve_path(word))).filter(|(_, path)| is_code(path));
            let files = code.filter_map(|(word, path)| Some((word, content_identity(&path)?)));
            let program = child.resolve_program();
            json!({
                "path": program,
                "content": program.as_deref().and_then(content_identity),
                "files": files.collect::<BTreeMap<_, _>>(),
            })
        }
        Some(Transport::Http(_)) | None => Value::Null,
    }
}

/// A file of at most this number of bytes is identified by the digest of its content. A larger file is identified by
/// its size and modification time.
const MAX_HASHED_BYTES: u64 = 4 << 20;

/// File extensions of scripts. Files with these extensions, and all files that begin with `#!`, count as code. All
/// other files count as data, because the MCP server itself may change them.
const SCRIPT_EXTENSIONS: [&str; 18] = [
    "bash", "cjs", "cts", "fish", "jar", "js", "jsx", "lua", "mjs", "mts", "php", "pl", "ps1", "py", "pyz", "rb", "sh",
    "ts",
];

/// Whether a file is code: it has the extension of a script, or it begins with `#!`.
fn is_code(path: &Path) -> bool {
    let extension = path.extension().map(|extension| extension.to_string_lossy().to_ascii_lowercase());
    let mut first_bytes = [0; 2];
    extension.is_some_and(|extension| SCRIPT_EXTENSIONS.contains(&&*extension))
        || std::fs::metadata(path).is_ok_and(|metadata| metadata.is_file())
            && std::fs::File::open(path).and_then(|mut file| file.read_exact(&mut first_bytes)).is_ok()
            && first_bytes == *b"#!"
}

/// Returns JSON that identifies the content of a file. `None` if the file does not exist or cannot be read.
fn content_identity(path: &Path) -> Option<Value> {
    let metadata = std::fs::metadata(path).ok().filter(std::fs::Metadata::is_file)?;
    if metadata.len() > MAX_HASHED_BYTES {
        let modified = metadata.modified().ok()?.duration_since(std::time::UNIX_EPOCH).ok()?;
        return Some(json!([metadata.len(), modified.as_nanos().to_string()]));
    }
    Some(json!(digest_of(&std::fs::read(path).ok()?)))
}

/// Returns the identity of the plugin or server to which a rule with the tool's exact name is bound.
fn rule_identity(agent: &Agent, tool: &RegisteredTool) -> Digest {
    let identity = match (&tool.source, agent.config().rule_binding) {
        (ToolSource::Plugin { plugin, .. }, RuleBinding::Name) => json!({"plugin": plugin}),
        _ => executor(agent, tool),
    };
    digest_of_json(&identity)
}

/// Returns JSON that describes everything that a delegate can access: its plugins with their grants, its servers and
/// services, and its own delegates.
fn delegate_grants(agent: &Agent) -> Value {
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
        .map(|(name, delegate)| (name.as_str(), delegate_grants(&delegate.agent.current())))
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

/// Returns grants as JSON. The JSON contains the grants in the form in which the store pins them to a turn, the values
/// of the plugin's settings, and the resolved paths of the granted directories.
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
