//! Values between those that were measured: linear over the logarithm of processes, nodes or files, since
//! what happens from 1 to 2 is about as much as from 8 to 16. Beyond the ends the last value holds; the
//! caller says that this is outside of what was measured.

use super::{Calibration, FileCosts, Streams};
use crate::units::{Bytes, MibPerSecond};

/// A column of [`Streams`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Column {
    Read,
    Write,
    Mixed,
    CachedRead,
    CachedMixed,
    Create,
    Open,
}

/// How many work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct At {
    pub(crate) nodes: u32,
    /// Of each node.
    pub(crate) processes: u32,
}

impl At {
    /// All processes.
    pub(crate) fn all(self) -> f64 {
        f64::from(self.nodes) * f64::from(self.processes)
    }
}

impl Streams {
    fn get(&self, column: Column) -> Option<f64> {
        let throughput = match column {
            Column::Read => self.read_mib_per_s,
            Column::Write => self.write_mib_per_s,
            Column::Mixed => self.mixed_mib_per_s,
            Column::CachedRead => self.cached_read_mib_per_s,
            Column::CachedMixed => self.cached_mixed_mib_per_s,
            Column::Create => return self.create_per_s.map(|rate| rate.number()),
            Column::Open => return self.open_per_s.map(|rate| rate.number()),
        };
        throughput.map(|rate| rate.number())
    }
}

/// Linear over the logarithm of x, between points in order of x; the ends hold beyond them.
fn interpolate(points: &[(f64, f64)], x: f64) -> Option<f64> {
    let after = points.iter().position(|(at, _)| *at >= x);
    match after {
        None => points.last().map(|(_, y)| *y),
        Some(0) => points.first().map(|(_, y)| *y),
        Some(index) => {
            let ((x0, y0), (x1, y1)) = (points[index - 1], points[index]);
            Some(y0 + (y1 - y0) * (x / x0).log2() / (x1 / x0).log2())
        }
    }
}

/// Linear over x itself, between points in order of x; the last holds beyond it.
fn along(points: &[(f64, f64)], x: f64) -> Option<f64> {
    match points.iter().position(|(at, _)| *at >= x) {
        None | Some(0) => points.last().filter(|_| x > 0.0).or(points.first()).map(|(_, y)| *y),
        Some(index) => {
            let ((x0, y0), (x1, y1)) = (points[index - 1], points[index]);
            Some(y0 + (y1 - y0) * (x - x0) / (x1 - x0))
        }
    }
}

impl Calibration {
    /// What was measured of all processes together, or lies between what was; `None` if the column is
    /// empty.
    pub(crate) fn rate(&self, column: Column, at: At) -> Option<f64> {
        let mut node_counts: Vec<u32> = self
            .streams
            .iter()
            .filter(|row| row.get(column).is_some())
            .map(|row| row.nodes)
            .collect();
        node_counts.sort_unstable();
        node_counts.dedup();
        let by_nodes: Vec<(f64, f64)> = node_counts
            .iter()
            .filter_map(|nodes| {
                let y = self.rate_of_nodes(column, *nodes, at.processes)?;
                Some((f64::from(*nodes), y))
            })
            .collect();
        let rate = interpolate(&by_nodes, f64::from(at.nodes))?;
        let measured_nodes = by_nodes.last().map_or(1.0, |(nodes, _)| *nodes);
        // Where the storage nodes' bandwidth is known it bounds what more nodes reach; where it is not,
        // nothing says that more nodes reach more.
        let grows = self.path.per_storage_node_mib_per_s.is_some();
        let more = f64::from(at.nodes) / measured_nodes;
        Some(if grows && more > 1.0 { rate * more } else { rate })
    }

    /// Numbers of processes that the processors of a node do not share evenly are looked up by how much that
    /// has cost where it was measured.
    fn rate_of_nodes(&self, column: Column, nodes: u32, processes: u32) -> Option<f64> {
        let mut points: Vec<(f64, f64)> = self
            .streams
            .iter()
            .filter(|row| row.nodes == nodes)
            .filter_map(|row| Some((f64::from(row.processes), row.get(column)?)))
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        let is_even = |processes: f64| self.evenness(processes) >= 1.0;
        let even: Vec<(f64, f64)> =
            points.iter().copied().filter(|point| is_even(point.0)).collect();
        if even.len() < 2 {
            return interpolate(&points, f64::from(processes));
        }
        let cost = |(processes, rate): &(f64, f64)| {
            let as_if_even = interpolate(&even, *processes)?;
            Some((1.0 - rate / as_if_even) / (1.0 - self.evenness(*processes)))
        };
        let costs: Vec<f64> =
            points.iter().filter(|point| !is_even(point.0)).filter_map(cost).collect();
        let cost = costs.iter().sum::<f64>() / costs.len().max(1) as f64;
        let processes = f64::from(processes);
        let uneven = 1.0 - self.evenness(processes);
        Some(interpolate(&even, processes)? * (1.0 - cost.clamp(-1.0, 1.0) * uneven))
    }

    /// What processors do if processes stay where they have begun: of the time that the one with most of
    /// them takes, the share that all are busy. 1 as long as there is a processor for each.
    fn evenness(&self, processes: f64) -> f64 {
        let processors = f64::from(self.made.machine.processors.max(1));
        if processes <= processors {
            return 1.0;
        }
        processes / (processors * (processes / processors).ceil())
    }

    /// Seconds that each further file of this size makes a run longer; `None` where that was not measured.
    /// Towards files of no size it goes down to `empty`, what creating or opening one takes.
    pub(crate) fn file_cost(
        &self,
        reading: bool,
        at: At,
        file_bytes: f64,
        empty: f64,
    ) -> Option<f64> {
        let cost = |row: &FileCosts| {
            let cost = if reading { row.merge_s_per_file } else { row.split_s_per_file };
            cost.map(|cost| cost.number())
        };
        let mut crews: Vec<(u32, u32)> = self
            .files
            .iter()
            .filter(|row| cost(row).is_some())
            .map(|row| (row.nodes, row.processes))
            .collect();
        crews.sort_unstable();
        crews.dedup();
        let nodes = crews.iter().map(|crew| crew.0).min_by_key(|nodes| nodes.abs_diff(at.nodes))?;
        let of_crew = |processes: u32| {
            let mut points: Vec<(f64, f64)> = self
                .files
                .iter()
                .filter(|row| (row.nodes, row.processes) == (nodes, processes))
                .filter_map(|row| Some((row.file_bytes.0 as f64, cost(row)?)))
                .collect();
            points.sort_by(|a, b| a.0.total_cmp(&b.0));
            // More processes at once may make a file cheaper than it is for one alone.
            let empty = empty.min(points.first()?.1);
            points.insert(0, (0.0, empty));
            along(&points, file_bytes)
        };
        let points: Vec<(f64, f64)> = crews
            .iter()
            .filter(|crew| crew.0 == nodes)
            .filter_map(|crew| Some((f64::from(crew.1), of_crew(crew.1)?)))
            .collect();
        interpolate(&points, f64::from(at.processes))
    }

    /// The share of its throughput that a process has left when it goes round so many files; `None` where
    /// that was not measured.
    pub(crate) fn share_when_interleaved(&self, reading: bool, files: f64) -> Option<f64> {
        let mut points: Vec<(f64, f64)> = self
            .interleaved
            .iter()
            .filter_map(|row| {
                let rate = if reading { row.read_mib_per_s } else { row.write_mib_per_s };
                Some((row.files as f64, rate?.number()))
            })
            .collect();
        points.sort_by(|a, b| a.0.total_cmp(&b.0));
        match points.first() {
            Some(&(1.0, alone)) => interpolate(&points, files).map(|rate| rate / alone),
            _ => None,
        }
    }

    /// Whether a job that has just read or written so many bytes finds them in memory: what was found there once is
    /// as long as memory has room, however little of that the calibration took.
    pub(crate) fn is_in_memory(&self, bytes: Bytes, nodes: u32) -> bool {
        let memory = self.made.machine.memory_bytes.0.saturating_mul(u64::from(nodes));
        self.cache.is_some() && bytes.0 <= memory
    }

    /// What the way to the storage lets through: `min(B_CP N_CN, B_SP N_SN)`, and `B_P` where there is
    /// one node. Infinite where nothing is known to bind.
    pub(crate) fn path_limit(&self, nodes: u32) -> MibPerSecond {
        let number = |bandwidth: Option<crate::measured::Measured<MibPerSecond>>| {
            bandwidth.map_or(f64::INFINITY, |bandwidth| bandwidth.number())
        };
        let compute = number(self.path.per_compute_node_mib_per_s) * f64::from(nodes);
        let storage = f64::from(self.path.storage_nodes.unwrap_or(1))
            * number(self.path.per_storage_node_mib_per_s);
        let total = if nodes == 1 { number(self.path.total_mib_per_s) } else { f64::INFINITY };
        MibPerSecond(compute.min(storage).min(total))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn between_points_the_line_is_over_the_logarithm_and_beyond_them_they_hold() {
        let points = [(1.0, 10.0), (4.0, 30.0)];
        let at = |x| interpolate(&points, x).unwrap();
        assert_eq!((at(1.0), at(2.0), at(4.0)), (10.0, 20.0, 30.0));
        assert_eq!((at(0.5), at(64.0)), (10.0, 30.0));
        assert_eq!(interpolate(&[], 1.0), None);
    }

    #[test]
    fn processes_that_do_not_go_evenly_on_the_processors_are_slower_as_was_measured() {
        let mut calibration = samples::calibration();
        calibration.made.machine.processors = 2;
        let read = |calibration: &Calibration, processes| {
            calibration.rate(Column::Read, At { nodes: 1, processes }).unwrap()
        };
        let before = read(&calibration, 5);
        let mut uneven = calibration.streams[1];
        uneven.processes = 3;
        // Three on two processors have what one and a half of them have.
        let as_if_even = read(&calibration, 3);
        uneven.read_mib_per_s = Some(crate::measured::Measured::exactly(0.75 * as_if_even));
        calibration.streams.push(uneven);
        assert!((read(&calibration, 3) - 0.75 * as_if_even).abs() < 1e-9);
        assert!((read(&calibration, 5) - before * 5.0 / 6.0).abs() < 1e-9);
        assert!((read(&calibration, 4) - 300.0).abs() < 1e-9);
    }

    #[test]
    fn more_nodes_than_measured_reach_more_only_as_far_as_the_way_is_known() {
        let mut calibration = samples::calibration();
        let at = |nodes| At { nodes, processes: 1 };
        let alone = calibration.rate(Column::Read, at(1)).unwrap();
        assert_eq!(calibration.rate(Column::Read, at(4)), Some(alone));
        calibration.path.per_storage_node_mib_per_s =
            Some(crate::measured::Measured::exactly(2.0 * alone));
        calibration.path.storage_nodes = Some(1);
        assert_eq!(calibration.rate(Column::Read, at(4)), Some(4.0 * alone));
        assert_eq!(calibration.path_limit(4), MibPerSecond(2.0 * alone));
    }

    #[test]
    fn a_file_costs_by_its_size_and_by_how_many_work() {
        let mut calibration = samples::calibration();
        let row = |processes, file_bytes, cost| FileCosts {
            nodes: 1,
            processes,
            file_bytes: Bytes(file_bytes),
            split_s_per_file: None,
            merge_s_per_file: Some(crate::measured::Measured::exactly(cost)),
        };
        calibration.files =
            vec![row(1, 1 << 20, 0.002), row(1, 1 << 24, 0.010), row(4, 1 << 20, 0.001)];
        let cost = |processes, bytes: f64| {
            calibration.file_cost(true, At { nodes: 1, processes }, bytes, 0.0001).unwrap()
        };
        let mib = f64::from(1 << 20);
        let near = |value: f64, wanted: f64| assert!((value - wanted).abs() < 1e-12, "{value}");
        near(cost(1, 4.0 * mib), 0.0036);
        near(cost(1, 0.0), 0.0001);
        near(cost(1, 0.5 * mib), 0.00105);
        near(cost(1, 100.0 * mib), 0.010);
        near(cost(2, mib), 0.0015);
        near(cost(8, 4.0 * mib), 0.001);
        assert_eq!(calibration.file_cost(false, At { nodes: 1, processes: 1 }, mib, 0.0), None);
    }
}
