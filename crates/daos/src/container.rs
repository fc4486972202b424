//! Containers. Owns which names find one: its own, and the UUID that it is shown under.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::Arc;

use azekura_client::{ClientError, Objects as _, Pool};
use azekura_proto::Status;
use azekura_proto::attr::Inheritance;
use azekura_proto::message::Container;

use crate::event::{Unread, finish};
use crate::global::{self, GlobalContainer, Kind, uuid_text};
use crate::handles::{self, ContainerHandle, PoolHandle};
use crate::status::{Der, daos_call};
use crate::types::{ContainerInfo, Event, Handle, Iov, Uuid, c_text, place, put};

/// Read access only.
const OPEN_READ_ONLY: c_uint = 1;
/// Longest name of a container in bytes.
const NAME_BYTES_MAX: usize = 63;

/// The UUID under which a container is shown: of its pool, with its own number at the end.
pub(crate) fn uuid_of(pool: &Pool, container: &Container) -> Uuid {
    let mut uuid = pool.map().pool.0;
    uuid[12..].copy_from_slice(&container.id.0.to_be_bytes());
    uuid
}

/// The container that a label means: its name, or the UUID that it is shown under.
pub(crate) fn find(pool: &Pool, label: &str) -> Result<Container, Der> {
    match pool.container_open(label) {
        Err(ClientError::Status(Status::NotFound)) => {}
        other => return Ok(other?),
    }
    if label.len() != 36 {
        return Err(Der::Nonexist);
    }
    let all = pool.container_list()?;
    all.into_iter()
        .find(|one| uuid_text(&uuid_of(pool, one)).eq_ignore_ascii_case(label))
        .ok_or(Der::Nonexist)
}

/// Makes a container.
pub(crate) fn create(
    pool: &PoolHandle,
    label: &str,
    inheritance: Inheritance,
) -> Result<Container, Der> {
    if pool.read_only {
        return Err(Der::NoPerm);
    }
    let fits = (1..=NAME_BYTES_MAX).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
        && label.as_bytes()[0].is_ascii_alphanumeric();
    if !fits {
        return Err(Der::Inval);
    }
    Ok(pool.pool.container_create(label, inheritance)?)
}

/// Makes a container that nobody has a name for; it is found by its UUID.
pub(crate) fn create_unnamed(
    pool: &PoolHandle,
    inheritance: Inheritance,
) -> Result<Container, Der> {
    let mut bytes = [0; 8];
    pool.pool.platform().fill_random(&mut bytes).map_err(|_| Der::Misc)?;
    create(pool, &format!("unnamed-{:016x}", u64::from_ne_bytes(bytes)), inheritance)
}

/// Destroys the container that a label means.
pub(crate) fn destroy(pool: &PoolHandle, label: &str) -> Result<(), Der> {
    if pool.read_only {
        return Err(Der::NoPerm);
    }
    let container = find(&pool.pool, label)?;
    Ok(pool.pool.container_destroy(&container.name)?)
}

/// Opens a container that was found or made.
pub(crate) fn open(pool: Arc<PoolHandle>, container: Container, read_only: bool) -> Handle {
    let read_only = read_only || pool.read_only;
    handles::add_container(ContainerHandle { pool, container, read_only })
}

/// The container that another process had open.
pub(crate) fn found_again(pool: &PoolHandle, contents: &GlobalContainer) -> Result<Container, Der> {
    let container = pool.pool.container_open(&contents.name)?;
    // Another one may have taken its name.
    if container.id.0 == contents.id { Ok(container) } else { Err(Der::Stale) }
}

/// What another process needs to open it in the same way.
pub(crate) fn to_global(open: &ContainerHandle) -> GlobalContainer {
    let container = &open.container;
    GlobalContainer { name: container.name.clone(), id: container.id.0, read_only: open.read_only }
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_open(
    pool: Handle,
    label: *const c_char,
    flags: c_uint,
    handle: *mut Handle,
    info: *mut ContainerInfo,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        let pool = handles::pool(pool)?;
        // SAFETY: a C string, by the contract.
        let label = unsafe { c_text(label) }.ok_or(Der::Inval)?;
        // SAFETY: null or the caller's to write to, by the contract.
        let handle = unsafe { place(handle) }.ok_or(Der::Inval)?;
        let container = find(&pool.pool, label)?;
        let uuid = uuid_of(&pool.pool, &container);
        // SAFETY: null or the caller's to write to, by the contract.
        unsafe { put(info, ContainerInfo { uuid, ..ContainerInfo::default() }) };
        *handle = open(pool, container, flags & OPEN_READ_ONLY != 0);
        Ok(())
    });
    // SAFETY: null or the caller's to write to, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_close(handle: Handle, event: *mut Event) -> c_int {
    let rc = daos_call(|| handles::remove_container(handle));
    // SAFETY: null or the caller's to write to, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_create_with_label(
    pool: Handle,
    label: *const c_char,
    _prop: Unread,
    uuid: *mut Uuid,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        let pool = handles::pool(pool)?;
        // SAFETY: a C string, by the contract.
        let label = unsafe { c_text(label) }.ok_or(Der::Inval)?;
        let container = create(&pool, label, Inheritance::default())?;
        // SAFETY: null or the caller's to write to, by the contract.
        unsafe { put(uuid, uuid_of(&pool.pool, &container)) };
        Ok(())
    });
    // SAFETY: null or the caller's to write to, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_create(
    pool: Handle,
    uuid: *mut Uuid,
    _prop: Unread,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        let pool = handles::pool(pool)?;
        let container = create_unnamed(&pool, Inheritance::default())?;
        // SAFETY: null or the caller's to write to, by the contract.
        unsafe { put(uuid, uuid_of(&pool.pool, &container)) };
        Ok(())
    });
    // SAFETY: null or the caller's to write to, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_destroy(
    pool: Handle,
    label: *const c_char,
    _force: c_int,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        let pool = handles::pool(pool)?;
        // SAFETY: a C string, by the contract.
        let label = unsafe { c_text(label) }.ok_or(Der::Inval)?;
        destroy(&pool, label)
    });
    // SAFETY: null or the caller's to write to, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_local2global(handle: Handle, iov: *mut Iov) -> c_int {
    daos_call(|| {
        let contents = to_global(&*handles::container(handle)?);
        // SAFETY: a list with its buffer, by the contract.
        unsafe { global::give(Kind::Container, &contents, iov) }
    })
}

/// See `daos_cont.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_cont_global2local(
    pool: Handle,
    iov: Iov,
    handle: *mut Handle,
) -> c_int {
    daos_call(|| {
        let pool = handles::pool(pool)?;
        // SAFETY: null or the caller's to write to, by the contract.
        let handle = unsafe { place(handle) }.ok_or(Der::Inval)?;
        // SAFETY: a list with its buffer, by the contract.
        let contents: GlobalContainer = unsafe { global::take(Kind::Container, &iov) }?;
        let container = found_again(&pool, &contents)?;
        *handle = open(pool, container, contents.read_only);
        Ok(())
    })
}
