//! Containers: making, finding, opening and removing them.

use std::ffi::{c_char, c_int};
use std::sync::Arc;

use azekura_client::Objects as _;
use azekura_posix::{
    CachePolicy, Credentials, Errno, FileSystem, FsConfig, Namespace, WritePolicy,
};
use azekura_proto::attr::Inheritance;
use azekura_proto::message;

use crate::call::{count, status};
use crate::class;
use crate::failure::{About as _, Failure, Outcome, Subject};
use crate::oid::RawOid;
use crate::pointers::{Out, OutHandle, Text, fill, handle, handle_place, place};
use crate::pool::Pool;

/// `AZEKURA_NO_CACHE`.
const NO_CACHE: u32 = 1;
/// `AZEKURA_NO_PERMISSION_CHECKS`.
const NO_PERMISSION_CHECKS: u32 = 2;
/// Longest name in bytes.
const NAME_BYTES_MAX: usize = 63;
/// Most supplementary groups that Linux gives a process.
const GROUPS_MAX: usize = 65536;

/// `azekura_container`.
#[derive(Debug)]
pub(crate) struct Container {
    pub(crate) names: Namespace,
}

impl Container {
    pub(crate) fn fs(&self) -> &Arc<FileSystem> {
        self.names.filesystem()
    }

    pub(crate) fn pool(&self) -> &Arc<azekura_client::Pool> {
        self.fs().pool()
    }
}

/// `struct azekura_container_options`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct ContainerOptions {
    file_class: c_int,
    directory_class: c_int,
    chunk_bytes: u32,
    unused: u32,
    reserved: [u64; 6],
}

/// `struct azekura_container_info`.
#[repr(C)]
#[derive(Debug)]
pub(crate) struct ContainerInfo {
    name: [c_char; 256],
    root: RawOid,
    id: u32,
    file_class: c_int,
    directory_class: c_int,
    chunk_bytes: u32,
    reserved: [u64; 6],
}

impl ContainerInfo {
    fn of(container: &message::Container) -> Self {
        Self {
            name: fill(container.name.as_bytes()),
            root: RawOid::of(container.root),
            id: container.id.0,
            file_class: class::number(container.inheritance.file_class),
            directory_class: class::number(container.inheritance.dir_class),
            chunk_bytes: container.inheritance.chunk_bytes,
            reserved: [0; 6],
        }
    }
}

fn inheritance(options: Option<&ContainerOptions>, default: Inheritance) -> Outcome<Inheritance> {
    let Some(options) = options else { return Ok(default) };
    if options.unused != 0 || options.reserved != [0; 6] {
        let text = "unknown container options: start from AZEKURA_CONTAINER_OPTIONS_INIT";
        return Err(Failure::with(Errno::INVAL, text));
    }
    Ok(Inheritance {
        file_class: class::from_number(options.file_class, default.file_class)?,
        dir_class: class::from_number(options.directory_class, default.dir_class)?,
        chunk_bytes: class::chunk_bytes(options.chunk_bytes, default.chunk_bytes)?,
    })
}

/// The rule that the command line has for names, so that each container can be named there.
fn new_name(name: &str) -> Outcome<&str> {
    let fits = name.len() <= NAME_BYTES_MAX
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(&byte))
        && name.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    if fits {
        return Ok(name);
    }
    let rule = "letters, digits, '_', '-' and '.', a letter or digit first";
    let text = format!("'{name}' is not a name: use up to {NAME_BYTES_MAX} {rule}");
    Err(Failure::with(Errno::INVAL, text))
}

/// `azekura_container_create`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_container_create(
    pool: Option<&Pool>,
    name: Text<'_>,
    options: Option<&ContainerOptions>,
) -> c_int {
    status("azekura_container_create", || {
        let (pool, name) = (handle(pool, "pool")?, name.utf8("name")?);
        let inheritance = inheritance(options, Inheritance::default())?;
        let made = pool.pool.container_create(new_name(name)?, inheritance);
        made.map(drop).about(Subject::Container(name))
    })
}

/// `azekura_container_change`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_container_change(
    pool: Option<&Pool>,
    name: Text<'_>,
    options: Option<&ContainerOptions>,
) -> c_int {
    status("azekura_container_change", || {
        let (pool, name) = (handle(pool, "pool")?, name.utf8("name")?);
        let known = pool.pool.container_open(name).about(Subject::Container(name))?;
        let inheritance = inheritance(options, known.inheritance)?;
        let changed = pool.pool.container_change(name, inheritance);
        changed.map(drop).about(Subject::Container(name))
    })
}

/// `azekura_container_destroy`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_container_destroy(pool: Option<&Pool>, name: Text<'_>) -> c_int {
    status("azekura_container_destroy", || {
        let (pool, name) = (handle(pool, "pool")?, name.utf8("name")?);
        pool.pool.container_destroy(name).about(Subject::Container(name))
    })
}

/// `azekura_container_list`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_container_list(
    pool: Option<&Pool>,
    entries: *mut ContainerInfo,
    capacity: usize,
) -> isize {
    count("azekura_container_list", || {
        let pool = handle(pool, "pool")?;
        let found = pool.pool.container_list().about(Subject::Pool(&pool.pool.map().name))?;
        if capacity > 0 {
            if entries.is_null() {
                return Err(Failure::with(Errno::FAULT, "'entries' is NULL"));
            }
            for (index, container) in found.iter().take(capacity).enumerate() {
                // SAFETY: azekura.h asks for room for `capacity` entries there.
                unsafe { entries.add(index).write(ContainerInfo::of(container)) };
            }
        }
        Ok(found.len())
    })
}

fn open(
    pool: Option<&Pool>,
    name: Text<'_>,
    flags: u32,
    caller: Credentials,
    container: OutHandle<'_, Container>,
) -> Outcome<()> {
    let out = handle_place(container, "container")?;
    let (pool, name) = (handle(pool, "pool")?, name.utf8("name")?);
    if flags & !(NO_CACHE | NO_PERMISSION_CHECKS) != 0 {
        return Err(Failure::with(Errno::INVAL, format!("unknown flags {flags:#x}")));
    }
    let config = FsConfig {
        cache: if flags & NO_CACHE != 0 { CachePolicy::None } else { CachePolicy::AUTO },
        check_permissions: flags & NO_PERMISSION_CHECKS == 0,
        // In somebody else's process, which may fork and end as it likes.
        write_policy: WritePolicy::Through,
        ..FsConfig::default()
    };
    let fs = FileSystem::mount(Arc::clone(&pool.pool), name, config)?;
    *out = Some(Box::new(Container { names: Namespace::new(fs, caller) }));
    Ok(())
}

/// `azekura_container_open`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_container_open(
    pool: Option<&Pool>,
    name: Text<'_>,
    flags: u32,
    container: OutHandle<'_, Container>,
) -> c_int {
    status("azekura_container_open", || {
        open(pool, name, flags, Credentials::of_process(), container)
    })
}

/// `azekura_container_open_as`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_container_open_as(
    pool: Option<&Pool>,
    name: Text<'_>,
    flags: u32,
    uid: u32,
    gid: u32,
    groups: *const u32,
    group_count: usize,
    container: OutHandle<'_, Container>,
) -> c_int {
    status("azekura_container_open_as", || {
        if group_count > GROUPS_MAX {
            return Err(Failure::with(Errno::INVAL, format!("{group_count} groups are too many")));
        }
        let groups = if group_count == 0 {
            Vec::new()
        } else if groups.is_null() {
            return Err(Failure::with(Errno::FAULT, "'groups' is NULL"));
        } else {
            // SAFETY: azekura.h asks for `group_count` groups there.
            unsafe { std::slice::from_raw_parts(groups, group_count) }.to_vec()
        };
        open(pool, name, flags, Credentials { uid, gid, groups, process: None }, container)
    })
}

/// `azekura_container_info`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_container_info(
    container: Option<&Container>,
    info: Out<'_, ContainerInfo>,
) -> c_int {
    status("azekura_container_info", || {
        let container = handle(container, "container")?;
        place(info, "info")?.write(ContainerInfo::of(container.fs().container()));
        Ok(())
    })
}

/// `azekura_container_sync`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_container_sync(container: Option<&Container>) -> c_int {
    status("azekura_container_sync", || Ok(handle(container, "container")?.fs().syncfs()?))
}

/// `azekura_container_close`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_container_close(container: Option<Box<Container>>) -> c_int {
    status("azekura_container_close", || {
        drop(container);
        Ok(())
    })
}
