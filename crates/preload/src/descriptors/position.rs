//! Where an open file description stands, and its status flags. Owns the choice of the memory that they
//! lie in: the process's own at first, a page shared with children from the first fork or exec on, since
//! POSIX has one position for all of them.

use parking_lot::RwLock;

use super::cell::{Cell, Moving};
use super::page::MappedPage;

#[derive(Debug)]
enum Storage {
    Own(Box<Cell>),
    Shared(MappedPage),
}

/// The position of an open file description.
#[derive(Debug)]
pub(crate) struct Position {
    storage: RwLock<Storage>,
}

impl Position {
    /// At the start, with these flags.
    pub(crate) fn new(flags: i32) -> Self {
        Self { storage: RwLock::new(Storage::Own(Box::new(Cell::new(flags)))) }
    }

    /// A position that another process may share.
    pub(super) fn shared(page: MappedPage) -> Self {
        Self { storage: RwLock::new(Storage::Shared(page)) }
    }

    /// Whether other processes share it.
    pub(super) fn is_shared(&self) -> bool {
        matches!(&*self.storage.read(), Storage::Shared(_))
    }

    /// Moves it to shared memory.
    pub(super) fn share(&self, page: MappedPage) {
        let mut storage = self.storage.write();
        if let Storage::Own(own) = &*storage {
            page.cell().copy_from(own);
            *storage = Storage::Shared(page);
        }
    }

    fn with<T>(&self, body: impl FnOnce(&Cell) -> T) -> T {
        match &*self.storage.read() {
            Storage::Own(cell) => body(cell),
            Storage::Shared(page) => body(page.cell()),
        }
    }

    /// Does something while nobody else moves the position.
    pub(crate) fn locked<T>(&self, body: impl FnOnce(&Moving<'_>) -> T) -> T {
        self.with(|cell| body(&cell.lock()))
    }

    /// The status flags.
    pub(crate) fn flags(&self) -> i32 {
        self.with(Cell::flags)
    }

    /// Changes the status flags.
    pub(crate) fn set_flags(&self, flags: i32) {
        self.with(|cell| cell.set_flags(flags));
    }
}
