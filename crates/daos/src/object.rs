//! Open objects. Owns what `dfs_obj_t` points at, and how one is opened: by path, by parent and
//! name, or by what another process has sent.

use std::ffi::{c_char, c_int};
use std::sync::{Arc, OnceLock};

use azekura_posix::{
    Attr, Credentials, Errno, FileKind, FileSystem, NewEntry, OFlags, Oid, OpenFile, Striping,
};
use libc::mode_t;

use crate::class;
use crate::global::{self, GlobalObject, Kind};
use crate::handles;
use crate::mount::{Mount, mounted};
use crate::objects::cells::{self, FileCells};
use crate::stat::{fill_stat, mode_of};
use crate::status::{dfs_call, errno_of_der};
use crate::types::{Handle, Iov, c_bytes, place, put};

/// The flags of `open` that count; a position, and so `O_APPEND`, is always given.
const FLAGS_READ: c_int =
    libc::O_ACCMODE | libc::O_CREAT | libc::O_EXCL | libc::O_TRUNC | libc::O_NOFOLLOW;

/// `dfs_obj_t`.
pub(crate) struct Object {
    /// For the calls that are not told the mount.
    fs: Arc<FileSystem>,
    oid: Oid,
    kind: FileKind,
    /// Regular files are held open.
    file: Option<Arc<OpenFile>>,
    flags: OFlags,
    /// A handle of it as an array, once somebody has asked for one.
    array: OnceLock<Handle>,
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Some(handle) = self.array.get() {
            // It may have been closed as any other.
            let _ = handles::remove_object(*handle);
        }
    }
}

impl Object {
    /// What has these attributes, opened.
    pub(crate) fn open(mount: &Mount, attr: &Attr, flags: OFlags) -> Result<Box<Self>, Errno> {
        let file = match attr.kind {
            FileKind::Regular => {
                if writes(flags) {
                    mount.check_writable()?;
                }
                Some(mount.fs().open(mount.caller(), attr.oid, flags)?.1)
            }
            _ => None,
        };
        Ok(Box::new(Self::of(mount, attr, file, flags)))
    }

    fn of(mount: &Mount, attr: &Attr, file: Option<OpenFile>, flags: OFlags) -> Self {
        let fs = Arc::clone(mount.fs());
        let (file, array) = (file.map(Arc::new), OnceLock::new());
        Self { fs, oid: attr.oid, kind: attr.kind, file, flags: kept(flags), array }
    }

    /// The file system that it is in.
    pub(crate) fn fs(&self) -> &FileSystem {
        &self.fs
    }

    /// What kind of object it is.
    pub(crate) fn kind(&self) -> FileKind {
        self.kind
    }

    /// Its id.
    pub(crate) fn oid(&self) -> Oid {
        self.oid
    }

    /// Its id, if it is a directory; else `ENOTDIR`.
    pub(crate) fn directory(&self) -> Result<Oid, Errno> {
        if self.kind == FileKind::Directory { Ok(self.oid) } else { Err(Errno::NOTDIR) }
    }

    /// The file as an array of bytes, for which it stays open. Errors as of [`Object::file`].
    pub(crate) fn cells(&self) -> Result<FileCells, Errno> {
        let chunk_bytes = self.fs.getattr(self.file()?.oid())?.chunk_bytes.into();
        let file = self.file.clone().ok_or(Errno::INVAL)?;
        let (fs, caller) = (Arc::clone(&self.fs), Credentials::of_process());
        Ok(FileCells { fs, caller, file, chunk_bytes })
    }

    /// The handle of the file as an array, which ends with the object.
    pub(crate) fn array(&self) -> Result<Handle, Errno> {
        if let Some(known) = self.array.get() {
            return Ok(*known);
        }
        let cells = self.cells()?;
        Ok(*self.array.get_or_init(|| cells::add_file(cells)))
    }

    /// The open file; `EISDIR` for a directory, `EINVAL` for the rest.
    pub(crate) fn file(&self) -> Result<&OpenFile, Errno> {
        match (&self.file, self.kind) {
            (Some(file), _) => Ok(file),
            (None, FileKind::Directory) => Err(Errno::ISDIR),
            (None, _) => Err(Errno::INVAL),
        }
    }
}

/// Whether a file that is opened so may be changed.
fn writes(flags: OFlags) -> bool {
    flags & OFlags::ACCMODE != OFlags::RDONLY || flags.contains(OFlags::TRUNC)
}

/// Those flags that go with an object to another process.
fn kept(flags: OFlags) -> OFlags {
    flags & OFlags::ACCMODE
}

pub(crate) fn flags_of(flags: c_int) -> OFlags {
    OFlags::from_bits_retain((flags & FLAGS_READ) as u32)
}

/// The object that a caller means.
///
/// # Safety
/// `object` is null or came from this library and has not been released for `'a`.
pub(crate) unsafe fn opened<'a>(object: *const Object) -> Result<&'a Object, Errno> {
    // SAFETY: the caller's promise.
    unsafe { object.as_ref() }.ok_or(Errno::INVAL)
}

/// The directory that a caller means; null is the root.
///
/// # Safety
/// `parent` is null or open.
pub(crate) unsafe fn parent_of(mount: &Mount, parent: *const Object) -> Result<Oid, Errno> {
    if parent.is_null() {
        return Ok(mount.fs().root());
    }
    // SAFETY: the caller's promise.
    unsafe { opened(parent) }?.directory()
}

/// One name; `EINVAL` for a path or none.
///
/// # Safety
/// `name` is null or a C string that lives for `'a`.
pub(crate) unsafe fn name_of<'a>(name: *const c_char) -> Result<&'a [u8], Errno> {
    // SAFETY: the caller's promise.
    match unsafe { c_bytes(name) } {
        None | Some(b"") => Err(Errno::INVAL),
        Some(name) if name.contains(&b'/') => Err(Errno::INVAL),
        Some(name) => Ok(name),
    }
}

/// Where a lookup puts what it found.
struct Found {
    object: *mut *mut Object,
    mode: *mut mode_t,
    stat: *mut libc::stat,
}

impl Found {
    /// # Safety
    /// Each place is null or the caller's to write to.
    unsafe fn give(&self, mount: &Mount, attr: &Attr, flags: c_int) -> Result<(), Errno> {
        if self.object.is_null() {
            return Err(Errno::INVAL);
        }
        let object = Object::open(mount, attr, flags_of(flags))?;
        // SAFETY: the caller's promise.
        unsafe {
            put(self.object, Box::into_raw(object));
            put(self.mode, mode_of(attr));
            if let Some(stat) = place(self.stat) {
                fill_stat(stat, attr);
            }
        }
        Ok(())
    }
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_lookup(
    dfs: *mut Mount,
    path: *const c_char,
    flags: c_int,
    object: *mut *mut Object,
    mode: *mut mode_t,
    stat: *mut libc::stat,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let mount = unsafe { mounted(dfs) }?;
        // SAFETY: null or a C string, by the contract.
        let path = unsafe { c_bytes(path) }.ok_or(Errno::INVAL)?;
        let follow = flags & libc::O_NOFOLLOW == 0;
        let attr = mount.names().resolve(mount.path(path)?, follow)?;
        // SAFETY: null or the caller's to write to, by the contract.
        unsafe { Found { object, mode, stat }.give(mount, &attr, flags & !libc::O_CREAT) }
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_lookup_rel(
    dfs: *mut Mount,
    parent: *mut Object,
    name: *const c_char,
    flags: c_int,
    object: *mut *mut Object,
    mode: *mut mode_t,
    stat: *mut libc::stat,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let mount = unsafe { mounted(dfs) }?;
        // SAFETY: by the contract.
        let (dir, name) = unsafe { (parent_of(mount, parent)?, name_of(name)?) };
        let follow = flags & libc::O_NOFOLLOW == 0;
        let attr = mount.names().at(dir).resolve(name, follow)?;
        // SAFETY: null or the caller's to write to, by the contract.
        unsafe { Found { object, mode, stat }.give(mount, &attr, flags & !libc::O_CREAT) }
    })
}

/// An entry that is to be opened or made.
pub(crate) struct Wanted<'a> {
    pub(crate) dir: Oid,
    pub(crate) name: &'a [u8],
    /// Kind and permissions.
    pub(crate) mode: mode_t,
    pub(crate) flags: OFlags,
    pub(crate) striping: Striping,
    /// The text of a new symlink.
    pub(crate) text: Option<&'a [u8]>,
}

impl Wanted<'_> {
    /// Opens or makes it.
    pub(crate) fn open(&self, mount: &Mount) -> Result<Box<Object>, Errno> {
        match self.mode & libc::S_IFMT {
            libc::S_IFREG => self.file(mount),
            libc::S_IFDIR => self.other(mount, NewEntry::Directory),
            libc::S_IFLNK if self.flags.contains(OFlags::CREATE) && self.text.is_none() => {
                Err(Errno::INVAL)
            }
            libc::S_IFLNK => self.other(mount, NewEntry::Symlink(self.text.unwrap_or_default())),
            _ => Err(Errno::INVAL),
        }
    }

    fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    fn file(&self, mount: &Mount) -> Result<Box<Object>, Errno> {
        let Self { dir, name, flags, striping, .. } = *self;
        if !flags.contains(OFlags::CREATE) {
            if let Some(object) = self.file_at_once(mount)? {
                return Ok(object);
            }
            let attr = mount.names().at(dir).resolve(name, !flags.contains(OFlags::NOFOLLOW))?;
            return match attr.kind {
                FileKind::Regular => Object::open(mount, &attr, flags),
                FileKind::Directory => Err(Errno::ISDIR),
                _ => Err(Errno::INVAL),
            };
        }
        mount.check_writable()?;
        let mode = self.permissions();
        let (attr, file) =
            mount.fs().create_as(mount.caller(), dir, name, mode, flags, striping)?;
        Ok(Box::new(Object::of(mount, &attr, Some(file), flags)))
    }

    /// A file that is there, looked up and opened by one request. `None` if its name leads elsewhere, or nothing may be
    /// written.
    fn file_at_once(&self, mount: &Mount) -> Result<Option<Box<Object>>, Errno> {
        let Self { dir, name, flags, .. } = *self;
        if writes(flags) && mount.check_writable().is_err() {
            return Ok(None);
        }
        match mount.fs().open_at(mount.caller(), dir, name, flags) {
            Ok((attr, file)) if attr.kind == FileKind::Regular => {
                Ok(Some(Box::new(Object::of(mount, &attr, Some(file), flags))))
            }
            Ok(_) | Err(Errno::LOOP | Errno::NXIO) => Ok(None),
            Err(errno) => Err(errno),
        }
    }

    /// A directory or symlink.
    fn other(&self, mount: &Mount, what: NewEntry<'_>) -> Result<Box<Object>, Errno> {
        let Self { dir, name, flags, striping, .. } = *self;
        let kind = match what {
            NewEntry::Directory => FileKind::Directory,
            _ => FileKind::Symlink,
        };
        if flags.contains(OFlags::CREATE) {
            mount.check_writable()?;
            let mode = self.permissions();
            match mount.fs().make_as(mount.caller(), dir, name, mode, what, striping) {
                Ok(attr) => return Object::open(mount, &attr, flags),
                Err(Errno::EXIST) if !flags.contains(OFlags::EXCL) => {}
                Err(errno) => return Err(errno),
            }
        }
        let attr = mount.fs().lookup(mount.caller(), dir, name)?;
        match (kind, attr.kind) {
            (wanted, found) if wanted == found => Object::open(mount, &attr, flags),
            (FileKind::Directory, _) => Err(Errno::NOTDIR),
            _ => Err(Errno::INVAL),
        }
    }
}

/// The striping that a caller asks for.
pub(crate) fn striping_of(class_id: u32, chunk_bytes: u64) -> Result<Striping, Errno> {
    let chunk_bytes = match chunk_bytes {
        0 => None,
        bytes => Some(u32::try_from(bytes).map_err(|_| Errno::INVAL)?),
    };
    Ok(Striping { class: class::wanted(class_id)?, chunk_bytes })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_open(
    dfs: *mut Mount,
    parent: *mut Object,
    name: *const c_char,
    mode: mode_t,
    flags: c_int,
    class_id: u32,
    chunk_bytes: u64,
    value: *const c_char,
    object: *mut *mut Object,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let mount = unsafe { mounted(dfs) }?;
        // SAFETY: null or the caller's to write to, by the contract.
        let object = unsafe { place(object) }.ok_or(Errno::INVAL)?;
        let wanted = Wanted {
            // SAFETY: null or open, by the contract.
            dir: unsafe { parent_of(mount, parent) }?,
            // SAFETY: a C string, by the contract.
            name: unsafe { name_of(name) }?,
            mode,
            flags: flags_of(flags),
            striping: striping_of(class_id, chunk_bytes)?,
            // SAFETY: null or a C string, by the contract.
            text: unsafe { c_bytes(value) },
        };
        *object = Box::into_raw(wanted.open(mount)?);
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_release(object: *mut Object) -> c_int {
    dfs_call(|| {
        if object.is_null() {
            return Err(Errno::INVAL);
        }
        // SAFETY: it came from `Box::into_raw` and is not used after this, by the contract.
        drop(unsafe { Box::from_raw(object) });
        Ok(())
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_obj_local2global(
    dfs: *mut Mount,
    object: *mut Object,
    iov: *mut Iov,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let (mount, object) = unsafe { (mounted(dfs)?, opened(object)?) };
        if object.oid.container().0 != mount.container() {
            return Err(Errno::INVAL);
        }
        let contents = GlobalObject { oid: object.oid, flags: object.flags.bits() };
        // SAFETY: a list with its buffer, by the contract.
        unsafe { global::give(Kind::Object, &contents, iov) }.map_err(errno_of_der)
    })
}

/// See `daos_fs.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn dfs_obj_global2local(
    dfs: *mut Mount,
    flags: c_int,
    iov: Iov,
    object: *mut *mut Object,
) -> c_int {
    dfs_call(|| {
        // SAFETY: by the contract.
        let mount = unsafe { mounted(dfs) }?;
        // SAFETY: null or the caller's to write to, by the contract.
        let object = unsafe { place(object) }.ok_or(Errno::INVAL)?;
        // SAFETY: a list with its buffer, by the contract.
        let contents: GlobalObject =
            unsafe { global::take(Kind::Object, &iov) }.map_err(errno_of_der)?;
        let oid = mount.own(contents.oid)?;
        let flags = if flags == 0 {
            kept(OFlags::from_bits_retain(contents.flags))
        } else {
            kept(flags_of(flags))
        };
        let attr = mount.fs().getattr(oid)?;
        *object = Box::into_raw(Object::open(mount, &attr, flags)?);
        Ok(())
    })
}
