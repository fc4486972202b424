//! From what was recorded to the job that a forecast takes. Owns every judgement on the way: which processes
//! and files are the job, which pattern they follow, and how many processes ran at a time. What a judgement
//! rests on stands as a comment in the text that people edit.

use std::fmt::Write as _;

use azekura_forecast::job::{Access, Caches, Job, Operations, Order, Pattern, Per, Phase};
use azekura_forecast::units::{Bytes, Seconds};

use super::usage::{FileUsage, Moved, ProcessUsage, Usage};

/// Files and processes that hold no more than this share of the bytes together are not what a job is about:
/// configuration, messages, the shell around it.
const MINOR_SHARE: f64 = 0.01;
/// Each of them is so many times smaller than the least that a job is about: of many files that are alike none is
/// less than the others.
const MINOR_TIMES: u64 = 10;
/// A pattern is that of the job if processes with this share of the bytes follow it.
const PATTERN_SHARE: f64 = 0.9;
/// Fewer requests than this share went on where the last had ended: access is random.
const RANDOM_BELOW: f64 = 0.5;
/// From this share on a size is the size of records; below it the mean is.
const COMMON_SHARE: f64 = 0.5;
/// A buffer where no request was seen, as of a mapping: a page, in bytes.
const SIZE_FALLBACK: u64 = 4096;

/// Why there is no job in what was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NoJob {
    /// No process could be seen.
    NoProcess,
    /// Processes were seen, but no data and no names.
    NoData,
    /// The numbers contradict each other.
    Impossible,
}

/// Part of a job: a process whose data are worth telling.
struct Worker<'a> {
    process: &'a ProcessUsage,
    inputs: Vec<&'a FileUsage>,
    outputs: Vec<&'a FileUsage>,
}

impl Worker<'_> {
    fn bytes_in(&self) -> u64 {
        self.inputs.iter().map(|file| file.bytes_in()).sum()
    }

    fn bytes_out(&self) -> u64 {
        self.outputs.iter().map(|file| file.written.bytes).sum()
    }

    fn pattern(&self) -> Pattern {
        match (self.inputs.len(), self.outputs.len()) {
            (0 | 1, 0 | 1) => Pattern::Simple,
            (1, _) => Pattern::Split,
            (_, 1) => Pattern::Merge,
            _ => Pattern::Other,
        }
    }

    /// Whether records went over files in turn, as the pattern goes.
    fn takes_turns(&self, pattern: Pattern) -> bool {
        let (way, files) = match pattern {
            Pattern::Split => (1, self.outputs.len()),
            Pattern::Merge => (0, self.inputs.len()),
            Pattern::Simple | Pattern::Other => return false,
        };
        let (records, switches) = (self.process.records[way], self.process.switches[way]);
        // By chance every record but one of so many files is of another than the one before.
        let files = files.max(2) as f64;
        records > 0 && switches as f64 / records as f64 > 0.5 * (1.0 - 1.0 / files)
    }
}

/// Those that are not minor, the largest first.
fn major<T>(mut all: Vec<T>, bytes: impl Fn(&T) -> u64) -> Vec<T> {
    all.retain(|one| bytes(one) > 0);
    all.sort_by_key(|one| std::cmp::Reverse(bytes(one)));
    let sizes: Vec<u64> = all.iter().map(&bytes).collect();
    let most = (sizes.iter().sum::<u64>() as f64 * MINOR_SHARE) as u64;
    let mut left_out = 0;
    for (place, pair) in sizes.windows(2).enumerate().rev() {
        left_out += pair[1];
        if left_out > most {
            break;
        }
        if pair[0] / MINOR_TIMES >= pair[1] {
            all.truncate(place + 1);
        }
    }
    all
}

/// Not the program itself: modules that Python has compiled, and loads as the loader does libraries.
fn is_data(file: &FileUsage) -> bool {
    !file.path.contains("/__pycache__/")
}

fn workers(usage: &Usage) -> Vec<Worker<'_>> {
    let all = usage.processes.iter().map(|process| Worker {
        process,
        inputs: major(process.files.iter().filter(|file| is_data(file)).collect(), |file| {
            file.bytes_in()
        }),
        outputs: major(process.files.iter().collect(), |file| file.written.bytes),
    });
    major(all.collect(), |worker| worker.bytes_in() + worker.bytes_out())
}

/// How many ran at a time, on average over the time in which any did.
fn at_a_time(workers: &[Worker<'_>]) -> u32 {
    let mut spans: Vec<(f64, f64)> = workers
        .iter()
        .map(|worker| (worker.process.start_s, worker.process.start_s + worker.process.wall_s))
        .collect();
    spans.sort_by(|one, other| one.0.total_cmp(&other.0));
    let busy: f64 = spans.iter().map(|(start, end)| end - start).sum();
    let mut covered = 0.0;
    let mut reached = f64::NEG_INFINITY;
    for (start, end) in spans {
        covered += (end - reached.max(start)).max(0.0);
        reached = reached.max(end);
    }
    let average = if covered > 0.0 { (busy / covered).round() } else { 1.0 };
    (average as u32).clamp(1, u32::try_from(workers.len()).unwrap_or(u32::MAX).max(1))
}

/// The pattern that the job follows.
fn pattern(workers: &[Worker<'_>]) -> Pattern {
    let bytes = |worker: &Worker<'_>| (worker.bytes_in() + worker.bytes_out()) as f64;
    let total: f64 = workers.iter().map(bytes).sum();
    [Pattern::Simple, Pattern::Split, Pattern::Merge]
        .into_iter()
        .find(|pattern| {
            let follow = workers.iter().filter(|worker| worker.pattern() == *pattern);
            total > 0.0 && follow.map(bytes).sum::<f64>() >= PATTERN_SHARE * total
        })
        .unwrap_or(Pattern::Other)
}

/// The size that most of what was counted has, or the mean; none if there was nothing.
fn size<'a>(all: impl Iterator<Item = (&'a [(u64, u64)], u64, u64)>) -> Option<u64> {
    let mut counted = std::collections::BTreeMap::new();
    let (mut number, mut bytes) = (0_u64, 0_u64);
    for (sizes, count, moved) in all {
        number += count;
        bytes += moved;
        for (size, count) in sizes {
            *counted.entry(*size).or_insert(0_u64) += count;
        }
    }
    if number == 0 {
        return None;
    }
    let (size, count) = counted.into_iter().max_by_key(|(_, count)| *count).unwrap_or_default();
    let is_common = count as f64 >= COMMON_SHARE * number as f64;
    Some(if is_common { size } else { bytes.div_ceil(number) }.max(1))
}

/// Reading if the job reads, else writing: the way that records are counted by.
fn main_way<'a>(workers: &'a [Worker<'_>], reads: bool) -> impl Iterator<Item = &'a Moved> {
    workers.iter().flat_map(move |worker| {
        let files = if reads { &worker.inputs } else { &worker.outputs };
        files.iter().map(move |file| if reads { &file.read } else { &file.written })
    })
}

/// The job in what was recorded.
///
/// # Errors
/// Why there is none.
pub(super) fn of(usage: &Usage) -> Result<Job, NoJob> {
    if usage.processes.is_empty() {
        return Err(NoJob::NoProcess);
    }
    let workers = workers(usage);
    let operations = operations(usage);
    if workers.is_empty() && operations == Operations::default() {
        return Err(NoJob::NoData);
    }
    let phase = phase(usage, &workers, operations);
    let job = Job {
        format: azekura_forecast::job::FORMAT,
        name: usage.command.clone(),
        processes: usage.at_a_time.unwrap_or_else(|| at_a_time(&workers)).max(1),
        nodes: 1,
        phases: vec![phase],
    };
    job.check().map_err(|_| NoJob::Impossible)?;
    Ok(job)
}

fn operations(usage: &Usage) -> Operations {
    let sum = |which: fn(&ProcessUsage) -> u64| usage.processes.iter().map(which).sum::<u64>();
    let create = sum(|process| process.names.creates + process.names.makes);
    let opened = sum(|process| process.names.opens);
    Operations {
        create,
        open: opened.saturating_sub(sum(|process| process.names.creates)),
        stat: sum(|process| process.names.looks + process.names.failed_opens),
        close: opened,
        unlink: sum(|process| process.names.removes),
    }
}

fn phase(usage: &Usage, workers: &[Worker<'_>], operations: Operations) -> Phase {
    let bytes_in: u64 = workers.iter().map(Worker::bytes_in).sum();
    let bytes_out: u64 = workers.iter().map(Worker::bytes_out).sum();
    let files_in: u64 = workers.iter().map(|worker| worker.inputs.len() as u64).sum();
    let files_out: u64 = workers.iter().map(|worker| worker.outputs.len() as u64).sum();
    let pattern = pattern(workers);
    let reads = bytes_in > 0;
    let records = main_way(workers, reads)
        .map(|moved| (moved.record_sizes.as_slice(), moved.records, moved.record_bytes));
    let requests =
        main_way(workers, reads).map(|moved| (moved.sizes.as_slice(), moved.requests, moved.bytes));
    let buffer = size(requests).unwrap_or(SIZE_FALLBACK);
    // No more than the smaller way holds for each of its files: a forecast counts a record for each.
    let holds = |bytes: u64, files: u64| if bytes == 0 { u64::MAX } else { bytes / files.max(1) };
    let most = holds(bytes_in, files_in).min(holds(bytes_out, files_out)).max(1);
    let record = size(records).unwrap_or(buffer).clamp(1, most);
    let (all, going_on) = workers.iter().fold((0, 0), |sum, worker| {
        let read = worker.inputs.iter().map(|file| &file.read);
        let written = worker.outputs.iter().map(|file| &file.written);
        read.chain(written)
            .fold(sum, |sum, moved| (sum.0 + moved.requests, sum.1 + moved.sequential))
    });
    let is_random = all > 0 && (going_on as f64) < RANDOM_BELOW * all as f64;
    let turns = workers.iter().filter(|worker| worker.takes_turns(pattern)).count();
    let compute_s: f64 = workers.iter().map(|worker| worker.process.compute_s).sum();
    let moved = if reads { bytes_in } else { bytes_out };
    Phase {
        name: name(usage),
        pattern,
        order: if turns * 2 > workers.len() { Order::RoundRobin } else { Order::Sequential },
        bytes_in: Bytes(bytes_in),
        bytes_out: Some(Bytes(bytes_out)),
        ratio: None,
        files_in,
        files_out,
        files_per: Per::Job,
        record_bytes: Bytes(record),
        buffer_bytes: Bytes(buffer),
        access: if is_random { Access::Random } else { Access::Sequential },
        caches: Caches::Cold,
        compute_s_per_byte: Seconds(if moved > 0 { compute_s / moved as f64 } else { 0.0 }),
        compute_s_per_record: Seconds(0.0),
        operations: (pattern == Pattern::Other).then_some(operations),
    }
}

/// What people call it: the command's first word, without its directory.
fn name(usage: &Usage) -> String {
    let word = usage.command.split_whitespace().next().unwrap_or_default();
    word.rsplit('/').next().unwrap_or_default().to_owned()
}

/// The text of the job, with what it rests on and what is missing from that.
pub(super) fn text(job: &Job, usage: &Usage, missing: &[String]) -> String {
    let workers = workers(usage);
    // The sum of nothing is -0.
    let sum = |of: fn(&ProcessUsage) -> f64| {
        0.0 + workers.iter().map(|worker| of(worker.process)).sum::<f64>()
    };
    let (io_s, compute_s) = (sum(|process| process.io_s), sum(|process| process.compute_s));
    let mut text = job.to_toml();
    // Text in a string always has room.
    let _ = write!(
        text,
        "\n# Recorded by {}: {} of {} programs moved the data, {io_s:.3} s of their time in I/O and \
         {compute_s:.3} s not.\n",
        usage.recorder,
        workers.len(),
        usage.processes.len(),
    );
    for line in missing {
        let _ = writeln!(text, "# Missing: {line}.");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn moved(bytes: u64, record: u64) -> Moved {
        Moved {
            bytes,
            requests: bytes.div_ceil(4096),
            sequential: bytes.div_ceil(4096),
            sizes: vec![(4096, bytes.div_ceil(4096))],
            records: bytes / record,
            record_bytes: bytes,
            record_sizes: vec![(record, bytes / record)],
            ..Moved::default()
        }
    }

    fn input(bytes: u64) -> FileUsage {
        FileUsage { read: moved(bytes, 100), ..FileUsage::default() }
    }

    fn output(bytes: u64) -> FileUsage {
        FileUsage { written: moved(bytes, 100), ..FileUsage::default() }
    }

    fn process(start_s: f64, files: Vec<FileUsage>) -> ProcessUsage {
        ProcessUsage {
            start_s,
            wall_s: 1.0,
            io_s: 0.25,
            compute_s: 0.75,
            files,
            ..ProcessUsage::default()
        }
    }

    fn usage(processes: Vec<ProcessUsage>) -> Usage {
        Usage { command: "/bin/cut x".to_owned(), processes, ..Usage::default() }
    }

    #[test]
    fn patterns_follow_from_the_files_of_each_process() {
        let mib = 1 << 20;
        let many = |file: fn(u64) -> FileUsage| (0..10).map(|_| file(mib)).collect::<Vec<_>>();
        let with = |mut files: Vec<FileUsage>, more: FileUsage| {
            files.push(more);
            files
        };
        let cases = [
            (vec![input(mib), output(mib), input(1000)], Pattern::Simple, 1, 1),
            (with(many(output), input(10 * mib)), Pattern::Split, 1, 10),
            (with(many(input), output(10 * mib)), Pattern::Merge, 10, 1),
            ([many(input), many(output)].concat(), Pattern::Other, 10, 10),
        ];
        for (files, pattern, files_in, files_out) in cases {
            let job = of(&usage(vec![process(0.0, files)])).unwrap();
            let phase = &job.phases[0];
            assert_eq!(phase.pattern, pattern);
            assert_eq!((phase.files_in, phase.files_out), (files_in, files_out), "{pattern}");
            assert_eq!((phase.record_bytes.0, phase.buffer_bytes.0), (100, 4096));
            assert_eq!(job.processes, 1);
            Job::parse(&job.to_toml(), std::path::Path::new("x")).unwrap();
        }
    }

    #[test]
    fn modules_of_an_interpreter_are_no_input() {
        let module = |number: u32| FileUsage {
            path: format!("/usr/lib/python3/__pycache__/m{number}.cpython-312.pyc"),
            ..input(50_000)
        };
        let files = (0..56).map(module).chain([input(1 << 20), output(1 << 20)]).collect();
        let phase = of(&usage(vec![process(0.0, files)])).unwrap().phases.remove(0);
        assert_eq!((phase.pattern, phase.files_in), (Pattern::Simple, 1));
    }

    #[test]
    fn of_files_alike_none_is_left_out() {
        let alike = |count: u64| (0..count).map(|n| output(10_000 + 7 * n)).collect::<Vec<_>>();
        let files_out = |files| of(&usage(vec![process(0.0, files)])).unwrap().phases[0].files_out;
        for count in [2, 99, 100, 101, 500] {
            assert_eq!(files_out(alike(count)), count);
        }
        // A message beside them, and a few of these.
        let with = |more: &[u64]| [alike(300), more.iter().map(|size| output(*size)).collect()];
        assert_eq!(files_out(with(&[80]).concat()), 300);
        assert_eq!(files_out(with(&[900, 80, 7]).concat()), 300);
        assert_eq!(files_out(with(&[1500, 80]).concat()), 301);
        assert_eq!(files_out(with(&[900; 40]).concat()), 340);
    }

    #[test]
    fn records_tell_whether_files_are_taken_in_turn() {
        let files: Vec<_> = (0..4).map(|_| output(1 << 20)).chain([input(4 << 20)]).collect();
        let order = |switches| {
            let mut process = process(0.0, files.clone());
            process.records = [40_000, 40_000];
            process.switches = [0, switches];
            of(&usage(vec![process])).unwrap().phases[0].order
        };
        assert_eq!(order(3), Order::Sequential);
        assert_eq!(order(39_999), Order::RoundRobin);
        assert_eq!(order(30_000), Order::RoundRobin);
    }

    #[test]
    fn processes_are_those_that_ran_at_a_time() {
        let one = |start| process(start, vec![input(1 << 20), output(1 << 20)]);
        let number = |starts: &[f64]| {
            let job = of(&usage(starts.iter().map(|start| one(*start)).collect())).unwrap();
            assert_eq!(job.phases[0].files_in, starts.len() as u64);
            job.processes
        };
        assert_eq!(number(&[0.0, 1.0, 2.0]), 1);
        assert_eq!(number(&[0.0, 0.0, 1.0, 1.0]), 2);
        assert_eq!(number(&[0.0, 0.1, 0.2, 0.1]), 3);
    }

    #[test]
    fn the_text_says_what_was_not_seen_and_counts_no_negative_time() {
        let mut names = process(0.0, vec![]);
        names.names.opens = 5;
        let usage = usage(vec![names]);
        let missing = ["2 programs could not be recorded".to_owned()];
        let text = text(&of(&usage).unwrap(), &usage, &missing);
        assert!(text.contains("\n# Missing: 2 programs could not be recorded.\n"), "{text}");
        assert!(text.contains(" 0.000 s") && !text.contains("-0.0"), "{text}");
        Job::parse(&text, std::path::Path::new("x")).unwrap();
    }

    #[test]
    fn where_nothing_was_moved_there_is_no_job() {
        assert_eq!(of(&usage(vec![])).unwrap_err(), NoJob::NoProcess);
        assert_eq!(of(&usage(vec![process(0.0, vec![])])).unwrap_err(), NoJob::NoData);
        let mut names = process(0.0, vec![]);
        names.names.creates = 5;
        names.names.opens = 5;
        let job = of(&usage(vec![names])).unwrap();
        assert_eq!(job.phases[0].pattern, Pattern::Other);
        assert_eq!(job.phases[0].operations.unwrap().create, 5);
    }
}
