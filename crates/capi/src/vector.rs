//! Vectored reading and writing. Owns when the pieces travel as one: small ones are gathered, so
//! that they cost one request.

use std::ffi::c_int;

use azekura_posix::Errno;

use crate::call::count;
use crate::failure::{About as _, Failure, Outcome};
use crate::file::File;
use crate::pointers::handle;

/// As Linux has it.
const PIECES_MAX: usize = 1024;
/// Up to this size pieces are gathered: what one request moves.
const GATHER_BYTES: usize = 4 << 20;

/// The pieces that C describes, and their sum in bytes.
fn pieces<'a>(first: *const libc::iovec, pieces: c_int) -> Outcome<(&'a [libc::iovec], usize)> {
    let number = usize::try_from(pieces).ok().filter(|number| *number <= PIECES_MAX);
    let number = number.ok_or_else(|| {
        let text = format!("{pieces} pieces: 0 to {PIECES_MAX} may be given");
        Failure::with(Errno::INVAL, text)
    })?;
    if number == 0 {
        return Ok((&[], 0));
    }
    if first.is_null() {
        return Err(Failure::with(Errno::FAULT, "'pieces' is NULL"));
    }
    // SAFETY: azekura.h asks for `pieces` of them there.
    let given = unsafe { std::slice::from_raw_parts(first, number) };
    let mut sum: usize = 0;
    for piece in given {
        if piece.iov_base.is_null() && piece.iov_len > 0 {
            return Err(Failure::with(Errno::FAULT, "the place of a piece is NULL"));
        }
        sum = sum
            .checked_add(piece.iov_len)
            .filter(|sum| isize::try_from(*sum).is_ok())
            .ok_or_else(|| Failure::with(Errno::INVAL, "the pieces are too long"))?;
    }
    Ok((given, sum))
}

/// # Safety
/// The piece points to so many bytes that stay as they are during the call.
unsafe fn data_of(piece: &libc::iovec) -> &[u8] {
    if piece.iov_len == 0 {
        return &[];
    }
    // SAFETY: the caller's promise; `pieces` has seen that it is not NULL.
    unsafe { std::slice::from_raw_parts(piece.iov_base.cast::<u8>(), piece.iov_len) }
}

/// # Safety
/// The piece points to room for so many bytes, and to no other's.
#[expect(clippy::mut_from_ref, reason = "the piece is a pointer; the room is the call's alone")]
unsafe fn room_of(piece: &libc::iovec) -> &mut [u8] {
    if piece.iov_len == 0 {
        return &mut [];
    }
    // SAFETY: the caller's promise; `pieces` has seen that it is not NULL.
    unsafe { std::slice::from_raw_parts_mut(piece.iov_base.cast::<u8>(), piece.iov_len) }
}

fn scatter(data: &[u8], given: &[libc::iovec]) {
    let mut rest = data;
    for piece in given {
        // SAFETY: as azekura.h says of the pieces of a read.
        let room = unsafe { room_of(piece) };
        let (now, later) = rest.split_at(room.len().min(rest.len()));
        room[..now.len()].copy_from_slice(now);
        rest = later;
    }
}

/// One piece after another, until one is short. An error counts only if nothing went before it.
fn in_turn(
    given: &[libc::iovec],
    mut one: impl FnMut(&libc::iovec, u64) -> azekura_posix::Result<usize>,
) -> azekura_posix::Result<usize> {
    let mut done = 0;
    for piece in given.iter().filter(|piece| piece.iov_len > 0) {
        match one(piece, done as u64) {
            Ok(bytes) => {
                done += bytes;
                if bytes < piece.iov_len {
                    break;
                }
            }
            Err(errno) if done == 0 => return Err(errno),
            Err(_) => break,
        }
    }
    Ok(done)
}

/// `azekura_preadv`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_preadv(
    file: Option<&File>,
    first: *const libc::iovec,
    number: c_int,
    offset: u64,
) -> isize {
    count("azekura_preadv", || {
        let file = handle(file, "file")?;
        let (given, sum) = pieces(first, number)?;
        let read = if given.len() > 1 && sum <= GATHER_BYTES {
            let mut data = vec![0; sum];
            file.open.read_at(&mut data, offset).inspect(|&got| scatter(&data[..got], given))
        } else {
            in_turn(given, |piece, done| {
                // SAFETY: as azekura.h says of the pieces of a read.
                file.open.read_at(unsafe { room_of(piece) }, offset.saturating_add(done))
            })
        };
        read.about(file.subject())
    })
}

/// `azekura_pwritev`.
#[unsafe(no_mangle)]
pub(crate) extern "C" fn azekura_pwritev(
    file: Option<&File>,
    first: *const libc::iovec,
    number: c_int,
    offset: u64,
) -> isize {
    count("azekura_pwritev", || {
        let file = handle(file, "file")?;
        let (given, sum) = pieces(first, number)?;
        let appends = file.open.handle().flags().contains(azekura_posix::OFlags::APPEND);
        let written = if given.len() > 1 && (appends || sum <= GATHER_BYTES) {
            let mut data = Vec::with_capacity(sum);
            for piece in given {
                // SAFETY: as azekura.h says of the pieces of a write.
                data.extend_from_slice(unsafe { data_of(piece) });
            }
            file.open.write_at(&data, offset)
        } else {
            in_turn(given, |piece, done| {
                // SAFETY: as azekura.h says of the pieces of a write.
                file.open.write_at(unsafe { data_of(piece) }, offset.saturating_add(done))
            })
        };
        written.about(file.subject())
    })
}
