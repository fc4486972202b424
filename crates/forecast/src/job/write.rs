//! A job as text: every key with its unit and what it means, for people who edit it.

use std::fmt::Write as _;

use super::{Access, Job, Order, Per, Phase};
use crate::toml_text::quoted;

impl Job {
    /// The text of a `JOB.toml`.
    pub fn to_toml(&self) -> String {
        let mut text = String::from(
            "# A job for `azekura forecast`. Change numbers and sizes to ask for others.\n",
        );
        // Text in a string always has room.
        let _ = write!(
            text,
            "format = {}\nname = {}\nprocesses = {}  # of each node\nnodes = {}\n",
            self.format,
            quoted(&self.name),
            self.processes,
            self.nodes
        );
        self.phases.iter().for_each(|phase| write_phase(&mut text, phase));
        text
    }
}

fn word<T: serde::Serialize>(value: &T) -> String {
    // These are written by serde as one word each.
    serde_json::to_string(value).unwrap_or_default()
}

fn write_phase(text: &mut String, phase: &Phase) {
    let mut line = |key: &str, value: String, comment: &str| {
        let comment = if comment.is_empty() { String::new() } else { format!("  # {comment}") };
        let _ = writeln!(text, "{key} = {value}{comment}");
    };
    line("\n[[phase]]\nname", quoted(&phase.name), "");
    line("pattern", word(&phase.pattern), "simple, split, merge or other");
    if phase.order != Order::default() {
        line(
            "order",
            word(&phase.order),
            "sequential, or round-robin: to the next file with each record",
        );
    }
    line("bytes_in", phase.bytes_in.0.to_string(), "read by all processes together");
    if let Some(bytes) = phase.bytes_out {
        line("bytes_out", bytes.0.to_string(), "written by all processes together");
    }
    if let Some(ratio) = phase.ratio {
        line("ratio", ratio.to_string(), "bytes written over bytes read");
    }
    line("files_in", phase.files_in.to_string(), "");
    line("files_out", phase.files_out.to_string(), "");
    line("files_per", word(&phase.files_per), "process: each has as many; job: all together");
    line("record_bytes", phase.record_bytes.0.to_string(), "");
    line(
        "buffer_bytes",
        phase.buffer_bytes.0.to_string(),
        "of the application, for each open file",
    );
    if phase.access != Access::default() {
        line("access", word(&phase.access), "sequential or random");
    }
    line("caches", word(&phase.caches), "cold, or warm: the input is in memory if it fits");
    line("compute_s_per_byte", phase.compute_s_per_byte.0.to_string(), "s");
    line("compute_s_per_record", phase.compute_s_per_record.0.to_string(), "s");
    if let Some(operations) = phase.operations {
        let whose = match phase.files_per {
            Per::Process => "of each process",
            Per::Job => "of all processes",
        };
        let _ = writeln!(
            text,
            "\n[phase.operations]  # on names, {whose}\ncreate = {}\nopen = {}\nstat = {}\nclose = {}\n\
             unlink = {}",
            operations.create,
            operations.open,
            operations.stat,
            operations.close,
            operations.unlink
        );
    }
}
