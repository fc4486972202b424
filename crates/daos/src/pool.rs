//! Starting the library, and pools. Owns how the label of a pool leads to a pool.

use std::ffi::{c_char, c_int, c_uint};
use std::sync::Once;

use azekura_client::{Call, ClientConfig, Pool, PoolFile, PoolFileError, pools_dir};
use azekura_proto::TargetId;
use azekura_proto::message::typed::{self, Ping};

use crate::event::{Unread, finish, queue};
use crate::global::{self, GlobalPool, Kind, uuid_text};
use crate::handles::{self, PoolHandle};
use crate::status::{Der, daos_call};
use crate::types::{Event, Handle, Iov, PoolInfo, PoolSpace, Space, c_text, place, put};
use crate::workers;

/// Read access only.
const CONNECT_READ_ONLY: c_uint = 1;
/// `daos_pool_query` is to find out the space.
const INFO_SPACE: u64 = 1;
/// The media under which all space stands.
const MEDIA: usize = 1;

/// See `daos.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn daos_init() -> c_int {
    static QUIET: Once = Once::new();
    daos_call(|| {
        // The library's own hook, not the program's: a panic becomes an error number in silence.
        QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
        handles::start();
        Ok(())
    })
}

/// See `daos.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn daos_fini() -> c_int {
    daos_call(|| {
        if handles::stop()? {
            workers::stop();
            queue::close_all();
            handles::close_all();
        }
        Ok(())
    })
}

/// See `daos.h`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn daos_reinit() -> c_int {
    daos_call(|| {
        handles::check_started()?;
        // Threads and connections are told apart by process already.
        queue::close_all();
        Ok(())
    })
}

/// The pool that a label means: a name, path or URL as everywhere; the id of a pool that is known here;
/// or the name or id of the pool that `AZEKURA_POOL` leads to.
fn find(label: &str) -> Result<PoolFile, PoolFileError> {
    let first = match PoolFile::find(label) {
        Err(error @ PoolFileError::Unknown { .. }) => error,
        other => return other,
    };
    let is_meant = |file: &PoolFile| {
        file.map.name == label || uuid_text(&file.map.pool.0).eq_ignore_ascii_case(label)
    };
    if let Ok(text) = std::env::var("AZEKURA_POOL")
        && let Ok(file) = PoolFile::find(&text)
        && is_meant(&file)
    {
        return Ok(file);
    }
    let known = std::fs::read_dir(pools_dir()).into_iter().flatten().flatten();
    known
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .filter_map(|path| PoolFile::load(&path).ok())
        .find(is_meant)
        .ok_or(first)
}

fn connect(file: &PoolFile, read_only: bool) -> Result<PoolHandle, Der> {
    let pool = Pool::connect(file, ClientConfig::default())?;
    Ok(PoolHandle { pool, secret: file.secret.clone(), read_only })
}

/// Connects to the pool that a label means. A pool that does not answer is found out here.
pub(crate) fn connect_to(label: &str, read_only: bool) -> Result<PoolHandle, Der> {
    handles::check_started()?;
    let connected = connect(&find(label)?, read_only)?;
    connected.pool.call(TargetId(0), Ping)?;
    Ok(connected)
}

fn describe(pool: &Pool, bits: u64) -> Result<PoolInfo, Der> {
    let map = pool.map();
    let mut info = PoolInfo {
        uuid: map.pool.0,
        targets: u32::from(map.target_count()),
        engines: map.engines.len() as u32,
        map_version: map.version,
        bits,
        ..PoolInfo::default()
    };
    if bits & INFO_SPACE != 0 {
        info.space = space(pool)?;
    }
    Ok(info)
}

/// Space over all targets; targets that share a device count once.
fn space(pool: &Pool) -> Result<PoolSpace, Der> {
    let targets = pool.target_count();
    let mut calls: Vec<_> =
        (0..targets).map(|target| Call::new(TargetId(target), typed::Space)).collect();
    let mut sum = Space::default();
    let mut devices = Vec::new();
    for one in pool.call_all(&mut calls) {
        let one = one?;
        if !devices.contains(&one.device) {
            devices.push(one.device);
            sum.total_bytes[MEDIA] = sum.total_bytes[MEDIA].saturating_add(one.total_bytes);
            sum.free_bytes[MEDIA] = sum.free_bytes[MEDIA].saturating_add(one.available_bytes);
        }
    }
    let share = sum.free_bytes.map(|bytes| bytes / u64::from(targets.max(1)));
    let targets = u32::from(targets);
    Ok(PoolSpace {
        space: sum,
        free_min: share,
        free_max: share,
        free_mean: share,
        targets,
        padding: 0,
    })
}

/// See `daos.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_pool_connect(
    label: *const c_char,
    _system: *const c_char,
    flags: c_uint,
    handle: *mut Handle,
    info: *mut PoolInfo,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        handles::check_started()?;
        // SAFETY: a C string, by the contract.
        let label = unsafe { c_text(label) }.ok_or(Der::Inval)?;
        // SAFETY: null or the caller's to write to, by the contract.
        let handle = unsafe { place(handle) }.ok_or(Der::Inval)?;
        let connected = connect_to(label, flags & CONNECT_READ_ONLY != 0)?;
        let about = describe(&connected.pool, 0)?;
        // SAFETY: null or the caller's to write to, by the contract.
        unsafe { put(info, about) };
        *handle = handles::add_pool(connected);
        Ok(())
    });
    // SAFETY: null or the caller's to write to, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_pool_disconnect(handle: Handle, event: *mut Event) -> c_int {
    let rc = daos_call(|| handles::remove_pool(handle));
    // SAFETY: null or the caller's to write to, by the contract.
    unsafe { finish(event, rc) }
}

/// See `daos.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_pool_query(
    handle: Handle,
    _ranks: Unread,
    info: *mut PoolInfo,
    _prop: Unread,
    event: *mut Event,
) -> c_int {
    let rc = daos_call(|| {
        let pool = handles::pool(handle)?;
        // SAFETY: null or the caller's to read and write, by the contract.
        if let Some(info) = unsafe { place(info) } {
            *info = describe(&pool.pool, info.bits)?;
        }
        Ok(())
    });
    // SAFETY: null or the caller's to write to, by the contract.
    unsafe { finish(event, rc) }
}

/// What another process needs to connect in the same way.
pub(crate) fn to_global(pool: &PoolHandle) -> Result<GlobalPool, Der> {
    GlobalPool::new((*pool.pool.map()).clone(), &pool.secret, pool.read_only)
}

/// A connection as another process has it.
pub(crate) fn from_global(contents: GlobalPool) -> Result<PoolHandle, Der> {
    handles::check_started()?;
    let read_only = contents.read_only;
    connect(&contents.into_pool_file()?, read_only)
}

/// See `daos.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_pool_local2global(handle: Handle, iov: *mut Iov) -> c_int {
    daos_call(|| {
        let contents = to_global(&*handles::pool(handle)?)?;
        // SAFETY: a list with its buffer, by the contract.
        unsafe { global::give(Kind::Pool, &contents, iov) }
    })
}

/// See `daos.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn daos_pool_global2local(iov: Iov, handle: *mut Handle) -> c_int {
    daos_call(|| {
        handles::check_started()?;
        // SAFETY: null or the caller's to write to, by the contract.
        let handle = unsafe { place(handle) }.ok_or(Der::Inval)?;
        // SAFETY: a list with its buffer, by the contract.
        let contents: GlobalPool = unsafe { global::take(Kind::Pool, &iov) }?;
        *handle = handles::add_pool(from_global(contents)?);
        Ok(())
    })
}
