//! Results as answers to the kernel: one function per form of an answer. Every request is answered
//! through one of these, so that errors are logged in one place.

use std::time::Duration;

use azekura_posix::Errno;

use crate::kernel::{Attr, Entry, OpenFlags, Replier};

pub(crate) type Result<T> = std::result::Result<T, Errno>;

/// Sends a result in the form that `send` gives it.
pub(crate) fn with<T>(replier: Replier, result: Result<T>, send: impl FnOnce(Replier, T)) {
    match result {
        Ok(value) => send(replier, value),
        Err(errno) => {
            tracing::debug!(unique = replier.unique(), "answered with an error: {errno}");
            replier.error(errno);
        }
    }
}

/// Sends what `read` puts into a buffer of so many bytes.
pub(crate) fn filled(
    replier: Replier,
    bytes: usize,
    read: impl FnOnce(&mut [u8]) -> Result<usize>,
) {
    let unique = replier.unique();
    replier.fill(bytes, |buffer| {
        read(buffer).inspect_err(|errno| {
            tracing::debug!(unique, "answered with an error: {errno}");
        })
    });
}

/// Sends a result that has nothing to tell.
pub(crate) fn done<T>(replier: Replier, result: Result<T>) {
    with(replier, result, |replier, _| replier.ok());
}

/// Sends a node that was found or made.
pub(crate) fn entry(replier: Replier, result: Result<Entry>) {
    with(replier, result, |replier, entry| replier.entry(&entry));
}

/// Sends attributes, and for how long the kernel may keep them.
pub(crate) fn attr(replier: Replier, result: Result<(Attr, Duration)>) {
    with(replier, result, |replier, (attr, ttl)| replier.attr(&attr, ttl));
}

/// Sends the handle of an open file or directory.
pub(crate) fn opened(replier: Replier, result: Result<(u64, OpenFlags)>) {
    with(replier, result, |replier, (fh, flags)| replier.open(fh, flags));
}

/// Sends a new file that is open.
pub(crate) fn created(replier: Replier, result: Result<(Entry, u64, OpenFlags)>) {
    with(replier, result, |replier, (entry, fh, flags)| replier.create(&entry, fh, flags));
}

/// Sends a value or a list of names; `size` is what the caller has room for.
pub(crate) fn xattr(replier: Replier, result: Result<Vec<u8>>, size: u32) {
    with(replier, result, |replier, value| replier.xattr(&value, size));
}
