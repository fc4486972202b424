//! A calibration as text: every value with its unit and what it means, for people who read and edit it.

use std::fmt::{Display, Write as _};

use super::{Calibration, Span, Streams};
use crate::toml_text::quoted;

/// Builds the text, section by section; what is absent is not written.
struct Text(String);

impl Text {
    fn section(&mut self, header: &str, comment: &str) {
        // Text in a string always has room.
        let _ = write!(self.0, "\n[{header}]  # {comment}\n");
    }

    fn key(&mut self, key: &str, value: impl Display, comment: &str) {
        let comment = if comment.is_empty() { String::new() } else { format!("  # {comment}") };
        let _ = writeln!(self.0, "{key} = {value}{comment}");
    }

    fn maybe<V: Display>(&mut self, key: &str, value: Option<V>, comment: &str) {
        if let Some(value) = value {
            self.key(key, value, comment);
        }
    }

    fn span(&mut self, key: &str, span: Span, comment: &str) {
        self.key(key, format_args!("[{}, {}]", span.least, span.most), comment);
    }
}

impl Calibration {
    /// The text of a `FS.toml`.
    pub fn to_toml(&self) -> String {
        let mut text = Text(String::from(
            "# A calibrated file system, for `azekura forecast`. Units stand in the keys; MiB are 2^20 \
             bytes. A\n# value is { value, sd: standard deviation of one run, runs }, or a number that \
             is taken as exact.\n",
        ));
        text.key("format", self.format, "");
        text.key("name", quoted(&self.name), "");
        self.write_made(&mut text);
        text.section("sequential", "T_SR, T_SW: one process, one file in and one out");
        text.key("read_mib_per_s", self.sequential.read_mib_per_s, "");
        text.key("write_mib_per_s", self.sequential.write_mib_per_s, "");
        if let Some(random) = &self.random {
            text.section("random", "T_RR, T_RW: one buffer at a time, anywhere");
            text.key("read_mib_per_s", random.read_mib_per_s, "");
            text.key("write_mib_per_s", random.write_mib_per_s, "");
        }
        self.write_metadata(&mut text);
        self.write_paths(&mut text);
        for fit in &self.parallel {
            text.section("[parallel]", "throughput over all processes x: y = a/x + b");
            text.key("pattern", quoted(&fit.pattern.to_string()), "");
            text.key("a_mib_per_s", fit.a_mib_per_s, "");
            text.maybe("b_mib_per_s", fit.b_mib_per_s, "");
        }
        self.write_application(&mut text);
        self.streams.iter().for_each(|row| write_streams(&mut text, row));
        for row in &self.files {
            text.section("[files]", "what each further file of this size makes a run longer");
            text.key("nodes", row.nodes, "");
            text.key("processes", row.processes, "of each node");
            text.key("file_bytes", row.file_bytes.0, "");
            text.maybe("split_s_per_file", row.split_s_per_file, "each file split into");
            text.maybe("merge_s_per_file", row.merge_s_per_file, "each file merged from");
        }
        for row in &self.interleaved {
            text.section("[interleaved]", "one process, from file to file with each record");
            text.key("files", row.files, "");
            text.maybe("read_mib_per_s", row.read_mib_per_s, "");
            text.maybe("write_mib_per_s", row.write_mib_per_s, "");
        }
        text.section("model", "how well it fits its own runs");
        text.key("residual", self.model.residual, "root mean square of ln(measured / forecast)");
        text.0
    }

    fn write_made(&self, text: &mut Text) {
        let made = &self.made;
        text.section("made", "where, when and with what this was measured");
        text.key("date", quoted(&made.date), "UTC");
        text.key("software", quoted(&made.software), "");
        text.key("target", quoted(&made.target), "");
        text.key("file_system", quoted(&made.file_system), "");
        text.key("mount_options", quoted(&made.mount_options), "");
        text.key("record_bytes", made.record_bytes.0, "of the runs, unless a run varied it");
        text.key("buffer_bytes", made.buffer_bytes.0, "of the application in the runs");
        text.section("made.machine", "each node");
        text.key("host", quoted(&made.machine.host), "");
        text.key("processor", quoted(&made.machine.processor), "");
        text.key("processors", made.machine.processors, "");
        text.key("memory_bytes", made.machine.memory_bytes.0, "");
        text.section("range", "least and most that was measured; beyond it a forecast says so");
        text.span("files", self.range.files, "of one process");
        text.span("bytes", self.range.bytes, "in and out, of all processes together");
        text.span("processes", self.range.processes, "of one node");
        text.span("nodes", self.range.nodes, "");
        text.span("record_bytes", self.range.record_bytes, "");
        text.span("buffer_bytes", self.range.buffer_bytes, "");
    }

    fn write_metadata(&self, text: &mut Text) {
        let costs = &self.metadata;
        text.section("metadata", "seconds of one process alone");
        text.maybe("split_s_per_file", costs.split_s_per_file, "C_C: each file split into");
        text.maybe("merge_s_per_file", costs.merge_s_per_file, "C_O: each file merged from");
        text.maybe("start_s", costs.start_s, "beginning and ending any run");
        text.maybe("create_s", costs.create_s, "each");
        text.maybe("open_s", costs.open_s, "each");
        text.maybe("stat_s", costs.stat_s, "each");
        text.maybe("close_s", costs.close_s, "each");
        text.maybe("unlink_s", costs.unlink_s, "each");
    }

    fn write_paths(&self, text: &mut Text) {
        let paths = &self.path;
        text.section("path", "bandwidths of the way to the storage; what is absent does not bind");
        text.maybe("total_mib_per_s", paths.total_mib_per_s, "B_P");
        text.maybe("per_compute_node_mib_per_s", paths.per_compute_node_mib_per_s, "B_CP");
        text.maybe("per_storage_node_mib_per_s", paths.per_storage_node_mib_per_s, "B_SP");
        text.maybe("storage_nodes", paths.storage_nodes, "N_SN");
    }

    fn write_application(&self, text: &mut Text) {
        let cpu = &self.cpu;
        text.section(
            "cpu",
            "of a processor; part of every throughput here, at the sizes in [made]",
        );
        text.maybe("record_read_s", cpu.record_read_s, "each");
        text.maybe("record_written_s", cpu.record_written_s, "each");
        text.maybe("request_read_s", cpu.request_read_s, "each buffer");
        text.maybe("request_written_s", cpu.request_written_s, "each buffer");
        text.section("overlap", "1: all of the shorter goes on during the longer; 0: none");
        text.maybe("compute", self.overlap.compute, "computing with reading and writing");
        text.maybe("metadata", self.overlap.metadata, "with the data of other processes");
        text.maybe("write_back", self.overlap.write_back, "reading with what memory passes on");
        if let Some(write_back) = &self.write_back {
            text.section("write_back", "writes that are taken into memory until it is full");
            text.key("node_mib", write_back.node_mib, "MiB that a node takes in");
            text.key("sustained_mib_per_s", write_back.sustained_mib_per_s, "afterwards");
        }
        if let Some(cache) = &self.cache {
            text.section("cache", "memory that files are kept in");
            text.key("node_bytes", cache.node_bytes.0, "found there, of each node");
        }
    }
}

fn write_streams(text: &mut Text, row: &Streams) {
    text.section("[streams]", "so many processes together, one file in and one out each");
    text.key("nodes", row.nodes, "");
    text.key("processes", row.processes, "of each node");
    text.maybe("read_mib_per_s", row.read_mib_per_s, "");
    text.maybe("write_mib_per_s", row.write_mib_per_s, "");
    text.maybe("mixed_mib_per_s", row.mixed_mib_per_s, "as much out as in, both counted");
    text.maybe("cached_read_mib_per_s", row.cached_read_mib_per_s, "from memory");
    text.maybe("cached_mixed_mib_per_s", row.cached_mixed_mib_per_s, "from memory");
    text.maybe("create_per_s", row.create_per_s, "files created and closed");
    text.maybe("open_per_s", row.open_per_s, "files opened and closed");
}
