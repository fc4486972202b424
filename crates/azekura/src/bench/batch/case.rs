//! One batch: what all of its processes do together, as orders for workers and as a job for forecasts. Owns
//! how records are shared out.

use anyhow::Result;
use azekura_forecast::Job;
use azekura_forecast::job::{Access, Caches, FORMAT, Order, Pattern, Per, Phase};
use azekura_forecast::units::{Bytes, Seconds};

use crate::load::{BatchOrder, BatchStep};
use crate::outcome::usage;

/// A batch.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Case {
    /// Simple, split or merge.
    pub(crate) pattern: Pattern,
    /// How each process goes through many files.
    pub(crate) order: Order,
    /// Files of each process that are split into or merged from.
    pub(crate) files: u64,
    /// Bytes written for each byte read.
    pub(crate) ratio: f64,
    /// Bytes read by all processes together; rounded down to whole records of each.
    pub(crate) bytes_in: u64,
    /// Length of a record.
    pub(crate) record_bytes: u64,
    /// Length of the buffer of each file.
    pub(crate) buffer_bytes: u64,
    /// Processes of each node.
    pub(crate) processes: u32,
    /// Nodes.
    pub(crate) nodes: u32,
    /// Whether the input comes from the storage or from memory.
    pub(crate) caches: Caches,
    /// Whether files are made durable before they are closed.
    pub(crate) fsync: bool,
}

impl Case {
    /// All processes.
    pub(crate) fn all(&self) -> u64 {
        u64::from(self.processes) * u64::from(self.nodes)
    }

    /// Records that each process reads.
    fn records_in(&self) -> u64 {
        self.bytes_in / self.all().max(1) / self.record_bytes.max(1)
    }

    /// Records that each process writes.
    fn records_out(&self) -> u64 {
        (self.records_in() as f64 * self.ratio).round() as u64
    }

    /// Bytes that are really read, by all processes.
    pub(crate) fn read_bytes(&self) -> u64 {
        self.records_in() * self.record_bytes * self.all()
    }

    /// Bytes that are written, by all processes.
    pub(crate) fn written_bytes(&self) -> u64 {
        self.records_out().saturating_mul(self.record_bytes).saturating_mul(self.all())
    }

    fn files_of(&self, many: Pattern) -> u64 {
        if self.pattern == many { self.files } else { 1 }
    }

    /// The same as a job, which can be forecast.
    pub(crate) fn job(&self) -> Job {
        let phase = Phase {
            name: String::new(),
            pattern: self.pattern,
            order: self.order,
            bytes_in: Bytes(self.read_bytes()),
            bytes_out: Some(Bytes(self.written_bytes())),
            ratio: None,
            files_in: self.files_of(Pattern::Merge),
            files_out: self.files_of(Pattern::Split),
            files_per: Per::Process,
            record_bytes: Bytes(self.record_bytes),
            buffer_bytes: Bytes(self.buffer_bytes),
            access: Access::Sequential,
            caches: self.caches,
            compute_s_per_byte: Seconds(0.0),
            compute_s_per_record: Seconds(0.0),
            operations: None,
        };
        Job {
            format: FORMAT,
            name: self.name(),
            processes: self.processes,
            nodes: self.nodes,
            phases: vec![phase],
        }
    }

    /// In a few words.
    pub(crate) fn name(&self) -> String {
        let files = match self.pattern {
            Pattern::Simple | Pattern::Other => String::new(),
            Pattern::Split | Pattern::Merge => {
                let order = match self.order {
                    Order::Sequential => "sequential",
                    Order::RoundRobin => "round-robin",
                };
                format!("-{}-{order}", self.files)
            }
        };
        let nodes = if self.nodes > 1 { format!("{}x", self.nodes) } else { String::new() };
        format!("{}{files}-r{}-p{nodes}{}", self.pattern, self.ratio, self.processes)
    }

    /// Holds its values against each other.
    ///
    /// # Errors
    /// If it cannot be run.
    pub(crate) fn check(&self) -> Result<()> {
        if !(self.ratio.is_finite() && self.ratio >= 0.0) {
            return Err(usage("--ratio must be 0 or more"));
        }
        if self.files == 0 || self.processes == 0 {
            return Err(usage("--files and --processes must be 1 or more"));
        }
        if self.record_bytes == 0 || self.buffer_bytes == 0 {
            return Err(usage("--record and --buffer must be 1 byte or more"));
        }
        if self.records_in() == 0 {
            return Err(usage(format!(
                "{} bytes are not one record of {} bytes for each of {} processes: make --size larger",
                self.bytes_in,
                self.record_bytes,
                self.all()
            )));
        }
        if self.pattern == Pattern::Simple && self.files > 1 {
            return Err(usage(
                "the pattern 'simple' has one file in and one out: leave --files out",
            ));
        }
        let records = if self.pattern == Pattern::Split && self.ratio > 0.0 {
            self.records_out()
        } else {
            self.records_in()
        };
        if self.files > records {
            return Err(usage(format!(
                "{} files are more than the {records} records of each process: make --files smaller, \
                 or --size larger",
                self.files
            )));
        }
        Ok(())
    }

    /// The orders of all processes, node after node for the first process, then for the second.
    pub(super) fn orders(&self, step: BatchStep, dir: &str) -> Vec<BatchOrder> {
        let needs_bytes = self.read_bytes().saturating_add(self.written_bytes());
        (0..self.all())
            .map(|process| BatchOrder {
                step,
                dir: format!("{dir}/{process}"),
                files_in: self.files_of(Pattern::Merge),
                files_out: self.files_of(Pattern::Split),
                round_robin: self.order == Order::RoundRobin,
                records_in: self.records_in(),
                records_out: self.records_out(),
                record_bytes: self.record_bytes,
                buffer_bytes: self.buffer_bytes,
                fsync: self.fsync,
                processes: u64::from(self.processes),
                is_first_of_node: process < u64::from(self.nodes),
                needs_bytes: if process == 0 { needs_bytes } else { 0 },
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case() -> Case {
        Case {
            pattern: Pattern::Split,
            order: Order::Sequential,
            files: 10,
            ratio: 0.5,
            bytes_in: 1_000_000,
            record_bytes: 1024,
            buffer_bytes: 1 << 20,
            processes: 2,
            nodes: 2,
            caches: Caches::Cold,
            fsync: false,
        }
    }

    #[test]
    fn records_are_shared_out_and_the_job_says_what_is_really_moved() {
        let case = case();
        case.check().unwrap();
        let job = case.job();
        job.check().unwrap();
        assert_eq!(job.phases[0].bytes_in.0, 244 * 1024 * 4);
        assert_eq!(job.phases[0].written().0, 122 * 1024 * 4);
        let orders = case.orders(BatchStep::Run, "d");
        assert_eq!(orders.len(), 4);
        assert_eq!((orders[0].files_in, orders[0].files_out), (1, 10));
        let first: Vec<bool> = orders.iter().map(|order| order.is_first_of_node).collect();
        assert_eq!(first, [true, true, false, false]);
        assert_eq!(orders[0].needs_bytes, (244 + 122) * 1024 * 4);
        assert_eq!(case.name(), "split-10-sequential-r0.5-p2x2");
    }

    #[test]
    fn more_than_can_be_counted_needs_more_room_than_there_is() {
        let case = Case { ratio: 1e300, ..case() };
        assert_eq!(case.orders(BatchStep::CheckRoom, "d")[0].needs_bytes, u64::MAX);
    }

    #[test]
    fn what_can_be_run_can_be_forecast() {
        // Files are made that get no record.
        let case = Case { ratio: 0.0, files: 8, ..case() };
        case.check().unwrap();
        case.job().check().unwrap();
    }

    #[test]
    fn what_cannot_be_run_is_refused() {
        let refused = |change: fn(&mut Case)| {
            let mut case = case();
            change(&mut case);
            case.check().unwrap_err().to_string()
        };
        assert!(refused(|case| case.files = 0).contains("--files"));
        assert!(refused(|case| case.files = 123).contains("more than the 122 records"));
        assert!(refused(|case| case.bytes_in = 4095).contains("--size"));
        assert!(refused(|case| case.ratio = -1.0).contains("--ratio"));
        assert!(refused(|case| case.record_bytes = 0).contains("--record"));
        assert!(refused(|case| case.pattern = Pattern::Simple).contains("simple"));
    }
}
