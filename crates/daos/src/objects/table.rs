//! What a container keeps for this interface beside its objects: the table of objects, attributes, and
//! the numbers that were given out. All of it stands in one object of a fixed id, under dkeys that start
//! with a letter for what they are.

use azekura_client::{ClientError, KeyCursor, Objects as _};
use azekura_proto::message::{Condition, ValueUpdate};
use azekura_proto::{ContainerId, ObjectClass, Oid, Status, TargetId};

use crate::handles::ContainerHandle;
use crate::status::Der;
use crate::types::ObjectId;

/// The user bits of our objects: none of the file system, with chunks of 1 MiB.
pub(super) const OBJECT_BITS: u32 = 1 << 31 | 20 << 26;
/// Serial numbers that are drawn are greater, so no other object has these bits and this number.
const SERIAL: u64 = 0;
/// Starts the dkey of an object.
const OBJECT: u8 = b'o';
/// The akey of an object's own id.
const ID: &[u8] = b"id";

/// The object with what a container keeps.
pub(crate) fn values_of(container: ContainerId) -> Oid {
    Oid::with_user_bits(container, OBJECT_BITS, ObjectClass::SX, TargetId(0), SERIAL)
}

fn dkey_of(id: ObjectId) -> [u8; 17] {
    let mut dkey = [OBJECT; 17];
    dkey[1..9].copy_from_slice(&id.hi.to_be_bytes());
    dkey[9..].copy_from_slice(&id.lo.to_be_bytes());
    dkey
}

/// The object of ours that stands for an id.
pub(super) fn find(container: &ContainerHandle, id: ObjectId) -> Result<Option<Oid>, Der> {
    let table = values_of(container.container.id);
    let found = container.pool.pool.get(table, &dkey_of(id), ID)?;
    found.map(|bytes| Oid::from_bytes(&bytes).ok_or(Der::Io)).transpose()
}

/// As [`find`]; entered, if there is none.
pub(super) fn find_or_make(
    container: &ContainerHandle,
    id: ObjectId,
    class: ObjectClass,
) -> Result<Oid, Der> {
    let pool = &container.pool.pool;
    let made = pool.allocate(container.container.id, class, OBJECT_BITS, None)?;
    let (dkey, bytes) = (dkey_of(id), made.to_bytes());
    let condition = Condition::MustNotExist;
    let entry = ValueUpdate { dkey: &dkey, akey: ID, value: Some(&bytes), condition };
    match pool.update(values_of(container.container.id), vec![entry]) {
        // Somebody else was first.
        Err(ClientError::Status(Status::ConditionFailed)) => find(container, id)?.ok_or(Der::Io),
        done => done.map(|()| made).map_err(Der::from),
    }
}

/// A page of the table, and where to go on.
pub(super) fn list(
    container: &ContainerHandle,
    from: Option<KeyCursor>,
    limit: u32,
) -> Result<(Vec<ObjectId>, Option<KeyCursor>), Der> {
    let table = values_of(container.container.id);
    let (dkeys, next) = container.pool.pool.list_dkeys(table, from, limit)?;
    let half = |bytes: &[u8]| bytes.iter().fold(0, |sum, byte| sum << 8 | u64::from(*byte));
    let ids = dkeys.iter().filter_map(|dkey| match dkey.as_slice() {
        [OBJECT, id @ ..] if id.len() == 16 => {
            Some(ObjectId { hi: half(&id[..8]), lo: half(&id[8..]) })
        }
        _ => None,
    });
    Ok((ids.collect(), next))
}
