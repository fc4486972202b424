//! What may be true. An operation that failed on its way may have been done or not, so there is more
//! than one state that a container can be in; what is seen later says which. Owns the comparison of
//! what a client got with what it may get.

use azekura_posix::{Errno, FileKind};

use crate::model::{Answer, Op, Outcome, Stat, agree};

use super::tree::Tree;

/// More states than this are never open in a history that is short.
const STATES_MAX: usize = 256;

/// All states that the container can be in, as far as its clients know.
#[derive(Clone, Debug)]
pub(crate) struct Possible {
    trees: Vec<Tree>,
    links: Links,
}

/// What a client may be told of how many names a file has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Links {
    /// How many it has.
    Exact,
    /// How many it had some time ago: the lease of a file does not cover that.
    MayBeOld,
}

impl Links {
    /// What of an outcome has to be right.
    fn certain(self, outcome: &Outcome) -> Outcome {
        match outcome {
            Ok(Answer::Stat(stat)) if self == Self::MayBeOld && stat.kind == FileKind::Regular => {
                Ok(Answer::Stat(Stat { nlink: 0, ..*stat }))
            }
            _ => outcome.clone(),
        }
    }
}

impl Possible {
    /// An empty container.
    pub(crate) fn new(links: Links) -> Self {
        Self { trees: vec![Tree::new()], links }
    }

    /// Takes note of what an operation gave.
    ///
    /// # Errors
    ///
    /// It is none of what it could give: these are the outcomes that could have been.
    pub(crate) fn observe(&mut self, op: &Op, outcome: &Outcome) -> Result<(), Vec<Outcome>> {
        // A busy pool may have done a part of what takes several requests.
        if matches!(outcome, Err(Errno::IO | Errno::BUSY)) {
            let before = self.trees.clone();
            for mut tree in before {
                tree.apply_unanswered(op);
                if !self.trees.contains(&tree) {
                    self.trees.push(tree);
                }
            }
            assert!(self.trees.len() <= STATES_MAX, "too many operations failed without an answer");
            return Ok(());
        }
        let (mut wanted, links) = (Vec::new(), self.links);
        let seen = links.certain(outcome);
        self.trees.retain_mut(|tree| {
            let right = tree.apply(op);
            let is_right = agree(op, &links.certain(&right), &seen);
            if !is_right && !wanted.contains(&right) {
                wanted.push(right);
            }
            is_right
        });
        if self.trees.is_empty() { Err(wanted) } else { Ok(()) }
    }

    /// The states.
    pub(crate) fn trees(&self) -> &[Tree] {
        &self.trees
    }

    /// A client is gone without a word.
    pub(crate) fn close(&mut self, slots: &[usize]) {
        for tree in &mut self.trees {
            tree.close(slots.iter().copied());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_posix::OFlags;

    fn create(name: &str) -> Op {
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL;
        Op::Open { slot: 0, path: name.into(), flags, mode: 0o755 }
    }

    #[test]
    fn after_an_error_both_outcomes_are_open_until_one_is_seen() {
        let stat = Op::Stat { path: b"a".to_vec(), follow: true };
        for was_done in [false, true] {
            let mut possible = Possible::new(Links::Exact);
            possible.observe(&create("a"), &Err(Errno::IO)).unwrap();
            assert_eq!(possible.trees.len(), 2);
            let seen = if was_done { possible.trees[1].apply(&stat) } else { Err(Errno::NOENT) };
            possible.observe(&stat, &seen).unwrap();
            assert_eq!(possible.trees.len(), 1);
            let now = if was_done { Err(Errno::EXIST) } else { Ok(Answer::Done) };
            possible.observe(&create("a"), &now).unwrap();
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        let mut possible = Possible::new(Links::Exact);
        possible.observe(&create("a"), &Ok(Answer::Done)).unwrap();
        let wanted = possible.observe(&create("a"), &Ok(Answer::Done)).unwrap_err();
        assert_eq!(wanted, [Err(Errno::EXIST)]);
    }

    #[test]
    fn an_open_file_outlives_its_last_name_and_goes_with_its_client() {
        let mut possible = Possible::new(Links::Exact);
        let done = Ok(Answer::Done);
        possible.observe(&create("a"), &done).unwrap();
        let write = Op::Write { slot: 0, offset: 2, data: b"xy".to_vec() };
        possible.observe(&write, &Ok(Answer::Count(2))).unwrap();
        possible.observe(&Op::Unlink { path: b"a".to_vec() }, &done).unwrap();
        let read = Op::Read { slot: 0, offset: 0, bytes: 9 };
        possible.observe(&read, &Ok(Answer::Data(b"\0\0xy".to_vec()))).unwrap();
        possible.close(&[0]);
        possible.observe(&read, &Ok(Answer::Skipped)).unwrap();
    }
}
