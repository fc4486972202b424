//! Which commits of a target there are. Numbers of commits may come again after a loss of power, so each
//! opening begins an epoch, and a commit is named by both. Owns the list of epochs with their ends, its
//! stored form, and the answer whether a commit is part of what the target is now.

use std::cmp::Ordering;

use super::change::Value;

/// The key of the list in the tree of passing records, outside of every space. Part of the on-disk
/// format.
pub(crate) const HISTORY_KEY: &[u8] = b"!history";

/// The key of the number of times that commits were taken back, likewise.
pub(crate) const TAKEN_BACK_KEY: &[u8] = b"!taken-back";

/// How often commits were taken back, by what stands under that key.
pub(crate) fn taken_back(noted: Option<Value>) -> u64 {
    let number = noted.and_then(|bytes| bytes.first_chunk().copied());
    number.map_or(0, u64::from_le_bytes)
}

/// So many epochs are kept. A commit of an earlier one counts as there: it is long durable, or
/// whoever asks has slept through so many openings.
const KEPT: usize = 512;

/// An epoch that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ended {
    epoch: u64,
    /// The number of its last commit, or of one before it if it had none.
    last: u64,
}

/// The epochs of a target.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct History {
    ended: Vec<Ended>,
    /// Whether some are no longer in the list.
    forgot: bool,
    current: u64,
}

impl History {
    /// A history of one epoch.
    pub(crate) fn new(epoch: u64) -> Self {
        Self { ended: Vec::new(), forgot: false, current: epoch }
    }

    /// The epoch of the commits from now on.
    pub(crate) fn current(&self) -> u64 {
        self.current
    }

    /// The epoch that commit `seq` belongs to, if there is such a commit.
    pub(crate) fn epoch_of(&self, seq: u64) -> u64 {
        let index = self.ended.partition_point(|ended| ended.last < seq);
        self.ended.get(index).map_or(self.current, |ended| ended.epoch)
    }

    /// Whether commit `seq` of `epoch` is part of the history, where `last` is the newest commit.
    pub(crate) fn has(&self, epoch: u64, seq: u64, last: u64) -> bool {
        let is_known = epoch == self.current || self.ended.iter().any(|ended| ended.epoch == epoch);
        if is_known { seq <= last && self.epoch_of(seq) == epoch } else { self.forgot }
    }

    /// Ends the current epoch with commit `last`, and begins another. What any epoch had after that
    /// commit is no part of the history any more.
    pub(crate) fn begin(&mut self, epoch: u64, last: u64) {
        for ended in &mut self.ended {
            ended.last = ended.last.min(last);
        }
        self.ended.push(Ended { epoch: self.current, last });
        if self.ended.len() > KEPT {
            self.ended.remove(0);
            self.forgot = true;
        }
        self.current = epoch;
        assert!(self.ended.is_sorted_by(|a, b| a.last.cmp(&b.last) != Ordering::Greater));
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(9 + 16 * self.ended.len());
        bytes.push(u8::from(self.forgot));
        bytes.extend_from_slice(&self.current.to_le_bytes());
        for Ended { epoch, last } in &self.ended {
            bytes.extend_from_slice(&epoch.to_le_bytes());
            bytes.extend_from_slice(&last.to_le_bytes());
        }
        bytes
    }

    /// `None` if these bytes are none.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let (forgot, rest) = bytes.split_first()?;
        let (numbers, []) = rest.as_chunks::<8>() else { return None };
        let numbers: Vec<u64> = numbers.iter().map(|bytes| u64::from_le_bytes(*bytes)).collect();
        let (current, ended) = numbers.split_first()?;
        let (ended, []) = ended.as_chunks::<2>() else { return None };
        let ended: Vec<Ended> =
            ended.iter().map(|[epoch, last]| Ended { epoch: *epoch, last: *last }).collect();
        ended.is_sorted_by_key(|ended| ended.last).then_some(())?;
        Some(Self { ended, forgot: *forgot != 0, current: *current })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_that_came_again_is_another_commit() {
        let mut history = History::new(10);
        assert!(history.has(10, 5, 5) && !history.has(10, 6, 5) && !history.has(11, 5, 5));
        // Of epoch 10 there were eight commits, and five are left.
        history.begin(11, 5);
        assert!(history.has(10, 5, 9) && !history.has(10, 8, 9) && history.has(11, 6, 9));
        // An epoch without a commit, and one that is cut below the end of an earlier one.
        history.begin(12, 9);
        history.begin(13, 9);
        assert!(!history.has(12, 9, 9) && history.has(11, 9, 9));
        history.begin(14, 4);
        assert!(history.has(10, 4, 6) && !history.has(10, 5, 6) && !history.has(11, 6, 6));
        assert_eq!(history.epoch_of(5), 14);
        assert_eq!(History::from_bytes(&history.to_bytes()), Some(history.clone()));
        for epoch in 0..KEPT as u64 {
            history.begin(100 + epoch, 6 + epoch);
        }
        assert!(history.has(10, 4, 9999), "too old to be doubted");
        assert_eq!(History::from_bytes(&history.to_bytes()), Some(history));
    }

    /// A list that was written before has to be read after: the form never changes.
    #[test]
    fn the_form_of_the_list_never_changes() {
        let mut history = History::new(1);
        history.begin(0x0203, 4);
        let golden = b"\0\x03\x02\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0";
        assert_eq!(history.to_bytes(), golden);
        assert_eq!(HISTORY_KEY, b"!history");
        assert_eq!(TAKEN_BACK_KEY, b"!taken-back");
        assert_eq!(History::from_bytes(b""), None);
        assert_eq!(History::from_bytes(&golden[..20]), None);
    }
}
