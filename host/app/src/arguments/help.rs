//! Those parts of the output of `-h` and `--help` that clap does not generate from the declared options.

/// Usage lines at the top of the help.
pub(super) const USAGE: &str = "\
agent-host setup|doctor
       agent-host [OPTIONS] [PROMPT]
       agent-host --plugins DIR [OPTIONS] [PROMPT]
       agent-host --agent FILE|NAME [OPTIONS] [PROMPT]
       agent-host dev [DIR] [--prompt PROMPT]
       agent-host test [DIR] [FILTER]
       agent-host replay SESSION [--with PLUGIN=FILE]
       agent-host serve [--agent FILE|NAME]...
       agent-host acp [--agent FILE|NAME]
       agent-host mcp [--agent FILE|NAME] [--expose tools|agent] [--listen ADDRESS]
       agent-host trust [FILE] | trust list|add|remove
       agent-host usage [--since DAY] [--by day|month|agent|user]
       agent-host plugin|key|token|session|approvals|outbox|dead-letter|memory|store|config|audit COMMAND";

/// Text that `-h` prints below the options.
pub(super) const SHORT: &str = "\
Example:
  agent-host --plugins plugins --build --grant text:read=. \"Count the lines of README.md\"

Without a PROMPT on a terminal, agent-host starts an interactive session; /help lists its
commands. The answer goes to stdout, everything else to stderr. Exit codes: 0 answered, 1 ended
with an error, 2 nothing was started (invalid usage, configuration, plugin or data), 3 waits for
a decision, 130 cancelled. More examples and details: agent-host --help";

/// Text that `--help` prints below the options.
pub(super) const LONG: &str = "\
Examples:
  Build the plugin projects in ./plugins, let `text` read this folder, and ask:
    agent-host --plugins plugins --build --grant text:read=. \\
      \"Count the lines of README.md\"

  Start an interactive session with a language model:
    agent-host --plugins plugins --model openai/gpt-4.1-mini

  Read the prompt from a pipe and write the answer to a file (the answer goes to stdout,
  everything else to stderr):
    echo 'text.count_file {\"path\": \"README.md\"}' |
      agent-host --plugins plugins --grant text:read=. > answer.txt

  Ask about text from a pipe; it follows the prompt:
    git diff | agent-host --agent agent.toml \"Summarise this change.\"

  Choose a model and plugins once; then agent-host starts in any folder, and uses the agent.toml
  of the folder if you trust it:
    agent-host setup
    agent-host \"What changed in the notes?\"

  Keep an agent's settings and grants in a file. `config init` writes a short file that
  runs, and `config list` lists the agents in this folder:
    agent-host config init
    agent-host --agent agent.toml \"What changed in the notes?\"

  Ask a language model of a known provider, whose API key is in an environment variable, or
  a language model of any server that supports the Chat Completions API:
    agent-host --plugins plugins --model openai/gpt-4.1-mini \"...\"
    agent-host --plugins plugins --base-url http://127.0.0.1:8000/v1 --model NAME \"...\"

  Continue the latest session; an interrupted turn is finished first:
    agent-host --agent agent.toml --continue \"And the week before?\"

  Create a plugin in Rust, Python, JavaScript or C, and develop it in a session that
  rebuilds and reloads it after each source change:
    agent-host plugin new words --lang python
    agent-host dev words

  Run an agent inside an editor; the editor starts this command:
    agent-host acp --agent agent.toml

  Run agents as a server with an HTTP API; programs use it with a token:
    agent-host serve --agent agent.toml
    agent-host token create dashboard --right read

  Offer the tools in a folder to editors and other agents over the Model Context Protocol:
    agent-host mcp --plugins plugins --grant text:read=.

  Build the plugins in a folder, and run its scenarios (*.scenario.toml):
    agent-host test plugins

  Inspect a plugin, and call one of its tools directly:
    agent-host plugin inspect plugins/text.wasm
    agent-host plugin call plugins/text.wasm text.count_file \\
      '{\"path\": \"README.md\"}' --grant text:read=.

Plugins that change:
  An interactive session notices changed, new and removed plugins, and applies the changes
  from the next turn on (--no-watch turns this off). If a changed plugin fails to load, the
  host reports the error and keeps using the previous version. A version that crashes in 3 of
  its first 10 calls is rolled back. `plugin history` shows the versions of a plugin, and
  `plugin rollback NAME` returns to the previous version.

Grants:
  By default, a plugin can do nothing. Each --grant PLUGIN:KIND=VALUE adds one grant:
    files:read=DIR           read the files under DIR
    files:write=DIR          read and write the files under DIR
    files:env=NAME           read the environment variable NAME
    files:config=KEY=VALUE   get VALUE for the setting KEY
    host:read=DIR            let the host's tools list_directory and read_file read DIR
  The plugin addresses DIR by the path that you wrote, without `..`. In agent.toml, write:
    [plugins.files.grants]
    read = [\".\"]

Models:
  --model PROVIDER/MODEL selects the model. openai, anthropic, gemini, groq, deepseek, mistral and openrouter
  read their keys from OPENAI_API_KEY, GROQ_API_KEY, ...; ollama, lmstudio, llama-cpp and
  vllm are servers on this machine and need no key. OPENAI_BASE_URL changes the URL of
  openai. Configure other providers, timeouts, prices and fallbacks in agent.toml. Without a
  model, the built-in `offline` router answers; it is not a language model.

Data:
  Sessions, compiled code and copies of used plugins are stored in the data folder: --data,
  or AGENT_HOST_DATA, or the platform's folder for application data. With --store, or
  AGENT_HOST_STORE, sessions are in a PostgreSQL database, which several machines can share.
  With --media-store, or AGENT_HOST_MEDIA_STORE, its media and long texts are in an object store.
  With --nats, or AGENT_HOST_NATS, `serve` and `worker` announce work to each other over NATS.

Exit codes:
  0    the turn ended with an answer, or the command succeeded
  1    the turn, the build or the call ended with an error
  2    nothing was started: invalid usage or configuration, a plugin that cannot be
       loaded, or data that cannot be opened
  3    the turn waits for a decision or an answer. `session show` shows what the turn waits for,
       `session resolve` decides about a call, `session respond` records a service's answer, and
       --continue continues the turn. A duplicate or late answer changes nothing and has
       exit code 0
  130  cancelled";
