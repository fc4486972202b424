//! Pieces that need not be sent: on the front's own host a node reads the file at home itself, and what travels is
//! which piece has been read there and its checksum. Owns the way to that file. A piece that is not the same here, for
//! whatever reason, is sent after all: nothing but the checksum says what a piece is.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;

use crate::agent::content::{Awaited, Content, Stage};
use crate::agent::incoming::Incoming;
use crate::fetch::{After, PieceHead};
use crate::message::{ContentDescription, Supplier};
use crate::piece::{self, Buffer};
use crate::source::{Directory, Source as _, SourceFile};

impl Incoming {
    /// Takes a piece that the front has read at home.
    pub(super) fn take_at_home(&self, from: Supplier, head: PieceHead) -> After {
        let content = self.content(head.content);
        let awaited = content.lock().awaits(from, head.index);
        let description = match awaited {
            Awaited::It(description) => description,
            // It is asked for otherwise by now.
            Awaited::Through => return After::Next,
            Awaited::Not(after) => return after,
        };
        match self.read_at_home(&content, &description, head.index) {
            Ok(bytes) if piece::checksum(&bytes) == head.checksum => {
                self.keep(content, &description, head, bytes)
            }
            read => {
                let why = read.err().map_or_else(|| "it has changed".to_owned(), |e| e.to_string());
                let id = head.content.0;
                tracing::info!("content {id} is not read at home, but sent from here on: {why}");
                content.lock().home = None;
                After::Again(head.index)
            }
        }
    }

    fn read_at_home(
        &self,
        content: &Content,
        description: &ContentDescription,
        index: u32,
    ) -> io::Result<Buffer> {
        let known = content.lock().home.clone();
        let file = if let Some(file) = known {
            file
        } else {
            let file = self.open_at_home(description)?;
            let mut state = content.lock();
            // Once it is given up nobody closes it any more.
            if state.stage == Stage::Coming {
                state.home = Some(Arc::clone(&file));
            }
            file
        };
        let mut bytes = self.buffers.take(description.bytes_of(index));
        let read = file.read_at(&mut bytes, description.offset_of(index))?;
        if read == bytes.len() { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }

    fn open_at_home(&self, description: &ContentDescription) -> io::Result<Arc<dyn SourceFile>> {
        let [part] = &description.parts[..] else { return Err(io::ErrorKind::Unsupported.into()) };
        let dir = self.dirs.get(usize::from(part.place.map)).ok_or(io::ErrorKind::NotFound)?;
        let home = Directory::open(Path::new(OsStr::from_bytes(dir)))?;
        Ok(Arc::from(home.open(&part.place.path)?))
    }
}
