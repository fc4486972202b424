//! Measures the references beside the figures: the same number of bare processes, at the same time,
//! on the same machine.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context as _, Result};

use super::crew::Crew;
use super::order::{Order, Speed};
use super::sheet::Unit;

/// What a figure of the native path is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bare {
    /// Small messages to and fro.
    PingPong,
    /// A file sent with `sendfile` to a reader.
    SendfileStream,
    /// A stream read and written to a file.
    SocketToFileStream,
}

impl Bare {
    /// The name of its row.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::PingPong => "ref_ping_pong",
            Self::SendfileStream => "ref_sendfile_stream",
            Self::SocketToFileStream => "ref_socket_to_file_stream",
        }
    }

    /// What it is counted in.
    pub(crate) fn unit(self) -> Unit {
        match self {
            Self::PingPong => Unit::RoundTrips,
            Self::SendfileStream | Self::SocketToFileStream => Unit::Mib,
        }
    }
}

/// A directory of its own in memory-backed storage, gone when dropped.
pub(crate) struct ScratchDir(PathBuf);

impl ScratchDir {
    /// Makes it.
    pub(crate) fn make(what: &str) -> Result<Self> {
        let shared = PathBuf::from("/dev/shm");
        let base = if shared.is_dir() { shared } else { std::env::temp_dir() };
        Self::make_in(&base, what)
    }

    /// Makes it in another directory.
    pub(crate) fn make_in(base: &Path, what: &str) -> Result<Self> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let dir = base.join(format!("azekura-bench-{what}-{}-{number}", std::process::id()));
        std::fs::create_dir(&dir)
            .with_context(|| format!("cannot make the directory {}", dir.display()))?;
        Ok(Self(dir))
    }

    /// A path in it.
    pub(crate) fn path(&self, name: &str) -> String {
        self.0.join(name).to_string_lossy().into_owned()
    }

    /// The directory itself.
    pub(crate) fn dir(&self) -> String {
        self.0.to_string_lossy().into_owned()
    }
}

impl Drop for ScratchDir {
    fn drop(&mut self) {
        // Nothing more can be done about what does not let itself be removed.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Pairs of bare processes.
pub(crate) struct References {
    crew: Crew,
    scratch: ScratchDir,
    pairs: usize,
    bytes: u64,
    limit_ms: u64,
}

impl References {
    /// As many pairs as the bench has processes; streams of `bytes` in all.
    pub(crate) fn hire(pairs: usize, bytes: u64, limit_ms: u64) -> Result<Self> {
        Ok(Self {
            crew: Crew::hire(2 * pairs)?,
            scratch: ScratchDir::make("reference")?,
            pairs,
            bytes: bytes / pairs as u64,
            limit_ms,
        })
    }

    /// Measures one; in its own unit.
    ///
    /// # Errors
    /// If a process fails.
    pub(crate) fn measure(&mut self, bare: Bare) -> Result<f64> {
        let mut orders = Vec::with_capacity(2 * self.pairs);
        for pair in 0..self.pairs {
            let socket = self.scratch.path(&format!("{pair}.sock"));
            let [listening, calling] = match bare {
                Bare::PingPong => [
                    Order::Pong { socket: socket.clone() },
                    Order::Ping { socket, limit_ms: self.limit_ms },
                ],
                Bare::SendfileStream => [
                    Order::Drain { socket: socket.clone() },
                    Order::SendFile {
                        socket,
                        file: self.scratch.path(&format!("{pair}.source")),
                        bytes: self.bytes,
                    },
                ],
                Bare::SocketToFileStream => [
                    Order::DrainToFile {
                        socket: socket.clone(),
                        file: self.scratch.path(&format!("{pair}.sink")),
                    },
                    Order::Pour { socket, bytes: self.bytes },
                ],
            };
            orders.extend([listening, calling]);
        }
        let tallies = self.crew.run(&orders)?;
        // The side that ends last knows how long it took.
        let first = match bare {
            Bare::PingPong => 1,
            Bare::SendfileStream | Bare::SocketToFileStream => 0,
        };
        let counted: Vec<_> = tallies.iter().skip(first).step_by(2).copied().collect();
        let speed = Speed::of(&counted);
        Ok(match bare {
            Bare::PingPong => speed.operations_per_s,
            Bare::SendfileStream | Bare::SocketToFileStream => speed.mib_per_s,
        })
    }
}
