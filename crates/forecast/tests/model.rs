//! The project's model, term by term, on constants that make the expected times easy to see; and its
//! intervals.

use std::path::Path;

use azekura_forecast::{
    Bottleneck, Calibration, Forecast, Job, Measured, Model, forecast, remarks,
};

const FS: &str = "format = 1
name = 'sample'
[made]
date = '2026-11-23 04:30'
software = 'azekura 0.1.0'
target = '/data'
file_system = 'ext4'
record_bytes = 1024
buffer_bytes = '1 MiB'
[made.machine]
host = 'a'
processor = 'Abacus'
processors = 4
memory_bytes = '8 GiB'
[range]
files = [1, 512]
bytes = [1024, 17179869184]
processes = [1, 8]
nodes = [1, 1]
record_bytes = [256, 1048576]
buffer_bytes = [65536, 4194304]
[sequential]
read_mib_per_s = { value = 200, sd = 4, runs = 3 }
write_mib_per_s = 100
[metadata]
split_s_per_file = 0.04
merge_s_per_file = 0.02
create_s = 0.001
open_s = 0.0005
stat_s = 0.0002
[[streams]]
processes = 1
read_mib_per_s = { value = 200, sd = 4, runs = 3 }
write_mib_per_s = 100
mixed_mib_per_s = 150
cached_read_mib_per_s = 2000
cached_mixed_mib_per_s = 180
create_per_s = 1000
open_per_s = 1000
[[streams]]
processes = 4
read_mib_per_s = 300
write_mib_per_s = 150
mixed_mib_per_s = 240
create_per_s = 2000
open_per_s = 4000
[[interleaved]]
files = 1
read_mib_per_s = 200
write_mib_per_s = 100
[[interleaved]]
files = 64
read_mib_per_s = 100
write_mib_per_s = 80
[cache]
node_bytes = '4 GiB'
";

fn calibration(more: &str) -> Calibration {
    Calibration::parse(&format!("{FS}{more}"), Path::new("FS.toml"))
        .unwrap_or_else(|error| panic!("{error}"))
}

/// A job of one phase; what is said here comes before what all have.
fn job(head: &str, pattern: &str, phase: &str) -> Job {
    let mut text = format!("{head}\n[[phase]]\npattern = '{pattern}'\n");
    for (key, line) in [
        ("bytes_in", "bytes_in = '1 GiB'"),
        ("bytes_out", "ratio = 1.0"),
        ("record_bytes", "record_bytes = 1024"),
        ("buffer_bytes", "buffer_bytes = '1 MiB'"),
    ] {
        let is_said = phase.contains(key) || (key == "bytes_out" && phase.contains("ratio ="));
        if !is_said {
            text.push_str(line);
            text.push('\n');
        }
    }
    text.push_str(phase);
    Job::parse(&text, Path::new("JOB.toml")).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn full(calibration: &Calibration, job: &Job) -> Forecast {
    forecast(calibration, job, Model::Full).unwrap_or_else(|error| panic!("{error}"))
}

#[track_caller]
fn takes(calibration: &Calibration, job: &Job, seconds: f64) {
    let found = full(calibration, job).seconds.0;
    assert!((found - seconds).abs() < 1e-6 * seconds, "{found}, not {seconds}");
}

#[test]
fn reading_writing_and_their_overlap_give_the_calibrated_runs_again() {
    let fs = calibration("");
    takes(&fs, &job("", "simple", "ratio = 0.0"), 1024.0 / 200.0);
    takes(&fs, &job("", "simple", ""), 2048.0 / 150.0);
    takes(&fs, &job("processes = 4", "simple", ""), 2048.0 / 240.0);
    // A third of the shorter goes on during the longer.
    takes(&fs, &job("", "simple", "ratio = 0.5"), 5.12 + 5.12 * 2.0 / 3.0);
    // Two processes lie half way between one and four.
    takes(&fs, &job("processes = 2", "simple", "ratio = 0.0"), 1024.0 / 250.0);
}

#[test]
fn files_cost_what_their_slope_says_and_less_where_processes_share_it() {
    let fs = calibration("");
    takes(&fs, &job("", "split", "files_out = 100"), 2048.0 / 150.0 + 4.0);
    takes(&fs, &job("", "merge", "files_in = 100"), 2048.0 / 150.0 + 2.0);
    // 400 files of four processes, which create twice as many a second as one.
    takes(&fs, &job("processes = 4", "split", "files_out = 100"), 2048.0 / 240.0 + 8.0);
    let shared = "files_out = 100\nfiles_per = 'job'";
    takes(&fs, &job("processes = 4", "split", shared), 2048.0 / 240.0 + 2.0);
    let counted = "bytes_in = 0\nbytes_out = 0\nfiles_in = 0\nfiles_out = 0\n\
                   [phase.operations]\ncreate = 1000\nopen = 1000\nstat = 1000";
    let names = full(&fs, &job("", "other", counted));
    assert!((names.seconds.0 - 1.7).abs() < 1e-9 && names.bottleneck == Bottleneck::Metadata);
    assert!(names.outside.iter().all(|one| one.quantity == "bytes" || one.quantity == "files"));
}

#[test]
fn going_round_files_slows_reading_or_writing_down() {
    let fs = calibration("");
    let round = |files: &str| format!("order = 'round-robin'\n{files} = 64");
    takes(&fs, &job("", "merge", &round("files_in")), 10.24 + 10.24 * 2.0 / 3.0 + 1.28);
    takes(&fs, &job("", "split", &round("files_out")), 12.8 + 5.12 * 2.0 / 3.0 + 2.56);
    takes(&fs, &job("", "merge", "files_in = 64"), 2048.0 / 150.0 + 1.28);
}

#[test]
fn what_fits_memory_comes_from_there() {
    let fs = calibration("");
    takes(&fs, &job("", "simple", "caches = 'warm'\nratio = 0.0"), 1024.0 / 2000.0);
    takes(&fs, &job("", "simple", "caches = 'warm'"), 2048.0 / 180.0);
    // The calibration found no more than 4 GiB there, of 8.
    let warm = |gib: u32| format!("caches = 'warm'\nbytes_in = '{gib} GiB'\nratio = 0.0");
    let larger = job("", "simple", &warm(6));
    takes(&fs, &larger, 6.0 * 1024.0 / 2000.0);
    assert!(remarks(&fs, &larger).is_empty());
    let outside = full(&fs, &larger).outside;
    assert!(outside.iter().any(|one| one.quantity == "cache.node_bytes"), "{outside:?}");
    assert!(full(&fs, &job("", "simple", &warm(4))).outside.is_empty());
    let too_large = job("", "simple", &warm(9));
    takes(&fs, &too_large, 9.0 * 1024.0 / 200.0);
    assert!(remarks(&fs, &too_large)[0].contains("do not fit the memory"));
}

#[test]
fn files_in_memory_cost_no_more_than_opening_them() {
    let fs =
        calibration("[[files]]\nprocesses = 1\nfile_bytes = '1 MiB'\nmerge_s_per_file = 0.02\n");
    let merge = |more: &str| job("", "merge", &format!("files_in = 1024\nratio = 0.0{more}"));
    takes(&fs, &merge(""), 5.12 + 1023.0 * 0.02);
    takes(&fs, &merge("\ncaches = 'warm'"), 0.512 + 1023.0 * 0.0005);
}

#[test]
fn memory_takes_writes_in_until_it_is_full() {
    let fs = calibration("[write_back]\nnode_mib = 256\nsustained_mib_per_s = 50\n");
    let write = |mib: u64| {
        job("", "other", &format!("bytes_in = 0\nbytes_out = {}\nfiles_in = 0", mib << 20))
    };
    takes(&fs, &write(256), 2.56);
    takes(&fs, &write(512), 5.12);
    takes(&fs, &write(1024), 768.0 / 50.0);
    assert_eq!(full(&fs, &write(1024)).bottleneck, Bottleneck::Server);
    assert_eq!(full(&fs, &write(256)).bottleneck, Bottleneck::Writing);
}

#[test]
fn records_and_computing_cost_processors() {
    let fs = calibration("[cpu]\nrecord_read_s = 1e-6\n[overlap]\ncompute = 0\n");
    let small = |head| job(head, "simple", "ratio = 0.0\nrecord_bytes = 256");
    let mi = 1_048_576.0;
    takes(&fs, &small(""), 5.12 + 3.0 * mi * 1e-6);
    takes(&fs, &small("processes = 4"), 1024.0 / 300.0 + 3.0 * mi * 1e-6 / 4.0);
    let large = job("", "simple", "ratio = 0.0\nrecord_bytes = 4096");
    takes(&fs, &large, 5.12 - 0.75 * mi * 1e-6);
    let busy = "ratio = 0.0\ncompute_s_per_record = 2e-5";
    takes(&fs, &job("", "simple", busy), 5.12 + mi * 2e-5);
    // Eight processes have four processors.
    let eight = full(&fs, &job("processes = 8", "simple", busy));
    assert!((eight.seconds.0 - (1024.0 / 300.0 + mi * 2e-5 / 4.0)).abs() < 1e-6, "{eight:?}");
    assert_eq!(eight.bottleneck, Bottleneck::Compute);

    // Where all of it goes on at the same time, only what is longer counts.
    let fs = calibration("[cpu]\nrecord_read_s = 1e-6\n[overlap]\ncompute = 1\n");
    takes(&fs, &small(""), 5.12);
    takes(&fs, &job("", "simple", busy), mi * (1e-6 + 2e-5));
}

#[test]
fn beside_a_fitted_curve_a_job_computes_and_what_the_curve_does_not_have_is_said() {
    let text = include_str!("../../../share/forecast/hsfs.toml");
    let fs = Calibration::parse(text, Path::new("hsfs.toml")).unwrap();
    let split = |more: &str| {
        job(
            "processes = 2",
            "split",
            &format!("bytes_in = '2 GiB'\nbuffer_bytes = '2 MiB'\nfiles_out = 100\n{more}"),
        )
    };
    let moving = full(&fs, &split(""));
    let paper = forecast(&fs, &split(""), Model::Paper).unwrap();
    assert!((moving.seconds.0 - paper.seconds.0).abs() < 1e-9);
    assert!(moving.outside.is_empty(), "{:?}", moving.outside);

    let busy = full(&fs, &split("compute_s_per_record = 0.01"));
    let computing = 2.0 * 1_048_576.0 * 0.01 / 2.0;
    assert!((busy.seconds.0 - moving.seconds.0 - computing).abs() < 1e-6, "{busy:?}");
    assert_eq!(busy.bottleneck, Bottleneck::Compute);

    let random = forecast(&fs, &split("access = 'random'"), Model::Full).unwrap_err();
    assert!(random.to_string().contains("[random]"), "{random}");

    let round = full(&fs, &split("order = 'round-robin'"));
    assert_eq!(round.outside[0].to_string(), "interleaved.write_mib_per_s (not measured)");
    let alone = job("", "split", "files_out = 100\norder = 'round-robin'");
    let named: Vec<String> =
        full(&fs, &alone).outside.into_iter().map(|one| one.quantity).collect();
    assert!(named.contains(&"interleaved.write_mib_per_s".to_owned()), "{named:?}");
}

#[test]
fn the_path_and_the_server_bind() {
    let fs = calibration("[path]\ntotal_mib_per_s = 80\n");
    let read = job("", "simple", "ratio = 0.0");
    takes(&fs, &read, 1024.0 / 80.0);
    assert_eq!(full(&fs, &read).bottleneck, Bottleneck::Path);
    let fs = calibration("");
    assert_eq!(full(&fs, &read).bottleneck, Bottleneck::Reading);
    let four = job("processes = 4", "simple", "ratio = 0.0");
    assert_eq!(full(&fs, &four).bottleneck, Bottleneck::Server, "eight would have no more");
}

#[test]
fn phases_add_up_and_the_longest_binds() {
    let fs = calibration("");
    let mut both = job("", "simple", "ratio = 0.0");
    both.phases.push(job("", "split", "ratio = 0.01\nfiles_out = 500").phases.remove(0));
    let found = full(&fs, &both);
    let sum: f64 = found.phases.iter().map(|phase| phase.seconds.0).sum();
    assert!((found.seconds.0 - sum).abs() < 1e-9 && found.phases.len() == 2);
    assert_eq!(found.bottleneck, Bottleneck::Metadata);
}

#[test]
fn what_was_not_measured_is_said_and_widens_the_interval() {
    let fs = calibration("");
    let width = |job: &Job| {
        let found = full(&fs, job);
        (found.high.0 / found.seconds.0, found.outside)
    };
    let (inside, none) = width(&job("processes = 8", "simple", ""));
    assert!(none.is_empty());
    let (beyond, outside) = width(&job("processes = 32", "simple", ""));
    assert_eq!(outside.len(), 1);
    assert_eq!(outside[0].to_string(), "processes 32 (measured: 1 to 8)");
    assert!((outside[0].widened_by - 0.4).abs() < 1e-9 && beyond > inside * 1.5);
    let (_, outside) =
        width(&job("nodes = 2", "simple", "record_bytes = 128\nbuffer_bytes = 1024"));
    let named: Vec<&str> = outside.iter().map(|one| one.quantity.as_str()).collect();
    assert_eq!(named, ["nodes", "record_bytes", "buffer_bytes"]);
    let (_, outside) = width(&job("", "other", "[phase.operations]\nunlink = 5"));
    assert_eq!(outside[0].to_string(), "metadata.unlink_s (not measured)");
    let random = forecast(&fs, &job("", "simple", "access = 'random'"), Model::Full).unwrap_err();
    assert!(random.to_string().contains("[random]"), "{random}");
}

#[test]
fn an_interval_follows_from_the_spread_of_what_it_depends_on() {
    let mut fs = calibration("");
    let read = job("", "simple", "ratio = 0.0");
    let found = full(&fs, &read);
    // Three measurements: 2.920 standard deviations, of a further run about a mean of three.
    let half: f64 = 2.920 * 4.0 / 200.0 * (4.0f64 / 3.0).sqrt();
    assert!((found.high.0 / found.seconds.0 - half.exp()).abs() < 1e-4, "{found:?}");
    assert!((found.low.0 / found.seconds.0 - (-half).exp()).abs() < 1e-4);
    assert_eq!(full(&fs, &read), found, "nothing is left to chance");
    // Writing does not depend on it but through its overlap.
    let four = full(&fs, &job("processes = 4", "simple", "ratio = 0.0"));
    assert!((four.high.0 - four.low.0).abs() < 1e-9, "these have no spread");
    fs.model.residual = 0.1;
    let four = full(&fs, &job("processes = 4", "simple", "ratio = 0.0"));
    assert!((four.high.0 / four.seconds.0 - (0.1645f64).exp()).abs() < 1e-9);
}

/// Normal numbers from a linear congruential generator (Knuth's constants), by Box and Muller.
struct Noise(u64);

impl Noise {
    fn uniform(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 11) as f64 + 0.5) / (1u64 << 53) as f64
    }

    fn around(&mut self, mean: f64, sd: f64) -> f64 {
        let radius = (-2.0 * self.uniform().ln()).sqrt();
        mean + sd * radius * (std::f64::consts::TAU * self.uniform()).cos()
    }
}

#[test]
fn nine_of_ten_runs_lie_within_the_interval() {
    let mut noise = Noise(1);
    let mut fs = calibration("");
    let read = job("", "simple", "ratio = 0.0");
    for runs in [3, 10] {
        let mut inside = 0;
        for _ in 0..4000 {
            let measured: Vec<f64> = (0..runs).map(|_| noise.around(200.0, 10.0)).collect();
            fs.streams[0].read_mib_per_s = Measured::of(&measured);
            let found = full(&fs, &read);
            let next = 1024.0 / noise.around(200.0, 10.0);
            inside += u32::from((found.low.0..=found.high.0).contains(&next));
        }
        let share = f64::from(inside) / 4000.0;
        assert!((0.88..0.92).contains(&share), "{share} with {runs} runs");
    }
}
