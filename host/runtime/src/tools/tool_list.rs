//! The tools of a model call in the form in which step records refer to them (D1).

use agent_core::message::Digest;
use agent_core::model::OfferedTool;
use agent_core::text_dialect::ToolAddress;
use agent_store::digest_of;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Everything that a prompt contains about tools. The history contains calls of tools that are no longer offered, so the
/// names include those of all tools in the registry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedTools {
    /// The tools that the model may call, in the order of the request.
    pub(crate) offered: Vec<OfferedTool>,
    /// The provider names of all tools whose provider name differs from the author's name, by the author's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    names: BTreeMap<String, String>,
    /// The addresses, in the text dialect, of the tools that are not local, by the author's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    addresses: BTreeMap<String, ToolAddress>,
}

impl RecordedTools {
    pub(crate) fn new(
        offered: Vec<OfferedTool>,
        names: BTreeMap<String, String>,
        addresses: BTreeMap<String, ToolAddress>,
    ) -> Self {
        Self { offered, names, addresses }
    }

    /// Returns the provider name of a tool. `None` means that the provider uses the author's name.
    pub(crate) fn provider_name(&self, author: &str) -> Option<&str> {
        self.names.get(author).map(String::as_str)
    }

    /// Returns the address of a tool in the text dialect. `name` is the tool's name as its author or as the model provider
    /// spells it.
    pub(crate) fn address_of(&self, name: &str) -> ToolAddress {
        let author = self.names.iter().find(|(_, provider)| *provider == name).map_or(name, |(author, _)| author);
        self.addresses.get(author).cloned().unwrap_or_else(|| ToolAddress::new(author, None))
    }
}

/// [`RecordedTools`] as a text, which is stored once and to which step records refer by digest.
#[derive(Debug)]
pub(crate) struct ToolList {
    pub(crate) digest: Digest,
    pub(crate) text: String,
    /// Names of the offered tools, as their authors wrote them.
    offered: Vec<String>,
}

impl ToolList {
    pub(crate) fn new(tools: &RecordedTools) -> Self {
        let text = serde_json::to_string(tools).expect("tools serialise to JSON");
        let offered = tools.offered.iter().map(|tool| tool.author_name.clone()).collect();
        Self { digest: digest_of(text.as_bytes()), text, offered }
    }

    /// Whether the list contains exactly these tools. All of them must come from the registry of the list.
    pub(crate) fn offers(&self, tools: &[OfferedTool]) -> bool {
        self.offered.iter().eq(tools.iter().map(|tool| &tool.author_name))
    }
}
