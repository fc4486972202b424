//! Appending to a file. Owns the order of an append: it takes a place behind everything that others have
//! written, that place is put on record, then its bytes are written, then that they are. So a retry finds
//! out how far it had come. It never makes a file shorter, and never writes where others may have.

use azekura_proto::attr::FileKind;
use azekura_proto::message::{Answer, Reply, Request};
use azekura_proto::{Layout, Oid, Status};

use crate::data::descriptors;
use crate::data::shards::check_range;
use crate::namespace::attributes::{complete, load_inode};
use crate::namespace::inode::set_striped;
use crate::node::Node;
use crate::records::record::Inode;
use crate::records::stored::store_status;
use crate::records::update::Update;
use crate::requests::retry::{Caller, FirstAnswer};
use crate::target::Target;

/// So often the end of the file is looked for anew because somebody wrote there meanwhile.
const TRIES_MAX: u32 = 1000;

/// Answer to `Append`, with all of its data.
pub(crate) fn append(
    node: &Node,
    target: &Target,
    caller: &Caller,
    oid: Oid,
    data: &[u8],
) -> Answer {
    let _size_guard = target.lock_size(oid);
    let this = Appending { node, target, caller, oid, data };
    let inode = this.inode()?;
    let offset = match caller.first_answer(&target.store)? {
        Some(FirstAnswer::Appended { oid: first, offset, .. }) if first == oid => {
            return Ok(Reply::Appended { offset });
        }
        Some(FirstAnswer::Placed { oid: first, offset, end, truncations })
            if first == oid && end.checked_sub(offset) == Some(data.len() as u64) =>
        {
            if truncations == inode.truncations {
                this.write(this.layout(&inode), offset)?;
                offset
            } else {
                // The file was cut, and the place may be another's by now.
                this.append_anew()?
            }
        }
        Some(_) => return Err(Status::Invalid),
        None => this.append_anew()?,
    };
    let (end, truncations) = (offset + data.len() as u64, inode.truncations);
    this.record(FirstAnswer::Appended { oid, offset, end, truncations })?;
    Ok(Reply::Appended { offset })
}

/// An append. Whoever has one has the size lock of the file.
pub(crate) struct Appending<'a> {
    pub(crate) node: &'a Node,
    pub(crate) target: &'a Target,
    pub(crate) caller: &'a Caller,
    pub(crate) oid: Oid,
    pub(crate) data: &'a [u8],
}

impl Appending<'_> {
    fn inode(&self) -> Result<Inode, Status> {
        let inode = load_inode(self.target, self.oid)?;
        if inode.kind == FileKind::Regular { Ok(inode) } else { Err(Status::Invalid) }
    }

    fn layout(&self, inode: &Inode) -> Layout {
        self.node.layout(self.oid, inode.chunk_bytes)
    }

    fn record(&self, answer: FirstAnswer) -> Result<(), Status> {
        let mut update = Update::new(self.target);
        self.caller.record(&mut update, answer);
        update.commit().map(drop)
    }

    /// Puts a place on record.
    pub(crate) fn record_place(&self, inode: &Inode, offset: u64) -> Result<(), Status> {
        let end = offset + self.data.len() as u64;
        let truncations = inode.truncations;
        self.record(FirstAnswer::Placed { oid: self.oid, offset, end, truncations })
    }

    /// Takes a place and writes there; gives the place.
    fn append_anew(&self) -> Result<u64, Status> {
        let bytes = self.data.len() as u64;
        for _ in 0..TRIES_MAX {
            let inode = self.inode()?;
            let client = self.caller.client();
            let offset = complete(self.node, self.target, client, self.oid, &inode)?.size;
            check_range(offset, bytes)?;
            let layout = self.layout(&inode);
            if !inode.striped && layout.geometry().is_within_first_chunk(offset + bytes) {
                if let Some(offset) = self.append_to_home(&inode, offset)? {
                    return Ok(offset);
                }
            } else if !inode.striped {
                // Others may have data beyond chunk 0 as soon as this is set: it is looked again.
                set_striped(self.target, client, self.oid)?;
            } else if self.extend(layout, offset)? {
                self.record_place(&inode, offset)?;
                self.write(layout, offset)?;
                return Ok(offset);
            }
        }
        Err(Status::Busy)
    }

    /// Appends to a file that lies here as a whole, while nobody else writes to it; not, if it has become
    /// longer than `offset`. Gives the place.
    fn append_to_home(&self, inode: &Inode, offset: u64) -> Result<Option<u64>, Status> {
        let _change = self.target.leases.before_write((self.oid, 0), self.caller.client());
        let file = self.target.store.shard_create(self.oid, 0).map_err(store_status)?;
        if descriptors::may_be_written(self.target, self.oid, 0) {
            // Nobody keeps those away who write past the engine, so that the place is not known before.
            return file.append(self.data).map(Some).map_err(store_status);
        }
        let held = file.hold();
        if held.bytes().map_err(store_status)? > offset {
            return Ok(None);
        }
        // A restart makes the file long enough for what is on record before anybody else writes.
        self.record_place(inode, offset)?;
        if let Err(error) = held.write_at_end(self.data, offset) {
            drop(held);
            self.forget_place()?;
            return Err(store_status(error));
        }
        Ok(Some(offset))
    }

    /// Makes a striped file longer piece by piece, from the first on: where others have written
    /// meanwhile, it stays as they have made it.
    fn extend(&self, layout: Layout, offset: u64) -> Result<bool, Status> {
        // Unlike any other, also after a restart.
        let token = self.target.draw_transaction().number;
        for piece in layout.pieces(offset, self.data.len() as u64, u64::MAX) {
            let (from, to) = (piece.local_offset, piece.local_offset + piece.bytes);
            let request = Request::ShardExtend { data: piece.data, from, to, token };
            match self.node.call(piece.target, &request) {
                Ok(_) => {}
                Err(Status::ConditionFailed) => return Ok(false),
                Err(status) => return Err(status),
            }
        }
        Ok(true)
    }

    /// Writes the data at the place that is theirs.
    fn write(&self, layout: Layout, offset: u64) -> Result<(), Status> {
        for piece in layout.pieces(offset, self.data.len() as u64, u64::MAX) {
            let bytes = &self.data[piece.within(offset)];
            let shard = piece.data.shard;
            if let Some(local) = self.node.local(piece.target) {
                let _change = local.leases.before_write((self.oid, shard), self.caller.client());
                let file = local.store.shard_create(self.oid, shard).map_err(store_status)?;
                file.write_at(bytes, piece.local_offset).map_err(store_status)?;
            } else {
                let request = Request::Write { data: piece.data, offset: piece.local_offset };
                self.node.call_remote(piece.target, &request, bytes)?;
            }
        }
        Ok(())
    }

    /// Nothing was written: the place is nobody's.
    fn forget_place(&self) -> Result<(), Status> {
        let mut update = Update::new(self.target);
        self.caller.forget(&mut update);
        update.commit().map(drop)
    }
}
