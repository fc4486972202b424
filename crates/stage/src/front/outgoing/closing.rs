//! Bringing files home when programs close them. Owns what such a round looks at: the files that nodes say have
//! been closed, and what else is at home under the same names; nothing is removed, which is done at the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use azekura_proto::staging::NodeId;

use crate::front::outgoing::round::Round;
use crate::front::outgoing::{Listed, Outgoing};
use crate::message::{BUNDLE_NAMES_BYTES_MAX, Listing, PLACE_BYTES, Place};

/// What is closed within this goes home together.
const TOGETHER: Duration = Duration::from_millis(100);

impl Outgoing {
    /// Brings files home whenever nodes say that some have been closed, until nobody can say so.
    pub(crate) fn follow(self: &Arc<Self>, closed: &Receiver<NodeId>) {
        while let Ok(first) = closed.recv() {
            std::thread::sleep(TOGETHER);
            self.bring_closed(closed.try_iter().chain([first]).collect());
        }
    }

    fn bring_closed(&self, nodes: BTreeSet<NodeId>) {
        let _one = self.one.lock();
        let mut lists = Listed::new();
        for node in nodes {
            match self.list(node, Listing::Closed) {
                Ok(list) => lists.push((node, list)),
                // At the end it is said what has not come.
                Err(why) => tracing::warn!("node {} does not say what is closed: {why}", node.0),
            }
        }
        for (node, places) in self.owners(&lists) {
            for some in chunks(places) {
                // If it does not say, what it has sent stays at home as it is.
                if let Ok(list) = self.list(node, Listing::These { places: some }) {
                    lists.push((node, list));
                }
            }
        }
        let hosts = self.hosts();
        let mut plan = self.plan(lists, &hosts);
        plan.removals.clear();
        if plan.tasks().next().is_none() {
            return;
        }
        let (manifest, wrong) = self.open_manifest(&hosts);
        let round = Round::new(&self.setup, &self.memory, manifest);
        self.finish(round, &plan, wrong);
    }

    /// Which other nodes have sent what stands at home under these names.
    fn owners(&self, lists: &Listed) -> BTreeMap<NodeId, BTreeSet<Place>> {
        let memory = self.memory.lock();
        let mut owners: BTreeMap<NodeId, BTreeSet<Place>> = BTreeMap::new();
        let said: BTreeSet<(NodeId, &Place)> = lists
            .iter()
            .flat_map(|(node, list)| list.iter().map(|leaving| (*node, &leaving.place)))
            .collect();
        for (_, place) in &said {
            if let Some(owner) = memory.owner.get(*place)
                && !said.contains(&(*owner, *place))
            {
                owners.entry(*owner).or_default().insert((*place).clone());
            }
        }
        owners
    }
}

/// Places, as many together as go into a message.
fn chunks(places: BTreeSet<Place>) -> Vec<Vec<Place>> {
    let (mut chunks, mut bytes) = (vec![Vec::new()], 0);
    for place in places {
        bytes += place.path.len() + PLACE_BYTES;
        if bytes > BUNDLE_NAMES_BYTES_MAX {
            chunks.push(Vec::new());
            bytes = place.path.len() + PLACE_BYTES;
        }
        if let Some(last) = chunks.last_mut() {
            last.push(place);
        }
    }
    chunks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_go_into_messages() {
        let place = |number: usize| Place { map: 0, path: format!("{number:0250}").into_bytes() };
        let places: BTreeSet<_> = (0..10_000).map(place).collect();
        let cut = chunks(places.clone());
        assert!(cut.len() > 1);
        let bytes = |chunk: &Vec<Place>| -> usize {
            chunk.iter().map(|place| place.path.len() + PLACE_BYTES).sum()
        };
        assert!(cut.iter().all(|chunk| bytes(chunk) <= BUNDLE_NAMES_BYTES_MAX));
        assert_eq!(cut.into_iter().flatten().collect::<BTreeSet<_>>(), places);
    }
}
