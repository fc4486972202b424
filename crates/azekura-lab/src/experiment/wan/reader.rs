//! The reading program of an experiment, in a process of its own in the host `client`: reads one file
//! by one pattern and one policy, in whole turns, and says what came of it. Its requests are learned from
//! the trace that the file system writes, so that nothing is measured that users could not see.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use azekura::{connect, report};
use azekura_client::Objects as _;
use azekura_posix::{
    ClientError, Credentials, FileSystem, FsConfig, Namespace, OFlags, OpenOptions, Pool,
    ReadPolicy, Trace, TraceRecord,
};
use azekura_proto::attr::Inheritance;
use azekura_proto::message::typed::ContainerCreate;
use azekura_proto::{ObjectClass, Status, TargetId};
use clap::{Args, ValueEnum};
use serde::{Deserialize, Serialize};

use super::pattern::{Extent, Made, Pattern};

/// The hidden command that the reading process runs.
pub(crate) const READER_COMMAND: &str = "experiment-reader";
/// Places at the end of a new file that get a byte each, so that every shard is as long as it can be
/// and its holes are sent as zeros.
const WRITTEN_CHUNKS: u64 = 16;
const CHUNK_BYTES: u64 = 1 << 20;
/// Containers whose files lie on one target, as the paper's, and on all of them.
const CONTAINER: &str = "far";
const STRIPED_CONTAINER: &str = "far-striped";

/// What the reading program is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Task {
    /// Make the file, in both containers
    Make,
    /// Write to the file, in the container that the policy reads
    Write,
    /// Read it
    Read,
}

/// The hidden command's arguments.
#[derive(Debug, Args)]
pub(crate) struct ReaderArgs {
    /// The pool file
    #[arg(long)]
    pool: String,
    #[arg(long)]
    pattern: String,
    /// Length of the file
    #[arg(long)]
    file_bytes: u64,
    /// Turns of the pattern that are read
    #[arg(long)]
    turns: u64,
    #[arg(long)]
    task: Task,
    #[arg(long)]
    policy: String,
    /// The parameter p of sync-adaptive
    #[arg(long)]
    p: Option<u32>,
    /// Stop after this time
    #[arg(long, default_value_t = u64::MAX)]
    limit_ms: u64,
    /// Stop after as many requests
    #[arg(long, default_value_t = u64::MAX)]
    requests: u64,
    #[arg(long)]
    trace: PathBuf,
}

/// What was read, and how.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Reading {
    /// Bytes that the pattern wanted and got.
    pub(super) useful_bytes: u64,
    /// From the first call to the end of the last.
    pub(super) seconds: f64,
    /// Requests, or ranges of plans.
    pub(super) requests: u64,
    /// Bytes asked for.
    pub(super) asked_bytes: u64,
    /// The size at which most time was spent in the second half.
    pub(super) settled_bytes: u64,
    /// The round trip as the client saw it at the end, in microseconds.
    pub(super) round_trip_us: u64,
    /// Bytes that the pattern got in each second.
    pub(super) by_second: Vec<u64>,
}

impl Reading {
    /// Useful bytes per second, in MB/s.
    pub(super) fn mb_per_s(&self) -> f64 {
        self.useful_bytes as f64 / 1e6 / self.seconds.max(1e-9)
    }
}

/// Reads a trace while it is written.
struct Tail {
    file: File,
    rest: String,
    lines: Vec<TraceRecord>,
}

/// When bytes of the pattern came.
struct Seconds {
    started: Instant,
    bytes: Vec<u64>,
}

impl Seconds {
    fn add(&mut self, bytes: u64) {
        let second = self.started.elapsed().as_secs() as usize;
        if self.bytes.len() <= second {
            self.bytes.resize(second + 1, 0);
        }
        self.bytes[second] += bytes;
    }
}

impl Tail {
    fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        Ok(Self { file, rest: String::new(), lines: Vec::new() })
    }

    /// Takes what has been written since.
    fn follow(&mut self) -> Result<()> {
        self.file.read_to_string(&mut self.rest).context("cannot read the trace")?;
        while let Some(end) = self.rest.find('\n') {
            self.lines.push(self.rest[..end].parse().context("not a line of a trace")?);
            self.rest.drain(..=end);
        }
        Ok(())
    }
}

/// The size of window at which most time was spent in the second half of the time; 0 without any.
fn settled_bytes(lines: &[TraceRecord]) -> u64 {
    let (Some(first), Some(last)) = (lines.first(), lines.last()) else { return 0 };
    let middle_us = u64::midpoint(first.us, last.us);
    let mut spent: Vec<(u64, u64)> = Vec::new();
    for pair in lines.windows(2) {
        let us = pair[1].us.saturating_sub(pair[0].us.max(middle_us));
        match spent.iter_mut().find(|(bytes, _)| *bytes == pair[0].window_bytes) {
            Some((_, sum_us)) => *sum_us += us,
            None => spent.push((pair[0].window_bytes, us)),
        }
    }
    spent.iter().max_by_key(|(_, us)| *us).map_or(last.window_bytes, |(bytes, _)| *bytes)
}

fn policy_of(args: &ReaderArgs) -> Result<ReadPolicy> {
    let mut policy: ReadPolicy = args.policy.parse()?;
    match (&mut policy, args.p) {
        (_, None) => {}
        (ReadPolicy::SyncAdaptive(parameters), Some(p)) => parameters.p = p,
        (other, Some(_)) => bail!("the policy {other} has no parameter p"),
    }
    Ok(policy)
}

/// Makes a container, unless it is there.
fn make_container(pool: &Pool, name: &str, file_class: ObjectClass) -> Result<()> {
    match pool.container_open(name) {
        Ok(_) => Ok(()),
        Err(ClientError::Status(Status::NotFound)) => {
            let inheritance = Inheritance {
                file_class,
                chunk_bytes: CHUNK_BYTES as u32,
                ..Inheritance::default()
            };
            let request = ContainerCreate { name: name.to_owned(), inheritance };
            pool.call(TargetId(0), request).context("cannot make a container")?;
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// The file that is read: of those of one length there is one that was written to, and one that was not.
pub(super) fn path_of(pattern: Pattern, bytes: u64) -> String {
    match pattern.made() {
        Made::Once | Made::EachTime => format!("/holes.{bytes}"),
        Made::Truncated => format!("/truncated.{bytes}"),
    }
}

/// Makes the file of holes that is read, unless it is there.
fn make_file(names: &Namespace, path: &str, bytes: u64, is_written: bool) -> Result<()> {
    if names.metadata(path).is_ok_and(|attr| attr.size == bytes) {
        return Ok(());
    }
    let options = OpenOptions::new(OFlags::RDWR | OFlags::CREATE, 0o600);
    let file = names.open(path, &options).with_context(|| format!("cannot make {path}"))?;
    file.set_len(bytes).with_context(|| format!("cannot lengthen {path}"))?;
    if is_written { write_ends(&file, path, bytes) } else { Ok(()) }
}

/// Writes to the last chunks of the file.
fn write_ends(file: &azekura_posix::File, path: &str, bytes: u64) -> Result<()> {
    for chunk in 0..WRITTEN_CHUNKS {
        let Some(at) = (bytes - 1).checked_sub(chunk * CHUNK_BYTES) else { break };
        file.write_all_at(&[0], at).with_context(|| format!("cannot write {path}"))?;
    }
    Ok(())
}

/// Reads, and prints what came of it as one line of JSON.
///
/// # Errors
/// If the file cannot be made or read.
pub(crate) fn read(args: &ReaderArgs) -> Result<()> {
    let pattern = Pattern::named(&args.pattern).context("no such pattern")?;
    let pool = connect::pool(&args.pool)?;
    let path = path_of(pattern, args.file_bytes);
    if args.task == Task::Make {
        return make(&pool, &path, args.file_bytes, pattern.made() != Made::Truncated);
    }
    let config = FsConfig {
        read_policy: policy_of(args)?,
        trace: Some(Trace::append_to(&args.trace, None)?),
        ..FsConfig::default()
    };
    let is_single = config.read_policy.is_one_at_a_time();
    let container = if is_single { CONTAINER } else { STRIPED_CONTAINER };
    let fs = FileSystem::mount(pool, container, config)?;
    let names = names_of(&fs);
    let reading = if args.task == Task::Write {
        write(&names, &path, args.file_bytes)?;
        Reading::default()
    } else {
        read_file(args, pattern, &names, &path)?
    };
    report::say(serde_json::to_string(&reading)?);
    Ok(())
}

fn names_of(fs: &Arc<FileSystem>) -> Namespace {
    Namespace::new(Arc::clone(fs), Credentials::of_process())
}

/// Writes to the file.
fn write(names: &Namespace, path: &str, bytes: u64) -> Result<()> {
    let options = OpenOptions::new(OFlags::RDWR, 0);
    let file = names.open(path, &options).with_context(|| format!("cannot open {path}"))?;
    write_ends(&file, path, bytes)
}

/// Makes the file in both containers.
fn make(pool: &Arc<Pool>, path: &str, bytes: u64, is_written: bool) -> Result<()> {
    for (name, class) in [(CONTAINER, ObjectClass::S1), (STRIPED_CONTAINER, ObjectClass::SX)] {
        make_container(pool, name, class)?;
        let fs = FileSystem::mount(Arc::clone(pool), name, FsConfig::default())?;
        make_file(&names_of(&fs), path, bytes, is_written)?;
    }
    report::say(serde_json::to_string(&Reading::default())?);
    Ok(())
}

fn read_file(
    args: &ReaderArgs,
    pattern: Pattern,
    names: &Namespace,
    path: &str,
) -> Result<Reading> {
    let file = names
        .open(path, &OpenOptions::read_only())
        .with_context(|| format!("cannot open {path}"))?;
    let mut tail = Tail::open(&args.trace)?;
    let mut buffer = vec![0; Pattern::call_bytes_max()];
    let limit = Duration::from_millis(args.limit_ms);
    let mut useful_bytes = 0;
    let mut seconds = Seconds { started: Instant::now(), bytes: Vec::new() };
    let extent = Extent { file_bytes: args.file_bytes, turns: args.turns };
    for call in pattern.calls(extent, 1) {
        if seconds.started.elapsed() >= limit || tail.lines.len() as u64 >= args.requests {
            break;
        }
        let into = &mut buffer[..call.bytes as usize];
        let mut done = 0;
        while done < into.len() {
            let got = file.read_at(&mut into[done..], call.offset + done as u64)?;
            if got == 0 {
                bail!("{path} ends at {}", call.offset + done as u64);
            }
            done += got;
        }
        useful_bytes += call.bytes;
        seconds.add(call.bytes);
        tail.follow()?;
    }
    let elapsed_s = seconds.started.elapsed().as_secs_f64();
    let lines = &tail.lines;
    Ok(Reading {
        useful_bytes,
        seconds: elapsed_s,
        requests: lines.iter().map(|asked| asked.ranges).sum(),
        asked_bytes: lines.iter().map(|asked| asked.bytes).sum(),
        settled_bytes: settled_bytes(lines),
        round_trip_us: lines.last().map_or(0, |asked| asked.round_trip_us),
        by_second: seconds.bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(us: u64, window_bytes: u64) -> TraceRecord {
        let line = r#"{"pid":1,"us":7,"object":"0a","policy":"fixed","read_offset":0,"read_bytes":1,"offset":100,"bytes":50,"ranges":1,"utilisation":null,"decision":"first","round_trip_us":9,"bytes_per_second":1,"window_bytes":64,"held_bytes":50,"hit_bytes":0,"wasted_bytes":0}"#;
        TraceRecord { us, window_bytes, ..line.parse().unwrap() }
    }

    #[test]
    fn the_size_is_the_one_that_took_most_of_the_second_half() {
        assert_eq!(settled_bytes(&[]), 0);
        assert_eq!(settled_bytes(&[asked(5, 64)]), 64);
        let lines = [asked(0, 1), asked(50, 2), asked(60, 4), asked(90, 8), asked(100, 2)];
        assert_eq!(settled_bytes(&lines), 4, "30 us, against 10 us each");
    }

    #[test]
    fn half_a_line_of_a_trace_waits_for_its_end() {
        let path = tempfile::NamedTempFile::new().unwrap();
        let mut tail = Tail::open(path.path()).unwrap();
        let line = serde_json::to_string(&asked(7, 64)).unwrap();
        std::fs::write(path.path(), format!("{line}\n{{\"pid\"")).unwrap();
        tail.follow().unwrap();
        assert_eq!(tail.lines.len(), 1, "half a line waits");
    }
}
