//! The handshake with the kernel: which protocol version and which capabilities are used on a
//! mount. Pure decisions except for the one exchange of messages.

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::{self, InitOut, init};
use crate::channel::{Channel, Received};
use crate::request::{Message, parse};
use crate::session_error::SessionError;
use crate::transport::Transport;

/// Largest page that the size of a request is counted in, in bytes.
const PAGE_BYTES: u32 = 4096;

/// Threads of one processor's queue: programs on it wait for one answer each, most of the time.
const QUEUE_THREADS: usize = 4;

/// What is asked of the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the kernel's capabilities are independent switches"
)]
pub struct SessionConfig {
    /// Most threads that serve requests of the device. They are started as they are needed.
    pub threads: usize,
    /// Which way requests take.
    pub transport: Transport,
    /// Most threads that serve each processor's queue, where requests go over io_uring. The first is
    /// always there, the others are started as they are needed.
    pub queue_threads: usize,
    /// Largest write request, in bytes; also bounds reads.
    pub max_write_bytes: u32,
    /// Most bytes the kernel reads ahead; it may choose less.
    pub max_readahead_bytes: u32,
    /// Most requests of the kernel's own (read-ahead and the like) under way at once.
    pub max_background: u16,
    /// Texts of symlinks may be kept by the kernel.
    pub cache_symlinks: bool,
    /// The kernel drops cached data when it sees a changed size or time of modification.
    pub auto_invalidate_data: bool,
    /// Listings bring the attributes along; the kernel decides when.
    pub readdir_plus: bool,
    /// Locks are asked of the server; else the kernel keeps them by itself.
    pub locks: bool,
    /// The kernel reads and writes files by itself that it is lent, for which the server has to be root.
    pub passthrough: bool,
}

impl Default for SessionConfig {
    fn default() -> Self {
        Self {
            threads: default_threads(),
            transport: Transport::default(),
            queue_threads: QUEUE_THREADS,
            max_write_bytes: 1024 * 1024,
            max_readahead_bytes: 1024 * 1024,
            max_background: 64,
            cache_symlinks: true,
            auto_invalidate_data: true,
            readdir_plus: true,
            locks: true,
            passthrough: false,
        }
    }
}

/// Two threads a core, but at least four, since many wait for others most of their time.
fn default_threads() -> usize {
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    (cores * 2).max(4)
}

/// What the kernel has agreed to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the kernel's capabilities are independent switches"
)]
pub struct Negotiated {
    /// Minor protocol version in use.
    pub minor: u32,
    /// Largest write request, in bytes.
    pub max_write_bytes: u32,
    /// The kernel allows memory mapping of files that are open past the page cache.
    pub direct_io_mmap: bool,
    /// The kernel leaves clearing the set-user and set-group bits to the server.
    pub handles_killpriv: bool,
    /// Listings with attributes are in use.
    pub readdir_plus: bool,
    /// Requests go over io_uring.
    pub over_io_uring: bool,
    /// The kernel takes files that it reads and writes by itself.
    pub passthrough: bool,
}

/// What the kernel offers for queues of io_uring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct RingOffer {
    /// Whether there is such an offer.
    pub(crate) is_made: bool,
    /// Room that each entry has to have for the data of requests and answers, in bytes.
    pub(crate) payload_bytes: usize,
}

impl SessionConfig {
    fn wanted(&self) -> u64 {
        let mut wanted = init::ASYNC_READ
            | init::BIG_WRITES
            | init::ATOMIC_O_TRUNC
            | init::EXPORT_SUPPORT
            | init::DONT_MASK
            | init::ASYNC_DIO
            | init::PARALLEL_DIROPS
            | init::HANDLE_KILLPRIV_V2
            | init::MAX_PAGES
            | init::INIT_EXT
            | init::CREATE_SUPP_GROUP
            | init::HAS_EXPIRE_ONLY
            | init::DIRECT_IO_ALLOW_MMAP;
        if self.locks {
            wanted |= init::POSIX_LOCKS | init::FLOCK_LOCKS;
        }
        if self.cache_symlinks {
            wanted |= init::CACHE_SYMLINKS;
        }
        if self.auto_invalidate_data {
            wanted |= init::AUTO_INVAL_DATA;
        }
        if self.passthrough {
            wanted |= init::PASSTHROUGH;
        }
        if self.readdir_plus {
            wanted |= init::DO_READDIRPLUS | init::READDIRPLUS_AUTO;
        }
        // Never meant to be asked for, since SETXATTR is parsed in its short form.
        wanted & !init::SETXATTR_EXT
    }

    /// The answer to a kernel that offers `offered`.
    fn answer(&self, minor: u32, max_readahead: u32, offered: u64) -> (InitOut, Negotiated) {
        let flags = self.wanted() & offered;
        // Without MAX_PAGES the kernel sends at most 32 pages.
        let pages_max = if flags & init::MAX_PAGES == 0 { 32 } else { u32::from(u16::MAX) };
        let pages = self.max_write_bytes.div_ceil(PAGE_BYTES).clamp(1, pages_max);
        let max_write = self.max_write_bytes.min(pages * PAGE_BYTES).max(PAGE_BYTES);
        let minor = minor.min(abi::MINOR_NEWEST);
        let out = InitOut {
            major: abi::MAJOR,
            minor,
            max_readahead: max_readahead.min(self.max_readahead_bytes),
            flags: flags as u32,
            max_background: self.max_background,
            congestion_threshold: (self.max_background / 4 * 3).max(1),
            max_write,
            time_gran: 1,
            max_pages: pages as u16,
            flags2: (flags >> 32) as u32,
            // Files of ordinary file systems, not of those that are stacked on others themselves.
            max_stack_depth: u32::from(flags & init::PASSTHROUGH != 0),
            ..InitOut::default()
        };
        let negotiated = Negotiated {
            minor,
            max_write_bytes: max_write,
            direct_io_mmap: flags & init::DIRECT_IO_ALLOW_MMAP != 0,
            handles_killpriv: flags & init::HANDLE_KILLPRIV_V2 != 0,
            readdir_plus: flags & init::DO_READDIRPLUS != 0,
            over_io_uring: false,
            passthrough: flags & init::PASSTHROUGH != 0,
        };
        (out, negotiated)
    }
}

/// The kernel wants room for whatever it may send, counted in pages of its own size.
fn ring_offer(offered: u64, out: &InitOut) -> RingOffer {
    let wanted = init::OVER_IO_URING | init::INIT_EXT;
    let pages_bytes = usize::from(out.max_pages) * rustix::param::page_size();
    let payload_bytes = pages_bytes.max(out.max_write as usize).max(abi::ring::PAYLOAD_BYTES_MIN);
    RingOffer { is_made: offered & wanted == wanted, payload_bytes }
}

/// Waits for INIT and answers it. `prepare` says whether requests shall go over io_uring, for which
/// everything has to be ready when it returns.
pub(crate) fn negotiate(
    channel: &Channel,
    config: &SessionConfig,
    buffer: &mut [u8],
    mut prepare: impl FnMut(RingOffer) -> Result<bool, SessionError>,
) -> Result<Negotiated, SessionError> {
    loop {
        let count = match channel.receive(buffer).map_err(SessionError::Device)? {
            Received::Message(count) => count,
            Received::Unmounted => return Err(SessionError::UnmountedEarly),
        };
        let Ok(Message::Init { unique, major, minor, max_readahead, flags }) =
            parse(&buffer[..count])
        else {
            return Err(SessionError::NoHandshake);
        };
        if major > abi::MAJOR {
            // The kernel will come back with a version that both know.
            let out = InitOut { major: abi::MAJOR, minor: abi::MINOR_NEWEST, ..InitOut::default() };
            channel.reply(unique, [out.as_bytes(), &[]]);
            continue;
        }
        if major < abi::MAJOR || minor < abi::MINOR_OLDEST {
            channel.reply_error(unique, Errno::PROTO);
            return Err(SessionError::KernelTooOld { major, minor });
        }
        let (mut out, mut negotiated) = config.answer(minor, max_readahead, flags);
        match prepare(ring_offer(flags, &out)) {
            Ok(true) => {
                out.flags2 |= (init::OVER_IO_URING >> 32) as u32;
                negotiated.over_io_uring = true;
            }
            Ok(false) => {}
            Err(error) => {
                channel.reply_error(unique, Errno::IO);
                return Err(error);
            }
        }
        channel.reply(unique, [out.as_bytes(), &[]]);
        tracing::debug!(?negotiated, "FUSE handshake: kernel speaks {major}.{minor}");
        return Ok(negotiated);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_the_kernel_offers_is_answered() {
        let config = SessionConfig::default();
        let (out, negotiated) = config.answer(31, 131_072, init::BIG_WRITES | init::POSIX_LOCKS);
        assert_eq!(u64::from(out.flags), init::BIG_WRITES | init::POSIX_LOCKS);
        assert_eq!(out.flags2, 0);
        assert_eq!((out.max_write, out.minor), (131_072, 31));
        assert!(!negotiated.handles_killpriv && !negotiated.direct_io_mmap);
    }

    #[test]
    fn rings_are_offered_by_the_kernel_and_have_room_for_all_that_is_sent() {
        let (out, _) = SessionConfig::default().answer(45, 131_072, u64::MAX);
        let offer = ring_offer(u64::MAX, &out);
        assert!(offer.is_made && offer.payload_bytes >= 1 << 20);
        assert_eq!(
            u64::from(out.flags2) << 32 & init::OVER_IO_URING,
            0,
            "not asked for unprepared"
        );
        assert!(!ring_offer(init::INIT_EXT, &out).is_made);
        let small = SessionConfig { max_write_bytes: 4096, ..SessionConfig::default() };
        let (out, _) = small.answer(45, 131_072, u64::MAX);
        assert!(ring_offer(u64::MAX, &out).payload_bytes >= abi::ring::PAYLOAD_BYTES_MIN);
    }

    #[test]
    fn files_are_lent_only_where_that_is_asked_for_and_offered() {
        let lends = SessionConfig { passthrough: true, ..SessionConfig::default() };
        for (config, offered, expected) in [
            (lends, u64::MAX, true),
            (lends, !init::PASSTHROUGH, false),
            (SessionConfig::default(), u64::MAX, false),
        ] {
            let (out, negotiated) = config.answer(45, 131_072, offered);
            assert_eq!((negotiated.passthrough, out.max_stack_depth == 1), (expected, expected));
        }
    }

    #[test]
    fn a_new_kernel_gets_one_mebibyte_and_the_high_flags() {
        let (out, negotiated) = SessionConfig::default().answer(99, 131_072, u64::MAX);
        assert_eq!((out.minor, out.max_write, out.max_pages), (abi::MINOR_NEWEST, 1 << 20, 256));
        assert_ne!(u64::from(out.flags2) << 32 & init::DIRECT_IO_ALLOW_MMAP, 0);
        assert!(negotiated.handles_killpriv && negotiated.readdir_plus);
    }
}
