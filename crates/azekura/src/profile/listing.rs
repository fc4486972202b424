//! What was recorded, for people: a table for spreadsheets, and what has to be said about it.

use std::fmt::Write as _;

use super::job::NoJob;
use super::usage::{Moved, Usage};

const HEADINGS: &str = "pid,program,path,opens,creates,size_before,end,seeks,mapped_bytes,stream_buffer,\
    bytes_read,read_requests,read_mean,read_commonest,read_sequential,read_s,records_read,read_record,\
    bytes_written,write_requests,write_mean,write_commonest,write_sequential,write_s,records_written,\
    write_record";

/// A row for each file of each process.
pub(super) fn csv(usage: &Usage) -> String {
    let mut text = format!("{HEADINGS}\n");
    for process in &usage.processes {
        for file in &process.files {
            let numbers = [
                file.opens,
                file.creates,
                file.size_before,
                file.end,
                file.seeks,
                file.mapped_bytes,
                file.stream_buffer,
            ];
            let numbers: Vec<String> = numbers.iter().map(u64::to_string).collect();
            // Text in a string always has room.
            let _ = writeln!(
                text,
                "{},{},{},{},{},{}",
                process.pid,
                quoted(&process.name),
                quoted(&file.path),
                numbers.join(","),
                moved(&file.read),
                moved(&file.written),
            );
        }
    }
    text
}

fn moved(moved: &Moved) -> String {
    let commonest = |sizes: &[(u64, u64)]| sizes.first().map_or(0, |(size, _)| *size);
    let over = |part: u64| part as f64 / moved.requests.max(1) as f64;
    format!(
        "{},{},{:.1},{},{:.4},{:.6},{},{}",
        moved.bytes,
        moved.requests,
        over(moved.bytes),
        commonest(&moved.sizes),
        over(moved.sequential),
        moved.seconds,
        moved.records,
        commonest(&moved.record_sizes),
    )
}

/// A cell: in quotes where it has to be (RFC 4180).
fn quoted(text: &str) -> String {
    if text.contains(['"', ',', '\n', '\r']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text.to_owned()
    }
}

/// What is missing from the record.
pub(super) fn remarks(usage: &Usage) -> Vec<String> {
    let mut remarks = Vec::new();
    if usage.unseen_programs > 0 {
        remarks.push(format!(
            "{} programs could not be recorded: static ones, those of Go, and those with the rights of \
             another user do not load the library",
            usage.unseen_programs
        ));
    }
    if usage.unseen_environments > 0 {
        remarks.push(format!(
            "{} programs were started without the library in LD_PRELOAD, and not recorded",
            usage.unseen_environments
        ));
    }
    if usage.lost > 0 {
        remarks.push(format!(
            "{} files or processes found no room in the record: use --under to record fewer",
            usage.lost
        ));
    }
    remarks
}

/// Why there is no job, and what to do.
pub(super) fn no_job(usage: &Usage, why: NoJob) -> String {
    let why = match why {
        NoJob::NoProcess if usage.unseen_programs > 0 => {
            "the program is one that does not load the preload library (static, of Go, or with the rights \
             of another user): profile a dynamically linked build of it"
        }
        NoJob::NoProcess => {
            "no process was recorded: does it have /proc, and the rights of the user who started it?"
        }
        NoJob::NoData => {
            "it read and wrote no regular file; files outside of --under, and those in /proc, /sys and \
             /dev, do not count"
        }
        NoJob::Impossible => "its numbers contradict each other: look at them with --csv",
    };
    format!("there is no job in what '{}' did: {why}", usage.command)
}

#[cfg(test)]
mod tests {
    use super::super::usage::{FileUsage, ProcessUsage};
    use super::*;

    #[test]
    fn a_table_has_a_cell_for_each_heading() {
        let file = FileUsage { path: "/a \"b\"".to_owned(), opens: 3, ..FileUsage::default() };
        let process = ProcessUsage { files: vec![file], ..ProcessUsage::default() };
        let text = csv(&Usage { processes: vec![process], ..Usage::default() });
        let [heading, row] = &text.lines().collect::<Vec<_>>()[..] else { panic!("{text}") };
        assert_eq!(heading.split(',').count(), row.split(',').count());
        assert!(row.contains("\"/a \"\"b\"\"\",3,"), "{row}");
    }
}
