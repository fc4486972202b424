//! What the bench needs of a file system, so that the same loops run on a directory of this machine
//! and on a pool. Implementations use the cheapest right calls and nothing else.

use anyhow::Result;

/// A file system, or a part of one, under load.
pub(super) trait FileSpace {
    /// An open file.
    type File;
    /// A directory that names can be looked up in.
    type Dir;

    /// Makes a directory; one that is there is fine.
    fn make_dir(&mut self, path: &str) -> Result<()>;
    /// Removes a file or an empty directory.
    fn remove(&mut self, path: &str, is_dir: bool) -> Result<()>;

    /// Opens a file for reading and writing, making it if need be; `fresh` empties it.
    fn open_file(&mut self, path: &str, fresh: bool) -> Result<Self::File>;
    /// Opens a file that is there, for reading.
    fn open_input(&mut self, path: &str) -> Result<Self::File>;
    /// Makes a file anew, for writing.
    fn create_output(&mut self, path: &str) -> Result<Self::File>;
    /// Bytes that can still be written.
    fn room_bytes(&mut self) -> Result<u64>;
    /// Makes all durable that was written and closed, also by others.
    fn settle(&mut self) -> Result<()>;
    /// Reads a piece; fewer bytes only at the end of the file.
    fn read_at(&mut self, file: &Self::File, buffer: &mut [u8], offset: u64) -> Result<usize>;
    /// Writes a piece.
    fn write_at(&mut self, file: &Self::File, buffer: &[u8], offset: u64) -> Result<()>;
    /// Makes what was written durable.
    fn sync(&mut self, file: &Self::File) -> Result<()>;
    /// Forgets what is cached on this side, and says how the file will be read.
    fn prepare_read(&mut self, file: &Self::File, random: bool) -> Result<()>;
    /// Closes the file.
    fn close(&mut self, file: Self::File) -> Result<()>;

    /// Opens a directory.
    fn open_dir(&mut self, path: &str) -> Result<Self::Dir>;
    /// Makes an empty file that must not be there, and closes it.
    fn create_in(&mut self, dir: &Self::Dir, name: &str) -> Result<()>;
    /// Asks for a file's attributes.
    fn stat_in(&mut self, dir: &Self::Dir, name: &str) -> Result<()>;
    /// Opens a file for reading and closes it.
    fn open_close_in(&mut self, dir: &Self::Dir, name: &str) -> Result<()>;
    /// Removes a file.
    fn remove_in(&mut self, dir: &Self::Dir, name: &str) -> Result<()>;
}
