//! What can go wrong with a lab, in words that say what to do next.

use std::io;

/// Why a lab cannot be made, or not do what it is told.
#[derive(Debug, thiserror::Error)]
pub enum LabError {
    /// The process may not make name spaces.
    #[error(
        "a netlab makes network name spaces and TUN devices, which only root may \
         (CAP_SYS_ADMIN and CAP_NET_ADMIN): run it as root, or with sudo"
    )]
    NotAllowed,
    /// There are no TUN devices.
    #[error(
        "cannot make a TUN device from /dev/net/tun: {source}; load the module with \
         'modprobe tun', or give the container that device"
    )]
    NoTun {
        /// What the kernel says.
        source: io::Error,
    },
    /// The kernel refused something else.
    #[error("{what}: {source}")]
    System {
        /// What was tried, on what.
        what: String,
        /// What the kernel says.
        source: io::Error,
    },
    /// There is no such host or link.
    #[error("there is no {what} '{name}' in this lab; it has {known}")]
    Unknown {
        /// Host or link.
        what: &'static str,
        /// The name that was asked for.
        name: String,
        /// The names there are.
        known: String,
    },
    /// The host cannot do that now.
    #[error("host '{0}' is frozen: thaw it first")]
    Frozen(String),
    /// The lab has ended meanwhile.
    #[error("the lab has ended: start it again with 'up'")]
    Gone,
}
