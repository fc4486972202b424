//! Small files beside the targets, which are read and written whole: what an engine must know before
//! it opens a target. Owns how such a file is replaced, so that a crash leaves the old one or the new
//! one. It knows nothing of what is in them.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::io::Errno;

use crate::disk::{Access, Directory};
use crate::environment::Environment;

impl Environment {
    /// Makes a directory and those above it, unless they are there, so that a crash of the machine
    /// leaves them: whatever is synced below would be lost with a name above it.
    ///
    /// # Errors
    /// What the disk says.
    pub fn make_dir(&self, path: &Path) -> io::Result<()> {
        let is_new = |dir: &&Path| dir.file_name().is_some() && !self.has_file(dir);
        let new: Vec<&Path> = path.ancestors().take_while(is_new).collect();
        self.disk.create_dir_all(path)?;
        for dir in new.into_iter().rev() {
            match self.place(dir).and_then(|(parent, _)| parent.sync()) {
                // One that may be written in and not read cannot be opened to be synced, and some file
                // systems sync no directories.
                Ok(()) | Err(Errno::ACCESS | Errno::INVAL) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }

    /// What is in a file; `None` if it is not there.
    ///
    /// # Errors
    /// What the disk says.
    pub fn read_file(&self, path: &Path) -> io::Result<Option<Vec<u8>>> {
        let read = || {
            let (dir, name) = self.place(path)?;
            let file = dir.open(text(name)?, Access::Read)?;
            let mut bytes = vec![0; file.stat()?.bytes as usize];
            let length = file.read_full_at(&mut bytes, 0)?;
            bytes.truncate(length);
            Ok(bytes)
        };
        match read() {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Errno::NOENT) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether there is such a file or directory.
    pub fn has_file(&self, path: &Path) -> bool {
        self.place(path).and_then(|(dir, name)| dir.stat(name)).is_ok()
    }

    /// Makes an empty file, unless it is there; a crash of the machine may take it away again.
    ///
    /// # Errors
    /// What the disk says.
    pub fn make_file(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        dir.open(text(name)?, Access::CreateReadable)?.truncate(0)?;
        Ok(())
    }

    /// Replaces a file durably: whatever happens, it is the old one or the new one.
    ///
    /// # Errors
    /// What the disk says.
    pub fn replace_file(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        let new = path.with_extension("new");
        let new = text(new.file_name().ok_or(Errno::INVAL)?)?;
        let file = dir.open(new, Access::CreateReadable)?;
        file.truncate(0)?;
        file.write_all_at(bytes, 0)?;
        file.sync(false)?;
        dir.rename(new, text(name)?)?;
        Ok(dir.sync()?)
    }

    /// Removes a file; a crash of the machine may bring it back.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if it is not there; what the disk says.
    pub fn remove_file(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        Ok(dir.remove(text(name)?)?)
    }

    /// Removes a directory with everything in it.
    ///
    /// # Errors
    /// [`io::ErrorKind::NotFound`] if it is not there; what the disk says.
    pub fn remove_tree(&self, path: &Path) -> io::Result<()> {
        let (dir, name) = self.place(path)?;
        Ok(dir.remove_tree(text(name)?)?)
    }

    /// The directory that a file lies in, and its name there.
    fn place<'p>(&self, path: &'p Path) -> Result<(Arc<dyn Directory>, &'p OsStr), Errno> {
        let name = path.file_name().ok_or(Errno::INVAL)?;
        let dir = match path.parent() {
            Some(dir) if !dir.as_os_str().is_empty() => dir.to_path_buf(),
            _ => PathBuf::from("."),
        };
        Ok((self.disk.open_dir(&dir)?, name))
    }
}

fn text(name: &OsStr) -> Result<&str, Errno> {
    name.to_str().ok_or(Errno::INVAL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_made_replaced_read_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let environment = Environment::system();
        let file = dir.path().join("a").join("pool.json");
        environment.make_dir(file.parent().unwrap()).unwrap();
        assert!(!environment.has_file(&file) && environment.read_file(&file).unwrap().is_none());
        environment.make_file(&file).unwrap();
        assert_eq!(environment.read_file(&file).unwrap().unwrap(), b"");
        for bytes in [&b"long enough"[..], b"short"] {
            environment.replace_file(&file, bytes).unwrap();
            assert_eq!(environment.read_file(&file).unwrap().unwrap(), bytes);
        }
        let names = std::fs::read_dir(file.parent().unwrap()).unwrap().count();
        assert_eq!(names, 1, "nothing else is left");
        environment.remove_file(&file).unwrap();
        let error = environment.remove_file(&file).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        environment.remove_tree(file.parent().unwrap()).unwrap();
        assert!(!environment.has_file(&file));
    }
}
