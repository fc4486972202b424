//! Listing dkeys and akeys. Owns where a listing has come to, and the page that is being handed out.

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::mem::MaybeUninit;
use std::sync::Arc;

use azekura_client::{KeyCursor, Objects as _, Pool, akey_kind};
use azekura_posix::Errno;
use azekura_proto::Oid;
use parking_lot::Mutex;

use crate::call::{answer, status};
use crate::failure::{About as _, Failure, Outcome, Subject};
use crate::object::Object;
use crate::pointers::{Bytes, Out, OutHandle, handle, handle_place, place};
use crate::value::key;

/// Keys asked for at a time.
const PAGE_KEYS: u32 = 256;

/// Where the next page begins.
#[derive(Debug)]
enum Next<T> {
    Start,
    After(T),
    End,
}

impl<T> Next<T> {
    fn from(&self) -> Option<&T> {
        match self {
            Self::After(from) => Some(from),
            Self::Start | Self::End => None,
        }
    }
}

/// What is listed.
#[derive(Debug)]
enum Listed {
    Dkeys(Next<KeyCursor>),
    Akeys { dkey: Vec<u8>, next: Next<Vec<u8>> },
}

/// `azekura_keys`.
#[derive(Debug)]
pub(crate) struct Keys {
    pool: Arc<Pool>,
    oid: Oid,
    listing: Mutex<Listing>,
}

#[derive(Debug)]
struct Listing {
    listed: Listed,
    page: VecDeque<Vec<u8>>,
    /// The key that was handed out last: C looks at it until the next call.
    current: Vec<u8>,
}

impl Listing {
    /// The next page; false at the end.
    fn fetch(&mut self, pool: &Pool, oid: Oid) -> Outcome<bool> {
        let subject = Subject::Object(oid);
        match &mut self.listed {
            Listed::Dkeys(Next::End) | Listed::Akeys { next: Next::End, .. } => return Ok(false),
            Listed::Dkeys(next) => {
                let from = next.from().cloned();
                let (keys, rest) = pool.list_dkeys(oid, from, PAGE_KEYS).about(subject)?;
                *next = rest.map_or(Next::End, Next::After);
                self.page = keys.into();
            }
            Listed::Akeys { dkey, next } => {
                let after = next.from().map(Vec::as_slice);
                let (keys, end) = pool.list_akeys(oid, dkey, after, PAGE_KEYS).about(subject)?;
                *next = match keys.last() {
                    Some(last) if !end => Next::After(last.clone()),
                    _ => Next::End,
                };
                self.page = keys.iter().map(|akey| akey_kind(akey).1.to_vec()).collect();
            }
        }
        Ok(true)
    }

    fn advance(&mut self, pool: &Pool, oid: Oid) -> Outcome<bool> {
        loop {
            if let Some(key) = self.page.pop_front() {
                self.current = key;
                return Ok(true);
            }
            if !self.fetch(pool, oid)? {
                return Ok(false);
            }
        }
    }
}

fn open(object: &Object, listed: Listed) -> Box<Keys> {
    let listing = Listing { listed, page: VecDeque::new(), current: Vec::new() };
    Box::new(Keys { pool: Arc::clone(&object.pool), oid: object.oid, listing: Mutex::new(listing) })
}

/// `azekura_list_dkeys`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_list_dkeys(
    object: Option<&Object>,
    keys: OutHandle<'_, Keys>,
) -> c_int {
    status("azekura_list_dkeys", || {
        let out = handle_place(keys, "keys")?;
        *out = Some(open(handle(object, "object")?, Listed::Dkeys(Next::Start)));
        Ok(())
    })
}

/// `azekura_list_akeys`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_list_akeys(
    object: Option<&Object>,
    dkey: Bytes<'_>,
    dkey_bytes: usize,
    keys: OutHandle<'_, Keys>,
) -> c_int {
    status("azekura_list_akeys", || {
        let out = handle_place(keys, "keys")?;
        let object = handle(object, "object")?;
        // SAFETY: the length stands beside what it measures, as azekura.h says.
        let dkey = key(unsafe { dkey.slice(dkey_bytes, "dkey") }?, "dkey")?.to_vec();
        *out = Some(open(object, Listed::Akeys { dkey, next: Next::Start }));
        Ok(())
    })
}

/// `azekura_keys_next`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_keys_next(
    keys: Option<&Keys>,
    key: Out<'_, *const c_void>,
    key_bytes: Out<'_, usize>,
) -> c_int {
    answer("azekura_keys_next", || {
        let keys = handle(keys, "keys")?;
        let out: &mut MaybeUninit<*const c_void> = place(key, "key")?;
        let out_bytes = place(key_bytes, "key_bytes")?;
        let Some(mut listing) = keys.listing.try_lock() else {
            let text = "another thread is using this listing: give each thread its own";
            return Err(Failure::with(Errno::BUSY, text));
        };
        let found = listing.advance(&keys.pool, keys.oid)?;
        if found {
            out.write(listing.current.as_ptr().cast());
            out_bytes.write(listing.current.len());
        }
        Ok(found)
    })
}

/// `azekura_keys_close`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_keys_close(keys: Option<Box<Keys>>) -> c_int {
    status("azekura_keys_close", || {
        drop(keys);
        Ok(())
    })
}
