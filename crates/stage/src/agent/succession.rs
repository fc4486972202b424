//! What becomes of a file that programs have open as it came and that changes at home before all of it is here.
//! They may go on with the later version if it has what they were given, piece for piece. Owns that comparison;
//! knows nothing of how contents come.

use std::collections::{BTreeMap, HashMap};

use parking_lot::Mutex;

use crate::message::{ContentId, Place};

/// Contents that programs have open and that are not what stands at home any more, by their places.
pub(crate) type Outdated = Mutex<HashMap<Place, Vec<ContentId>>>;

/// What programs have of a content that does not come any more.
pub(crate) struct Succession {
    pub(crate) place: Place,
    /// The checksums of the pieces that they were given, or are about to be.
    given: BTreeMap<u32, u64>,
    /// Of these, those that are still to be compared, the first one last.
    left: Vec<u32>,
    /// The content by which a later version comes. It has a reader for this one.
    pub(crate) next: Option<ContentId>,
}

/// What a later version is, as far as it has come.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Compared {
    Same,
    Different,
    /// More of it has to come.
    NotYet,
    /// It does not come either.
    Gone,
}

impl Succession {
    pub(crate) fn new(place: Place, given: BTreeMap<u32, u64>) -> Self {
        Self { place, given, left: Vec::new(), next: None }
    }

    /// Compares with the checksums of the later version, so far.
    pub(crate) fn compare(&mut self, later: &[u64], is_coming: bool) -> Compared {
        while let Some(index) = self.left.last() {
            match later.get(*index as usize) {
                Some(checksum) if self.given.get(index) == Some(checksum) => _ = self.left.pop(),
                None if is_coming => return Compared::NotYet,
                _ => return Compared::Different,
            }
        }
        Compared::Same
    }

    /// Programs are about to be given something of a piece of the later version.
    pub(crate) fn give(&mut self, index: u32, checksum: u64) {
        self.given.insert(index, checksum);
    }

    /// Goes over to a later version; the one that was compared so far.
    pub(crate) fn go_over(&mut self, to: ContentId) -> Option<ContentId> {
        self.left = self.given.keys().rev().copied().collect();
        self.next.replace(to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_that_was_given_is_compared_with_every_version() {
        let place = Place { map: 0, path: b"f".to_vec() };
        let mut succession = Succession::new(place, BTreeMap::from([(0, 10), (3, 13)]));
        assert_eq!(succession.go_over(ContentId(1)), None);
        assert_eq!(succession.compare(&[], true), Compared::NotYet);
        assert_eq!(succession.compare(&[10, 0, 0], true), Compared::NotYet);
        assert_eq!(succession.compare(&[10, 0, 0, 13], true), Compared::Same);
        succession.give(1, 0);
        assert_eq!(succession.go_over(ContentId(2)), Some(ContentId(1)));
        assert_eq!(succession.compare(&[10, 1, 0, 13], true), Compared::Different);
        succession.go_over(ContentId(3));
        assert_eq!(succession.compare(&[10, 0], false), Compared::Different, "it is shorter");
        succession.go_over(ContentId(4));
        assert_eq!(succession.compare(&[10, 0, 7, 13], false), Compared::Same);
    }
}
