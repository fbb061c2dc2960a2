//! POST requests that can be repeated, and results on several pages.

use agent_host_sdk::http::Request;
use agent_host_sdk::prelude::*;

/// Address of the API. The manifest requests access to this address.
const API: &str = "https://api.example.com/v1";
/// Maximum number of pages that `tickets.list` reads.
const MAX_PAGES: u32 = 5;

/// Arguments of `tickets.create`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Create {
    /// What is wrong, in one line.
    #[schemars(length(min = 1))]
    title: String,
}

/// Result of `tickets.create`.
#[derive(Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Created {
    /// The number of the ticket.
    number: i64,
}

/// Arguments of `tickets.list`.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct List {
    /// The state of the tickets.
    #[serde(default)]
    state: State,
}

#[derive(Clone, Copy, Default, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
enum State {
    #[default]
    Open,
    Closed,
}

/// Result of `tickets.list`.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Titles {
    /// The titles of the tickets, oldest first.
    titles: Vec<String>,
}

/// An answer of the API.
#[derive(Deserialize)]
struct Page {
    tickets: Vec<Ticket>,
    next: Option<u32>,
}

#[derive(Deserialize)]
struct Ticket {
    title: String,
}

/// The type that implements the tools.
pub struct Plugin;

impl ToolPlugin for Plugin {
    fn tools() -> Tools {
        Tools::new()
            .tool(
                // The host repeats calls of an idempotent tool: after `unavailable`, and after a crash.
                Tool::new("tickets.create", "Creates a ticket, and returns its number.")
                    .idempotent()
                    .open_world()
                    .output::<Created>()
                    .run(|Create { title }, call: &Call| Done::json(&create(&title, &call.id)?)),
            )
            .tool(
                Tool::new("tickets.list", "Lists the titles of the tickets.")
                    .read_only()
                    .open_world()
                    .output::<Titles>()
                    .run(|List { state }, _: &Call| Done::json(&Titles { titles: titles(state)? })),
            )
    }
}

agent_host_sdk::export_tools!(Plugin);

fn create(title: &str, call_id: &str) -> Result<Created, ToolError> {
    // The id of the call is the same in each attempt, so the API recognises a repeated request, and creates one ticket.
    let request = Request::post(format!("{API}/tickets")).json(&json!({ "title": title }));
    // A status such as 503 becomes the error `unavailable`, after which the host repeats the call.
    Ok(request.header("idempotency-key", call_id).send()?.expect_ok()?.json()?)
}

fn titles(state: State) -> Result<Vec<String>, ToolError> {
    let state = match state {
        State::Open => "open",
        State::Closed => "closed",
    };
    let (mut titles, mut next) = (Vec::new(), Some(1));
    for _ in 0..MAX_PAGES {
        let Some(page) = next else { break };
        let request = Request::get(format!("{API}/tickets")).query("state", state).query("page", page);
        let page: Page = request.send()?.expect_ok()?.json()?;
        titles.extend(page.tickets.into_iter().map(|ticket| ticket.title));
        next = page.next;
    }
    Ok(titles)
}
