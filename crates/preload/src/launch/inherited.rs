//! The descriptors of ours that a program starts with. Owns what each number will stand for there, while
//! the actions of a spawn are gone through.

use std::collections::HashMap;
use std::ffi::c_int;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use crate::descriptors::{Backing, Description, table};

/// The descriptors of ours that a program is to start with.
pub(crate) struct Inherited {
    numbers: Vec<(c_int, Arc<Description>)>,
}

fn survives_exec(fd: c_int) -> bool {
    // SAFETY: a number that is not open fails in the kernel like any other.
    rustix::io::fcntl_getfd(unsafe { BorrowedFd::borrow_raw(fd) })
        .is_ok_and(|flags| !flags.contains(rustix::io::FdFlags::CLOEXEC))
}

impl Inherited {
    /// Those that an exec of this process leaves open.
    pub(crate) fn now() -> Self {
        let mut all = table::all();
        all.retain(|(fd, file)| file.backing() == Backing::Reserved && survives_exec(*fd));
        Self { numbers: all }
    }

    /// The number stands for something else now, or for nothing of ours.
    pub(crate) fn set(&mut self, fd: c_int, file: Option<Arc<Description>>) {
        self.numbers.retain(|(number, _)| *number != fd);
        self.numbers.extend(file.map(|file| (fd, file)));
    }

    /// What the number stands for.
    pub(crate) fn get(&self, fd: c_int) -> Option<Arc<Description>> {
        let found = self.numbers.iter().find(|(number, _)| *number == fd);
        found.map(|(_, file)| Arc::clone(file)).or_else(|| table::get(fd))
    }

    /// The numbers from `first` on are closed.
    pub(crate) fn close_from(&mut self, first: c_int) {
        self.numbers.retain(|(number, _)| *number < first);
    }

    /// Each description once, with all its numbers.
    pub(super) fn by_description(&self) -> Vec<(&Description, Vec<c_int>)> {
        let mut files: HashMap<*const Description, (&Description, Vec<c_int>)> = HashMap::new();
        for (fd, file) in &self.numbers {
            let entry = files.entry(Arc::as_ptr(file));
            entry.or_insert_with(|| (&**file, Vec::new())).1.push(*fd);
        }
        files.into_values().collect()
    }
}
