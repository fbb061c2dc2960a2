//! Several processes that share the sessions of a PostgreSQL database (F1, F2), with a real server and real processes.

mod clocks;
mod commands;
mod doors;
mod histories;
mod killed;
mod late_events;
mod media;
mod nats;
mod nats_events;
mod nats_sign_in;
mod plugins;

use crate::nats_server::Cluster;
use crate::network::{Network, Target};
use crate::postgres_server::Server;
use crate::serve::process::ServeProcess;
use crate::support::{SharedCompiledCode, components};
use agent_store::{PostgresAddress, PostgresOptions, PostgresStore};
use serde_json::{Value, json};
use std::path::Path;
use tempfile::TempDir;

/// Seconds of a lease in these tests.
const LEASE_SECONDS: u64 = 3;

/// An agent: its name, the rest of its file, and the replies of its model.
type TestAgent<'a> = (&'a str, &'a str, Value);

/// A folder with agents and plugins, and a database server of its own.
struct Fleet {
    database: Server,
    /// The NATS servers that the processes use.
    nats: Option<Cluster>,
    /// The network between each process and the database. Empty if the processes use the socket of the database.
    networks: Vec<Network>,
    folder: TempDir,
    agents: Vec<String>,
    _compiled_code: Vec<SharedCompiledCode>,
}

impl Fleet {
    /// Creates the folder, and starts the database server. Returns `None` if PostgreSQL is not installed.
    fn new(agents: &[TestAgent<'_>], processes: usize) -> Option<Self> {
        let database = Server::start(&[])?;
        let folder = tempfile::tempdir().expect("a folder");
        std::fs::create_dir(folder.path().join("plugins")).expect("created");
        for plugin in ["probe.wasm", "payer.wasm"] {
            std::fs::copy(components().join(plugin), folder.path().join("plugins").join(plugin)).expect("copied");
        }
        for (name, more, replies) in agents {
            let file =
                format!("name = \"{name}\"\nmodel = \"scripted:{name}.json\"\nplugin_directory = \"plugins\"\n{more}");
            std::fs::write(folder.path().join(format!("{name}.toml")), file).expect("written");
            std::fs::write(folder.path().join(format!("{name}.json")), json!({"replies": replies}).to_string())
                .expect("written");
        }
        let data = (0..processes).map(|process| folder.path().join(format!("data-{process}")));
        let compiled_code = data.map(|data| SharedCompiledCode::in_data(&data)).collect();
        let agents = agents.iter().map(|(name, ..)| format!("{name}.toml")).collect();
        Some(Self { database, nats: None, networks: Vec::new(), folder, agents, _compiled_code: compiled_code })
    }

    /// As [`Fleet::new`], for processes that use NATS. Returns `None` if NATS or PostgreSQL is not installed.
    fn with_nats(agents: &[TestAgent<'_>], processes: usize, nats: Option<Cluster>) -> Option<Self> {
        let nats = Some(nats?);
        Some(Self { nats, ..Self::new(agents, processes)? })
    }

    /// As [`Fleet::with_nats`], with networks that can fail before NATS and between each process and the database.
    async fn behind_networks(agents: &[TestAgent<'_>], processes: usize) -> Option<Self> {
        let mut fleet = Self::with_nats(agents, processes, Cluster::start_behind_networks(3).await)?;
        for _ in 0..processes {
            let socket = fleet.database.folder.join(".s.PGSQL.5432");
            fleet.networks.push(Network::start(Target::Postgres(socket)).await);
        }
        Some(fleet)
    }

    fn address(&self) -> String {
        self.database.address("postgres")
    }

    /// Returns the address of the database for a process.
    fn address_for(&self, process: usize) -> String {
        match self.networks.get(process) {
            Some(network) => format!("postgres://agent@127.0.0.1:{}/postgres?sslmode=disable", network.port),
            None => self.address(),
        }
    }

    /// Starts `serve` or `worker` with the data folder of this number.
    fn start(&self, command: &str, process: usize) -> ServeProcess {
        self.start_with(command, process, &[])
    }

    /// Starts a process with further environment variables.
    fn start_with(&self, command: &str, process: usize, more: &[(&str, &str)]) -> ServeProcess {
        let (address, lease) = (self.address_for(process), LEASE_SECONDS.to_string());
        let command: &[&str] = match command {
            "serve" => &["serve", "--listen", "127.0.0.1:0"],
            worker => &[worker, "--health", "127.0.0.1:0"],
        };
        let arguments: Vec<_> = self.agents.iter().flat_map(|file| ["--agent", file]).collect();
        let store = [("AGENT_HOST_STORE", address.as_str()), ("AGENT_HOST_LEASE", lease.as_str())];
        let nats = self.nats.as_ref().map(Cluster::address).unwrap_or_default();
        let variables = [&store[..], &[("AGENT_HOST_NATS", nats.as_str())], more].concat();
        ServeProcess::start_command((self.folder.path(), &format!("data-{process}")), command, &arguments, &variables)
    }

    async fn store(&self) -> PostgresStore {
        open(&self.address()).await
    }
}

async fn open(address: &str) -> PostgresStore {
    let address = PostgresAddress::parse(address).expect("the address is valid");
    PostgresStore::open(address, PostgresOptions::default()).await.expect("the database opens")
}

/// Returns how often each call has had its effect, according to the files that the plugins write.
fn effects(folder: &Path) -> std::collections::BTreeMap<String, usize> {
    let mut counts = std::collections::BTreeMap::new();
    for file in ["effects.txt", "ledger.txt"] {
        for line in std::fs::read_to_string(folder.join(file)).unwrap_or_default().lines() {
            *counts.entry(line.split(' ').next().unwrap_or_default().to_owned()).or_default() += 1;
        }
    }
    counts
}
