//! The key-values of the object API. Owns the checks of sizes; order and atomicity are the store's.

use azekura_proto::limits::{BATCH_UPDATES_MAX, KEY_BYTES_MAX, PAGE_BYTES_MAX, VALUE_BYTES_MAX};
use azekura_proto::message::{Answer, Condition, Reply, ValueUpdate};
use azekura_proto::{Oid, Status};
use azekura_store::{KvCondition, KvOp, KvUpdate};

use crate::records::stored::store_status;
use crate::records::update::Update;
use crate::requests::retry::{Caller, FirstAnswer};
use crate::target::Target;

fn check_key(key: &[u8]) -> Result<(), Status> {
    if key.len() > KEY_BYTES_MAX { Err(Status::TooLarge) } else { Ok(()) }
}

/// Answer to `ValueGet`.
pub(crate) fn get(target: &Target, oid: Oid, dkey: &[u8], akey: &[u8]) -> Answer {
    let value = target.store.kv_get(oid, dkey, akey).map_err(store_status)?;
    value.map(|value| Reply::Bytes(value.to_vec())).ok_or(Status::NotFound)
}

/// Answer to `ValueUpdate`.
pub(crate) fn update(
    target: &Target,
    caller: &Caller,
    oid: Oid,
    updates: &[ValueUpdate<'_>],
) -> Answer {
    if updates.len() > BATCH_UPDATES_MAX {
        return Err(Status::TooLarge);
    }
    for update in updates {
        check_key(update.dkey)?;
        check_key(update.akey)?;
        if update.value.is_some_and(|value| value.len() > VALUE_BYTES_MAX) {
            return Err(Status::TooLarge);
        }
    }
    if caller.first_answer(&target.store)?.is_some() {
        return Ok(Reply::Done);
    }
    let wanted: Vec<KvUpdate<'_>> = updates
        .iter()
        .map(|update| KvUpdate {
            dkey: update.dkey,
            akey: update.akey,
            op: update.value.map_or(KvOp::Punch, KvOp::Put),
            condition: match update.condition {
                Condition::Always => KvCondition::None,
                Condition::MustExist => KvCondition::MustExist,
                Condition::MustNotExist => KvCondition::MustNotExist,
                Condition::Equals(value) => KvCondition::Equals(value),
            },
        })
        .collect();
    let mut record = Update::new(target);
    caller.record(&mut record, FirstAnswer::Done);
    target.store.kv_update_with(oid, &wanted, record.into_batch()).map_err(store_status)?;
    Ok(Reply::Done)
}

/// Answer to `ValuePunch`.
pub(crate) fn punch(target: &Target, oid: Oid, dkey: Option<&[u8]>) -> Answer {
    match dkey {
        Some(dkey) => target.store.kv_punch_dkey(oid, dkey),
        None => target.store.kv_punch_object(oid),
    }
    .map_err(store_status)?;
    Ok(Reply::Done)
}

/// Answer to `ValueList`.
pub(crate) fn list(
    target: &Target,
    oid: Oid,
    dkey: Option<&[u8]>,
    after: Option<&[u8]>,
    limit: u32,
) -> Answer {
    let limit = (limit as usize).clamp(1, PAGE_BYTES_MAX as usize / KEY_BYTES_MAX);
    let keys = match dkey {
        Some(dkey) => target.store.kv_list_akeys(oid, dkey, after, limit),
        None => target.store.kv_list_dkeys(oid, after, limit),
    }
    .map_err(store_status)?;
    let end = keys.len() < limit;
    Ok(Reply::Keys { keys, end })
}
