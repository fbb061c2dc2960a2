//! The description of a call before it runs: its plugin, its limits and its capabilities.

use super::admission::LaneName;
use super::engine::Metering;
use super::trial::Trial;
use crate::capabilities::process::Trace;
use crate::capabilities::process::program::Program;
use crate::file_trees::ScratchTrees;
use crate::grants::http_pattern::AskedRequests;
use crate::grants::live_grants::CurrentGrants;
use crate::grants::secret::KnownSecrets;
use crate::grants::{Grants, UnmetNeed};
use crate::identity::{Authority, Kind, PluginIdentity};
use crate::limits::CallLimits;
use crate::ports::http::HttpPort;
use crate::ports::key_value::KeyValuePort;
use crate::ports::media::MediaPort;
use crate::ports::model::ModelPort;
use crate::recording::replay_inputs::ReplayInputs;
use crate::recording::stopped_calls::StoppedCalls;
use std::sync::Arc;
use std::time::Duration;
use wasmtime::Engine;

/// The services that the runtime provides to plugins during a call. If the port for media items, key-value data or the
/// model is None, the plugin cannot use that service.
#[derive(Clone, Default)]
pub struct Ports {
    /// Reads and stores the media items of the session.
    pub media: Option<Arc<dyn MediaPort>>,
    /// The plugin's key-value data, which persists between calls.
    pub key_value: Option<Arc<dyn KeyValuePort>>,
    /// Sends the plugin's requests to the agent's model.
    pub model: Option<Arc<dyn ModelPort>>,
    /// A port that responds to HTTP requests instead of the network. If None, requests are sent to the network.
    pub http: Option<Arc<dyn HttpPort>>,
    /// In a replay, the recorded time, random numbers and files of the original call.
    pub replay: Option<Arc<ReplayInputs>>,
    /// The agent's current grants, which may change during the call. If None, the grants from the start of the call
    /// apply until its end.
    pub grants: Option<Arc<dyn CurrentGrants>>,
    /// Collects the denials of calls whose futures are dropped before they return a report. If None, these
    /// denials are lost.
    pub stopped: Option<Arc<StoppedCalls>>,
}

/// All properties of a call, except for the function that is called.
pub(crate) struct CallSpec {
    pub(crate) plugin: Arc<PluginIdentity>,
    pub(crate) kind: Kind,
    /// The engine for which the plugin is compiled.
    pub(crate) engine: Engine,
    pub(crate) metering: Metering,
    /// Id of the call, shown in the log.
    pub(crate) call: String,
    /// Name of the agent that makes the call.
    pub(crate) agent: Arc<str>,
    /// Size of the request encoded as JSON, in bytes.
    pub(crate) request_bytes: usize,
    pub(crate) lane: LaneName,
    pub(crate) wall: Duration,
    /// The limits that the host enforces during the call. The limit on fuel applies only if `metering` is `Fuel`.
    pub(crate) limits: CallLimits,
    /// Maximum number of bytes that the guest may pass to the host in the arguments of one host function, or in the
    /// result of the call.
    pub(crate) lifted_bytes: usize,
    pub(crate) capabilities: CallCapabilities,
    /// Needs of the plugin that are not granted. For a component without a manifest, the needs are guessed from
    /// its imports.
    pub(crate) unmet: Arc<[UnmetNeed]>,
    /// Needs that the plugin's manifest states and that are not granted.
    pub(crate) declared: Arc<[UnmetNeed]>,
    /// The trial in which the call is counted. `None` means that the plugin's version is not on trial.
    pub(crate) trial: Option<Arc<Trial>>,
}

/// The capabilities and services that a call can access.
#[derive(Clone)]
pub(crate) struct CallCapabilities {
    pub(crate) authority: Authority,
    /// The grants at the start of the call.
    pub(crate) grants: Arc<Grants>,
    pub(crate) agent: String,
    pub(crate) session: String,
    pub(crate) media: Option<Arc<dyn MediaPort>>,
    /// The command-line program that the call runs. `None` means that the call runs a function.
    pub(crate) program: Option<Arc<Program>>,
    pub(crate) key_value: Option<Arc<dyn KeyValuePort>>,
    pub(crate) model: Option<Arc<dyn ModelPort>>,
    pub(crate) http: Option<Arc<dyn HttpPort>>,
    pub(crate) replay: Option<Arc<ReplayInputs>>,
    /// The scratch trees that the call uses instead of granted trees.
    pub(crate) scratch: Option<Arc<ScratchTrees>>,
    /// Provides the agent's current grants, so that a grant that is revoked during the call can no longer be used.
    pub(crate) current_grants: Option<Arc<dyn CurrentGrants>>,
    /// Collects the call's denials if the call's future is dropped before it returns a report.
    pub(crate) stopped_calls: Option<Arc<StoppedCalls>>,
    /// Number of the turn that makes the call, counted within the session.
    pub(crate) turn: u32,
    pub(crate) trace: Trace,
    /// Secrets that are removed from the data that the guest receives.
    pub(crate) secrets: Arc<KnownSecrets>,
    /// The requests that the plugin's manifest asks for. `None` if the component has no manifest.
    pub(crate) asked_requests: AskedRequests,
}

impl CallCapabilities {
    /// Returns the capabilities of a call that has no grants and no access to the host's data or model.
    pub(crate) fn nothing(authority: Authority) -> Self {
        Self {
            authority,
            grants: Arc::default(),
            agent: String::new(),
            session: String::new(),
            media: None,
            key_value: None,
            model: None,
            http: None,
            replay: None,
            scratch: None,
            current_grants: None,
            stopped_calls: None,
            turn: 0,
            program: None,
            trace: Trace::None,
            secrets: Arc::default(),
            asked_requests: None,
        }
    }
}
