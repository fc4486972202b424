//! How an anchor leads to where a listing goes on: keys can be longer than an anchor, so the handle keeps
//! the place and the anchor its number.

use azekura_client::KeyCursor;
use parking_lot::Mutex;

use crate::status::Der;
use crate::types::{Anchor, END, START, WITHIN};

/// Most listings of a handle that are under way; the oldest are forgotten.
const CURSORS_MAX: usize = 1024;

/// Where a listing goes on.
#[derive(Clone, Debug)]
pub(super) enum Cursor {
    Dkeys(KeyCursor),
    Akeys(Vec<u8>),
}

#[derive(Default)]
struct Kept {
    cursors: Vec<(u64, Cursor)>,
    last: u64,
}

/// The listings of a handle that are under way.
#[derive(Default)]
pub(super) struct Cursors(Mutex<Kept>);

impl Cursors {
    /// Where a listing goes on that has come to this anchor; `None` at its start, and at its end.
    pub(super) fn of(&self, anchor: &Anchor) -> Result<Option<Cursor>, Der> {
        if anchor.kind == START || anchor.kind == END {
            return Ok(None);
        }
        let number = anchor.number();
        let kept = self.0.lock();
        let found = kept.cursors.iter().find(|(other, _)| *other == number);
        found.map(|(_, cursor)| Some(cursor.clone())).ok_or(Der::Stale)
    }

    /// Says in an anchor where its listing goes on.
    pub(super) fn advance(&self, anchor: &mut Anchor, next: Option<Cursor>) {
        let mut kept = self.0.lock();
        if anchor.kind == WITHIN {
            let number = anchor.number();
            kept.cursors.retain(|(other, _)| *other != number);
        }
        let Some(next) = next else {
            anchor.kind = END;
            return;
        };
        kept.last += 1;
        let number = kept.last;
        if kept.cursors.len() >= CURSORS_MAX {
            kept.cursors.remove(0);
        }
        kept.cursors.push((number, next));
        anchor.kind = WITHIN;
        anchor.set_number(number);
    }
}
