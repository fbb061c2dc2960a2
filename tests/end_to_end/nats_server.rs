//! A real NATS cluster with JetStream, in processes of its own. The processes and their folder are removed with the value.

use crate::network::{Fault, Network, Target};
use crate::peers::peer;
use async_nats::jetstream::{self, Context};
use rustix::process::{Pid, Signal, kill_process};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Maximum time until the cluster can store messages.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs a server until the input ends, because the test process has ended or has dropped the server.
const RUN: &str = r#"
server=$1; configuration=$2; process=$3
"$server" -c "$configuration" > "$configuration.log" 2>&1 &
echo $! > "$process"
read -r _
kill -KILL $! 2> /dev/null
wait $! 2> /dev/null
"#;

/// Some servers that form a cluster.
pub(crate) struct Cluster {
    program: PathBuf,
    folder: TempDir,
    /// The port for clients and the port for the other servers, of each server.
    ports: Vec<(u16, u16)>,
    /// The processes. `None` while a server is stopped.
    runners: Vec<Option<Child>>,
    /// Further settings of the servers.
    settings: String,
    /// The proxies that clients use instead of the servers. Empty if they use the servers.
    networks: Vec<Network>,
}

impl Cluster {
    /// Starts a cluster with this number of servers. Returns `None` if the server is not installed.
    pub(crate) fn start(servers: usize) -> Option<Self> {
        let mut cluster = Self::prepare(servers)?;
        (0..servers).for_each(|server| cluster.start_server(server));
        cluster.wait_until_ready();
        Some(cluster)
    }

    /// Chooses the addresses of a cluster, but does not start its servers.
    pub(crate) fn prepare(servers: usize) -> Option<Self> {
        let program = peer("python/bin", "nats-server")?;
        let folder = tempfile::tempdir().expect("a folder");
        // The ports are free while the listeners exist. Another process could take one afterwards, which is unlikely.
        let listeners: Vec<_> = (0..2 * servers).map(|_| TcpListener::bind("127.0.0.1:0").expect("a port")).collect();
        let port = |listener: &TcpListener| listener.local_addr().expect("an address").port();
        let ports = listeners.chunks(2).map(|pair| (port(&pair[0]), port(&pair[1]))).collect();
        Some(Self {
            program,
            folder,
            ports,
            runners: (0..servers).map(|_| None).collect(),
            settings: String::new(),
            networks: Vec::new(),
        })
    }

    /// Starts a single server with further settings, such as the users who may sign in, and returns at once.
    pub(crate) fn start_with_settings(settings: &str) -> Option<Self> {
        let mut cluster = Self::prepare(1)?;
        settings.clone_into(&mut cluster.settings);
        cluster.start_server(0);
        Some(cluster)
    }

    /// Starts a cluster that clients reach only through networks that can fail.
    pub(crate) async fn start_behind_networks(servers: usize) -> Option<Self> {
        let mut cluster = Self::prepare(servers)?;
        for (port, _) in &cluster.ports {
            cluster.networks.push(Network::start(Target::Nats(*port)).await);
        }
        (0..servers).for_each(|server| cluster.start_server(server));
        cluster.wait_until_ready();
        Some(cluster)
    }

    /// Sets what happens to the connections to all servers, if the cluster is behind networks.
    pub(crate) fn set_fault(&self, fault: Fault) {
        self.networks.iter().for_each(|network| network.set(fault));
    }

    /// Returns the port for clients of a server.
    fn client_port(&self, server: usize) -> u16 {
        self.networks.get(server).map_or(self.ports[server].0, |network| network.port)
    }

    /// Returns the address of all servers.
    pub(crate) fn address(&self) -> String {
        let hosts: Vec<_> =
            (0..self.ports.len()).map(|server| format!("127.0.0.1:{}", self.client_port(server))).collect();
        format!("nats://{}/tests", hosts.join(","))
    }

    pub(crate) fn start_server(&mut self, server: usize) {
        let (port, cluster_port) = self.ports[server];
        let store = self.store(server);
        std::fs::create_dir_all(&store).expect("created");
        let mut text = format!(
            "server_name: n{server}\nlisten: 127.0.0.1:{port}\nclient_advertise: \"127.0.0.1:{}\"\n\
             jetstream {{ store_dir: {store:?}, max_mem: 64M, max_file: 1G }}\n",
            self.client_port(server)
        );
        if self.ports.len() > 1 {
            let routes: Vec<_> = self.ports.iter().map(|(_, port)| format!("nats-route://127.0.0.1:{port}")).collect();
            let routes = routes.join(", ");
            text += &format!("cluster {{ name: tests, listen: 127.0.0.1:{cluster_port}, routes: [{routes}] }}\n");
        }
        text += &self.settings;
        let configuration = self.folder.path().join(format!("n{server}.conf"));
        std::fs::write(&configuration, text).expect("written");
        let runner = Command::new("sh")
            .args(["-c", RUN, "sh"])
            .arg(&self.program)
            .arg(&configuration)
            .arg(self.process_file(server))
            .stdin(Stdio::piped())
            .spawn()
            .expect("the server starts");
        self.runners[server] = Some(runner);
    }

    /// Ends a server immediately, as a power failure would.
    pub(crate) fn kill(&mut self, server: usize) {
        if let Some(mut runner) = self.runners[server].take() {
            self.signal_process(server, Signal::KILL);
            drop(runner.stdin.take());
            let _ = runner.wait();
        }
    }

    /// Sends a signal to a server.
    pub(crate) fn signal(&self, server: usize, signal: Signal) {
        self.signal_process(server, signal);
    }

    /// Ends all servers, deletes everything that they have stored, and starts them again.
    pub(crate) fn lose_everything(&mut self) {
        for server in 0..self.runners.len() {
            self.kill(server);
            let _ = std::fs::remove_dir_all(self.store(server));
        }
        (0..self.runners.len()).for_each(|server| self.start_server(server));
    }

    fn signal_process(&self, server: usize, signal: Signal) {
        let begun = Instant::now();
        loop {
            let process = std::fs::read_to_string(self.process_file(server)).unwrap_or_default();
            if let Some(process) = process.trim().parse().ok().and_then(Pid::from_raw) {
                // The process may have ended already.
                let _ = kill_process(process, signal);
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "the server has not started");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn store(&self, server: usize) -> PathBuf {
        self.folder.path().join(format!("n{server}"))
    }

    fn process_file(&self, server: usize) -> PathBuf {
        self.folder.path().join(format!("n{server}.process"))
    }

    fn log(&self) -> String {
        let log = |server| std::fs::read_to_string(self.folder.path().join(format!("n{server}.conf.log")));
        (0..self.ports.len()).map(|server| log(server).unwrap_or_default()).collect()
    }

    /// Waits until the cluster has chosen its leader and can store messages.
    fn wait_until_ready(&self) {
        let begun = Instant::now();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(async {
                    loop {
                        let ready = async { self.jetstream().await.query_account().await };
                        if matches!(tokio::time::timeout(Duration::from_secs(5), ready).await, Ok(Ok(_))) {
                            return;
                        }
                        assert!(begun.elapsed() < PATIENCE, "the cluster does not start: {}", self.log());
                        tokio::time::sleep(Duration::from_millis(100)).await;
                    }
                });
            });
        });
    }

    /// Connects to the cluster as another program.
    pub(crate) async fn jetstream(&self) -> Context {
        let servers: Vec<async_nats::ServerAddr> =
            self.ports.iter().map(|(port, _)| format!("127.0.0.1:{port}").parse().expect("an address")).collect();
        let options = async_nats::ConnectOptions::new().retry_on_initial_connect();
        jetstream::new(options.connect(servers).await.expect("connecting begins"))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (0..self.runners.len()).for_each(|server| self.kill(server));
    }
}
