//! Files as people write them, and everything that can be wrong with them.

use std::path::Path;

use azekura_forecast::{Calibration, FileError, Job, Runs};

const FS: &str = include_str!("../../../share/forecast/hsfs.toml");
const JOB: &str = "name = \"nightly\"
processes = 4
nodes = 2
[[phase]]
name = \"sort\"
pattern = \"split\"
order = \"round-robin\"
bytes_in = \"1 GiB\"
ratio = 0.5
files_out = 8
record_bytes = 1024
buffer_bytes = 65536
[[phase]]
pattern = \"other\"
bytes_in = 0
bytes_out = 1048576
files_in = 0
files_out = 3
files_per = \"job\"
record_bytes = 100
buffer_bytes = 4096
access = \"random\"
caches = \"warm\"
compute_s_per_record = 1e-6
[phase.operations]
create = 3
stat = 20
";

fn read_fs(text: &str) -> Result<Calibration, FileError> {
    Calibration::parse(text, Path::new("FS.toml"))
}

fn read_job(text: &str) -> Result<Job, FileError> {
    Job::parse(text, Path::new("JOB.toml"))
}

/// The line in a text that holds some words, counted from 1.
fn line_with(text: &str, words: &str) -> usize {
    1 + text.lines().position(|line| line.contains(words)).unwrap_or_else(|| panic!("{words}"))
}

fn replaced(text: &str, old: &str, new: &str) -> String {
    assert!(text.contains(old), "{old}");
    text.replacen(old, new, 1)
}

#[test]
fn what_is_written_is_read_again() {
    let mut calibration = read_fs(FS).unwrap();
    calibration.made.target = "a \"b\" \\ \u{7}".to_owned();
    calibration.sequential.read_mib_per_s.sd = 1.5e-7;
    calibration.sequential.read_mib_per_s.runs = 3;
    let text = calibration.to_toml();
    assert_eq!(read_fs(&text).unwrap_or_else(|error| panic!("{error}\n{text}")), calibration);
    let job = read_job(JOB).unwrap();
    let text = job.to_toml();
    assert_eq!(read_job(&text).unwrap_or_else(|error| panic!("{error}\n{text}")), job);
    assert!(text.contains("# of each node") && text.contains("# read by all processes"), "{text}");
    assert!(calibration.to_toml().contains("# T_SR, T_SW: one process"));
}

#[test]
fn a_calibration_that_says_what_cannot_be_is_refused_with_line_and_key() {
    for (old, new, key, what) in [
        ("read_mib_per_s = 95.3 ", "read_mib_per_s = 0 ", "sequential.read_mib_per_s", "above 0"),
        (
            "read_mib_per_s = 95.3 ",
            "read_mib_per_s = -3.5 ",
            "sequential.read_mib_per_s",
            "above 0",
        ),
        ("read_mib_per_s = 95.3 ", "read_mib_per_s = nan ", "sequential.read_mib_per_s", "above 0"),
        (
            "read_mib_per_s = 95.3 ",
            "read_mib_per_s = \"fast\" ",
            "sequential.read_mib_per_s",
            "MiB/s",
        ),
        (
            "read_mib_per_s = 95.3 ",
            "read_mib_per_s = { value = 3, sd = -1 } ",
            "sequential.read_mib_per_s",
            "sd -1",
        ),
        (
            "read_mib_per_s = 95.3 ",
            "read_mib_per_s = { value = 3, runs = 0 } ",
            "sequential.read_mib_per_s",
            "runs 0",
        ),
        (
            "read_mib_per_s = 95.3 ",
            "read_mib_per_s = { value = 3, spread = 1 } ",
            "sequential.read_mib_per_s.spread",
            "unknown field `spread`",
        ),
        (
            "split_s_per_file = 0.044",
            "split_s_per_file = -1",
            "metadata.split_s_per_file",
            "0 or more",
        ),
        ("merge_s_per_file", "merge_s_per_flie", "metadata.merge_s_per_flie", "unknown field"),
        ("files = [1, 500]", "files = [500, 1]", "range.files", "the least first"),
        ("nodes = [1, 4]", "nodes = [0, 4]", "range.nodes", "0 cannot be"),
        ("nodes = [1, 4]", "nodes = [1]", "range.nodes", "array of length 2"),
        (
            "record_bytes = [1024, 1024]",
            "record_bytes = [1, 2]",
            "range.record_bytes",
            "leaves out 1024",
        ),
        ("format = 1", "format = 7", "format", "format 1"),
        ("processors = 8", "processors = 0", "made.machine.processors", "processors"),
        ("pattern = \"split\"", "pattern = \"spilt\"", "parallel[0].pattern", "unknown variant"),
        ("residual = 0.14", "residual = 12", "model.residual", "from 0 to 10"),
    ] {
        let text = replaced(FS, old, new);
        let error = read_fs(&text).unwrap_err();
        assert_eq!(error.key, key, "{error}");
        assert_eq!(error.line, Some(line_with(&text, new.trim_end())), "{error}");
        assert!(error.what.contains(what), "{error}");
        assert!(error.to_string().starts_with("FS.toml:"), "{error}");
    }
}

#[test]
fn missing_and_contradicting_parts_of_a_calibration_are_named() {
    let without = |key: &str| {
        let lines = FS.lines().filter(|line| !line.starts_with(key));
        lines.collect::<Vec<_>>().join("\n")
    };
    for key in ["name", "date", "record_bytes", "files", "write_mib_per_s", "processors"] {
        let error = read_fs(&without(key)).unwrap_err();
        assert!(error.what.contains(&format!("missing field `{key}`")), "{error}");
    }
    let error = read_fs(&without("[sequential]")).unwrap_err();
    assert!(error.line.is_some(), "{error}");
    for (more, key, what) in [
        ("[path]\nstorage_nodes = 2\n", "path.storage_nodes", "both or none"),
        (
            "[path]\nper_storage_node_mib_per_s = 2\n",
            "path.per_storage_node_mib_per_s",
            "both or none",
        ),
        ("[[parallel]]\npattern = \"split\"\na_mib_per_s = 1\n", "parallel[1].pattern", "already"),
        ("[[streams]]\nprocesses = 2\n", "streams", "one process"),
        (
            "[[streams]]\nprocesses = 1\n[[streams]]\nprocesses = 99\n",
            "streams[1].processes",
            "range",
        ),
        (
            "[[streams]]\nprocesses = 1\n[[streams]]\nprocesses = 1\n",
            "streams[1].processes",
            "already",
        ),
        ("[[interleaved]]\nfiles = 2\n", "interleaved", "one file"),
        ("[[files]]\nprocesses = 1\nfile_bytes = 0\n", "files[0].file_bytes", "0 cannot be"),
        ("[[files]]\nprocesses = 99\nfile_bytes = 1\n", "files[0].processes", "range"),
        (
            "[[files]]\nprocesses = 1\nfile_bytes = 1\n[[files]]\nprocesses = 1\nfile_bytes = 1\n",
            "files[1].file_bytes",
            "already",
        ),
        ("[cache]\nnode_bytes = 0\n", "cache.node_bytes", "0 cannot be"),
        ("[overlap]\ncompute = 1.5\n", "overlap.compute", "at most 1"),
        (
            "[write_back]\nnode_mib = 1\nsustained_mib_per_s = 1000\n",
            "write_back.sustained_mib_per_s",
            "writing into memory",
        ),
    ] {
        let error = read_fs(&format!("{FS}\n{more}")).unwrap_err();
        assert!(error.what.contains(what), "{error}");
        assert_eq!(error.key, key, "{error}");
        assert!(error.line.is_some_and(|line| line > FS.lines().count() - 10), "{error}");
    }
}

#[test]
fn a_job_that_says_what_cannot_be_is_refused_with_line_and_key() {
    for (old, new, key, what) in [
        ("processes = 4", "processes = 0", "processes", "1 or more"),
        ("processes = 4", "processes = -1", "processes", "a whole number from 0"),
        ("nodes = 2", "nodes = 0", "nodes", "1 or more"),
        ("nodes = 2", "ndoes = 2", "ndoes", "unknown field"),
        ("pattern = \"split\"", "pattern = \"copy\"", "phase[0].pattern", "unknown variant"),
        ("pattern = \"split\"", "pattern = \"simple\"", "phase[0].files_out", "writes one file"),
        ("bytes_in = \"1 GiB\"", "bytes_in = \"1 GB\"", "phase[0].bytes_in", "4 MiB"),
        ("bytes_in = \"1 GiB\"", "bytes_in = -1", "phase[0].bytes_in", "0 or more"),
        ("bytes_in = \"1 GiB\"", "bytes_in = 0", "phase[0].bytes_in", "nothing is read"),
        (
            "bytes_in = \"1 GiB\"",
            "bytes_in = 10",
            "phase[0].record_bytes",
            "more than the 10 bytes",
        ),
        ("bytes_in = \"1 GiB\"", "bytes_in = 65536", "phase[0].files_out", "32 records"),
        ("ratio = 0.5", "ratio = -0.5", "phase[0].ratio", "0 or more"),
        ("ratio = 0.5", "ratio = nan", "phase[0].ratio", "0 or more"),
        ("ratio = 0.5", "ratio = 1\nbytes_out = 1", "phase[0].ratio", "one of them"),
        ("ratio = 0.5", "", "phase[0].bytes_out", "missing"),
        ("files_out = 8", "files_out = 0", "phase[0].files_out", "0 files"),
        ("record_bytes = 1024", "record_bytes = 0", "phase[0].record_bytes", "size"),
        ("buffer_bytes = 65536", "buffer_bytes = 0", "phase[0].buffer_bytes", "size"),
        ("order = \"round-robin\"", "order = \"robin\"", "phase[0].order", "unknown variant"),
        ("1e-6", "-1e-6", "phase[1].compute_s_per_record", "0 or more"),
        (
            "pattern = \"other\"",
            "pattern = \"simple\"",
            "phase[1].operations",
            "follow from its files",
        ),
        ("stat = 20", "stat = -2", "phase[1].operations.stat", "a whole number of 0"),
    ] {
        let text = replaced(JOB, old, new);
        let error = read_job(&text).unwrap_err();
        assert!(error.what.contains(what), "{new}: {error}");
        assert_eq!(error.key, key, "{error}");
        assert!(error.line.is_some(), "{error}");
        if !new.is_empty() && new.starts_with(key.rsplit('.').next().unwrap_or_default()) {
            assert_eq!(error.line, Some(line_with(&text, new.lines().next().unwrap())), "{error}");
        }
    }
    for (text, what) in [
        ("", "there is none: write one [[phase]]"),
        ("phase = 3", "expected a list"),
        ("phase = []", "[[phase]]"),
        ("processes = ", "JOB.toml:1"),
        ("[[phase]]\npattern = \"simple\"\n", "missing field"),
    ] {
        let error = read_job(text).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}

#[test]
fn runs_are_read_with_their_jobs() {
    let job = serde_json::to_string(&read_job(JOB).unwrap()).unwrap();
    let text = |seconds: &str, job: &str| {
        format!(
            "{{\"format\": 1, \"machine\": {{\"host\": \"a\", \"processor\": \"b\", \"processors\": 2, \
             \"memory_bytes\": 1}},\n\"runs\": [{{\"name\": \"r\", \"seconds\": {seconds},\n\"job\": {job}}}]}}"
        )
    };
    let read = |text: &str| Runs::parse(text, Path::new("RUN.json"));
    let runs = read(&text("[1.5, 2.5]", &job)).unwrap();
    assert_eq!(runs.runs[0].job, read_job(JOB).unwrap());
    assert!((runs.runs[0].mean() - 2.0).abs() < 1e-12);
    assert_eq!(read(&serde_json::to_string(&runs).unwrap()).unwrap(), runs);
    for (wrong, what) in [
        (text("[]", &job), "runs[0].seconds: there are none"),
        (text("[0.0]", &job), "more than 0 s"),
        (text("[-1]", &job), "more than 0 s"),
        (text("[1]", &job.replace("\"processes\":4", "\"processes\":0")), "runs[0].job.processes"),
        (text("[1]", &job.replace("processes", "procs")), "RUN.json:3: unknown field `procs`"),
        ("{".to_owned(), "RUN.json:1"),
        ("[]".to_owned(), "RUN.json:1"),
    ] {
        let error = read(&wrong).unwrap_err().to_string();
        assert!(error.contains(what), "{error}");
    }
}
