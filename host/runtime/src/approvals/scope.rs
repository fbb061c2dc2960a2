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
use agent_memory::{NamedRule, StoreError, digest_of};
use agent_plugins::Grants;
use serde_json::{Value, json};
use std::collections::BTreeMap;
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
    let host = trees_value(&Grants { trees: config.host_trees.clone(), ..Grants::default() });
    json!({"plugins": plugins, "servers": servers, "agents": agents, "host": host})
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
