//! The contents of a file of the simulated disk: pages that were written, holes between them, and a
//! length. Owns what may be left of two states of a file when the power goes between them.

use std::collections::BTreeMap;
use std::sync::Arc;

/// Unit in which space is taken.
pub(super) const PAGE_BYTES: usize = 4096;
/// Unit in which the disk writes: of a sector all of the old or all of the new is there.
const SECTOR_BYTES: usize = 512;

type Page = Arc<[u8; PAGE_BYTES]>;

/// The contents of a file. Clones share their pages.
#[derive(Clone, Default)]
pub(super) struct Image {
    pages: BTreeMap<u64, Page>,
    bytes: u64,
}

impl Image {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn allocated_bytes(&self) -> u64 {
        self.pages.len() as u64 * PAGE_BYTES as u64
    }

    pub(super) fn read(&self, buffer: &mut [u8], offset: u64) -> usize {
        let bytes = self.bytes.saturating_sub(offset).min(buffer.len() as u64) as usize;
        for (page, within, from, length) in pieces(offset, bytes) {
            let part = &mut buffer[from..from + length];
            match self.pages.get(&page) {
                Some(page) => part.copy_from_slice(&page[within..within + length]),
                None => part.fill(0),
            }
        }
        bytes
    }

    pub(super) fn write(&mut self, data: &[u8], offset: u64) {
        for (page, within, from, length) in pieces(offset, data.len()) {
            let page = self.page_mut(page);
            page[within..within + length].copy_from_slice(&data[from..from + length]);
        }
        if !data.is_empty() {
            self.bytes = self.bytes.max(offset + data.len() as u64);
        }
    }

    pub(super) fn set_length(&mut self, bytes: u64) {
        if bytes < self.bytes {
            self.punch(bytes, self.bytes.next_multiple_of(PAGE_BYTES as u64));
        }
        self.bytes = bytes;
    }

    /// Makes a range read as zeros, and gives its whole pages back.
    pub(super) fn punch(&mut self, offset: u64, end: u64) {
        for (page, within, length) in self.pages_in(offset, end) {
            if length == PAGE_BYTES {
                self.pages.remove(&page);
            } else {
                self.page_mut(page)[within..within + length].fill(0);
            }
        }
    }

    /// Takes space for a range.
    pub(super) fn allocate(&mut self, offset: u64, end: u64) {
        for (page, ..) in pieces(offset, (end - offset) as usize) {
            self.page_mut(page);
        }
    }

    pub(super) fn next_data(&self, offset: u64) -> Option<u64> {
        let first = offset / PAGE_BYTES as u64;
        let (page, _) = self.pages.range(first..).next()?;
        Some(offset.max(page * PAGE_BYTES as u64)).filter(|data| *data < self.bytes)
    }

    pub(super) fn next_hole(&self, offset: u64) -> Option<u64> {
        if offset >= self.bytes {
            return None;
        }
        let mut page = offset / PAGE_BYTES as u64;
        while self.pages.contains_key(&page) {
            page += 1;
        }
        Some(offset.max(page * PAGE_BYTES as u64).min(self.bytes))
    }

    /// Becomes what may be on the disk when this state was and `newer` was being written: `is_new` is
    /// asked for the length and for each sector that differs.
    pub(super) fn take_some(&mut self, newer: &Self, is_new: &mut impl FnMut() -> bool) {
        const ZEROS: &[u8; PAGE_BYTES] = &[0; PAGE_BYTES];
        let mut differing: Vec<u64> = Vec::new();
        for (at, page) in &newer.pages {
            if self.pages.get(at).is_none_or(|old| !Arc::ptr_eq(old, page)) {
                differing.push(*at);
            }
        }
        differing.extend(self.pages.keys().filter(|at| !newer.pages.contains_key(at)));
        for at in differing {
            let new = newer.pages.get(&at).map_or(ZEROS, |page| page);
            let page = self.page_mut(at);
            for sector in (0..PAGE_BYTES).step_by(SECTOR_BYTES) {
                let range = sector..sector + SECTOR_BYTES;
                if page[range.clone()] != new[range.clone()] && is_new() {
                    page[range.clone()].copy_from_slice(&new[range]);
                }
            }
        }
        if self.bytes != newer.bytes && is_new() {
            self.set_length(newer.bytes);
        } else {
            // What was written behind the end is not part of the file.
            let end =
                (self.pages.last_key_value()).map_or(0, |last| (last.0 + 1) * PAGE_BYTES as u64);
            self.punch(self.bytes, end.max(self.bytes));
        }
    }

    fn page_mut(&mut self, page: u64) -> &mut [u8; PAGE_BYTES] {
        Arc::make_mut(self.pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_BYTES])))
    }

    /// The pages there are in a range: number, first byte within, and length within.
    fn pages_in(&self, offset: u64, end: u64) -> Vec<(u64, usize, usize)> {
        const PAGE: u64 = PAGE_BYTES as u64;
        if offset >= end {
            return Vec::new();
        }
        let within = |page: u64| {
            let from = offset.max(page * PAGE) - page * PAGE;
            let to = end.min((page + 1) * PAGE) - page * PAGE;
            (page, from as usize, (to - from) as usize)
        };
        self.pages.range(offset / PAGE..=(end - 1) / PAGE).map(|(page, _)| within(*page)).collect()
    }
}

/// The pages that a range touches: number, first byte within, first byte of the range, and length.
fn pieces(offset: u64, bytes: usize) -> impl Iterator<Item = (u64, usize, usize, usize)> {
    let mut done = 0;
    std::iter::from_fn(move || {
        if done == bytes {
            return None;
        }
        let at = offset + done as u64;
        let within = (at % PAGE_BYTES as u64) as usize;
        let length = (PAGE_BYTES - within).min(bytes - done);
        let piece = (at / PAGE_BYTES as u64, within, done, length);
        done += length;
        Some(piece)
    })
}
