//! Objects: making and opening them, and what is asked of one as a whole.

use std::ffi::c_int;
use std::sync::Arc;

use azekura_client::{ArrayValues, Objects as _, Pool};
use azekura_posix::Errno;
use azekura_proto::Oid;

use crate::call::status;
use crate::class;
use crate::container::Container;
use crate::failure::{About as _, Failure, Outcome, Subject};
use crate::oid::{RawOid, user_bits};
use crate::pointers::{Out, OutHandle, handle, handle_place, place};

/// `azekura_object`.
#[derive(Debug)]
pub(crate) struct Object {
    pub(crate) pool: Arc<Pool>,
    pub(crate) oid: Oid,
    pub(crate) chunk_bytes: u32,
}

impl Object {
    pub(crate) fn subject(&self) -> Subject<'static> {
        Subject::Object(self.oid)
    }
}

/// `struct azekura_object_info`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ObjectInfo {
    oid: RawOid,
    class: c_int,
    shards: u32,
    chunk_bytes: u32,
    tag: u32,
    reserved: [u64; 4],
}

/// `azekura_object_create`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_object_create(
    container: Option<&Container>,
    class: c_int,
    chunk_bytes: u32,
    tag: u32,
    object: OutHandle<'_, Object>,
) -> c_int {
    status("azekura_object_create", || {
        let out = handle_place(object, "object")?;
        let container = handle(container, "container")?;
        let known = container.fs().container();
        let class = class::from_number(class, known.inheritance.file_class)?;
        let bits = user_bits(chunk_bytes, tag)?;
        let oid = container
            .pool()
            .allocate(known.id, class, bits, None)
            .about(Subject::Container(&known.name))?;
        *out = Some(Box::new(opened(container, RawOid::of(oid))?));
        Ok(())
    })
}

/// `azekura_object_open`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_object_open(
    container: Option<&Container>,
    oid: RawOid,
    object: OutHandle<'_, Object>,
) -> c_int {
    status("azekura_object_open", || {
        let out = handle_place(object, "object")?;
        *out = Some(Box::new(opened(handle(container, "container")?, oid)?));
        Ok(())
    })
}

fn opened(container: &Container, raw: RawOid) -> Outcome<Object> {
    let wrong = |what: &str| Failure::with(Errno::INVAL, format!("object id {raw}: {what}"));
    let oid = raw.oid().ok_or_else(|| wrong("there is no such object class"))?;
    let known = container.fs().container();
    if oid.container() != known.id {
        return Err(wrong("it belongs to another container"));
    }
    if oid.home().0 >= container.pool().target_count() {
        return Err(wrong("the pool has no such target"));
    }
    let chunk_bytes = raw
        .chunk_bytes()
        .ok_or_else(|| wrong("it was not made by azekura_object_create; open files by path"))?;
    Ok(Object { pool: Arc::clone(container.pool()), oid, chunk_bytes })
}

/// `azekura_object_info`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_object_info(
    object: Option<&Object>,
    info: Out<'_, ObjectInfo>,
) -> c_int {
    status("azekura_object_info", || {
        let object = handle(object, "object")?;
        let raw = RawOid::of(object.oid);
        place(info, "info")?.write(ObjectInfo {
            oid: raw,
            class: class::number(object.oid.class()),
            shards: u32::from(object.pool.placement().shards(object.oid)),
            chunk_bytes: object.chunk_bytes,
            tag: raw.tag(),
            reserved: [0; 4],
        });
        Ok(())
    })
}

/// `azekura_object_sync`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_object_sync(object: Option<&Object>) -> c_int {
    status("azekura_object_sync", || {
        let object = handle(object, "object")?;
        object.pool.array_sync(object.oid).about(object.subject())
    })
}

/// `azekura_object_remove`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_object_remove(object: Option<&Object>) -> c_int {
    status("azekura_object_remove", || {
        let object = handle(object, "object")?;
        let arrays = ArrayValues::new(&object.pool, object.oid);
        arrays.remove_all().about(object.subject())?;
        object.pool.array_remove(object.oid).about(object.subject())
    })
}

/// `azekura_object_close`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_object_close(object: Option<Box<Object>>) -> c_int {
    status("azekura_object_close", || {
        drop(object);
        Ok(())
    })
}
