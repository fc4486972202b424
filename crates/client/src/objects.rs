//! The object API: containers, object ids, single values, and arrays. Owns the trait, so that
//! another store of objects can stand beside our own targets, and its implementation over a pool.

use azekura_proto::attr::Inheritance;
use azekura_proto::limits::CHUNK_BYTES_DEFAULT;
use azekura_proto::message::typed::{
    self, AllocateSerial, ContainerChange, ContainerCreate, ContainerDestroy, ContainerList,
    ContainerOpen, KeyPage, ValueGet, ValueList, ValuePunch,
};
use azekura_proto::message::{Condition, Container, ValueUpdate};
use azekura_proto::{ContainerId, Layout, ObjectClass, Oid, Status, TargetId};

use crate::error::{ClientError, Result};
use crate::fan_out::Call;
use crate::pool::Pool;
use crate::shard_io::ShardIo;

/// Where a listing of dkeys goes on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeyCursor {
    shard: u16,
    after: Option<Vec<u8>>,
}

/// Objects in containers. Every call is answered by the targets that hold the object; none is
/// cached. Errors are [`ClientError::Status`] with `NotFound`, `Exists`, `ConditionFailed`,
/// `TooLarge`, `NoSpace` and the like, or say why the pool did not answer.
pub trait Objects: Send + Sync {
    /// Makes a container; `Exists` if the name is taken.
    fn container_create(&self, name: &str, inheritance: Inheritance) -> Result<Container>;
    /// Finds a container by name.
    fn container_open(&self, name: &str) -> Result<Container>;
    /// All containers.
    fn container_list(&self) -> Result<Vec<Container>>;
    /// Removes a container with everything in it.
    fn container_destroy(&self, name: &str) -> Result<()>;
    /// Changes the defaults of a container.
    fn container_change(&self, name: &str, inheritance: Inheritance) -> Result<Container>;

    /// A new object id, never given out before. `user` are 32 bits of the caller's own. The home
    /// target is `home`, or any.
    fn allocate(
        &self,
        container: ContainerId,
        class: ObjectClass,
        user: u32,
        home: Option<TargetId>,
    ) -> Result<Oid>;

    /// The value under (dkey, akey); `None` if there is none.
    fn get(&self, oid: Oid, dkey: &[u8], akey: &[u8]) -> Result<Option<Vec<u8>>>;
    /// Updates of values under dkeys that live on one target (one dkey always does), in one atomic
    /// step. If a condition fails nothing is done and the answer is `ConditionFailed`.
    fn update(&self, oid: Oid, updates: Vec<ValueUpdate<'_>>) -> Result<()>;
    /// Removes all values under a dkey.
    fn punch(&self, oid: Oid, dkey: &[u8]) -> Result<()>;
    /// Removes all values of the object.
    fn punch_all(&self, oid: Oid) -> Result<()>;
    /// A page of dkeys, in order within each shard, and where to go on; `None` at the end.
    fn list_dkeys(
        &self,
        oid: Oid,
        from: Option<KeyCursor>,
        limit: u32,
    ) -> Result<(Vec<Vec<u8>>, Option<KeyCursor>)>;
    /// A page of akeys under a dkey, in order, after `after`; true at the end.
    fn list_akeys(
        &self,
        oid: Oid,
        dkey: &[u8],
        after: Option<&[u8]>,
        limit: u32,
    ) -> Result<(Vec<Vec<u8>>, bool)>;

    /// Reads from an array of chunks of `chunk_bytes`; gives the number of bytes before its end.
    /// Holes read as zeros.
    fn array_read(
        &self,
        oid: Oid,
        chunk_bytes: u32,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize>;
    /// Writes all of `data` into an array.
    fn array_write(&self, oid: Oid, chunk_bytes: u32, offset: u64, data: &[u8]) -> Result<()>;
    /// Length of an array in bytes.
    fn array_size(&self, oid: Oid, chunk_bytes: u32) -> Result<u64>;
    /// Cuts or grows an array.
    fn array_truncate(&self, oid: Oid, chunk_bytes: u32, bytes: u64) -> Result<()>;
    /// Makes an array's data durable.
    fn array_sync(&self, oid: Oid) -> Result<()>;
    /// Removes an array's data.
    fn array_remove(&self, oid: Oid) -> Result<()>;

    /// Sets one value.
    fn put(&self, oid: Oid, dkey: &[u8], akey: &[u8], value: &[u8]) -> Result<()> {
        let value = Some(value);
        self.update(oid, vec![ValueUpdate { dkey, akey, value, condition: Condition::Always }])
    }
}

impl Pool {
    fn array(&self, oid: Oid, chunk_bytes: u32) -> ShardIo<'_> {
        ShardIo::new(self, Layout::of_array(self.placement(), oid, chunk_bytes))
    }
}

impl Objects for Pool {
    fn container_create(&self, name: &str, inheritance: Inheritance) -> Result<Container> {
        self.call(TargetId(0), ContainerCreate { name: name.to_owned(), inheritance })
    }

    fn container_open(&self, name: &str) -> Result<Container> {
        self.call(TargetId(0), ContainerOpen { name })
    }

    fn container_list(&self) -> Result<Vec<Container>> {
        self.call(TargetId(0), ContainerList)
    }

    fn container_destroy(&self, name: &str) -> Result<()> {
        self.call(TargetId(0), ContainerDestroy { name })
    }

    fn container_change(&self, name: &str, inheritance: Inheritance) -> Result<Container> {
        self.call(TargetId(0), ContainerChange { name, inheritance })
    }

    fn allocate(
        &self,
        container: ContainerId,
        class: ObjectClass,
        user: u32,
        home: Option<TargetId>,
    ) -> Result<Oid> {
        let home = home.unwrap_or_else(|| self.next_home());
        let serial = self.call(home, AllocateSerial)?;
        if serial > azekura_proto::ids::SERIAL_MAX {
            return Err(self.broken_protocol(home, "a serial number that is too large"));
        }
        Ok(Oid::with_user_bits(container, user, class, home, serial))
    }

    fn get(&self, oid: Oid, dkey: &[u8], akey: &[u8]) -> Result<Option<Vec<u8>>> {
        let target = self.placement().dkey_target(oid, dkey);
        match self.call(target, ValueGet { oid, dkey, akey }) {
            Err(ClientError::Status(Status::NotFound)) => Ok(None),
            value => value.map(Some),
        }
    }

    fn update(&self, oid: Oid, updates: Vec<ValueUpdate<'_>>) -> Result<()> {
        let Some(first) = updates.first() else { return Ok(()) };
        let target = self.placement().dkey_target(oid, first.dkey);
        self.call(target, typed::ValueUpdate { oid, updates })
    }

    fn punch(&self, oid: Oid, dkey: &[u8]) -> Result<()> {
        let target = self.placement().dkey_target(oid, dkey);
        self.call(target, ValuePunch { oid, dkey: Some(dkey) })
    }

    fn punch_all(&self, oid: Oid) -> Result<()> {
        let placement = self.placement();
        let mut calls: Vec<_> = (0..placement.shards(oid))
            .map(|shard| {
                let request = ValuePunch { oid, dkey: None };
                Call::new(placement.shard_target(oid, shard), request)
            })
            .collect();
        self.call_all(&mut calls).into_iter().collect()
    }

    fn list_dkeys(
        &self,
        oid: Oid,
        from: Option<KeyCursor>,
        limit: u32,
    ) -> Result<(Vec<Vec<u8>>, Option<KeyCursor>)> {
        let placement = self.placement();
        let mut cursor = from.unwrap_or(KeyCursor { shard: 0, after: None });
        loop {
            let target = placement.shard_target(oid, cursor.shard);
            let after = cursor.after.as_deref();
            let request = ValueList { oid, dkey: None, after, limit };
            let KeyPage { keys, end } = self.call(target, request)?;
            let last_shard = cursor.shard + 1 >= placement.shards(oid);
            let next = if end {
                (!last_shard).then(|| KeyCursor { shard: cursor.shard + 1, after: None })
            } else {
                let after = keys.last().cloned().or(cursor.after.clone());
                Some(KeyCursor { shard: cursor.shard, after })
            };
            match next {
                Some(next) if keys.is_empty() && end => cursor = next,
                next => return Ok((keys, next)),
            }
        }
    }

    fn list_akeys(
        &self,
        oid: Oid,
        dkey: &[u8],
        after: Option<&[u8]>,
        limit: u32,
    ) -> Result<(Vec<Vec<u8>>, bool)> {
        let target = self.placement().dkey_target(oid, dkey);
        let request = ValueList { oid, dkey: Some(dkey), after, limit };
        let KeyPage { keys, end } = self.call(target, request)?;
        Ok((keys, end))
    }

    fn array_read(
        &self,
        oid: Oid,
        chunk_bytes: u32,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let (array, wanted) = (self.array(oid, chunk_bytes), buffer.len() as u64);
        let known_end = array.read(offset, buffer)?;
        if known_end == wanted {
            return Ok(buffer.len());
        }
        // A hole or the end: only the length tells.
        let before_end = array.size()?.saturating_sub(offset).min(wanted);
        Ok(known_end.max(before_end) as usize)
    }

    fn array_write(&self, oid: Oid, chunk_bytes: u32, offset: u64, data: &[u8]) -> Result<()> {
        self.array(oid, chunk_bytes).write(offset, data).error.map_or(Ok(()), Err)
    }

    fn array_size(&self, oid: Oid, chunk_bytes: u32) -> Result<u64> {
        self.array(oid, chunk_bytes).size()
    }

    fn array_truncate(&self, oid: Oid, chunk_bytes: u32, bytes: u64) -> Result<()> {
        self.array(oid, chunk_bytes).truncate(bytes)
    }

    fn array_sync(&self, oid: Oid) -> Result<()> {
        self.array(oid, CHUNK_BYTES_DEFAULT).sync(0, true)
    }

    fn array_remove(&self, oid: Oid) -> Result<()> {
        self.array(oid, CHUNK_BYTES_DEFAULT).remove()
    }
}
