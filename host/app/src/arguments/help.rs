//! What `-h` and `--help` say beside the options.

/// Of the first line.
pub(super) const USAGE: &str = "\
agent-host --plugins DIR [OPTIONS] [PROMPT]
       agent-host --agent FILE|NAME [OPTIONS] [PROMPT]
       agent-host dev [DIR] [--prompt PROMPT]
       agent-host test [DIR] [FILTER]
       agent-host replay SESSION [--with PLUGIN=FILE]
       agent-host plugin|key|session|approvals|outbox|memory|store|config|audit COMMAND";

/// Below `-h`.
pub(super) const SHORT: &str = "\
Example:
  agent-host --plugins plugins --build --grant text:read=. \"Count the lines of README.md\"

On a terminal and without a PROMPT it is a session in which you type; /help lists its
commands. The answer goes to stdout, all else to stderr. Exit codes: 0 answered, 1 ended with an
error, 2 nothing was begun (wrong usage, configuration, plugin or data), 3 waits for a
decision, 130 cancelled. More examples and the full story: agent-host --help";

/// Below `--help`.
pub(super) const LONG: &str = "\
Examples:
  Build the plugin projects in ./plugins, let `text` read this folder, and ask:
    agent-host --plugins plugins --build --grant text:read=. \\
      \"Count the lines of README.md\"

  A session in which you type, with a language model:
    agent-host --plugins plugins --model openai/gpt-4.1-mini

  From a pipe into a file (the answer goes to stdout, all else to stderr):
    echo 'text.count_file {\"path\": \"README.md\"}' |
      agent-host --plugins plugins --grant text:read=. > answer.txt

  An agent whose settings and grants stand in a file; `config init` writes one with
  every key explained, and `config list` shows the agents of this folder:
    agent-host config init
    agent-host --agent agent.toml \"What changed in the notes?\"

  Ask a language model: of a known provider, whose key is in its variable, or of any
  server that speaks Chat Completions:
    agent-host --plugins plugins --model openai/gpt-4.1-mini \"...\"
    agent-host --plugins plugins --base-url http://127.0.0.1:8000/v1 --model NAME \"...\"

  Go on with its last session; what was interrupted is finished first:
    agent-host --agent agent.toml --continue \"And the week before?\"

  Write a plugin, in Rust, Python, JavaScript or C, and work on it in a session that takes up
  each change of its source:
    agent-host plugin new words --lang python
    agent-host dev words

  Play the scenarios of a folder (*.scenario.toml), with the plugins that are built first:
    agent-host test plugins

  See what a plugin is, and call one of its tools by hand:
    agent-host plugin inspect plugins/text.wasm
    agent-host plugin call plugins/text.wasm text.count_file \\
      '{\"path\": \"README.md\"}' --grant text:read=.

Plugins that change:
  During a session in which you type, a changed, new or removed plugin is taken from the next
  turn on (--no-watch: not). What cannot be loaded is said, and the version before serves. One
  that crashes in 3 of its first 10 calls is rolled back. `plugin history` shows the versions,
  `plugin rollback NAME` goes back to the one before.

Grants:
  A plugin may do nothing by default. Each --grant PLUGIN:KIND=VALUE adds one thing:
    files:read=DIR           read what is under DIR
    files:write=DIR          read and write what is under DIR
    files:env=NAME           see the environment variable NAME
    files:config=KEY=VALUE   get VALUE when it asks for the setting KEY
    host:read=DIR            the host's own list_directory and read_file, under DIR
  The plugin names DIR as you wrote it, without `..`. In agent.toml:
    [plugins.files.grants]
    read = [\".\"]

Models:
  --model PROVIDER/MODEL asks that model. openai, groq, deepseek, mistral and openrouter
  have their keys in OPENAI_API_KEY, GROQ_API_KEY, ...; ollama, lmstudio, llama-cpp and
  vllm are servers on this machine and need none. OPENAI_BASE_URL holds for openai.
  Others, timeouts, prices and fallbacks are configured in agent.toml. Without a model
  the built-in `offline` answers, which is no language model.

Data:
  Sessions, compiled code and plugins in use are kept in the data folder: --data,
  else AGENT_HOST_DATA, else the platform's folder for application data.

Exit codes:
  0    the turn ended with an answer, or the command did what it says
  1    the turn, the build or the call ended with an error
  2    nothing was begun: wrong usage or configuration, a plugin that cannot be
       loaded, data that cannot be opened
  3    the turn waits for somebody: `session show` says for whom. `session resolve`
       decides about a call, `session respond` brings a service's answer; --continue
       goes on. An answer that came twice or too late changes nothing: exit code 0
  130  cancelled";
