//! The path that a program was about to look at when it reached for its container: where that leads was told in the
//! same round trip. Owns that this is used once, and at once.

use std::time::{Duration, Instant};

use azekura_proto::message::typed::WalkedPath;
use azekura_proto::{Attr, Oid};
use parking_lot::Mutex;

use super::far_walk::{End, Told};
use crate::FileSystem;
use crate::listed::Asked;

/// Whoever looks later than this looks for another reason, and asks: above all whether a name is there by now.
const USED_WITHIN: Duration = Duration::from_millis(100);

/// Where the path ends, for whoever looks there first.
#[derive(Debug, Default)]
pub(crate) struct FirstWalk(Mutex<Option<FirstEnd>>);

#[derive(Debug)]
struct FirstEnd {
    end: End,
    asked: Asked,
    answered: Instant,
}

impl FileSystem {
    /// Keeps where the names of a path lead from the root on, as was told to a question of that time.
    pub(crate) fn keep_first_walk(&self, at: Instant, path: &[u8], walked: WalkedPath) {
        if !self.keeps_listed() {
            return;
        }
        let answered = self.now();
        let age = answered.saturating_duration_since(at);
        let (asked, asked_any) =
            (self.listed.ask_since(at), self.cache.ask_any_dir().earlier_by(age));
        let mut dir = self.root();
        for (found, name) in walked.steps.iter().zip(path.split(|byte| *byte == b'/')) {
            if let Some(attr) = &found.attr {
                self.listed.keep_told(&asked, (dir, name.into()), Attr::clone(attr));
            }
            dir = found.entry.oid;
        }
        let end = self.keep_walked(asked_any, self.root(), path, walked);
        *self.first_walk.0.lock() = end.map(|end| FirstEnd { end, asked, answered });
    }

    /// What was told of a name, if this is the first one that anybody looks at.
    pub(super) fn first_end(&self, dir: Oid, name: &[u8]) -> Option<End> {
        let FirstEnd { end, asked, answered } = self.first_walk.0.lock().take()?;
        let is_of_now = self.now().saturating_duration_since(answered) < USED_WITHIN;
        let object = match end.told() {
            Told::Absent => None,
            Told::There(found, _) => Some(found.entry.oid),
        };
        let holds = is_of_now
            && end.is_of(dir, name)
            && self.newborns.are_none()
            && self.listed.is_unchanged_since(dir, object, &asked);
        holds.then_some(end)
    }
}
