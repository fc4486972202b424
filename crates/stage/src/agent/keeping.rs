//! Keeping what comes: pieces are written by the writing threads, and what is whole gets its names in the tree.
//! Never gives a name to what is not whole, and never says that something has arrived before it has its name.

use std::collections::BTreeMap;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use crate::agent::content::{Content, Stage};
use crate::agent::direct;
use crate::agent::disk::Room;
use crate::agent::eviction::with_room;
use crate::agent::incoming::Incoming;
use crate::agent::partial::Partial;
use crate::message::{ContentDescription, ContentId, Part};
use crate::piece::Buffer;

impl Incoming {
    /// Has a piece written; small contents are written when they are whole.
    pub(super) fn write(&self, content: Arc<Content>, id: ContentId, index: u32, room: Room) {
        let Some(incoming) = self.me.upgrade() else { return };
        self.disk.give(id.0, move || {
            let _room = room;
            let (held, file, direct, offset) = {
                let state = content.lock();
                let held = state.held.get(&index).cloned();
                let file = state.partial.as_ref().and_then(|partial| partial.file.clone());
                let offset = state.description.as_ref().map(|content| content.offset_of(index));
                (held, file, state.direct.clone(), offset)
            };
            let (Some(bytes), Some(file), Some(offset)) = (held, file, offset) else { return };
            let direct = direct.filter(|_| direct::fits(&bytes, offset));
            let written = with_room(&incoming.tree, || match &direct {
                Some(direct) => direct::write_all_at(direct, &bytes, offset),
                None => file.write_all_at(&bytes, offset),
            });
            match written {
                Ok(()) => {
                    let mut state = content.lock();
                    // It may have been distrusted and come anew meanwhile: that one is still to be written.
                    if state.held.get(&index).is_some_and(|now| Arc::ptr_eq(now, &bytes)) {
                        state.held.remove(&index);
                    }
                }
                Err(error) => {
                    // Its bytes are to be free before anybody hears of it.
                    drop((file, direct));
                    incoming.cannot_keep(&content, id, &error);
                }
            }
        });
    }

    /// Has what is whole get its names, behind all that is still to be written of it.
    pub(super) fn finish(&self, content: Arc<Content>, id: ContentId) {
        let Some(incoming) = self.me.upgrade() else { return };
        self.disk.give(id.0, move || {
            if let Err(error) = incoming.publish(&content) {
                incoming.fail(&content, id, &error);
            }
        });
    }

    fn publish(&self, content: &Content) -> io::Result<()> {
        let (description, partial, held) = {
            let mut state = content.lock();
            let Some(description) = state.description.clone() else { return Ok(()) };
            if state.stage != Stage::Whole {
                return Ok(());
            }
            (description, state.partial.take(), state.held.clone())
        };
        if let (Some(mut partial), [part]) = (partial, &description.parts[..]) {
            self.tree.publish(&mut partial, &part.place, &part.attributes)?;
        } else {
            let mut offset = 0;
            for part in &description.parts {
                with_room(&self.tree, || {
                    let mut partial = self.tree.partial_of(&part.place)?;
                    write_part(&partial, &description, part, offset, &held)?;
                    self.tree.publish(&mut partial, &part.place, &part.attributes)
                })?;
                offset += part.attributes.size;
            }
        }
        let mut state = content.lock();
        if state.readers > 0 {
            let whole = state.file.clone();
            state.whole = whole;
        }
        state.stage = Stage::InTree;
        state.file = None;
        state.direct = None;
        state.home = None;
        state.held.clear();
        state.ring();
        let bytes_per_second = state.bytes_per_second;
        drop(state);
        self.arrived(&description, bytes_per_second);
        Ok(())
    }
}

/// Writes a part of a small content, all of whose pieces are in memory.
fn write_part(
    file: &Partial,
    content: &ContentDescription,
    part: &Part,
    from: u64,
    held: &BTreeMap<u32, Arc<Buffer>>,
) -> io::Result<()> {
    let to = from + part.attributes.size;
    let mut at = from;
    while at < to {
        let index = (at / u64::from(content.piece_bytes)) as u32;
        let piece = held.get(&index).ok_or(io::ErrorKind::UnexpectedEof)?;
        let begin = (at - content.offset_of(index)) as usize;
        let bytes = (piece.len() - begin).min((to - at) as usize);
        file.write_all_at(&piece[begin..begin + bytes], at - from)?;
        at += bytes as u64;
    }
    Ok(())
}
