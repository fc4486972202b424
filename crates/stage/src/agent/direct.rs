//! Writing past the page cache (`O_DIRECT`). Owns what that asks of memory: pieces are copied to where a disk
//! may take them from. What is not a whole number of blocks is not for here.

use std::cell::RefCell;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

/// No disk asks for more, in bytes.
const BLOCK_BYTES: usize = 4096;

thread_local! {
    /// Of a writing thread: a piece, beginning at a whole block.
    static ALIGNED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Whether bytes can be written here.
pub(crate) fn fits(bytes: &[u8], offset: u64) -> bool {
    bytes.len().is_multiple_of(BLOCK_BYTES) && offset.is_multiple_of(BLOCK_BYTES as u64)
}

/// Writes all bytes to a file that was opened with `O_DIRECT`.
pub(crate) fn write_all_at(file: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
    ALIGNED.with_borrow_mut(|memory| {
        if memory.len() < bytes.len() + BLOCK_BYTES {
            memory.resize(bytes.len() + BLOCK_BYTES, 0);
        }
        let start = memory.as_ptr().align_offset(BLOCK_BYTES);
        let aligned = &mut memory[start..start + bytes.len()];
        aligned.copy_from_slice(bytes);
        file.write_all_at(aligned, offset)
    })
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::OpenOptionsExt as _;

    use super::*;

    #[test]
    fn whole_blocks_get_to_their_place() {
        let directory = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let path = directory.path().join("f");
        let mut options = File::options();
        let opened = options
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(libc::O_DIRECT)
            .open(&path);
        let Ok(file) = opened else {
            eprintln!("skipped: no O_DIRECT on the file system of the sources");
            return;
        };
        let bytes: Vec<u8> = (0..3 * BLOCK_BYTES).map(|at| at as u8 ^ (at >> 8) as u8).collect();
        // Wherever they begin in memory.
        for shift in [0, 1, 7] {
            let some = &bytes[shift..shift + 2 * BLOCK_BYTES];
            assert!(fits(some, 4096) && !fits(some, 512) && !fits(&some[1..], 0));
            write_all_at(&file, some, 4096).unwrap();
            assert!(std::fs::read(&path).unwrap()[4096..] == *some);
        }
    }
}
