//! Tests that the JSON Schema accepts and rejects the same files as the parser.

use super::one_list::uncommented;
use super::*;

fn validator() -> jsonschema::Validator {
    let schema = json_schema();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    jsonschema::draft202012::meta::validate(&schema).expect("a valid schema");
    jsonschema::draft202012::new(&schema).expect("a schema")
}

fn json(text: &str) -> Value {
    let table: toml::Table = text.parse().unwrap_or_else(|error| panic!("{error}: {text}"));
    serde_json::to_value(table).expect("JSON")
}

/// I2: the JSON Schema accepts the commented file, both unchanged and with every key set to its example.
#[test]
fn schema_accepts_the_template() {
    let validator = validator();
    for text in [template(), uncommented(&template())] {
        let problems: Vec<_> = validator.iter_errors(&json(&text)).map(|error| error.to_string()).collect();
        assert!(problems.is_empty(), "{problems:?}");
    }
}

/// I2: the JSON Schema accepts each valid file and rejects each invalid file, as the parser does.
#[test]
fn schema_accepts_and_rejects_the_same_files_as_the_parser() {
    let valid = [
        "name = \"a.b-c_d\"",
        "name = \"für\"",
        "model = \"a\"\nfallback_models = []",
        "media_policies = {}",
        "output_schema = {}",
        "max_interactions = 1000\nmax_corrections = 0",
        "[execution_units]\nprompt_token = 0\ncompletion_token = 0.125\nmodel_call = 1000",
        "[providers.openai]",
        "[providers.groq]\nheaders = { \"X-Title\" = \"a b\" }",
        "[providers.own]\nbase_url = \"https://example.com\"",
        "[providers.own]\nbase_url = \"http://[::1]:80/v1/\"\n[providers.own.models.a]",
        "[providers.openai.models.\"a/b\"]\nprompt_price = 0\ncompletion_price = 0.5",
        "[plugins.\"a b\".grants]\nconfig = { k = \"v=w\" }",
        "[plugins.a]\n[host]",
        "[services.pay]",
        "[services.\"pay.now\"]\ntype = \"a\"\naccepts = {}\nemits = { \"*\" = {} }\npriority = -5",
        "[outbox]\ndirectory = \"out\"\ncompletions = true\napprovals = true",
        "[telemetry]\nendpoint = \"http://localhost:4318\"\ncontent = \"off\"\nredact = ['a+']\nheader_env = { A = \"B\" }",
        "[outbox.server]\nurl = \"https://events.example.com/agents\"\nmode = \"binary\"\nsigning_key_env = \"K\"",
        "[schedules.a]\ntimes = \"*/5 7-9 * * mon-fri\"\nprompt = \"Go.\"\ntime_zone = \"Europe/Berlin\"",
        "[schedules.\"a.b-c\"]\ntimes = \"every 15 minutes\"\nprompt = \"Go.\"\nmissed = \"all\"",
        "[webhooks.a]",
        "[outbox]\nsubject = \"agents.clerk.events\"",
        "[events.a]\nsubject = \"shop.orders.*\"\nstream = \"SHOP\"\nprompt = \"New:\"\nuser = \"ann\"",
        "[events.a]\nsubject = \"shop.>\"",
        "[webhooks.a]\nkey_env = \"K\"\nsignature = \"hub\"\nprompt = \"New:\"",
        "[agents.a]\nagent = \"a.toml\"\ndescription = \"d\"",
        "[agents.a]\nagent = \"a.toml\"\ndescription = \"d\"\ninput_schema = { type = \"object\" }",
        "planner = \"ollama/a\"\nexecutor = \"ollama/b\"",
        "media_policies = { own = \"a\" }\n[providers.own]\nbase_url = \"http://a/v1\"",
        "[services.pay]\naccepts = { type = \"object\" }\nemits = { a = { type = [\"string\", \"null\"] } }",
        "[plugins.a.grants]\nread = [\"a..b\", \"...\"]\nwrite = [\"/srv/x\"]",
        "[plugins.a.grants]\nhttp = [\"https://*\", \"private GET,POST http://[::1]:*/v1/\", \"GET https://*.a.example/@b\"]",
        "[sharing]\nsignatures = \"off\"",
        "[sharing]\ntrusted_keys = { \"registry.example/team\" = \"RWRjVy4JExnDZ2+zJGJHVhQc1Hr6ZkXb0vmXfy25M21waP4v/4on32wb RWRjVy4JExnDZ2+zJGJHVhQc1Hr6ZkXb0vmXfy25M21waP4v/4on32wb\", \"localhost\" = \"RWRjVy4JExnDZ2+zJGJHVhQc1Hr6ZkXb0vmXfy25M21waP4v/4on32wb\" }",
        "[mcp]",
        "[mcp.a-b_1]\ncommand = \"a\"\nargs = []\nenv = {}",
        "[mcp.a]\nurl = \"http://127.0.0.1:1/chat/completions\"\nheader_env = { Authorization = \"A\" }",
    ];
    let invalid = [
        "execution_units = 1",
        "[sharing]\nsignatures = \"on\"",
        "[sharing]\ntrusted_keys = { \"https://registry.example\" = \"RWRjVy4JExnDZ2+zJGJHVhQc1Hr6ZkXb0vmXfy25M21waP4v/4on32wb\" }",
        "[sharing]\ntrusted_keys = { \"team\" = \"RWRjVy4JExnDZ2+zJGJHVhQc1Hr6ZkXb0vmXfy25M21waP4v/4on32wb\" }",
        "[sharing]\ntrusted_keys = { \"registry.example\" = \"RWRjVy4JExnDZ2+zJGJHVhQc1Hr6ZkXb0vmXfy25M21waP4v/4on32w\" }",
        "[sharing]\ntrusted_keys = { \"registry.example\" = [\"RWRjVy4JExnDZ2+zJGJHVhQc1Hr6ZkXb0vmXfy25M21waP4v/4on32wb\"] }",
        "[execution_units]\nprompt_token = -1",
        "[execution_units]\nmodel_call = 1000.5",
        "[execution_units]\nmodel_call = \"1\"",
        "modle = \"a\"",
        "model = 1",
        "model = \" \"",
        "model = \"a\\nb\"",
        "fallback_models = [\"a\"]",
        "model = \"a\"\nfallback_models = [1]",
        "name = \"a b\"",
        "name = \"aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa\"",
        "instructions = \"\"",
        "max_interactions = 0",
        "max_interactions = 1001",
        "max_interactions = 1.5",
        "at_limit = \"stop\"",
        "include_history = \"yes\"",
        "validators = \"a\"",
        "output_schema = 3",
        "output_schema = \" \"",
        "media_policies = { a = 1 }",
        "retry = 3",
        "[retry]\nattempts = 0",
        "[retry]\nmodel = \"a\"",
        "[providers.own]",
        "[providers.own]\nkey_env = \"A\"",
        "[providers.offline]\nbase_url = \"http://a/v1\"",
        "[providers.\"a/b\"]\nbase_url = \"http://a/v1\"",
        "[providers.openai]\nkey = \"a\"",
        "[providers.openai]\nkey_env = \"A B\"",
        "[providers.openai]\nkey_env = \"A=B\"",
        "[providers.openai]\nbase_url = \"openai.com\"",
        "[providers.openai]\nbase_url = \"http://\"",
        "[providers.openai]\nbase_url = \"http://a b/v1\"",
        "[providers.openai]\nbase_url = \"http://u:p@a/v1\"",
        "[providers.openai]\nbase_url = \"http://a/v1?key=1\"",
        "[providers.openai]\nbase_url = \"http://a/v1/chat/completions/\"",
        "[providers.openai]\nheaders = { AUTHORIZATION = \"a\" }",
        "[providers.openai]\nheaders = { \"x-api-key\" = \"a\" }",
        "[providers.openai]\nheaders = { \"a b\" = \"a\" }",
        "[providers.openai]\nheaders = { a = \"ü\" }",
        "[providers.openai]\nheader_env = { a = \"b c\" }",
        "[providers.openai]\ntotal_timeout_ms = 0",
        "[providers.openai.models.a]\nprompt_price = 1",
        "[providers.openai.models.a]\nprompt_price = -1\ncompletion_price = 1",
        "[providers.openai.models.a]\nwindow = 10",
        "[providers.openai.models]\na = 1",
        "[[providers]]",
        "plugins = \"plugins\"",
        "[plugins.a]\nread = [\".\"]",
        "[plugins.a.grants]\nread = \".\"",
        "[plugins.a.grants]\nenv = [\"A B\"]",
        "[plugins.a.grants]\nconfig = { \"a=b\" = \"c\" }",
        "[plugins.a.limits]\nmemory_mib = 257",
        "[plugins.a.limits]\nfuel = 0",
        "[plugins.a.limits]\nfuel = \"on\"",
        "[plugins.a.limits]\nfuel = 1000000000001",
        "max_depth = 17",
        "agents = \"a.toml\"",
        "[agents.a]\nagent = \"a.toml\"",
        "[agents.a]\ndescription = \"d\"",
        "[agents.\"a b\"]\nagent = \"a.toml\"\ndescription = \"d\"",
        "[agents.a]\nagent = \"a.toml\"\ndescription = \"d\"\nmodel = \"offline\"",
        "[agents.a]\nagent = \"a.toml\"\ndescription = \"d\"\ninput_schema = { type = \"string\" }",
        "[host.grants]\nwrite = [\".\"]",
        "[services]\npay = 1",
        "[services.\"a b\"]",
        "[services.pay]\nemits = 3",
        "[services.pay]\nemits = { a = 3 }",
        "[services.pay]\nanswer_within_ms = 0",
        "[services.pay]\npriority = 1001",
        "[services.pay]\npriority = 1.5",
        "[outbox]\ndirectory = 3",
        "[outbox]\nserver = \"https://events.example.com\"",
        "[outbox.server]\nmode = \"binary\"",
        "[outbox.server]\nurl = \"ftp://events.example.com\"",
        "[outbox.server]\nurl = \"https://a.example\"\nheaders = { Authorization = \"a\" }",
        "[outbox.server]\nurl = \"https://a.example\"\nmode = \"batch\"",
        "[outbox.server]\nurl = \"https://a.example\"\nrequest_timeout_ms = 0",
        "[schedules.a]\ntimes = \"every 15 minutes\"",
        "[schedules.a]\nprompt = \"Go.\"",
        "[schedules.a]\ntimes = \"@daily\"\nprompt = \"Go.\"",
        "[schedules.a]\ntimes = \"every 3 weeks\"\nprompt = \"Go.\"",
        "[schedules.a]\ntimes = \"* * * *\"\nprompt = \"Go.\"",
        "[schedules.a]\ntimes = \"* * * * *\"\nprompt = \"Go.\"\ntime_zone = \"../etc\"",
        "[schedules.a]\ntimes = \"* * * * *\"\nprompt = \"Go.\"\nmissed = \"some\"",
        "[schedules.\"a b\"]\ntimes = \"* * * * *\"\nprompt = \"Go.\"",
        "[webhooks.\"a b\"]",
        "[events.a]",
        "[events.a]\nsubject = \"a..b\"",
        "[events.a]\nsubject = \">\"",
        "[events.a]\nsubject = \"$JS.>\"",
        "[events.a]\nsubject = \"a b\"",
        "[events.a]\nsubject = \"a.>.b\"",
        "[events.a]\nsubject = \"a\"\nstream = \"A.B\"",
        "[events.\"a b\"]\nsubject = \"a\"",
        "[outbox]\nsubject = \"a.*\"",
        "[webhooks.a]\nsignature = \"hub\"",
        "[webhooks.a]\nkey_env = \"K\"\nsignature = \"md5\"",
        "[telemetry]\nendpoint = \"ftp://a.example\"",
        "[telemetry]\nendpoint = \"http://a.example\"\ncontent = \"some\"",
        "[telemetry]\nheaders = { Authorization = \"a\" }",
        "[telemetry]\nredact = \"a\"",
        "[telemetry]\nmax_age_hours = 0",
        "[outbox]\ncompletions = \"yes\"",
        "executor = \"ollama/b\"",
        "[plugins.a.grants]\nread = [\"../a\"]",
        "[plugins.a.grants]\nwrite = [\"a/..\"]",
        "[host.grants]\nread = [\"..\"]",
        "[plugins.a.grants]\nhttp = [\"a.example\"]",
        "[plugins.a.grants]\nhttp = [\"get https://a.example\"]",
        "[plugins.a.grants]\nhttp = [\"https://me:hush@a.example\"]",
        "[plugins.a.grants]\nhttp = [\"https://a.example/?b\"]",
        "[services.read_file]",
        "[services.pay]\naccepts = { type = \"string\" }",
        "[services.pay]\nemits = { a = { type = \"strng\" } }",
        "[mcp.local]\ncommand = \"a\"",
        "[mcp.service]\ncommand = \"a\"",
        "[mcp.mcp]\ncommand = \"a\"",
        "[mcp.a]",
        "[mcp.a]\nkeep = \"turn\"",
        "[mcp.a]\ncommand = \"a\"\nurl = \"http://a/mcp\"",
        "[mcp.a]\ncommand = \"a\"\nheaders = { A = \"b\" }",
        "[mcp.a]\nurl = \"http://a/mcp\"\nargs = [\"b\"]",
        "[mcp.a]\nurl = \"http://a/mcp?key=b\"",
        "[mcp.a]\nurl = \"http://a/mcp\"\nheaders = { Authorization = \"b\" }",
        "[mcp.\"a.b\"]\ncommand = \"a\"",
        "[mcp.\"ä\"]\ncommand = \"a\"",
        "[mcp.a]\ncommand = \"a\"\nkeep = \"for ever\"",
        "[mcp.a]\ncommand = \"a\"\ntimeout_ms = 120001",
        "[mcp.a]\ncommand = \"a\"\npass_env = [\"A B\"]",
    ];
    let validator = validator();
    for text in valid {
        assert!(parse(text).is_ok(), "{}", parse(text).expect_err("refused"));
        assert!(validator.is_valid(&json(text)), "the schema rejects: {text}");
    }
    for text in invalid {
        assert!(parse(text).is_err(), "the parser accepts: {text}");
        assert!(!validator.is_valid(&json(text)), "the schema accepts: {text}");
    }
}
