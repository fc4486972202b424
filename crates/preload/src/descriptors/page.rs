//! The page of memory that an open file description gets once another process may have it too. Owns its
//! form: the position, which all of them share, and what a program needs that finds the descriptor open
//! when it starts.

use std::os::fd::{AsFd, OwnedFd};
use std::ptr::NonNull;

use azekura_posix::{Errno, FileKind, OFlags, Oid, Result};
use rustix::fs::MemfdFlags;
use rustix::mm::{MapFlags, ProtFlags};

use super::cell::Cell;

/// The size of a page's file, which also tells it from a plain reservation.
pub(super) const PAGE_BYTES: usize = 8192;
const PATH_BYTES: usize = 4096;
/// Also the version of the page's form.
const MAGIC: u64 = 0x617a_6b66_6400_0001;

#[repr(C)]
struct Page {
    magic: u64,
    cell: Cell,
    oid: [u8; 16],
    open_flags: u32,
    mode: u32,
    path_bytes: u32,
    path: [u8; PATH_BYTES],
}

const _: () = assert!(size_of::<Page>() <= PAGE_BYTES);

/// What is open, as a page tells it.
#[derive(Debug)]
pub(super) struct Identity {
    pub(super) oid: Oid,
    pub(super) kind: FileKind,
    pub(super) open_flags: OFlags,
    /// Empty if unknown.
    pub(super) path: Vec<u8>,
}

/// A page in the memory of this process, as long as the value lives.
#[derive(Debug)]
pub(super) struct MappedPage(NonNull<Page>);

// SAFETY: the mapping is the value's own; what is behind it does not change but for the cell, which is
// atomics only.
unsafe impl Send for MappedPage {}
// SAFETY: as above.
unsafe impl Sync for MappedPage {}

impl Drop for MappedPage {
    fn drop(&mut self) {
        // SAFETY: the mapping is the value's own. It cannot fail but for one that is not there.
        let _ = unsafe { rustix::mm::munmap(self.0.as_ptr().cast(), PAGE_BYTES) };
    }
}

impl MappedPage {
    /// The page in this file, which is as long as a page.
    pub(super) fn map(file: impl AsFd) -> Result<Self> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at a place that the kernel chooses.
        let address = unsafe {
            rustix::mm::mmap(
                std::ptr::null_mut(),
                PAGE_BYTES,
                protection,
                MapFlags::SHARED,
                file,
                0,
            )
        }?;
        NonNull::new(address.cast()).map(Self).ok_or(Errno::NOMEM)
    }

    /// A new page with its file, which has no name.
    pub(super) fn create(identity: &Identity) -> Result<(Self, OwnedFd)> {
        let file = rustix::fs::memfd_create(c"azekura", MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, PAGE_BYTES as u64)?;
        let mut mapped = Self::map(&file)?;
        // SAFETY: mapped, zeroed, large enough, and nobody else has it yet.
        let page = unsafe { mapped.0.as_mut() };
        let path = identity.path.as_slice();
        let path = if path.len() <= PATH_BYTES { path } else { b"" };
        page.oid = identity.oid.to_bytes();
        page.open_flags = identity.open_flags.bits();
        page.mode = identity.kind.mode_bits();
        page.path_bytes = path.len() as u32;
        page.path[..path.len()].copy_from_slice(path);
        page.magic = MAGIC;
        Ok((mapped, file))
    }

    fn page(&self) -> &Page {
        // SAFETY: a mapping of the page's size; its fields but the cell do not change after the first
        // process has written them, and any bytes are valid values of them.
        unsafe { self.0.as_ref() }
    }

    pub(super) fn cell(&self) -> &Cell {
        &self.page().cell
    }

    /// What it tells; `None` if another program has made it.
    pub(super) fn identity(&self) -> Option<Identity> {
        let page = self.page();
        let path = page.path.get(..page.path_bytes as usize)?.to_vec();
        (page.magic == MAGIC).then_some(Identity {
            oid: Oid::from_bytes(&page.oid)?,
            kind: FileKind::from_mode(page.mode)?,
            open_flags: OFlags::from_bits_retain(page.open_flags),
            path,
        })
    }
}

#[cfg(test)]
mod tests {
    use azekura_proto::{ContainerId, ObjectClass, TargetId};

    use super::*;

    #[test]
    fn another_mapping_of_a_page_tells_the_same_and_shares_the_cell() {
        let oid = Oid::new(ContainerId(1), ObjectClass::S1, TargetId(0), 7);
        let (kind, open_flags) = (FileKind::Regular, OFlags::RDWR);
        let identity = Identity { oid, kind, open_flags, path: b"/a/b".to_vec() };
        let (page, file) = MappedPage::create(&identity).unwrap();
        let other = MappedPage::map(&file).unwrap();
        let told = other.identity().unwrap();
        assert_eq!((told.oid, told.kind, told.open_flags), (oid, kind, open_flags));
        assert_eq!(told.path, b"/a/b");
        page.cell().lock().set(42);
        assert_eq!(other.cell().lock().offset(), 42);
        rustix::io::pwrite(&file, &[0], 0).unwrap();
        assert!(page.identity().is_none());
    }
}
