//! Services as homes of a staging job's files: S3, WebDAV, SFTP and HDFS (by WebHDFS), through `opendal`, and
//! local files, each by an [`Address`]. Owns what a service cannot do as a directory does, and says so. An
//! asynchronous runtime lives within each service's source and nowhere else; nothing outside of this crate
//! may know of it.

// What the library's layers nest into each other is deeper than the usual limit.
#![recursion_limit = "256"]

mod address;
mod budget;
mod caught;
mod hdfs;
mod link;
mod listing;
mod naming;
mod operator;
mod reader;
mod service;
mod sys;
mod trouble;
mod writer;

use std::io;
use std::sync::Arc;

use azekura_stage::source::{Directory, Source};

pub use address::{Address, Kind};
pub use caught::panics_are_caught;

use crate::service::Service;

/// Opens what an address names, and looks whether it answers. `is_written` says that the job writes there: a
/// prefix of S3 under which nothing is yet will do then.
///
/// # Errors
/// If it is not there, does not let us in, or lacks a setting; the text says which and what to check.
pub fn open(address: &Address, is_written: bool) -> io::Result<Arc<dyn Source>> {
    if let Some(dir) = address.local_dir() {
        return Ok(Arc::new(Directory::open(dir)?));
    }
    Ok(Arc::new(Service::open(address, is_written)?))
}
