//! The structs of the headers, field by field. Owns nothing but their layout; a change here is a change
//! of `include/` too.

use std::ffi::{CStr, c_char, c_int, c_void};

use azekura_proto::Oid;
use libc::dirent;

/// `uuid_t`.
pub(crate) type Uuid = [u8; 16];

/// `d_iov_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Iov {
    pub(crate) buf: *mut c_void,
    pub(crate) buf_bytes: usize,
    pub(crate) bytes: usize,
}

impl Iov {
    /// Whether there is memory where it says that some bytes are.
    pub(crate) fn has_its_memory(&self) -> bool {
        self.bytes == 0 || !self.buf.is_null()
    }
}

/// `d_sg_list_t`.
#[repr(C)]
pub(crate) struct SgList {
    pub(crate) count: u32,
    pub(crate) count_out: u32,
    pub(crate) iovs: *mut Iov,
}

/// `daos_range_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct Range {
    pub(crate) index: u64,
    pub(crate) length: u64,
}

/// `dfs_iod_t`.
#[repr(C)]
pub(crate) struct RangeList {
    pub(crate) count: u64,
    pub(crate) ranges: *mut Range,
}

/// `daos_array_iod_t`.
#[repr(C)]
pub(crate) struct ArrayRanges {
    pub(crate) count: u64,
    pub(crate) ranges: *mut Range,
    pub(crate) short_read: u64,
    pub(crate) read: u64,
}

/// `daos_array_stbuf_t`.
#[repr(C)]
pub(crate) struct ArrayStat {
    pub(crate) cells: u64,
    pub(crate) epoch: u64,
}

/// `daos_recx_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct RecordRange {
    pub(crate) index: u64,
    pub(crate) count: u64,
}

/// `daos_iod_t`.
#[repr(C)]
pub(crate) struct IoDescriptor {
    pub(crate) name: Iov,
    pub(crate) kind: u32,
    pub(crate) record_bytes: u64,
    pub(crate) flags: u64,
    pub(crate) count: u32,
    pub(crate) ranges: *mut RecordRange,
}

/// `daos_key_desc_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct KeyDescriptor {
    pub(crate) key_bytes: u64,
    pub(crate) value_kind: u32,
}

/// `daos_epoch_range_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct EpochRange {
    pub(crate) low: u64,
    pub(crate) high: u64,
}

/// `struct daos_prop_entry`; the value is a number or a pointer.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct PropEntry {
    pub(crate) kind: u32,
    pub(crate) flags: u16,
    pub(crate) reserved: u16,
    pub(crate) value: u64,
}

/// `daos_prop_t`.
#[repr(C)]
pub(crate) struct Props {
    pub(crate) count: u32,
    pub(crate) reserved: u32,
    pub(crate) entries: *mut PropEntry,
}

/// `struct duns_attr_t`.
#[repr(C)]
pub(crate) struct PathAttr {
    pub(crate) layout: u16,
    pub(crate) class: u32,
    pub(crate) chunk_bytes: u64,
    pub(crate) props: *mut Props,
    pub(crate) flags: u32,
    pub(crate) pool: [c_char; LABEL_BYTES],
    pub(crate) container: [c_char; LABEL_BYTES],
    pub(crate) system: *mut c_char,
    pub(crate) rest: *mut c_char,
    pub(crate) on_lustre: bool,
    pub(crate) no_prefix: bool,
    pub(crate) pool_uuid: Uuid,
    pub(crate) container_uuid: Uuid,
    pub(crate) dir_class: u32,
    pub(crate) file_class: u32,
}

/// `daos_handle_t`; the cookie of none is 0.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle {
    pub(crate) cookie: u64,
}

/// `daos_obj_id_t`.
#[repr(C)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ObjectId {
    pub(crate) lo: u64,
    pub(crate) hi: u64,
}

impl ObjectId {
    /// The id of nothing.
    pub(crate) const NONE: Self = Self { lo: 0, hi: 0 };

    /// The id of an object of ours as it is.
    pub(crate) fn of(oid: Oid) -> Self {
        let value = u128::from_be_bytes(oid.to_bytes());
        Self { lo: value as u64, hi: (value >> 64) as u64 }
    }

    /// The object of ours that has this id, if one can.
    pub(crate) fn to_ours(self) -> Option<Oid> {
        let value = u128::from(self.hi) << 64 | u128::from(self.lo);
        Oid::from_bytes(&value.to_be_bytes())
    }
}

/// `dfs_obj_info_t`.
#[repr(C)]
pub(crate) struct ObjectInfo {
    pub(crate) class: u32,
    pub(crate) chunk_bytes: u64,
    pub(crate) dir_class: u32,
    pub(crate) file_class: u32,
    pub(crate) id: ObjectId,
}

/// `daos_event_t`.
#[repr(C)]
pub(crate) struct Event {
    pub(crate) error: c_int,
    pub(crate) private: [u64; 20],
    pub(crate) debug: u64,
}

/// `struct daos_space`; scm, nvme.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct Space {
    pub(crate) total_bytes: [u64; 2],
    pub(crate) free_bytes: [u64; 2],
}

/// `struct daos_pool_space`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct PoolSpace {
    pub(crate) space: Space,
    pub(crate) free_min: [u64; 2],
    pub(crate) free_max: [u64; 2],
    pub(crate) free_mean: [u64; 2],
    pub(crate) targets: u32,
    pub(crate) padding: u32,
}

/// `daos_pool_info_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct PoolInfo {
    pub(crate) uuid: Uuid,
    pub(crate) targets: u32,
    pub(crate) engines: u32,
    pub(crate) disabled: u32,
    pub(crate) map_version: u32,
    pub(crate) leader: u32,
    pub(crate) bits: u64,
    pub(crate) space: PoolSpace,
}

/// Room for a label with its zero.
pub(crate) const LABEL_BYTES: usize = 128;

/// `struct daos_pool_cont_info`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct ListedContainer {
    pub(crate) uuid: Uuid,
    pub(crate) label: [c_char; LABEL_BYTES],
}

/// `daos_target_info_t`.
#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct TargetInfo {
    pub(crate) padding: u32,
    pub(crate) state: u32,
    pub(crate) performance: i32,
    pub(crate) space: Space,
}

/// `daos_cont_info_t`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub(crate) struct ContainerInfo {
    pub(crate) uuid: Uuid,
    pub(crate) last_snapshot: u64,
    pub(crate) handles: u32,
    pub(crate) snapshots: u32,
}

/// `daos_anchor_t`.
#[repr(C)]
pub(crate) struct Anchor {
    pub(crate) kind: u16,
    pub(crate) shard: u16,
    pub(crate) flags: u32,
    pub(crate) sub_anchors: u64,
    pub(crate) buf: [u8; 104],
}

/// Kinds of anchors: at the start, in the middle, at the end.
pub(crate) const START: u16 = 0;
pub(crate) const WITHIN: u16 = 1;
pub(crate) const END: u16 = 3;

impl Anchor {
    /// What [`Anchor::set_number`] has kept.
    pub(crate) fn number(&self) -> u64 {
        u64::from_ne_bytes(std::array::from_fn(|index| self.buf[index]))
    }

    /// Keeps a number in the anchor.
    pub(crate) fn set_number(&mut self, number: u64) {
        self.buf[..8].copy_from_slice(&number.to_ne_bytes());
    }
}

/// `dfs_attr_t`.
#[repr(C)]
pub(crate) struct DfsAttr {
    pub(crate) id: u64,
    pub(crate) chunk_bytes: u64,
    pub(crate) class: u32,
    pub(crate) file_class: u32,
    pub(crate) dir_class: u32,
    pub(crate) props: *mut c_void,
    pub(crate) mode: u32,
}

/// `struct dirent`.
pub(crate) type Dirent = dirent;

/// The bytes of a C string; `None` for null.
///
/// # Safety
/// `text` is null, or ends with a zero byte and lives for `'a`.
pub(crate) unsafe fn c_bytes<'a>(text: *const c_char) -> Option<&'a [u8]> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    Some(unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// As [`c_bytes`], for text; `None` also for what is not UTF-8.
///
/// # Safety
/// As [`c_bytes`].
pub(crate) unsafe fn c_text<'a>(text: *const c_char) -> Option<&'a str> {
    // SAFETY: the caller's promise.
    unsafe { c_bytes(text) }.and_then(|bytes| std::str::from_utf8(bytes).ok())
}

/// Gives a result out, if the caller wants it.
///
/// # Safety
/// `place` is null or may be written to.
pub(crate) unsafe fn put<T>(place: *mut T, value: T) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(value) };
    }
}

/// What stands at a place of the caller's, if it gave one.
///
/// # Safety
/// `place` is null, or may be read and written through the reference for `'a`, and by nobody else.
pub(crate) unsafe fn place<'a, T>(place: *mut T) -> Option<&'a mut T> {
    // SAFETY: the caller's promise.
    unsafe { place.as_mut() }
}

/// The items of an array of the caller's; `None` where there should be some and it is null.
///
/// # Safety
/// `start` is null, or so many items stand there for `'a`.
pub(crate) unsafe fn items<'a, T>(start: *const T, count: usize) -> Option<&'a [T]> {
    match (count, start.is_null()) {
        (0, _) => Some(&[]),
        (_, true) => None,
        // SAFETY: the caller's promise.
        (_, false) => Some(unsafe { std::slice::from_raw_parts(start, count) }),
    }
}

/// As [`items`], to write to.
///
/// # Safety
/// As [`items`], and nobody else reads or writes them for `'a`.
pub(crate) unsafe fn items_mut<'a, T>(start: *mut T, count: usize) -> Option<&'a mut [T]> {
    match (count, start.is_null()) {
        (0, _) => Some(&mut []),
        (_, true) => None,
        // SAFETY: the caller's promise.
        (_, false) => Some(unsafe { std::slice::from_raw_parts_mut(start, count) }),
    }
}
