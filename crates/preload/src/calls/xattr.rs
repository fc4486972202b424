//! Extended attributes.

use std::ffi::{c_char, c_int, c_void};

use azekura_posix::{Attr, Errno, Namespace, OFlags, Oid, Result, XattrMode};
use libc::{size_t, ssize_t};

use super::{buffer, data, hooks};
use crate::descriptors::{Description, on_fd};
use crate::paths::{Spot, by_path, text};
use crate::report::{Counter, counter};
use crate::service;
use crate::staging::Purpose;

mod hosts {
    use std::ffi::{c_char, c_int, c_void};

    use libc::{size_t, ssize_t};

    crate::host::host! {
        fn getxattr(path: *const c_char, name: *const c_char, value: *mut c_void, bytes: size_t) -> ssize_t;
        fn lgetxattr(path: *const c_char, name: *const c_char, value: *mut c_void, bytes: size_t) -> ssize_t;
        fn fgetxattr(fd: c_int, name: *const c_char, value: *mut c_void, bytes: size_t) -> ssize_t;
        fn setxattr(path: *const c_char, name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int) -> c_int;
        fn lsetxattr(path: *const c_char, name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int) -> c_int;
        fn fsetxattr(fd: c_int, name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int) -> c_int;
        fn listxattr(path: *const c_char, names: *mut c_char, bytes: size_t) -> ssize_t;
        fn llistxattr(path: *const c_char, names: *mut c_char, bytes: size_t) -> ssize_t;
        fn flistxattr(fd: c_int, names: *mut c_char, bytes: size_t) -> ssize_t;
        fn removexattr(path: *const c_char, name: *const c_char) -> c_int;
        fn lremovexattr(path: *const c_char, name: *const c_char) -> c_int;
        fn fremovexattr(fd: c_int, name: *const c_char) -> c_int;
    }
}

const CWD: c_int = libc::AT_FDCWD;

/// An object whose extended attributes are meant, and the user who asks.
struct Target {
    ns: Namespace,
    oid: Oid,
    /// Its attributes, where they have just been looked at.
    attr: Option<Attr>,
}

impl Target {
    fn of_spot<R>(spot: &Spot, purpose: &Purpose<'_, R>) -> Result<Self> {
        let (ns, follow) = (spot.ns.clone(), purpose.follows());
        let attr = match purpose {
            Purpose::Look { .. } => ns.look_at(&spot.path, follow)?,
            _ => ns.resolve(&spot.path, follow)?,
        };
        Ok(Self { ns, oid: attr.oid, attr: Some(attr) })
    }

    fn of_file(file: &Description) -> Result<Self> {
        if file.open_flags().contains(OFlags::PATH) {
            return Err(Errno::BADF);
        }
        Ok(Self { ns: service::root()?, oid: file.oid(), attr: None })
    }

    /// # Safety
    /// As for `getxattr`.
    unsafe fn get(
        &self,
        name: *const c_char,
        value: *mut c_void,
        bytes: size_t,
    ) -> Result<ssize_t> {
        let (fs, caller) = (self.ns.filesystem(), self.ns.caller());
        // SAFETY: the caller keeps the conditions of `getxattr`.
        unsafe {
            let found = match &self.attr {
                Some(attr) => fs.getxattr_of(caller, attr, text(name)?)?,
                None => fs.getxattr(caller, self.oid, text(name)?)?,
            };
            give(&found, value, bytes)
        }
    }

    /// # Safety
    /// As for `setxattr`.
    unsafe fn set(
        &self,
        name: *const c_char,
        value: *const c_void,
        bytes: size_t,
        flags: c_int,
    ) -> Result<c_int> {
        // SAFETY: the caller keeps the conditions of `setxattr`.
        let (name, value) = unsafe { (text(name)?, data(value, bytes)?) };
        let (fs, caller) = (self.ns.filesystem(), self.ns.caller());
        let mode = match flags {
            0 => XattrMode::Set,
            libc::XATTR_CREATE => XattrMode::Create,
            libc::XATTR_REPLACE => XattrMode::Replace,
            _ => return Err(Errno::INVAL),
        };
        match &self.attr {
            Some(attr) => fs.setxattr_of(caller, attr, (name, value), mode)?,
            None => fs.setxattr(caller, self.oid, name, value, mode)?,
        }
        Ok(0)
    }

    /// # Safety
    /// As for `listxattr`.
    unsafe fn list(&self, names: *mut c_char, bytes: size_t) -> Result<ssize_t> {
        let (fs, caller) = (self.ns.filesystem(), self.ns.caller());
        let found = match &self.attr {
            Some(attr) => fs.listxattr_of(caller, attr)?,
            None => fs.listxattr(caller, self.oid)?,
        };
        // SAFETY: the caller keeps the conditions of `listxattr`.
        unsafe { give(&found, names.cast(), bytes) }
    }

    /// # Safety
    /// As for `removexattr`.
    unsafe fn remove(&self, name: *const c_char) -> Result<c_int> {
        // SAFETY: the caller keeps the conditions of `removexattr`.
        let name = unsafe { text(name)? };
        let (fs, caller) = (self.ns.filesystem(), self.ns.caller());
        match &self.attr {
            Some(attr) => fs.removexattr_of(caller, attr, name)?,
            None => fs.removexattr(caller, self.oid, name)?,
        }
        Ok(0)
    }
}

/// Without room only the length is told.
///
/// # Safety
/// The bytes are writable, or the pointer is null.
unsafe fn give(found: &[u8], into: *mut c_void, bytes: size_t) -> Result<ssize_t> {
    if bytes > 0 {
        // SAFETY: the caller says so.
        let into = unsafe { buffer(into, bytes)? };
        into.get_mut(..found.len()).ok_or(Errno::RANGE)?.copy_from_slice(found);
    }
    Ok(found.len() as ssize_t)
}

/// # Safety
/// As for a call of the C library with a path; `hosts` is one.
unsafe fn at_path<R: crate::host::Failing>(
    counter: &'static Counter,
    purpose: &Purpose<'_, R>,
    path: *const c_char,
    ours: impl Fn(&Target) -> Result<R>,
    hosts: impl Fn(*const c_char) -> R,
) -> R {
    // SAFETY: the caller says so.
    unsafe {
        by_path(
            counter,
            purpose,
            CWD,
            path,
            |spot| ours(&Target::of_spot(spot, purpose)?),
            |_, path| hosts(path),
        )
    }
}

hooks! {
    /// `getxattr`.
    fn [getxattr](
        path: *const c_char, name: *const c_char, value: *mut c_void, bytes: size_t,
    ) -> ssize_t {
        // SAFETY: as for the C function.
        unsafe {
            at_path(
                counter!("getxattr"),
                &Purpose::Look { follow: true, found: &|_| Err(Errno::NODATA), told_directory: &|| false },
                path,
                |target| target.get(name, value, bytes),
                |path| hosts::getxattr(path, name, value, bytes),
            )
        }
    }

    /// `lgetxattr`.
    fn [lgetxattr](
        path: *const c_char, name: *const c_char, value: *mut c_void, bytes: size_t,
    ) -> ssize_t {
        // SAFETY: as for the C function.
        unsafe {
            at_path(
                counter!("lgetxattr"),
                &Purpose::Look { follow: false, found: &|_| Err(Errno::NODATA), told_directory: &|| false },
                path,
                |target| target.get(name, value, bytes),
                |path| hosts::lgetxattr(path, name, value, bytes),
            )
        }
    }

    /// `fgetxattr`.
    fn [fgetxattr](
        fd: c_int, name: *const c_char, value: *mut c_void, bytes: size_t,
    ) -> ssize_t {
        // SAFETY: as for the C function.
        on_fd(
            counter!("fgetxattr"),
            fd,
            |file| unsafe { Target::of_file(file)?.get(name, value, bytes) },
            || unsafe { hosts::fgetxattr(fd, name, value, bytes) },
        )
    }

    /// `setxattr`.
    fn [setxattr](
        path: *const c_char, name: *const c_char, value: *const c_void, bytes: size_t,
        flags: c_int,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            at_path(
                counter!("setxattr"),
                &Purpose::Write { follow: true },
                path,
                |target| target.set(name, value, bytes, flags),
                |path| hosts::setxattr(path, name, value, bytes, flags),
            )
        }
    }

    /// `lsetxattr`.
    fn [lsetxattr](
        path: *const c_char, name: *const c_char, value: *const c_void, bytes: size_t,
        flags: c_int,
    ) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            at_path(
                counter!("lsetxattr"),
                &Purpose::Write { follow: false },
                path,
                |target| target.set(name, value, bytes, flags),
                |path| hosts::lsetxattr(path, name, value, bytes, flags),
            )
        }
    }

    /// `fsetxattr`.
    fn [fsetxattr](
        fd: c_int, name: *const c_char, value: *const c_void, bytes: size_t, flags: c_int,
    ) -> c_int {
        // SAFETY: as for the C function.
        on_fd(
            counter!("fsetxattr"),
            fd,
            |file| unsafe { Target::of_file(file)?.set(name, value, bytes, flags) },
            || unsafe { hosts::fsetxattr(fd, name, value, bytes, flags) },
        )
    }

    /// `listxattr`.
    fn [listxattr](path: *const c_char, names: *mut c_char, bytes: size_t) -> ssize_t {
        // SAFETY: as for the C function.
        unsafe {
            at_path(
                counter!("listxattr"),
                &Purpose::Look { follow: true, found: &|_| Ok(0), told_directory: &|| false },
                path,
                |target| target.list(names, bytes),
                |path| hosts::listxattr(path, names, bytes),
            )
        }
    }

    /// `llistxattr`.
    fn [llistxattr](path: *const c_char, names: *mut c_char, bytes: size_t) -> ssize_t {
        // SAFETY: as for the C function.
        unsafe {
            at_path(
                counter!("llistxattr"),
                &Purpose::Look { follow: false, found: &|_| Ok(0), told_directory: &|| false },
                path,
                |target| target.list(names, bytes),
                |path| hosts::llistxattr(path, names, bytes),
            )
        }
    }

    /// `flistxattr`.
    fn [flistxattr](fd: c_int, names: *mut c_char, bytes: size_t) -> ssize_t {
        // SAFETY: as for the C function.
        on_fd(
            counter!("flistxattr"),
            fd,
            |file| unsafe { Target::of_file(file)?.list(names, bytes) },
            || unsafe { hosts::flistxattr(fd, names, bytes) },
        )
    }

    /// `removexattr`.
    fn [removexattr](path: *const c_char, name: *const c_char) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            at_path(
                counter!("removexattr"),
                &Purpose::Write { follow: true },
                path,
                |target| target.remove(name),
                |path| hosts::removexattr(path, name),
            )
        }
    }

    /// `lremovexattr`.
    fn [lremovexattr](path: *const c_char, name: *const c_char) -> c_int {
        // SAFETY: as for the C function.
        unsafe {
            at_path(
                counter!("lremovexattr"),
                &Purpose::Write { follow: false },
                path,
                |target| target.remove(name),
                |path| hosts::lremovexattr(path, name),
            )
        }
    }

    /// `fremovexattr`.
    fn [fremovexattr](fd: c_int, name: *const c_char) -> c_int {
        // SAFETY: as for the C function.
        on_fd(
            counter!("fremovexattr"),
            fd,
            |file| unsafe { Target::of_file(file)?.remove(name) },
            || unsafe { hosts::fremovexattr(fd, name) },
        )
    }
}
