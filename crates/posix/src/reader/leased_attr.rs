//! The attributes of an open far file, for as long as its leases keep them true: so its end is known, and
//! they can be told, without asking. Owns the rule of when attributes that came with a lease rely on it.
//! A lease of the home covers those of a file that lies there as a whole; of a striped file all leases
//! have to hold from before the look at it.

use std::time::Instant;

use azekura_proto::Attr;
use azekura_proto::message::typed::FileLeased;

/// What was so when attributes were asked for.
#[derive(Clone, Debug)]
pub(crate) struct AttrAsked {
    /// When.
    pub(super) at: Instant,
    /// The count of own changes.
    pub(super) changes: u64,
    /// The versions of all shards but the home's, if their leases held.
    pub(super) others: Option<Vec<u64>>,
}

/// Attributes, and what they rely on.
#[derive(Debug)]
pub(super) struct LeasedAttr {
    attr: Box<Attr>,
    changes: u64,
    /// The versions of the shards, from the home's on, under which they were looked at.
    versions: Vec<u64>,
}

impl LeasedAttr {
    /// `None` if no lease keeps them true.
    pub(super) fn new(asked: AttrAsked, leased: FileLeased) -> Option<Self> {
        let FileLeased { lease, others, attr } = leased;
        if lease.lease_ms == 0 {
            return None;
        }
        let mut versions = vec![lease.version];
        if attr.striped {
            let looked_at_under = if others.is_empty() { asked.others? } else { others };
            versions.extend(looked_at_under);
        }
        Some(Self { attr, changes: asked.changes, versions })
    }

    /// The attributes, if nothing was changed from here since, and the leases of these versions hold.
    pub(super) fn get(
        &self,
        changes: u64,
        leased_version: impl Fn(u16) -> Option<u64>,
    ) -> Option<&Attr> {
        let holds = |(version, shard)| leased_version(shard) == Some(version);
        let is_true = self.changes == changes && self.versions.iter().copied().zip(0..).all(holds);
        is_true.then_some(&*self.attr)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use azekura_proto::attr::FileKind;
    use azekura_proto::message::typed::Leased;

    fn leased(striped: bool, lease_ms: u32) -> FileLeased {
        let attr = Box::new(Attr { striped, ..azekura_testkit::attr(FileKind::Regular) });
        FileLeased { lease: Leased { lease_ms, version: 10 }, others: Vec::new(), attr }
    }

    fn asked(others: Option<Vec<u64>>) -> AttrAsked {
        AttrAsked { at: Instant::now(), changes: 3, others }
    }

    #[test]
    fn the_home_alone_answers_for_a_file_that_lies_there() {
        let known = LeasedAttr::new(asked(None), leased(false, 1000)).unwrap();
        assert!(known.get(3, |shard| (shard == 0).then_some(10)).is_some());
        assert!(known.get(4, |_| Some(10)).is_none(), "it was changed from here");
        assert!(known.get(3, |_| Some(11)).is_none(), "it was changed by others");
        assert!(known.get(3, |_| None).is_none(), "the lease has run out");
        assert!(LeasedAttr::new(asked(None), leased(false, 0)).is_none());
    }

    #[test]
    fn a_striped_file_takes_the_leases_of_all_shards_from_before() {
        assert!(LeasedAttr::new(asked(None), leased(true, 1000)).is_none());
        let known = LeasedAttr::new(asked(Some(vec![20, 30])), leased(true, 1000)).unwrap();
        let version = |shard| Some(u64::from(shard) * 10 + 10);
        assert!(known.get(3, version).is_some());
        assert!(known.get(3, |shard| if shard == 2 { None } else { version(shard) }).is_none());
        let leased = FileLeased { others: vec![20, 30], ..leased(true, 1000) };
        let known = LeasedAttr::new(asked(None), leased).unwrap();
        assert!(known.get(3, version).is_some(), "they have come with the home's");
        assert!(known.get(3, |shard| if shard == 2 { None } else { version(shard) }).is_none());
    }
}
