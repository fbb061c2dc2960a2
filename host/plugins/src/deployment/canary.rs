//! The canary: one call that must succeed before a new version of a plugin is used (P10). The canary call gets no
//! grants, but it has the same limits as the agent's other calls.

use crate::call::kinds::{ToolCallContext, ToolCallRequest};
use crate::call::plugin_setup::PluginSetup;
use crate::component::plugin::LoadedPlugin;
use crate::component::sandbox::Sandbox;
use crate::execution::call_spec::Ports;
use crate::grants::Grants;
use crate::limits::CallLimits;
use agent_core::message::CallId;
use agent_core::plugin::{Scope, TraceContext};
use agent_core::tool::{CallCost, ToolOutcome};
use std::sync::Arc;
use std::time::Duration;

/// Maximum wall time of a canary call. The time is short, because changes to other plugins wait until the canary call
/// has ended.
const CANARY_TIME: Duration = Duration::from_secs(10);

impl Sandbox {
    /// Makes the canary call that the plugin's manifest defines, with these limits. If the manifest defines no canary,
    /// succeeds without a call. The caller shows the error after the file name: "`file`: …".
    pub async fn canary(&self, plugin: &Arc<LoadedPlugin>, limits: CallLimits) -> Result<(), String> {
        self.canary_cost(plugin, limits).await.unwrap_or(Ok(CallCost::default())).map(|_| ())
    }

    /// Makes the canary call that the plugin's manifest defines, and returns the cost of the call. Returns None if the
    /// manifest defines no canary.
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
            Ok(Ok(ToolOutcome::Pending(_))) => "it asked the host to send a service event".to_owned(),
            Ok(Err(error)) => error.for_model(),
            Err(failure) => failure.to_string(),
        };
        Some(Err(format!("its canary call of `{}` failed: {problem}", canary.tool)))
    }
}
