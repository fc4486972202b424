//! `fsync`, `syncfs` and what closing a descriptor does. Owns which targets have to make something
//! durable. An error is handed on as it comes: nothing is tried again until it looks like success.

use azekura_client::Call;
use azekura_proto::Oid;
use azekura_proto::message::{Reply, Request, ShardRef};

use crate::errno::{of_client, unexpected};
use crate::{FileSystem, OpenFile, Result};

impl FileSystem {
    /// Makes the file's data and attributes durable.
    ///
    /// # Errors
    /// `EIO` if any target fails to; the data may be lost then.
    pub fn fsync(&self, file: &OpenFile) -> Result<()> {
        let oid = file.oid();
        self.settle_and_tell(file)?;
        if file.geometry().shards() == 1 || file.is_wide() {
            return self.sync_shards(file, 0);
        }
        // Narrow when last heard of; another client may have made it wide.
        let data = Some(ShardRef { oid, shard: 0, is_file: true });
        let mut calls = [
            Call::new(oid.home(), Request::Sync { data }),
            Call::new(oid.home(), Request::GetAttr { oid }),
        ];
        self.pool().fan_out(&mut calls);
        let [sync, attr] = &mut calls;
        sync.take_result().map_err(|error| of_client(&error))?;
        match attr.take_result() {
            Ok(Reply::Attr(attr)) => file.learn_wide(attr.wide),
            Ok(_) => return Err(unexpected("get_attr")),
            Err(error) => return Err(of_client(&error)),
        }
        if file.is_wide() { self.sync_shards(file, 1) } else { Ok(()) }
    }

    fn sync_shards(&self, file: &OpenFile, first: u16) -> Result<()> {
        let oid = file.oid();
        let requests = (first..file.geometry().shards()).map(|shard| {
            let data = Some(ShardRef { oid, shard, is_file: true });
            Call::new(self.shard_target(oid, shard), Request::Sync { data })
        });
        self.sync_all(requests.collect())
    }

    /// Makes a directory's entries durable.
    ///
    /// # Errors
    /// `EIO` if any target fails to.
    pub fn fsync_dir(&self, dir: Oid) -> Result<()> {
        let shards = 0..dir.class().shards(self.target_count());
        let requests = shards
            .map(|shard| Call::new(self.shard_target(dir, shard), Request::Sync { data: None }));
        self.sync_all(requests.collect())
    }

    /// Makes the key-values of all targets durable.
    ///
    /// # Errors
    /// `EIO` if any target fails to.
    pub fn syncfs(&self) -> Result<()> {
        self.settle_all()?;
        let targets = (0..self.target_count()).map(azekura_proto::TargetId);
        self.sync_all(targets.map(|target| Call::new(target, Request::SyncAll)).collect())
    }

    fn sync_all(&self, mut calls: Vec<Call<'_>>) -> Result<()> {
        self.pool().fan_out(&mut calls);
        for call in &mut calls {
            call.take_result().map_err(|error| of_client(&error))?;
        }
        Ok(())
    }

    /// `close` of one descriptor: waits until what was written has arrived.
    ///
    /// # Errors
    /// What became of writes that were answered early, once for each open file.
    pub fn flush(&self, file: &OpenFile) -> Result<()> {
        self.settle_and_tell(file)
    }
}
