//! Pools: opening, closing, and what they and their engines say of themselves.

use std::ffi::{c_char, c_int};
use std::sync::Arc;
use std::time::Duration;

use azekura_client::{Call, ClientConfig, ClientError, PoolFile};
use azekura_posix::Errno;
use azekura_proto::message::typed::{self, Ping, Report};
use azekura_proto::{EngineId, TargetId};

use crate::call::{self, status};
use crate::failure::{About as _, Failure, Outcome, Subject};
use crate::fork;
use crate::pointers::{Out, OutHandle, Text, fill, handle, handle_place, place};

/// `AZEKURA_POOL_LAZY`.
const LAZY: u32 = 1;

/// `azekura_pool`.
#[derive(Debug)]
pub(crate) struct Pool {
    pub(crate) pool: Arc<azekura_client::Pool>,
}

/// `struct azekura_pool_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct PoolOptions {
    timeout_ms: u32,
    flags: u32,
    reserved: [u64; 7],
}

/// `struct azekura_pool_info`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct PoolInfo {
    name: [c_char; 256],
    id: [c_char; 40],
    engines: u32,
    targets: u32,
    map_version: u32,
    unused: u32,
    reserved: [u64; 8],
}

/// `struct azekura_space`.
#[repr(C)]
#[derive(Debug, Default)]
pub(crate) struct Space {
    total_bytes: u64,
    available_bytes: u64,
    objects: u64,
    reserved: [u64; 5],
}

/// `struct azekura_engine_info`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct EngineInfo {
    engine: u32,
    targets: u32,
    pid: u32,
    stopping: u32,
    uptime_s: u64,
    sessions: u64,
    connections: u64,
    requests: u64,
    read_bytes: u64,
    written_bytes: u64,
    requests_per_s: u64,
    read_bytes_per_s: u64,
    written_bytes_per_s: u64,
    resident_bytes: u64,
    reserved: [u64; 8],
}

fn config(options: Option<&PoolOptions>) -> Outcome<(ClientConfig, bool)> {
    let mut config = ClientConfig { is_guest: true, ..ClientConfig::default() };
    let Some(options) = options else { return Ok((config, false)) };
    if options.flags & !LAZY != 0 || options.reserved != [0; 7] {
        let text = "unknown pool options: start from AZEKURA_POOL_OPTIONS_INIT";
        return Err(Failure::with(Errno::INVAL, text));
    }
    if options.timeout_ms > 0 {
        config.request_timeout = Duration::from_millis(u64::from(options.timeout_ms));
    }
    Ok((config, options.flags & LAZY != 0))
}

/// `azekura_pool_open`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_pool_open(
    name: Text<'_>,
    options: Option<&PoolOptions>,
    pool: OutHandle<'_, Pool>,
) -> c_int {
    call::be_quiet();
    status("azekura_pool_open", || {
        let out = handle_place(pool, "pool")?;
        let name = name.utf8("name")?;
        let (config, lazy) = config(options)?;
        fork::watch()?;
        let pool = azekura_client::Pool::connect(&PoolFile::find(name)?, config)?;
        if !lazy {
            pool.call(TargetId(0), Ping)?;
        }
        *out = Some(Box::new(Pool { pool }));
        Ok(())
    })
}

/// `azekura_pool_close`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_pool_close(pool: Option<Box<Pool>>) -> c_int {
    status("azekura_pool_close", || {
        drop(pool);
        Ok(())
    })
}

/// `azekura_pool_info`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_pool_info(pool: Option<&Pool>, info: Out<'_, PoolInfo>) -> c_int {
    status("azekura_pool_info", || {
        let map = handle(pool, "pool")?.pool.map();
        place(info, "info")?.write(PoolInfo {
            name: fill(map.name.as_bytes()),
            id: fill(map.pool.to_string().as_bytes()),
            engines: map.engines.len() as u32,
            targets: u32::from(map.target_count()),
            map_version: map.version,
            unused: 0,
            reserved: [0; 8],
        });
        Ok(())
    })
}

/// `azekura_pool_space`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_pool_space(pool: Option<&Pool>, space: Out<'_, Space>) -> c_int {
    status("azekura_pool_space", || {
        let (pool, out) = (handle(pool, "pool")?, place(space, "space")?);
        out.write(sum_space(&pool.pool).about(Subject::Pool(&pool.pool.map().name))?);
        Ok(())
    })
}

/// Space over all targets; targets that share a device count once.
fn sum_space(pool: &azekura_client::Pool) -> Result<Space, ClientError> {
    let mut calls: Vec<_> =
        (0..pool.target_count()).map(|target| Call::new(TargetId(target), typed::Space)).collect();
    let (mut sum, mut devices) = (Space::default(), Vec::new());
    for space in pool.call_all(&mut calls) {
        let space = space?;
        sum.objects = sum.objects.saturating_add(space.objects);
        if !devices.contains(&space.device) {
            devices.push(space.device);
            sum.total_bytes = sum.total_bytes.saturating_add(space.total_bytes);
            sum.available_bytes = sum.available_bytes.saturating_add(space.available_bytes);
        }
    }
    Ok(sum)
}

/// `azekura_engine_info`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_engine_info(
    pool: Option<&Pool>,
    engine: u32,
    info: Out<'_, EngineInfo>,
) -> c_int {
    status("azekura_engine_info", || {
        let (pool, out) = (&handle(pool, "pool")?.pool, place(info, "info")?);
        let engines = pool.map().engines.len();
        let number = u16::try_from(engine).ok().filter(|number| usize::from(*number) < engines);
        let number = number.ok_or_else(|| {
            let text = format!("there is no engine {engine}: the pool has {engines}, from 0");
            Failure::with(Errno::INVAL, text)
        })?;
        let report = pool.call_engine(EngineId(number), Report).about(Subject::Engine(number))?;
        out.write(EngineInfo {
            engine,
            targets: report.targets.len() as u32,
            pid: report.pid,
            stopping: u32::from(report.stopping),
            uptime_s: report.uptime_s,
            sessions: report.sessions,
            connections: report.connections,
            requests: report.requests,
            read_bytes: report.read_bytes,
            written_bytes: report.written_bytes,
            requests_per_s: report.requests_per_s,
            read_bytes_per_s: report.read_bytes_per_s,
            written_bytes_per_s: report.written_bytes_per_s,
            resident_bytes: report.resident_bytes,
            reserved: [0; 8],
        });
        Ok(())
    })
}
