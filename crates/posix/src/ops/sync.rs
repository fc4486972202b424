//! `fsync`, `syncfs` and what closing a descriptor does. Owns which targets have to make something
//! durable. An error is handed on as it comes: nothing is tried again until it looks like success.

use azekura_client::Call;
use azekura_proto::Oid;
use azekura_proto::message::TypedRequest;
use azekura_proto::message::typed::{GetAttr, Sync, SyncAll};

use crate::changes::DataChange;
use crate::errno::of_client;
use crate::layout::FileLayout;
use crate::unsynced::Losses;
use crate::writer::{Settled, WriteLeases};
use crate::{Errno, FileSystem, OpenFile, Result};

impl FileSystem {
    /// Makes the file's data and attributes durable.
    ///
    /// # Errors
    /// `EIO` if any target fails to, or if its engine was started anew after a loss of power since the file was
    /// changed here; the data may be lost then.
    pub fn fsync(&self, file: &OpenFile) -> Result<()> {
        self.sync_open(file, false)
    }

    /// The same but for the time of the last write.
    ///
    /// # Errors
    /// As [`FileSystem::fsync`].
    pub fn fdatasync(&self, file: &OpenFile) -> Result<()> {
        self.sync_open(file, true)
    }

    fn sync_open(&self, file: &OpenFile, data_only: bool) -> Result<()> {
        self.pool().arrive().map_err(|error| of_client(&error))?;
        self.tell_failed(file.oid())?;
        let settled = file.writer.finish(&self.writing, &file.layout)?;
        let sync = || self.sync_file(settled, &file.layout, data_only);
        self.sync_changed(file.oid(), sync, || file.layout.is_striped())
    }

    /// A change of a file's data or attributes begins, which may not be durable until it is synced.
    pub(crate) fn begin_change(&self, oid: Oid) -> DataChange<'_> {
        self.note_unsynced(oid);
        self.changes.begin(oid)
    }

    /// An object is about to be changed.
    pub(crate) fn note_unsynced(&self, oid: Oid) {
        self.unsynced.note(oid, || self.losses_of(oid));
    }

    fn losses_of(&self, oid: Oid) -> Losses {
        let placement = self.pool().placement();
        let losses = |shard| self.pool().losses(placement.shard_target(oid, shard));
        let others = (1..placement.shards(oid)).map(losses).fold(0, u64::wrapping_add);
        Losses { home: self.pool().losses(oid.home()), others }
    }

    /// Has an object made durable, and finds out whether changes of it were lost before.
    fn sync_changed(
        &self,
        oid: Oid,
        sync: impl FnOnce() -> Result<()>,
        is_wide: impl FnOnce() -> bool,
    ) -> Result<()> {
        let noted = self.unsynced.take(oid);
        let synced = sync();
        let Some(noted) = noted else { return synced };
        if noted.touch(self.losses_of(oid), is_wide()) {
            tracing::error!(
                "{oid} was changed and not synced when its engine lost its last changes"
            );
            return Err(Errno::IO);
        }
        synced.inspect_err(|_| self.unsynced.put_back(oid, noted))
    }

    /// The same without a handle.
    pub(super) fn sync_file(
        &self,
        settled: Settled,
        layout: &FileLayout,
        data_only: bool,
    ) -> Result<()> {
        let oid = settled.oid();
        let sync =
            |first| self.shard_io(layout).sync(first, data_only).map_err(|error| of_client(&error));
        if layout.shards() == 1 || layout.is_striped() {
            return sync(0);
        }
        // Not striped when last heard of; another client may have made it so.
        let data = Some(layout.shard(0));
        let (mut home, mut attr) = (
            Call::new(oid.home(), Sync { data, data_only }),
            Call::new(oid.home(), GetAttr { oid }),
        );
        let (synced, attr) = self.pool().call_both(&mut home, &mut attr);
        synced.map_err(|error| of_client(&error))?;
        layout.learn_striped(attr.map_err(|error| of_client(&error))?.striped);
        if layout.is_striped() { sync(1) } else { Ok(()) }
    }

    /// Makes a directory's entries durable.
    ///
    /// # Errors
    /// `EIO` if any target fails to.
    pub fn fsync_dir(&self, dir: Oid) -> Result<()> {
        self.pool().arrive().map_err(|error| of_client(&error))?;
        self.tell_failed(dir)?;
        let placement = self.pool().placement();
        let requests = (0..placement.shards(dir)).map(|shard| {
            Call::new(placement.shard_target(dir, shard), Sync { data: None, data_only: true })
        });
        self.sync_changed(dir, || self.sync_all(requests.collect()), || true)
    }

    /// Makes the key-values of all targets durable.
    ///
    /// # Errors
    /// `EIO` if any target fails to.
    pub fn syncfs(&self) -> Result<()> {
        self.writing.settle_all(WriteLeases::Keep)?;
        let targets = (0..self.pool().target_count()).map(azekura_proto::TargetId);
        self.sync_all(targets.map(|target| Call::new(target, SyncAll)).collect())
    }

    fn sync_all<'a, R>(&self, mut calls: Vec<Call<'a, R>>) -> Result<()>
    where
        R: TypedRequest<'a, Reply = ()>,
    {
        let done = self.pool().call_all(&mut calls);
        done.into_iter().try_for_each(|done| done.map_err(|error| of_client(&error)))
    }

    /// `close` of one descriptor: waits until what was written has arrived.
    ///
    /// # Errors
    /// What became of writes that were answered early, once for each open file.
    pub fn flush(&self, file: &OpenFile) -> Result<()> {
        self.tell_failed(file.oid())?;
        file.writer.finish(&self.writing, &file.layout).map(drop)
    }

    /// Lets everything arrive that was written to any file, and gives all leases back: for a process
    /// that is about to fork or to start a program. What its children do it has to see at once, so from
    /// now on nothing is believed that listings bring along.
    ///
    /// # Errors
    /// `EIO` if that cannot be brought about.
    pub fn drain(&self) -> Result<()> {
        self.listed.stop();
        self.reopened.clear();
        self.looked_up.clear();
        let published = self.publish_all();
        let drained = self.writing.settle_all(WriteLeases::ReleaseFirst);
        self.writing.close();
        published.and(drained)
    }

    /// Takes in what has come of writes in flight, and sends again what was lost. A thread does so from time to time,
    /// where there is one: not in a simulation.
    pub fn look_after_writes(&self) {
        self.writing.look_after_all();
    }

    /// [`FileSystem::drain`] for a process that is about to become another program, or to end: from now
    /// on nothing is answered early, whoever writes.
    ///
    /// # Errors
    /// As [`FileSystem::drain`].
    pub fn drain_for_good(&self) -> Result<()> {
        self.writing.set_ending(true);
        let drained = self.drain();
        self.tell_all_failed().and(drained)
    }

    /// Tells the engines that this session ends, for a process that is about to end, after
    /// [`FileSystem::drain_for_good`].
    pub fn leave(&self) {
        self.reading.remember_links();
        self.changes.end_leases();
        self.pool().leave();
    }

    /// The process goes on after [`FileSystem::drain_for_good`].
    pub fn resume(&self) {
        self.writing.set_ending(false);
    }
}
