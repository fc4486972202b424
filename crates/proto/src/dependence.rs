//! What a commit of one target relies on in the journals of others. Targets of a pool keep journals of
//! their own, and a loss of power cuts each of them somewhere else; these words let a target see that
//! what it relied on is gone. Owns the words and their order only: `store` keeps them with its commits,
//! `engine` carries them from target to target.
//!
//! The scheme is that of consistent cuts by vector time (Mattern, "Virtual Time and Global States of
//! Distributed Systems", 1989), with one number a target.

use serde::{Deserialize, Serialize};

use crate::ids::TargetId;

/// A commit of a target, and with it everything that the target committed before.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Dependence {
    /// The target.
    pub target: TargetId,
    /// Which of the target's histories: drawn at random when its store is opened, since after a loss
    /// of power numbers may come again.
    pub epoch: u64,
    /// The number of the commit.
    pub seq: u64,
}

/// Commits of several targets: the last one of each history.
#[derive(Clone, Default, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Dependences(Vec<Dependence>);

impl Dependences {
    /// None.
    pub const NONE: Self = Self(Vec::new());

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Each of them; of one history there is one only.
    pub fn iter(&self) -> impl Iterator<Item = &Dependence> {
        self.0.iter()
    }

    /// The last commit of a history that is among them.
    pub fn seq_of(&self, target: TargetId, epoch: u64) -> Option<u64> {
        self.0
            .iter()
            .find(|known| known.target == target && known.epoch == epoch)
            .map(|known| known.seq)
    }

    /// Adds one; false if a later or the same commit of its history is among them already.
    pub fn add(&mut self, new: Dependence) -> bool {
        let same = |known: &&mut Dependence| known.target == new.target && known.epoch == new.epoch;
        match self.0.iter_mut().find(same) {
            Some(known) if known.seq >= new.seq => false,
            Some(known) => {
                known.seq = new.seq;
                true
            }
            None => {
                self.0.push(new);
                true
            }
        }
    }

    /// Adds all of others.
    pub fn add_all(&mut self, others: &Self) {
        for other in others.iter() {
            self.add(*other);
        }
    }

    /// Keeps those for which `keep` holds.
    pub fn retain(&mut self, keep: impl FnMut(&Dependence) -> bool) {
        self.0.retain(keep);
    }
}

impl FromIterator<Dependence> for Dependences {
    fn from_iter<I: IntoIterator<Item = Dependence>>(all: I) -> Self {
        let mut made = Self::NONE;
        for each in all {
            made.add(each);
        }
        made
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_commit_of_a_history_stands_for_those_before_it() {
        let of = |target, epoch, seq| Dependence { target: TargetId(target), epoch, seq };
        let mut all = Dependences::NONE;
        assert!(all.add(of(1, 7, 5)) && all.add(of(1, 7, 6)) && !all.add(of(1, 7, 4)));
        assert!(all.add(of(1, 8, 3)) && all.add(of(2, 7, 1)));
        assert_eq!(all.seq_of(TargetId(1), 7), Some(6));
        assert_eq!(all.iter().count(), 3);
        all.retain(|known| known.target != TargetId(1));
        assert_eq!(all, [of(2, 7, 1)].into_iter().collect());
    }
}
