//! What was asked to be started, and what is started in its place.

use std::ffi::{CString, c_char, c_int};
use std::os::fd::OwnedFd;

use super::environment::Environment;
use super::inherited::Inherited;

/// A program file.
pub(crate) enum Program {
    /// By path.
    Path(CString),
    /// A copy of a file of the pool.
    Memory(OwnedFd),
}

/// What is to be started.
pub(crate) struct Launch {
    /// The file.
    pub(crate) program: Program,
    argv: Vec<CString>,
    pointers: Vec<*const c_char>,
    environment: Environment,
}

impl Launch {
    pub(crate) fn new(program: Program, argv: Vec<CString>, environment: Environment) -> Self {
        let mut pointers: Vec<_> = argv.iter().map(|argument| argument.as_ptr()).collect();
        pointers.push(std::ptr::null());
        Self { program, argv, pointers, environment }
    }

    /// The arguments as `execve` takes them.
    pub(crate) fn argv(&self) -> *const *const c_char {
        debug_assert_eq!(self.argv.len() + 1, self.pointers.len());
        self.pointers.as_ptr()
    }

    /// The environment as `execve` takes it.
    pub(crate) fn environment(&self) -> *const *const c_char {
        self.environment.as_ptr()
    }
}

/// What was asked to be started.
pub(crate) struct Request<'a> {
    /// Path of the program.
    pub(crate) path: &'a [u8],
    /// Descriptor that a relative path counts from, or `AT_FDCWD`.
    pub(crate) dirfd: c_int,
    /// Its arguments.
    pub(crate) argv: *const *const c_char,
    /// Its environment.
    pub(crate) environment: *const *const c_char,
    /// The working directory that it starts in, below the container's root; `None` for the host's.
    pub(crate) directory: Option<Vec<u8>>,
    /// The descriptors that it starts with.
    pub(crate) inherited: Inherited,
}
