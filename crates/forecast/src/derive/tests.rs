//! Constants of synthetic runs, taken out of them again.

use super::source::files_of;
use super::*;
use crate::calibration::Machine;
use crate::forecasting::{Model, forecast};
use crate::job::{Caches, Job};
use crate::units::Bytes;

const READ: f64 = 200.0;
const WRITE: f64 = 100.0;
const FILE_S: f64 = 0.004;
const START_S: f64 = 0.01;

fn made() -> Made {
    let machine = Machine { processors: 4, ..Machine::default() };
    Made { machine, record_bytes: Bytes(1024), buffer_bytes: Bytes(1 << 20), ..Made::default() }
}

fn job(pattern: Pattern, files: u64, mib: u64, ratio: u64, processes: u32) -> Job {
    let key = if pattern == Pattern::Merge { "files_in" } else { "files_out" };
    let text = format!(
        "processes = {processes}\n[[phase]]\npattern = \"{pattern}\"\nbytes_in = \"{mib} MiB\"\n\
         bytes_out = \"{} MiB\"\n{key} = {files}\nrecord_bytes = 1024\nbuffer_bytes = \"1 MiB\"\n",
        ratio * mib
    );
    Job::parse(&text, std::path::Path::new("job")).unwrap()
}

/// A file system on which everything adds up, and processes share what one has.
fn truth(job: &Job) -> f64 {
    let phase = &job.phases[0];
    let files = (files_of(phase) as f64 - 1.0) * f64::from(job.processes);
    START_S + phase.bytes_in.mib() / READ + phase.written().mib() / WRITE + files * FILE_S
}

fn run(job: Job) -> Run {
    let seconds = truth(&job);
    Run {
        name: String::new(),
        seconds: [0.99, 1.0, 1.02].map(|off| off * seconds).to_vec(),
        job,
        phase_seconds: Vec::new(),
        spent: Vec::new(),
        caches_dropped: true,
    }
}

fn runs() -> Vec<Run> {
    let mut jobs = vec![job(Pattern::Simple, 1, 16, 1, 1), job(Pattern::Simple, 1, 4, 1, 1)];
    for processes in [1, 2, 4] {
        for ratio in [0, 1] {
            jobs.push(job(Pattern::Simple, 1, 64, ratio, processes));
        }
        jobs.push(job(Pattern::Simple, 1, 8, 8, processes));
        for pattern in [Pattern::Split, Pattern::Merge] {
            jobs.push(job(pattern, 100, 64, 1, processes));
        }
    }
    jobs.into_iter().map(run).collect()
}

fn beside() -> Beside {
    // One name after the other, however many ask.
    let loops = |processes| Loops {
        crew: (1, processes),
        create_s: vec![FILE_S; 3],
        stat_s: vec![0.001; 3],
        open_s: vec![FILE_S; 3],
        unlink_s: vec![0.002; 3],
    };
    Beside {
        random_read: vec![50.0, 52.0, 51.0],
        random_write: vec![25.0],
        sustained_write: Vec::new(),
        taken_in_mib: None,
        loops: [1, 2, 4].map(loops).to_vec(),
    }
}

fn near(value: f64, wanted: f64) {
    assert!((value / wanted - 1.0).abs() < 0.03, "{value} instead of {wanted}");
}

#[test]
fn constants_of_synthetic_runs_are_found() {
    let found = derive("synthetic", made(), &runs(), &beside()).unwrap();
    near(found.metadata.start_s.unwrap().number(), START_S);
    near(found.metadata.split_s_per_file.unwrap().number(), FILE_S);
    near(found.metadata.merge_s_per_file.unwrap().number(), FILE_S);
    near(found.sequential.write_mib_per_s.number(), WRITE);
    near(found.random.unwrap().read_mib_per_s.number(), 51.0);
    assert_eq!(found.streams.len(), 3);
    for row in &found.streams {
        near(row.read_mib_per_s.unwrap().number(), READ);
        near(row.write_mib_per_s.unwrap().number(), WRITE);
    }
    // 100 files of each of 1, 2 and 4 processes, in turn: all cost the same.
    assert_eq!(found.files.len(), 3);
    for row in &found.files {
        near(row.split_s_per_file.unwrap().number(), FILE_S);
        near(row.merge_s_per_file.unwrap().number(), FILE_S);
    }
    assert!(found.model.residual < 0.02, "{}", found.model.residual);
    assert_eq!((found.range.files.most, found.range.processes.most), (100, 4));
    // It is a file that can be read again.
    Calibration::parse(&found.to_toml(), std::path::Path::new("fs")).unwrap();
}

#[test]
fn other_batches_are_forecast_from_them() {
    let found = derive("synthetic", made(), &runs(), &beside()).unwrap();
    for (pattern, files, processes) in
        [(Pattern::Split, 40, 1), (Pattern::Merge, 70, 3), (Pattern::Split, 10, 4)]
    {
        let job = job(pattern, files, 32, 2, processes);
        let forecast = forecast(&found, &job, Model::Full).unwrap();
        near(forecast.seconds.0, truth(&job));
        assert!((forecast.low.0..forecast.high.0).contains(&truth(&job)));
    }
}

#[test]
fn too_few_runs_give_nothing_and_a_few_what_they_can() {
    assert_eq!(derive("none", made(), &[], &Beside::default()), None);
    let few = [0, 1].map(|ratio| run(job(Pattern::Simple, 1, 64, ratio, 1)));
    assert_eq!(derive("one", made(), &few[..1], &Beside::default()), None);
    let found = derive("few", made(), &few, &Beside::default()).unwrap();
    near(found.sequential.read_mib_per_s.number(), 64.0 / (64.0 / READ + START_S));
    assert!(found.metadata.split_s_per_file.is_none() && found.random.is_none());
}

#[test]
fn a_file_whose_cost_is_lost_in_noise_costs_what_loops_say() {
    let mut runs = runs();
    for run in &mut runs {
        if run.job.phases[0].pattern == Pattern::Split {
            run.seconds = vec![0.2, 1.0, 3.0];
        }
    }
    let found = derive("noisy", made(), &runs, &beside()).unwrap();
    let cost = found.metadata.split_s_per_file.unwrap().number();
    assert!((0.001..0.008).contains(&cost), "{cost}");
}

#[test]
fn files_cost_by_their_size_and_are_forecast_so() {
    // The first MiB of each file comes at a fifth of the throughput.
    let first = |job: &Job| {
        let phase = &job.phases[0];
        let size = phase.bytes_in.mib() / files_of(phase) as f64;
        let further = files_of(phase) as f64 - 1.0;
        truth(job) + further * size.min(1.0) * 4.0 / READ - further * FILE_S
    };
    let at = |job: Job| Run { seconds: vec![first(&job); 4], ..run(job) };
    let mut runs: Vec<Run> = [0, 1]
        .map(|ratio| job(Pattern::Simple, 1, 64, ratio, 1))
        .into_iter()
        .chain([16, 64, 256].map(|files| job(Pattern::Merge, files, 64, 1, 1)))
        .map(at)
        .collect();
    runs.extend([16, 4].map(|mib| at(job(Pattern::Simple, 1, mib, 1, 1))));
    let found = derive("by size", made(), &runs, &Beside::default()).unwrap();
    for (files, mib) in [(32, 64), (128, 64), (200, 32), (8, 64)] {
        let job = job(Pattern::Merge, files, mib, 1, 1);
        let forecast = forecast(&found, &job, Model::Full).unwrap().seconds.0;
        assert!(
            (forecast / first(&job) - 1.0).abs() < 0.06,
            "{files}: {forecast}, {}",
            first(&job)
        );
    }
}

#[test]
fn computing_that_goes_on_while_storage_is_waited_for_is_noticed() {
    const RECORD_S: f64 = 1e-7;
    let with = |record: u64, warm: bool, hidden: bool| {
        let mut job = job(Pattern::Simple, 1, 64, 0, 1);
        let phase = &mut job.phases[0];
        phase.record_bytes = Bytes(record);
        phase.caches = if warm { Caches::Warm } else { Caches::Cold };
        let computing = phase.bytes_in.0 as f64 / record as f64 * RECORD_S;
        let moving = if warm { 0.01 } else { phase.bytes_in.mib() / READ };
        let seconds = if hidden && !warm { moving.max(computing) } else { moving + computing };
        Run { seconds: vec![seconds; 3], ..run(job) }
    };
    for hidden in [true, false] {
        let mut runs = runs();
        let read_only = |run: &Run| run.job.phases[0].written().0 == 0 && run.job.processes == 1;
        runs.retain(|run| !read_only(run));
        runs.extend(
            [(1024, true), (64, true), (16384, true), (1024, false), (64, false)]
                .map(|(record, warm)| with(record, warm, hidden)),
        );
        let found = derive("computing", made(), &runs, &beside()).unwrap();
        near(found.cpu.record_read_s.unwrap().number(), RECORD_S);
        let share = found.overlap.compute.unwrap().number();
        assert!((share - f64::from(u8::from(hidden))).abs() < 0.1, "{hidden}: {share}");
    }
}

#[test]
fn storage_as_fast_as_memory_holds_no_writes_up() {
    let with = |mib_per_s: f64| {
        let beside =
            Beside { sustained_write: vec![mib_per_s], taken_in_mib: Some(500.0), ..beside() };
        derive("write-back", made(), &runs(), &beside).unwrap()
    };
    let found = with(0.5 * WRITE);
    let write_back = found.write_back.unwrap();
    near(write_back.node_mib.number(), 500.0);
    near(write_back.sustained_mib_per_s.number(), 0.5 * WRITE);
    Calibration::parse(&found.to_toml(), std::path::Path::new("fs")).unwrap();
    assert_eq!(with(WRITE).write_back, None);
}
