//! `d_hash_*`: hash tables of records that carry their own link. The records are the caller's, so
//! everything here works on its pointers; what stands in `gurt/hash.h` is the contract.
//!
//! Who holds whom: a plain table holds one reference to each record, so a record goes with the last
//! reference after it was taken out. An ephemeral table holds none: a record is taken out when its
//! last user lets go of it.

use std::ffi::{c_int, c_uint, c_void};

use parking_lot::{Mutex, MutexGuard};

use crate::status::{Der, call_or, daos_call};
use crate::types::place;

/// `d_list_t`.
#[repr(C)]
pub(crate) struct Link {
    next: *mut Link,
    prev: *mut Link,
}

type KeyCmp = unsafe extern "C" fn(*mut Table, *mut Link, *const c_void, c_uint) -> bool;
type KeyInit = unsafe extern "C" fn(*mut Table, *mut Link, *mut c_void);
type KeyHash = unsafe extern "C" fn(*mut Table, *const c_void, c_uint) -> u32;
type RecHash = unsafe extern "C" fn(*mut Table, *mut Link) -> u32;
type RecCall = unsafe extern "C" fn(*mut Table, *mut Link);
type RecDecref = unsafe extern "C" fn(*mut Table, *mut Link) -> bool;
type Visit = unsafe extern "C" fn(*mut Link, *mut c_void) -> c_int;

/// `d_hash_table_ops_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Ops {
    key_cmp: Option<KeyCmp>,
    key_init: Option<KeyInit>,
    key_hash: Option<KeyHash>,
    rec_hash: Option<RecHash>,
    rec_addref: Option<RecCall>,
    rec_decref: Option<RecDecref>,
    rec_free: Option<RecCall>,
}

const NOLOCK: u32 = 1 << 0;
const EPHEMERAL: u32 = 1 << 4;
const LRU: u32 = 1 << 5;
/// Most buckets, as a power of two.
const BITS_MAX: u32 = 24;

/// `struct d_hash_table`.
pub(crate) struct Table {
    features: u32,
    ops: Ops,
    /// Heads of rings; their place in memory never changes.
    buckets: Box<[Link]>,
    lock: Mutex<()>,
    _private: *mut c_void,
}

/// Puts a link behind another one.
///
/// # Safety
/// `at` is in a ring, `link` in none.
unsafe fn link_after(at: *mut Link, link: *mut Link) {
    // SAFETY: the caller's promise; neighbours in a ring are links too.
    unsafe {
        let next = (*at).next;
        (*link).next = next;
        (*link).prev = at;
        (*next).prev = link;
        (*at).next = link;
    }
}

/// Takes a link out of its ring.
///
/// # Safety
/// `link` is in a ring, or a ring of its own.
unsafe fn unlink(link: *mut Link) {
    // SAFETY: the caller's promise; neighbours in a ring are links too.
    unsafe {
        (*(*link).prev).next = (*link).next;
        (*(*link).next).prev = (*link).prev;
        (*link).next = link;
        (*link).prev = link;
    }
}

/// Whether a link is in no table: alone, or never initialised but zeroed.
///
/// # Safety
/// `link` may be read.
unsafe fn is_alone(link: *mut Link) -> bool {
    // SAFETY: the caller's promise.
    let next = unsafe { (*link).next };
    next == link || next.is_null()
}

/// A hash table as its functions see it. All methods are unsafe for the same reason: the links are the
/// caller's memory, good by the contract of `gurt/hash.h`.
#[derive(Clone, Copy)]
struct Records {
    table: *mut Table,
}

impl Records {
    /// # Safety
    /// `table` is null, or came from `d_hash_table_create` and was not destroyed.
    unsafe fn of(table: *mut Table) -> Option<Self> {
        (!table.is_null()).then_some(Self { table })
    }

    fn table<'a>(self) -> &'a Table {
        // SAFETY: not null and not destroyed, see `of`; shared, so that callbacks may use it too.
        unsafe { &*self.table }
    }

    fn locked<'a>(self) -> Option<MutexGuard<'a, ()>> {
        (self.table().features & NOLOCK == 0).then(|| self.table().lock.lock())
    }

    fn is_ephemeral(self) -> bool {
        self.table().features & EPHEMERAL != 0
    }

    unsafe fn bucket(self, key: *const c_void, bytes: c_uint) -> *mut Link {
        let hash = match self.table().ops.key_hash {
            // SAFETY: the caller's function, for its own key.
            Some(hash) => unsafe { hash(self.table, key, bytes) },
            // SAFETY: the caller's key of so many bytes.
            None => unsafe { d_hash_string_u32(key.cast(), bytes) },
        };
        let buckets = &self.table().buckets;
        let head: *const Link = &raw const buckets[hash as usize & (buckets.len() - 1)];
        head.cast_mut()
    }

    unsafe fn look(self, head: *mut Link, key: *const c_void, bytes: c_uint) -> Option<*mut Link> {
        let same = self.table().ops.key_cmp?;
        // SAFETY: a ring of links, see the type's text.
        unsafe {
            let mut at = (*head).next;
            while at != head {
                if same(self.table, at, key, bytes) {
                    return Some(at);
                }
                at = (*at).next;
            }
        }
        None
    }

    unsafe fn addref(self, link: *mut Link) {
        if let Some(addref) = self.table().ops.rec_addref {
            // SAFETY: the caller's function, for its own record.
            unsafe { addref(self.table, link) };
        }
    }

    /// True if that was the last reference.
    unsafe fn decref(self, link: *mut Link) -> bool {
        // SAFETY: the caller's function, for its own record.
        self.table().ops.rec_decref.is_some_and(|decref| unsafe { decref(self.table, link) })
    }

    unsafe fn free(self, link: *mut Link) {
        if let Some(free) = self.table().ops.rec_free {
            // SAFETY: the caller's function, for its own record.
            unsafe { free(self.table, link) };
        }
    }

    fn first(self) -> Option<*mut Link> {
        self.table().buckets.iter().map(std::ptr::from_ref).find_map(|head| {
            // SAFETY: heads of rings are initialised at creation.
            let next = unsafe { (*head).next };
            (!std::ptr::eq(next, head)).then_some(next)
        })
    }

    /// Takes a record out, and frees it outside the lock if nobody holds it any more.
    unsafe fn remove(self, locked: Option<MutexGuard<'_, ()>>, link: *mut Link) {
        // SAFETY: the link is in the table.
        unsafe {
            unlink(link);
            let last = !self.is_ephemeral() && self.decref(link);
            drop(locked);
            if last {
                self.free(link);
            }
        }
    }
}

/// See `gurt/common.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn d_hash_string_u32(text: *const u8, bytes: c_uint) -> u32 {
    if text.is_null() {
        return 5381;
    }
    // SAFETY: the caller's key of so many bytes, by the contract.
    let text = unsafe { std::slice::from_raw_parts(text, bytes as usize) };
    text.iter().fold(5381, |hash: u32, byte| hash.wrapping_mul(33).wrapping_add((*byte).into()))
}

/// See `gurt/hash.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn d_hash_table_create(
    features: u32,
    bits: u32,
    private: *mut c_void,
    ops: *const Ops,
    out: *mut *mut Table,
) -> c_int {
    daos_call(|| {
        // SAFETY: null or the caller's, by the contract.
        let (ops, out) = unsafe { (ops.as_ref(), place(out)) };
        let (Some(ops), Some(out)) = (ops, out) else { return Err(Der::Inval) };
        if ops.key_cmp.is_none() || bits > BITS_MAX {
            return Err(Der::Inval);
        }
        let none = std::ptr::null_mut();
        let mut buckets: Box<[Link]> =
            (0..1_usize << bits).map(|_| Link { next: none, prev: none }).collect();
        for head in &mut buckets {
            let own = &raw mut *head;
            *head = Link { next: own, prev: own };
        }
        let table = Table { features, ops: *ops, buckets, lock: Mutex::new(()), _private: private };
        *out = Box::into_raw(Box::new(table));
        Ok(())
    })
}

/// See `gurt/hash.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn d_hash_table_destroy(table: *mut Table, force: bool) -> c_int {
    daos_call(|| {
        // SAFETY: by the contract.
        let records = unsafe { Records::of(table) }.ok_or(Der::Inval)?;
        while let Some(link) = records.first() {
            if !force {
                return Err(Der::Busy);
            }
            // SAFETY: the record is in the table, which holds a reference or is the only one that
            // still knows it.
            unsafe {
                unlink(link);
                if records.decref(link) {
                    records.free(link);
                }
            }
        }
        // SAFETY: it came from `Box::into_raw` and is not used after this, by the contract.
        drop(unsafe { Box::from_raw(table) });
        Ok(())
    })
}

/// See `gurt/hash.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn d_hash_table_traverse(
    table: *mut Table,
    visit: Option<Visit>,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: by the contract.
    let (Some(records), Some(visit)) = (unsafe { Records::of(table) }, visit) else {
        return -(Der::Inval as c_int);
    };
    let _locked = records.locked();
    for head in &records.table().buckets {
        let head = std::ptr::from_ref(head);
        // SAFETY: a ring of links; the caller's function does not change it, by the contract.
        unsafe {
            let mut at = (*head).next;
            while !std::ptr::eq(at, head) {
                let next = (*at).next;
                let rc = visit(at, argument);
                if rc != 0 {
                    return rc;
                }
                at = next;
            }
        }
    }
    0
}

/// See `gurt/hash.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn d_hash_rec_find(
    table: *mut Table,
    key: *const c_void,
    bytes: c_uint,
) -> *mut Link {
    call_or(std::ptr::null_mut(), || {
        // SAFETY: by the contract.
        let Some(records) = (unsafe { Records::of(table) }) else { return std::ptr::null_mut() };
        let _locked = records.locked();
        // SAFETY: by the contract; the link that is found is in the table.
        unsafe {
            let head = records.bucket(key, bytes);
            let Some(link) = records.look(head, key, bytes) else { return std::ptr::null_mut() };
            if records.table().features & LRU != 0 && (*head).next != link {
                unlink(link);
                link_after(head, link);
            }
            records.addref(link);
            link
        }
    })
}

/// See `gurt/hash.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn d_hash_rec_insert(
    table: *mut Table,
    key: *const c_void,
    bytes: c_uint,
    link: *mut Link,
    exclusive: bool,
) -> c_int {
    daos_call(|| {
        // SAFETY: by the contract.
        let records = unsafe { Records::of(table) }.ok_or(Der::Inval)?;
        if link.is_null() || key.is_null() || bytes == 0 {
            return Err(Der::Inval);
        }
        let _locked = records.locked();
        // SAFETY: by the contract; the link is in no table yet.
        unsafe {
            let head = records.bucket(key, bytes);
            if exclusive && records.look(head, key, bytes).is_some() {
                return Err(Der::Exist);
            }
            if !records.is_ephemeral() {
                records.addref(link);
            }
            link_after(head, link);
        }
        Ok(())
    })
}

/// See `gurt/hash.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn d_hash_rec_delete(
    table: *mut Table,
    key: *const c_void,
    bytes: c_uint,
) -> bool {
    call_or(false, || {
        // SAFETY: by the contract.
        let Some(records) = (unsafe { Records::of(table) }) else { return false };
        let locked = records.locked();
        // SAFETY: by the contract; the link that is found is in the table.
        unsafe {
            let head = records.bucket(key, bytes);
            let Some(link) = records.look(head, key, bytes) else { return false };
            records.remove(locked, link);
        }
        true
    })
}

/// See `gurt/hash.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn d_hash_rec_delete_at(table: *mut Table, link: *mut Link) -> bool {
    call_or(false, || {
        // SAFETY: by the contract.
        let Some(records) = (unsafe { Records::of(table) }) else { return false };
        let locked = records.locked();
        // SAFETY: by the contract.
        unsafe {
            if link.is_null() || is_alone(link) {
                return false;
            }
            records.remove(locked, link);
        }
        true
    })
}

/// See `gurt/hash.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn d_hash_rec_addref(table: *mut Table, link: *mut Link) {
    // SAFETY: by the contract.
    let Some(records) = (unsafe { Records::of(table) }) else { return };
    let _locked = records.locked();
    // SAFETY: by the contract.
    unsafe { records.addref(link) };
}

/// See `gurt/hash.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn d_hash_rec_decref(table: *mut Table, link: *mut Link) {
    // SAFETY: by the contract.
    let Some(records) = (unsafe { Records::of(table) }) else { return };
    let locked = records.locked();
    // SAFETY: by the contract.
    unsafe {
        if !records.decref(link) {
            return;
        }
        if records.is_ephemeral() && !is_alone(link) {
            unlink(link);
        }
        drop(locked);
        records.free(link);
    }
}

/// See `gurt/hash.h`.
#[unsafe(no_mangle)]
pub(crate) unsafe extern "C" fn d_hash_rec_first(table: *mut Table) -> *mut Link {
    // SAFETY: by the contract.
    let Some(records) = (unsafe { Records::of(table) }) else { return std::ptr::null_mut() };
    let _locked = records.locked();
    records.first().unwrap_or(std::ptr::null_mut())
}
