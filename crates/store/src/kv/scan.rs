//! Listing the keys of a space in order. Owns the order in which the database and what waits before it
//! are asked: most of what waits is brought to the database first, and what waits for other targets is
//! laid over it, so that a listing waits for nobody.

use std::collections::BTreeMap;
use std::ops::{Bound, ControlFlow, RangeBounds as _};

use super::KeyValues;
use super::change::Value;
use super::space::{Space, stored_key};
use crate::error::StoreError;

impl KeyValues {
    /// Visits keys of a space in order: those that begin with `prefix` and come after `after`.
    /// The visitor is given the key without its space.
    pub(crate) fn scan_visit(
        &self,
        space: Space,
        prefix: &[u8],
        after: Option<&[u8]>,
        mut visit: impl FnMut(&[u8], Value) -> ControlFlow<()>,
    ) -> Result<(), StoreError> {
        let first = stored_key(space, prefix);
        let end = successor(&first);
        let start = match after {
            Some(after) if after >= prefix => Bound::Excluded(stored_key(space, after)),
            _ => Bound::Included(first),
        };
        if matches!(&start, Bound::Excluded(key) if *key >= end) {
            return Ok(());
        }
        if self.front.overlay.holds(space) {
            self.drain_alone()?;
        }
        let start = start.as_ref().map(Vec::as_slice);
        let scan = |visit: &mut dyn FnMut(&[u8], Value) -> ControlFlow<()>| {
            self.live()?.scan(space.tree(), start, &end, visit)
        };
        if !self.front.overlay.holds(space) {
            return scan(&mut |key, value| visit(&key[1..], value));
        }
        // What waits for other targets lies over what the database has.
        let range = (start, Bound::Excluded(end.as_slice()));
        let pending = self.front.pending_of(space, |key| range.contains(key));
        merge(pending, scan, visit)
    }
}

/// Lists what `scan` lists with the pending changes over it. The visitor gets keys without their space.
fn merge(
    pending: BTreeMap<Vec<u8>, Option<Value>>,
    scan: impl FnOnce(&mut dyn FnMut(&[u8], Value) -> ControlFlow<()>) -> Result<(), StoreError>,
    mut visit: impl FnMut(&[u8], Value) -> ControlFlow<()>,
) -> Result<(), StoreError> {
    let mut pending = pending.into_iter().peekable();
    let mut flow = ControlFlow::Continue(());
    scan(&mut |key, value| {
        while let Some((before, newest)) = pending.next_if(|(before, _)| before.as_slice() < key) {
            flow = newest.map_or(flow, |newest| visit(&before[1..], newest));
            if flow.is_break() {
                return flow;
            }
        }
        let newest = match pending.next_if(|(same, _)| same.as_slice() == key) {
            Some((_, newest)) => newest,
            None => Some(value),
        };
        flow = newest.map_or(flow, |value| visit(&key[1..], value));
        flow
    })?;
    for (key, newest) in pending {
        if flow.is_break() {
            break;
        }
        flow = newest.map_or(flow, |value| visit(&key[1..], value));
    }
    Ok(())
}

/// The first key after all that begin with `prefix`. Every space's code is below 0xff.
fn successor(prefix: &[u8]) -> Vec<u8> {
    let mut end = prefix.to_vec();
    while end.last() == Some(&0xff) {
        end.pop();
    }
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}
