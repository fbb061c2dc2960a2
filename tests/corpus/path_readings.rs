//! Row 43 with real servers: If the host considers a path to be below `/pub/`, four real servers must also consider the
//! path to be below `/pub/`.

use crate::peers;
use crate::scene::{Scene, run_exclusively, with_grants};
use agent_plugins::{CallLimits, Grants};
use serde_json::{Value, json};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that reports in the header `x-routed` whether it found the path below `/pub/`.
struct Peer {
    name: &'static str,
    address: SocketAddr,
    process: Child,
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn start_peer(name: &'static str, address: SocketAddr, mut command: Command) -> Peer {
    let process = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let peer = Peer { name, address, process: process.unwrap_or_else(|error| panic!("{name}: {error}")) };
    let start = Instant::now();
    while TcpStream::connect(address).is_err() {
        assert!(start.elapsed() < Duration::from_secs(60), "{name} does not listen");
        std::thread::sleep(Duration::from_millis(20));
    }
    peer
}

fn free_address() -> SocketAddr {
    TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a loopback port is free")
}

fn nginx(folder: &Path) -> Option<Peer> {
    let program = peers::peer("debian/usr/sbin", "nginx")?;
    let address = free_address();
    let configuration = format!(
        "daemon off; master_process off; pid {0}/nginx.pid; error_log {0}/error.log;\n\
         events {{ }}\n\
         http {{ access_log off; client_body_temp_path {0}/b; proxy_temp_path {0}/p; fastcgi_temp_path {0}/f;\n\
         uwsgi_temp_path {0}/u; scgi_temp_path {0}/s;\n\
         server {{ listen {address};\n\
         location / {{ add_header x-routed outside always; return 200 \"$uri\"; }}\n\
         location /pub/ {{ add_header x-routed inside always; return 200 \"$uri\"; }} }} }}\n",
        folder.display()
    );
    let file = folder.join("nginx.conf");
    std::fs::write(&file, configuration).expect("the file can be written");
    let mut command = peers::debian_program(&program);
    command.arg("-p").arg(folder).arg("-c").arg(file).arg("-e").arg(folder.join("error.log"));
    Some(start_peer("nginx", address, command))
}

fn lighttpd(folder: &Path) -> Option<Peer> {
    let program = peers::peer("debian/usr/sbin", "lighttpd")?;
    let address = free_address();
    let modules = program.ancestors().nth(2).expect("the program is in a folder").join("lib/lighttpd");
    std::fs::create_dir_all(folder.join("root/pub")).expect("the folder can be created");
    let configuration = format!(
        "server.document-root = \"{}/root\"\nserver.bind = \"127.0.0.1\"\nserver.port = {}\n\
         server.modules = (\"mod_setenv\")\n\
         setenv.set-response-header = (\"x-routed\" => \"outside\")\n\
         $HTTP[\"url\"] =~ \"^/pub/\" {{ setenv.set-response-header = (\"x-routed\" => \"inside\") }}\n",
        folder.display(),
        address.port()
    );
    let file = folder.join("lighttpd.conf");
    std::fs::write(&file, configuration).expect("the file can be written");
    let mut command = peers::debian_program(&program);
    command.arg("-D").arg("-f").arg(file).arg("-m").arg(modules);
    Some(start_peer("lighttpd", address, command))
}

fn express(folder: &Path) -> Option<Peer> {
    let (node, package) = (peers::node()?, peers::peer("node/node_modules/express", "index.js")?);
    let address = free_address();
    let program = format!(
        "const app = require({:?})();\n\
         app.use('/pub/', (request, response) => response.set('x-routed', 'inside').send(request.url));\n\
         app.use((request, response) => response.set('x-routed', 'outside').send(request.url));\n\
         app.listen({}, '127.0.0.1');\n",
        package,
        address.port()
    );
    let file = folder.join("express.cjs");
    std::fs::write(&file, program).expect("the file can be written");
    let mut command = Command::new(node);
    command.arg(file);
    Some(start_peer("Express", address, command))
}

fn aiohttp(folder: &Path) -> Option<Peer> {
    let python = peers::python_with("aiohttp")?;
    let address = free_address();
    let program = format!(
        "from aiohttp import web\n\
         def routed(where):\n    \
             async def answer(request):\n        \
                 return web.Response(text=request.path, headers={{'x-routed': where}})\n    \
             return answer\n\
         app = web.Application()\n\
         app.router.add_route('*', '/pub/{{tail:.*}}', routed('inside'))\n\
         app.router.add_route('*', '/{{tail:.*}}', routed('outside'))\n\
         web.run_app(app, host='127.0.0.1', port={}, print=None)\n",
        address.port()
    );
    let file = folder.join("server.py");
    std::fs::write(&file, program).expect("the file can be written");
    let mut command = Command::new(python);
    command.arg(file);
    Some(start_peer("aiohttp", address, command))
}

/// Returns paths that contain ambiguous pieces, each piece at several positions below `/pub/`.
fn paths() -> Vec<String> {
    let pieces = [
        "..",
        ".",
        "...",
        "%2e%2e",
        "%2E.",
        ".%2e",
        "%252e%252e",
        ".%252e",
        "..;",
        "..;x=y",
        ";",
        "%3b",
        "..%00",
        "%00",
        "..%20",
        "%20",
        "..%09",
        "..%2f",
        "..%252f",
        "..%5c",
        "..\\",
        "\\",
        "%c0%ae%c0%ae",
        "%c0%af",
        "..%c0%af",
        "%e0%80%ae%e0%80%ae",
        "%ef%bc%8e%ef%bc%8e",
        "..%ef%bc%8f",
        "%u002e%u002e",
        "%",
        "%2",
        "",
        "a",
        "a.b",
        "a%20b",
        "caf%C3%A9",
        "~",
        "*",
        "a:b",
        "@",
        "%23",
        "%3f",
        "|",
        "%7c",
        "..%0d%0a",
        "%e2%80%8b..",
        "%ff",
    ];
    let mut paths = Vec::new();
    for piece in pieces {
        for form in [
            "/pub/P",
            "/pub/P/",
            "/pub/P/admin",
            "/pub/Padmin",
            "/pub/a/P/P/admin",
            "/pub/P/../admin",
            "/pub//P//admin",
        ] {
            paths.push(form.replace('P', piece));
        }
    }
    paths
}

/// Sends a path unchanged, without the host's check, and returns the server's response in lower case.
fn raw_routing(peer: &Peer, path: &str) -> String {
    let mut stream = TcpStream::connect(peer.address).expect("the server listens");
    let _ = stream.set_read_timeout(Some(Duration::from_secs(10)));
    let _ = write!(stream, "GET {path} HTTP/1.1\r\nHost: {}\r\nConnection: close\r\n\r\n", peer.address);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).to_lowercase()
}

/// Row 43: With a grant for `/pub/`, the host sends only paths that all four servers consider to be below `/pub/`. Some
/// of the refused paths are outside `/pub/` for at least one server.
#[test]
fn row_43_every_server_considers_sent_paths_to_be_below_pub() {
    run_exclusively(async {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let installed = [nginx(folder.path()), lighttpd(folder.path()), express(folder.path()), aiohttp(folder.path())];
        let peers: Vec<_> = installed.into_iter().flatten().collect();
        if peers.is_empty() {
            return;
        }
        let scene = Scene::new(&["intruder"]).await;
        let mut outside = 0;
        for peer in &peers {
            let pattern = format!("GET http://{}/pub/", peer.address);
            let grants = Grants { http: vec![pattern.parse().expect("the pattern is valid")], ..Grants::default() };
            let limits = CallLimits { requests: 1_000, requests_per_minute: 10_000, ..CallLimits::default() };
            let urls: Vec<_> = paths().iter().map(|path| format!("http://{}{path}", peer.address)).collect();
            let (_, text) =
                scene.call(with_grants("intruder", grants, limits), "intruder.ask", json!({"urls": urls})).await;
            let output_text: Value = serde_json::from_str(&text).unwrap_or_else(|_| panic!("{text}"));
            let mut sent = 0;
            for (path, result) in paths().iter().zip(output_text["told"].as_array().expect("`told` is a list")) {
                let result = result.as_str().expect("each result is a string");
                if result.starts_with(|char: char| char.is_ascii_digit()) {
                    assert!(!result.contains("x-routed: outside"), "{} treats {path} as outside: {result}", peer.name);
                    sent += 1;
                } else if raw_routing(peer, path).contains("x-routed: outside") {
                    outside += 1;
                }
            }
            assert!(sent > 40, "{}: ordinary paths must be sent, but only {sent} were", peer.name);
        }
        assert!(outside > 10, "servers treat only {outside} refused paths as outside");
    });
}
