//! The tools of a model call in the form in which step records refer to them (D1). A record refers to a list. The list
//! refers to the definition of each tool and to the names of all tools, so that each text is stored only once even if
//! each turn offers different tools (L25).

use agent_core::message::Digest;
use agent_core::model::OfferedTool;
use agent_core::text_dialect::ToolAddress;
use agent_store::digest_of;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// A text to which a record or a list refers by digest.
#[derive(Clone, Debug)]
pub(crate) struct ReferencedText {
    pub(crate) digest: Digest,
    pub(crate) text: String,
}

impl ReferencedText {
    fn new(content: &impl Serialize) -> Self {
        let text = serde_json::to_string(content).expect("tools serialise to JSON");
        Self { digest: digest_of(text.as_bytes()), text }
    }
}

/// The names of all tools in a registry. The history contains calls of tools that are no longer offered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RecordedNames {
    /// The provider name of each tool whose provider name differs from the author's name. The key is the author's name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) names: BTreeMap<String, String>,
    /// The text-dialect address of each tool that is not local. The key is the tool's name as its author wrote it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub(crate) addresses: BTreeMap<String, ToolAddress>,
    /// The command-line programs whose calls the prompt shows as calls of `run_command`.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(crate) programs: BTreeSet<String>,
}

/// The texts of a registry's tools.
#[derive(Debug)]
pub(crate) struct ToolTexts {
    names: ReferencedText,
    /// The definitions of the offered tools, by the author's name.
    definitions: BTreeMap<String, ReferencedText>,
}

impl ToolTexts {
    pub(crate) fn new(names: &RecordedNames, offered: &[OfferedTool]) -> Self {
        let definitions = offered.iter().map(|tool| (tool.author_name.clone(), ReferencedText::new(tool)));
        Self { names: ReferencedText::new(names), definitions: definitions.collect() }
    }

    /// Returns the list of these tools, all of which are offered by the registry.
    pub(crate) fn list(&self, offered: &[OfferedTool]) -> ReferencedText {
        let definitions = self.definitions_of(offered).map(|text| text.digest.to_string()).collect();
        ReferencedText::new(&ToolDigests { names: self.names.digest.to_string(), definitions })
    }

    /// Returns the texts to which the list of these tools refers.
    pub(crate) fn texts<'t>(&'t self, offered: &'t [OfferedTool]) -> impl Iterator<Item = &'t ReferencedText> {
        std::iter::once(&self.names).chain(self.definitions_of(offered))
    }

    fn definitions_of<'t>(&'t self, offered: &'t [OfferedTool]) -> impl Iterator<Item = &'t ReferencedText> {
        offered.iter().filter_map(|tool| self.definitions.get(&tool.author_name))
    }
}

/// The list of the tools of a model call.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct ToolDigests {
    /// Digest of the text that contains [`RecordedNames`].
    pub(crate) names: String,
    /// Digests of the definitions, in the order of the request.
    pub(crate) definitions: Vec<String>,
}

impl ToolDigests {
    pub(crate) fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }
}

/// Everything that a prompt contains about tools.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct RecordedTools {
    /// The tools that the model may call, in the order of the request.
    pub(crate) offered: Vec<OfferedTool>,
    names: RecordedNames,
}

impl RecordedTools {
    /// Reads the tools from the stored texts. Returns `None` if this host cannot read the texts.
    pub(crate) fn parse(names: &str, definitions: &[String]) -> Option<Self> {
        let names = serde_json::from_str(names).ok()?;
        let offered: Result<Vec<OfferedTool>, _> = definitions.iter().map(|text| serde_json::from_str(text)).collect();
        Some(Self { offered: offered.ok()?, names })
    }

    /// Returns the provider name of a tool. `None` means that the provider uses the author's name.
    pub(crate) fn provider_name(&self, author: &str) -> Option<&str> {
        self.names.names.get(author).map(String::as_str)
    }

    /// Returns whether the prompt shows calls of this tool as calls of `run_command`.
    pub(crate) fn is_run_by_name(&self, author: &str) -> bool {
        self.names.programs.contains(author)
    }

    /// Returns the address of a tool in the text dialect. `name` is the tool's name as its author or as the model
    /// provider spells it.
    pub(crate) fn address_of(&self, name: &str) -> ToolAddress {
        let mut names = self.names.names.iter();
        let author = names.find(|(_, provider)| *provider == name).map_or(name, |(author, _)| author);
        self.names.addresses.get(author).cloned().unwrap_or_else(|| ToolAddress::new(author, None))
    }
}
