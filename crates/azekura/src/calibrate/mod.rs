//! `azekura calibrate`: measures a file system for forecasts. Owns what is run, for how long and with how
//! much data; what follows from the runs is the business of `azekura_forecast`. All files are made by the
//! workers of `bench batch`, which remove them whatever happens.

mod page_cache;
mod plan;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use azekura_forecast::calibration::Made;
use azekura_forecast::units::Bytes;
use azekura_forecast::{Beside, Calibration, Loops, Run, derive};
use clap::Args;

use self::plan::Group;
use crate::bench::batch::{
    Case, Crew, Measurement, NodeArgs, PROCESSES_MAX, Place, now, run_of, runs_of, software,
    this_machine,
};
use crate::host::interrupt::Interrupt;
use crate::host::mounts;
use crate::load::{Backend, CachesDropped};
use crate::outcome::{Verdict, usage};
use crate::reading::{ReadArgs, WriteArgs};
use crate::report::{self, Progress, format_bytes, parse_bytes};

/// Rounds that are wanted: fewer do not show what changes with time.
const ROUNDS_WANTED: u32 = 2;
/// More show little more.
const ROUNDS_MAX: u32 = 5;
/// Runs of a batch in each round, after one that does not count: memory that was not used for a while is
/// slow to come by, on a virtual machine ten times as slow, and a job of any length has it only once.
const RUNS_IN_ROUND: u32 = 2;
/// Making the input of the usual batch and all its runs of a round have this part of the time, so that all
/// rounds fit.
const BATCHES_IN_BUDGET: u32 = 110;
/// Sizes that are tried, from the smallest on, each four times the one before.
const LEAST_BYTES: u64 = 2 << 20;
/// Less than that is not tried, however little room there is.
const LITTLE_BYTES: u64 = 1 << 20;
const MOST_BYTES: u64 = 4 << 30;
/// The largest batch writes so many times the usual size, and has its input beside it.
const ROOM_TIMES: u64 = 4;
/// Files of the loops over names.
const NAMES: u64 = 200;

/// `azekura calibrate`.
#[derive(Debug, Args)]
#[command(after_long_help = "Example:\n  \
    azekura calibrate /data -o data.toml\n  \
    azekura calibrate default -o pool.toml --budget 10m --processes 16\n\n\
    Runs the batch I/O program (see 'azekura bench batch') with files of its own, which it removes, and \
    writes what 'azekura forecast --fs' reads. A place that is a directory is taken as one, else as a pool.")]
pub(crate) struct CalibrateArgs {
    /// Directory, on any file system, or POOL or POOL/CONTAINER
    #[arg(value_name = "DIR|POOL")]
    place: String,
    /// File to write
    #[arg(long, short = 'o', value_name = "FS.toml")]
    output: PathBuf,
    /// Name of what is measured [default: the place]
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Longest time: 90s, 3m, 1h
    #[arg(long, default_value = "3m", value_parser = parse_duration, value_name = "TIME")]
    budget: Duration,
    /// Most data that are read and written in all
    #[arg(long, default_value = "256GiB", value_parser = parse_bytes, value_name = "SIZE")]
    bytes: u64,
    /// Data read by the usual run [default: what takes a small part of the time]
    #[arg(long, value_parser = parse_bytes, value_name = "SIZE")]
    size: Option<u64>,
    /// Length of a record
    #[arg(long, value_parser = parse_bytes, default_value = "1KiB", value_name = "SIZE")]
    record: u64,
    /// Length of the application's buffer of each file
    #[arg(long, value_parser = parse_bytes, default_value = "2MiB", value_name = "SIZE")]
    buffer: u64,
    /// Most processes of a node; 1, 2, 4 .. are measured
    #[arg(long, short = 'p', default_value_t = 8, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(PROCESSES_MAX)))]
    processes: u32,
    #[command(flatten)]
    nodes: NodeArgs,
    #[command(flatten)]
    reading: ReadArgs,
    #[command(flatten)]
    write: WriteArgs,
    /// Write the measured runs to this file, as 'azekura bench batch --json' does
    #[arg(long, value_name = "RUN.json")]
    runs: Option<PathBuf>,
}

fn parse_duration(text: &str) -> Result<Duration, String> {
    let end = text.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let seconds = match unit {
        "" | "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => 0,
    };
    match number.parse::<u64>().ok().and_then(|number| number.checked_mul(seconds)) {
        Some(seconds) if seconds > 0 => Ok(Duration::from_secs(seconds)),
        _ => Err(format!("'{text}' is not a time: write 90s, 3m or 1h")),
    }
}

/// A batch with all that was measured of it.
struct Sample {
    case: Case,
    measurements: Vec<Measurement>,
    dropped: Option<CachesDropped>,
}

/// A calibration while it goes on.
struct Work<'a> {
    crew: Crew,
    until: Instant,
    bytes_left: u64,
    interrupt: &'a Interrupt,
    samples: Vec<Sample>,
    beside: Beside,
}

/// What the least calibration moves: nothing follows from fewer batches than the first two.
fn least_bytes(args: &CalibrateArgs) -> u64 {
    let runs = u64::from(1 + RUNS_IN_ROUND);
    // The input; then as much is written as is read, and nothing.
    let first = 1 + runs * (2 + 1);
    let tries = 2 * (1 + runs * 2);
    args.size.map_or(LITTLE_BYTES * (tries + first), |size| size.saturating_mul(first))
}

/// Calibrates and writes the file.
///
/// # Errors
/// If the bounds are less than any calibration takes, the place cannot be reached, there is no room, or an operation fails; nothing is left then.
pub(crate) fn run(args: &CalibrateArgs) -> Result<Verdict> {
    // What no length of input makes right.
    plan::usual(args.record, args.record, args.buffer).check()?;
    let least = least_bytes(args);
    if args.bytes < least {
        return Err(usage(format!(
            "--bytes: the least that a calibration moves is {}: allow that, or more",
            format_bytes(least)
        )));
    }
    let place = Place::of(&args.place)?;
    let (backend, target) = place.backend(&args.reading.writing(&args.write))?;
    for file in std::iter::once(&args.output).chain(&args.runs) {
        report::check_result_file(file)?;
    }
    let interrupt = Interrupt::watch()?;
    let measured = measure(args, &backend, &target, &interrupt);
    if let Some(code) = interrupt.exit_code() {
        report::note("azekura: interrupted; the files of the calibration are removed");
        return Ok(Verdict::Ended(code));
    }
    let (runs, beside) = measured?;
    if let Some(file) = &args.runs {
        let text = serde_json::to_string_pretty(&runs_of(&target, runs.clone()))?;
        report::write_result_file(file, &text)?;
    }
    let name = args.name.clone().unwrap_or_else(|| target.clone());
    let calibration = derive(&name, made(args, &backend, &target), &runs, &beside)
        .context("too little was measured: give it more time by --budget, or more by --bytes")?;
    report::write_result_file(&args.output, &calibration.to_toml())?;
    say(&calibration, &runs, args);
    Ok(Verdict::Good)
}

fn made(args: &CalibrateArgs, backend: &Backend, target: &str) -> Made {
    let (file_system, mount_options) = match backend {
        Backend::Path(dir) => mounts::kind_of(Path::new(dir)).unwrap_or_default(),
        Backend::Pool { .. } => ("azekura".to_owned(), String::new()),
    };
    Made {
        machine: this_machine(),
        date: now(),
        software: software(),
        target: target.to_owned(),
        file_system,
        mount_options,
        record_bytes: Bytes(args.record),
        buffer_bytes: Bytes(args.buffer),
    }
}

fn say(calibration: &Calibration, runs: &[Run], args: &CalibrateArgs) {
    let rounds = runs.iter().map(|run| run.seconds.len()).max().unwrap_or(0);
    let bytes =
        runs.iter().filter_map(|run| run.job.phases.first()).map(|phase| phase.bytes_in.0).max();
    report::say(format_args!(
        "{}: {} batches, {rounds} rounds, runs of {}; the model is off by {:.1} % of its own runs' times",
        args.output.display(),
        runs.len(),
        format_bytes(bytes.unwrap_or(0)),
        100.0 * calibration.model.residual
    ));
    report::say(format_args!(
        "T_SR {:.1} MiB/s, T_SW {:.1} MiB/s",
        calibration.sequential.read_mib_per_s.number(),
        calibration.sequential.write_mib_per_s.number()
    ));
    let costs = [
        ("C_C", calibration.metadata.split_s_per_file),
        ("C_O", calibration.metadata.merge_s_per_file),
    ];
    for (name, cost) in costs {
        if let Some(cost) = cost {
            report::say(format_args!("{name} {:.6} s/file", cost.number()));
        }
    }
}

fn measure(
    args: &CalibrateArgs,
    backend: &Backend,
    target: &str,
    interrupt: &Interrupt,
) -> Result<(Vec<Run>, Beside)> {
    let began = Instant::now();
    let crew = args.nodes.start(backend, args.processes, interrupt)?;
    let mut work = Work {
        crew,
        until: began + args.budget,
        bytes_left: args.bytes,
        interrupt,
        samples: Vec::new(),
        beside: Beside { taken_in_mib: taken_in(backend), ..Beside::default() },
    };
    let measured = work.measure(args);
    let Work { crew, samples, beside, .. } = work;
    crew.end(&format!("the calibration of {target}"), measured)?;
    let runs =
        samples.iter().map(|one| run_of(&one.case, &one.measurements, one.dropped)).collect();
    Ok((runs, beside))
}

fn taken_in(backend: &Backend) -> Option<f64> {
    match backend {
        Backend::Path(dir) => page_cache::taken_in_mib(Path::new(dir)),
        Backend::Pool { .. } => None,
    }
}

impl Work<'_> {
    /// Round after round, as long as there is time.
    fn measure(&mut self, args: &CalibrateArgs) -> Result<()> {
        let usual = self.find_size(args)?;
        let groups =
            plan::groups(&usual, args.processes, self.crew.nodes(), this_machine().processors);
        let mut progress =
            Progress::count("calibrating", groups.len() as u64 * u64::from(ROUNDS_WANTED));
        let mut rounds = 0;
        loop {
            let round_began = Instant::now();
            if !self.round(&usual, &groups, &mut progress)? {
                break;
            }
            rounds += 1;
            let fits = Instant::now() + round_began.elapsed() <= self.until;
            if rounds >= ROUNDS_MAX || !fits {
                break;
            }
            if rounds >= ROUNDS_WANTED {
                progress.extend(groups.len() as u64);
            }
        }
        Ok(())
    }

    /// A size with which the usual run takes its part of the time.
    fn find_size(&mut self, args: &CalibrateArgs) -> Result<Case> {
        let usual = |bytes| plan::usual(bytes, args.record, args.buffer);
        let info = rustix::system::sysinfo();
        let memory = info.totalram as u64 * u64::from(info.mem_unit);
        if let Some(bytes) = args.size {
            let case = usual(bytes);
            case.check()?;
            self.check_room(&case)?;
            return Ok(case);
        }
        // The largest batch writes far less than a kernel holds back.
        let most = (memory / 32).min(args.bytes / 800).clamp(LITTLE_BYTES, MOST_BYTES);
        let room = self.check_room(&usual(LITTLE_BYTES))?;
        // With some to spare: what was removed may be free a while later.
        let most = most.min(room / (ROOM_TIMES + 1));
        let mut wanted = args.budget.as_secs_f64() / f64::from(BATCHES_IN_BUDGET);
        let least = LEAST_BYTES.min(most);
        // The first of all is slower than any other.
        self.try_size(&usual(least))?;
        let mut before = (least, self.try_size(&usual(least))?);
        let mut now = before;
        while now.1 < wanted && now.0 < most && !self.is_over(1) {
            before = now;
            now.0 = (4 * now.0).min(most);
            now.1 = self.try_size(&usual(now.0))?;
            if before.0 == least {
                // What does not grow with the size, as dropping caches, is not to be most of it.
                let fixed = before.1 - least as f64 * slope(before, now);
                wanted = wanted.max(2.0 * fixed);
            }
        }
        let bytes = before.0 as f64 + ((wanted - before.1) / slope(before, now)).max(0.0);
        Ok(usual((bytes as u64).clamp(least, now.0)))
    }

    /// Seconds of all that is done for a usual batch of this size.
    fn try_size(&mut self, case: &Case) -> Result<f64> {
        case.check().map_err(|_| usage("--record is larger than what can be read in this time"))?;
        self.check_room(case)?;
        let began = Instant::now();
        self.group(&Group { cases: vec![case.clone()] })?;
        self.samples.clear();
        Ok(began.elapsed().as_secs_f64())
    }

    /// Whether the largest batch that follows from this one has room; all that there is, in bytes.
    fn check_room(&mut self, usual: &Case) -> Result<u64> {
        let largest = Case { ratio: ROOM_TIMES as f64 - 1.0, ..usual.clone() };
        self.crew.check_room(&largest)
    }

    /// Whether time is at an end, or so many bytes are more than what is left of them.
    fn is_over(&self, bytes: u64) -> bool {
        Instant::now() >= self.until || self.bytes_left < bytes
    }

    /// Measures each group once; false if time or bytes are at an end.
    fn round(&mut self, usual: &Case, groups: &[Group], progress: &mut Progress) -> Result<bool> {
        for group in groups {
            if self.is_over(1) {
                return Ok(false);
            }
            self.group(group)?;
            progress.advance(1);
        }
        self.beside(usual)?;
        Ok(true)
    }

    fn group(&mut self, group: &Group) -> Result<()> {
        let Some(input) = group.cases.first() else { return Ok(()) };
        if self.is_over(input.read_bytes()) {
            return Ok(());
        }
        self.crew.make_input(input)?;
        self.take(input.read_bytes());
        for case in &group.cases {
            if self.interrupt.came() {
                break;
            }
            let (dropped, measurements) = self.runs(case)?;
            if measurements.is_empty() {
                continue;
            }
            match self.samples.iter_mut().find(|sample| sample.case == *case) {
                Some(sample) => sample.measurements.extend(measurements),
                None => self.samples.push(Sample { case: case.clone(), measurements, dropped }),
            }
        }
        self.crew.clear(input)
    }

    /// The runs of a batch in one round, without the first; fewer at the end of time or bytes.
    fn runs(&mut self, case: &Case) -> Result<(Option<CachesDropped>, Vec<Measurement>)> {
        let mut dropped = None;
        let mut measurements = Vec::new();
        let bytes = case.read_bytes() + case.written_bytes();
        for run in 0..=RUNS_IN_ROUND {
            if self.is_over(bytes) {
                break;
            }
            dropped = self.crew.prepare(case)?;
            let measurement = self.crew.measure(case)?;
            self.take(bytes);
            if run > 0 {
                measurements.push(measurement);
            }
        }
        Ok((dropped, measurements))
    }

    fn take(&mut self, bytes: u64) {
        self.bytes_left = self.bytes_left.saturating_sub(bytes);
    }

    /// What the storage takes once memory does not: what making a file durable that was just written comes to.
    fn sustained(&mut self, usual: &Case) -> Result<()> {
        if self.beside.taken_in_mib.is_none() {
            return Ok(());
        }
        let spent = self.crew.measure(&Case { fsync: true, ..usual.clone() })?.spent;
        self.take(usual.read_bytes() + usual.written_bytes());
        let rate = Bytes(usual.written_bytes()).mib() / (spent.sync_s + spent.close_s);
        if rate.is_finite() {
            self.beside.sustained_write.push(rate);
        }
        Ok(())
    }

    /// Random requests, writing through to the storage, and loops over names.
    fn beside(&mut self, usual: &Case) -> Result<()> {
        // The input, writing through, and random requests.
        if self.is_over(6 * usual.read_bytes()) {
            return Ok(());
        }
        self.crew.make_input(usual)?;
        self.sustained(usual)?;
        self.crew.prepare(usual)?;
        let (read, write) = self.crew.random(usual)?;
        self.beside.random_read.extend(read);
        self.beside.random_write.extend(write);
        self.take(4 * usual.read_bytes());
        self.crew.clear(usual)?;
        let mut crews: Vec<(u32, u32)> =
            self.samples.iter().map(|one| (one.case.nodes, one.case.processes)).collect();
        crews.sort_unstable();
        crews.dedup();
        for (nodes, processes) in crews {
            let bytes_in = usual.record_bytes * NAMES * u64::from(nodes) * u64::from(processes);
            let case = Case { bytes_in, processes, nodes, ..usual.clone() };
            if self.is_over(case.read_bytes()) {
                return Ok(());
            }
            self.crew.make_input(&case)?;
            self.take(case.read_bytes());
            let names = self.crew.names(&case, NAMES)?;
            self.crew.clear(&case)?;
            let crew = (nodes, processes);
            let known = self.beside.loops.iter().position(|one| one.crew == crew);
            let index = known.unwrap_or(self.beside.loops.len());
            if known.is_none() {
                self.beside.loops.push(Loops { crew, ..Loops::default() });
            }
            let loops = &mut self.beside.loops[index];
            loops.create_s.push(names.create_s);
            loops.stat_s.push(names.stat_s);
            loops.open_s.push(names.open_s);
            loops.unlink_s.push(names.unlink_s);
        }
        Ok(())
    }
}

/// Seconds for each byte more.
fn slope((bytes, seconds): (u64, f64), (more_bytes, more_seconds): (u64, f64)) -> f64 {
    let slope = (more_seconds - seconds) / (more_bytes as f64 - bytes as f64).max(1.0);
    slope.max(f64::MIN_POSITIVE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_with_their_units() {
        assert_eq!(parse_duration("90"), Ok(Duration::from_secs(90)));
        assert_eq!(parse_duration("3m"), Ok(Duration::from_secs(180)));
        assert_eq!(parse_duration("1h"), Ok(Duration::from_secs(3600)));
        for text in ["", "m", "0s", "3 m", "-1s", "1d", "99999999999999999999s"] {
            assert!(parse_duration(text).is_err(), "{text}");
        }
    }
}
