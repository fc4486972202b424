//! Which numbers are ours, and what they stand for. Owns the answer to "is it ours", which every
//! hook with a descriptor asks first, so it takes one load from memory. All else counts as
//! being inside our code, which a fork keeps others out of: its child would find the lock taken.

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::RwLock;

use super::description::Description;
use crate::guard::Guard;
use crate::scope::RECORDS_ONLY;

/// Numbers from here on are never ours: the kernel's own bound is usually this.
const NUMBERS_MAX: usize = 1 << 20;

static OURS: [AtomicU64; NUMBERS_MAX / 64] = [const { AtomicU64::new(0) }; NUMBERS_MAX / 64];
static TABLE: RwLock<Vec<Option<Arc<Description>>>> = RwLock::new(Vec::new());

fn place(fd: c_int) -> Option<(usize, u64)> {
    let number = usize::try_from(fd).ok().filter(|number| *number < NUMBERS_MAX)?;
    Some((number / 64, 1 << (number % 64)))
}

/// Whether the number is ours.
pub(crate) fn is_ours(fd: c_int) -> bool {
    !RECORDS_ONLY
        && place(fd).is_some_and(|(word, bit)| OURS[word].load(Ordering::Relaxed) & bit != 0)
}

/// What the number stands for, if it is ours.
pub(crate) fn get(fd: c_int) -> Option<Arc<Description>> {
    if !is_ours(fd) {
        return None;
    }
    let _guard = Guard::enter();
    TABLE.read().get(fd as usize).cloned().flatten()
}

/// Makes the number stand for this from now on; gives what it stood for. False if the number is too
/// large to be kept.
pub(crate) fn set(fd: c_int, description: Arc<Description>) -> bool {
    let _guard = Guard::enter();
    let Some((word, bit)) = place(fd) else { return false };
    let mut table = TABLE.write();
    if table.len() <= fd as usize {
        table.resize(fd as usize + 1, None);
    }
    let old = table[fd as usize].replace(description);
    debug_assert_eq!(old.is_some(), is_ours(fd), "the table and its bits disagree");
    OURS[word].fetch_or(bit, Ordering::Relaxed);
    drop(table);
    drop(old);
    true
}

/// The number is not ours any more; gives what it stood for.
pub(crate) fn take(fd: c_int) -> Option<Arc<Description>> {
    let (word, bit) = place(fd)?;
    if !is_ours(fd) {
        return None;
    }
    let _guard = Guard::enter();
    let mut table = TABLE.write();
    OURS[word].fetch_and(!bit, Ordering::Relaxed);
    table.get_mut(fd as usize)?.take()
}

/// All numbers that are ours, with what they stand for.
pub(crate) fn all() -> Vec<(c_int, Arc<Description>)> {
    let _guard = Guard::enter();
    TABLE
        .read()
        .iter()
        .zip(0..)
        .filter_map(|(entry, fd)| Some((fd, Arc::clone(entry.as_ref()?))))
        .collect()
}
