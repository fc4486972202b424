//! How a lab is, in the form that programs read. Numbers carry their unit in the name.

use std::net::Ipv4Addr;

use serde::{Deserialize, Serialize};

use crate::quantity;
use crate::relay::DirectionView;
use crate::shape::Counters;

/// How a host is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HostState {
    /// As it should be.
    Up,
    /// Off all its links.
    Cut,
    /// All its processes are stopped.
    Frozen,
    /// Both.
    CutAndFrozen,
}

impl HostState {
    /// The word for it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Cut => "cut",
            Self::Frozen => "frozen",
            Self::CutAndFrozen => "cut, frozen",
        }
    }
}

/// A host.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct HostStatus {
    /// Its name.
    pub name: String,
    /// Its address on all its links.
    pub address: Ipv4Addr,
    /// How it is.
    pub state: HostState,
    /// The process that holds its name spaces.
    pub holder_pid: u32,
}

/// One direction of a link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct DirectionStatus {
    /// The host that sends.
    pub from: String,
    /// The host that receives.
    pub to: String,
    /// Whether packets pass.
    pub up: bool,
    /// One-way delay.
    pub delay_us: f64,
    /// By how much it varies.
    pub jitter_us: f64,
    /// Bits per second with Ethernet framing; none: unlimited.
    pub rate_bits_per_s: Option<u64>,
    /// Share of packets that get lost.
    pub loss: f64,
    /// Share of packets that are overtaken.
    pub reorder: f64,
    /// The queue limit, as it is written.
    pub queue: String,
    /// What happened so far.
    #[serde(flatten)]
    pub counters: Counters,
    /// Bursts that were handed over to the receiver.
    pub delivered: u64,
    /// Bytes on the wire that wait for their turn.
    pub waiting_bytes: u64,
    /// Bytes of memory that are on their way, waiting ones included.
    pub flight_bytes: u64,
}

impl DirectionStatus {
    pub(crate) fn new(from: String, to: String, view: &DirectionView) -> Self {
        Self {
            from,
            to,
            up: view.up,
            delay_us: view.shape.delay_ns as f64 / 1e3,
            jitter_us: view.shape.jitter_ns as f64 / 1e3,
            rate_bits_per_s: view.shape.rate_bits_per_s,
            loss: view.shape.loss,
            reorder: view.shape.reorder,
            queue: quantity::format_queue(view.shape.queue),
            counters: view.counters,
            delivered: view.delivered,
            waiting_bytes: view.waiting_bytes,
            flight_bytes: view.delayed_bytes,
        }
    }
}

/// A link.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LinkStatus {
    /// Its name.
    pub name: String,
    /// Its two directions.
    pub directions: Vec<DirectionStatus>,
}

/// A lab.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LabStatus {
    /// Its name.
    pub name: String,
    /// The process that carries the packets.
    pub pid: u32,
    /// For how long it has run.
    pub uptime_s: f64,
    /// CPU time that carrying packets has taken.
    pub relay_cpu_s: f64,
    /// Whether the relay runs before ordinary threads; without that it is less exact under load.
    pub real_time: bool,
    /// The hosts.
    pub hosts: Vec<HostStatus>,
    /// The links.
    pub links: Vec<LinkStatus>,
}
