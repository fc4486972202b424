//! Targets behind sockets: sessions, namespace and object requests, transactions between targets,
//! locks, reclaim and recovery. It keeps what it must not lose in `azekura_store` and speaks
//! `azekura_proto`; it decides nothing about permissions, which is the client's part.

mod action;
mod attributes;
mod check;
mod clock;
mod connection;
mod containers;
#[cfg(test)]
mod crash_tests;
mod data;
mod dir_shards;
mod dispatch;
mod engine;
mod inode;
mod key_locks;
mod leases;
mod listing;
mod lock_table;
mod metrics;
mod namespace;
mod node;
mod participant;
mod peers;
mod reclaim;
mod record;
mod recovery;
mod rename;
mod report;
mod retry;
mod server;
mod sessions;
mod stored;
mod target;
mod transaction;
mod update;
mod values;

pub use engine::{Engine, EngineConfig, EngineError};
