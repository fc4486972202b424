//! What C hands over: strings, byte ranges, places for results. Owns the checks for NULL and the
//! promise that the caller of the interface makes about each pointer: azekura.h says of every
//! parameter what it must point to and for how long. Values of these types are made by C alone.

use std::ffi::{CStr, c_char};
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;

use azekura_posix::Errno;

use crate::failure::{Failure, Outcome};

/// `const char *`: a string ended by a zero byte, or NULL.
#[repr(transparent)]
pub(crate) struct Text<'a>(Option<NonNull<c_char>>, PhantomData<&'a CStr>);

/// `const void *`: as many bytes as the length beside it says; NULL only for none.
#[repr(transparent)]
pub(crate) struct Bytes<'a>(Option<NonNull<u8>>, PhantomData<&'a [u8]>);

/// `void *`: room for as many bytes as the length beside it says; NULL only for none.
#[repr(transparent)]
pub(crate) struct Room<'a>(Option<NonNull<u8>>, PhantomData<&'a mut [u8]>);

/// `T *`: room for one result.
pub(crate) type Out<'a, T> = Option<&'a mut MaybeUninit<T>>;

/// `T **`: room for a handle, which is NULL after a failure.
pub(crate) type OutHandle<'a, T> = Out<'a, Option<Box<T>>>;

impl<'a> Text<'a> {
    /// The string without its zero byte; `EFAULT` for NULL.
    pub(crate) fn bytes(self, what: &'static str) -> Outcome<&'a [u8]> {
        let start = self.0.ok_or_else(|| null(what))?;
        // SAFETY: the type's promise: a string that stays as it is during the call.
        Ok(unsafe { CStr::from_ptr(start.as_ptr()) }.to_bytes())
    }

    /// The string; `EINVAL` if it is not UTF-8.
    pub(crate) fn utf8(self, what: &'static str) -> Outcome<&'a str> {
        std::str::from_utf8(self.bytes(what)?)
            .map_err(|_| Failure::with(Errno::INVAL, format!("'{what}' must be UTF-8 text")))
    }
}

impl<'a> Bytes<'a> {
    /// The bytes.
    ///
    /// # Safety
    /// `length` is the parameter that azekura.h names as the length of these bytes.
    pub(crate) unsafe fn slice(self, length: usize, what: &'static str) -> Outcome<&'a [u8]> {
        match (self.0, length) {
            (_, 0) => Ok(&[]),
            (None, _) => Err(null(what)),
            (Some(start), _) => {
                check_length(length, what)?;
                // SAFETY: so many bytes stand there, and nobody changes them during the call.
                Ok(unsafe { std::slice::from_raw_parts(start.as_ptr(), length) })
            }
        }
    }
}

impl<'a> Room<'a> {
    /// The room.
    ///
    /// # Safety
    /// `length` is the parameter that azekura.h names as the length of this room.
    pub(crate) unsafe fn slice(self, length: usize, what: &'static str) -> Outcome<&'a mut [u8]> {
        match (self.0, length) {
            (_, 0) => Ok(&mut []),
            (None, _) => Err(null(what)),
            (Some(start), _) => {
                check_length(length, what)?;
                // SAFETY: there is room for so many bytes, and it is this call's alone.
                Ok(unsafe { std::slice::from_raw_parts_mut(start.as_ptr(), length) })
            }
        }
    }
}

fn null(what: &'static str) -> Failure {
    Failure::with(Errno::FAULT, format!("'{what}' is NULL"))
}

fn check_length(length: usize, what: &'static str) -> Outcome<()> {
    if isize::try_from(length).is_err() {
        return Err(Failure::with(Errno::INVAL, format!("the length of '{what}' is negative")));
    }
    Ok(())
}

/// A handle; `EINVAL` for NULL.
pub(crate) fn handle<'a, T>(given: Option<&'a T>, what: &'static str) -> Outcome<&'a T> {
    given.ok_or_else(|| Failure::with(Errno::INVAL, format!("the {what} handle is NULL")))
}

/// The place for a result; `EFAULT` for NULL.
pub(crate) fn place<'a, T>(
    given: Out<'a, T>,
    what: &'static str,
) -> Outcome<&'a mut MaybeUninit<T>> {
    given.ok_or_else(|| null(what))
}

/// The place for a handle, set to NULL until there is one.
pub(crate) fn handle_place<'a, T>(
    given: OutHandle<'a, T>,
    what: &'static str,
) -> Outcome<&'a mut Option<Box<T>>> {
    Ok(place(given, what)?.write(None))
}

/// Copies into `room` and gives the length, as `getxattr` does: no room asks for the length alone,
/// and too little is `ERANGE`.
pub(crate) fn hand_out(value: &[u8], room: &mut [u8]) -> Outcome<usize> {
    if room.is_empty() {
        return Ok(value.len());
    }
    let Some(place) = room.get_mut(..value.len()) else {
        let (needed, room) = (value.len(), room.len());
        return Err(Failure::with(
            Errno::RANGE,
            format!("{needed} bytes do not fit into {room}: ask for the length first"),
        ));
    };
    place.copy_from_slice(value);
    Ok(value.len())
}

/// Copies text into a fixed field, cut if need be and ended by a zero byte.
pub(crate) fn fill<const N: usize>(text: &[u8]) -> [c_char; N] {
    let mut field = [0; N];
    for (place, byte) in field.iter_mut().take(N.saturating_sub(1)).zip(text) {
        *place = *byte as c_char;
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_cut_to_its_field_and_ended() {
        assert_eq!(fill::<4>(b"abcdef").map(|c| c as u8), *b"abc\0");
        assert_eq!(fill::<4>(b"a").map(|c| c as u8), *b"a\0\0\0");
    }

    #[test]
    fn a_value_is_handed_out_whole_or_not_at_all() {
        let mut room = [0; 3];
        assert_eq!(hand_out(b"abc", &mut room).ok(), Some(3));
        assert_eq!(&room, b"abc");
        assert_eq!(hand_out(b"abcd", &mut []).ok(), Some(4));
        assert!(hand_out(b"abcd", &mut room).is_err());
        assert_eq!(&room, b"abc");
    }
}
