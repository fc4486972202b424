//! Files that programs have open as they came, and that are not what stands at home any more: they are read on from
//! the later version, once that is known to have all that was given of the earlier one. Owns who goes on with what;
//! whoever cannot gets errors.

use std::sync::Arc;

use crate::agent::content::{Content, Stage, State};
use crate::agent::incoming::Incoming;
use crate::agent::reading::{Own, Reading};
use crate::agent::succession::{Compared, Succession};
use crate::message::{ContentDescription, ContentId, Place};
use crate::supply::Bell;

/// What a later content is for those who have an earlier one open.
fn compare(succession: &mut Succession, later: &State) -> Compared {
    match later.stage {
        _ if later.is_doubtful => Compared::Different,
        Stage::Gone => Compared::Gone,
        Stage::Through => Compared::Different,
        stage => {
            let is_coming = matches!(stage, Stage::Expected | Stage::Coming);
            succession.compare(&later.checksums, is_coming)
        }
    }
}

impl Incoming {
    /// A content that comes is abandoned: programs that have it open may go on with a later version.
    pub(super) fn outdate(&self, state: &mut State, id: ContentId) {
        let Some(description) = state.description.clone() else { return };
        let Some(place) = self.readable(&description) else { return };
        if state.readers == 0 || state.is_doubtful {
            return;
        }
        let given = state.given.iter().zip(&state.checksums).enumerate();
        let given = given.filter(|(_, (is_given, _))| **is_given);
        let given = given.map(|(index, (_, checksum))| (index as u32, *checksum)).collect();
        self.outdated.lock().entry(place.clone()).or_default().push(id);
        state.succession = Some(Succession::new(place, given));
    }

    /// A file begins to come: programs that have an earlier version of it open may go on with it.
    pub(super) fn succeed(&self, place: &Place, to: &ContentDescription) {
        for id in self.outdated_at(place) {
            let content = self.content(id);
            let is_alike = content.lock().description.as_ref().is_some_and(|description| {
                description.bytes() == to.bytes()
                    && description.piece_bytes == to.piece_bytes
                    && to.parts.len() == 1
            });
            if !is_alike {
                self.end_succession(&content, id);
                continue;
            }
            self.content(to.id).lock().readers += 1;
            let mut state = content.lock();
            let before = match &mut state.succession {
                Some(succession) => succession.go_over(to.id),
                // All who had it open have closed it since.
                None => Some(to.id),
            };
            state.ring();
            drop(state);
            if let Some(before) = before {
                self.close_reader(before);
            }
        }
    }

    /// No later version of a file comes: programs that have an earlier one open get errors for the rest.
    pub(crate) fn end_successions(&self, place: &Place) {
        for id in self.outdated_at(place) {
            self.end_succession(&self.content(id), id);
        }
    }

    fn outdated_at(&self, place: &Place) -> Vec<ContentId> {
        self.outdated.lock().get(place).cloned().unwrap_or_default()
    }

    fn end_succession(&self, content: &Content, id: ContentId) {
        let mut state = content.lock();
        let Some(succession) = state.succession.take() else { return };
        state.ring();
        drop(state);
        let path = String::from_utf8_lossy(&succession.place.path);
        tracing::error!(
            "{path}: it is not what it was at home any more: programs that have it open get EIO"
        );
        self.forget_succession(&succession, id);
    }

    /// Nobody has it open any more, or goes on with it.
    pub(super) fn forget_succession(&self, succession: &Succession, id: ContentId) {
        let mut outdated = self.outdated.lock();
        if let Some(ids) = outdated.get_mut(&succession.place) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                outdated.remove(&succession.place);
            }
        }
        drop(outdated);
        if let Some(next) = succession.next {
            self.close_reader(next);
        }
    }

    /// Reads a part of a piece of what has come after a content.
    pub(super) fn read_later(
        self: &Arc<Self>,
        content: &Content,
        id: ContentId,
        index: u32,
        from: usize,
        into: &mut [u8],
        bell: &Arc<Bell>,
    ) -> Reading {
        let mut state = content.lock();
        let Some(succession) = &mut state.succession else { return Reading::Failed };
        let Some(next) = succession.next else {
            state.keep(bell);
            return Reading::NotYet;
        };
        let later = self.content(next);
        // A later content is never locked before an earlier one.
        let mut later_state = later.lock();
        let compared = compare(succession, &later_state);
        let checksum = later_state.checksums.get(index as usize).copied();
        let is_coming = compared == Compared::Same && later_state.stage == Stage::Coming;
        if compared == Compared::NotYet || is_coming && checksum.is_none() {
            later_state.keep(bell);
            return Reading::NotYet;
        }
        drop(later_state);
        match (compared, checksum) {
            (Compared::Gone | Compared::NotYet, _) => {
                state.keep(bell);
                return Reading::NotYet;
            }
            (Compared::Different, _) | (Compared::Same, None) => {
                drop(state);
                self.end_succession(content, id);
                return Reading::Failed;
            }
            // Before it is read: it may be abandoned, too, as soon as it has been.
            (Compared::Same, Some(checksum)) => succession.give(index, checksum),
        }
        drop(state);
        match self.read_own(&later, next, index, from, into, bell) {
            Own::Read(read) => read,
            Own::Gone => {
                content.lock().keep(bell);
                Reading::NotYet
            }
        }
    }
}
