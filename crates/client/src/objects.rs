//! The object API: containers, object ids, single values, and arrays. Owns the trait, so that
//! another store of objects can stand beside our own targets, and its implementation over a pool.

use azekura_proto::attr::Inheritance;
use azekura_proto::geometry::Extent;
use azekura_proto::limits::FRAME_BULK_BYTES_MAX;
use azekura_proto::message::{Condition, Container, Reply, Request, ShardRef, ValueUpdate};
use azekura_proto::{
    ContainerId, EngineId, Geometry, ObjectClass, Oid, Status, TargetId, placement,
};

use crate::error::{ClientError, Result};
use crate::fan_out::Call;
use crate::pool::Pool;

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
    fn odd_reply(&self, target: TargetId) -> ClientError {
        let engine = self.map().engine_of(target).unwrap_or(EngineId(0));
        ClientError::Protocol { engine, what: "a reply that belongs to another request" }
    }

    fn container(&self, request: &Request<'_>) -> Result<Container> {
        match self.call(TargetId(0), request)? {
            Reply::Container(container) => Ok(container),
            _ => Err(self.odd_reply(TargetId(0))),
        }
    }

    /// The same request to the target of each shard of an object.
    fn to_all_shards<'a>(
        &self,
        oid: Oid,
        request: impl Fn(ShardRef) -> Request<'a>,
    ) -> Result<Vec<Reply>> {
        let targets = self.target_count();
        let mut calls: Vec<Call<'_>> = (0..oid.class().shards(targets))
            .map(|shard| {
                let data = ShardRef { oid, shard, is_file: false };
                Call::new(placement::shard_target(oid, shard, targets), request(data))
            })
            .collect();
        self.fan_out(&mut calls);
        calls.iter_mut().map(Call::take_result).collect()
    }

    fn geometry(&self, oid: Oid, chunk_bytes: u32) -> Geometry {
        Geometry::new(chunk_bytes, oid.class().shards(self.target_count()))
    }

    fn keys(&self, target: TargetId, request: &Request<'_>) -> Result<(Vec<Vec<u8>>, bool)> {
        match self.call(target, request)? {
            Reply::Keys { keys, end } => Ok((keys, end)),
            _ => Err(self.odd_reply(target)),
        }
    }
}

/// The extents of a range, none larger than one request may move.
pub fn pieces(geometry: Geometry, offset: u64, bytes: u64) -> impl Iterator<Item = Extent> {
    geometry.extents(offset, bytes).flat_map(|extent| {
        let step = u64::from(FRAME_BULK_BYTES_MAX);
        (0..extent.bytes.div_ceil(step)).map(move |index| Extent {
            shard: extent.shard,
            local_offset: extent.local_offset + index * step,
            offset: extent.offset + index * step,
            bytes: step.min(extent.bytes - index * step),
        })
    })
}

impl Objects for Pool {
    fn container_create(&self, name: &str, inheritance: Inheritance) -> Result<Container> {
        self.container(&Request::ContainerCreate { name: name.to_owned(), inheritance })
    }

    fn container_open(&self, name: &str) -> Result<Container> {
        self.container(&Request::ContainerOpen { name })
    }

    fn container_list(&self) -> Result<Vec<Container>> {
        match self.call(TargetId(0), &Request::ContainerList)? {
            Reply::Containers(containers) => Ok(containers),
            _ => Err(self.odd_reply(TargetId(0))),
        }
    }

    fn container_destroy(&self, name: &str) -> Result<()> {
        self.call(TargetId(0), &Request::ContainerDestroy { name }).map(drop)
    }

    fn container_change(&self, name: &str, inheritance: Inheritance) -> Result<Container> {
        self.container(&Request::ContainerChange { name, inheritance })
    }

    fn allocate(
        &self,
        container: ContainerId,
        class: ObjectClass,
        user: u32,
        home: Option<TargetId>,
    ) -> Result<Oid> {
        let home = home.unwrap_or_else(|| self.next_home());
        match self.call(home, &Request::AllocateSerial)? {
            Reply::Serial(serial) if serial <= azekura_proto::ids::SERIAL_MAX => {
                Ok(Oid::with_user_bits(container, user, class, home, serial))
            }
            _ => Err(self.odd_reply(home)),
        }
    }

    fn get(&self, oid: Oid, dkey: &[u8], akey: &[u8]) -> Result<Option<Vec<u8>>> {
        let target = placement::dkey_target(oid, dkey, self.target_count());
        match self.call(target, &Request::ValueGet { oid, dkey, akey }) {
            Ok(Reply::Bytes(value)) => Ok(Some(value)),
            Err(ClientError::Status(Status::NotFound)) => Ok(None),
            Ok(_) => Err(self.odd_reply(target)),
            Err(error) => Err(error),
        }
    }

    fn update(&self, oid: Oid, updates: Vec<ValueUpdate<'_>>) -> Result<()> {
        let Some(first) = updates.first() else { return Ok(()) };
        let target = placement::dkey_target(oid, first.dkey, self.target_count());
        self.call(target, &Request::ValueUpdate { oid, updates }).map(drop)
    }

    fn punch(&self, oid: Oid, dkey: &[u8]) -> Result<()> {
        let target = placement::dkey_target(oid, dkey, self.target_count());
        self.call(target, &Request::ValuePunch { oid, dkey: Some(dkey) }).map(drop)
    }

    fn punch_all(&self, oid: Oid) -> Result<()> {
        self.to_all_shards(oid, |_| Request::ValuePunch { oid, dkey: None }).map(drop)
    }

    fn list_dkeys(
        &self,
        oid: Oid,
        from: Option<KeyCursor>,
        limit: u32,
    ) -> Result<(Vec<Vec<u8>>, Option<KeyCursor>)> {
        let targets = self.target_count();
        let mut cursor = from.unwrap_or(KeyCursor { shard: 0, after: None });
        loop {
            let target = placement::shard_target(oid, cursor.shard, targets);
            let after = cursor.after.as_deref();
            let request = Request::ValueList { oid, dkey: None, after, limit };
            let (keys, end) = self.keys(target, &request)?;
            let last_shard = cursor.shard + 1 >= oid.class().shards(targets);
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
        let target = placement::dkey_target(oid, dkey, self.target_count());
        self.keys(target, &Request::ValueList { oid, dkey: Some(dkey), after, limit })
    }

    fn array_read(
        &self,
        oid: Oid,
        chunk_bytes: u32,
        offset: u64,
        buffer: &mut [u8],
    ) -> Result<usize> {
        let (targets, geometry) = (self.target_count(), self.geometry(oid, chunk_bytes));
        let wanted = buffer.len() as u64;
        let mut calls = Vec::new();
        let mut rest = &mut *buffer;
        for piece in pieces(geometry, offset, wanted) {
            let (part, others) = rest.split_at_mut(piece.bytes as usize);
            rest = others;
            let data = ShardRef { oid, shard: piece.shard, is_file: false };
            let bytes = piece.bytes as u32;
            let request = Request::Read { data, offset: piece.local_offset, bytes };
            calls.push(Call::fetching(
                placement::shard_target(oid, piece.shard, targets),
                request,
                part,
            ));
        }
        self.fan_out(&mut calls);
        let (mut known_end, mut short) = (0, false);
        for (call, piece) in calls.iter_mut().zip(pieces(geometry, offset, wanted)) {
            let got = match call.take_result()? {
                Reply::Data { bytes, .. } => bytes as usize,
                _ => return Err(self.odd_reply(call.target)),
            };
            call.bulk_in[got..].fill(0);
            if got > 0 {
                known_end = piece.offset - offset + got as u64;
            }
            short |= got < call.bulk_in.len();
        }
        if short && known_end < wanted {
            // A hole or the end: only the length tells.
            let size = self.array_size(oid, chunk_bytes)?;
            known_end = size.saturating_sub(offset).min(wanted);
        }
        Ok(known_end as usize)
    }

    fn array_write(&self, oid: Oid, chunk_bytes: u32, offset: u64, data: &[u8]) -> Result<()> {
        let (targets, geometry) = (self.target_count(), self.geometry(oid, chunk_bytes));
        let mut calls: Vec<Call<'_>> = pieces(geometry, offset, data.len() as u64)
            .map(|piece| {
                let from = (piece.offset - offset) as usize;
                let bulk = &data[from..from + piece.bytes as usize];
                let shard = ShardRef { oid, shard: piece.shard, is_file: false };
                let request = Request::Write { data: shard, offset: piece.local_offset };
                Call::sending(placement::shard_target(oid, piece.shard, targets), request, bulk)
            })
            .collect();
        self.fan_out(&mut calls);
        calls.iter_mut().try_for_each(|call| call.take_result().map(drop))
    }

    fn array_size(&self, oid: Oid, chunk_bytes: u32) -> Result<u64> {
        let geometry = self.geometry(oid, chunk_bytes);
        let mut size = 0;
        let replies = self.to_all_shards(oid, |data| Request::ShardStat { data, asker: None })?;
        for (shard, reply) in replies.into_iter().enumerate() {
            match reply {
                Reply::Shard(Some(stat)) => {
                    size = size.max(geometry.global_end(shard as u16, stat.bytes));
                }
                Reply::Shard(None) => {}
                _ => return Err(self.odd_reply(oid.home())),
            }
        }
        Ok(size)
    }

    fn array_truncate(&self, oid: Oid, chunk_bytes: u32, bytes: u64) -> Result<()> {
        let geometry = self.geometry(oid, chunk_bytes);
        let last = geometry.last_shard(bytes);
        self.to_all_shards(oid, |data| Request::ShardTruncate {
            data,
            bytes: geometry.local_bytes(data.shard, bytes),
            exactly: data.shard == last,
        })
        .map(drop)
    }

    fn array_sync(&self, oid: Oid) -> Result<()> {
        self.to_all_shards(oid, |data| Request::Sync { data: Some(data) }).map(drop)
    }

    fn array_remove(&self, oid: Oid) -> Result<()> {
        self.to_all_shards(oid, |data| Request::ShardRemove { data }).map(drop)
    }
}
