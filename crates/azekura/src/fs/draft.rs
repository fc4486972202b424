//! Files under way. A copy is written under a name of its own beside the one that it is to have, and
//! takes that name when it is complete: so nobody finds half a file, and what was there before stays
//! until then. A draft that is dropped goes away. What is no plain file is written where it is.

use std::fs;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use azekura_posix::{Attr, FileKind, NewEntry, OFlags, Oid, OpenOptions, RenameMode, Striping};
use azekura_proto::message::typed::Rename;

use super::opened::Opened;
use super::paths::join;
use super::tree::{OpenFile, Tree, bytes_of, local, split};

/// Names that are tried for one that lies where the final one does. With any number of targets one of
/// these does; if it did not, the copy would be right all the same.
const NAMES_TRIED: usize = 4_096;

/// A file that is being written.
pub(crate) struct Draft<'a> {
    tree: &'a Tree,
    path: Vec<u8>,
    /// The name that it gets; `None` if it is written in its place.
    target: Option<Vec<u8>>,
    /// Something had the final name when this was begun.
    replaces: bool,
    oid: Option<Oid>,
    file: Option<OpenFile>,
}

impl<'a> Draft<'a> {
    /// Begins a file that is to have the name `target`. `fresh`: nothing can have that name yet.
    /// Others cannot read it until its maker says so.
    pub(crate) fn begin(tree: &'a Tree, target: &[u8], fresh: bool) -> io::Result<Self> {
        match tree {
            Tree::Local => Self::begin_local(tree, target),
            Tree::Pool(container) => Self::begin_in_pool(tree, container, target, fresh),
        }
    }

    fn begin_local(tree: &'a Tree, target: &[u8]) -> io::Result<Self> {
        let (target, kind) = match fs::symlink_metadata(local(target)) {
            Ok(found) if found.is_symlink() => {
                let target = fs::canonicalize(local(target))?;
                let kind = fs::metadata(&target)?.file_type();
                (bytes_of(&target), Some(kind))
            }
            Ok(found) => (target.to_vec(), Some(found.file_type())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => (target.to_vec(), None),
            Err(error) => return Err(error),
        };
        match kind {
            Some(kind) if kind.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            Some(kind) if !kind.is_file() => {
                let file =
                    OpenFile::Local(fs::OpenOptions::new().write(true).open(local(&target))?);
                Ok(Self {
                    tree,
                    path: target,
                    target: None,
                    replaces: true,
                    oid: None,
                    file: Some(file),
                })
            }
            _ => {
                let (path, file) = in_free_name(&target, create_local)?;
                let file = Some(OpenFile::Local(file));
                Ok(Self {
                    tree,
                    path,
                    target: Some(target),
                    replaces: kind.is_some(),
                    oid: None,
                    file,
                })
            }
        }
    }

    fn begin_in_pool(
        tree: &'a Tree,
        container: &Opened,
        target: &[u8],
        fresh: bool,
    ) -> io::Result<Self> {
        let names = &container.names;
        let (target, before) = match if fresh { None } else { look(container, target)? } {
            Some(attr) if attr.kind == FileKind::Symlink => {
                let (target, attr) = names.canonicalize(b"", target)?;
                (target, Some(attr))
            }
            before => (target.to_vec(), before),
        };
        let striping = match &before {
            None => Striping::default(),
            // What takes a file's place is striped as that was: somebody may have wanted it so.
            Some(attr) if attr.kind == FileKind::Regular => {
                Striping { class: Some(attr.oid.class()), chunk_bytes: Some(attr.chunk_bytes) }
            }
            Some(attr) if attr.kind == FileKind::Directory => {
                return Err(io::ErrorKind::IsADirectory.into());
            }
            Some(_) => return Err(io::Error::other("what has its name there is no plain file")),
        };
        let (above, name) = split(&target)?;
        let dir = names.resolve(above, true)?.oid;
        let placement = container.fs.pool().placement();
        let home = placement.entry_target(dir, name);
        // A name on the target of the final one: the rename is that target's alone then, and the file
        // lies with its name, as if it had been made under it.
        let beside = || {
            let mut tried = std::iter::repeat_with(free_name).take(NAMES_TRIED);
            tried.find(|name| placement.entry_target(dir, name) == home).unwrap_or_else(free_name)
        };
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
        let (path, file) = loop {
            let path = join(above, &beside());
            let made = if before.is_none() {
                names.open(&path, &OpenOptions::new(flags, 0o600))
            } else {
                let (fs, caller) = (&container.fs, &container.caller);
                let (_, name) = split(&path)?;
                fs.make_as(caller, dir, name, 0o600, NewEntry::Regular, striping)
                    .and_then(|_| names.open(&path, &OpenOptions::new(OFlags::WRONLY, 0)))
            };
            match made.map_err(io::Error::from) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => break (path, other?),
            }
        };
        let (oid, replaces) = (Some(file.handle().oid()), before.is_some());
        let file = Some(OpenFile::Pool(Box::new(file)));
        Ok(Self { tree, path, target: Some(target), replaces, oid, file })
    }

    /// Where the contents go.
    pub(crate) fn file(&self) -> io::Result<&OpenFile> {
        self.file.as_ref().ok_or_else(|| io::ErrorKind::InvalidInput.into())
    }

    /// What was written is all of it: `finish` gives the file at that path the rest of what it is to
    /// have, and then it gets its name.
    pub(crate) fn complete<T>(
        mut self,
        finish: impl FnOnce(&[u8], Option<Oid>) -> io::Result<T>,
    ) -> io::Result<T> {
        if let Some(file) = self.file.take() {
            file.close()?;
        }
        let done = finish(&self.path, self.oid)?;
        if let Some(target) = &self.target {
            match self.tree {
                Tree::Local => fs::rename(local(&self.path), local(target))?,
                Tree::Pool(container) => {
                    rename_in_pool(container, &self.path, target, self.replaces)?;
                }
            }
            self.target = None;
        }
        Ok(done)
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        if self.target.is_none() {
            return;
        }
        self.file = None;
        // The failure that led here is what people want to hear of.
        let _ = match self.tree {
            Tree::Local => fs::remove_file(local(&self.path)),
            Tree::Pool(container) => {
                container.names.remove_file(&self.path).map_err(io::Error::from)
            }
        };
    }
}

fn look(container: &Opened, path: &[u8]) -> io::Result<Option<Attr>> {
    match container.names.resolve(path, false).map_err(io::Error::from) {
        Ok(attr) => Ok(Some(attr)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A plain rename has to look at both names, to see whether the caller may. Where nothing has the
/// final one and the other is the caller's own, just made, in the same directory, there is nothing to
/// see: so most files take one request less.
fn rename_in_pool(
    container: &Opened,
    path: &[u8],
    target: &[u8],
    replaces: bool,
) -> io::Result<()> {
    let ((above, from_name), (_, to_name)) = (split(path)?, split(target)?);
    let dir = container.names.resolve(above, true)?.oid;
    let pool = container.fs.pool();
    let to = pool.placement().entry_target(dir, to_name);
    let mode = RenameMode::NoReplace;
    let request = Rename { from_dir: dir, from_name, to_dir: dir, to_name, mode };
    if !replaces && pool.call(to, request).is_ok() {
        return Ok(());
    }
    Ok(container.names.rename(path, target, RenameMode::Replace)?)
}

fn create_local(path: &[u8]) -> io::Result<fs::File> {
    use std::os::unix::fs::OpenOptionsExt as _;
    fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(local(path))
}

/// Makes something under a name that is free, in the directory of `target`.
fn in_free_name<T>(
    target: &[u8],
    make: impl Fn(&[u8]) -> io::Result<T>,
) -> io::Result<(Vec<u8>, T)> {
    let (above, _) = split(target)?;
    loop {
        let path = join(above, &free_name());
        match make(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            other => return other.map(|made| (path, made)),
        }
    }
}

/// A name that nothing else has. What a killed copy has left behind is known by it.
fn free_name() -> Vec<u8> {
    static PROCESS: OnceLock<u64> = OnceLock::new();
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let process = PROCESS.get_or_init(|| {
        let mut random = [0; 8];
        // Without random bytes names of two processes may meet, and one of them takes the next.
        let _ = getrandom::fill(&mut random);
        u64::from_le_bytes(random)
    });
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!(".azekura-{process:016x}-{number}.part").into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files_in(dir: &std::path::Path) -> Vec<String> {
        let names = fs::read_dir(dir).unwrap().flatten();
        let mut names: Vec<_> =
            names.map(|entry| entry.file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_draft_that_is_dropped_leaves_what_was_there() {
        let dir = tempfile::tempdir().unwrap();
        let target = dir.path().join("f");
        fs::write(&target, "before").unwrap();
        let draft = Draft::begin(&Tree::Local, &bytes_of(&target), false).unwrap();
        draft.file().unwrap().write_all_at(b"half", 0).unwrap();
        assert_eq!(files_in(dir.path()).len(), 2);
        drop(draft);
        assert_eq!(files_in(dir.path()), ["f"]);
        assert_eq!(fs::read_to_string(&target).unwrap(), "before");
    }

    #[test]
    fn a_draft_takes_its_name_when_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("real"), "before").unwrap();
        let link = dir.path().join("link");
        std::os::unix::fs::symlink("real", &link).unwrap();
        let draft = Draft::begin(&Tree::Local, &bytes_of(&link), false).unwrap();
        draft.file().unwrap().write_all_at(b"after", 0).unwrap();
        draft.complete(|_, _| Ok(())).unwrap();
        assert_eq!(files_in(dir.path()), ["link", "real"]);
        assert!(link.is_symlink());
        assert_eq!(fs::read_to_string(dir.path().join("real")).unwrap(), "after");
    }

    #[test]
    fn what_is_no_plain_file_is_written_in_its_place() {
        let draft = Draft::begin(&Tree::Local, b"/dev/null", false).unwrap();
        assert_eq!(draft.path, b"/dev/null");
        draft.complete(|_, _| Ok(())).unwrap();
    }
}
