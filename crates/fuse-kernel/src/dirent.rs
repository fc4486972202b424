//! Packs directory entries into the form that READDIR and READDIRPLUS want, never past the
//! kernel's byte budget.

use zerocopy::IntoBytes;

use crate::abi::{Dirent, EntryOut};
use crate::reply::{Entry, entry_out};

/// The next entry does not fit any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

/// One entry of a listing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ListedEntry<'a> {
    /// Inode number that programs see.
    pub ino: u64,
    /// Where the listing goes on after this entry.
    pub next_cookie: u64,
    /// File type: the `S_IFMT` bits of the mode.
    pub mode: u32,
    /// The name.
    pub name: &'a [u8],
}

/// Fills a buffer with entries.
#[derive(Debug)]
pub struct DirentWriter<'a> {
    buffer: &'a mut [u8],
    used: usize,
}

impl<'a> DirentWriter<'a> {
    /// Entries will go into `buffer`, whose length is the kernel's byte budget.
    pub fn new(buffer: &'a mut [u8]) -> Self {
        Self { buffer, used: 0 }
    }

    /// Adds an entry for READDIR.
    pub fn push(&mut self, entry: &ListedEntry<'_>) -> Result<(), Full> {
        self.put(None, entry)
    }

    /// Adds an entry with its node for READDIRPLUS. With `node: 0` the kernel learns the name only
    /// and takes no reference.
    pub fn push_plus(&mut self, entry: &ListedEntry<'_>, node: &Entry) -> Result<(), Full> {
        self.put(Some(&entry_out(node)), entry)
    }

    /// Whether an entry with its node has room: to be asked before the node is made, for what is not sent has not
    /// been told to the kernel.
    pub fn has_room_plus(&self, entry: &ListedEntry<'_>) -> bool {
        let bytes = padded_bytes(size_of::<EntryOut>(), entry);
        self.buffer.len() - self.used >= bytes
    }

    /// What has been packed.
    pub fn bytes(&self) -> &[u8] {
        &self.buffer[..self.used]
    }

    /// Whether nothing has been packed.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    fn put(&mut self, node: Option<&EntryOut>, entry: &ListedEntry<'_>) -> Result<(), Full> {
        let head = Dirent {
            ino: entry.ino,
            off: entry.next_cookie,
            namelen: entry.name.len() as u32,
            typ: (entry.mode & 0o170_000) >> 12,
        };
        let node = node.map_or(&[][..], IntoBytes::as_bytes);
        let padded = padded_bytes(node.len(), entry);
        let room = self.buffer.get_mut(self.used..self.used + padded).ok_or(Full)?;
        let (node_room, room) = room.split_at_mut(node.len());
        node_room.copy_from_slice(node);
        let (head_room, room) = room.split_at_mut(size_of::<Dirent>());
        head_room.copy_from_slice(head.as_bytes());
        let (name_room, padding) = room.split_at_mut(entry.name.len());
        name_room.copy_from_slice(entry.name);
        padding.fill(0);
        self.used += padded;
        Ok(())
    }
}

/// What an entry takes behind so many bytes of its node.
fn padded_bytes(node_bytes: usize, entry: &ListedEntry<'_>) -> usize {
    (node_bytes + size_of::<Dirent>() + entry.name.len()).next_multiple_of(8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_before_whether_an_entry_has_room() {
        let mut buffer = [0; 128 + 24 + 8];
        let mut writer = DirentWriter::new(&mut buffer);
        assert!(!writer.has_room_plus(&entry(b"123456789")));
        assert!(writer.has_room_plus(&entry(b"12345678")));
        writer.push_plus(&entry(b"12345678"), &Entry::default()).unwrap();
        assert!(!writer.has_room_plus(&entry(b"")));
    }

    fn entry(name: &[u8]) -> ListedEntry<'_> {
        ListedEntry { ino: 7, next_cookie: 9, mode: 0o040_755, name }
    }

    #[test]
    fn entries_are_padded_to_eight_bytes_with_zeros() {
        let mut buffer = [0xff; 64];
        let mut writer = DirentWriter::new(&mut buffer);
        writer.push(&entry(b"abc")).unwrap();
        let bytes = writer.bytes();
        assert_eq!(bytes.len(), 32);
        assert_eq!(bytes[..8], 7u64.to_ne_bytes());
        assert_eq!(bytes[8..16], 9u64.to_ne_bytes());
        assert_eq!(bytes[16..20], 3u32.to_ne_bytes());
        assert_eq!(bytes[20..24], 4u32.to_ne_bytes());
        assert_eq!(&bytes[24..], b"abc\0\0\0\0\0");
    }

    #[test]
    fn the_budget_is_never_passed() {
        let mut buffer = [0; 63];
        let mut writer = DirentWriter::new(&mut buffer);
        assert_eq!(writer.push(&entry(b"a")), Ok(()));
        assert_eq!(writer.push(&entry(b"b")), Err(Full));
        assert_eq!(writer.bytes().len(), 32);
    }

    #[test]
    fn an_entry_with_its_node_has_the_node_first() {
        let mut buffer = [0; 256];
        let mut writer = DirentWriter::new(&mut buffer);
        let node = Entry { node: 5, ..Entry::default() };
        writer.push_plus(&entry(b"12345678"), &node).unwrap();
        assert_eq!(writer.bytes().len(), 128 + 24 + 8);
        assert_eq!(writer.bytes()[..8], 5u64.to_ne_bytes());
        assert_eq!(&writer.bytes()[152..], b"12345678");
    }
}
