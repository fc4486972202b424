//! `dlopen` of libraries that lie in the pool, or below a map of a staging job, where they come first.
//! The loader maps files by itself, so of one in the pool it gets a copy in
//! memory; the same library always gets the same copy, so that it is loaded once. Libraries that it
//! needs from beside itself are loaded first, since the loader would not find them.

use std::arch::naked_asm;
use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::os::fd::IntoRawFd as _;
use std::sync::atomic::{AtomicPtr, Ordering};

use azekura_posix::{Errno, FileKind, OFlags, Oid, OpenOptions, Result};
use parking_lot::Mutex;

use crate::descriptors::reserve;
use crate::hook;
use crate::host::Function;
use crate::launch::{self, image};
use crate::paths::{self, Spot};
use crate::report::counter;
use crate::settings::{self, Settings};
use crate::staging;

/// Libraries that need libraries.
const DEPTH_MAX: u32 = 8;

/// Which state of which file a copy was made of.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Version {
    oid: Oid,
    bytes: u64,
    changed: (i64, u32),
}

/// Paths under which the loader finds the copies. They stay for the life of the process, as the names
/// of the copies: the loader tells libraries apart by name.
static COPIES: Mutex<Option<HashMap<Version, &'static CString>>> = Mutex::new(None);

fn version(spot: &Spot) -> Result<Version> {
    let attr = spot.ns.resolve(&spot.path, true)?;
    if attr.kind != FileKind::Regular {
        return Err(Errno::NOENT);
    }
    let changed = (attr.mtime.secs, attr.mtime.nanos);
    Ok(Version { oid: attr.oid, bytes: attr.size, changed })
}

fn known(version: &Version) -> Option<&'static CString> {
    COPIES.lock().as_ref().and_then(|copies| copies.get(version).copied())
}

fn parent(path: &[u8]) -> &[u8] {
    &path[..path.iter().rposition(|byte| *byte == b'/').unwrap_or(0)]
}

/// Makes a copy of a library, and before it of those it needs; `order` gets the paths to be loaded.
fn copy(
    settings: &Settings,
    spot: &Spot,
    depth: u32,
    order: &mut Vec<&'static CString>,
) -> Result<()> {
    let version = version(spot)?;
    if let Some(path) = known(&version) {
        order.push(path);
        return Ok(());
    }
    let file = spot.ns.open(&spot.path, &OpenOptions::new(OFlags::RDONLY, 0))?;
    let shown = [settings.prefix.as_slice(), &spot.absolute()].concat();
    let needs = image::needs(&|at, into: &mut [u8]| file.read_at(into, at))?;
    if depth < DEPTH_MAX {
        for name in &needs.libraries {
            let candidates =
                needs.directories.iter().filter_map(|dir| image::beside(dir, parent(&shown), name));
            for candidate in candidates {
                if let Ok(Some(found)) = paths::find(libc::AT_FDCWD, &candidate)
                    && copy(settings, &found, depth + 1, order).is_ok()
                {
                    break;
                }
            }
        }
    }
    let memory = reserve::move_away(launch::copy_to_memory(&file, &shown)?);
    let path = format!("/proc/self/fd/{}", memory.into_raw_fd());
    let path: &'static CString = Box::leak(Box::new(CString::new(path).map_err(|_| Errno::INVAL)?));
    COPIES.lock().get_or_insert_default().insert(version, path);
    order.push(path);
    Ok(())
}

/// # Safety
/// As for `dlopen`.
unsafe fn copies(path: *const c_char, flags: c_int) -> Option<Vec<&'static CStr>> {
    if let Some(job) = staging::active() {
        // SAFETY: the caller says that it is null or a C string.
        let name = unsafe { paths::text(path) }.ok()?;
        counter!("dlopen").served();
        return hook::caught(|| Ok(staging::launch::libraries(job, name))).ok().flatten();
    }
    launch::active()?;
    let settings = settings::get()?;
    if path.is_null() {
        return None;
    }
    let found = hook::run(|| {
        // SAFETY: not null, so a C string.
        let text = unsafe { paths::text(path)? };
        if !text.contains(&b'/') {
            return Ok(None);
        }
        let Some(spot) = paths::find(libc::AT_FDCWD, text)? else { return Ok(None) };
        let mut order = Vec::new();
        if flags & libc::RTLD_NOLOAD != 0 {
            order.extend(known(&version(&spot)?));
        } else {
            copy(settings, &spot, 0, &mut order)?;
        }
        let order: Vec<&CStr> = order.into_iter().map(CString::as_c_str).collect();
        Ok((!order.is_empty()).then_some(order))
    });
    counter!("dlopen").served();
    found?.ok().flatten()
}

#[unsafe(link_section = ".data.hot")]
static DLOPEN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());
#[unsafe(link_section = ".data.hot")]
static DLMOPEN: AtomicPtr<c_void> = AtomicPtr::new(std::ptr::null_mut());

extern "C" fn no_loader() -> *mut c_void {
    std::ptr::null_mut()
}

fn look_up(place: &AtomicPtr<c_void>, function: &Function, name: &CStr) {
    let found = function.address(name);
    let found = if found.is_null() { no_loader as *mut c_void } else { found };
    place.store(found, Ordering::Relaxed);
}

/// The path that the loader is to open; loads what has to be there first.
///
/// # Safety
/// As for `dlopen`.
unsafe extern "C" fn loadable(path: *const c_char, flags: c_int) -> *const c_char {
    #[unsafe(link_section = ".data.hot")]
    static FOUND: Function = Function::new();
    look_up(&DLOPEN, &FOUND, c"dlopen");
    // SAFETY: the caller says so.
    let Some(order) = (unsafe { copies(path, flags) }) else { return path };
    let Some((last, before)) = order.split_last() else { return path };
    let load = DLOPEN.load(Ordering::Relaxed);
    // SAFETY: the C library's function of this name has this signature.
    let load: unsafe extern "C" fn(*const c_char, c_int) -> *mut c_void =
        unsafe { std::mem::transmute(load) };
    for needed in before {
        // SAFETY: a C string. One that cannot be loaded is told by the library that needs it.
        unsafe { load(needed.as_ptr(), libc::RTLD_LAZY | flags & libc::RTLD_GLOBAL) };
    }
    last.as_ptr()
}

/// As [`loadable`], for another name space.
///
/// # Safety
/// As for `dlmopen`.
unsafe extern "C" fn loadable_apart(path: *const c_char, flags: c_int) -> *const c_char {
    #[unsafe(link_section = ".data.hot")]
    static FOUND: Function = Function::new();
    look_up(&DLMOPEN, &FOUND, c"dlmopen");
    // SAFETY: the caller says so.
    let order = unsafe { copies(path, flags) };
    order.and_then(|order| order.last().copied()).map_or(path, CStr::as_ptr)
}

/// `dlopen`. A jump, since the loader looks where the call comes from.
///
/// # Safety
/// As for the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlopen() {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "push rdi",
        "push rsi",
        "sub rsp, 8",
        "call {loadable}",
        "add rsp, 8",
        "pop rsi",
        "pop rdi",
        "mov rdi, rax",
        "jmp qword ptr [rip + {real}]",
        loadable = sym loadable,
        real = sym DLOPEN,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "stp x29, x30, [sp, -32]!",
        "str x1, [sp, 16]",
        "bl {loadable}",
        "ldr x1, [sp, 16]",
        "ldp x29, x30, [sp], 32",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        loadable = sym loadable,
        real = sym DLOPEN,
    );
}

/// `dlmopen`, as [`dlopen`].
///
/// # Safety
/// As for the C function.
#[unsafe(naked)]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dlmopen() {
    #[cfg(target_arch = "x86_64")]
    naked_asm!(
        "push rdi",
        "push rdx",
        "sub rsp, 8",
        "mov rdi, rsi",
        "mov esi, edx",
        "call {loadable}",
        "add rsp, 8",
        "pop rdx",
        "pop rdi",
        "mov rsi, rax",
        "jmp qword ptr [rip + {real}]",
        loadable = sym loadable_apart,
        real = sym DLMOPEN,
    );
    #[cfg(target_arch = "aarch64")]
    naked_asm!(
        "stp x29, x30, [sp, -32]!",
        "stp x0, x2, [sp, 16]",
        "mov x0, x1",
        "mov w1, w2",
        "bl {loadable}",
        "mov x1, x0",
        "ldp x0, x2, [sp, 16]",
        "ldp x29, x30, [sp], 32",
        "adrp x16, {real}",
        "ldr x16, [x16, :lo12:{real}]",
        "br x16",
        loadable = sym loadable_apart,
        real = sym DLMOPEN,
    );
}
