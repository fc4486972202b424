//! What files cost beside their data, in turn and gone round. Owns that a cost which is lost in what runs
//! differ anyway counts less than what loops over names say.

use super::source::{
    SIMPLE, Source, Wanted, error_of, files_of, known, middle, phase_of, rate_of, ratio_of, spread,
    typical,
};
use crate::calibration::{FileCosts, Interleaved, Streams};
use crate::fit::Line;
use crate::job::{Caches, Order, Pattern};
use crate::measured::Measured;
use crate::runs::Run;
use crate::units::{Bytes, MibPerSecond, Seconds};

/// Less than this a file does not cost, in seconds: below it is what the clock and the line make.
const FILE_S_MIN: f64 = 1e-7;

impl<'a> Source<'a> {
    /// The run of a pattern with most files, in turn, and that with one file and the same data.
    fn many_and_one(
        &self,
        pattern: Pattern,
        nodes: u32,
        processes: u32,
    ) -> Option<(&'a Run, &'a Run)> {
        let simple = self.find(Wanted { ratio: 1.0, nodes, processes, ..SIMPLE })?;
        let many = self
            .runs
            .iter()
            .filter(|run| (run.job.nodes, run.job.processes) == (nodes, processes))
            .filter(|run| {
                phase_of(run).is_some_and(|phase| {
                    phase.pattern == pattern
                        && phase.order == Order::Sequential
                        && self.is_usual(phase)
                        && (ratio_of(phase) - 1.0).abs() < 0.01
                })
            })
            .max_by_key(|run| phase_of(run).map_or(0, files_of))?;
        Some((many, simple))
    }

    /// What each file beyond the first of a process makes a run longer than one of the same data in one file,
    /// in seconds. Where that is lost in what runs differ anyway, what a loop over names takes counts more.
    fn file_cost_of(&self, many: &Run, simple: &Run) -> Option<Measured<Seconds>> {
        let (phase, base) = (phase_of(many)?, phase_of(simple)?);
        let crew = (many.job.nodes, many.job.processes);
        let further = (files_of(phase) as f64 - 1.0) * f64::from(crew.0) * f64::from(crew.1);
        if further <= 0.0 {
            return None;
        }
        let data = self.less_start(simple) * phase.bytes_in.mib() / base.bytes_in.mib();
        let found = (self.less_start(many) - data) / further;
        let error = error_of(simple).hypot(error_of(many)) / further;
        let loops = self.beside.of(crew.0, crew.1).map(|one| match phase.pattern {
            Pattern::Split => &one.create_s,
            _ => &one.open_s,
        });
        let otherwise = loops.and_then(|loops| middle::<Seconds>(loops));
        let otherwise = otherwise.map_or(found, |seconds| seconds.number());
        let known = if found > 0.0 { known(found, error) } else { 0.0 };
        let cost = (known * found + (1.0 - known) * otherwise).max(FILE_S_MIN);
        let apart = (typical(many) * spread(many)).hypot(typical(simple) * spread(simple));
        let runs = many.seconds.len().min(simple.seconds.len());
        Some(Measured {
            value: Seconds(cost),
            sd: apart / further,
            runs: u32::try_from(runs).unwrap_or(1).max(1),
        })
    }

    /// What a process alone takes for a file beside its data, from the run with most files.
    pub(super) fn file_cost(&self, pattern: Pattern) -> Option<f64> {
        let (many, simple) = self.many_and_one(pattern, 1, 1)?;
        Some(self.file_cost_of(many, simple)?.number())
    }

    /// The same for every size of files and every number of processes that were run.
    pub(super) fn file_costs(&self) -> Vec<FileCosts> {
        let mut rows: Vec<FileCosts> = Vec::new();
        for run in self.runs {
            let Some(phase) = phase_of(run) else { continue };
            let (nodes, processes) = (run.job.nodes, run.job.processes);
            let usual = self.is_usual(phase) && (ratio_of(phase) - 1.0).abs() < 0.01;
            let in_turn = phase.order == Order::Sequential && phase.caches == Caches::Cold;
            let is_many = matches!(phase.pattern, Pattern::Split | Pattern::Merge);
            if !(usual && in_turn && is_many) {
                continue;
            }
            let simple = self.find(Wanted { ratio: 1.0, nodes, processes, ..SIMPLE });
            let cost = simple.and_then(|simple| self.file_cost_of(run, simple));
            let Some(cost) = cost else { continue };
            let all = files_of(phase) * u64::from(nodes) * u64::from(processes);
            let file_bytes = Bytes((phase.bytes_in.0 / all).max(1));
            let same = |row: &FileCosts| {
                (row.nodes, row.processes, row.file_bytes) == (nodes, processes, file_bytes)
            };
            let index = rows.iter().position(same).unwrap_or_else(|| {
                let (split_s_per_file, merge_s_per_file) = (None, None);
                rows.push(FileCosts {
                    nodes,
                    processes,
                    file_bytes,
                    split_s_per_file,
                    merge_s_per_file,
                });
                rows.len() - 1
            });
            match phase.pattern {
                Pattern::Split => rows[index].split_s_per_file = Some(cost),
                _ => rows[index].merge_s_per_file = Some(cost),
            }
        }
        rows.sort_by_key(|row| (row.nodes, row.processes, row.file_bytes));
        rows
    }

    /// `C_C` and `C_O`: the slope of a line through the times over the files.
    pub(super) fn slope(&self, pattern: Pattern) -> Option<Measured<Seconds>> {
        let simple = self.find(Wanted { ratio: 1.0, ..SIMPLE })?;
        let bytes = phase_of(simple)?.bytes_in;
        let mut points = vec![(1.0, typical(simple))];
        for run in self.runs {
            let Some(phase) = phase_of(run) else { continue };
            let alone = (run.job.nodes, run.job.processes) == (1, 1);
            let near = (ratio_of(phase) - 1.0).abs() < 0.01 && self.is_usual(phase);
            if alone && near && phase.pattern == pattern && phase.order == Order::Sequential {
                let scale = bytes.mib() / phase.bytes_in.mib();
                points.push((files_of(phase) as f64, typical(run) * scale));
            }
        }
        let line = Line::through(&points)?;
        let slope: Measured<Seconds> = line.measured_slope();
        Some(Measured { value: Seconds(slope.number().max(FILE_S_MIN)), ..slope })
    }

    /// What creating or opening a file takes in a loop.
    fn empty_cost(&self, pattern: Pattern) -> f64 {
        let loops = self.beside.of(1, 1);
        let loops = loops.map(|one| match pattern {
            Pattern::Split => &one.create_s,
            _ => &one.open_s,
        });
        let cost = loops.and_then(|loops| middle::<Seconds>(loops));
        cost.map_or(0.0, |seconds| seconds.number())
    }

    /// One process that goes round its files.
    pub(super) fn interleaved(&self, row: &Streams) -> Vec<Interleaved> {
        let (Some(read), Some(write)) = (row.read_mib_per_s, row.write_mib_per_s) else {
            return Vec::new();
        };
        let alone = |rate: Measured<MibPerSecond>| Measured { sd: 0.0, ..rate };
        let mut rows = vec![Interleaved {
            files: 1,
            read_mib_per_s: Some(alone(read)),
            write_mib_per_s: Some(alone(write)),
        }];
        let Some(simple) = self.find(Wanted { ratio: 1.0, ..SIMPLE }) else { return Vec::new() };
        for run in self.runs {
            let Some(phase) = phase_of(run) else { continue };
            let alone = (run.job.nodes, run.job.processes) == (1, 1);
            if !alone || phase.order != Order::RoundRobin || !self.is_usual(phase) {
                continue;
            }
            let files = files_of(phase);
            // All files are open at once: none waits for another one's data, as in turn.
            let cost = self.empty_cost(phase.pattern) * (files - 1) as f64;
            let Some(base) = phase_of(simple) else { continue };
            let one_way = self.less_start(simple) * phase.bytes_in.mib() / base.bytes_in.mib();
            // What it takes longer than in turn is put on the side that has the files.
            let more = (self.less_start(run) - cost - one_way).max(-0.5 * one_way);
            let (bytes, rate) = match phase.pattern {
                Pattern::Split => (phase.written(), write.number()),
                _ => (phase.bytes_in, read.number()),
            };
            let seconds = (bytes.mib() / rate + more).max(0.5 * bytes.mib() / rate);
            let rate = rate_of(run, bytes, seconds);
            let index = rows.iter().position(|row| row.files == files).unwrap_or_else(|| {
                rows.push(Interleaved { files, read_mib_per_s: None, write_mib_per_s: None });
                rows.len() - 1
            });
            match phase.pattern {
                Pattern::Split => rows[index].write_mib_per_s = rate,
                _ => rows[index].read_mib_per_s = rate,
            }
        }
        rows.sort_by_key(|row| row.files);
        if rows.len() > 1 { rows } else { Vec::new() }
    }
}
