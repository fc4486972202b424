//! Which batches a calibration runs. Owns their sizes and numbers; each group has an input of its own, which
//! is made once in a round for all batches of the group.

use azekura_forecast::job::{Caches, Order, Pattern};

use crate::bench::batch::Case;

/// Batches with the same input.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Group {
    /// The first makes the input.
    pub(super) cases: Vec<Case>,
}

/// Files of one process alone: what one costs depends on its size.
const FILES: [u64; 3] = [16, 64, 256];
/// Files that one process goes round.
const FILES_ROUND: [u64; 3] = [8, 32, 128];
/// Files of several processes together, and of each at least.
const FILES_OF_MANY: [u64; 2] = [64, 512];
const FILES_OF_EACH: u64 = 8;
/// What is nearly all writing.
const MOSTLY_WRITING: u64 = 8;
/// Parts of the usual size, from which the time that any run takes follows.
const PARTS: [u64; 2] = [4, 16];
/// Records and buffers beside the usual, as multiples and parts of it.
const RECORDS: [(u64, u64); 2] = [(1, 16), (16, 1)];
const BUFFERS: [(u64, u64); 2] = [(1, 8), (1, 64)];

/// The usual batch: one process, one file in and one out, as much out as in.
pub(super) fn usual(bytes_in: u64, record_bytes: u64, buffer_bytes: u64) -> Case {
    Case {
        pattern: Pattern::Simple,
        order: Order::Sequential,
        files: 1,
        ratio: 1.0,
        bytes_in,
        record_bytes,
        buffer_bytes,
        processes: 1,
        nodes: 1,
        caches: Caches::Cold,
        fsync: false,
    }
}

/// All groups, the most needed first.
pub(super) fn groups(usual: &Case, processes_max: u32, nodes: u32, processors: u32) -> Vec<Group> {
    let mut groups = Vec::new();
    for processes in numbers(processes_max, processors) {
        let case = Case { processes, ..usual.clone() };
        let is_power = processes.is_power_of_two() || processes == processes_max;
        groups.extend(of_crew(&case, if is_power { Extent::Most } else { Extent::Streams }));
    }
    groups.extend(warm_of(usual, processes_max));
    if nodes > 1 {
        for processes in [1, processes_max] {
            let bytes_in = usual.bytes_in * u64::from(nodes);
            let case = Case { bytes_in, processes, nodes, ..usual.clone() };
            groups.extend(of_crew(&case, Extent::Most));
        }
    }
    groups.extend(of_one(usual));
    for group in &mut groups {
        group.cases.retain(|case| case.check().is_ok());
    }
    groups.retain(|group| !group.cases.is_empty());
    groups
}

/// Powers of two, the most, and one that the processors do not share evenly.
fn numbers(processes_max: u32, processors: u32) -> Vec<u32> {
    let powers =
        (0..u32::BITS).map(|power| 1 << power).take_while(|number| *number < processes_max);
    let mut numbers: Vec<u32> = powers.chain([processes_max]).collect();
    if processors < processes_max {
        numbers.push(processors + 1);
    }
    numbers.sort_unstable();
    numbers.dedup();
    numbers
}

/// How much is measured of a number of processes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Extent {
    /// Throughputs alone: what processors that are not shared evenly cost.
    Streams,
    /// Files as well.
    Most,
}

/// What most processes have from memory.
fn warm_of(usual: &Case, processes: u32) -> Option<Group> {
    let warm = |ratio| Case { ratio, processes, caches: Caches::Warm, ..usual.clone() };
    (processes > 1).then(|| Group { cases: [0.0, 1.0].map(warm).to_vec() })
}

/// What is measured with any number of processes.
fn of_crew(usual: &Case, extent: Extent) -> Vec<Group> {
    let with = |change: &dyn Fn(&mut Case)| {
        let mut case = usual.clone();
        change(&mut case);
        case
    };
    let alone = usual.all() == 1;
    let of_many = FILES_OF_MANY.map(|files| (files / usual.all()).max(FILES_OF_EACH));
    let mut files = match extent {
        Extent::Streams => Vec::new(),
        Extent::Most if alone => FILES.to_vec(),
        Extent::Most => of_many.to_vec(),
    };
    files.dedup();
    let split = |files: &u64| {
        with(&|case| {
            case.pattern = Pattern::Split;
            case.files = *files;
        })
    };
    let mut first = vec![usual.clone(), with(&|case| case.ratio = 0.0)];
    first.extend(files.iter().map(split));
    let round = |files: u64, pattern: Pattern| {
        with(&|case| {
            case.pattern = pattern;
            case.order = Order::RoundRobin;
            case.files = files;
        })
    };
    if alone {
        first.extend(FILES_ROUND.map(|files| round(files, Pattern::Split)));
    }
    if alone {
        first.extend([0.0, 1.0].map(|ratio| {
            with(&|case| {
                case.ratio = ratio;
                case.caches = Caches::Warm;
            })
        }));
    }
    let mut groups = vec![Group { cases: first }];
    groups.push(Group {
        cases: vec![with(&|case| {
            case.bytes_in = usual.bytes_in / MOSTLY_WRITING;
            case.ratio = MOSTLY_WRITING as f64;
        })],
    });
    let merge = |files: &u64| Group {
        cases: vec![with(&|case| {
            case.pattern = Pattern::Merge;
            case.files = *files;
        })],
    };
    groups.extend(files.iter().map(merge));
    if alone {
        let round = |files| Group { cases: vec![round(files, Pattern::Merge)] };
        groups.extend(FILES_ROUND.map(round));
    }
    groups
}

/// What is measured with one process alone: starting, records and requests.
fn of_one(usual: &Case) -> Vec<Group> {
    let mut groups: Vec<Group> = PARTS
        .iter()
        .map(|part| Group {
            cases: vec![Case { bytes_in: usual.bytes_in / part, ..usual.clone() }],
        })
        .collect();
    let warm = |case: Case| {
        [0.0, 1.0].map(|ratio| Case { ratio, caches: Caches::Warm, ..case.clone() }).to_vec()
    };
    for (times, parts) in RECORDS {
        let record_bytes = (usual.record_bytes * times / parts).max(1);
        let case = Case { record_bytes, ..usual.clone() };
        let mut cases = warm(case.clone());
        if record_bytes < usual.record_bytes {
            // What of their cost goes on while the storage is waited for.
            cases.push(Case { ratio: 0.0, ..case });
        }
        groups.push(Group { cases });
    }
    let buffers = BUFFERS.iter().flat_map(|(times, parts)| {
        let buffer_bytes = (usual.buffer_bytes * times / parts).max(1);
        warm(Case { buffer_bytes, ..usual.clone() })
    });
    groups.push(Group { cases: buffers.collect() });
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_of_a_group_read_the_same_files() {
        let usual = usual(64 << 20, 1024, 2 << 20);
        let groups = groups(&usual, 8, 2, 2);
        for group in &groups {
            let input = |case: &Case| {
                let files = if case.pattern == Pattern::Merge { case.files } else { 1 };
                (case.bytes_in, files, case.processes, case.nodes, case.record_bytes)
            };
            assert!(group.cases.iter().all(|case| input(case) == input(&group.cases[0])));
            group.cases.iter().for_each(|case| case.check().unwrap());
        }
        let of = |processes, nodes| {
            groups
                .iter()
                .any(|group| (group.cases[0].processes, group.cases[0].nodes) == (processes, nodes))
        };
        assert!([1, 2, 3, 4, 8].into_iter().all(|processes| of(processes, 1)));
        assert!(of(8, 2) && !of(5, 1));
    }

    #[test]
    fn little_data_leaves_out_what_cannot_be() {
        let groups = groups(&usual(64 << 10, 1024, 2 << 20), 8, 1, 2);
        assert!(groups.iter().flat_map(|group| &group.cases).all(|case| case.files <= 64));
    }
}
