//! What a job came to: the table of `status`, the line at the end, the exit code.

use std::fmt::Write as _;

use super::tally::{JobStatus, NodeStatus};
use crate::report::{Table, format_bytes, format_duration_s};

/// The exit code of a job whose command was right, when not everything could be sent home (`EX_TEMPFAIL` of
/// sysexits.h: it can be tried again).
pub(super) const OUT_FAILED: u8 = 75;

/// `3 files, 1.5 MiB`.
pub(super) fn files_and_bytes(files: u64, bytes: u64) -> String {
    let plural = if files == 1 { "" } else { "s" };
    format!("{files} file{plural}, {}", format_bytes(bytes))
}

/// A rate, of bytes in so many seconds.
pub(super) fn rate(bytes: u64, seconds: f64) -> String {
    if seconds > 0.0 {
        format!("{}/s", format_bytes((bytes as f64 / seconds) as u64))
    } else {
        "-".to_owned()
    }
}

/// Nodes and what has come to them.
pub(super) fn table(status: &JobStatus) -> String {
    let mut table =
        Table::new(&["node", "state", ">files", ">bytes", ">rate", ">stalls", ">failed"]);
    for node in &status.nodes {
        table.row([
            node.host.clone(),
            if node.up { "up" } else { "gone" }.to_owned(),
            node.files.to_string(),
            format_bytes(node.bytes),
            rate(node.bytes, status.elapsed_s),
            node.stalls.to_string(),
            node.failed.to_string(),
        ]);
    }
    format!(
        "job {}, since {}: {} came from home, {} went there\n{table}",
        status.job,
        format_duration_s(status.elapsed_s as u64),
        files_and_bytes(status.files, status.bytes),
        files_and_bytes(status.sent_files, status.sent_bytes),
    )
}

/// What it came to, in one line.
pub(super) fn line(status: &JobStatus) -> String {
    let sum = |of: fn(&NodeStatus) -> u64| status.nodes.iter().map(of).sum::<u64>();
    let mut text = format!(
        "azekura: staged to {} node{}: {} from home, {} on the nodes; sent home: {}; {:.1} s",
        status.nodes.len(),
        if status.nodes.len() == 1 { "" } else { "s" },
        files_and_bytes(status.files, status.bytes),
        files_and_bytes(sum(|node| node.files), sum(|node| node.bytes)),
        files_and_bytes(status.sent_files, status.sent_bytes),
        status.elapsed_s
    );
    for (count, what) in [
        (status.nodes.iter().filter(|node| !node.up).count() as u64, "lost"),
        (sum(|node| node.stalls), "stalls"),
        (status.restarted, "read again"),
        (sum(|node| node.failed), "failed"),
    ] {
        if count > 0 {
            let _ = write!(text, "; {count} {what}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_is_summed_up_in_a_line() {
        let node = NodeStatus {
            host: "n1".to_owned(),
            up: true,
            files: 2,
            bytes: 2048,
            ..NodeStatus::default()
        };
        let gone = NodeStatus { up: false, stalls: 3, ..node.clone() };
        let status = JobStatus {
            job: "0".repeat(32),
            elapsed_s: 2.0,
            nodes: vec![node, gone],
            files: 2,
            bytes: 2048,
            restarted: 0,
            sent_files: 1,
            sent_bytes: 5,
        };
        assert_eq!(
            line(&status),
            "azekura: staged to 2 nodes: 2 files, 2 KiB from home, 4 files, 4 KiB on the nodes; \
             sent home: 1 file, 5 B; 2.0 s; 1 lost; 3 stalls"
        );
        let table = table(&status);
        assert!(table.contains("gone") && table.contains("1 KiB/s"), "{table}");
    }
}
