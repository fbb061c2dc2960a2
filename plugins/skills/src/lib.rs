//! Skills: folders with a file `SKILL.md`, which has YAML front matter with a name and a description, and instructions
//! in Markdown. The context builder lists the names and descriptions in the prompt, and the tools read the skills.

mod catalogue;
mod front_matter;
mod read;
mod section;

use agent_host_sdk::context_builder::{Budget, Prompt, Request, Section};
use agent_host_sdk::log;
use agent_host_sdk::prelude::*;
use catalogue::Catalogue;

/// The section uses at most the tokens that are available in the turn, divided by this number.
const TOKEN_DIVISOR: u32 = 10;
/// Maximum number of tokens of the section.
const MAX_TOKENS: u32 = 3_000;
/// Assumed number of bytes per token. Text usually has more than three bytes per token, so the section does not exceed
/// the limit.
const BYTES_PER_TOKEN: usize = 3;
/// Maximum size of the result of `skills.list`, in bytes.
const MAX_LIST: usize = 128 * 1024;

/// The plugin, which is a context builder and has two tools.
pub struct Skills;

impl ContextBuilder for Skills {
    fn init(request: Request) -> Result<Prompt, Failure> {
        let catalogue = Catalogue::read();
        if !catalogue.is_granted {
            log::info("no file tree is granted, so the prompt contains no skills");
        }
        for problem in &catalogue.problems {
            log::warn(problem);
        }
        let section = section::for_prompt(&catalogue, byte_limit(&request.budget));
        Ok(section.into_iter().fold(Prompt::new(), |prompt, text| prompt.section(Section::fixed("skills", text))))
    }
}

/// Arguments of `skills.list`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {}

impl ToolPlugin for Skills {
    fn tools() -> Tools {
        Tools::new()
            .tool(
                Tool::new(
                    "skills.list",
                    "Lists the skills of the project: folders with instructions for one kind of task, with name, \
                     description and folder. Also lists the skills that cannot be used, and why.",
                )
                .title("List skills")
                .read_only()
                .run(|_: List, _: &Call| list().map(Done::text)),
            )
            .tool(
                Tool::new(
                    "skills.read",
                    "Reads the instructions of a skill, or with `file` another file in the folder of the skill. Read a \
                     skill before you begin a task that its description fits.",
                )
                .title("Read a skill")
                .read_only()
                .run(|arguments: read::Read, _: &Call| read::read(&Catalogue::read(), &arguments).map(Done::text)),
            )
    }
}

agent_host_sdk::export_context_builder!(Skills);
agent_host_sdk::export_tools!(Skills);

/// Runs `skills.list`.
fn list() -> Result<String, ToolError> {
    let catalogue = Catalogue::read();
    match catalogue.is_granted {
        true => Ok(section::for_tool(&catalogue, MAX_LIST)),
        false => Err(ToolError::denied("no file tree is granted, so there are no skills")),
    }
}

/// Returns the maximum number of bytes of the section.
fn byte_limit(budget: &Budget) -> usize {
    (budget.available / TOKEN_DIVISOR).min(MAX_TOKENS) as usize * BYTES_PER_TOKEN
}
