//! The evaluation of the DAOS file system: which transfer sizes, chunks, targets, numbers of processes
//! and access paths make it fast.

mod access;
mod bandwidth;
mod benchmarks;
mod fixture;
mod metadata;
mod phase;
mod rates;
mod targets;
mod transfer;
mod workers;

use super::frame::Experiment;

/// All of them.
pub(super) fn every() -> Vec<Box<dyn Experiment>> {
    vec![
        Box::new(transfer::Transfer::ByFiles),
        Box::new(transfer::Transfer::ByChunk),
        Box::new(targets::Targets),
        Box::new(workers::Workers),
        Box::new(metadata::Metadata),
        Box::new(access::Access),
        Box::new(access::AccessMetadata),
        Box::new(benchmarks::Ior),
        Box::new(benchmarks::Mdtest),
    ]
}
