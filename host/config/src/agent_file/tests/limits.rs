//! Tests that every key for a limit is read in each table that allows the key, and that values outside the bounds of a
//! limit are rejected.

use super::*;
use agent_core::limits::{DefaultLimit, LimitRow};
use agent_mcp::{MCP_LIMITS, McpLimits};
use agent_plugins::limits::{CALL_LIMITS, FUEL, HOST_LIMITS};
use agent_plugins::{CallLimits, HostLimits};

/// Returns the default limits, with the values that a file sets in place of the defaults.
fn limits_with<L: std::default::Default>(rows: &[LimitRow<L>], values: &LimitValues) -> L {
    let mut limits = L::default();
    values.set(rows, &mut limits);
    limits
}

/// P8, I2: the value of each limit is read into the field of that limit. A value outside its bounds is rejected with an
/// error that names the file, the line, the key and the allowed values.
fn check<L: std::default::Default>(rows: &[LimitRow<L>], header: &str, values: impl Fn(&AgentFile) -> LimitValues) {
    for row in rows {
        for value in [row.least, row.most] {
            // The host's stack contains the guest's stack, so the host's stack must be large enough.
            let other_stack = match row.key {
                "wasm_stack_kib" => "async_stack_kib = 16384\n",
                "async_stack_kib" => "wasm_stack_kib = 64\n",
                _ => "",
            };
            let file = parse(&format!("{header}\n{other_stack}{} = {value}\n", row.key))
                .unwrap_or_else(|error| panic!("{error}"));
            assert_eq!((row.get)(&limits_with(rows, &values(&file))), Some(value), "{header} {row:?}");
        }
        for wrong in row.least.checked_sub(1).map(|least| [0, least]).into_iter().flatten().chain([row.most + 1]) {
            let error = parse(&format!("{header}\n{} = {wrong}\n", row.key)).expect_err(row.key);
            let allowed = format!("a whole number from {} to {}", row.least, row.most);
            let line = header.lines().count() + 1;
            for part in [&format!("agents/agent.toml:{line}:"), row.key, "out of range", &allowed] {
                assert!(error.contains(part), "{part}: {error}");
            }
        }
    }
}

#[test]
fn reads_every_limit_in_each_table() {
    check(&CALL_LIMITS, "[limits]", |file| file.call_limits.clone());
    check(&CALL_LIMITS, "[plugins.web.limits]", |file| file.limits["web"].clone());
    check(&HOST_LIMITS, "[host.limits]", |file| file.host_limits.clone());
    check(&MCP_LIMITS, "[mcp.notes]\ncommand = \"notes\"", |file| file.mcp["notes"].limits.clone());
}

/// Limits for one plugin override the limits for all plugins, key by key.
#[test]
fn limits_of_a_plugin_override_general_limits() {
    let text =
        "[limits]\nmemory_mib = 32\nrequests = 5\nfuel = true\n[plugins.web.limits]\nmemory_mib = 16\nfuel = false\n";
    let file = parse(text).expect("valid");
    let mut limits: CallLimits = limits_with(&CALL_LIMITS, &file.call_limits);
    assert_eq!((limits.memory >> 20, limits.requests, limits.fuel), (32, 5, Some(FUEL)));
    file.limits["web"].set(&CALL_LIMITS, &mut limits);
    assert_eq!((limits.memory >> 20, limits.requests, limits.fuel), (16, 5, None));
}

/// The documentation states the same default for each limit as the code.
#[test]
fn listed_defaults_match_the_code() {
    fn check<L: std::default::Default>(rows: &[LimitRow<L>]) {
        for row in rows {
            let found = (row.get)(&L::default());
            match row.default {
                DefaultLimit::Is(value) => assert_eq!(found, Some(value), "{row:?}"),
                DefaultLimit::Words(_) | DefaultLimit::Off => assert_eq!(found, None, "{row:?}"),
            }
        }
    }
    check::<CallLimits>(&CALL_LIMITS);
    check::<HostLimits>(&HOST_LIMITS);
    check::<McpLimits>(&MCP_LIMITS);
}

/// The guest's stack is part of the host's stack, so a larger guest stack is rejected.
#[test]
fn rejects_a_guest_stack_that_does_not_fit_into_the_host_stack() {
    let error = parse("[host.limits]\nwasm_stack_kib = 2048\n").expect_err("too large");
    assert!(error.contains("2:18") && error.contains("`async_stack_kib` is 2048"), "{error}");
    let error = parse("[host.limits]\nasync_stack_kib = 1024\nwasm_stack_kib = 600\n").expect_err("too small");
    assert!(error.contains("3:18") && error.contains("512 more"), "{error}");
    parse("[host.limits]\nasync_stack_kib = 4096\nwasm_stack_kib = 2048\n").expect("it fits");
}

/// Errors for unknown limits suggest similar names.
#[test]
fn suggests_similar_limit_names() {
    let error = parse("[plugins.files.limits]\nwall_ms = 5\n").expect_err("no such key");
    assert!(error.contains("unknown key `plugins.files.limits.wall_ms`") && error.contains("tool_wall_ms"), "{error}");
}
