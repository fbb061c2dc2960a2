//! An MCP server for tests. The server's first argument selects its behaviour. The server uses only the standard
//! library, so that tests can build it with one call of the compiler. The server implements version 2025-11-25 of
//! the protocol.

use std::collections::VecDeque;
use std::io::{BufRead, Write, stdin, stdout};
use std::time::Duration;

/// A message of the client, parsed only as far as this server needs.
struct Message {
    line: String,
    method: String,
    /// The request id, spelled as in the message. `None` if the message is a notification.
    id: Option<String>,
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let mode = arguments.first().map_or("good", String::as_str);
    // The second argument is the path of the server's log file, which tests read.
    let log = arguments.get(1).cloned();
    write_log(log.as_deref(), &format!("started {}", std::process::id()));
    match mode {
        "silent" => sleep_for_ever(),
        "exits" => {
            eprintln!("cannot find \u{1b}[31mits database");
            std::process::exit(3);
        }
        "leaves" => {
            eprintln!("no database for {}", std::env::var("DESK_TOKEN").unwrap_or_default());
            std::process::exit(3);
        }
        "endless-line" => endless_line(),
        // In the mode `stubborn`, the server keeps running after the end of its input, and it starts a shell and a
        // child of the shell that ignore SIGTERM.
        "stubborn" => stubborn(log.as_deref()),
        _ => {}
    }
    let mut pages = 0;
    let mut waiting: VecDeque<String> = VecDeque::new();
    for line in stdin().lock().lines() {
        let Ok(line) = line else { return };
        let message = Message::read(line);
        write_log(log.as_deref(), &message.method);
        match message.method.as_str() {
            // In the mode `newest`, the server supports only the newest version of the protocol.
            "initialize" if mode == "newest" => message.refuse(-32601, "unknown method"),
            "server/discover" if mode == "newest" => message.answer(
                r#"{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{"tools":{}},"ttlMs":0,"cacheScope":"private","serverInfo":{"name":"fixture","version":"1"}}"#,
            ),
            "initialize" => message.answer(
                r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}},"serverInfo":{"name":"fixture","version":"1"}}"#,
            ),
            "tools/list" => {
                pages += 1;
                answer_tool_list(mode, pages, &message);
            }
            "tools/call" => call((mode, log.as_deref()), &message, &mut waiting),
            "ping" => message.answer("{}"),
            "notifications/cancelled" => waiting.clear(),
            // In the mode `deaf-to-new`, the server ignores unknown requests, as some servers do.
            _ if mode == "deaf-to-new" && message.id.is_some() => {}
            _ if mode == "dies-of-new" && message.id.is_some() => panic!("unknown method"),
            _ if mode == "odd-to-new" && message.id.is_some() => message.answer("{}"),
            _ if message.id.is_some() => message.refuse(-32601, "unknown method"),
            _ => {}
        }
    }
    write_log(log.as_deref(), "input closed");
    if mode == "stubborn" {
        sleep_for_ever();
    }
}

fn answer_tool_list(mode: &str, page: usize, message: &Message) {
    let tool = |name: &str, hints: &str| {
        format!(
            r#"{{"name":"{name}","description":"does {name}","inputSchema":{{"type":"object","properties":{{"text":{{"type":"string"}}}}}},"annotations":{hints}}}"#
        )
    };
    let names = [
        "echo",
        "error",
        "refuse",
        "image",
        "structured",
        "hang",
        "die",
        "garbage",
        "huge",
        "change",
        "env",
        "loud",
        "flood",
        "stall",
        "deep",
        "leak",
        "leak-error",
    ];
    match mode {
        "endless-pages" => {
            let tool = tool(&format!("tool{page}"), "{}");
            message.answer(&format!(r#"{{"tools":[{tool}],"nextCursor":"{page}"}}"#));
        }
        "circle" => {
            let tool = tool(&format!("tool{page}"), "{}");
            message.answer(&format!(r#"{{"tools":[{tool}],"nextCursor":"again"}}"#));
        }
        "many" => {
            let tools: Vec<String> = (0..1100).map(|number| tool(&format!("tool{number:04}"), "{}")).collect();
            message.answer(&format!(r#"{{"tools":[{}]}}"#, tools.join(",")));
        }
        "fat" => {
            let large_tool = format!(
                r#"{{"name":"fat{page}","description":"{}","inputSchema":{{"type":"object"}}}}"#,
                "x".repeat(6 << 20)
            );
            message.answer(&format!(r#"{{"tools":[{large_tool}],"nextCursor":"{page}"}}"#));
        }
        "lies" => {
            let lying_tool = tool("lie", r#"{"readOnlyHint":true,"destructiveHint":true,"idempotentHint":false}"#);
            message.answer(&format!(r#"{{"tools":[{lying_tool}]}}"#));
        }
        // The modes `ocr` and `filesystem` are the two servers of the desktop tests: `ocr` reads the text of images,
        // and `filesystem` renames files. The third argument is the folder that the two servers use.
        "ocr" => message.answer(&format!(r#"{{"tools":[{}]}}"#, desktop_tool("extract_text_from_image", &["path"]))),
        "filesystem" => {
            message.answer(&format!(r#"{{"tools":[{}]}}"#, desktop_tool("move_file", &["source", "destination"])));
        }
        // In the mode `fewer`, the server behaves like another release of itself: it has one new tool and lacks most of
        // the tools of the mode `good`.
        "fewer" => {
            let look = tool("look", r#"{"readOnlyHint":true,"openWorldHint":false}"#);
            message.answer(&format!(r#"{{"tools":[{look},{}]}}"#, tool("late", "{}")));
        }
        "nonsense-list" => message.answer(r#"{"tools":"many"}"#),
        "hang-list" => {}
        _ => {
            // In the mode `renewed`, the server behaves like its next release: its tools have other hints than in the
            // mode `good`.
            let hints = if mode == "renewed" { r#"{"readOnlyHint":true}"# } else { "{}" };
            let mut tools: Vec<String> = names.iter().map(|name| tool(name, hints)).collect();
            tools.push(tool("look", r#"{"readOnlyHint":true,"openWorldHint":false}"#));
            if page > 1 {
                tools.push(tool("new", "{}"));
            }
            message.answer(&format!(r#"{{"tools":[{}]}}"#, tools.join(",")));
        }
    }
}

fn desktop_tool(name: &str, arguments: &[&str]) -> String {
    let properties: Vec<String> = arguments.iter().map(|name| format!(r#""{name}":{{"type":"string"}}"#)).collect();
    let required: Vec<String> = arguments.iter().map(|name| format!("\"{name}\"")).collect();
    let (properties, required) = (properties.join(","), required.join(","));
    format!(
        r#"{{"name":"{name}","description":"does {name}","inputSchema":{{"type":"object","properties":{{{properties}}},"required":[{required}]}}}}"#
    )
}

/// Returns the path of a desktop file. The file's name is the value of the given argument of the call.
fn desktop_path(message: &Message, argument: &str) -> std::path::PathBuf {
    let folder = std::env::args().nth(3).expect("the third argument is the desktop folder");
    std::path::Path::new(&folder).join(message.text_of(argument).unwrap_or_default())
}

fn call((mode, log): (&str, Option<&str>), message: &Message, waiting: &mut VecDeque<String>) {
    let text = |text: &str| format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#);
    let name = message.text_of("name").unwrap_or_default();
    match name.as_str() {
        "look" if mode == "mortal" => std::process::exit(1),
        // The text `the trace` is answered with the trace context of the request.
        "echo" if message.text_of("text").as_deref() == Some("the trace") => {
            let field = |name: &str| message.text_of(name).unwrap_or_default();
            message.answer(&text(&format!("{} {}", field("traceparent"), field("tracestate"))));
        }
        "echo" | "look" => message.answer(&text(&message.text_of("text").unwrap_or_default())),
        "error" => message.answer(r#"{"content":[{"type":"text","text":"the disk is full"}],"isError":true}"#),
        "refuse" => message.refuse(-32602, "text must be short"),
        // The result contains an image of one pixel.
        "image" => message.answer(concat!(
            r#"{"content":[{"type":"text","text":"here"},{"type":"image","mimeType":"image/png","data":""#,
            "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==",
            r#""}]}"#
        )),
        "structured" => message.answer(r#"{"content":[],"structuredContent":{"warm":true,"degrees":21.5}}"#),
        // In these tests, an image file is a text file that contains the text to read from the image.
        "extract_text_from_image" => match std::fs::read_to_string(desktop_path(message, "path")) {
            Ok(image_text) => message.answer(&text(image_text.trim())),
            Err(error) => message.refuse(-32602, &error.to_string()),
        },
        "move_file" => match std::fs::rename(desktop_path(message, "source"), desktop_path(message, "destination")) {
            Ok(()) => message.answer(&text("moved")),
            Err(error) => message.refuse(-32602, &error.to_string()),
        },
        "hang" => waiting.extend(message.id.clone()),
        // The call `stall` never ends, and the server does not read further messages.
        "stall" => sleep_for_ever(),
        "die" => std::process::exit(1),
        "garbage" => {
            write_line("Listening on port 3000 …");
            write_line("{\"jsonrpc\":\"2.0\"");
            write_line(r#"{"jsonrpc":"2.0","id":999,"result":{"content":[{"type":"text","text":"not asked for"}]}}"#);
            write_line(r#"[1,2,3]"#);
            message.answer(&text("clean"));
        }
        "huge" => endless_line(),
        "change" => {
            write_line(r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#);
            message.answer(&text("changed"));
        }
        "env" => {
            let mut names: Vec<String> = std::env::vars().map(|(name, _)| name).collect();
            names.sort();
            message.answer(&text(&names.join(" ")));
        }
        // The server writes its secret into a result, into an error, and to standard error.
        "leak" => {
            let token = std::env::var("DESK_TOKEN").unwrap_or_default();
            eprintln!("the token is {token}");
            message.answer(&text(&format!("signed in with {token}")));
        }
        "leak-error" => {
            let token = std::env::var("DESK_TOKEN").unwrap_or_default();
            message.refuse(-32602, &format!("{token} may not do this"));
        }
        // The result is nested one level deeper than the host's JSON parser accepts.
        "deep" => {
            let (open, close) = ("[".repeat(126), "]".repeat(126));
            message.answer(&format!(r#"{{"content":[],"structuredContent":{open}{close}}}"#));
        }
        // The server sends ten million requests without reading any message.
        "flood" => {
            for number in 0..10_000_000 {
                write_line(&format!(r#"{{"jsonrpc":"2.0","id":{number},"method":"ping"}}"#));
                if number % 1000 == 0 {
                    write_log(log, "a thousand questions");
                }
            }
        }
        "loud" => {
            for number in 0..100_000 {
                eprintln!("line {number} of a very loud server \u{1b}[2J");
            }
            message.answer(&text("was loud"));
        }
        _ => message.refuse(-32602, &format!("there is no tool {name} in mode {mode}")),
    }
}

impl Message {
    fn read(line: String) -> Self {
        let mut message = Self { method: String::new(), id: None, line };
        message.method = message.text_of("method").unwrap_or_default();
        // In the client's messages, ids are numbers, and the id of the message is the first field with the name `id`.
        let id = message.line.split_once("\"id\":").map(|(_, rest)| rest.split([',', '}']).next().unwrap_or_default());
        message.id = id.map(str::to_owned).filter(|_| !message.method.starts_with("notifications/"));
        message
    }

    /// Returns the string after the first key with this name. Escapes are not supported.
    fn text_of(&self, key: &str) -> Option<String> {
        let key = format!("\"{key}\":\"");
        let (_, rest) = self.line.split_once(&key)?;
        Some(rest.split('"').next().unwrap_or_default().to_owned())
    }

    fn answer(&self, result: &str) {
        let id = self.id.as_deref().unwrap_or("null");
        write_line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#));
    }

    fn refuse(&self, code: i32, message: &str) {
        let id = self.id.as_deref().unwrap_or("null");
        write_line(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":"{message}"}}}}"#));
    }
}

fn write_line(line: &str) {
    let mut out = stdout().lock();
    let written = writeln!(out, "{line}").and_then(|()| out.flush());
    if written.is_err() {
        std::process::exit(0);
    }
}

fn endless_line() -> ! {
    let mut out = stdout().lock();
    let piece = [b'x'; 64 << 10];
    while out.write_all(&piece).is_ok() {}
    std::process::exit(0);
}

fn stubborn(log: Option<&str>) {
    // The shell ignores SIGTERM, and its child inherits this setting.
    let script = "trap '' TERM; sleep 600 & echo $!; wait";
    let mut shell = std::process::Command::new("/bin/sh");
    let child =
        shell.args(["-c", script]).stdin(std::process::Stdio::null()).stdout(std::process::Stdio::piped()).spawn();
    let mut child = child.expect("a shell");
    write_log(log, &format!("started {}", child.id()));
    let mut line = String::new();
    std::io::BufReader::new(child.stdout.take().expect("the shell's output is piped"))
        .read_line(&mut line)
        .expect("a line");
    write_log(log, &format!("started {}", line.trim()));
}

fn sleep_for_ever() -> ! {
    loop {
        std::thread::sleep(Duration::from_secs(3600));
    }
}

fn write_log(log: Option<&str>, entry: &str) {
    let Some(log) = log else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(log);
    let written = file.and_then(|mut file| file.write_all(format!("{entry}\n").as_bytes()));
    written.expect("the log can be written");
}
