//! Jobs that stage files between the server and the nodes. Owns how a job is started, when all of it has come, and
//! what is taken for its time: that from the event of the request to the event of the last file.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::Write as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use azekura::load::last_line;
use serde::Deserialize;

use super::fixture::{SERVER, StagingLab, node};

/// How files come, for pages.
pub(super) const METHOD_IN: &str = "*staging* is `azekura stage run --to all` on the server and `azekura stage in` for the files, the \
     time that from the event `in-asked` to the last `content-arrived`, when the last node has the last file under its name.";
/// How files go home, for pages.
pub(super) const METHOD_OUT: &str = "*staging* is `azekura stage run` on the server, with programs that write a file on each node, and \
     `azekura stage sync`, the time that from the event `out-asked` to `out-ended`, when all files are at home under their names.";

/// A job that has not brought everything by then never will.
const PATIENCE: Duration = Duration::from_secs(300);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// What follows the request: the job stays until it is told to end.
const STAY: &str = " && read end";

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
    asked_s: Option<f64>,
    last_s: f64,
    /// Files that are on a node, counted for each, or at home.
    files: u64,
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
                "in-asked" | "out-asked" => {
                    progress.asked_s.get_or_insert(at_s);
                }
                "content-arrived" | "out-ended" => {
                    progress.files += files;
                    progress.last_s = at_s;
                }
                "node-up" | "content-begun" | "content-coming" | "out-begun" | "sent" => {}
                _ => progress.trouble = Some(line.to_owned()),
            }
        }
        progress
    }
}

impl StagingLab {
    /// Has so many files in a directory come to the first `nodes` nodes. Gives the time in seconds.
    ///
    /// # Errors
    /// If a node was lost or a file did not come: what the job said.
    pub(super) fn stage_in(&self, nodes: usize, home: &Path, files: u64) -> Result<f64> {
        let command = format!("\"$0\" stage in \"$1\"{STAY}");
        self.run(nodes, home, "ro", &["--to", "all"], &command, nodes as u64 * files)
    }

    /// Has a file of `bytes` bytes written on each of the first `nodes` nodes, and come home from so many of them at
    /// a time, or from as many as is usual. Gives the time in seconds.
    ///
    /// # Errors
    /// If a node was lost or a file did not come: what the job said.
    pub(super) fn stage_out(
        &self,
        nodes: usize,
        bytes: u64,
        concurrency: Option<usize>,
    ) -> Result<f64> {
        let home = self.empty_dir("home")?;
        let mut command = String::new();
        for host in (0..nodes).map(node) {
            let on_node = self.launch.replace("{host}", &host);
            let write = format!("sh -c 'head -c {bytes} /dev/zero > \"$0\"' \"$1\"/{host}");
            let _ = write!(command, "{} & ", on_node.replace("{command}", &write));
        }
        let _ = write!(command, "wait; \"$0\" stage sync{STAY}");
        let concurrency = concurrency.map(|nodes| nodes.to_string());
        let options = concurrency.iter().flat_map(|nodes| ["--out-concurrency", nodes]);
        let options: Vec<_> = options.collect();
        let time_s = self.run(nodes, &home, "out", &options, &command, nodes as u64)?;
        for host in (0..nodes).map(node) {
            let came = home.join(&host).metadata().context("a file is not at home")?.len();
            if came != bytes {
                bail!("{came} of {bytes} bytes have come from {host}");
            }
        }
        Ok(time_s)
    }

    /// Runs a job until so many files have come: a shell command that has the program and the mapped directory as
    /// `$0` and `$1`.
    fn run(
        &self,
        nodes: usize,
        home: &Path,
        kind: &str,
        options: &[&str],
        script: &str,
        files: u64,
    ) -> Result<f64> {
        let cache = self.empty_dir("cache")?;
        let (events, said) = (self.scratch.path("events.json"), self.scratch.path("job.log"));
        let hosts: Vec<_> = (0..nodes).map(node).collect();
        let mut map = home.as_os_str().to_owned();
        map.push(format!("={kind}"));
        let mut command = Command::new(&self.azekura);
        command.args(["stage", "run", "--hosts", &hosts.join(","), "--launch", &self.launch]);
        command.arg("--map").arg(map).arg("--cache").arg(cache).args(options);
        command.args(["--json", &events, "--", "sh", "-c", script]);
        command.arg(&self.azekura).arg(home);
        command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(File::create(&said)?);
        let mut job = Job(self.lab.spawn(SERVER, &mut command)?);
        let waited = job.wait_for(Path::new(&events), files);
        let time_s = waited.with_context(|| last_line(Path::new(&said)))?;
        if let Some(mut stdin) = job.0.stdin.take() {
            stdin.write_all(b"\n").context("cannot tell the job to end")?;
        }
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
    /// Waits until so many files have come; how long that took, in seconds.
    fn wait_for(&mut self, events: &Path, files: u64) -> Result<f64> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let is_over = self.0.try_wait()?.is_some();
            let progress = Progress::of(&fs::read_to_string(events).unwrap_or_default());
            if let Some(trouble) = progress.trouble {
                bail!("{trouble}");
            }
            if let Some(asked_s) = progress.asked_s.filter(|_| progress.files >= files) {
                return Ok(progress.last_s - asked_s);
            }
            if is_over || Instant::now() > deadline {
                bail!("{} of {files} files have come", progress.files);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_is_that_from_the_request_to_the_last_arrival() {
        let text = "{\"at_s\":0.1,\"event\":\"node-up\",\"node\":0,\"host\":\"n\"}\n\
            {\"at_s\":0.4,\"event\":\"in-asked\",\"paths\":1}\n\
            {\"at_s\":0.5,\"event\":\"content-begun\",\"files\":2}\n\
            {\"at_s\":0.6,\"event\":\"content-begun\",\"files\":1}\n\
            {\"at_s\":0.7,\"event\":\"content-coming\",\"bytes\":1}\n\
            {\"at_s\":0.7,\"event\":\"content-arrived\",\"files\":1}\n\
            {\"at_s\":0.9,\"event\":\"content-arrived\",\"files\":2}\n{\"at_s\":1.0,\"ev";
        let progress = Progress::of(text);
        assert_eq!(progress.asked_s, Some(0.4));
        assert_eq!((progress.files, progress.last_s, progress.trouble), (3, 0.9, None));
        let text = "{\"at_s\":0.5,\"event\":\"supplier-lost\"}\n";
        assert!(Progress::of(text).trouble.is_some());
    }

    #[test]
    fn files_are_at_home_when_all_of_them_are() {
        let text = "{\"at_s\":1.0,\"event\":\"out-asked\"}\n\
            {\"at_s\":1.5,\"event\":\"out-begun\",\"files\":2,\"bytes\":8}\n\
            {\"at_s\":2.0,\"event\":\"sent\",\"node\":0,\"files\":2,\"bytes\":8}\n";
        assert_eq!(Progress::of(text).files, 0);
        let text = format!(
            "{text}{{\"at_s\":2.5,\"event\":\"out-ended\",\"files\":2,\"bytes\":8,\"failed\":0}}\n"
        );
        let progress = Progress::of(&text);
        assert_eq!((progress.asked_s, progress.files, progress.last_s), (Some(1.0), 2, 2.5));
    }
}
