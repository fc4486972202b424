//! `nfs-*`: the evaluation of a published system that let NFS clients reach a striped store through
//! proxies, of the same axes, on hosts and links of a lab; and what made that proxy slow.

mod bandwidth;
mod build;
mod fixture;
mod load_client;
mod proxy;

use super::frame::Experiment;

/// The experiments.
pub(super) fn every() -> [Box<dyn Experiment>; 3] {
    [Box::new(bandwidth::Bandwidth), Box::new(proxy::Proxy), Box::new(build::Build)]
}
