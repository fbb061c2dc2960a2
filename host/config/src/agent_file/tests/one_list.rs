//! Tests of the commented file, the documented defaults and the documentation page, which are generated from the list
//! of keys.

use super::*;

/// The commented file is valid, both unchanged and with every key set to its example.
#[test]
fn template_is_valid_with_and_without_its_settings() {
    let commented = template();
    assert_eq!(parse(&commented).expect("valid"), parse("").expect("valid"), "everything is commented out");
    let with_examples = uncommented(&commented);
    let file = parse(&with_examples).unwrap_or_else(|error| panic!("{error}\n{with_examples}"));
    for section in keys::SECTIONS {
        assert!(
            section.path.is_empty() || with_examples.contains(&format!("\n[{}]\n", section.example)),
            "{}",
            section.example
        );
        for key in section.keys {
            assert!(with_examples.contains(&format!("\n{} = {}\n", key.name, key.example)), "{}", key.name);
        }
    }
    // Every key is read: the result changes if the key is removed from the file.
    for (index, line) in
        with_examples.lines().enumerate().filter(|(_, line)| line.contains(" = ") && !line.starts_with('#'))
    {
        let without: Vec<_> =
            with_examples.lines().enumerate().filter(|(at, _)| *at != index).map(|(_, line)| line).collect();
        if let Ok(other) = AgentFile::parse(&format!("{}\n", without.join("\n")), Path::new("agents/agent.toml")) {
            assert_ne!(without_locations(other), without_locations(file.clone()), "`{line}` is never read");
        }
    }
}

/// Formats the file without the locations of its keys, because removing a line from the file changes these locations.
fn without_locations(file: AgentFile) -> String {
    let shown = format!("{file:#?}");
    let has_no_location = |line: &&str| !line.contains("agents/agent.toml:");
    shown.lines().filter(has_no_location).collect::<Vec<_>>().join("\n")
}

pub(super) fn uncommented(template: &str) -> String {
    let line = |line: &str| match line.strip_prefix('#') {
        Some(setting) if !setting.is_empty() && !setting.starts_with(' ') => format!("{setting}\n"),
        _ => format!("{line}\n"),
    };
    template.lines().map(line).collect()
}

/// The documentation states the same default for each key as the code.
#[test]
fn documented_defaults_match_the_code() {
    let documented: BTreeMap<_, _> = keys::SECTIONS
        .iter()
        .flat_map(|section| section.keys)
        .filter_map(|key| match key.default {
            keys::Default::Is(value) => Some((key.name, value.to_owned())),
            // The test in `limits.rs` covers the defaults of limits.
            keys::Default::Number(_) | keys::Default::Words(_) => None,
        })
        .collect();
    let (bounds, agent) = (agent_core::run::LoopConfig::default(), agent_runtime::AgentConfig::new("a"));
    let (retry, timeouts) = (agent_models::RetryPolicy::default(), agent_models::Timeouts::default());
    let at_limit = if bounds.at_limit == AtLimit::Finish { "\"finish\"" } else { "\"error\"" };
    let milliseconds = |time: std::time::Duration| time.as_millis().to_string();
    let mcp = agent_mcp::McpLimits::default();
    let keep =
        if agent_mcp::KeepConnected::default() == agent_mcp::KeepConnected::Turn { "\"turn\"" } else { "\"always\"" };
    let policy = |policy: agent_core::approval::ApprovalPolicy| serde_json::to_string(&policy).expect("a word");
    let approvals = agent_core::approval::ApprovalRules::default();
    let expected = [
        ("fuel", agent_plugins::CallLimits::default().fuel.is_some().to_string()),
        ("model", format!("\"{}\"", crate::settings::WantedModels::default_model())),
        ("model_cooldown_ms", milliseconds(agent_runtime::models::DEFAULT_COOLDOWN)),
        ("reply_tokens", agent.reply_tokens.to_string()),
        ("tool_dialect", serde_json::to_string(&agent.tool_dialect).expect("a word")),
        ("offered_tools", agent.offered_tools.to_string()),
        ("command_tools", format!("{:?}", format!("{:?}", agent.command_tools).to_lowercase())),
        ("max_interactions", bounds.max_interactions.to_string()),
        ("at_limit", at_limit.to_owned()),
        ("prompt_token", bounds.execution_units.prompt_token.units().to_string()),
        ("completion_token", bounds.execution_units.completion_token.units().to_string()),
        ("model_call", bounds.execution_units.model_call.units().to_string()),
        ("max_corrections", bounds.max_corrections.to_string()),
        ("parallel_calls", bounds.parallel_calls.to_string()),
        ("result_characters", bounds.result_characters.to_string()),
        ("minimum_remaining", bounds.minimum_remaining.to_string()),
        ("evict_at", bounds.evict_at.to_string()),
        ("evict_to", bounds.evict_to.to_string()),
        ("summary", if agent.summary == SummaryWriter::Model { "\"model\"" } else { "\"extract\"" }.to_owned()),
        ("max_depth", bounds.max_depth.to_string()),
        ("memory", if agent.memory == MemoryUse::Project { "\"project\"" } else { "another" }.to_owned()),
        ("finish", if bounds.finish == Finish::Text { "\"text\"" } else { "\"tool\"" }.to_owned()),
        ("persistence", bounds.persistence.to_string()),
        ("include_history", agent.include_history.to_string()),
        ("default", policy(approvals.default)),
        ("destructive", policy(approvals.destructive)),
        ("open_world", policy(approvals.open_world)),
        ("media", agent_plugins::Grants::default().media.to_string()),
        ("ask", (agent_runtime::AskPolicy::default() == agent_runtime::AskPolicy::AtFirstUse).to_string()),
        ("attempts", retry.attempts.to_string()),
        ("first_wait_ms", milliseconds(retry.initial_wait)),
        ("longest_wait_ms", milliseconds(retry.max_wait)),
        ("total_ms", milliseconds(retry.total)),
        ("connect_timeout_ms", milliseconds(timeouts.connect)),
        ("stall_timeout_ms", milliseconds(timeouts.stall)),
        ("total_timeout_ms", milliseconds(timeouts.total)),
        ("priority", agent_runtime::ServiceConfig::new("a".parse().expect("a type")).priority.to_string()),
        ("completions", (agent.outbox.announced.completions == agent_runtime::Emission::Emitted).to_string()),
        ("approvals", (agent.outbox.announced.approvals == agent_runtime::Emission::Emitted).to_string()),
        ("mode", "\"structured\"".to_owned()),
        ("request_timeout_ms", crate::settings::events::DEFAULT_TIMEOUT_MS.to_string()),
        ("time_zone", "\"UTC\"".to_owned()),
        ("missed", "\"latest\"".to_owned()),
        ("signature", "\"standard\"".to_owned()),
        ("content", "\"shortened\"".to_owned()),
        ("metrics", "false".to_owned()),
        ("project", format!("\"{}\"", crate::settings::telemetry::DEFAULT_PROJECT)),
        ("max_age_hours", crate::settings::telemetry::DEFAULT_MAX_AGE_HOURS.to_string()),
        ("signatures", format!("\"{}\"", agent_registry::SignaturePolicy::default().as_str())),
        ("header", "\"Authorization\"".to_owned()),
        ("keep", keep.to_owned()),
        ("timeout_ms", milliseconds(mcp.call_time)),
        ("start_timeout_ms", milliseconds(mcp.connect_time)),
    ];
    assert_eq!(documented, BTreeMap::from(expected));
}

/// The tables in `host/docs/guide/agent-toml.md` are equal to the tables that are generated from the list of keys.
#[test]
fn documentation_page_is_up_to_date() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/guide/agent-toml.md");
    let page = std::fs::read_to_string(path).expect("the page exists");
    let (begin, end) = ("<!-- keys: made from host/config/src/agent_file/keys.rs -->\n", "\n<!-- end of keys -->");
    let tables = page
        .split(begin)
        .nth(1)
        .and_then(|after_begin| after_begin.split(end).next())
        .expect("the page has its markers");
    let generated = documentation::markdown();
    assert!(tables.trim() == generated.trim(), "the text between the markers of the page must be:\n{generated}");
}
