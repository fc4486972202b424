//! A server and nodes around a switch, and the directories that they use. Knows no experiment, and nothing of
//! how files come from one to the other.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, mpsc};

use anyhow::{Context as _, Result};
use azekura::host::programs;
use azekura::load::ScratchDir;
use azekura_netlab::control::Reception;
use azekura_netlab::{Lab, Topology};

/// Most nodes of an experiment.
pub(super) const NODES_MAX: usize = 16;
/// Bytes per second of a link of 100 Mbit/s, of which TCP has 94 %.
pub(super) const LINK_BYTES_PER_S: f64 = 12_500_000.0;
/// How the hosts are, for pages.
pub(super) const METHOD: &str = "A server and the nodes are hosts of their own, made by `azekura-lab netlab`, each on a link of \
     100 Mbit/s with a delay of 0.2 ms to one switch; up to 1 ms of a burst arrives together \
     (`lump`), which leaves the processors to the programs. Of a link's 12.5 MB/s TCP has 11.77 in one \
     direction when nothing goes in the other. Files are in memory on both sides.";

/// How many this process has made.
static LABS: AtomicU32 = AtomicU32::new(0);

pub(super) const SERVER: &str = "server";
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
            "[[links]]\nbetween = ['{name}', 'switch']\nrate = '100mbit'\ndelay = '0.2ms'\n\
             lump = '1ms'"
        );
    }
    text
}

/// The hosts.
pub(super) struct StagingLab {
    // The hosts go before what their processes have written.
    pub(super) lab: Arc<Lab>,
    pub(super) scratch: ScratchDir,
    pub(super) azekura: PathBuf,
    /// How agents and programs are started on hosts.
    pub(super) launch: String,
}

impl StagingLab {
    /// Makes the server and so many nodes.
    ///
    /// # Errors
    /// If this process may not.
    pub(super) fn start(nodes: usize) -> Result<Self> {
        // A lab keeps its name as long as this process runs.
        let number = LABS.fetch_add(1, Ordering::Relaxed);
        let name = format!("staging-{}-{number}", std::process::id());
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
    fn one_disturbed_run_does_not_move_the_median() {
        assert!((median(vec![9.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }
}
