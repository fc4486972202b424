//! Targets behind sockets: sessions, namespace and object requests, transactions between targets,
//! locks, reclaim and recovery. It keeps what it must not lose in `azekura_store` and speaks
//! `azekura_proto`; it decides nothing about permissions, which is the client's part.

mod background;
mod check;
mod clock;
#[cfg(test)]
mod crash_tests;
mod data;
mod direct;
mod engine;
mod engine_dir;
mod engine_state;
mod error;
mod held_note;
mod listen;
mod lock_table;
#[cfg(test)]
mod made_again_tests;
mod metrics;
mod namespace;
mod node;
mod object_counts;
mod peers;
mod records;
mod report;
mod requests;
#[cfg(test)]
mod restart_tests;
mod service;
#[cfg(test)]
mod service_tests;
mod target;
mod transaction;
#[cfg(test)]
mod virtual_time;

pub use engine::{Engine, Watch};
pub use engine_dir::EngineDir;
pub use engine_state::EngineConfig;
pub use error::EngineError;
pub use peers::Peers;
pub use requests::attachment::Attachment;
pub use service::{Service, ServiceParts};
