//! How an engine of this process is called. Owns the traits that an engine stands behind for that, and
//! the form in which it hands over data; who may call, and when a conversation is over, is not known here.

use std::fmt::Debug;
use std::io;
use std::os::fd::OwnedFd;

use azekura_proto::message::{Answer, Refusal, Request, RequestHead, Welcome};

pub use azekura_wire::Guest;

/// An engine that can be called.
pub trait Service: Send + Sync {
    /// Lets a caller in, who has shown already that it belongs to the pool.
    ///
    /// # Errors
    /// Why it is not let in.
    fn admit(&self, guest: Guest) -> Result<(Box<dyn Visit>, Welcome), Refusal>;
}

/// One caller's conversation with an engine; dropping it ends the conversation.
pub trait Visit: Send {
    /// Carries out a request with its bulk data; the answer comes with its own. None for a request
    /// that has no answer.
    ///
    /// # Errors
    /// The conversation is over: nobody is to wait for an answer.
    fn serve(
        &mut self,
        head: &RequestHead,
        request: &Request<'_>,
        bulk: &[u8],
    ) -> io::Result<Option<(Answer, Data)>>;
}

/// Bulk data of an answer.
#[derive(Debug)]
pub enum Data {
    /// In memory.
    Bytes(Vec<u8>),
    /// Where the engine keeps them: they go from there to where they are wanted, without a copy
    /// between.
    Kept(Box<dyn Kept>),
    /// No data, but a file to have them from.
    Descriptor(OwnedFd),
}

/// Data that an engine keeps. As with what a socket carries, they may be of any time between the
/// request and the moment when they are read.
pub trait Kept: Debug + Send {
    /// How many bytes there are.
    fn bytes(&self) -> usize;

    /// Fills the buffer with the bytes from `at` on, which lie within [`Kept::bytes`].
    ///
    /// # Errors
    /// If the disk fails.
    fn read(&self, at: usize, buffer: &mut [u8]) -> io::Result<()>;
}

impl Default for Data {
    fn default() -> Self {
        Self::Bytes(Vec::new())
    }
}

impl Data {
    /// How many bytes there are.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Bytes(data) => data.len(),
            Self::Kept(kept) => kept.bytes(),
            Self::Descriptor(_) => 0,
        }
    }

    /// Fills the buffer with the bytes from `at` on.
    pub(super) fn read(&self, at: usize, buffer: &mut [u8]) -> io::Result<()> {
        match self {
            Self::Bytes(data) => {
                buffer.copy_from_slice(&data[at..at + buffer.len()]);
                Ok(())
            }
            Self::Kept(kept) => kept.read(at, buffer),
            Self::Descriptor(_) => Ok(()),
        }
    }
}
