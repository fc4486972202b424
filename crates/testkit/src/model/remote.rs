//! The file system under test, used by several clients in turn.

use std::collections::BTreeMap;

use azekura_posix::{
    Attr, AttrUpdate, Errno, File, Namespace, NewEntry, OFlags, OpenOptions, SetTime,
};

use super::Subject;
use super::local::user_names;
use super::operation::{Op, SLOTS};
use super::outcome::{Answer, Outcome, Stat, comparable};

/// Clients of one pool, and the files that they have open.
pub struct Remote {
    clients: Vec<Namespace>,
    open: [Option<(usize, File)>; SLOTS],
}

fn stat(attr: &Attr) -> Answer {
    Answer::Stat(comparable(Stat {
        kind: attr.kind,
        mode: attr.mode.into(),
        uid: attr.uid,
        gid: attr.gid,
        nlink: attr.nlink.into(),
        size: attr.size,
    }))
}

/// Half of the reads that are allowed go by object: nobody must be able to tell the difference.
fn read(client: &Namespace, file: &File, data: &mut [u8], offset: u64) -> Result<usize, Errno> {
    let (handle, fs) = (file.handle(), client.filesystem());
    if offset.is_multiple_of(2) || handle.flags().contains(OFlags::WRONLY) {
        return file.read_at(data, offset);
    }
    let read = fs.read_object(client.caller(), handle.oid(), offset, data)?;
    let end = read.attr.size.saturating_sub(offset).min(data.len() as u64);
    assert_eq!(read.bytes as u64, end, "nobody else has changed the file");
    assert_eq!(read.at_end, offset + read.bytes as u64 >= read.attr.size);
    Ok(read.bytes)
}

/// Half of the writes that are allowed go by object.
fn write(client: &Namespace, file: &File, data: &[u8], offset: u64) -> Result<usize, Errno> {
    let (handle, fs) = (file.handle(), client.filesystem());
    let is_writable = handle.flags().intersects(OFlags::WRONLY | OFlags::RDWR);
    if offset.is_multiple_of(2) || !is_writable || handle.flags().contains(OFlags::APPEND) {
        return file.write_at(data, offset);
    }
    let written = fs.write_object(client.caller(), handle.oid(), offset, data)?;
    if let Some(after) = written.after {
        assert!(data.is_empty() || after.size >= offset + written.bytes as u64);
    }
    Ok(written.bytes)
}

impl Subject for Remote {
    fn clients(&self) -> usize {
        self.clients.len()
    }

    fn apply(&mut self, client: usize, op: &Op) -> Outcome {
        match self.apply_open(op) {
            Some(outcome) => outcome,
            None => self.apply_path(client, op),
        }
    }
}

impl Remote {
    /// The clients, with nothing open.
    pub fn new(clients: Vec<Namespace>) -> Self {
        Self { clients, open: Default::default() }
    }

    /// One of the clients.
    pub fn client(&self, client: usize) -> &Namespace {
        &self.clients[client]
    }

    /// A client and what it had open is gone; another takes its place.
    pub fn replace(&mut self, client: usize, next: Namespace) {
        for slot in &mut self.open {
            slot.take_if(|(owner, _)| *owner == client);
        }
        self.clients[client] = next;
    }

    fn apply_open(&mut self, op: &Op) -> Option<Outcome> {
        let slot = op.slot()?;
        let Some((client, file)) = &self.open[slot] else { return Some(Ok(Answer::Skipped)) };
        let client = &self.clients[*client];
        Some(match op {
            Op::Close { .. } => {
                self.open[slot] = None;
                Ok(Answer::Done)
            }
            Op::Read { offset, bytes, .. } => {
                let mut data = vec![0xee; *bytes];
                read(client, file, &mut data, *offset).map(|got| {
                    data.truncate(got);
                    Answer::Data(data)
                })
            }
            Op::Write { offset, data, .. } => {
                write(client, file, data, *offset).map(|count| Answer::Count(count as u64))
            }
            Op::Truncate { bytes, .. } => file.set_len(*bytes).map(|()| Answer::Done),
            Op::Allocate { offset, bytes, what, .. } => {
                file.allocate(*offset, *bytes, *what).map(|()| Answer::Done)
            }
            Op::Seek { offset, to, .. } => file.seek(*offset, *to).map(Answer::Count),
            Op::Copy { from_offset, to, to_offset, bytes, .. } => match &self.open[*to] {
                None => Ok(Answer::Skipped),
                Some((_, to)) => {
                    file.copy_range(*from_offset, to, *to_offset, *bytes).map(Answer::Count)
                }
            },
            Op::Sync { .. } => file.sync().map(|()| Answer::Done),
            Op::StatOpen { .. } => file.metadata().map(|attr| stat(&attr)),
            Op::LinkOpen { path, .. } => {
                client.link_object(file.handle().oid(), path).map(|()| Answer::Done)
            }
            _ => Ok(Answer::Skipped),
        })
    }

    fn open(
        &mut self,
        client: usize,
        slot: usize,
        path: &[u8],
        flags: OFlags,
        mode: u32,
    ) -> Outcome {
        let file = self.clients[client].open(path, &OpenOptions::new(flags, mode))?;
        self.open[slot] = Some((client, file));
        Ok(Answer::Done)
    }

    fn apply_path(&mut self, client: usize, op: &Op) -> Outcome {
        let fs = &self.clients[client];
        let made = |attr: Result<Attr, Errno>| attr.map(|_| Answer::Done);
        let done = |result: Result<(), Errno>| result.map(|()| Answer::Done);
        match op {
            Op::Open { slot, path, flags, mode } => self.open(client, *slot, path, *flags, *mode),
            Op::Tmpfile { slot, path } => {
                self.open(client, *slot, path, OFlags::TMPFILE | OFlags::RDWR, 0o600)
            }
            Op::Mkdir { path, mode } => made(fs.create_dir(path, *mode)),
            Op::Rmdir { path } => done(fs.remove_dir(path)),
            Op::Unlink { path } => done(fs.remove_file(path)),
            Op::Rename { from, to, mode } => done(fs.rename(from, to, *mode)),
            Op::Link { from, to } => done(fs.hard_link(from, to)),
            Op::Symlink { text, path } => made(fs.symlink(text, path)),
            Op::ReadLink { path } => fs.read_link(path).map(Answer::Data),
            Op::Stat { path, follow } => fs.look_at(path, *follow).map(|attr| stat(&attr)),
            Op::List { path } => {
                let mut names = BTreeMap::new();
                for entry in fs.read_dir(path)? {
                    let entry = entry?;
                    assert!(names.insert(entry.name, entry.kind).is_none(), "a name comes twice");
                }
                Ok(Answer::Names(names))
            }
            Op::Fifo { path, mode } => made(fs.make_node(path, *mode, NewEntry::Fifo)),
            Op::Chmod { path, mode } => {
                let update = AttrUpdate { mode: Some(*mode), ..AttrUpdate::default() };
                made(fs.set_attr(path, true, &update))
            }
            Op::Times { path, atime, mtime } => {
                let update = AttrUpdate {
                    atime: Some(SetTime::At(*atime)),
                    mtime: Some(SetTime::At(*mtime)),
                    ..AttrUpdate::default()
                };
                fs.set_attr(path, true, &update)?;
                fs.metadata(path).map(|attr| Answer::Times(attr.atime, attr.mtime))
            }
            Op::TruncatePath { path, bytes } => {
                made(fs.set_attr(path, true, &AttrUpdate::size(*bytes)))
            }
            Op::SetXattr { path, name, value, mode } => {
                done(fs.set_xattr(path, name, value, *mode))
            }
            Op::GetXattr { path, name } => fs.get_xattr(path, name).map(Answer::Data),
            Op::RemoveXattr { path, name } => done(fs.remove_xattr(path, name)),
            Op::ListXattrs { path } => {
                fs.list_xattrs(path).map(|names| Answer::Data(user_names(&names)))
            }
            _ => Ok(Answer::Skipped),
        }
    }
}
