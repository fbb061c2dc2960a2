//! The canary: one call that a new version of a plugin must answer before it serves (P10). It is granted nothing, and has the
//! limits that its agent's calls have.

use crate::call::{ToolCallContext, ToolCallRequest};
use crate::grants::Grants;
use crate::limits::CallLimits;
use crate::media::Ports;
use crate::plugin::{LoadedPlugin, PluginSetup};
use crate::sandbox::Sandbox;
use agent_core::message::CallId;
use agent_core::plugin::{Scope, TraceContext};
use agent_core::tool::{CallCost, ToolOutcome};
use std::sync::Arc;
use std::time::Duration;

/// Most wall time of a canary: the others wait for it.
const CANARY_TIME: Duration = Duration::from_secs(10);

impl Sandbox {
    /// Makes the call that the plugin's manifest names, with these limits; nothing to do where it names none. The error
    /// completes "`file`: …".
    pub async fn canary(&self, plugin: &Arc<LoadedPlugin>, limits: CallLimits) -> Result<(), String> {
        self.canary_cost(plugin, limits).await.unwrap_or(Ok(CallCost::default())).map(|_| ())
    }

    /// The same with what the call cost; none where the manifest names none.
    pub async fn canary_cost(
        &self,
        plugin: &Arc<LoadedPlugin>,
        limits: CallLimits,
    ) -> Option<Result<CallCost, String>> {
        let canary = plugin.manifest().and_then(|manifest| manifest.canary.as_ref())?;
        let setup = PluginSetup::new(plugin.clone(), Grants::default(), limits);
        let trace = TraceContext {
            traceparent: "00-00000000000000000000000000000001-0000000000000001-00".to_owned(),
            tracestate: None,
        };
        let scope = Scope {
            agent: "canary".to_owned(),
            session: "canary".to_owned(),
            delegated_by: None,
            user: None,
            turn: 1,
            trace,
        };
        let context = ToolCallContext { id: CallId("canary".to_owned()), attempt: 1, time_limit: CANARY_TIME, scope };
        let request = ToolCallRequest { name: &canary.tool, args: canary.arguments.to_string(), context };
        let report = self.call_tool(&setup, request, &Ports::default()).await;
        let problem = match report.result {
            Ok(Ok(ToolOutcome::Done(_))) => return Some(Ok(report.cost)),
            Ok(Ok(ToolOutcome::Pending(_))) => "it asked for a service".to_owned(),
            Ok(Err(error)) => error.for_model(),
            Err(failure) => failure.to_string(),
        };
        Some(Err(format!("its canary `{}` did not succeed: {problem}", canary.tool)))
    }
}
