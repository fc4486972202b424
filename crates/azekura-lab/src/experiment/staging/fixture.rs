//! A server and nodes around a switch, and jobs that stage files from the one to the others. Owns how a job is
//! started, when all of it has come, and what is taken for its time; knows no experiment.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, mpsc};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use azekura::host::programs;
use azekura::load::{ScratchDir, last_line};
use azekura_netlab::control::Reception;
use azekura_netlab::{Lab, Topology};
use serde::Deserialize;

/// Most nodes of an experiment.
pub(super) const NODES_MAX: usize = 16;
/// Bytes per second of a link of 100 Mbit/s, of which TCP has 94 %.
pub(super) const LINK_BYTES_PER_S: f64 = 12_500_000.0;
/// How the hosts are, for pages.
pub(super) const METHOD: &str = "A server and the nodes are hosts of their own, made by `azekura-lab netlab`, each on a link of \
     100 Mbit/s with a delay of 0.2 ms to one switch; of a link's 12.5 MB/s TCP has 11.77 in one \
     direction when nothing goes in the other. Files are in memory on both sides. *staging* is `azekura \
     stage run --to all` on the server and `azekura stage in` for the files, the time that from the \
     event `content-begun` to the last `content-arrived`, when the last node has the file under its name.";

pub(super) const SERVER: &str = "server";
/// A job that has not brought everything by then never will.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What the job's command does: it asks for the files and stays until it is told to end.
const COMMAND: &str = "\"$0\" stage in \"$1\" && read end";
/// What files are filled with, again and again.
const BLOCK_BYTES: usize = 64 * 1024;

pub(super) fn node(number: usize) -> String {
    format!("node{}", number + 1)
}

fn topology(nodes: usize) -> String {
    let names: Vec<_> = std::iter::once(SERVER.to_owned()).chain((0..nodes).map(node)).collect();
    let mut text = String::from("hosts = ['switch'");
    for name in &names {
        let _ = write!(text, ", '{name}'");
    }
    text.push_str("]\n");
    for name in &names {
        let _ = writeln!(
            text,
            "[[links]]\nbetween = ['{name}', 'switch']\nrate = '100mbit'\ndelay = '0.2ms'"
        );
    }
    text
}

/// A line of a job's events.
#[derive(Deserialize)]
struct Happened {
    event: String,
    at_s: f64,
    #[serde(default)]
    files: u64,
}

/// What the events of a job say so far.
#[derive(Debug, Default, PartialEq)]
struct Progress {
    begun_s: Option<f64>,
    arrived_s: f64,
    /// Files that are on a node, counted for each.
    arrived: u64,
    /// What should not have happened.
    trouble: Option<String>,
}

impl Progress {
    fn of(events: &str) -> Self {
        let mut progress = Self::default();
        // The last line may not be whole yet.
        let lines =
            events.lines().filter_map(|line| Some((line, serde_json::from_str(line).ok()?)));
        for (line, Happened { event, at_s, files }) in lines {
            match event.as_str() {
                "content-begun" => {
                    progress.begun_s.get_or_insert(at_s);
                }
                "content-arrived" => {
                    progress.arrived += files;
                    progress.arrived_s = at_s;
                }
                "node-up" => {}
                _ => progress.trouble = Some(line.to_owned()),
            }
        }
        progress
    }
}

/// The hosts.
pub(super) struct StagingLab {
    // The hosts go before what their processes have written.
    pub(super) lab: Arc<Lab>,
    pub(super) scratch: ScratchDir,
    azekura: PathBuf,
    launch: String,
}

impl StagingLab {
    /// Makes the server and so many nodes.
    ///
    /// # Errors
    /// If this process may not.
    pub(super) fn start(nodes: usize) -> Result<Self> {
        let name = format!("staging-{}", std::process::id());
        let reception = Reception::open(&crate::netlab::scope()?, &name)?;
        let lab = Arc::new(Lab::up(&Topology::parse(&topology(nodes), &name)?)?);
        // Nobody is to end it from outside.
        reception.serve(&lab, &mpsc::channel().0)?;
        let own = programs::own()?;
        let launch = format!("{} netlab exec --lab {name} {{host}} -- {{command}}", own.display());
        let scratch = ScratchDir::make("staging")?;
        Ok(Self { lab, scratch, azekura: programs::beside("azekura")?, launch })
    }

    /// An empty directory in memory.
    ///
    /// # Errors
    /// If it cannot be made.
    pub(super) fn empty_dir(&self, name: &str) -> Result<PathBuf> {
        let path = PathBuf::from(self.scratch.path(name));
        let made = fs::remove_dir_all(&path).or_else(|error| match error.kind() {
            std::io::ErrorKind::NotFound => Ok(()),
            _ => Err(error),
        });
        made.and_then(|()| fs::create_dir(&path))
            .with_context(|| format!("cannot make {}", path.display()))?;
        Ok(path)
    }

    /// A directory with so many files of that length, at most a hundred in each directory below it.
    ///
    /// # Errors
    /// If there is no room for them.
    pub(super) fn files(&self, count: u64, bytes: u64) -> Result<PathBuf> {
        let home = self.empty_dir("home")?;
        let mut block = vec![0; BLOCK_BYTES];
        getrandom::fill(&mut block).ok().context("the system has no random numbers")?;
        for number in 0..count {
            let dir = home.join(format!("{}", number / 100));
            fs::create_dir_all(&dir)?;
            let mut file = File::create(dir.join(number.to_string()))?;
            let mut left = bytes as usize;
            while left > 0 {
                let some = left.min(BLOCK_BYTES);
                file.write_all(&block[..some])?;
                left -= some;
            }
        }
        Ok(home)
    }

    /// Has so many files in a directory come to the first `nodes` nodes. Gives the time in seconds.
    ///
    /// # Errors
    /// If a node was lost or a file did not come: what the job said.
    pub(super) fn stage(&self, nodes: usize, home: &Path, files: u64) -> Result<f64> {
        let cache = self.empty_dir("cache")?;
        let (events, said) = (self.scratch.path("events.json"), self.scratch.path("job.log"));
        let hosts: Vec<_> = (0..nodes).map(node).collect();
        let mut map = home.as_os_str().to_owned();
        map.push("=ro");
        let mut command = Command::new(&self.azekura);
        command.args(["stage", "run", "--hosts", &hosts.join(","), "--launch", &self.launch]);
        command.arg("--map").arg(map).arg("--cache").arg(cache);
        command.args(["--to", "all", "--json", &events, "--", "sh", "-c", COMMAND]);
        command.arg(&self.azekura).arg(home);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(&said)?);
        let mut job = Job(self.lab.spawn(SERVER, &mut command)?);
        let waited = job.wait_for(Path::new(&events), nodes as u64 * files);
        let time_s = waited.with_context(|| last_line(Path::new(&said)))?;
        drop(job.0.stdin.take());
        let status = job.0.wait().context("cannot wait for the job")?;
        if !status.success() {
            bail!("the job ends with {status}: {}", last_line(Path::new(&said)));
        }
        fs::remove_file(&events).context("cannot remove the events")?;
        Ok(time_s)
    }
}

/// A job that runs.
struct Job(Child);

impl Job {
    /// Waits until so many files have arrived; how long that took, in seconds.
    fn wait_for(&mut self, events: &Path, files: u64) -> Result<f64> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let is_over = self.0.try_wait()?.is_some();
            let progress = Progress::of(&fs::read_to_string(events).unwrap_or_default());
            if let Some(trouble) = progress.trouble {
                bail!("{trouble}");
            }
            if let Some(begun_s) = progress.begun_s.filter(|_| progress.arrived >= files) {
                return Ok(progress.arrived_s - begun_s);
            }
            if is_over || Instant::now() > deadline {
                bail!("{} of {files} files have come", progress.arrived);
            }
            sleep(LOOK_EVERY);
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        // Its agents see the end of their life lines.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The median, which a single disturbance does not move.
pub(super) fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times.get(times.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hosts_are_well_described() {
        let topology = Topology::parse(&topology(2), "staging").unwrap();
        for name in ["switch", SERVER, "node1", "node2"] {
            assert!(topology.host(name).is_some(), "{name}");
        }
    }

    #[test]
    fn the_time_is_that_from_the_first_beginning_to_the_last_arrival() {
        let text = "{\"at_s\":0.1,\"event\":\"node-up\",\"node\":0,\"host\":\"n\"}\n\
            {\"at_s\":0.5,\"event\":\"content-begun\",\"files\":2}\n\
            {\"at_s\":0.6,\"event\":\"content-begun\",\"files\":1}\n\
            {\"at_s\":0.7,\"event\":\"content-arrived\",\"files\":1}\n\
            {\"at_s\":0.9,\"event\":\"content-arrived\",\"files\":2}\n{\"at_s\":1.0,\"ev";
        let progress = Progress::of(text);
        assert_eq!(progress.begun_s, Some(0.5));
        assert_eq!((progress.arrived, progress.arrived_s, progress.trouble), (3, 0.9, None));
        let text = "{\"at_s\":0.5,\"event\":\"supplier-lost\"}\n";
        assert!(Progress::of(text).trouble.is_some());
    }

    #[test]
    fn one_disturbed_run_does_not_move_the_median() {
        assert!((median(vec![9.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }
}
