//! Hosts and links with engines, gateways and clients on them. Owns what runs where, and that a pool and
//! its gateways stay as long as the next point wants the same; knows no experiment.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use azekura::host::programs;
use azekura::load::{ScratchDir, last_line};
use azekura_netlab::{Lab, Topology};
use azekura_proto::pool_map::Address;

use super::load_client::{Load, LoadClient, Phase};
use crate::experiment::scratch_pool::EngineProcesses;

const PORT: u16 = 7070;
const NFS_PORT: u16 = 2049;
const MOUNT_PORT: u16 = 2050;
const TARGETS_PER_ENGINE: u16 = 1;
/// A gateway has this long to send on what it holds.
const END_TIMEOUT: Duration = Duration::from_secs(30);
/// Clients are the host's root, and own what they make.
const EXPORTS: &str =
    "[[export]]\npath = \"/\"\nclients = [\"10.77.0.0/16\", \"127.0.0.0/8\"]\nsquash = \"none\"\n";
const DIRECTORIES: [&str; 4] =
    ["XDG_RUNTIME_DIR", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "XDG_DATA_HOME"];

/// How many there are of each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cluster {
    pub(super) engines: usize,
    pub(super) gateways: usize,
    pub(super) clients: usize,
}

/// Hosts around one switch, each on a link of this rate.
fn topology(hosts: Cluster, rate: &str) -> String {
    let names = [("engine", hosts.engines), ("gateway", hosts.gateways), ("client", hosts.clients)];
    let names: Vec<String> = names
        .iter()
        .flat_map(|(kind, count)| (0..*count).map(move |number| host(kind, number)))
        .collect();
    let mut text = String::from("hosts = ['switch'");
    for name in &names {
        let _ = write!(text, ", '{name}'");
    }
    text.push_str("]\n");
    for name in &names {
        let _ = write!(text, "[[links]]\nbetween = ['{name}', 'switch']\nrate = '{rate}'\n");
    }
    text
}

fn host(kind: &str, number: usize) -> String {
    format!("{kind}{}", number + 1)
}

/// The program, which keeps what it keeps for a user in `scratch`.
fn azekura(scratch: &ScratchDir) -> Result<Command> {
    let mut command = Command::new(programs::beside("azekura")?);
    for variable in DIRECTORIES {
        command.env(variable, scratch.dir());
    }
    Ok(command)
}

/// A gateway that runs.
pub(super) struct Gateway {
    process: Child,
    pub(super) url: String,
}

impl Gateway {
    /// Starts a gateway by way of `spawn`, which listens at that address, with files in `scratch`.
    ///
    /// # Errors
    /// If it does not start: what it said last.
    pub(super) fn start(
        pool: &str,
        address: &str,
        options: &[&str],
        scratch: &ScratchDir,
        name: &str,
        spawn: impl FnOnce(&mut Command) -> Result<Child>,
    ) -> Result<Self> {
        let (log, exports) = (scratch.path(&format!("{name}.log")), scratch.path("exports.toml"));
        std::fs::write(&exports, EXPORTS).context("cannot write the exports")?;
        let said = std::fs::File::create(&log).with_context(|| format!("cannot make {log}"))?;
        let mut command = azekura(scratch)?;
        command
            .args(["nfs", pool, "--listen", address, "--exports", &exports])
            .args(options)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(said);
        let mut process = spawn(&mut command)?;
        let words = process.stdout.take().context("the gateway has no standard output")?;
        let mut gateway = Self { process, url: String::new() };
        let mut line = String::new();
        BufReader::new(words).read_line(&mut line).context("cannot hear the gateway")?;
        let Some(url) = line.trim_end().strip_prefix("ready: ") else {
            bail!("the gateway does not start: {}", last_line(Path::new(&log)));
        };
        url.clone_into(&mut gateway.url);
        Ok(gateway)
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let pid = rustix::process::Pid::from_child(&self.process);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let deadline = Instant::now() + END_TIMEOUT;
        while matches!(self.process.try_wait(), Ok(None)) && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// What stands at a time: a pool of that many engines, and gateways with these options.
struct Standing {
    // The gateways go before the pool that they serve.
    gateways: Vec<Gateway>,
    options: Vec<String>,
    engines: usize,
    pool: EngineProcesses,
}

/// The hosts, and what runs on them.
pub(super) struct NfsLab {
    // What runs goes before the hosts.
    standing: Option<Standing>,
    client: LoadClient,
    lab: Lab,
}

impl NfsLab {
    /// Makes as many hosts as are ever wanted, each on a link of that rate.
    ///
    /// # Errors
    /// If this process may not, or there is no client.
    pub(super) fn start(hosts: Cluster, rate: &str) -> Result<Self> {
        let client = LoadClient::compile()?;
        let lab = Lab::up(&Topology::parse(&topology(hosts, rate), "experiment")?)?;
        Ok(Self { standing: None, client, lab })
    }

    /// Puts a load on that many gateways with these options, client `i` on gateway `i` modulo their
    /// number. Gives each phase of each client.
    ///
    /// # Errors
    /// What did not start, or what a client said.
    pub(super) fn measure(
        &mut self,
        cluster: Cluster,
        options: &[&str],
        load: Load<'_>,
    ) -> Result<Vec<Vec<Phase>>> {
        self.stand(cluster, options)?;
        let standing = self.standing.as_ref().context("there is no pool")?;
        let clients: Vec<_> = (0..cluster.clients)
            .map(|number| {
                let gateway = &standing.gateways[number % cluster.gateways];
                (host("client", number), gateway.url.clone())
            })
            .collect();
        let client = self.client.place(standing.pool.dir())?;
        let measured = client.run(&self.lab, &clients, load);
        if measured.is_err() {
            // Nobody knows what it does.
            self.standing = None;
        }
        measured
    }

    fn stand(&mut self, cluster: Cluster, options: &[&str]) -> Result<()> {
        if self.standing.as_ref().is_none_or(|standing| standing.engines != cluster.engines) {
            self.standing = None;
            let pool = self.start_pool(cluster.engines)?;
            let (gateways, options) = (Vec::new(), Vec::new());
            let engines = cluster.engines;
            self.standing = Some(Standing { gateways, options, engines, pool });
        }
        let standing = self.standing.as_mut().context("there is no pool")?;
        if standing.options != options {
            standing.gateways.clear();
            standing.options = options.iter().map(|&word| word.to_owned()).collect();
        }
        while standing.gateways.len() < cluster.gateways {
            let name = host("gateway", standing.gateways.len());
            let address = format!("{}:{NFS_PORT}", self.lab.address(&name)?);
            let mut all = vec!["--mount-port".to_owned(), MOUNT_PORT.to_string()];
            all.extend(standing.options.iter().cloned());
            let all: Vec<&str> = all.iter().map(String::as_str).collect();
            let pool = standing.pool.pool_name();
            let gateway =
                Gateway::start(&pool, &address, &all, standing.pool.dir(), &name, |command| {
                    Ok(self.lab.spawn(&name, command)?)
                })?;
            standing.gateways.push(gateway);
        }
        Ok(())
    }

    fn start_pool(&self, engines: usize) -> Result<EngineProcesses> {
        let address = |number| {
            let address = self.lab.address(&host("engine", number))?;
            Ok(Address::Tcp(format!("{address}:{PORT}")))
        };
        let addresses = (0..engines).map(address).collect::<Result<Vec<_>>>()?;
        // In the hosts' networks only: engines outlive the hosts for a moment, and remove what they
        // have made.
        let pool = EngineProcesses::start(&addresses, TARGETS_PER_ENGINE, |number, command| {
            Ok(self.lab.within(&host("engine", number), || command.spawn())??)
        })?;
        let mut command = azekura(pool.dir())?;
        command.args(["container", "create", "default", "--pool", &pool.pool_name()]);
        let done = self.lab.exec(&host("gateway", 0), &mut command)?;
        if !done.status.success() {
            bail!("cannot make a container: {}", String::from_utf8_lossy(&done.stderr).trim());
        }
        Ok(pool)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_are_well_described() {
        let text = topology(Cluster { engines: 2, gateways: 1, clients: 3 }, "1gbit");
        let topology = Topology::parse(&text, "experiment").unwrap();
        for name in ["switch", "engine2", "gateway1", "client3"] {
            assert!(topology.host(name).is_some(), "{name}");
        }
        assert!(topology.host("engine3").is_none());
    }
}
