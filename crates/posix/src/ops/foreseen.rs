//! Files that a program is expected to open next: they are opened, leased and read together with the one that
//! it waits for. Owns the requests, and when what came of them may be given to whoever opens a file; which
//! files are worth it is the business of [`crate::listed`]. Only for front ends that keep what listings bring
//! ([`crate::FsConfig::listed_from_us`]), of pools that are far.
//!
//! A file is given without asking only while two leases hold that were there before it was looked at: that
//! of the directory's shard, by which the name leads where it led, and that of the file's home, by which
//! data and attributes are as they were. Whoever changes either waits for them.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use azekura_client::{Batch, BatchReplies, Call, OpenReference, Ticket};
use azekura_proto::message::ShardRef;
use azekura_proto::message::typed::{FileLeased, LeaseRead, OpenEntry, OpenedEntry};
use azekura_proto::{Attr, FileKind, Oid, TargetId};
use rustix::fs::OFlags;

use crate::listed::{Asked, Bounds, BroughtFile, Foreseen, ListedFile, Listings, PartOf, Wanted};
use crate::looked_up::LookedUpFile;
use crate::reader::{Bring as _, FileReader};
use crate::reopened::REOPENED_BYTES_MAX;
use crate::{Credentials, FileSystem, FsConfig, OpenFile, Result};

/// Of a directory whose files are opened by name so much is listed, in bytes.
const LISTED_BYTES: u32 = azekura_proto::limits::PAGE_BYTES_MAX;
/// Contents are brought that the link carries in this time: they are used while the leases hold.
const AHEAD: Duration = Duration::from_millis(400);
/// The same while it is not known what the link carries: what young connections carry in a round trip, in bytes, which
/// doubles with each, and how often that is relied on.
const UNTRIED_BYTES: u64 = 64 << 10;
const UNTRIED_DOUBLINGS_MAX: u64 = 6;

/// The request for a file.
struct Question<'f> {
    file: &'f ListedFile,
    entry_target: TargetId,
    reference: OpenReference,
    ticket: Ticket<OpenEntry<'f>>,
}

/// A file that its name led to after the question, and that is open since.
struct Opened {
    attr: Box<Attr>,
    reference: OpenReference,
    /// Where nobody changes the file or its name: until when the name stays, and the file under its lease.
    leased: Option<(Instant, FileReader)>,
}

/// Files are being asked for beside the program, until this is dropped.
pub(super) struct Bringing<'l>(pub(super) &'l Listings);

impl Drop for Bringing<'_> {
    fn drop(&mut self) {
        self.0.end_bringing();
    }
}

impl FileSystem {
    /// What became of files that were opened and read before the program asked for them.
    pub fn foreseen(&self) -> Foreseen {
        self.listed.foreseen()
    }

    /// Opens a file for reading that was brought, or that is worth being asked for together with those that
    /// come next. `None` if it is to be opened by itself.
    pub(super) fn open_foreseen(
        &self,
        caller: &Credentials,
        dir: Oid,
        name: &[u8],
        flags: OFlags,
    ) -> Result<Option<(Attr, OpenFile)>> {
        if !self.brings_files() || flags.contains(OFlags::DIRECTORY) {
            return Ok(None);
        }
        if let Some(opened) = self.open_once_more(caller, dir, name, flags) {
            return opened.map(Some);
        }
        let waits = &self.reading.waits;
        waits.during(|| self.listed.wait_for_coming(dir, name));
        let looked_up = self.opened_by_look(caller, dir, name, flags);
        let bounds = Bounds { bytes_max: self.bytes_ahead(dir, name), waited: waits.total() };
        let is_open = |oid| self.reopened.is_known(oid);
        let (mut here, mut wanted) = self.listed.open_file(dir, name, bounds, is_open);
        if let Wanted::Listing(last) = wanted {
            let what = (PartOf::Looks, LISTED_BYTES);
            let listed = waits.during(|| self.list_and_keep(dir, 0, None, what));
            if !matches!(listed, Ok((_, true))) {
                return Ok(None);
            }
            self.listed.begin_files_after(dir, &last);
            (here, wanted) = self.listed.open_file(dir, name, bounds, is_open);
        }
        let (of, mut files) = match wanted {
            Wanted::Files { dir, files } => (dir, files),
            Wanted::Nothing | Wanted::Listing(_) => (dir, Vec::new()),
        };
        if looked_up.is_some() {
            files.retain(|file| of != dir || *file.name != *name);
        }
        // What this process is writing is nothing to be read ahead.
        files.retain(|file| !self.writing.has_unsettled(file.oid));
        let brought = looked_up.or_else(|| here.and_then(|file| self.brought(caller, file, flags)));
        if let Some(opened) = brought {
            let (attr, file) = opened?;
            file.reader.go_on();
            self.bring_beside(of, files);
            return Ok(Some((attr, file)));
        }
        let is_first = of == dir && files.first().is_some_and(|file| *file.name == *name);
        let opened = waits.during(|| self.bring(of, &files, is_first));
        let Some(opened) = opened else { return Ok(None) };
        let Opened { attr, reference, leased } = opened;
        let (attr, mut file) = self.opened(caller, *attr, reference, flags)?;
        if let Some((named_until, reader)) = leased {
            file.reader = Arc::new(reader);
            self.note_read(&file, Some(((dir, name.into()), named_until)));
        }
        Ok(Some((attr, file)))
    }

    /// Opens a file that is still open, by its name, if its leases and that of its name still hold.
    fn open_once_more(
        &self,
        caller: &Credentials,
        dir: Oid,
        name: &[u8],
        flags: OFlags,
    ) -> Option<Result<(Attr, OpenFile)>> {
        let holds = |oid, asked: &Asked| self.listed.is_unchanged_since(dir, Some(oid), asked);
        let (reference, reader) = self.read_lately.still_open(dir, name, self.now(), holds)?;
        let attr = reader.attr().filter(|attr| attr.size <= REOPENED_BYTES_MAX)?;
        self.opened_to_go_on(caller, attr, (reference, reader), flags)
    }

    /// Whether files are brought: others wait for the leases of their names, so only where a round trip is dear.
    fn brings_files(&self) -> bool {
        self.listed.is_on(|from_us| {
            let dear_us = if from_us == 0 { 0 } else { FsConfig::LISTED_FOR_ALL_FROM_US };
            self.pool().far_us(from_us.max(dear_us))
        })
    }

    /// How much of contents the link to a directory's entry carries ahead, in bytes.
    fn bytes_ahead(&self, dir: Oid, name: &[u8]) -> u64 {
        let link = self.reading.link(self.entry_target(dir, name));
        let bytes = link.bytes_per_second.saturating_mul(AHEAD.as_millis() as u64) / 1000;
        if !link.untried {
            return bytes;
        }
        let round_trips = AHEAD.as_micros() as u64 / link.round_trip_us.max(1);
        bytes.max(UNTRIED_BYTES << round_trips.min(UNTRIED_DOUBLINGS_MAX))
    }

    /// Opens a file that was asked for ahead, if its leases still hold.
    fn brought(
        &self,
        caller: &Credentials,
        file: BroughtFile,
        flags: OFlags,
    ) -> Option<Result<(Attr, OpenFile)>> {
        let bytes = self.listed.brought_bytes();
        let attr = self.reading.waits.during(|| file.reader.await_attr(&bytes));
        self.opened_with(caller, file, attr, flags)
    }

    /// Opens a file of which these attributes are known under leases.
    fn opened_with(
        &self,
        caller: &Credentials,
        file: BroughtFile,
        attr: Option<Attr>,
        flags: OFlags,
    ) -> Option<Result<(Attr, OpenFile)>> {
        let BroughtFile { dir, name, named_until, reference, reader } = file;
        let attr = attr.filter(|_| self.now() < named_until)?;
        let opened = self.opened_to_go_on(caller, attr, (reference, reader), flags)?;
        Some(opened.inspect(|(_, file)| self.note_read(file, Some(((dir, name), named_until)))))
    }

    /// Opens a file that was opened with the look at its name, if its leases still hold.
    fn opened_by_look(
        &self,
        caller: &Credentials,
        dir: Oid,
        name: &[u8],
        flags: OFlags,
    ) -> Option<Result<(Attr, OpenFile)>> {
        let LookedUpFile { brought, asked } = self.looked_up.take(dir, name, self.now())?;
        let oid = brought.reference.oid();
        if !self.listed.is_unchanged_since(dir, Some(oid), &asked) {
            return None;
        }
        let attr = brought.reader.attr();
        self.opened_with(caller, brought, attr, flags)
    }

    /// Has files asked for while the program goes on with the one that it has. In somebody else's process nobody but
    /// its own threads may be at work.
    fn bring_beside(&self, dir: Oid, files: Vec<ListedFile>) {
        if files.is_empty() {
            return;
        }
        let fs = self.me.upgrade().filter(|_| !self.pool().is_guest());
        let Some(fs) = fs else { return drop(self.bring(dir, &files, false)) };
        self.listed.begin_bringing(files.iter().map(|file| (dir, file.name.clone())).collect());
        let work = move || {
            let _bringing = Bringing(&fs.listed);
            fs.bring(dir, &files, false);
        };
        if self.config().platform.spawn("azekura-brings", Box::new(work)).is_err() {
            // They are asked for one by one.
            self.listed.end_bringing();
        }
    }

    /// Asks for files all at once, and keeps what comes. With `is_first` the first of them is wanted now,
    /// and given back if its name leads to it.
    fn bring(&self, dir: Oid, files: &[ListedFile], is_first: bool) -> Option<Opened> {
        if files.is_empty() {
            return None;
        }
        let asked = self.listed.ask();
        let (at, changes) = (self.now(), self.changes.counts());
        let mut batch = Batch::with_capacity(files.len() + 1);
        let names = self.ask_names(dir, files, &mut batch);
        let questions: Vec<_> =
            files.iter().filter_map(|file| self.ask_file(dir, file, &mut batch)).collect();
        let mut replies = self.pool().call_batch(batch);
        let may_lease = replies.are_in_order();
        let named_until: HashMap<TargetId, Instant> = names
            .into_iter()
            .filter_map(|(target, ticket)| {
                let lease_ms = replies.take(ticket).ok()?.lease_ms;
                let until = at + Duration::from_millis(lease_ms.into());
                (may_lease && lease_ms > 0).then_some((target, until))
            })
            .collect();
        let mut first = None;
        let mut brought = Vec::new();
        for question in questions {
            let file = question.file;
            let until = named_until.get(&question.entry_target).copied();
            let opened = self.answered(question, &mut replies, at, until).map(|mut opened| {
                // What was looked at may be from before an own change. Its reader counts those from now on.
                let oid = opened.reference.oid();
                opened.leased.take_if(|_| !self.changes.has_attributes_of(oid, &changes));
                opened
            });
            match opened {
                // By its name: others of these may be names of the same file.
                opened if is_first && file.name == files[0].name => first = opened,
                Some(Opened { reference, leased: Some((named_until, reader)), .. }) => {
                    let (name, reader) = (file.name.clone(), Arc::new(reader));
                    brought.push(BroughtFile { dir, name, named_until, reference, reader });
                }
                _ => {}
            }
        }
        // In the order in which they are expected to be read.
        let bytes = self.listed.brought_bytes();
        let mut room = bytes.room();
        if let Some((_, reader)) = first.as_ref().and_then(|first| first.leased.as_ref()) {
            // If leases have to come first, whoever reads it now asks for what that takes.
            reader.bring(&bytes, &mut room);
        }
        for BroughtFile { reader, .. } in &brought {
            self.reading.expected.bring(reader, &bytes, &mut room);
        }
        self.listed.keep_files((dir, &asked), files.len() - usize::from(is_first), brought);
        first
    }

    /// Asks for leases of the names of files, to go in front of what relies on them.
    fn ask_names(
        &self,
        dir: Oid,
        files: &[ListedFile],
        batch: &mut Batch<'_>,
    ) -> Vec<(TargetId, Ticket<LeaseRead>)> {
        let mut targets: Vec<_> =
            files.iter().map(|file| self.entry_target(dir, &file.name)).collect();
        targets.sort_unstable();
        targets.dedup();
        let placement = self.pool().placement();
        let ask = |target| {
            let shard = placement.shard_on_target(dir, target)?;
            let data = ShardRef { oid: dir, shard, is_file: false };
            Some((target, batch.add(Call::new(target, LeaseRead { data }))))
        };
        targets.into_iter().filter_map(ask).collect()
    }

    fn ask_file<'f>(
        &self,
        dir: Oid,
        file: &'f ListedFile,
        batch: &mut Batch<'f>,
    ) -> Option<Question<'f>> {
        // Before it is asked for: releases of it wait from here on.
        let reference = self.pool().count_open(file.oid).ok()?;
        let entry_target = self.entry_target(dir, &file.name);
        let request = OpenEntry { dir, name: &file.name, lease: true, bring_bytes: 0 };
        let ticket = batch.add(Call::new(entry_target, request));
        Some(Question { file, entry_target, reference, ticket })
    }

    /// What has come of a file that was asked for then, and whose name stays until that.
    fn answered(
        &self,
        question: Question<'_>,
        replies: &mut BatchReplies<'_>,
        at: Instant,
        named_until: Option<Instant>,
    ) -> Option<Opened> {
        let Question { reference, ticket, .. } = question;
        let opened = replies.take(ticket).ok()?;
        let reference = self.pool().opened_as_expected(reference, &opened)?;
        let OpenedEntry { entry, attr, lease, others, .. } = opened;
        let attr = attr.filter(|_| {
            entry.kind == FileKind::Regular && !self.writing.has_unsettled(entry.oid)
        })?;
        let leased = named_until.filter(|_| lease.lease_ms > 0).map(|until| {
            let (layout, attr) = (self.layout_of(&attr), attr.clone());
            let leased = FileLeased { lease, others, attr };
            (until, FileReader::of_leased(&self.reading, &layout, at, leased))
        });
        Some(Opened { attr, reference, leased })
    }
}
