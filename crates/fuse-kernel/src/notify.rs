//! Messages that the server sends of its own accord, to make the kernel drop what it has cached.
//! Must not be used while a request on the same node is held back, since the kernel may wait for
//! that request first.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::abi::{self, DeleteOut, InvalEntryOut, InvalInodeOut, RetrieveOut};
use crate::channel::Channel;

/// Number of the next message that [`Notifier::provoke`] asks for. Each has one of its own, far from
/// the kernel's, which count up from 2; the lowest bit tells interrupts apart.
static PROVOKED: AtomicU64 = AtomicU64::new(1 << 62);

/// Sends invalidations to the kernel.
#[derive(Clone, Debug)]
pub struct Notifier {
    channel: Arc<Channel>,
}

impl Notifier {
    pub(crate) fn new(channel: Arc<Channel>) -> Self {
        Self { channel }
    }

    /// Drops the attributes of `node`, and its data from byte `offset` on for `length` bytes
    /// (0: to the end). A negative `offset` leaves the data alone. Not knowing the node is fine.
    pub fn invalidate_node(&self, node: u64, offset: i64, length: i64) -> Result<(), Errno> {
        let message = InvalInodeOut { ino: node, off: offset, len: length };
        forgiving(self.channel.notify(abi::notify::INVAL_INODE, [message.as_bytes(), &[]]))
    }

    /// Drops the entry `name` of directory `parent`. Not knowing it is fine.
    pub fn invalidate_entry(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        self.entry(parent, name, 0)
    }

    /// Makes the kernel ask again for the entry before it is used next, without tearing down
    /// what is mounted or open below it.
    pub fn expire_entry(&self, parent: u64, name: &[u8]) -> Result<(), Errno> {
        self.entry(parent, name, abi::NOTIFY_EXPIRE_ONLY)
    }

    /// Tells that the entry `name` of `parent`, which led to `child`, has been removed.
    pub fn delete(&self, parent: u64, child: u64, name: &[u8]) -> Result<(), Errno> {
        let message = DeleteOut { parent, child, namelen: name.len() as u32, padding: 0 };
        let text = terminated(name);
        forgiving(self.channel.notify(abi::notify::DELETE, [message.as_bytes(), &text]))
    }

    /// Makes the kernel send a message that carries nothing, to the queue of the processor that the
    /// calling thread runs on. `node` has to be a regular file that the kernel knows.
    pub(crate) fn provoke(&self, node: u64) -> Result<(), Errno> {
        let notify_unique = PROVOKED.fetch_add(2, Ordering::Relaxed);
        let message = RetrieveOut { notify_unique, nodeid: node, ..RetrieveOut::default() };
        self.channel.notify(abi::notify::RETRIEVE, [message.as_bytes(), &[]])
    }

    fn entry(&self, parent: u64, name: &[u8], flags: u32) -> Result<(), Errno> {
        let message = InvalEntryOut { parent, namelen: name.len() as u32, flags };
        let text = terminated(name);
        forgiving(self.channel.notify(abi::notify::INVAL_ENTRY, [message.as_bytes(), &text]))
    }
}

/// The kernel wants a final zero that it does not count.
fn terminated(name: &[u8]) -> Vec<u8> {
    let mut text = Vec::with_capacity(name.len() + 1);
    text.extend_from_slice(name);
    text.push(0);
    text
}

/// What the kernel does not have cached needs no dropping.
fn forgiving(result: Result<(), Errno>) -> Result<(), Errno> {
    match result {
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(()),
        other => other,
    }
}
