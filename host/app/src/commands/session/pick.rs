//! `session pick`: lets the user choose a session from a list that words narrow down.

use crate::arguments::resume::PickArguments;
use crate::commands::starting_agent;
use crate::commands::stored_sessions::{sessions, summary};
use crate::commands::user_presence::UserPresence;
use crate::environment;
use crate::exit::Failure;
use crate::terminal::{BOLD, DIM, Output, Terminal, TypedLine, text};
use agent_config::{DataDirectory, Settings, assembly};
use agent_store::{MAX_PAGE, SearchedSessions, SessionFilter, SessionState, SessionSummary, Store};
use std::collections::BTreeSet;
use tokio_util::sync::CancellationToken;

/// Number of sessions that are shown at once, so that each has a number of one digit.
const PAGE: usize = 9;
/// Maximum number of sessions that are printed if nobody can choose one.
const PRINTED: usize = 20;

/// Returns the id of the session that the user chose, or `None` if the user chose none.
pub(crate) async fn pick(
    arguments: &PickArguments,
    data: &DataDirectory,
    terminal: &Terminal,
) -> Result<Option<String>, Failure> {
    let store = assembly::open_store_to_read(data).await?;
    let agent = agent_of(arguments)?;
    let searched = SearchedSessions { agents: Some(vec![agent.clone()]), ..data.searched_sessions() };
    let mut all = continuable((&*store, data)).await?;
    let number = all.len();
    all.retain(|session| session.agent == agent);
    let others = number - all.len();
    if others > 0 {
        terminal.note(text::wrapped(&not_listed(others, &agent), terminal.width()));
    }
    let words = arguments.text.join(" ");
    let found = matching(&all, &words, (&*store, &searched)).await?;
    let can_choose = UserPresence::of(terminal) == UserPresence::AtTerminal && terminal.is_terminal(Output::Stdout);
    if !can_choose {
        for session in found.iter().take(PRINTED) {
            terminal.print_entry(&summary(session)).map_err(Failure::output)?;
        }
        terminal.note(match found.is_empty() {
            true => nothing(&words),
            false => {
                "nobody can choose here, because this is not a terminal: continue one with agent-host --session ID"
                    .to_owned()
            }
        });
        return Ok(None);
    }
    choose(&all, (words, found), (&*store, &searched), terminal).await
}

/// Returns the name of the agent that continues the chosen session: the agent on the command line, of the current folder or of
/// the user-wide configuration.
fn agent_of(arguments: &PickArguments) -> Result<String, Failure> {
    let options = starting_agent::with_files(arguments.agent.options());
    Ok(Settings::examine(&options, &environment::host())?.0.name)
}

/// Says that there are sessions which this agent cannot continue, and how to continue them.
fn not_listed(others: usize, agent: &str) -> String {
    let (sessions, agent) = (text::count(others, "session"), text::one_line(agent, 64));
    let verb = if others == 1 { "is" } else { "are" };
    format!(
        "{DIM}{sessions} of other agents {verb} not listed, because `{agent}` cannot continue them: `agent-host session list` shows \
         all sessions, and --agent FILE lists those of another agent{DIM:#}"
    )
}

/// Returns the sessions of all agents that a user can continue.
async fn continuable((store, data): (&dyn Store, &DataDirectory)) -> Result<Vec<SessionSummary>, Failure> {
    let mut all = sessions(store, data, SessionFilter::default(), MAX_PAGE).await?;
    all.retain(|session| session.delegated_by.is_none() && session.state != SessionState::Incomplete);
    Ok(all)
}

/// Returns the sessions whose id or title contains all the words, or one of whose messages contains them, in the order of
/// their last change.
async fn matching<'s>(
    all: &'s [SessionSummary],
    words: &str,
    (store, searched): (&dyn Store, &SearchedSessions),
) -> Result<Vec<&'s SessionSummary>, Failure> {
    let parts: Vec<String> = words.split_whitespace().map(str::to_lowercase).collect();
    if parts.is_empty() {
        return Ok(all.iter().collect());
    }
    let hits = store.search_messages_of(searched, words, MAX_PAGE).await.map_err(Failure::refused)?;
    let hits: BTreeSet<String> = hits.into_iter().map(|hit| hit.session).collect();
    let is_found = |session: &&SessionSummary| {
        let title = session.title.as_deref().unwrap_or_default();
        let shown = format!("{} {title}", session.subject).to_lowercase();
        parts.iter().all(|part| shown.contains(part)) || hits.contains(&session.subject)
    };
    Ok(all.iter().filter(is_found).collect())
}

async fn choose<'s>(
    all: &'s [SessionSummary],
    (mut words, mut found): (String, Vec<&'s SessionSummary>),
    (store, searched): (&dyn Store, &SearchedSessions),
    terminal: &Terminal,
) -> Result<Option<String>, Failure> {
    let mut first = 0;
    if all.is_empty() {
        terminal.note("there are no sessions yet");
        return Ok(None);
    }
    loop {
        let page: Vec<_> = found.iter().skip(first).take(PAGE).collect();
        for (number, session) in (1..).zip(&page) {
            terminal.note(text::wrapped_entry(&entry(number, session), terminal.width()));
        }
        if found.is_empty() {
            terminal.note(nothing(&words));
        }
        let has_more = first + PAGE < found.len();
        let more = match (has_more, found.is_empty()) {
            (true, _) => ", Enter for more",
            (false, true) => ", Enter for all sessions",
            (false, false) => "",
        };
        let question = format!("number, or words to search{more}; Ctrl-D quits > ");
        let typed = terminal.question(&question, &CancellationToken::new()).await.map_err(Failure::output)?;
        let TypedLine::Text(typed) = typed else { return Ok(None) };
        match (typed.trim(), typed.trim().parse::<usize>()) {
            ("", _) if found.is_empty() => (words, found, first) = (String::new(), all.iter().collect(), 0),
            ("", _) => first = if has_more { first + PAGE } else { 0 },
            (_, Ok(number)) => match number.checked_sub(1).and_then(|index| page.get(index)) {
                Some(session) => return Ok(Some(session.subject.clone())),
                None => terminal.note(format!("there is no session with the number {number} in this list")),
            },
            (typed, Err(_)) => {
                typed.clone_into(&mut words);
                found = matching(all, &words, (store, searched)).await?;
                first = 0;
            }
        }
    }
}

fn entry(number: usize, session: &SessionSummary) -> String {
    let title = session.title.as_deref().map(|title| text::one_line(title, 100)).filter(|title| !title.is_empty());
    let title = title.unwrap_or_else(|| "(no prompt)".to_owned());
    let (turns, updated) = (text::count(session.turns as usize, "turn"), text::local_time(&session.updated));
    let (id, state) = (text::one_line(&session.subject, 250), &session.state);
    format!("{BOLD}{number}{BOLD:#}  {title}\n   {DIM}{updated}, {turns}, {state}{DIM:#}\n   {DIM}{id}{DIM:#}")
}

fn nothing(words: &str) -> String {
    match words.trim() {
        "" => "there are no sessions yet".to_owned(),
        words => format!("no session contains `{}`", text::one_line(words, 100)),
    }
}
