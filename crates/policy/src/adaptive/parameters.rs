//! The figures of the adaptive method: those that its paper gives, and how it is read where it gives none.
//! Owns the defaults; decides nothing.

/// The parameters of the method, under the names of its authors.
#[derive(Clone, Debug, PartialEq)]
pub struct AdaptiveParameters {
    /// Smallest request in bytes.
    pub min_bufsize_bytes: u64,
    /// `MAX_BUFSIZE`: largest request in bytes. More brings nothing on a link of 1 Gbit/s.
    pub max_bufsize_bytes: u64,
    /// The first request in bytes. Not given by the authors.
    pub initial_bufsize_bytes: u64,
    /// `LARGE_BUFSIZE` in bytes: what the link moves in a second. Above it a wrong size costs so
    /// much that the mean is taken over `m_small` requests only.
    pub large_bufsize_bytes: u64,
    /// `M_small`: requests in the mean above `large_bufsize_bytes`.
    pub m_small: usize,
    /// `M_normal`: requests in the mean up to `large_bufsize_bytes`.
    pub m_normal: usize,
    /// `U_high`: the size grows when the mean utilisation (0 to 1) is above it.
    pub u_high: f64,
    /// `U_low`: the size shrinks when the mean utilisation (0 to 1) is not above it.
    pub u_low: f64,
    /// By what the size is multiplied when it grows.
    pub growth: u64,
    /// Requests for which the size may not grow, after a growth that made utilisation fall.
    pub p: u32,
    /// What the paper leaves open.
    pub interpretation: Interpretation,
}

impl Default for AdaptiveParameters {
    fn default() -> Self {
        Self {
            min_bufsize_bytes: 64 << 10,
            max_bufsize_bytes: 512 << 20,
            initial_bufsize_bytes: 1 << 20,
            large_bufsize_bytes: 128 << 20,
            m_small: 1,
            m_normal: 4,
            u_high: 0.95,
            u_low: 0.5,
            growth: 2,
            p: 16,
            interpretation: Interpretation::default(),
        }
    }
}

/// How the paper is read where it leaves something open. The defaults are what its tables and figures
/// fit best (`cargo run --release -p azekura-policy --example fit_adaptive`, decision 0017).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interpretation {
    /// How size / bandwidth-delay product becomes a number of blocks.
    pub rounding: Rounding,
    /// For how long a growth is on trial ("right after a growth").
    pub trial: Trial,
    /// When utilisation has fallen on trial.
    pub fall: Fall,
    /// Which requests the mean is of by which the size shrinks.
    pub shrink: ShrinkMean,
    /// Whether the size may shrink while it may not grow.
    pub shrinks_in_hold: bool,
}

impl Default for Interpretation {
    fn default() -> Self {
        Self {
            rounding: Rounding::Down,
            trial: Trial::MeanSoFar,
            fall: Fall::NotHigh,
            shrink: ShrinkMean::Across,
            shrinks_in_hold: true,
        }
    }
}

/// How a number of blocks is rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rounding {
    /// Down: blocks are no smaller than the bandwidth-delay product.
    Down,
    /// To the nearest.
    Nearest,
    /// Up: blocks are no larger than the bandwidth-delay product.
    Up,
}

impl Rounding {
    /// Blocks of `block_bytes` in `bytes`, one at least.
    pub(super) fn blocks(self, bytes: u64, block_bytes: u64) -> u64 {
        let block_bytes = block_bytes.max(1);
        let added = match self {
            Self::Down => 0,
            Self::Nearest => block_bytes / 2,
            Self::Up => block_bytes - 1,
        };
        (bytes.saturating_add(added) / block_bytes).max(1)
    }
}

/// When a growth is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trial {
    /// After its first request.
    FirstRequest,
    /// After each of its first m requests, by their mean so far; m is that of the new size.
    MeanSoFar,
    /// After m requests, by their mean.
    MeanOfAll,
}

/// What a fall of utilisation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fall {
    /// It is no longer above `U_high`.
    NotHigh,
    /// It is not above `U_low`.
    Low,
    /// It is below what led to the growth.
    Below,
}

/// Which requests the mean is of by which the size shrinks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShrinkMean {
    /// The last m, all of this size.
    Full,
    /// The last m of this size, or as many as there are.
    SoFar,
    /// The last m, of whatever size.
    Across,
}
